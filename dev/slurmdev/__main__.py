"""The command ``dev/slurm``."""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import Any

import click

from slurmdev import packages
from slurmdev.errors import SlurmError
from slurmdev.settings import Settings
from slurmdev.slurm import Slurm, names, say_on_stderr, sweep

NAME = click.option("--name", default="dev", show_default=True, help="Which Slurm; several may run at once.")
EXAMPLES = """\b
Examples:
  dev/slurm install
  dev/slurm up --nodes 16
  eval "$(dev/slurm env)" && sinfo
  dev/slurm up --name big --cloud 1250
  dev/slurm down --all

Debian's packages are used; `install` gets them with apt. docs/how-to/real-slurm.md tells more.
"""


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """A real Slurm on this machine, with GPUs that are devices without hardware.

    slurmctld, one slurmd a node, slurmdbd with a database of its own, munge: Debian's programs, all on loopback.
    """


@main.command()
@NAME
@click.option("--nodes", type=click.IntRange(1, 200), default=16, show_default=True, help="Nodes, a slurmd each.")
@click.option("--cloud", type=click.IntRange(1, 10_000), help="So many State=CLOUD nodes instead, without slurmd.")
@click.option("--gpus", type=click.IntRange(0, 16), default=8, show_default=True, help="GPUs of each.")
@click.option("--model", default="h100", show_default=True, help="Type of the GPUs.")
@click.option("--accounting/--no-accounting", default=True, show_default=True, help="slurmdbd and MariaDB.")
@click.option("--rest", is_flag=True, help="slurmrestd, on a socket.")
@click.option("--per-leaf", type=click.IntRange(1), help="Nodes of a leaf switch.  [default: 4; 25 with --cloud]")
@click.option(
    "--leafs-per-block", type=click.IntRange(1), help="Leaf switches of a block.  [default: 2; 10 with --cloud]"
)
@click.option(
    "--set", "parameters", multiple=True, metavar="KEY=VALUE", help="A line of slurm.conf; may be given again."
)
def up(
    name: str,
    nodes: int,
    cloud: int | None,
    gpus: int,
    model: str,
    accounting: bool,
    rest: bool,
    per_leaf: int | None,
    leafs_per_block: int | None,
    parameters: tuple[str, ...],
) -> None:
    """Start a Slurm and wait until every node is idle."""
    settings = Settings(
        nodes=cloud or nodes,
        gpus=gpus,
        model=model,
        cloud=cloud is not None,
        accounting=accounting,
        rest=rest,
        per_leaf=per_leaf or (25 if cloud else 4),
        leafs_per_block=leafs_per_block or (10 if cloud else 2),
        parameters=parameters,
    )
    # a terminal that closes and a `kill` end what was started, as Ctrl-C does
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    if lacking := packages.missing(accounting):
        click.echo(f"  installing {', '.join(lacking)}", err=True)
        packages.install(accounting)
    started = time.monotonic()
    slurm = Slurm(name, settings, say_on_stderr).up()
    version = slurm.run("scontrol", "--version").split()[-1]
    seconds = time.monotonic() - started
    click.echo(
        f"Slurm '{name}' is up ({settings.nodes} nodes, {version}, {seconds:.1f} s); in {slurm.folder}", err=True
    )
    click.echo(f"export SLURM_CONF={slurm.conf}")


@main.command()
@click.option("--accounting/--no-accounting", default=True, show_default=True, help="slurmdbd and MariaDB too.")
def install(accounting: bool) -> None:
    """Install the packages that are missing, with apt; no service is started."""
    done = packages.install(accounting)
    click.echo(f"installed {', '.join(done)}" if done else "nothing is missing", err=True)


@main.command()
@NAME
@click.option("--all", "every", is_flag=True, help="All of this user.")
def down(name: str, every: bool) -> None:
    """End a Slurm with its jobs and remove its state; what does not run any more is no error."""
    for one in names() if every else [name]:
        if one not in names() and not Slurm(one).processes():
            raise SlurmError(f"there is no Slurm '{one}' (there are: {', '.join(names()) or 'none'})")
        Slurm(one).down()
        click.echo(f"Slurm '{one}' is gone", err=True)


@main.command()
@NAME
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(name: str, output: str) -> None:
    """What runs of a Slurm. Exit code 1 if something that should run does not, or slurmctld does not answer."""
    slurm = Slurm.open(name)
    there = slurm.processes()
    rows: list[dict[str, Any]] = [
        {"program": program, "pid": there.get(program), "state": "runs" if program in there else "down"}
        for program in slurm.wanted()
    ]
    answers = slurm.command("scontrol", "ping", within_s=30).returncode == 0
    if output == "json":
        click.echo(json.dumps({"name": name, "conf": str(slurm.conf), "answers": answers, "programs": rows}, indent=1))
    else:
        click.echo(f"{'PROGRAM':16}{'PID':>8}  STATE")
        for row in rows:
            click.echo(f"{row['program']:16}{row['pid'] or '-':>8}  {row['state']}")
        if not answers:
            click.echo(f"slurmctld does not answer; its log ends with:\n{slurm.tail('slurmctld')}", err=True)
    if not answers or any(row["state"] != "runs" for row in rows):
        sys.exit(1)


@main.command("ls")
def ls() -> None:
    """All of this user. Ends those whose test run was killed."""
    for gone in sweep():
        click.echo(f"Slurm '{gone}' belonged to a process that is gone; ended", err=True)
    for name in names():
        slurm = Slurm.open(name)
        there = set(slurm.processes()) & set(slurm.wanted())
        kind = "cloud " if slurm.settings.cloud else ""
        click.echo(
            f"{name:24} {slurm.settings.nodes:>6} {kind}nodes  {len(there)} of {len(slurm.wanted())} programs run"
        )
    if not names():
        click.echo("none; `dev/slurm up` starts one", err=True)


@main.command()
@NAME
def env(name: str) -> None:
    """What a shell must set for Slurm's commands: ``eval "$(dev/slurm env)"``."""
    slurm = Slurm.open(name)
    click.echo(f"export SLURM_CONF={slurm.conf}")
    if slurm.settings.rest:
        click.echo(f"export SLURMRESTD_SOCKET={slurm.rest_socket}")


@main.command()
@NAME
@click.argument("program")
def kill(name: str, program: str) -> None:
    """kill -9 one program: slurmctld, a node's slurmd by the node's name, slurmdbd ..."""
    Slurm.open(name).kill(program)


@main.command()
@NAME
@click.argument("program")
def restart(name: str, program: str) -> None:
    """End one program if it runs, and start it again with the same files and ports."""
    Slurm.open(name).restart(program)


@main.command()
@NAME
@click.argument("program")
def pause(name: str, program: str) -> None:
    """Let one program hang: connections stay open, and nothing answers."""
    Slurm.open(name).kill(program, signal.SIGSTOP)


@main.command()
@NAME
@click.argument("program")
def resume(name: str, program: str) -> None:
    """Let a paused program go on."""
    Slurm.open(name).kill(program, signal.SIGCONT)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        main(prog_name="dev/slurm", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("dev/slurm: interrupted; what was started is ended", err=True)
        sys.exit(130)
    except SlurmError as error:
        click.echo(f"dev/slurm: {error}", err=True)
        sys.exit(2)
