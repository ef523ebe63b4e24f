"""What `muster slurm schedule`, `release` and `status` have in common: the cluster, the state file, how writes read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.output import say
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.backends.slurm.writes import Outcome
    from muster.engine.config import Config
    from muster.service.steering.steer import Steering
    from muster.slurm.steering.target import How
    from muster.slurm.steering.writes import Write

_Function = TypeVar("_Function", bound=Callable[..., Any])
MOST_SHOWN = 40
"""Writes that are shown one by one, a cycle; the others are counted. `-o json` and the log of slurmctld have all."""


def cluster_option(function: _Function) -> _Function:
    """Add ``--cluster`` and ``--state``; the parameters are ``cluster`` and ``state``."""
    for option in (
        click.option(
            "--state", default="", metavar="FILE",
            help="Where the old values are kept. [default: ~/.local/state/muster/slurm-CLUSTER.json]",
        ),
        click.option(
            "--cluster", default="slurm", show_default=True, metavar="slurm",
            help="The Slurm of this machine's commands and SLURM_CONF; the only one that can be steered.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def steering(cluster: str, state: str, how: How, config: Config, patience_s: float = 60.0) -> tuple[Steering, Path]:
    """What steers, and its state file; raises where there is no Slurm, or another source is named."""
    if cluster != "slurm":
        hint = "run it on a machine that has Slurm's commands, with SLURM_CONF"
        raise InputError(f"{cluster[:60]!r} can be read, but not steered", field="--cluster", hint=hint)
    from muster.backends.slurm.commands import Commands
    from muster.backends.slurm.read import read_commands
    from muster.service.steering.memory import state_file
    from muster.service.steering.steer import Steering
    from muster.slurm.records import config_of

    commands = Commands()
    commands.check()
    name = config_of(commands.run("scontrol", "show", "config")).get("ClusterName", "")
    path = state_file(name, state)
    return Steering(
        lambda: read_commands(say, commands), lambda arguments: commands.ask("scontrol", *arguments), stamp, path,
        how, config, patience_s,
    ), path  # fmt: skip


def stamp(at_s: float) -> str:
    """A time as scontrol takes it where its zone is UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))


def show_writes(writes: Sequence[Write]) -> None:
    """The diff: of each write what it is about and why, then what is and what will be."""
    for write in writes[:MOST_SHOWN]:
        click.echo(f"  {_subject(write)}{f'  {write.why}' if write.why else ''}")
        for field, was, then in write.changes:
            click.echo(f"      {field}: {was or 'nothing'} -> {then or 'nothing'}")
    if len(writes) > MOST_SHOWN:
        click.echo(f"  and {len(writes) - MOST_SHOWN:,} more")


def _subject(write: Write) -> str:
    verbs = {
        "free": "job {}", "steer": "job {}", "requeue": "requeue job {}", "move": "requeue job {}",
        "create": "create reservation {}", "update": "reservation {}", "delete": "delete reservation {}",
    }  # fmt: skip
    return verbs[write.kind].format(write.target)


def show_outcomes(outcomes: Sequence[Outcome], writes: int) -> None:
    """What came of the writes: in a line, and one for each that was not done."""
    done = sum(each.result == "done" for each in outcomes)
    if writes:
        passed = sum(each.result == "passed" for each in outcomes)
        more = f"; {passed} not needed any more" if passed else ""
        say(f"{done} of {writes} writes done{more}.")
    for each in outcomes:
        if each.result in ("refused", "skipped"):
            say(f"{_subject(each.write)}: {each.result}: {each.words}")


def release_all(one: Steering) -> bool:
    """Put everything back, and tell of it; whether all of it could be."""
    from muster.backends.slurm.writes import Outcome

    outcomes: list[Outcome] = []
    planned = 0
    for each in one.release():
        if isinstance(each, Outcome):
            outcomes.append(each)
        elif each and isinstance(each[0], str):
            names = [str(name) for name in each]
            jobs = f"{len(names)} jobs ({', '.join(names[:6])}{' ...' if len(names) > 6 else ''})"
            jobs = f"job {names[0]}" if len(names) == 1 else jobs
            say(f"Still on the nodes that they were given: {jobs}. While a job runs, slurmctld changes no node list.")
            say("It would count again after a requeue: then run `muster slurm release` once more.")
        else:
            planned += len(each)
    show_outcomes(outcomes, planned)
    return all(each.result in ("done", "passed") for each in outcomes)
