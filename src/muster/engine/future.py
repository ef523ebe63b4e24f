"""What is free on each node from now on, if running work ends when it should: where slots for waiting gangs are found.

It is kept from cycle to cycle and follows what starts and ends; what it says of the present is compared with the
nodes each time, and where that does not agree (a node was changed) it is built anew.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.engine.cluster import Cluster, GangKind, Hold
from muster.engine.kernels import future as kernels
from muster.engine.kernels.future import Points
from muster.engine.kernels.gang import release_pods
from muster.engine.pending import Gang
from muster.engine.predict import surely_s
from muster.engine.running import RunningGang, RunningSet
from muster.engine.timeline import Slot
from muster.kernels import ON_NODE, Floats, Ints, direct
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.reasons import Reason

_begin, _agrees, _book = direct(kernels.begin), direct(kernels.agrees), direct(kernels.book)
_rooms_at, _kept_free = direct(kernels.rooms_at), direct(kernels.kept_free)
_count_unused, _take, _release = direct(kernels.count_unused), direct(kernels.take_pods), direct(release_pods)


class Kept(NamedTuple):
    """Nodes that are kept for others from one time to another: an advance reservation."""

    start_s: float
    end_s: float
    hold: Hold


class _Booked:
    """A running gang as it is booked: its columns in the table of pods, and when it should end."""

    __slots__ = ("end_s", "number", "rows", "run", "start")

    def __init__(self, run: RunningGang, rows: Ints, end_s: float, number: int, start: int) -> None:
        self.run = run
        self.rows = rows
        self.end_s = end_s
        self.number = number
        self.start = start

    def copy(self) -> _Booked:
        """The same, of another future."""
        return _Booked(self.run, self.rows, self.end_s, self.number, self.start)

    def columns(self) -> Ints:
        """Its columns in the table."""
        return np.arange(self.start, self.start + self.rows.shape[1], dtype=np.int64)


class Future:
    """Finds the earliest start of gangs that wait, beside running work and the slots of others."""

    def __init__(self, cluster: Cluster, running: RunningSet, now_s: float) -> None:
        self._cluster = cluster
        self._running = running
        self._width = ON_NODE + cluster.state.nodes.gpu_free.shape[1]
        self._low = np.zeros(self._width, np.int64)
        self._build(now_s)

    def copy(self, cluster: Cluster, running: RunningSet) -> Future:
        """The same future of copies of the cluster and of what runs, which goes its own way from now on."""
        twin = object.__new__(Future)
        twin.__dict__.update(self.__dict__)
        twin._cluster, twin._running = cluster, running
        twin._points = Points._make(array.copy() for array in self._points)
        twin._pods, twin._pod_ends, twin._slots_on = self._pods.copy(), self._pod_ends.copy(), self._slots_on.copy()
        twin._ends, twin._due, twin._slots = list(self._ends), list(self._due), dict(self._slots)
        twin._booked = {name: booked.copy() for name, booked in self._booked.items()}
        # what has left is asked for by nobody
        twin._owners = [twin._booked.get(each.run.workload.name, each) for each in self._owners]
        running.journal = None if self._running.journal is None else list(self._running.journal)
        return twin

    def earliest(
        self, gang: Gang, flavor: str, now_s: float, others: Sequence[Slot], until_s: float = math.inf,
        kept: Sequence[Kept] = (),
    ) -> Slot | None:  # fmt: skip
        """The earliest start of a gang, up to a time, that delays none of ``others`` and leaves alone what is ``kept``.

        None if there is none.

        Ideally it is tried at each time at which something ends, with that released and what others will need held.
        Counting the room at all times at once tells at which of them it is worth to try.
        """
        self._follow(now_s)
        self._keep(others, now_s)
        kind, expected_s = gang.kind.least, self._running.expected_s(gang.workload)
        # beside sure slots it counts for as long as it may run; then so it does beside the others
        lasts_s = max(expected_s, surely_s(gang.workload)) if any(slot.sure for slot in others) else expected_s
        limit_s = gang.workload.time_limit_s
        surely = expected_s if limit_s is None else limit_s  # nothing runs into the time for which nodes are kept

        def placed_at(start_s: float) -> Ints | None:
            holds = [each.hold for each in kept if each.start_s < start_s + surely and start_s < each.end_s]
            return self._placed(kind, flavor, lasts_s, start_s, holds)

        starts = self._possible(kind, flavor, lasts_s, self._times(now_s, until_s, kept))
        if not (self._slots or kept) and len(starts) > 8 and placed_at(starts[0]) is None:
            # with more room nothing fails that did not before
            first = bisect_left(starts, True, lo=1, key=lambda start_s: placed_at(start_s) is not None)
            starts = starts[first : first + 1]
        for start_s in starts:
            placed = placed_at(start_s)
            if placed is not None:
                return self._slot(gang, flavor, start_s, expected_s, placed)
        return None

    def ends_s(self, run: RunningGang) -> float:
        """When running work is taken to end; what outlived its time is given a new one when that has passed, too."""
        return self._booked[run.workload.name].end_s

    # -- following what happens ---------------------------------------------------------------------------------------

    def _build(self, now_s: float) -> None:
        """Everything anew from what runs."""
        runs = list(self._running)
        pods = sum(run.rows.shape[1] for run in runs)
        nodes = len(self._cluster.state.node_list)
        size = nodes + 4 * pods + 1024
        self._points = Points(
            np.zeros(nodes, np.int64), np.zeros(size, np.int64), np.zeros(1, np.int64), np.zeros(size),
            np.zeros((size, self._width), np.int64),
        )  # fmt: skip
        _begin(now_s, self._points, self._cluster.state.nodes)
        self._unused = size - nodes
        self._booked: dict[str, _Booked] = {}
        self._owners: list[_Booked] = []
        self._pods = np.zeros((4, max(256, 2 * pods)), np.int64)
        self._pod_ends = np.zeros(self._pods.shape[1])
        self._used = self._dead = 0
        self._ends: list[float] = []
        self._due: list[tuple[float, str]] = []
        self._slots: dict[Slot, None] = {}
        self._slots_on = np.zeros(nodes, np.int64)
        for run in runs:
            booked = self._enter(run, run.rows, now_s)
            self._move(booked.rows, -1, booked.end_s, math.inf, now_s)
        self._running.journal = []

    def _follow(self, now_s: float) -> None:
        journal = self._running.journal
        if journal is None:
            self._build(now_s)
            return
        for run, rows in journal:
            if rows is None:
                self._leave(run.workload.name, now_s)
            else:
                booked = self._enter(run, rows, now_s)
                self._move(rows, 1, now_s, booked.end_s, now_s)
        journal.clear()
        while self._due and self._due[0][0] <= now_s:
            end_s, name = heapq.heappop(self._due)
            booked = self._booked.get(name)
            if booked is not None and booked.end_s == end_s:  # it outlived its time
                del self._ends[bisect_left(self._ends, end_s)]
                self._expect(booked, self._running.ends_s(booked.run, now_s))
                self._move(booked.rows, 1, now_s, booked.end_s, now_s)
        if not _agrees(now_s, self._points, self._cluster.state.nodes):
            self._build(now_s)

    def _enter(self, run: RunningGang, rows: Ints, now_s: float) -> _Booked:
        count = rows.shape[1]
        if self._used + count > self._pods.shape[1]:
            self._make_room(count)
        booked = _Booked(run, rows, 0.0, len(self._owners), self._used)
        self._owners.append(booked)
        self._booked[run.workload.name] = booked
        self._pods[:3, self._used : self._used + count] = rows
        self._pods[3, self._used : self._used + count] = booked.number
        self._used += count
        self._expect(booked, self._running.ends_s(run, now_s))
        return booked

    def _expect(self, booked: _Booked, end_s: float) -> None:
        booked.end_s = end_s
        self._pod_ends[booked.start : booked.start + booked.rows.shape[1]] = end_s
        insort(self._ends, end_s)
        heapq.heappush(self._due, (end_s, booked.run.workload.name))

    def _leave(self, name: str, now_s: float) -> None:
        booked = self._booked.pop(name)
        count = booked.rows.shape[1]
        self._pod_ends[booked.start : booked.start + count] = math.inf
        self._dead += count
        del self._ends[bisect_left(self._ends, booked.end_s)]
        self._move(booked.rows, -1, now_s, booked.end_s, now_s)

    def _make_room(self, count: int) -> None:
        """The table of pods without those that are gone, with room for more."""
        live = sorted(self._booked.values(), key=lambda each: each.number)
        kept = np.concatenate([np.zeros(0, np.int64), *(each.columns() for each in live)])
        size = max(256, 2 * (len(kept) + count))
        pods, ends = np.zeros((4, size), np.int64), np.zeros(size)
        pods[:, : len(kept)], ends[: len(kept)] = self._pods[:, kept], self._pod_ends[kept]
        at = 0
        for number, each in enumerate(live):
            each.number, each.start = number, at
            at += each.rows.shape[1]
            pods[3, each.start : at] = number
        self._pods, self._pod_ends, self._owners = pods, ends, live
        self._used, self._dead = len(kept), 0

    def _keep(self, others: Sequence[Slot], now_s: float) -> None:
        """Book the slots of others, and no more than these."""
        wanted = set(others)
        for slot in [slot for slot in self._slots if slot not in wanted]:
            self._move(slot.rows, -1, slot.start_s, slot.end_s, now_s, whole=slot.whole)
            del self._ends[bisect_left(self._ends, slot.end_s)]
            del self._slots[slot]
            self._slots_on[slot.nodes] -= 1
        for slot in others:
            if slot not in self._slots:
                self._move(slot.rows, 1, slot.start_s, slot.end_s, now_s, whole=slot.whole)
                insort(self._ends, slot.end_s)
                self._slots[slot] = None
                self._slots_on[slot.nodes] += 1

    def _move(self, rows: Ints, sign: int, from_s: float, to_s: float, now_s: float, *, whole: bool = False) -> None:
        """Take (1) or give back (-1) what pods use in a time, or the ``whole`` of the devices."""
        need = 2 * rows.shape[1]
        if self._unused < need:
            self._unused = _count_unused(self._points)
            if self._unused < max(need, len(self._points.after) // 8):
                self._grow(need)
        self._unused -= need
        least_milli = WHOLE_GPU_MILLI if whole else 0
        _book(rows, sign, from_s, to_s, now_s, least_milli, self._points, self._cluster.state.shapes)

    def _grow(self, need: int) -> None:
        old, more = self._points, len(self._points.after) + need
        size = len(old.after)
        after = np.concatenate([old.after, np.arange(size + 1, size + more + 1)])
        after[-1] = old.free[0]
        self._points = Points(
            old.first, after, np.array([size], np.int64), np.concatenate([old.time, np.zeros(more)]),
            np.concatenate([old.amount, np.zeros((more, self._width), np.int64)]),
        )  # fmt: skip
        self._unused += more

    # -- looking ahead ------------------------------------------------------------------------------------------------

    def _times(self, now_s: float, until_s: float, kept: Sequence[Kept]) -> Floats:
        """Now, and each later time at which something ends, up to a time."""
        start, end = bisect_right(self._ends, now_s), bisect_right(self._ends, until_s)
        ends = self._ends[start:end]
        if more := [each.end_s for each in kept if now_s < each.end_s <= until_s]:
            ends = sorted([*ends, *more])
        return np.array([now_s, *ends])

    def _possible(self, kind: GangKind, flavor: str, lasts_s: float, times: Floats) -> list[float]:
        """Those the times at which there is room for all pods, as far as that can be counted."""
        state = self._cluster.state
        enough = np.ones(len(times), np.bool_)
        rooms = np.zeros(len(times) + 1, np.int64)
        for shape, count in self._cluster.pods_of(kind, flavor).T.tolist():
            _rooms_at(shape, count, lasts_s, times, self._points, state.nodes, state.shapes, self._low, rooms)
            enough &= rooms[:-1] >= count
        return times[enough].tolist()

    def _placed(
        self, kind: GangKind, flavor: str, lasts_s: float, start_s: float, holds: Sequence[Hold]
    ) -> Ints | None:
        """The gang's places if it starts at a time, with what has ended by then released; None if it does not fit."""
        cluster, state = self._cluster, self._cluster.state
        ended = np.ascontiguousarray(self._pods[:3, : self._used][:, self._pod_ends[: self._used] <= start_s])
        _release(ended, state.nodes, state.shapes)
        try:
            rows = np.flatnonzero(self._slots_on)
            held = np.zeros((len(rows), self._width), np.int64)
            _kept_free(rows, start_s, start_s + lasts_s, self._points, state.nodes, held)
            with cluster.holding_all([Hold(rows, held), *holds]):
                placed = cluster.place(kind, flavor)
                if isinstance(placed, Reason):
                    return None
                cluster.give_back(placed)
                return placed
        finally:
            _take(ended, state.nodes, state.shapes)

    def _slot(self, gang: Gang, flavor: str, start_s: float, lasts_s: float, placed: Ints) -> Slot:
        found = Slot(gang, flavor, start_s, lasts_s, placed, self._cluster)
        there = np.zeros(len(self._cluster.state.node_list), np.bool_)
        there[found.nodes] = True
        pods = self._pods[:, : self._used]
        owners: list[int] = pods[3, there[pods[0]] & (self._pod_ends[: self._used] <= start_s)].tolist()
        for number in dict.fromkeys(owners):
            found.build_on(self._owners[number].run, self._cluster)
        before = (slot for slot in self._slots if slot.end_s <= start_s and found.shares_nodes(slot))
        found.sure &= all(slot.sure and slot.limited for slot in before)
        return found
