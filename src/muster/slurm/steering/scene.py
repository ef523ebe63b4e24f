"""A Slurm as Muster finds it when it steers: what there really is, and the same without what Muster did to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from muster.slurm.places import CLOSED
from muster.slurm.records import SlurmJob, SlurmNode, SlurmReservation
from muster.slurm.steering.marks import PREFIX, Mark, own_values, unsteered
from muster.slurm.translate import Translation
from muster.slurm.world import SlurmWorld

_OF_RESERVATIONS = ("ReqNodeNotAvail", "Reservation", "Nodes required for job are DOWN")
"""Begins the reasons that a job has because of a reservation, which may be one of Muster's."""


class Scene(Struct, frozen=True):
    """What is there, as it was read.

    Attributes:
        jobs: by their workload's name, those of a waiting array each by its task; as they are, marks and all.
        partitions: their nodes by name.
        reservations: all of them.
        remembered: marks by workload, for jobs whose own was overwritten.
        idle: nodes that take work and run none.
        away: nodes that are down, drained or failing.
    """

    jobs: Mapping[str, SlurmJob]
    partitions: Mapping[str, tuple[str, ...]]
    reservations: tuple[SlurmReservation, ...] = ()
    remembered: Mapping[str, Mark] = {}
    idle: tuple[str, ...] = ()
    away: tuple[str, ...] = ()

    def own(self, name: str) -> dict[str, str]:
        """The values of a job that Muster may change, as they would be without it."""
        return own_values(self.jobs[name], self.remembered.get(name))

    def unsteered(self, name: str) -> SlurmJob:
        """A job as it would be without Muster."""
        return unsteered(self.jobs[name], self.remembered.get(name))

    def of_muster(self, name: str) -> SlurmReservation | None:
        """The reservation of this name."""
        return next((each for each in self.reservations if each.name == name), None)

    def nodes_of(self, job: SlurmJob) -> tuple[str, ...]:
        """The nodes of the partitions that a job may run in."""
        found: dict[str, None] = {}
        for each in job.partition.split(","):
            found.update(dict.fromkeys(self.partitions.get(each, ())))
        return tuple(found)


def name_of(job: SlurmJob) -> str:
    """The name of a job's workload; of an array that waits, that of all its tasks together."""
    return f"{job.array_job}_{job.array_tasks}" if job.array_job and job.array_tasks.isdigit() else job.id


def without_muster(world: SlurmWorld, remembered: Mapping[str, Mark], moved: Collection[str] = ()) -> SlurmWorld:
    """The records as they would be if Muster had never steered: what is to be translated and decided on.

    ``moved`` are jobs that Muster requeued for a move: they may start at once, although slurmctld puts off what was
    requeued by two minutes.
    """
    ours = any(each.name.startswith(PREFIX) for each in world.reservations)
    jobs: list[SlurmJob] = []
    for job in world.jobs:
        plain = unsteered(job, remembered.get(name_of(job)))
        if (ours or plain is not job) and job.state == "PENDING" and plain.reason.startswith(_OF_RESERVATIONS):
            plain = replace(plain, reason="Resources")
        if plain.state == "PENDING" and plain.reason == "BeginTime" and name_of(job) in moved:
            plain = replace(plain, reason="Resources", eligible_s=None, started_s=None)
        jobs.append(plain)
    others = [each for each in world.reservations if not each.name.startswith(PREFIX)]
    return replace(world, jobs=jobs, reservations=others)


def scene_of(world: SlurmWorld, translation: Translation, remembered: Mapping[str, Mark]) -> Scene:
    """The scene of a world, whose translation is that of it `without_muster`. Heterogeneous jobs are not in it."""
    real = {name_of(job): job for job in world.jobs}
    jobs = {
        name: real[name_of(records[0])]
        for name, records in translation.jobs.items()
        if len(records) == 1 and not records[0].het_job
    }
    return Scene(
        jobs,
        {each.name: each.nodes for each in world.partitions},
        tuple(world.reservations),
        remembered,
        idle=tuple(node.name for node in world.nodes if "IDLE" in node.state and not _is_away(node)),
        away=tuple(node.name for node in world.nodes if _is_away(node)),
    )


def _is_away(node: SlurmNode) -> bool:
    return any(CLOSED.get(state) for state in node.state)
