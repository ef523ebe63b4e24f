"""Work through the whole scheduling cycle on a simulated fleet: submissions, starts, checkpoints, evictions, ends.

The scheduler is `muster.engine.scheduler.Scheduler`, the same that live backends use; here its plans are carried out at
once and what runs ends after its recorded run time. A workload that was stopped goes on from its last checkpoint.

With ``Config.gangs`` one-by-one each pod of a gang is submitted, placed and held alone, and the gang begins only when
all its pods have a place: the teaching baseline, which deadlocks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from muster.engine.config import Config
from muster.engine.requests import check_request
from muster.engine.scheduler import Scheduler
from muster.engine.state import Allocation
from muster.errors import InputError, StateError
from muster.model.parallelism import check_parallelism
from muster.model.plan import Evict, Migrate, Place, Plan, PodPlacement, Reserve, Resize
from muster.model.reasons import Reason
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import PodSet, Workload
from muster.planning.placed import Network, placements_for, text_of
from muster.sim.events import Events

WHOLE = -1
"""The pod number of a gang that is submitted as one."""

_SUBMIT, _END, _WAKE = 0, 1, 2
_BITS = 20


class RunOptions(Struct, frozen=True):
    """How the simulated cluster behaves, apart from its scheduler.

    Attributes:
        at_limit: what becomes of work that outlives its time limit: ``kill`` or ``run-on``.
        pod_every_s: one-by-one gangs only: a gang's pods are created one after the other, one each so many seconds.
        check_every: after so many events the invariants are checked; 0: never.
        keep_places: keep where each pod was, for Gantt charts.
        keep_plans: keep every plan that is not empty, with its time.
        network: what the slow-down of placements is told from, beside the GPU models.
        stretch: run times are those at the best placement, and longer by the slow-down where a job stands.
    """

    at_limit: Literal["kill", "run-on"] = "kill"
    pod_every_s: Annotated[float, Meta(ge=0)] = 0.05
    check_every: Annotated[int, Meta(ge=0)] = 0
    keep_places: bool = False
    keep_plans: bool = False
    network: Network = Network()
    stretch: bool = False


class JobStory(Struct):
    """What became of a workload; times in seconds, NaN where it did not come to that.

    Attributes:
        started_s, finished_s: its first start, and its end (by itself or killed).
        promised_s: the reserved start that it was told first.
        starts, evictions, moves: how often; a move is a start, too.
        done_s: work that is done and kept. Work is counted in seconds of the whole gang.
        lost_s: work that was done and lost, since the last checkpoint before an eviction or a kill.
        restart_s: time spent in restarts.
        move_s: what moves cost it: lost work and restarts, as counted above.
        slow_s: time lost by standing worse than at best, where run times are stretched by that.
        slowdown: of a step at its last start, by the communication model; NaN where it is not told.
        placement: GPUs in each NVLink domain at its last start, in the order of ranks; empty where it is not told.
        backfilled: its first start ran past others with a reserved start.
        killed: it was stopped at its time limit.
    """

    submitted_s: float
    started_s: float = math.nan
    finished_s: float = math.nan
    promised_s: float = math.nan
    starts: int = 0
    evictions: int = 0
    moves: int = 0
    done_s: float = 0.0
    lost_s: float = 0.0
    restart_s: float = 0.0
    move_s: float = 0.0
    slow_s: float = 0.0
    slowdown: float = math.nan
    placement: str = ""
    backfilled: bool = False
    killed: bool = False


class Spell(Struct):
    """A time in which a gang runs, from a start to its end or eviction; ``end_s`` is NaN while it runs.

    The first ``restart_s`` are its restart; ``until_s`` is when it will end by itself, or be ``killed``. A second of
    work takes ``pace`` seconds.
    """

    job: int
    start_s: float
    restart_s: float
    until_s: float
    killed: bool
    end_s: float = math.nan
    pace: float = 1.0


class Holding(Struct):
    """GPUs that a job held: the whole gang (``pod`` is WHOLE) or one pod; ``end_s`` is NaN while it holds them."""

    job: int
    pod: int
    gpu_milli: int
    start_s: float
    end_s: float = math.nan
    places: tuple[PodPlacement, ...] = ()


class ClusterRun:
    """A run that can be stopped at any time, copied and pickled.

    Args:
        snapshot: fleet, queues and what runs or waits at the start.
        workloads: what is submitted, and when.
        config: of the scheduler.
        options: of the simulated cluster.

    Raises:
        InputError: the queues, a workload or its time make no sense; the field is given as ``workloads[3].topology``.

    ``workloads``, ``stories`` and the numbers of jobs are those of the given workloads, then of what waits in the
    snapshot, then of what runs in it. What runs there and has no recorded run time stays.
    """

    def __init__(
        self, snapshot: Snapshot, workloads: Sequence[Workload], config: Config, options: RunOptions | None = None
    ) -> None:
        self.options = options or RunOptions()
        self.workloads = (*workloads, *snapshot.pending, *(each.workload for each in snapshot.running))
        _check_workloads(snapshot, self.workloads)
        self._placements = placements_for(snapshot.fleet, self.workloads, self.options.network)
        self.fleet = snapshot.fleet
        self.scheduler = Scheduler(snapshot, config)
        self.stories = [JobStory(each.submitted_s) for each in self.workloads]
        self.spells: list[Spell] = []
        self.holdings: list[Holding] = []
        self.plans: list[tuple[float, Plan]] = []
        self.cycles = self.events = 0
        self.first_s = min([each.submitted_s for each in self.workloads], default=0.0)
        self.now_s = self.first_s
        self._index = {each.name: index for index, each in enumerate(self.workloads)}
        self._given = len(workloads)
        self._one_by_one = config.gangs == "one-by-one"
        self._units: dict[str, tuple[int, int]] = {}
        self._held: dict[str, int] = {}
        self._runs: dict[int, int] = {}
        self._saving: dict[int, None] = {}
        self._placed: dict[int, int] = {}
        self._due = bool(snapshot.pending)
        self._adopted = bool(snapshot.running)
        self._queue = Events(self._handle)
        self._feed()
        for number, workload in enumerate(snapshot.pending, self._given):
            self._units[workload.name] = number, WHOLE
            self._queue.schedule(max(self.first_s, snapshot.taken_s), _payload(_WAKE, number, 0), 1)
        for number, run in enumerate(snapshot.running, self._given + len(snapshot.pending)):
            self._adopt(number, run, snapshot.taken_s)
        for each in snapshot.reservations:
            for time_s in (each.start_s, each.end_s):
                if self.first_s <= time_s < math.inf:
                    self._queue.schedule(time_s, _payload(_WAKE, 0, 0), 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> ClusterRun:
        """A fork; what never changes (fleet, workloads) is shared."""
        state = self.scheduler.cluster.state
        for shared in (self.workloads, self.fleet, state.fleet, state.node_list, *self.workloads):
            memo[id(shared)] = shared
        fork = memo[id(self)] = type(self).__new__(type(self))
        fork.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return fork

    def run(self, until: float | None = None) -> list[JobStory]:
        """Run up to and including ``until`` (until nothing more happens if None); the stories of all jobs so far.

        Where something still waits or runs, ``now_s`` is ``until`` afterwards: what is held then is counted up to it.
        """
        self._queue.run(until)
        if until is not None and until > self.now_s and self.busy:
            self.now_s = until
        return self.stories

    @property
    def busy(self) -> bool:
        """Whether anything runs, waits or is still to be submitted."""
        return bool(len(self.scheduler.running) or len(self.scheduler.pending) or self._queue.peek() is not None)

    # -- what it shows ------------------------------------------------------------------------------------------------

    def state_of(self, job: int) -> str:
        """``to-come``, ``waiting``, ``running``, ``finished``, ``killed`` or ``given-up`` (it missed its deadline).

        A one-by-one gang is ``waiting`` until all its pods are placed.
        """
        story = self.stories[job]
        if not math.isnan(story.finished_s):
            return "killed" if story.killed else "finished"
        if job in self._runs:
            return "running"
        if story.submitted_s > self.now_s:
            return "to-come"
        names = self._names(job)
        if all(name in self.scheduler.running or name in self.scheduler.pending.gangs for name in names):
            return "waiting"
        return "given-up"

    def reasons(self) -> dict[int, Reason]:
        """Why each job that waits does so; of a gang that holds some pods, why the first of the others waits."""
        found: dict[int, Reason] = {}
        for name, reason in self.scheduler.waits(self.now_s):
            found.setdefault(self._units[name][0], reason)
        return found

    def reserved_s(self, job: int) -> float:
        """The reserved start that a job has now; NaN if none."""
        slot = self.scheduler.slots.get(self.workloads[job].name)
        return math.nan if slot is None else slot.start_s

    def spell_of(self, job: int) -> Spell | None:
        """The spell in which a job runs now."""
        number = self._runs.get(job)
        return None if number is None else self.spells[number]

    def check(self) -> None:
        """Raise `AssertionError` or `CapacityError` where an invariant does not hold.

        No device over-committed and use the sum of its parts; gangs whole; no queue above what it may use; what the
        scheduler holds for running is what the run holds.
        """
        scheduler = self.scheduler
        scheduler.cluster.state.validate(self._allocations())
        names = {run.workload.name for run in scheduler.running}
        assert names == set(self._held), "scheduler and run hold different work"
        for run in scheduler.running:
            least = sum(each.required for each in run.workload.pod_sets)
            assert least <= run.rows.shape[1] <= run.workload.pods, f"{run.workload.name} runs in part"
        if self._adopted:
            return  # what ran before may be above its quota
        for queue in scheduler.queues:
            for flavor in scheduler.cluster.flavors:
                assert scheduler.quota.available(queue, flavor) >= 0, f"{queue} is above its quota of {flavor}"

    # -- events -------------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        due: list[tuple[float, int]] = []
        for index, workload in enumerate(self.workloads[: self._given]):
            for pod in range(self._units_of(workload)):
                due.append((workload.submitted_s + pod * self.options.pod_every_s, _payload(_SUBMIT, index, pod)))
        due.sort(key=lambda each: each[0])
        self._queue.feed([time_s for time_s, _ in due], [payload for _, payload in due], 1)

    def _units_of(self, workload: Workload) -> int:
        return workload.pods if self._one_by_one and workload.pods > 1 else 1

    def _names(self, job: int) -> list[str]:
        """Under which names a job is known to the scheduler."""
        workload = self.workloads[job]
        count = self._units_of(workload) if job < self._given else 1
        return [workload.name] if count == 1 else [_pod_name(workload, pod) for pod in range(count)]

    def _handle(self, time_s: float, payload: int) -> None:
        self.now_s = time_s
        kind, index, number = payload & 3, payload >> 2 >> _BITS, payload >> 2 & (1 << _BITS) - 1
        if kind == _SUBMIT:
            self._submit(index, number, time_s)
        elif kind == _WAKE:
            self._due = True
        elif index in self._runs and self.stories[index].starts == number:
            self._end(index, time_s)
        self.events += 1
        # all that happens at one instant is seen before anything is decided
        if self._due and self._queue.peek() != time_s:
            self._due = False
            self._cycle(time_s)
        if self.options.check_every and self.events % self.options.check_every == 0:
            self.check()

    def _submit(self, index: int, pod: int, now_s: float) -> None:
        workload = self.workloads[index]
        if self._units_of(workload) == 1:
            pod, unit = WHOLE, workload
        else:
            unit = self._pod(workload, pod, now_s)
        self._units[unit.name] = index, pod
        self.scheduler.submit(unit)
        self._due = True
        if pod > 0:
            return
        if workload.not_before_s > now_s:
            self._wake(workload.not_before_s)
        if workload.start_deadline_s is not None:
            self._wake(math.nextafter(max(workload.start_deadline_s, now_s), math.inf))

    def _pod(self, workload: Workload, pod: int, now_s: float) -> Workload:
        """One pod of a gang as a workload without end, which knows nothing of the others."""
        ends = accumulate(each.count for each in workload.pod_sets)
        shape = next(each.shape for each, end in zip(workload.pod_sets, ends, strict=True) if pod < end)
        depends = [name for other in workload.depends_on for name in self._names_of(other)]
        return replace(
            workload,
            name=_pod_name(workload, pod),
            pod_sets=(PodSet(shape),),
            submitted_s=now_s,
            duration_s=None,
            time_limit_s=None,
            topology=None,
            parallelism=None,
            depends_on=tuple(depends),
        )

    def _names_of(self, name: str) -> list[str]:
        job = self._index.get(name)
        return [name] if job is None else self._names(job)

    def _wake(self, time_s: float) -> None:
        if time_s < math.inf:
            self._queue.schedule(time_s, _payload(_WAKE, 0, 0), 1)

    def _end(self, index: int, now_s: float) -> None:
        killed = self.spells[self._runs[index]].killed
        self._halt(index, now_s, keep_all=not killed)
        story = self.stories[index]
        story.finished_s, story.killed = now_s, killed
        for name in self._names(index):
            # a pod of a gang that runs is held, so all its names are running
            self.scheduler.finish(name, now_s, well=not killed)
            self._let_go(name, now_s)
        self._placed.pop(index, None)
        self._due = True

    # -- plans --------------------------------------------------------------------------------------------------------

    def _cycle(self, now_s: float) -> None:
        if len(self.scheduler.pending) and self._saving:
            self._note_checkpoints(now_s)
        plan = self.scheduler.cycle(now_s)
        self.cycles += 1
        if plan.decisions and self.options.keep_plans:
            self.plans.append((now_s, plan))
        evicted = False
        for decision in plan.decisions:
            match decision:
                case Place():
                    self._place(decision, now_s)
                case Evict():
                    evicted = True
                    self._evict(decision.workload, now_s)
                case Reserve():
                    index, pod = self._units[decision.workload]
                    if pod == WHOLE and math.isnan(self.stories[index].promised_s):
                        self.stories[index].promised_s = decision.start_s
                case Migrate():
                    self._move(decision, now_s)
                case Resize():
                    raise StateError(f"the simulated cluster cannot carry out {type(decision).__name__.lower()} yet")
                case _:
                    pass
        if evicted:  # those who were stopped may find room elsewhere at once
            self._wake(now_s)

    def _note_checkpoints(self, now_s: float) -> None:
        """Tell the scheduler when running work was saved last: it chooses by that whom to stop."""
        for index in self._saving:
            spell, saved = self.spells[self._runs[index]], self.workloads[index].checkpointing
            assert saved is not None
            begun_s = spell.start_s + spell.restart_s
            kept_s = _kept_s(now_s - begun_s, saved.interval_s)
            for name in self._names(index):
                self.scheduler.running[name].checkpointed_s = begun_s + kept_s if kept_s else None

    def _place(self, decision: Place, now_s: float) -> None:
        index, pod = self._units[decision.workload]
        self._hold(decision.workload, decision.pods, now_s)
        if pod != WHOLE:
            self._placed[index] = self._placed.get(index, 0) + 1
            if self._placed[index] < self.workloads[index].pods:
                return
        self._begin(index, now_s, backfilled=decision.backfilled, pods=decision.pods if pod == WHOLE else ())

    def _hold(self, name: str, pods: tuple[PodPlacement, ...], now_s: float) -> None:
        """A gang or pod of that name holds its places from now on."""
        index, pod = self._units[name]
        run = self.scheduler.running[name]
        self._held[name] = len(self.holdings)
        places = pods if self.options.keep_places else ()
        self.holdings.append(Holding(index, pod, run.kind.milli, now_s, places=places))
        protected_s = self.scheduler.config.min_runtime_s
        if (queue := self.scheduler.queues.get(run.workload.queue)) is not None:
            protected_s = max(protected_s, queue.min_runtime_s)
        if protected_s:
            self._wake(now_s + protected_s)

    def _begin(self, index: int, now_s: float, *, backfilled: bool, pods: Sequence[PodPlacement]) -> None:
        story, workload = self.stories[index], self.workloads[index]
        pace = self._pace(index, pods)
        if math.isnan(story.started_s):
            story.started_s, story.backfilled = now_s, backfilled
        story.starts += 1
        saved = workload.checkpointing
        restart_s = saved.restart_s if saved is not None and story.starts > 1 else 0.0
        duration_s = math.inf if workload.duration_s is None else workload.duration_s
        until_s = now_s + restart_s + max(0.0, duration_s - story.done_s) * pace
        killed = False
        if self.options.at_limit == "kill" and workload.time_limit_s is not None:
            killed = now_s + workload.time_limit_s < until_s
            until_s = min(until_s, now_s + workload.time_limit_s)
        self._runs[index] = len(self.spells)
        self.spells.append(Spell(index, now_s, restart_s, until_s, killed, pace=pace))
        if saved is not None:
            self._saving[index] = None
        if until_s < math.inf:
            self._queue.schedule(until_s, _payload(_END, index, story.starts), 0)

    def _pace(self, index: int, pods: Sequence[PodPlacement]) -> float:
        """How long a second of work takes where a job stands; its slow-down is noted."""
        told = self._placements.slowdown(self.workloads[index], pods) if self._placements and pods else None
        if self._placements is None or told is None:
            return 1.0
        story = self.stories[index]
        story.slowdown, story.placement = told.factor, text_of(self._placements.spots(pods))
        return told.factor if self.options.stretch else 1.0

    def _evict(self, name: str, now_s: float) -> None:
        index, pod = self._units[name]
        self.stories[index].evictions += 1
        self._let_go(name, now_s)
        if index in self._runs:
            self._halt(index, now_s, keep_all=False)
        if pod != WHOLE:
            self._placed[index] -= 1

    def _move(self, decision: Migrate, now_s: float) -> None:
        """A gang stops and starts again elsewhere; of a one-by-one gang that has not begun, only a pod does."""
        index, pod = self._units[decision.workload]
        story, lost_s = self.stories[index], self.stories[index].lost_s
        story.moves += 1
        self._let_go(decision.workload, now_s)
        if begun := index in self._runs:
            self._halt(index, now_s, keep_all=False)
        self._hold(decision.workload, decision.pods, now_s)
        if begun:
            self._begin(index, now_s, backfilled=False, pods=decision.pods if pod == WHOLE else ())
            story.move_s += story.lost_s - lost_s + self.spells[-1].restart_s

    def _let_go(self, name: str, now_s: float) -> None:
        self.holdings[self._held.pop(name)].end_s = now_s

    def _halt(self, index: int, now_s: float, *, keep_all: bool) -> None:
        """A gang stops: its work since the last checkpoint is lost, unless it is all kept."""
        story, saved = self.stories[index], self.workloads[index].checkpointing
        spell = self.spells[self._runs.pop(index)]
        self._saving.pop(index, None)
        spell.end_s = now_s
        restart_s = min(spell.restart_s, now_s - spell.start_s)
        ran_s = now_s - spell.start_s - restart_s
        work_s = ran_s / spell.pace
        kept_s = ran_s if keep_all else _kept_s(ran_s, saved.interval_s) if saved is not None else 0.0
        story.restart_s += restart_s
        story.slow_s += ran_s - work_s
        story.done_s += kept_s / spell.pace
        story.lost_s += work_s - kept_s / spell.pace

    # -- the start ----------------------------------------------------------------------------------------------------

    def _adopt(self, index: int, run: Running, taken_s: float) -> None:
        """Work that runs at the start; its earlier life is not known, so it is on its first start."""
        name, duration_s = run.workload.name, run.workload.duration_s
        self._units[name] = index, WHOLE
        self._held[name] = len(self.holdings)
        milli = self.scheduler.running[name].kind.milli
        places = run.pods if self.options.keep_places else ()
        self.holdings.append(Holding(index, WHOLE, milli, run.started_s, places=places))
        story = self.stories[index]
        story.started_s, story.starts = run.started_s, 1
        until_s = math.inf if duration_s is None else run.started_s + duration_s
        self._runs[index] = len(self.spells)
        self.spells.append(Spell(index, run.started_s, 0.0, until_s, killed=False))
        if run.workload.checkpointing is not None:
            self._saving[index] = None
        if until_s < math.inf:
            self._queue.schedule(max(until_s, taken_s), _payload(_END, index, 1), 0)

    def _allocations(self) -> Iterator[Allocation]:
        for run in self.scheduler.running:
            rows: list[list[int]] = run.rows.T.tolist()
            for node, shape, devices in rows:
                yield Allocation(node, shape, devices)


def _payload(kind: int, index: int, number: int) -> int:
    return (index << _BITS | number) << 2 | kind


def _pod_name(workload: Workload, pod: int) -> str:
    return f"{workload.name}/{pod:0{len(str(workload.pods - 1))}d}"


def _kept_s(work_s: float, interval_s: float) -> float:
    """How much of ``work_s`` was saved by checkpoints each ``interval_s``."""
    if not interval_s > 0 or work_s <= 0:
        return 0.0
    return min(work_s, math.floor(work_s / interval_s + 1e-9) * interval_s)


def _check_workloads(snapshot: Snapshot, workloads: Sequence[Workload]) -> None:
    """Raise `InputError` for what would fail in the middle of a run."""
    seen: set[str] = set()
    checked: set[object] = set()
    for index, job in enumerate(workloads):
        where = f"workloads[{index}]"
        if job.name in seen:
            raise InputError(f"{job.name!r} is the name of another workload", field=f"{where}.name")
        seen.add(job.name)
        if not math.isfinite(job.submitted_s):
            raise InputError(f"is {job.submitted_s} ({job.name})", field=f"{where}.submitted_s", hint="a finite time")
        for key, value in (("duration_s", job.duration_s), ("time_limit_s", job.time_limit_s)):
            if value is not None and not value >= 0:
                raise InputError(f"is {value} ({job.name})", field=f"{where}.{key}", hint="seconds, 0 or more")
        if job.topology is not None and job.topology not in checked:
            checked.add(job.topology)
            check_request(snapshot.fleet.topology, job.topology, f"{where}.topology")
        if job.parallelism is not None:
            check_parallelism(job, f"{where}.parallelism")
        if any(not 0 <= each.required <= each.count < 1 << _BITS for each in job.pod_sets):
            raise InputError(f"a pod set of {job.name} has a wrong count", field=f"{where}.pod_sets")
