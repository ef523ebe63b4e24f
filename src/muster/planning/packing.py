"""How few bins hold all items, exactly where the search ends in time: the search that planners share.

Items come in a few kinds with counts. Whoever asks says what one bin may hold: `Fills` yields the ways to fill a bin
out of what is left, each with at least one item of the first kind that is left; ways that another one contains may be
left out. Then

    n bins suffice  <=>  some way to fill one bin leaves a rest for which n - 1 suffice

is tried with n from the lower bound up; a rest that failed with as many bins is not tried again. First the greedy
answer is looked at: where it meets the lower bound, nothing is left to search.

Source: Gilmore and Gomory, Operations Research 1961 (patterns); the search is depth first with memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

Counts = tuple[int, ...]
"""How many of each kind of item."""

Fills = Callable[[Counts], Iterable[Counts]]
"""The ways to fill one bin from what is left, fullest first; may raise `TooLong` after the first."""

MOST_STATES = 2000
"""Rests that a search looks at before it stops and tells bounds instead."""


class TooLong(Exception):
    """The search would take too long; bounds are told instead of the optimum."""


class Packing(Struct, frozen=True):
    """Bins and what they hold.

    Attributes:
        fills: ``(how many of each kind, bins filled so)``, in order of first use.
        at_least: no packing has fewer bins; equal to `bins` where the answer is exact.
    """

    fills: tuple[tuple[Counts, int], ...]
    at_least: int

    @property
    def bins(self) -> int:
        """Bins that are used."""
        return sum(times for _, times in self.fills)

    @property
    def exact(self) -> bool:
        """Whether no packing has fewer bins."""
        return self.bins == self.at_least

    def __str__(self) -> str:
        return f"{self.bins}" if self.exact else f"{self.bins} (no fewer than {self.at_least})"


def pack(counts: Counts, fills: Fills, lower_bound: Callable[[Counts], int]) -> Packing:
    """The fewest bins for all items; see the module's text.

    Args:
        counts: items of each kind.
        fills: ways to fill one bin; must yield one wherever an item is left.
        lower_bound: of the bins that a rest needs; any true bound will do, 0 for an empty rest.
    """
    greedy: list[Counts] = []
    rest = counts
    while any(rest):
        fill = next(iter(fills(rest)))
        while all(have >= take for have, take in zip(rest, fill, strict=True)) and any(rest):
            greedy.append(fill)
            rest = _less(rest, fill)
    least = lower_bound(counts)
    found = greedy
    states = [0]
    while least < len(found):
        failed: dict[Counts, int] = {}
        try:
            better = _search(counts, least, fills, lower_bound, failed, states)
        except TooLong:
            break
        if better is not None:
            found = better
            break
        least += 1
    return Packing(tuple(Counter(found).items()), least)


def _less(rest: Counts, fill: Counts) -> Counts:
    return tuple(have - take for have, take in zip(rest, fill, strict=True))


def _search(
    counts: Counts, bins: int, fills: Fills, lower_bound: Callable[[Counts], int], failed: dict[Counts, int],
    states: list[int],
) -> list[Counts] | None:  # fmt: skip
    """A packing into ``bins`` or None; depth first with a stack of its own, as there may be a thousand bins."""
    path: list[Counts] = []
    stack = [(counts, iter(fills(counts)) if any(counts) else iter(()))]
    if not any(counts):
        return path
    while stack:
        rest, ways = stack[-1]
        fill = next(ways, None)
        if fill is None:
            failed[rest] = max(failed.get(rest, 0), bins - len(path))
            stack.pop()
            if path:
                path.pop()
            continue
        left = _less(rest, fill)
        if not any(left):
            return [*path, fill]
        room = bins - len(path) - 1
        if lower_bound(left) > room or failed.get(left, -1) >= room:
            continue
        states[0] += 1
        if states[0] > MOST_STATES:
            raise TooLong
        path.append(fill)
        stack.append((left, iter(fills(left))))
    return None
