"""The `muster` command. Subcommands are imported only when they are called, so that start-up stays short."""

from __future__ import annotations

import importlib
import os
import sys

import click

from muster import __version__
from muster.errors import MusterError

COMMANDS = {
    "simulate": ("muster.cli.simulate", "Run work through the scheduler on a simulated fleet: one run or a sweep."),
    "tune": ("muster.cli.tune", "Fit the default policy to a fleet and a mix of pod shapes."),
    "fleet": ("muster.cli.fleet", "Show a fleet from a file: nodes by state, free GPUs that are of no use by cause."),
    "trace": ("muster.cli.trace", "Inspect, convert and generate traces of work."),
    "catalog": ("muster.cli.catalog", "Facts that Muster knows: GPU models, MIG profiles, links; with sources."),
}
"""Name of a subcommand to the module that defines ``command`` and its one-line help (one place for both)."""


class LazyGroup(click.Group):
    """A group that imports a subcommand's module only to run it or to print its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name (click then suggests near ones)."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


EPILOG = """\b
Examples:
  muster simulate --fleet example --workload generate:mix=default --policy fgd,default
  muster fleet frag example
  muster trace info swf:RICC-2010-2.swf.gz
  muster catalog mig H100-SXM5-80GB

\b
Exit codes: 0 yes, 1 no, 2 usage or bad input, 3 backend not reachable, 130 interrupted.
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="muster")
def main() -> None:
    """Muster places GPU work on nodes, on a simulated fleet, and tells why in numbers."""


def run(args: list[str] | None = None) -> None:
    """Entry point: runs `main` and turns every expected failure into one line and an exit code."""
    try:
        code = main.main(args=args, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        code = 130
    except KeyboardInterrupt:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.exceptions.Exit as error:
        code = error.exit_code
    except MusterError as error:
        sys.stderr.write(f"muster: {error}\n")
        code = 2
    except BrokenPipeError:
        # The reader went away (`| head`): that is its right. Keep the interpreter from flushing into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
