"""A small event kernel: a heap of plain data, copyable and picklable in the middle of a run."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence


class Events:
    """Events in the order of (time, priority, sequence of scheduling); ``handler(time_s, payload)`` gets each.

    Events that are known from the start (`feed`) are kept as two sorted lists beside the heap, which then holds only
    what is scheduled meanwhile; at equal times and priorities they go first.
    """

    def __init__(self, handler: Callable[[float, int], None]) -> None:
        self.handler = handler
        self.now_s = -math.inf
        self._heap: list[tuple[float, int, int, int]] = []
        self._sequence = 0
        self._feed_times: list[float] = []
        self._feed_payloads: list[int] = []
        self._feed_priority = 0
        self._fed = 0

    def feed(self, times_s: Sequence[float], payloads: Sequence[int], priority: int = 0) -> None:
        """Add events whose times never fall; raises ValueError if they do, or if an earlier feed is not used up."""
        if self._fed < len(self._feed_times):
            raise ValueError("the events fed before are not all handled")
        times = list(times_s)
        last = self.now_s
        for time_s in times:
            if not time_s >= last:
                raise ValueError(f"cannot feed {time_s} after {last}")
            last = time_s
        self._feed_times, self._feed_payloads = times, list(payloads)
        self._feed_priority, self._fed = priority, 0

    def schedule(self, time_s: float, payload: int, priority: int = 0) -> None:
        """Add an event; lower ``priority`` goes first at equal times. Raises ValueError for the past and for NaN."""
        if not time_s >= self.now_s:
            raise ValueError(f"cannot schedule at {time_s}: it is {self.now_s}")
        heapq.heappush(self._heap, (time_s, priority, self._sequence, payload))
        self._sequence += 1

    def peek(self) -> float | None:
        """Time of the next event; None if there is none."""
        if self._fed < len(self._feed_times):
            fed_s = self._feed_times[self._fed]
            return min(fed_s, self._heap[0][0]) if self._heap else fed_s
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Handle the next event; False if there was none."""
        heap = self._heap
        if self._fed < len(self._feed_times):
            time_s = self._feed_times[self._fed]
            if not heap or (time_s, self._feed_priority) <= heap[0][:2]:
                payload = self._feed_payloads[self._fed]
                self._fed += 1
                self.now_s = time_s
                self.handler(time_s, payload)
                return True
        elif not heap:
            return False
        time_s, _, _, payload = heapq.heappop(heap)
        self.now_s = time_s
        self.handler(time_s, payload)
        return True

    def run(self, until: float | None = None) -> None:
        """Handle events up to and including ``until``; all if None."""
        if until is None:
            while self.step():
                pass
            return
        while (next_s := self.peek()) is not None and next_s <= until:
            self.step()
