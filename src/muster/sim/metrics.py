"""What people ask of a run: waits by size and queue, use of GPUs over time, work done and lost, shares of queues.

Everything is computed from the stories, spells and holdings of a `ClusterRun`, up to its ``now_s``; nothing changes.
"""

from __future__ import annotations

# numpy's stubs tell arrays from scalars only in part.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from muster.model.workload import Workload
from muster.sim.cluster_run import ClusterRun
from muster.sim.idle import held_idle_hours
from muster.sim.lives import JobStory, Spent
from muster.sim.replay import SLOWDOWN_LEAST_S
from muster.sim.services import ServiceFigures

MOST_POINTS = 500
"""Most points of the time series."""
BINS = 100
"""Into how many parts of equal length the run is cut for the shares of queues."""

SLOWED = 1.05
"""A slow-down above this is counted."""

SIZES = ("cpu", "1", "2-4", "5-8", "9-64", "65-512", "513+")
"""Classes of jobs by the GPUs that all their pods ask for; ``1`` holds fractions of a GPU, too."""
_BOUNDS_MILLI = (0, 1000, 4000, 8000, 64_000, 512_000)


class Waits(Struct, frozen=True):
    """How long jobs waited from submission to their first start, in seconds; statistics are of those that started.

    ``waiting`` have not started, the longest of them for ``waiting_max_s``. ``slowdown_mean`` is the mean bounded
    slowdown (finish - submission) / max(run time, SLOWDOWN_LEAST_S), at least 1, of those that finished by themselves.
    Times are NaN where there is no such job.
    """

    name: str
    jobs: int
    started: int
    waiting: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float
    waiting_max_s: float
    slowdown_mean: float


class Slowdowns(Struct, frozen=True):
    """Predicted slow-downs of the jobs that tell what a step sends, each at its last start; NaN where there are none.

    ``slowed`` of the ``jobs`` are above SLOWED.
    """

    jobs: int
    mean: float
    max: float
    slowed: int


class Work(Struct):
    """GPU milli-seconds from the first submission on, by what became of them."""

    useful: float = 0.0
    lost: float = 0.0
    restart: float = 0.0
    slow: float = 0.0
    stall: float = 0.0

    @property
    def all(self) -> float:
        """In all."""
        return self.useful + self.lost + self.restart + self.slow + self.stall


class Breakage(Struct, frozen=True):
    """What broke, and what that did to jobs.

    Attributes:
        nodes_lost: how often a node was lost, with all that ran on it.
        quarantined: how often a node was put into quarantine.
        interruptions: how often a running job lost pods with a node.
        failures: how often a job failed by itself or on a black hole.
        resizes: how often an elastic job went on at another size.
        ettr: effective training time ratio: work that was kept over the time from the first start to the end, queues
            after failures included; the mean by GPUs, and ``ettr_by_size``. NaN where nothing has started.
    """

    nodes_lost: int
    quarantined: int
    interruptions: int
    failures: int
    resizes: int
    ettr: float
    ettr_by_size: dict[str, float]


class GanttRow(Struct, frozen=True):
    """One device that a job held: ``node`` and ``device`` (-1: a pod without GPU), from ``start_s`` to ``end_s``."""

    job: str
    pod: int
    node: str
    device: int
    start_s: float
    end_s: float


class QueueShare(Struct, frozen=True):
    """What the jobs of a queue held: GPU-hours in all, and in each bin of `RunMetrics.bins_s` the mean GPUs."""

    queue: str
    gpu_hours: float
    share: float
    gpus: tuple[float, ...]


class RunMetrics(Struct, frozen=True):
    """A run in numbers. Hours are GPU-hours of whole GPUs.

    Attributes:
        jobs: all that were submitted up to ``end_s``, by what became of them: see `ClusterRun.state_of`.
        from_s, end_s: the first submission, and up to when is counted.
        gpus: healthy GPUs on schedulable nodes.
        allocated_hours: held by jobs; the sum of the six that follow.
        useful_hours: work that was done and kept, or is done so far by what runs.
        lost_hours: work that was done and then lost by evictions and kills.
        restart_hours: in restarts.
        slow_hours: lost by standing worse than at best, where run times are stretched by that.
        stall_hours: held by jobs that hung, as a node of theirs was gone and nothing was done about it yet.
        idle_hours: held by pods of gangs that had not all their pods (one-by-one gangs only).
        utilisation: allocated over all GPU time, 0 to 1.
        goodput: useful over allocated, 0 to 1; NaN where nothing was held.
        slowdowns: how much longer steps take where jobs stand than at best.
        evictions: how often work was stopped for other work; ``evicted_jobs`` how many jobs that were.
        moves: how often work was moved so that other work could start; ``moved_jobs`` how many jobs that were.
        move_hours: what moves cost, which is part of ``lost_hours`` and ``restart_hours``.
        breakage: what broke, and what that did to jobs.
        lent_hours: what queues that keep headroom have lent to others.
        services: how each service fared.
        backfilled: jobs whose first start ran past others with a reserved start.
        promised, promises_broken: jobs that were told a reserved start, and those that started later or have not
            started though the time has passed.
        promised_surely, sure_promises_broken: the same of those that rest on stated limits alone.
        by_size, by_queue: waits by class of SIZES and by queue; ``waits`` is of all.
        series: (time_s, GPUs held, jobs waiting), at most MOST_POINTS points, each until the next.
        bins_s: where the bins of the queues' shares begin.
        held_idle_hours: of the allocated, those that running jobs held and did not use, where their use is known.
        gantt: where jobs were; only if the run kept places and it was asked for.
    """

    jobs: dict[str, int]
    from_s: float
    end_s: float
    gpus: int
    allocated_hours: float
    useful_hours: float
    lost_hours: float
    restart_hours: float
    slow_hours: float
    stall_hours: float
    idle_hours: float
    utilisation: float
    goodput: float
    evictions: int
    evicted_jobs: int
    moves: int
    moved_jobs: int
    move_hours: float
    breakage: Breakage
    lent_hours: float
    services: tuple[ServiceFigures, ...]
    backfilled: int
    promised: int
    promises_broken: int
    promised_surely: int
    sure_promises_broken: int
    slowdowns: Slowdowns
    waits: Waits
    by_size: tuple[Waits, ...]
    by_queue: tuple[Waits, ...]
    series: tuple[tuple[float, float, int], ...]
    bins_s: tuple[float, ...]
    queues: tuple[QueueShare, ...]
    held_idle_hours: float = 0.0
    gantt: tuple[GanttRow, ...] = ()


def size_of(workload: Workload) -> str:
    """The class of SIZES that a workload is in."""
    return SIZES[int(np.searchsorted(_BOUNDS_MILLI, workload.gpu_milli))]


def measure(run: ClusterRun, *, gantt: bool = False) -> RunMetrics:
    """The figures of a run up to its ``now_s``."""
    end_s = run.now_s
    submitted = [job for job, story in enumerate(run.stories) if story.submitted_s <= end_s]
    states = [run.state_of(job) for job in submitted]
    work = _work(run, end_s)
    allocated = sum(
        each.gpu_milli * (_end(each.end_s, end_s) - max(each.start_s, run.first_s)) for each in run.holdings
    )
    gpus = sum(node.healthy_gpus for node in run.fleet if node.schedulable)
    span_s = end_s - run.first_s
    stories = [run.stories[job] for job in submitted]
    bins_s, queues = _queue_shares(run, end_s)
    promised = [story for story in stories if not math.isnan(story.promised_s)]
    return RunMetrics(
        jobs={state: states.count(state) for state in sorted(set(states))},
        from_s=run.first_s,
        end_s=end_s,
        gpus=gpus,
        allocated_hours=_hours(allocated),
        useful_hours=_hours(work.useful),
        lost_hours=_hours(work.lost),
        restart_hours=_hours(work.restart),
        slow_hours=_hours(work.slow),
        stall_hours=_hours(work.stall),
        idle_hours=_hours(max(0.0, allocated - work.all)),
        utilisation=allocated / 1000 / (gpus * span_s) if gpus and span_s else 0.0,
        goodput=work.useful / allocated if allocated else math.nan,
        evictions=sum(story.evictions for story in stories),
        evicted_jobs=sum(story.evictions > 0 for story in stories),
        moves=sum(story.moves for story in stories),
        moved_jobs=sum(story.moves > 0 for story in stories),
        move_hours=_hours(sum(run.stories[job].move_s * run.workloads[job].gpu_milli for job in submitted)),
        breakage=_breakage(run, submitted, end_s),
        lent_hours=_hours(run.lent_s(end_s)),
        services=run.service_figures(end_s),
        backfilled=sum(story.backfilled for story in stories),
        promised=len(promised),
        promises_broken=sum(_missed(story, story.promised_s, end_s) for story in promised),
        promised_surely=sum(not math.isnan(story.surely_s) for story in promised),
        sure_promises_broken=sum(_missed(story, story.surely_s, end_s) for story in promised),
        slowdowns=_slowdowns([story.slowdown for story in stories if not math.isnan(story.slowdown)]),
        waits=_waits("all", run, submitted, states, end_s),
        by_size=tuple(_grouped(run, submitted, states, end_s, [size_of(run.workloads[job]) for job in submitted])),
        by_queue=tuple(_grouped(run, submitted, states, end_s, [run.workloads[job].queue for job in submitted])),
        series=_series(run, submitted, states, end_s),
        bins_s=bins_s,
        queues=queues,
        held_idle_hours=math.fsum(held_idle_hours(run).values()),
        gantt=tuple(_gantt(run, end_s)) if gantt else (),
    )


def _missed(story: JobStory, promised_s: float, end_s: float) -> bool:
    """Whether a job started after the promised time; a second is less than any job counts, and more than rounding."""
    return _end(story.started_s, end_s) > promised_s + 1


def _end(time_s: float, end_s: float) -> float:
    return end_s if math.isnan(time_s) else min(time_s, end_s)


def _hours(milli_s: float) -> float:
    return milli_s / 3_600_000


def _slowdowns(told: Sequence[float]) -> Slowdowns:
    return Slowdowns(
        len(told),
        math.fsum(told) / len(told) if told else math.nan,
        max(told, default=math.nan),
        sum(factor > SLOWED for factor in told),
    )


def _work(run: ClusterRun, end_s: float) -> Work:
    work = Work()
    for job, (story, workload) in enumerate(zip(run.stories, run.workloads, strict=True)):
        spell, milli = run.lives.spell_of(job), workload.gpu_milli
        spent = Spent(story.restart_s, story.done_s, story.slow_s, story.stall_s)
        if spell is not None:
            spent = spent.plus(spell.spent(run.first_s, end_s))
        work.useful += milli * spent.work_s
        work.lost += milli * story.lost_s
        work.restart += milli * spent.restart_s
        work.slow += milli * spent.slow_s
        work.stall += milli * spent.stall_s
    return work


def _breakage(run: ClusterRun, jobs: Sequence[int], end_s: float) -> Breakage:
    stories = [run.stories[job] for job in jobs]
    productive: dict[str, float] = {}
    wall: dict[str, float] = {}
    for job in jobs:
        story, workload, spell = run.stories[job], run.workloads[job], run.lives.spell_of(job)
        if math.isnan(story.started_s) or not workload.gpu_milli:
            continue
        done_s = story.done_s + (spell.spent(run.first_s, end_s).work_s if spell is not None else 0.0)
        begun_s = max(story.started_s, run.first_s)
        for name in ("all", size_of(workload)):
            productive[name] = productive.get(name, 0.0) + workload.gpu_milli * done_s
            wall[name] = wall.get(name, 0.0) + workload.gpu_milli * (_end(story.finished_s, end_s) - begun_s)
    ettr = {name: productive[name] / wall[name] for name in ("all", *SIZES) if wall.get(name)}
    return Breakage(
        nodes_lost=run.node_losses,
        quarantined=run.quarantined,
        interruptions=sum(story.node_losses for story in stories),
        failures=sum(story.failures for story in stories),
        resizes=sum(story.resizes for story in stories),
        ettr=ettr.pop("all", math.nan),
        ettr_by_size=ettr,
    )


def _grouped(
    run: ClusterRun, submitted: Sequence[int], states: Sequence[str], end_s: float, names: Sequence[str]
) -> Iterator[Waits]:
    """The waits of each group; sizes in their order, queues by name."""
    groups: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        groups.setdefault(name, []).append(at)
    for name in sorted(groups, key=lambda name: (SIZES.index(name) if name in SIZES else len(SIZES), name)):
        jobs = [submitted[at] for at in groups[name]]
        yield _waits(name, run, jobs, [states[at] for at in groups[name]], end_s)


def _waits(name: str, run: ClusterRun, jobs: Sequence[int], states: Sequence[str], end_s: float) -> Waits:
    stories = [run.stories[job] for job in jobs]
    waits = np.array([story.started_s - story.submitted_s for story in stories if not math.isnan(story.started_s)])
    waits = np.maximum(waits, 0.0)
    waiting = [
        end_s - story.submitted_s
        for story, state in zip(stories, states, strict=True)
        if state == "waiting" and math.isnan(story.started_s)
    ]
    slowdowns = [
        max(1.0, (story.finished_s - story.submitted_s) / max(story.done_s, SLOWDOWN_LEAST_S))
        for story, state in zip(stories, states, strict=True)
        if state == "finished"
    ]
    p50, p90, p99 = np.quantile(waits, (0.5, 0.9, 0.99)).tolist() if len(waits) else (math.nan,) * 3
    return Waits(
        name,
        len(jobs),
        len(waits),
        len(waiting),
        float(waits.mean()) if len(waits) else math.nan,
        p50,
        p90,
        p99,
        float(waits.max()) if len(waits) else math.nan,
        max(waiting, default=math.nan),
        math.fsum(slowdowns) / len(slowdowns) if slowdowns else math.nan,
    )


def _series(
    run: ClusterRun, submitted: Sequence[int], states: Sequence[str], end_s: float
) -> tuple[tuple[float, float, int], ...]:
    """Steps of what is held and of how many jobs wait; thinned evenly where there are many."""
    rows: list[tuple[float, int, int]] = [(run.first_s, 0, 0)]
    for each in run.holdings:
        rows.append((max(each.start_s, run.first_s), each.gpu_milli, 0))
        if not math.isnan(each.end_s):
            rows.append((each.end_s, -each.gpu_milli, 0))
    rows += [(max(run.stories[job].submitted_s, run.first_s), 0, 1) for job in submitted]
    stopped: dict[int, float] = {}
    for spell in run.spells:
        stopped[spell.job] = spell.end_s
        rows.append((max(spell.start_s, run.first_s), 0, -1))
        if not math.isnan(spell.end_s) and run.stories[spell.job].finished_s != spell.end_s:
            rows.append((spell.end_s, 0, 1))
    for job, state in zip(submitted, states, strict=True):
        deadline_s = run.workloads[job].start_deadline_s
        if state == "given-up" and deadline_s is not None:
            # one that was stopped after its deadline waits no more from then on
            rows.append((max(deadline_s, stopped.get(job, run.stories[job].submitted_s)), 0, -1))
    table = np.array(rows, np.float64)
    table = table[np.argsort(table[:, 0], kind="stable")]
    times, last = np.unique(table[:, 0], return_index=True)
    ends = np.append(last[1:], len(table)) - 1
    held, waiting = np.cumsum(table[:, 1])[ends] / 1000, np.cumsum(table[:, 2])[ends]
    kept = np.flatnonzero(times <= end_s)
    if len(kept) > MOST_POINTS:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_POINTS).astype(np.int64)]
    return tuple((float(times[at]), float(held[at]), int(waiting[at])) for at in kept)


def _queue_shares(run: ClusterRun, end_s: float) -> tuple[tuple[float, ...], tuple[QueueShare, ...]]:
    """The mean GPUs of each queue in each bin: differences of the integral of what it holds at the bins' edges."""
    if end_s <= run.first_s or not run.holdings:
        return (), ()
    edges = np.linspace(run.first_s, end_s, BINS + 1)
    by_queue: dict[str, list[tuple[float, float, int]]] = {}
    for each in run.holdings:
        rows = by_queue.setdefault(run.workloads[each.job].queue, [])
        rows.append((max(each.start_s, run.first_s), _end(each.end_s, end_s), each.gpu_milli))
    areas: dict[str, list[float]] = {}
    for queue in sorted(by_queue):
        table = np.array(by_queue[queue])
        areas[queue] = np.diff(_integral(table, edges)).tolist()
    total = math.fsum(sum(area) for area in areas.values())
    width_s = float(edges[1] - edges[0])
    shares = tuple(
        QueueShare(
            queue,
            _hours(sum(area)),
            sum(area) / total if total else 0.0,
            tuple(part / width_s / 1000 for part in area),
        )
        for queue, area in areas.items()
    )
    return tuple(edges[:-1].tolist()), shares


def _integral(table: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """GPU milli-seconds held up to each edge: the sum over rows (start, end, milli) of milli x time since the start."""
    area = np.zeros(len(edges))
    for column, sign in ((0, 1.0), (1, -1.0)):
        order = np.argsort(table[:, column], kind="stable")
        times, milli = table[order, column], table[order, 2]
        before = np.searchsorted(times, edges, side="right")
        mass = np.concatenate(([0.0], np.cumsum(milli)))[before]
        moment = np.concatenate(([0.0], np.cumsum(milli * times)))[before]
        area += sign * (mass * edges - moment)
    return area


def _gantt(run: ClusterRun, end_s: float) -> Iterator[GanttRow]:
    for each in run.holdings:
        for number, place in enumerate(each.places):
            pod = number if each.pod < 0 else each.pod
            for device in place.devices or (-1,):
                name = run.workloads[each.job].name
                yield GanttRow(name, pod, place.node, device, each.start_s, _end(each.end_s, end_s))
