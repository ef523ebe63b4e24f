"""The `muster` command. Subcommands are imported only when they are called, so that start-up stays short."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click

from muster import __version__
from muster.cli.lazy import LazyGroup
from muster.cli.output import MOST_COLUMNS, PLUGIN_NAME, say
from muster.errors import BackendError, MusterError, near

COMMANDS = {
    "whatif": ("muster.cli.whatif", "What if: changes to a snapshot run forward beside things as they are."),
    "simulate": ("muster.cli.simulate", "Run work through the scheduler on a simulated fleet: one run or a sweep."),
    "fit": ("muster.cli.fit", "Whether work would start if it were submitted now, where, and what it displaces."),
    "translate": ("muster.cli.translate", "An sbatch script as Kubernetes manifests, and manifests as a script."),
    "why": ("muster.cli.why", "Why a job waits, when it will start, and what would help."),
    "queue": ("muster.cli.queue", "What waits and why, what runs and until when, and who holds how much."),
    "top": ("muster.cli.top", "Watch fleet, queues and the waiting list on the terminal."),
    "scheduler": ("muster.cli.scheduler", "Schedule a Kubernetes cluster, or show what it would do beside another."),
    "metrics": ("muster.cli.metrics", "Figures of fleet and queues for Prometheus, in OpenMetrics text."),
    "mcp": ("muster.cli.mcp", "Serve the answers to assistants over the Model Context Protocol; read-only."),
    "explain-config": ("muster.cli.explain_config", "Every setting of the scheduling cycle: default and meaning."),
    "tune": ("muster.cli.tune", "Fit the default policy to a fleet and a mix of pod shapes."),
    "slowdown": ("muster.cli.slowdown", "How much longer a training step takes on one placement than on another."),
    "fleet": ("muster.cli.fleet", "Show a fleet: nodes by state, free GPUs that are of no use by cause."),
    "trace": ("muster.cli.trace", "Inspect, convert and generate traces of work."),
    "defrag": ("muster.cli.defrag", "Which work to move so that a gang starts or nodes become whole; price and gain."),
    "doctor": (
        "muster.cli.doctor",
        "From pasted evidence to the broken layer of a node, its fix, and the next command.",
    ),
    "plan": ("muster.cli.plan", "Numbers about a fleet, derived: formula, inputs, steps, sensitivity, limits."),
    "spares": ("muster.cli.spares", "How many spare nodes the failure rate asks for, and how many are missing."),
    "snapshot": ("muster.cli.snapshot", "One instant of a cluster in a file: save, show, compare, anonymize, replay."),
    "history": ("muster.cli.history", "Snapshots and decisions over time: why did it do that at 14:03?"),
    "completion": ("muster.cli.completion", "The script by which a shell completes commands and options."),
    "k8s": ("muster.cli.k8s", "A Kubernetes cluster's own objects: what moving to DRA would change."),
    "slurm": ("muster.cli.slurm", "A Slurm cluster: what an sbatch script gets, and what is wrong with it."),
    "catalog": ("muster.cli.catalog", "Facts that Muster knows: GPU models, MIG profiles, links; with sources."),
}
"""Name of a subcommand to the module that defines ``command`` and its one-line help (one place for both)."""

COLLECT_EVERY = 50_000
"""So many more objects before the collector looks for cycles: commands make many objects, and hardly a cycle."""


class Main(LazyGroup):
    """All commands."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; Ctrl-C is told in one line, with what the command says about it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(": ".join(["interrupted", *map(str, error.args)])) from None
        except BrokenPipeError:
            raise click.exceptions.Exit(0) from None  # before click makes an exit code 1 of it, which means no


class Interrupted(click.ClickException):
    """Ctrl-C."""

    exit_code = 130

    def show(self, file: IO[Any] | None = None) -> None:
        """Tell it on stderr."""
        say(f"muster: {self.message}")


EPILOG = """\b
Examples:
  muster simulate --fleet example --workload generate:mix=default --policy fgd,default
  muster why research/llama-70b --context prod
  muster fit job.yaml --from now.snap --explain
  muster fleet frag example
  muster trace info swf:RICC-2010-2.swf.gz
  muster catalog mig H100-SXM5-80GB

\b
Exit codes: 0 yes, 1 no, 2 usage or bad input, 3 backend not reachable, 130 interrupted.
"""


_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": MOST_COLUMNS}
"""Help is as wide as tables may be, where the terminal is."""


@click.group(cls=Main, commands=COMMANDS, epilog=EPILOG, context_settings=_HELP)
@click.option("--cluster", metavar="slurm", help="Of the commands that answer: a live Slurm.")
@click.option("--context", metavar="NAME", help="Of the commands that answer: a live cluster, by its context.")
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig that has it.")
@click.option("-n", "--namespace", metavar="NAME", help="The namespace that is meant.")
@click.option("--as", "as_user", metavar="USER", help="Act as this user of the cluster.")
@click.version_option(__version__, prog_name="muster")
def main(
    cluster: str | None, context: str | None, kubeconfig: str | None, namespace: str | None, as_user: str | None
) -> None:
    """Muster places GPU work on nodes, on Kubernetes and on a simulated fleet, and tells why in numbers."""
    del (
        cluster,
        context,
        kubeconfig,
        namespace,
        as_user,
    )  # `muster.cli.source` reads them, of the commands that take a source


def run(args: list[str] | None = None) -> None:
    """Entry point: runs `main` and turns every expected failure into one line and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, who then wants none of it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    gc.set_threshold(COLLECT_EVERY)
    try:
        _refuse_undecodable(sys.argv[1:] if args is None else args)
        plugin = Path(sys.argv[0]).name.startswith("kubectl-")
        name = PLUGIN_NAME if plugin else "muster"
        code = main.main(args=args, prog_name=name, complete_var="_MUSTER_COMPLETE", standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = _failed("interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.UsageError as error:
        code = _failed(_usage(error), error.exit_code)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        if shown.getvalue():
            say(shown.getvalue().rstrip("\n"))
        code = error.exit_code
    except click.exceptions.Exit as error:
        code = error.exit_code
    except BackendError as error:
        code = _failed(str(error), 3)
    except MusterError as error:
        code = _failed(str(error))
    except BrokenPipeError:
        code = 0  # the reader went away (`| head`): that is its right
    except UnicodeEncodeError as error:
        code = _failed(f"output cannot be written in {error.encoding}; set PYTHONIOENCODING=utf-8")
    except MemoryError:
        code = _failed("the memory does not suffice; take a smaller input or fewer --jobs")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = _failed(f"{where}cannot be read or written ({error.strerror or error})")
    sys.exit(_flushed(code if isinstance(code, int) else 0))


def _usage(error: click.UsageError) -> str:
    """What is wrong with a command line, with the names that may be meant and the help to look at."""
    text = error.format_message().rstrip(".").replace(". Did you mean", "; did you mean")
    text = f"{text[:1].lower()}{text[1:]}"
    if error.ctx is None:
        return text
    command = error.ctx.command
    if isinstance(command, click.Group) and text.startswith("no such command") and "did you mean" not in text:
        hint = near(text.split("'")[1], command.list_commands(error.ctx))
        text += f"; {hint}" if hint else ""
    return f"{text} ({error.ctx.command_path} --help)"


def _refuse_undecodable(args: Sequence[str]) -> None:
    """Names that are no text could neither be printed nor written to a trace."""
    for arg in args:
        if any("\ud800" <= letter <= "\udfff" for letter in arg):
            shown = arg.encode("utf-8", "backslashreplace").decode()
            raise MusterError(f"argument '{shown}' is not UTF-8 text; rename the file, or set LC_ALL=C.UTF-8")


def _failed(text: str, code: int = 2) -> int:
    one_line = " ".join(text.split()) if "\n" in text else text
    # Names come from files and clusters: what a terminal would obey is shown instead.
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in one_line)
    say(f"muster: {shown}")
    return code


def _flushed(code: int) -> int:
    """Empty both streams; where one cannot be written, keep the interpreter from trying again at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout and code == 0 and not isinstance(error, BrokenPipeError):
                code = 2
    return code
