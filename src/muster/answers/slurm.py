"""A live Slurm as a source: ``slurm``, read when it is asked by its commands or slurmrestd, and never written to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from muster.engine.config import config_of, settings_of
from muster.model.snapshot import Snapshot
from muster.sim.presets import slurm_like
from muster.slurm.records import SlurmJob
from muster.slurm.translate import Translation, translate
from muster.slurm.world import SlurmWorld
from muster.traces.trace import Skipped

NAME = "slurm"
_MOST_RESERVED = 500


class Reading(NamedTuple):
    """A Slurm as it was read: ``jobs`` are the records of each gang by its workload's name."""

    snapshot: Snapshot
    skipped: tuple[Skipped, ...]
    world: SlurmWorld
    jobs: Mapping[str, tuple[SlurmJob, ...]]


def open_slurm(source: str, warn: Callable[[str], None]) -> Reading:
    """Read a live Slurm as it is now; ``warn`` is told what cannot be read.

    ``source`` is ``slurm`` for this machine's commands, or the address of a slurmrestd, as `muster.backends.slurm.rest`
    takes it.

    Raises:
        InputError: the source or SLURM_CONF is wrong.
        ClusterError: there is no Slurm here, or it does not answer, or refuses what is needed.
    """
    if source != NAME:
        from muster.backends.slurm.rest import read_rest

        return reading_of(read_rest(source, warn))
    from muster.backends.slurm.read import read_commands

    return reading_of(read_commands(warn))


def reading_of(world: SlurmWorld) -> Reading:
    """What was read of a Slurm as a snapshot that is decided on as Slurm decides, as far as Muster can say."""
    source = f"{NAME}:{world.cluster}"
    found: Translation = translate(world, source=source)
    snapshot = replace(found.snapshot, settings=settings_of(config_of(settings_like(world))))
    skipped = tuple(
        Skipped(source, 0, note.field, f"{note.kind} {note.name}{_more(note.count)}: {note.text}")
        for note in found.notes
    )  # fmt: skip
    return Reading(snapshot, skipped, world, found.jobs)


def _more(count: int) -> str:
    return f" and {count - 1:,} more" if count > 1 else ""


def settings_like(world: SlurmWorld) -> dict[str, object]:
    """Settings under which Muster's cycle does what this Slurm's configuration says.

    Priorities are Slurm's own numbers, so that of equal ones only the time counts. bf_max_job_test is how many jobs
    that wait get a start.
    """
    tested = world.option("SchedulerParameters", "bf_max_job_test") or ""
    reserved = int(tested) if tested.isdecimal() and len(tested) < 8 else _MOST_RESERVED
    builtin = world.config.get("SchedulerType", "").endswith("builtin")
    return {
        **slurm_like(),
        "ordering": "fifo",
        "queueing": "strict" if builtin else "backfill",
        "reservations": max(1, min(reserved, _MOST_RESERVED)),
    }
