"""How a fleet is split between Slurm and Kubernetes, and what that costs against one pool: by simulation.

Both sides, and the pool, are run by the same scheduler with the same settings, so that only the split differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.config import Config
from muster.errors import InputError
from muster.model.fleet import Fleet
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, Workload
from muster.planning.hybrid import Spell, moves, stranded
from muster.sim.cluster_run import ClusterRun

SLURM, KUBERNETES = 0, 1
CLASSES = ("services", "gangs", "notebooks")
SIDE = {"services": KUBERNETES, "gangs": SLURM, "notebooks": KUBERNETES}
PRIORITY = {"services": 20, "gangs": 0, "notebooks": 10}
"""Of made work: a pool that serves people lets services and notebooks go first; gangs save their work, and yield."""
PROMPT_S = 60.0
"""A service that starts within so many seconds is taken to have started at once."""
WARM_S = 86400.0
"""The first day fills the fleet, and is not counted."""
DAY_S = 86400.0


class Mix(Struct, frozen=True):
    """The work: shares of the GPU-hours, and how busy the fleet is.

    Attributes:
        services, gangs, notebooks: shares of the GPU-hours; they sum to 1.
        load: GPU-hours that are asked for, of those that the fleet has.
        days: simulated, with the first that is not counted.
    """

    services: float
    gangs: float
    notebooks: float
    load: float
    days: int = 6


class Job(Struct, frozen=True):
    """A workload and its class."""

    work: Workload
    kind: str


class Outcome(Struct, frozen=True):
    """How one way to divide the fleet did; means over all seeds.

    Attributes:
        slurm_nodes: of the split; 0 with ``pooled``: one pool of ``nodes``.
        score: GPU-hours of waiting, services counting ``weight`` times: the least is best.
        wait_s: mean delay by class, in the order of CLASSES: waits, and work lost and restarts after being stopped;
            nan: there was none.
        late: part of the services that did not start within a minute.
        used: part of the GPUs that did work which was kept.
        stranded: GPUs free on one side while work waited on the other.
        moves: nodes that would have to change sides a day for both to have what they need.
        unplaced: jobs that had not started at the end.
        stops: gangs are stopped for services; else nobody is, and services only go first.
    """

    nodes: int
    slurm_nodes: int
    pooled: bool
    score: float
    wait_s: tuple[float, float, float]
    late: float
    used: float
    stranded: float
    moves: float
    unplaced: float
    stops: bool = False


# -- work

_GANG_NODES = ((1, 0.5), (2, 0.25), (4, 0.15), (8, 0.1))
_SERVICE_GPUS = ((1, 0.4), (2, 0.35), (4, 0.25))
_MEDIAN_S = {"gangs": 7200.0, "services": 43200.0, "notebooks": 10800.0}
_SIGMA = {"gangs": 1.2, "services": 0.8, "notebooks": 0.8}


def make_jobs(fleet: Fleet, mix: Mix, seed: int) -> tuple[Job, ...]:
    """Work of a mix: log-normal run times; services and notebooks come by day, gangs at any hour."""
    gpus_per_node = max(node.healthy_gpus for node in fleet)
    total = sum(node.healthy_gpus for node in fleet)
    jobs: list[Job] = []
    for kind, share in zip(CLASSES, (mix.services, mix.gangs, mix.notebooks), strict=True):
        rng = Random(f"{seed} {kind}")
        wanted = share * mix.load * total * mix.days * DAY_S
        asked, made = 0.0, 0
        while asked < wanted:
            pods, gpus = _size(kind, rng, len(fleet.nodes), gpus_per_node)
            length = min(rng.lognormvariate(math.log(_MEDIAN_S[kind]), _SIGMA[kind]), 4 * DAY_S)
            asked += pods * gpus * length
            made += 1
            shape = PodShape(gpus=gpus)
            work = Workload(
                f"{kind}-{made}", (PodSet(shape, pods),), submitted_s=_when(kind, rng, mix.days), duration_s=length,
                time_limit_s=2 * length, priority=PRIORITY[kind],
                checkpointing=Checkpointing(1800.0, 300.0) if kind == "gangs" else None, preemptible=kind == "gangs",
            )  # fmt: skip
            jobs.append(Job(work, kind))
    return tuple(sorted(jobs, key=lambda job: (job.work.submitted_s, job.work.name)))


def _size(kind: str, rng: Random, nodes: int, gpus_per_node: int) -> tuple[int, int]:
    """Pods and GPUs of each."""
    if kind == "notebooks":
        return 1, 1
    if kind == "services":
        return 1, min(gpus_per_node, _drawn(_SERVICE_GPUS, rng))
    return min(_drawn(_GANG_NODES, rng), max(1, nodes // 4)), gpus_per_node


def _drawn(table: Sequence[tuple[int, float]], rng: Random) -> int:
    at = rng.random()
    for value, share in table:
        at -= share
        if at < 0:
            return value
    return table[-1][0]


def _when(kind: str, rng: Random, days: int) -> float:
    """A moment: services come 1.8 times as often at noon as in the mean, notebooks from 8 to 18 h, gangs always."""
    while True:
        moment = rng.random() * days * DAY_S
        hour = moment % DAY_S / 3600
        height = 1.0
        if kind == "services":
            height = (1 + 0.8 * math.cos(2 * math.pi * (hour - 12) / 24)) / 1.8
        elif kind == "notebooks":
            height = 1.0 if 8 <= hour < 18 else 0.05
        if rng.random() < height:
            return moment


def class_of(work: Workload, gpus_per_node: int) -> str:
    """The class of recorded work: a gang takes several pods or a whole node; a service is latency-sensitive or has no
    end that is known; the rest are notebooks and small jobs."""
    if work.pods > 1 or any(each.shape.gpus >= gpus_per_node for each in work.pod_sets):
        return "gangs"
    if work.quality in ("LS", "Guaranteed") or (work.duration_s is None and work.time_limit_s is None):
        return "services"
    return "notebooks"


def jobs_of(works: Sequence[Workload], gpus_per_node: int, days: int) -> tuple[tuple[Job, ...], float]:
    """Recorded work with GPUs and a known run time, of so many days: those with the most GPU-hours; and their begin.

    Begins are tried day by day. Times of the jobs are from the begin, which is in seconds of the trace.

    Raises:
        InputError: there is none.
    """
    known = [each for each in works if each.gpu_milli and each.duration_s]
    if not known:
        raise InputError("holds no work with GPUs and a run time", field="--workload")
    first = min(each.submitted_s for each in known)
    by_day: dict[int, float] = {}
    for each in known:
        day = int((each.submitted_s - first) // DAY_S)
        by_day[day] = by_day.get(day, 0.0) + each.gpu_milli * (each.duration_s or 0.0)
    last = max(by_day)
    begins = range(max(1, last - days + 2))
    best = max(begins, key=lambda begin: (math.fsum(by_day.get(begin + day, 0.0) for day in range(days)), -begin))
    begin_s = first + best * DAY_S
    found = [
        Job(
            replace(each, submitted_s=each.submitted_s - begin_s, queue="", topology=None, depends_on=()),
            class_of(each, gpus_per_node),
        )
        for each in known
        if 0 <= each.submitted_s - begin_s < days * DAY_S
    ]
    return tuple(sorted(found, key=lambda job: (job.work.submitted_s, job.work.name))), begin_s


# -- running it


class Bench:
    """Runs one list of jobs a seed on fleets that are divided in some way; remembers what was run.

    Args:
        jobs: a list a seed.
        days: simulated.
        weight: how much an hour that a service waits counts, in hours of others.
        tick: called after each run.
    """

    def __init__(
        self, fleet: Fleet, jobs: Sequence[Sequence[Job]], days: int, weight: float, config: Config,
        tick: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.fleet, self.jobs, self.days, self.weight, self.config = fleet, jobs, days, weight, config
        self.gpus_per_node = max(node.healthy_gpus for node in fleet)
        self._tick = tick
        self._known: dict[tuple[int, int, bool, bool], Outcome] = {}

    def pool(self, nodes: int) -> Outcome:
        """One pool of the first so many nodes; with gangs stopped for services or not, whichever waits less."""
        both = [self._outcome(nodes, 0, pooled=True, stops=stops) for stops in (False, True)]
        return min(both, key=lambda one: one.score)

    def split(self, slurm_nodes: int) -> Outcome:
        """Slurm has the first so many nodes, Kubernetes the others."""
        return self._outcome(len(self.fleet.nodes), slurm_nodes, pooled=False)

    def best_split(self) -> tuple[Outcome, list[Outcome]]:
        """The split with the least waiting, and all that were tried, by their nodes."""
        total = len(self.fleet.nodes)
        hours = [0.0, 0.0]
        for job in (job for jobs in self.jobs for job in jobs):
            hours[SIDE[job.kind]] += job.work.gpu_milli * (job.work.duration_s or 0.0)
        middle = round(total * hours[SLURM] / max(1.0, sum(hours)))
        step = max(1, total // 16)
        tried = {min(total - 1, max(1, middle + step * each)) for each in (-2, -1, 0, 1, 2)}
        while True:
            found = sorted((self.split(each) for each in tried), key=lambda one: one.slurm_nodes)
            best = min(found, key=lambda one: (one.score, one.slurm_nodes))
            beside = {best.slurm_nodes - step, best.slurm_nodes + step} - tried
            beside = {each for each in beside if 0 < each < total}
            if not beside or len(tried) > 12:
                return best, found
            tried |= beside

    def pool_like(self, score: float) -> int:
        """The fewest nodes of one pool whose work waits no longer than ``score``; more than all: none does."""
        low, high = 0, len(self.fleet.nodes)
        if self.pool(high).score > score:
            return high + 1
        while high - low > 1:  # fewer nodes never wait less, but for chance
            middle = (low + high) // 2
            if self.pool(middle).score <= score:
                high = middle
            else:
                low = middle
        return high

    def _outcome(self, nodes: int, slurm_nodes: int, *, pooled: bool, stops: bool = False) -> Outcome:
        key = nodes, slurm_nodes, pooled, stops
        if key not in self._known:
            runs = [self._run(jobs, nodes, slurm_nodes, pooled=pooled, stops=stops) for jobs in self.jobs]
            self._known[key] = replace(_mean(runs), stops=stops)
        return self._known[key]

    def _run(self, jobs: Sequence[Job], nodes: int, slurm_nodes: int, *, pooled: bool, stops: bool) -> Outcome:
        """One seed."""
        until = self.days * DAY_S
        sides = [self.fleet.nodes[:nodes]]
        if not pooled:
            sides = [self.fleet.nodes[:slurm_nodes], self.fleet.nodes[slurm_nodes:]]
        lives: list[Life] = []
        for side, own in enumerate(sides):
            mine = [job for job in jobs if pooled or SIDE[job.kind] == side]
            works = [job.work if stops else replace(job.work, preemptible=False) for job in mine]
            run = ClusterRun(Snapshot(replace(self.fleet, nodes=tuple(own))), works, self.config)
            run.run(until)
            lives += lives_of(run, mine, side, until)
            if self._tick is not None:
                self._tick()
        capacity = [float(sum(node.healthy_gpus for node in own)) for own in sides]
        return self._figures(lives, capacity, nodes, slurm_nodes, pooled=pooled)

    def _figures(
        self, lives: Sequence[Life], capacity: Sequence[float], nodes: int, slurm_nodes: int, *, pooled: bool
    ) -> Outcome:
        until = self.days * DAY_S
        counted = [life for life in lives if life.submitted_s >= WARM_S]
        services = [life for life in counted if life.kind == "services"]
        score = math.fsum(
            (self.weight if life.kind == "services" else 1.0) * life.gpus * life.delay_s / 3600 for life in counted
        )
        means = [_average([life.delay_s for life in counted if life.kind == kind]) for kind in CLASSES]
        pieces = [piece for life in lives for piece in life.pieces]
        held = math.fsum(
            each.gpus * max(0.0, min(each.ended_s, until) - max(each.started_s, WARM_S))
            for each in pieces
            if each.started_s < until
        )
        lost = math.fsum(life.gpus * life.lost_s for life in counted)
        room = sum(capacity) * (until - WARM_S)
        by_side = [piece._replace(side=SIDE[life.kind]) for life in lives for piece in life.pieces[:1]]
        return Outcome(
            nodes, slurm_nodes, pooled, score, (means[0], means[1], means[2]),
            sum(life.first_wait_s > PROMPT_S for life in services) / len(services) if services else 0.0,
            max(0.0, held - lost) / room if room else 0.0,
            0.0 if pooled else stranded(pieces, capacity, WARM_S, until),
            0.0 if pooled else moves(by_side, self.gpus_per_node, WARM_S, until),
            sum(life.first_wait_s == math.inf for life in counted),
        )  # fmt: skip


class Life(Struct, frozen=True):
    """What became of a job: times that it waited and ran in ``pieces``, one more after each time that it was stopped.

    ``delay_s`` is what it took longer than its work: waits, lost work and restarts; up to the end of the simulation if
    it has not ended. ``lost_s`` is the lost work and the restarts alone.
    """

    kind: str
    gpus: float
    submitted_s: float
    first_wait_s: float
    delay_s: float
    lost_s: float
    pieces: tuple[Spell, ...]


def lives_of(run: ClusterRun, jobs: Sequence[Job], side: int, until: float) -> list[Life]:
    """What became of the jobs of a run that was simulated up to ``until``."""
    held: dict[int, list[tuple[float, float]]] = {}
    for each in run.holdings:
        held.setdefault(each.job, []).append((each.start_s, until if math.isnan(each.end_s) else each.end_s))
    found: list[Life] = []
    for number, (job, story) in enumerate(zip(jobs, run.stories, strict=False)):
        gpus, since = job.work.gpu_milli / 1000, job.work.submitted_s
        finished = not math.isnan(story.finished_s)
        pieces: list[Spell] = []
        for start, end in sorted(held.get(number, ())):
            pieces.append(Spell(side, gpus, since, start, end))
            since = end
        if not finished and since < until:
            pieces.append(Spell(side, gpus, since, math.inf, math.inf))
        lost = story.lost_s + story.restart_s
        waited = math.fsum(min(each.started_s, until) - each.submitted_s for each in pieces)
        first = story.started_s - job.work.submitted_s
        found.append(Life(job.kind, gpus, job.work.submitted_s, math.inf if math.isnan(first) else first, waited + lost,
                          lost, tuple(pieces)))  # fmt: skip
    return found


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _mean(runs: Sequence[Outcome]) -> Outcome:
    def mean(values: Sequence[float]) -> float:
        known = [each for each in values if not math.isnan(each)]
        return math.fsum(known) / len(known) if known else math.nan

    first = runs[0]
    waits = [mean([run.wait_s[at] for run in runs]) for at in range(3)]
    return Outcome(
        first.nodes, first.slurm_nodes, first.pooled, mean([run.score for run in runs]), (waits[0], waits[1], waits[2]),
        mean([run.late for run in runs]), mean([run.used for run in runs]), mean([run.stranded for run in runs]),
        mean([run.moves for run in runs]), mean([run.unplaced for run in runs]),
    )  # fmt: skip
