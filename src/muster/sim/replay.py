"""Replay of recorded submissions on a simulated fleet, first come first served: the head of the queue blocks."""

from __future__ import annotations

# numpy's stubs tell arrays from scalars only in part.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from muster.engine.kernels import gang
from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.errors import InputError
from muster.kernels import Floats, Ints, direct
from muster.model.fleet import WHOLE_GPU_MILLI, Fleet
from muster.model.reasons import Reason
from muster.model.workload import PodSet, PodShape, Workload
from muster.sim.events import Events
from muster.sim.time_bins import TimeBins

SLOWDOWN_LEAST_S = 10.0
"""Run times below this count as this much in the bounded slowdown (Feitelson's usual bound)."""

GANG_SIZE = "gang_size"
"""Why a job is rejected whose pods fit one by one, but not all at once."""

place_gang, release_pods = direct(gang.place_gang), direct(gang.release_pods)


class Rejection(Struct, frozen=True):
    """Why jobs can never start on this fleet: one cause, how many jobs, and the first of them explained.

    ``reason`` is the name of a `Reason` in small letters, or GANG_SIZE.
    """

    reason: str
    jobs: int
    example: str
    text: str


class ReplayFigures(Struct, frozen=True, kw_only=True):
    """What a replay did, in figures; counts are jobs but for ``pods``, which were placed.

    ``series`` is (from, to, milli GPU in use, jobs waiting, milli CPU in use): means over at most `time_bins.MOST_BINS`
    equal spans of time from the first submission to the last event. Waits are those of jobs that started, from
    submission to start. ``slowdown_mean`` is the bounded slowdown
    max(1, (wait + run) / max(run, SLOWDOWN_LEAST_S)) of started jobs whose duration is known; 0 if there are none.
    Utilisations are shares of all healthy GPUs and all CPU from the first submission to the last event.
    ``rejections`` tells why jobs can never start, most jobs first.
    """

    arrived: int
    started: int
    finished: int
    pods: int
    rejections: tuple[Rejection, ...]
    wait_mean_s: float
    wait_p50_s: float
    wait_p90_s: float
    wait_p99_s: float
    wait_max_s: float
    slowdown_mean: float
    makespan_s: float
    gpu_utilisation: float
    cpu_utilisation: float
    series: tuple[tuple[float, float, float, float, float], ...]


class ReplayResult(ReplayFigures, frozen=True, kw_only=True):
    """The figures, and what became of each job.

    ``start_s`` and ``finish_s`` are in the order of the given workloads, NaN for jobs that did not start or finish.
    ``rejected`` names each job that can never start, and why. ``gpu_most_milli`` and ``cpu_most_milli`` are the most
    that was in use at one time.
    """

    rejected: tuple[tuple[str, str], ...]
    gpu_most_milli: int
    cpu_most_milli: int
    start_s: Floats
    finish_s: Floats


class _Kind:
    """All jobs that ask for the same: their pods by shape, and whether the empty fleet takes them (once looked)."""

    def __init__(self, pod_sets: tuple[PodSet, ...], state: FleetState) -> None:
        rows = [(state.shape_id(each.shape), each.count) for each in pod_sets if each.count]
        self.pods = np.array(rows, np.int64).reshape(-1, 2).T.copy()
        self.counts = tuple(count for _, count in rows)
        self.shapes = tuple(each.shape for each in pod_sets if each.count)
        self.gpu_milli = sum(each.count * each.shape.gpu_milli_total for each in pod_sets)
        self.cpu_milli = sum(each.count * each.shape.cpu_milli for each in pod_sets)
        self.count = sum(each.count for each in pod_sets)
        self.looked = False
        self.refused: tuple[str, str] | None = None


class Replay:
    """A replay that can be run in parts, copied and pickled; departures go before arrivals at equal times.

    Args:
        fleet: the nodes.
        workloads: in any order; of equal submission times the earlier one in this order goes first.
        placer_factory: makes the placer of a fleet state: of the fleet's, and of an empty one that tells who fits.
        check_every: after so many events the state is held against what runs; 0: never.

    Raises:
        InputError: a submission time or a duration is no number, or a duration is negative.

    Copies share what never changes: the fleet and the workloads. A job without duration, or with an infinite one,
    stays. ``running`` holds for each running job the rows node, shape and device mask, a column a pod.
    """

    def __init__(
        self,
        fleet: Fleet,
        workloads: Sequence[Workload],
        placer_factory: Callable[[FleetState], Placer],
        check_every: int = 0,
    ) -> None:
        self.workloads = tuple(workloads)
        self.state = FleetState(fleet)
        self.placer = placer_factory(self.state)
        self.running: dict[int, Ints] = {}
        self.events = Events(self._handle)
        count = len(self.workloads)
        self.start_s = np.full(count, np.nan)
        self.finish_s = np.full(count, np.nan)
        self._empty_state = FleetState(fleet)
        self._empty = placer_factory(self._empty_state)
        self._submitted = np.array([job.submitted_s for job in self.workloads], np.float64)
        durations = [math.inf if job.duration_s is None else job.duration_s for job in self.workloads]
        self._duration = np.array(durations, np.float64)
        self._check_times()
        self._kinds, self._kind_of = self._sorted_by_kind()
        self._out = np.zeros((3, max([kind.count for kind in self._kinds], default=0)), np.int64)
        nodes = self.state.nodes
        self._gpu_free = self._gpu_total = int(nodes.gpu_free.sum())
        self._cpu_free = self._cpu_total = int(nodes.cpu_free.sum())
        self._waiting: deque[int] = deque()
        self._blocked = False
        self._check_every = check_every
        self._handled = self._arrived = self._finished = self._pods = 0
        self._rejected: list[int] = []
        self._gpu_area = self._cpu_area = 0.0
        self._gpu_most = self._cpu_most = 0
        order = np.argsort(self._submitted, kind="stable")
        times: list[float] = self._submitted[order].tolist()
        self._first_s = self._last_s = times[0] if times else 0.0
        self._bins = TimeBins(self._first_s, 3)
        self.events.feed(times, order.tolist(), 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Replay:
        """A fork; the fleet and the workloads, which never change, are shared."""
        for shared in (self.workloads, self.state.fleet, self.state.node_list, self._empty_state.node_list):
            memo[id(shared)] = shared
        fork = memo[id(self)] = type(self).__new__(type(self))
        fork.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return fork

    def run(self, until: float | None = None) -> ReplayResult:
        """Run up to and including ``until`` (to the end if None), and give the result so far."""
        self.events.run(until)
        return self.result()

    def allocations(self) -> Iterator[Allocation]:
        """What runs now, pod by pod."""
        for pods in self.running.values():
            for node, shape, devices in pods.T.tolist():
                yield Allocation(node, shape, devices)

    def _check_times(self) -> None:
        wrong = np.flatnonzero(~np.isfinite(self._submitted) | ~(self._duration >= 0))
        if len(wrong):
            job = self.workloads[int(wrong[0])]
            times = f"submitted_s is {job.submitted_s}, duration_s {job.duration_s}"
            raise InputError(f"job {job.name}: {times}", field="workload", hint="times are numbers, durations from 0")

    def _sorted_by_kind(self) -> tuple[list[_Kind], list[int]]:
        """The kinds of jobs, and the kind of each job. Readers share equal pod sets, so most are told by identity."""
        kinds: list[_Kind] = []
        by_value: dict[tuple[PodSet, ...], int] = {}
        by_identity: dict[int, int] = {}
        kind_of: list[int] = []
        for job in self.workloads:
            kind = by_identity.get(id(job.pod_sets))
            if kind is None:
                kind = by_value.setdefault(job.pod_sets, len(kinds))
                if kind == len(kinds):
                    kinds.append(_Kind(job.pod_sets, self.state))
                by_identity[id(job.pod_sets)] = kind
            kind_of.append(kind)
        return kinds, kind_of

    def _handle(self, time_s: float, payload: int) -> None:
        passed = time_s - self._last_s
        if passed:
            gpu, cpu = self._gpu_total - self._gpu_free, self._cpu_total - self._cpu_free
            self._gpu_area += gpu * passed
            self._cpu_area += cpu * passed
            self._gpu_most, self._cpu_most = max(self._gpu_most, gpu), max(self._cpu_most, cpu)
            self._bins.hold(time_s, (gpu, len(self._waiting), cpu))
            self._last_s = time_s
        if payload >= 0:
            self._arrived += 1
            kind = self._kinds[self._kind_of[payload]]
            if not kind.looked:
                kind.refused, kind.looked = self._why_never(kind), True
            if kind.refused is None:
                self._waiting.append(payload)
            else:
                self._rejected.append(payload)
        else:
            self._depart(-1 - payload, time_s)
        # departures at one instant are all seen before the head is tried
        if self._waiting and not self._blocked and (payload >= 0 or self.events.peek() != time_s):
            self._start(time_s)
        self._handled += 1
        if self._check_every and self._handled % self._check_every == 0:
            self.state.validate(self.allocations())

    def _depart(self, index: int, time_s: float) -> None:
        release_pods(self.running.pop(index), self.state.nodes, self.state.shapes)
        kind = self._kinds[self._kind_of[index]]
        self._gpu_free += kind.gpu_milli
        self._cpu_free += kind.cpu_milli
        self.finish_s[index] = time_s
        self._finished += 1
        self._blocked = False

    def _start(self, time_s: float) -> None:
        while self._waiting:
            index = self._waiting[0]
            kind = self._kinds[self._kind_of[index]]
            placed = self._place(kind)
            if placed is None:
                self._blocked = True
                return
            self._waiting.popleft()
            self.running[index] = placed
            self.start_s[index] = time_s
            self._gpu_free -= kind.gpu_milli
            self._cpu_free -= kind.cpu_milli
            self._pods += kind.count
            duration_s = self._duration[index]
            if duration_s != math.inf:
                self.events.schedule(time_s + float(duration_s), -1 - index)

    def _place(self, kind: _Kind) -> Ints | None:
        """Place a job's pods, all or none. What is short in all, or for one of its shapes, is seen without trying."""
        if kind.gpu_milli > self._gpu_free or kind.cpu_milli > self._cpu_free:
            return None
        scene = self.placer.scene()
        placed = place_gang(kind.pods, scene, self._out)
        return self._out[:, :placed].copy() if placed == kind.count else None

    def _why_never(self, kind: _Kind) -> tuple[str, str] | None:
        """Reason and text why the empty fleet cannot take such a job; None if it can."""
        state = self._empty_state
        certain = len(kind.shapes) == 1
        pods: list[tuple[int, int]] = []
        for shape, count in zip(kind.shapes, kind.counts, strict=True):
            number = state.shape_id(shape)
            pods.append((number, count))
            room = gang.count_room(number, count, state.nodes, state.shapes)
            if room < count:
                return self._too_large(shape, count) if room else self._unfit(shape, number)
            certain = certain and (shape.gpus <= 1 or shape.gpu_milli == WHOLE_GPU_MILLI)
        if certain or not kind.count:
            return None
        with state.trial():
            if self._empty.place_gang(pods):
                return None
        what = " and ".join(
            f"{count:,} x ({shape.describe()})" for shape, count in zip(kind.shapes, kind.counts, strict=True)
        )
        return GANG_SIZE, f"asks for {what} at once: they do not all fit on the empty fleet"

    def _too_large(self, shape: PodShape, count: int) -> tuple[str, str]:
        state = self._empty_state
        room = gang.count_room(state.shape_id(shape), count, state.nodes, state.shapes)
        asked = f"asks for {count:,} pods of {shape.describe()} at once"
        return GANG_SIZE, f"{asked}: the empty fleet takes {room:,}"

    def _unfit(self, shape: PodShape, number: int) -> tuple[str, str]:
        """No node takes even one pod: the reason of most nodes, with their number."""
        verdict = self._empty.verdict(number)
        reason = verdict.dominant
        if reason is None:
            return "no_node", "asks for a node, and the fleet has none"
        nodes = sum(refusal.nodes for refusal in verdict.refusals if reason in refusal.reasons)
        arrays = self._empty_state.nodes
        largest = {
            Reason.GPU_COUNT: f"; the largest node has {arrays.gpus.max():,} GPUs",
            Reason.CPU_TOTAL: f"; the largest node has {arrays.cpu_total.max() / 1000:g} CPU",
            Reason.MEMORY_TOTAL: f"; the largest node has {arrays.memory_total.max() / 2**30:.3g} GiB",
        }.get(reason, "")
        where = f"{nodes:,} of {verdict.nodes:,} nodes: {reason.text}"
        return reason.name.lower(), f"asks for {shape.describe()} in one pod{largest} ({where})"

    def _rejections(self) -> tuple[Rejection, ...]:
        """Rejected jobs by reason, most jobs first."""
        first: dict[str, int] = {}
        jobs: dict[str, int] = {}
        for index in self._rejected:
            reason, _ = self._refused(index)
            first.setdefault(reason, index)
            jobs[reason] = jobs.get(reason, 0) + 1
        ordered = sorted(jobs, key=lambda reason: (-jobs[reason], first[reason]))
        return tuple(
            Rejection(reason, jobs[reason], self.workloads[first[reason]].name, self._refused(first[reason])[1])
            for reason in ordered
        )

    def _refused(self, index: int) -> tuple[str, str]:
        refused = self._kinds[self._kind_of[index]].refused
        assert refused is not None
        return refused

    def result(self) -> ReplayResult:
        """The result so far."""
        begun = np.flatnonzero(~np.isnan(self.start_s))
        waits = (self.start_s - self._submitted)[begun] if len(begun) else np.zeros(1)
        p50, p90, p99 = (float(np.percentile(waits, part)) for part in (50, 90, 99))
        known = np.isfinite(self._duration[begun])
        runs = self._duration[begun][known]
        slowdowns = np.maximum(1.0, (waits[: len(begun)][known] + runs) / np.maximum(runs, SLOWDOWN_LEAST_S))
        span = self._last_s - self._first_s
        gpus, cpus = self._gpu_total * span, self._cpu_total * span
        return ReplayResult(
            arrived=self._arrived,
            started=len(begun),
            finished=self._finished,
            rejected=tuple((self.workloads[index].name, self._refused(index)[1]) for index in self._rejected),
            rejections=self._rejections(),
            pods=self._pods,
            wait_mean_s=float(waits.mean()),
            wait_p50_s=p50,
            wait_p90_s=p90,
            wait_p99_s=p99,
            wait_max_s=float(waits.max()),
            slowdown_mean=float(slowdowns.mean()) if len(slowdowns) else 0.0,
            makespan_s=span,
            gpu_utilisation=self._gpu_area / gpus if gpus else 0.0,
            cpu_utilisation=self._cpu_area / cpus if cpus else 0.0,
            gpu_most_milli=self._gpu_most,
            cpu_most_milli=self._cpu_most,
            series=tuple((start, end, *_three(means)) for start, end, means in self._bins.means()),
            start_s=self.start_s.copy(),
            finish_s=self.finish_s.copy(),
        )


def _three(means: tuple[float, ...]) -> tuple[float, float, float]:
    gpu, waiting, cpu = means
    return gpu, waiting, cpu
