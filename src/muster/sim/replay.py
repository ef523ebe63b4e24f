"""Replay of recorded submissions on a simulated fleet, first come first served: the head of the queue blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.kernels import Floats
from muster.model.fleet import WHOLE_GPU_MILLI, Fleet
from muster.model.workload import PodSet, Workload
from muster.sim.events import Events

MOST_SAMPLES = 500
"""Most points of the time series."""


class ReplayResult(Struct, frozen=True):
    """What a replay did; ``start_s`` is NaN for jobs that did not start, in the order of the given workloads."""

    arrived: int
    started: int
    finished: int
    rejected: tuple[tuple[str, str], ...]
    wait_mean_s: float
    wait_p50_s: float
    wait_p90_s: float
    wait_p99_s: float
    wait_max_s: float
    makespan_s: float
    gpu_utilisation: float
    cpu_utilisation: float
    series: tuple[tuple[float, int, int], ...]
    start_s: Floats


class Replay:
    """A replay that can be run in parts, copied and pickled; departures go before arrivals at equal times."""

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
        self.running: dict[int, tuple[Allocation, ...]] = {}
        self.start_s = np.full(len(self.workloads), np.nan)
        self.events = Events(self._handle)
        self._empty_state = FleetState(fleet)
        self._empty = placer_factory(self._empty_state)
        self._fits: dict[tuple[PodSet, ...], bool] = {}
        self._pods: dict[tuple[PodSet, ...], tuple[tuple[int, int], ...]] = {}
        self._waiting: deque[int] = deque()
        self._blocked = False
        self._check_every = check_every
        self._handled = self._arrived = self._finished = 0
        self._rejected: list[tuple[str, str]] = []
        self._gpu = self._cpu = 0
        self._gpu_area = self._cpu_area = 0.0
        self._series: list[tuple[float, int, int]] = []
        self._stride = 1
        self._order = sorted(range(len(self.workloads)), key=lambda i: (self.workloads[i].submitted_s, i))
        self._first_s = self._last_s = self.workloads[self._order[0]].submitted_s if self._order else 0.0
        for index in self._order:
            self.events.schedule(self.workloads[index].submitted_s, index, 1)

    def run(self, until: float | None = None) -> ReplayResult:
        """Run up to and including ``until`` (to the end if None), and give the result so far."""
        self.events.run(until)
        return self.result()

    def _handle(self, time_s: float, payload: int) -> None:
        self._gpu_area += self._gpu * (time_s - self._last_s)
        self._cpu_area += self._cpu * (time_s - self._last_s)
        self._last_s = time_s
        if payload >= 0:
            self._arrive(payload)
        else:
            self._depart(-1 - payload)
        # departures at one instant are all seen before the head is tried
        if payload >= 0 or self.events.peek() != time_s:
            self._start(time_s)
        self._handled += 1
        if self._handled % self._stride == 0:
            self._series.append((time_s, self._gpu, len(self._waiting)))
            if len(self._series) > MOST_SAMPLES:
                self._series = self._series[1::2]
                self._stride *= 2
        if self._check_every and self._handled % self._check_every == 0:
            self.state.validate(one for several in self.running.values() for one in several)

    def _arrive(self, index: int) -> None:
        self._arrived += 1
        job = self.workloads[index]
        if self._can_ever_fit(job):
            self._waiting.append(index)
        else:
            self._rejected.append((job.name, "does not fit on the empty fleet"))

    def _depart(self, index: int) -> None:
        for allocation in self.running.pop(index):
            self.state.release(allocation)
        self._gpu -= self.workloads[index].gpu_milli
        self._cpu -= self.workloads[index].cpu_milli
        self._finished += 1
        self._blocked = False

    def _start(self, time_s: float) -> None:
        while self._waiting and not self._blocked:
            index = self._waiting[0]
            job = self.workloads[index]
            placed = self.placer.place_gang(self._pods[job.pod_sets])
            if not placed:
                self._blocked = True
                return
            self._waiting.popleft()
            self.running[index] = placed
            self.start_s[index] = time_s
            self._gpu += job.gpu_milli
            self._cpu += job.cpu_milli
            if job.duration_s is not None:
                self.events.schedule(time_s + job.duration_s, -1 - index)

    def _can_ever_fit(self, job: Workload) -> bool:
        known = self._fits.get(job.pod_sets)
        if known is None:
            state = self._empty_state
            with state.trial():
                pods = tuple((state.shape_id(each.shape), each.count) for each in job.pod_sets)
                known = bool(self._empty.place_gang(pods))
            self._fits[job.pod_sets] = known
            self._pods[job.pod_sets] = tuple((self.state.shape_id(each.shape), each.count) for each in job.pod_sets)
        return known

    def result(self) -> ReplayResult:
        """The result so far."""
        begun = np.flatnonzero(~np.isnan(self.start_s))
        submitted = np.array([job.submitted_s for job in self.workloads], np.float64)
        waits = (self.start_s - submitted)[begun] if len(begun) else np.zeros(1)
        p50, p90, p99 = (float(np.percentile(waits, part)) for part in (50, 90, 99))
        span = self._last_s - self._first_s
        gpus = int(self.state.nodes.gpus.sum()) * WHOLE_GPU_MILLI * span
        cpus = int(self.state.nodes.cpu_total.sum()) * span
        return ReplayResult(
            self._arrived, len(begun), self._finished, tuple(self._rejected), float(waits.mean()), p50, p90, p99,
            float(waits.max()), span, self._gpu_area / gpus if gpus else 0.0, self._cpu_area / cpus if cpus else 0.0,
            tuple(self._series), self.start_s.copy(),
        )  # fmt: skip
