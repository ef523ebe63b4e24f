"""`muster slurm release`: put back all that `muster slurm schedule` changed."""

from __future__ import annotations

import sys

import click

from muster.cli.output import say
from muster.cli.slurm_steer import cluster_option, release_all, show_writes, steering

EPILOG = """\b
Examples:
  muster slurm release --dry-run
  muster slurm release --yes
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@cluster_option
@click.option("--dry-run", is_flag=True, help="Show what would be put back, and write nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
def command(cluster: str, state: str, dry_run: bool, yes: bool) -> None:
    """Put back what jobs were before they were steered, and delete Muster's reservations.

    It finds them by the marks in AdminComment, by the names of reservations (muster_...), and by the state file if it
    is there. What somebody changed meanwhile is left alone.
    """
    from muster.engine.config import Config
    from muster.service.steering.memory import alone
    from muster.slurm.steering.target import How
    from muster.slurm.steering.writes import releases

    one, path = steering(cluster, state, How(), Config())
    writes = releases(one.look()[1])
    show_writes(writes)
    if dry_run:
        say(f"{len(writes)} writes; nothing is changed.")
        return
    if writes and not yes:
        if not sys.stdin.isatty():
            say("Nothing is changed: --yes does it.")
            raise click.exceptions.Exit(1)
        if not click.confirm("Put it back?", default=False, err=True):
            say("Nothing is changed.")
            raise click.exceptions.Exit(1)
    with alone(path):
        if not release_all(one):
            raise click.exceptions.Exit(1)
    if not writes:
        say("Nothing of Muster is in this Slurm.")
