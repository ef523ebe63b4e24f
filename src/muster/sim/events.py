"""A small event kernel: a heap of plain data, copyable and picklable in the middle of a run."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Events:
    """Events in the order of (time, priority, sequence of scheduling); ``handler(time_s, payload)`` gets each."""

    def __init__(self, handler: Callable[[float, int], None]) -> None:
        self.handler = handler
        self.now_s = 0.0
        self._heap: list[tuple[float, int, int, int]] = []
        self._sequence = 0

    def schedule(self, time_s: float, payload: int, priority: int = 0) -> None:
        """Add an event; lower ``priority`` goes first at equal times."""
        if not time_s >= self.now_s and self._sequence:
            raise ValueError(f"cannot schedule at {time_s}: it is {self.now_s}")
        heapq.heappush(self._heap, (time_s, priority, self._sequence, payload))
        self._sequence += 1

    def peek(self) -> float | None:
        """Time of the next event; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Handle the next event; False if there was none."""
        if not self._heap:
            return False
        time_s, _, _, payload = heapq.heappop(self._heap)
        self.now_s = time_s
        self.handler(time_s, payload)
        return True

    def run(self, until: float | None = None) -> None:
        """Handle events up to and including ``until``; all if None."""
        while self._heap and (until is None or self._heap[0][0] <= until):
            self.step()
