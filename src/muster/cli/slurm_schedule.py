"""`muster slurm schedule`: let Muster's engine steer a real Slurm, beside its slurmctld."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from muster.cli.output import say
from muster.cli.slurm_steer import cluster_option, release_all, show_outcomes, show_writes, steering
from muster.cli.source import settings_given
from muster.errors import InputError
from muster.planning.quantities import seconds

if TYPE_CHECKING:
    from muster.backends.slurm.writes import Outcome
    from muster.service.steering.steer import Cycle

EPILOG = """\b
Examples:
  muster slurm schedule --once --dry-run               # what it would write now; writes nothing
  muster slurm schedule --once                         # the same, asks, and does it
  muster slurm schedule --every 30s --yes --release-on-exit
  muster slurm schedule --yes --gate 10m --every 5s    # nothing starts but what Muster's plan starts
  muster slurm schedule --yes --reserve-spares 2
  muster slurm release                                 # puts back everything
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@cluster_option
@click.option("--once", is_flag=True, help="One cycle, then end.")
@click.option("--every", default="30s", show_default=True, metavar="TIME", help="From one cycle to the next.")
@click.option("--dry-run", is_flag=True, help="Show what one cycle would write, and write nothing.")
@click.option("--yes", is_flag=True, help="Write without asking, as a service does.")
@click.option("--partition", default="", metavar="NAME", help="Steer only jobs that wait in this partition.")
@click.option(
    "--gate", default="", metavar="TIME",
    help="Reserve all nodes for what Muster starts, for so long at a time: if Muster dies, the gate opens after it.",
)  # fmt: skip
@click.option("--reserve-spares", default=0, metavar="N", type=click.IntRange(0), help="Keep N idle nodes as spares.")
@click.option(
    "--reserve-gangs", default=2, show_default=True, metavar="NODES", type=click.IntRange(1),
    help="Gangs of so many nodes get a reservation for the start that the plan promises.",
)  # fmt: skip
@click.option(
    "--move", is_flag=True,
    help="Move jobs that save their work (checkpoint:TIME in their Comment) where a gang then starts at once.",
)  # fmt: skip
@click.option("--release-on-exit", is_flag=True, help="Put everything back when it is stopped.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="A setting of the engine; `muster explain-config` lists them.",
)  # fmt: skip
def command(
    cluster: str, state: str, once: bool, every: str, dry_run: bool, yes: bool, partition: str, gate: str,
    reserve_spares: int, reserve_gangs: int, move: bool, release_on_exit: bool, settings: tuple[str, ...],
) -> None:  # fmt: skip
    """Steer a real Slurm by Muster's plan; slurmctld goes on starting the jobs.

    Each cycle reads the cluster, makes a plan, and writes the least that makes slurmctld follow it: who goes first
    (Nice), on which nodes (ExcNodeList), reservations for gangs that start later, and jobs that are requeued for
    others. It needs the rights of an Operator. `muster slurm release` puts everything back.
    """
    from muster.engine.config import config_of
    from muster.service.steering.memory import alone
    from muster.service.steering.process import keep_steering, one_cycle, stops
    from muster.slurm.steering.target import How

    every_s, gate_s = seconds(every, "--every"), seconds(gate, "--gate") if gate else 0.0
    if gate and gate_s < max(60.0, 3 * every_s):
        hint = f"a minute at least, and three cycles: --gate {max(60, int(3 * every_s))}s"
        raise InputError(f"{gate} is too short: the gate would open between two cycles", field="--gate", hint=hint)
    if gate and partition:
        hint = "leave out one of them"
        raise InputError("a gate closes the nodes for all partitions", field="--gate", hint=hint)
    how = How(gate_s, reserve_gangs, reserve_spares, move, partition)
    one, path = steering(cluster, state, how, config_of(dict(settings_given(settings))), max(20.0, 2 * every_s))
    if dry_run:
        cycle = one.plan()
        _check_partition(cycle, partition)
        _show(cycle)
        say("Nothing is changed.")
        return
    if not yes and not sys.stdin.isatty():
        raise InputError("nobody can be asked", field="--yes", hint="--yes writes without asking, --dry-run only shows")
    with alone(path), stops() as stopped:
        if partition:
            _check_partition(one.plan(), partition)
        try:
            if once:
                one_cycle(one, stopped, lambda cycle: _agree(cycle, yes=yes), _tell)
            else:
                say(f"Steers every {every}; Ctrl-C or SIGTERM ends it. State: {path}")
                keep_steering(one, every_s, stopped, lambda cycle: _agree(cycle, yes=yes), _tell, say)
        finally:
            if release_on_exit:
                release_all(one)
            else:
                say("What is steered stays so; `muster slurm release` puts it back.")


def _check_partition(cycle: Cycle, name: str) -> None:
    from muster.errors import near

    if name and name not in cycle.scene.partitions:
        known = list(cycle.scene.partitions)
        hint = near(name, known) or f"known: {', '.join(known)}"
        raise InputError(f"there is no partition {name[:60]!r}", field="--partition", hint=hint)


def _show(cycle: Cycle) -> None:
    """What a cycle found, and the writes that it wants."""
    from muster.answers.words import plural

    starts, promised, stopped, moved = cycle.counts()
    told = [f"{starts} start now"]
    told += [f"{promised} have a promised start"] if promised else []
    told += [f"{stopped} are stopped for others"] if stopped else []
    told += [f"{moved} move"] if moved else []
    waits, run = len(cycle.snapshot.pending), len(cycle.snapshot.running)
    at = time.strftime("%H:%M:%S", time.localtime(cycle.snapshot.taken_s))
    click.echo(f"{at}  {plural(waits, 'job waits', 'jobs wait')}, {run} run; of those that wait {', '.join(told)}.")
    if cycle.given_up:
        click.echo(f"  left to slurmctld, which has not started them: {', '.join(cycle.given_up[:8])}")
    show_writes(cycle.writes)
    if not cycle.writes:
        click.echo("  nothing is to be written")


def _agree(cycle: Cycle, *, yes: bool) -> bool:
    _show(cycle)
    if yes:
        return True
    if click.confirm("Do it?", default=False, err=True):
        return True
    say("Nothing is changed.")
    return False


def _tell(cycle: Cycle, outcomes: Sequence[Outcome]) -> None:
    show_outcomes(outcomes, len(cycle.writes))
