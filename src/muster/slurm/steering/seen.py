"""What the engine is shown of a Slurm that it steers: Slurm's own order, and only the preemption that Slurm allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from muster.engine.config import Config
from muster.model.fleet import Fleet
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import TopologyRequest, Workload
from muster.slurm.checkpoints import checkpointing_of, last_checkpoint_s
from muster.slurm.records import SlurmJob
from muster.slurm.steering.scene import Scene
from muster.slurm.steering.target import SPARES, How
from muster.slurm.world import SlurmWorld

_CLASS = 1000
"""A step between the classes of priority in which jobs may stop each other."""
_TOP = _CLASS * _CLASS
_PROMISES = 8
"""So many gangs have a promised start: slurmctld would start what is behind only the first of them in their way."""


def for_the_engine(
    snapshot: Snapshot, scene: Scene, world: SlurmWorld, how: How, given_up: Mapping[str, float]
) -> Snapshot:
    """The snapshot on which a plan is made.

    - Who goes first among jobs of one class is told by Slurm's own priority, in which the site's policy is: the engine
      sees it as the order of submission. Queues stay only where they limit something.
    - Who may stop whom is told by PreemptType and PreemptMode: classes are tiers of partitions, or QOS.
    - A gang that asks for no place should stand in one domain of the narrowest level that can hold it, as Slurm's
      plugins for topology want it of all jobs.
    - Nodes that Muster keeps as spares are spares.

    Args:
        snapshot: the translation of the records without what Muster did.
        scene: what there really is.
        world: the records.
        how: see `How`.
        given_up: jobs that slurmctld does not start for reasons of its own, with the time until which they are left
            to it.
    """
    fleet, levels = snapshot.fleet, snapshot.fleet.topology.levels
    sizes = [(level, max(map(len, fleet.domains(level).values()), default=0)) for level in reversed(levels)]
    spare = scene.of_muster(SPARES)
    spares = set(spare.nodes) if spare is not None and how.spares else set[str]()
    nodes = tuple(replace(each, spare=True) if each.name in spares else each for each in fleet.nodes)
    classes = Classes(world)
    limited = any(quota.borrowing_limit_milli is not None for queue in snapshot.queues for quota in queue.quotas)
    pending = [
        each for each in snapshot.pending
        if each.name not in given_up and each.name in scene.jobs
        and (not how.partition or how.partition in scene.jobs[each.name].partition.split(","))
    ]  # fmt: skip
    pending.sort(key=lambda each: (-scene.unsteered(each.name).priority, each.submitted_s, each.name))
    shown = tuple(
        replace(
            _near(each, sizes),
            priority=classes.of(scene.jobs[each.name]), submitted_s=float(turn), queue=each.queue if limited else "",
        )
        for turn, each in enumerate(pending)
    )  # fmt: skip
    running = tuple(_running(each, scene, classes, how, snapshot.taken_s, limited=limited) for each in snapshot.running)
    queues = snapshot.queues if limited else ()
    return replace(snapshot, fleet=replace(fleet, nodes=nodes), queues=queues, pending=shown, running=running, usage=())


def _running(run: Running, scene: Scene, classes: Classes, how: How, now_s: float, *, limited: bool) -> Running:
    job = scene.jobs.get(run.workload.name)
    work = replace(run.workload, queue=run.workload.queue if limited else "", preemptible=False, priority=_TOP)
    if job is None:  # a heterogeneous job
        return replace(run, workload=work)
    saving = checkpointing_of(job.comment)
    work = replace(work, checkpointing=saving)
    if job.requeue and classes.may_stop(job):
        work = replace(work, preemptible=True, priority=classes.of(job))
    elif job.requeue and how.move and saving is not None:
        work = replace(work, preemptible=True)  # at the top nobody stops it for being more important
    return replace(run, workload=work, checkpointed_s=last_checkpoint_s(job.comment, run.started_s, now_s))


def _near(work: Workload, sizes: Sequence[tuple[str, int]]) -> Workload:
    """``sizes`` are the levels, the narrowest first, with the nodes of their largest domain."""
    if (work.topology is not None and work.topology.required) or work.pods < 2:
        return work
    level = next((name for name, size in sizes if work.pods <= size), "")
    return replace(work, topology=TopologyRequest(preferred=level)) if level else work


class Classes:
    """Which jobs may be stopped for which, as PreemptType says; without one no job is stopped for another."""

    def __init__(self, world: SlurmWorld) -> None:
        self._by = world.config.get("PreemptType", "").removeprefix("preempt/")
        mode = world.config.get("PreemptMode", "").upper()
        self._partitions = {each.name: each for each in world.partitions}
        tiers = sorted({each.tier for each in world.partitions})
        self._tiers = {each.name: tiers.index(each.tier) for each in world.partitions}
        self._modes = {each.name: (each.preempt_mode or mode).upper() for each in world.partitions}
        self._requeues = "REQUEUE" in mode
        self._below = {each.name: each.preempts for each in world.qos}
        self._victims = {name for each in world.qos for name in each.preempts}

    def of(self, job: SlurmJob) -> int:
        """The class of a job: those of a higher one may stop it."""
        if self._by == "partition_prio":
            return _CLASS * max((self._tiers.get(each, 0) for each in job.partition.split(",")), default=0)
        return _CLASS * self._depth(job.qos, ()) if self._by == "qos" else 0

    def may_stop(self, job: SlurmJob) -> bool:
        """Whether others may have it requeued."""
        if self._by == "partition_prio":
            return "REQUEUE" in self._modes.get(job.partition, "")
        return self._by == "qos" and self._requeues and job.qos in self._victims

    def _depth(self, qos: str, above: tuple[str, ...]) -> int:
        below = [each for each in self._below.get(qos, ()) if each not in (*above, qos)]
        return 1 + max(self._depth(each, (*above, qos)) for each in below) if below else 0


def for_slurm(config: Config, fleet: Fleet) -> Config:
    """The engine's settings for Slurm: the order is Slurm's own, and several gangs have a promised start.

    Where the level that is to be kept whole is none of the fleet's, the widest is taken that has several domains:
    there the largest gangs find room.
    """
    config = replace(config, ordering="fifo", reservations=max(config.reservations, _PROMISES))
    levels = fleet.topology.levels
    if config.keep_whole in levels:
        return config
    wide = [level for level in levels if len(fleet.domains(level)) > 1]
    return replace(config, keep_whole=wide[0]) if wide else config
