"""Means over equal spans of time, in constant memory, of quantities that hold until they change."""

from __future__ import annotations

MOST_BINS = 500
FIRST_WIDTH_S = 2.0**-10
"""Width of the bins at first; a power of two, so that doubled widths are exact."""

Bin = tuple[float, float, tuple[float, ...]]
"""From, to, and the mean of each quantity over this time."""


class TimeBins:
    """At most MOST_BINS bins of equal width from ``start_s`` on; where time goes beyond, pairs of bins become one.

    What is kept in a bin is the area under each quantity, so merging loses nothing but resolution, and the means over
    all bins together are the exact ones.
    """

    def __init__(self, start_s: float, quantities: int) -> None:
        self.start_s = self.end_s = start_s
        self.width_s = FIRST_WIDTH_S
        self._areas = [[0.0] * MOST_BINS for _ in range(quantities)]

    def hold(self, until_s: float, values: tuple[float, ...]) -> None:
        """The quantities had these values from the last call's time to ``until_s``, which is not earlier."""
        while until_s - self.start_s > self.width_s * MOST_BINS:
            self._merge()
        width_s, at = self.width_s, self.end_s - self.start_s
        end = until_s - self.start_s
        while at < end:
            index = min(MOST_BINS - 1, int(at / width_s))
            upto = end if index == MOST_BINS - 1 else min(end, (index + 1) * width_s)
            for areas, value in zip(self._areas, values, strict=True):
                areas[index] += value * (upto - at)
            at = upto
        self.end_s = until_s

    def means(self) -> tuple[Bin, ...]:
        """The bins up to the last call's time; the last one ends there."""
        found: list[Bin] = []
        span = self.end_s - self.start_s
        for index in range(MOST_BINS):
            start = index * self.width_s
            if start >= span:
                break
            end = min(span, start + self.width_s)
            means = tuple(areas[index] / (end - start) for areas in self._areas)
            found.append((self.start_s + start, self.start_s + end, means))
        return tuple(found)

    def _merge(self) -> None:
        half = [0.0] * (MOST_BINS // 2)
        self._areas = [
            [first + second for first, second in zip(areas[::2], areas[1::2], strict=True)] + half
            for areas in self._areas
        ]
        self.width_s *= 2
