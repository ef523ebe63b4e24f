"""How plans are carried out on a simulated cluster: who holds which places, when work begins, stops and goes on.

Work begins when all its pods have a place; what was stopped goes on from its last checkpoint. Ends and failures are
events, which `muster.sim.cluster_run` handles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from muster.engine.scheduler import Scheduler
from muster.model.fleet import Fleet
from muster.model.plan import Evict, Migrate, Place, PodPlacement, Resize
from muster.model.snapshot import Running
from muster.model.workload import Workload
from muster.planning.placed import placements_for
from muster.sim.events import Events
from muster.sim.failures import FailureProcess
from muster.sim.lives import JobStory, Lives, Spell
from muster.sim.run_inputs import POD_BITS, RunOptions

WHOLE = -1
"""The pod number of a gang that is submitted as one."""

SUBMIT, END, WAKE, NODES, FAIL, TIMEOUT, LEAVE = range(7)
"""Kinds of events."""


class Holding(Struct):
    """GPUs that a job held: the whole gang (``pod`` is WHOLE) or one pod; ``end_s`` is NaN while it holds them."""

    job: int
    pod: int
    gpu_milli: int
    start_s: float
    end_s: float = math.nan
    places: tuple[PodPlacement, ...] = ()


class Carrier:
    """Carries out what the scheduler decides.

    Args:
        fleet: at the start.
        workloads: all there are; the first ``given`` of them are submitted, the others are there already.
        given: see there.
        options: of the simulated cluster.
        scheduler: whose plans these are.

    Attributes:
        holdings: all GPUs that were ever held, in the order of their beginning.
        first_s, now_s: when the run begins, and the present.
    """

    def __init__(
        self, fleet: Fleet, workloads: tuple[Workload, ...], given: int, options: RunOptions, scheduler: Scheduler
    ) -> None:
        self.options, self.workloads, self.fleet, self.scheduler = options, workloads, fleet, scheduler
        self.lives = Lives(
            workloads, placements_for(fleet, workloads, options.network),
            stretch=options.stretch, kill=options.at_limit == "kill",
        )  # fmt: skip
        self.holdings: list[Holding] = []
        self.first_s = self.now_s = min([each.submitted_s for each in workloads], default=0.0)
        self.failures = FailureProcess(options.failures, fleet, options.seed, self.first_s)
        self._index = {each.name: index for index, each in enumerate(workloads)}
        self._given = given
        self._one_by_one = scheduler.config.gangs == "one-by-one"
        self._units: dict[str, tuple[int, int]] = {}
        self._held: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._timeouts: dict[int, int] = {}
        self._placed: dict[int, int] = {}
        self._leaving: dict[tuple[str, int], float] = {}
        self._queue = Events(self._handle)

    @property
    def stories(self) -> list[JobStory]:
        """What became of each workload."""
        return self.lives.stories

    @property
    def spells(self) -> list[Spell]:
        """All spells, in the order in which they began."""
        return self.lives.spells

    def _handle(self, time_s: float, payload: int) -> None:
        """An event: what it means is for the run to know."""
        raise NotImplementedError

    def _units_of(self, workload: Workload) -> int:
        return workload.pods if self._one_by_one and workload.pods > 1 else 1

    def _names(self, job: int) -> list[str]:
        """Under which names a job is known to the scheduler."""
        workload = self.workloads[job]
        count = self._units_of(workload) if job < self._given else 1
        return [workload.name] if count == 1 else [pod_name(workload, pod) for pod in range(count)]

    def _wake(self, time_s: float) -> None:
        if time_s < math.inf:
            self._queue.schedule(time_s, payload_of(WAKE, 0, 0), 1)

    def _expect_all(self, index: int, now_s: float) -> None:
        """A one-by-one gang must have all its pods some time after its first."""
        if self.options.ready_timeout_s is not None and self._placed[index] == 1:
            self._timeouts[index] = self._timeouts.get(index, 0) + 1
            due_s = now_s + self.options.ready_timeout_s
            self._queue.schedule(due_s, payload_of(TIMEOUT, index, self._timeouts[index]), 1)

    def _place(self, decision: Place, now_s: float) -> None:
        index, pod = self._units[decision.workload]
        self._hold(decision.workload, decision.pods, now_s)
        if pod != WHOLE:
            self._placed[index] = self._placed.get(index, 0) + 1
            if self._placed[index] < self.workloads[index].pods:
                self._expect_all(index, now_s)
                return
        self._since[self.workloads[index].name] = now_s
        pods = decision.pods if pod == WHOLE else self._all_pods(index)
        self._begin(index, now_s, pods, since_s=now_s, backfilled=decision.backfilled)

    def _all_pods(self, index: int) -> tuple[PodPlacement, ...]:
        """Where the pods of a one-by-one gang stand; nothing if one of them is being stopped in this very cycle."""
        running, names = self.scheduler.running, self._names(index)
        if any(name not in running for name in names):
            return ()
        return tuple(place for name in names for place in self.scheduler.cluster.places(running[name].rows))

    def _hold(self, name: str, pods: tuple[PodPlacement, ...], now_s: float) -> None:
        """A gang or pod of that name holds its places from now on."""
        index, pod = self._units[name]
        self._held[name] = len(self.holdings)
        places = pods if self.options.keep_places or self.scheduler.config.stop_s else ()
        self.holdings.append(Holding(index, pod, _milli(pods), now_s, places=places))
        protected_s = self.scheduler.config.min_runtime_s
        if (queue := self.scheduler.queues.get(self.workloads[index].queue)) is not None:
            protected_s = max(protected_s, queue.min_runtime_s)
        if protected_s:
            self._wake(now_s + protected_s)

    def _begin(
        self, index: int, now_s: float, pods: tuple[PodPlacement, ...], *, since_s: float, backfilled: bool
    ) -> None:
        milli = _milli(pods) if pods else self.workloads[index].gpu_milli
        gone = (self._leaving.get((pod.node, device), now_s) for pod in pods for device in pod.devices)
        delay_s = max(gone, default=now_s) - now_s if self._leaving else 0.0
        spell = self.lives.begin(
            index, now_s, pods, milli, since_s=since_s, delay_s=max(0.0, delay_s), backfilled=backfilled
        )
        number = self.stories[index].starts
        if number == 1:
            idle_after_s = self.scheduler.config.idle_after_s
            for from_s, gpus in self.options.busy.get(self.workloads[index].name, ()):
                if not gpus:
                    self._wake(now_s + from_s + idle_after_s)
        if spell.until_s < math.inf:
            self._queue.schedule(spell.until_s, payload_of(END, index, number), 0)
        fails_s = now_s + self.failures.fails_after_s(index, spell.nodes, milli / 1000)
        if self.failures.black_holes:
            for pod in pods:
                hole = self.failures.black_holes.get(self.scheduler.cluster.position[pod.node])
                if hole is not None and now_s >= hole.from_s:
                    fails_s = min(fails_s, now_s + hole.after_s)
        if fails_s < spell.until_s:
            self._queue.schedule(fails_s, payload_of(FAIL, index, number), 0)

    def _halt(self, index: int, now_s: float, *, keep_all: bool, failed: bool = False) -> None:
        spell = self.lives.halt(index, now_s, keep_all=keep_all)
        gpus = spell.size * self.workloads[index].gpu_milli / 1000
        self.failures.ran(index, spell.nodes, gpus, now_s - spell.start_s, failed=failed)

    def _evict(self, decision: Evict, now_s: float) -> None:
        name = decision.workload
        index, pod = self._units[name]
        if decision.why == "failure":
            self.stories[index].node_losses += 1
        else:
            self.stories[index].evictions += 1
        if index in self.lives:
            self._halt(index, now_s, keep_all=False)
        if decision.why != "failure" and (stop_s := self.scheduler.config.stop_s):
            for each in self.holdings[self._held[name]].places:
                self._leaving.update({(each.node, device): now_s + stop_s for device in each.devices})
        self._let_go(name, now_s)
        if pod != WHOLE:
            self._placed[index] -= 1

    def _go_on(self, decision: Migrate | Resize, now_s: float) -> None:
        """A gang goes on elsewhere or at another size; of a one-by-one gang that has not begun, only a pod does."""
        name = decision.workload
        index, pod = self._units[name]
        story, lost_s = self.stories[index], self.stories[index].lost_s
        failure, moved = decision.why == "failure", isinstance(decision, Migrate)
        story.node_losses += failure
        story.resizes += not moved
        story.moves += moved and not failure
        begun = self.lives.spell_of(index)
        since_s = self._since.get(self.workloads[index].name, now_s)
        if begun:
            self._halt(index, now_s, keep_all=not moved and not failure)
        self._let_go(name, now_s)
        self._hold(name, decision.pods, now_s)
        if begun:
            pods = decision.pods if pod == WHOLE else self._all_pods(index)
            self._begin(index, now_s, pods, since_s=since_s, backfilled=False)
            if moved and not failure:
                story.move_s += story.lost_s - lost_s + self.spells[-1].restart_s * self.spells[-1].size

    def _let_go(self, name: str, now_s: float) -> None:
        self.holdings[self._held.pop(name)].end_s = now_s

    # -- the start ----------------------------------------------------------------------------------------------------

    def _adopt(self, index: int, run: Running, taken_s: float) -> None:
        """Work that runs at the start; its earlier life is not known, so it is on its first start."""
        name = run.workload.name
        self._units[name] = index, WHOLE
        self._since[name] = run.started_s
        self._held[name] = len(self.holdings)
        places = run.pods if self.options.keep_places else ()
        self.holdings.append(Holding(index, WHOLE, _milli(run.pods), run.started_s, places=places))
        spell = self.lives.adopt(index, run.started_s, run.checkpointed_s, taken_s, run.leaving_s)
        if spell.until_s < math.inf:
            self._queue.schedule(max(spell.until_s, taken_s), payload_of(END, index, 1), 0)


def payload_of(kind: int, index: int, number: int) -> int:
    """An event in one number: its kind, the job, and a number that tells its events apart."""
    return (index << POD_BITS | number) << 3 | kind


def _milli(pods: Sequence[PodPlacement]) -> int:
    return sum(len(pod.devices) * pod.gpu_milli for pod in pods)


def pod_name(workload: Workload, pod: int) -> str:
    """What a pod of a one-by-one gang is called."""
    return f"{workload.name}/{pod:0{len(str(workload.pods - 1))}d}"
