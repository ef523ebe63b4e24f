"""The records of a Slurm as a snapshot: what the engine decides on, with notes of what is not understood.

- A job is a gang, called by its number: ``123``, a task of an array ``123_4``, a heterogeneous job by its first part.
  Each pod is what it has, or asks for, on one node. Its name is `Workload.title`, Slurm's reason `Workload.told`.
- Its queue is its account, or its partition where there are no accounts; partitions are labels of nodes.
- Priorities are Slurm's own; a partition's tier goes before them.
- What Slurm holds for a reason that neither time nor nodes end is held here too (`muster.slurm.reasons.WAITS`).
- A task of an array with a limit of tasks at a time waits for the one so many before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.model.fleet import HOST, WHOLE_GPU_MILLI, Fleet
from muster.model.limit import Limit
from muster.model.notes import Note, Notes
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import PodSet, TopologyRequest, Workload
from muster.slurm.limits import Limits, limits_of
from muster.slurm.places import NodeReader, fleet_of
from muster.slurm.pods import PARTS
from muster.slurm.queues import gpu_limits, queue_of, queues_of
from muster.slurm.reasons import WAITS, Kind, reason_of
from muster.slurm.records import SlurmJob, ids_of
from muster.slurm.shapes import Part, ShapeReader
from muster.slurm.world import SlurmWorld

ON_NODES = frozenset(
    ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "RESIZING", "SIGNALING", "STOPPED")
)
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
MOST_TASKS = 20_000
"""Of all arrays together so many tasks that wait are gangs of their own; the others are left out, with a note."""
TIER = 10**10
"""So much is a partition's place among the tiers worth: more than any priority of Slurm."""

_GONE_WITHIN_S = 30.0
_DEPENDENCY = re.compile(r"(after\w*):([^,?]+)")


class Translation(Struct, frozen=True):
    """A Slurm at one instant; ``ids`` tells of each gang the job's records."""

    snapshot: Snapshot
    notes: tuple[Note, ...]
    jobs: Mapping[str, tuple[SlurmJob, ...]]


def translate(world: SlurmWorld, *, source: str = "slurm") -> Translation:
    """The snapshot of a world. O(nodes + jobs + tasks of arrays)."""
    return _Translator(world, source).translate()


class _Translator:
    def __init__(self, world: SlurmWorld, source: str) -> None:
        self._world, self._source = world, source
        self._notes = Notes()
        reader = NodeReader(world, self._notes)
        self._levels = reader.levels
        self._nodes = reader.nodes()
        self._most_gpus = max((len(node.devices) for node in self._nodes), default=0)
        self._shapes = ShapeReader(world, self._nodes, reader.model, self._notes)
        tiers = sorted({each.tier for each in world.partitions})
        self._partitions = {each.name: each for each in world.partitions}
        self._tier = {each.name: tiers.index(each.tier) for each in world.partitions}
        self._limited = {each.account for each in world.associations if gpu_limits(each.limits) and not each.user}

    def translate(self) -> Translation:
        """All there is."""
        world = self._world
        for what, why in world.missing.items():
            self._notes.add("Slurm", world.cluster, what, f"is not read ({why})")
        grouped: dict[str, list[SlurmJob]] = {}
        for job in world.jobs:
            grouped.setdefault(job.het_job or self._name(job), []).append(job)
        for components in grouped.values():
            components.sort(key=lambda job: job.het_offset)
        there = {name for name, jobs in grouped.items() if jobs[0].state in ON_NODES | WAITING}
        running: list[Running] = []
        pending: list[Workload] = []
        known: dict[str, tuple[SlurmJob, ...]] = {}
        for name, jobs in grouped.items():
            first = jobs[0]
            if any(job.state in ON_NODES for job in jobs):
                if (found := self._running(name, jobs)) is not None:
                    running.append(found)
                    known[name] = tuple(jobs)
            elif first.state in WAITING:
                for work in self._pending(name, jobs, there, MOST_TASKS - len(pending)):
                    pending.append(work)
                    known[work.name] = tuple(jobs)
        limits = limits_of(world)
        pending = self._limited_by(limits, self._chained(pending, running, known), running)
        self._shapes.closed_gpus({node.name: node.gres_used for node in world.nodes})
        nodes = [
            replace(node, labels=tuple(sorted({*node.labels, *more})))
            if (more := self._shapes.marks.labels(node.name)) else node
            for node in self._nodes
        ]  # fmt: skip
        fleet = fleet_of(nodes, self._levels, world.cluster)
        snapshot = Snapshot(
            fleet,
            queues_of(world, _gpus_milli(fleet), self._notes),
            tuple(pending),
            tuple(running),
            reservations=tuple(self._reservations(known, {node.name for node in nodes})),
            taken_s=world.now_s or self._instant(),
            source=self._source,
            limits=limits,
        )
        return Translation(snapshot, self._notes.all(), known)

    def _instant(self) -> float:
        """When it was read, where nothing says so: what runs has run for so long since its start."""
        told = [job.started_s + job.ran_s for job in self._world.jobs if job.state == "RUNNING" and job.started_s]
        return max(told, default=max((job.submitted_s for job in self._world.jobs), default=0.0))

    @staticmethod
    def _name(job: SlurmJob) -> str:
        if job.array_job and job.array_tasks.isdecimal():
            return f"{job.array_job}_{job.array_tasks}"
        return job.id

    # -- what runs

    def _running(self, name: str, jobs: list[SlurmJob]) -> Running | None:
        first = jobs[0]
        components = [self._shapes.has(job) for job in jobs if job.state in ON_NODES]
        sets: list[PodSet] = []
        parts: list[Part] = []
        for number, component in enumerate(components):
            role = f"het{number}" if len(jobs) > 1 else "main"
            alike: dict[object, list[Part]] = {}
            for part in component:
                alike.setdefault(part.shape, []).append(part)
            for at, some in enumerate(alike.values()):
                sets.append(PodSet(some[0].shape, len(some), role=role if len(alike) == 1 else f"{role}-{at}"))
                parts += some
        if not parts:
            if first.state != "COMPLETING":
                self._notes.add("job", name, "NodeList", "has no nodes that may be seen: left out")
            return None
        if first.state == "SUSPENDED":
            self._notes.add("job", name, "JobState", "is suspended: its GPUs count as held")
        leaving_s = None
        if first.state == "COMPLETING" or first.preempt_s is not None:
            leaving_s = (self._world.now_s or self._instant()) + _GONE_WITHIN_S
        return Running(
            self._work(name, first, tuple(sets)),
            first.started_s or first.submitted_s,
            tuple(part.place for part in parts),
            leaving_s=leaving_s,
        )

    # -- what waits

    def _pending(self, name: str, jobs: list[SlurmJob], there: set[str], most: int) -> Iterator[Workload]:
        first = jobs[0]
        sets = [
            each
            for number, job in enumerate(jobs)
            for each in self._shapes.asked(job, f"het{number}" if len(jobs) > 1 else "main")
        ]
        work = self._work(name, first, tuple(sets))
        work = replace(
            work,
            told=first.reason or "None",
            depends_on=self._depends_on(first, there),
            not_before_s=self._held_until(first),
            topology=self._topology(first, sets),
        )
        if not first.array_job or first.array_tasks.isdecimal():
            yield work
            return
        tasks = ids_of(first.array_tasks)
        if len(tasks) > most or not tasks or first.array_tasks.endswith("..."):
            what = f"{first.array_tasks}: {len(tasks[:most]):,} of its tasks that wait are counted"
            self._notes.add("job", name, "ArrayTaskId", what)
        for task in tasks[:most]:
            yield replace(work, name=f"{first.array_job}_{task}")

    def _chained(
        self, pending: list[Workload], running: list[Running], known: Mapping[str, tuple[SlurmJob, ...]]
    ) -> list[Workload]:
        """Tasks of an array that may run so many at a time: each waits for the one so many before it."""
        arrays: dict[str, list[str]] = {}
        for name in (*(run.workload.name for run in running), *(work.name for work in pending)):
            job = known[name][0]
            if job.array_limit and job.array_job:
                arrays.setdefault(job.array_job, []).append(name)
        before: dict[str, str] = {}
        for names in arrays.values():
            limit = known[names[-1]][0].array_limit
            before.update(zip(names[limit:], names, strict=False))
        return [
            replace(work, depends_on=(*work.depends_on, before[work.name])) if work.name in before else work
            for work in pending
        ]

    def _limited_by(self, limits: tuple[Limit, ...], pending: list[Workload], running: list[Running]) -> list[Workload]:
        """What waits and meets a limit is held until enough of what runs has ended, if that can be told."""
        models = {node.name: node.flavor for node in self._nodes}
        asked = Limits(limits, running, pending, self._world.now_s or self._instant(), models)
        found: list[Workload] = []
        for work in pending if asked else ():
            code = reason_of(work.told).reason.code
            met = asked.met(work, waits=True)
            if math.isinf(work.not_before_s):
                # Slurm holds it for a limit: until that is met no more, where this is the limit
                until = max((each.until_s for each in met), default=math.inf)
                known = any(each.limit.code == code for each in met)
                found.append(replace(work, not_before_s=until) if known else work)
            else:
                until = max((each.until_s for each in met), default=0.0)
                found.append(replace(work, not_before_s=max(work.not_before_s, until)))
        return found or pending

    def _work(self, name: str, job: SlurmJob, sets: tuple[PodSet, ...]) -> Workload:
        partition = job.partition.split(",")[0]
        tier = max((self._tier.get(each, 0) for each in job.partition.split(",")), default=0)
        return Workload(
            name,
            sets,
            submitted_s=job.submitted_s,
            time_limit_s=job.limit_s,
            queue=queue_of(self._world, job.account, partition),
            user=job.user,
            priority=job.priority + TIER * tier,
            quality=job.qos,
            preemptible=job.requeue,
            attempts=job.restarts,
            title=_plain(job.name),
        )

    def _held_until(self, job: SlurmJob) -> float:
        """Until when it is held; infinite: until somebody does something, or others of its user or account end."""
        kind = reason_of(job.reason).reason.kind
        if kind is Kind.TIME or (job.eligible_s or 0.0) > (self._world.now_s or math.inf):
            return max(job.started_s or 0.0, job.eligible_s or 0.0)
        if job.reservation:
            kept = [each for each in self._world.reservations if each.name in job.reservation.split(",")]
            if kept and kind in WAITS:
                return min(each.start_s for each in kept)
        if kind in WAITS and (job.priority or kind is Kind.DEPENDENCY or kind is Kind.THROTTLE):
            return 0.0
        code = reason_of(job.reason).reason.code
        if code.startswith("AssocGrpGRES") and job.account in self._limited:
            return 0.0  # the queue's own limit says it
        return 0.0 if self._is_past(job, code) else math.inf

    def _is_past(self, job: SlurmJob, code: str) -> bool:
        """Whether Slurm says what was so when it looked last, and is no more: its nodes were down, say."""
        partitions = [self._partitions[each] for each in job.partition.split(",") if each in self._partitions]
        if not partitions or not job.priority:
            return False
        if code == "PartitionNodeLimit":
            return any(job.nodes[0] <= min(len(each.nodes), each.max_nodes or 10**9) for each in partitions)
        if code == "PartitionTimeLimit":
            return any(job.limit_s is not None and job.limit_s <= (each.max_time_s or math.inf) for each in partitions)
        return code in ("PartitionDown", "PartitionInactive") and any(each.state == "UP" for each in partitions)

    def _depends_on(self, job: SlurmJob, there: set[str]) -> tuple[str, ...]:
        """The jobs that wait or run and of which it waits for the end."""
        found: dict[str, None] = {}
        for kind, ids in _DEPENDENCY.findall(job.dependency):
            for text in ids.split(":"):
                wanted = re.sub(r"\(.*", "", text).partition("+")[0]
                array = wanted.removesuffix("_*")
                names = [wanted] if wanted in there else [name for name in there if name.startswith(f"{array}_")]
                if kind == "after":
                    names = []  # it waits for a beginning; what waits for that is told by Slurm's reason
                    self._notes.add("job", job.id, "Dependency", f"{kind}: that a job begins is not waited for")
                found.update(dict.fromkeys(sorted(names)))
        if "singleton" in job.dependency:
            self._notes.add("job", job.id, "Dependency", "singleton: jobs of its name and user are not looked for")
        if "?" in job.dependency and len(found) > 1:
            self._notes.add("job", job.id, "Dependency", "any of its jobs would do; all of them are waited for here")
        return tuple(found)

    def _topology(self, job: SlurmJob, sets: Sequence[PodSet]) -> TopologyRequest | None:
        if any(each.role.endswith(PARTS) for each in sets):
            return TopologyRequest(preferred=HOST)
        preferred = self._levels[-1] if job.switches and self._levels else ""
        if job.switches > 1 and preferred:
            what = f"{job.switches} switches: they are preferred to be few"
            self._notes.add("job", job.id, "--switches", what)
        # nodes of a job are different ones; that is asked for only where two of its pods could stand on one
        apart = sum(each.count for each in sets) > 1 and any(2 * each.shape.gpus <= self._most_gpus for each in sets)
        apart = apart and not job.het_job
        if not preferred and not apart:
            return None
        return TopologyRequest(preferred=preferred, spread=HOST if apart else "", at_most=int(apart))

    # -- the rest

    def _reservations(self, known: Mapping[str, tuple[SlurmJob, ...]], nodes: set[str]) -> Iterator[AdvanceReservation]:
        named: dict[str, list[str]] = {}
        for name, jobs in known.items():
            for each in jobs[0].reservation.split(","):
                named.setdefault(each, []).append(name)
        for each in self._world.reservations:
            if each.partial:
                what = f"is {' and '.join(each.flags)}: all its nodes count as kept"
                self._notes.add("reservation", each.name, "Flags", what)
            yield AdvanceReservation(
                each.name, each.start_s, each.end_s, tuple(name for name in each.nodes if name in nodes),
                workloads=tuple(named.get(each.name, ())),
            )  # fmt: skip


def _gpus_milli(fleet: Fleet) -> dict[str, int]:
    """All GPUs by flavor, those of nodes too that are drained at present: a limit holds whatever is up."""
    found: dict[str, int] = {}
    for node in fleet:
        if node.devices:
            found[node.flavor] = found.get(node.flavor, 0) + WHOLE_GPU_MILLI * len(node.devices)
    return found


def _plain(name: str) -> str:
    """A job's name without what a terminal would obey; at most 200 characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:200])
