"""What it costs to run two systems beside each other: closed forms.

A fleet of N nodes of G GPUs is one pool, or is split. A pool of n nodes that makes its work wait no longer than the
split fleet shows what the split costs: k = N - n nodes. People and bring-up are what whoever plans says they are.

    cost of the split a year = k G H p + (E2 - E1) c        H = 8,760 hours
    cost of becoming one pool, once = D E1 c / 220          220 working days a year

`stranded` counts GPUs that are free on one side while work waits on the other, from when each job waited and ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

HOURS_A_YEAR = 8760
WORKING_DAYS = 220


class Spell(NamedTuple):
    """A job on one side: GPUs, and since when it waited, ran and had ended, seconds; inf: it did not come to that."""

    side: int
    gpus: float
    submitted_s: float
    started_s: float
    ended_s: float


def stranded(spells: Sequence[Spell], capacity: Sequence[float], from_s: float, until_s: float) -> float:
    """GPUs, in the mean over a window, that are free on one side while work that would use them waits on another.

    At each instant, of two sides a and b: min(free of a, waiting on b) + min(free of b, waiting on a).
    """
    events: list[tuple[float, int, float, float]] = []
    for each in spells:
        events.append((each.submitted_s, each.side, each.gpus, 0.0))
        events.append((min(each.started_s, until_s), each.side, -each.gpus, each.gpus))
        if each.started_s < until_s:
            events.append((min(each.ended_s, until_s), each.side, 0.0, -each.gpus))
    events.sort()
    waiting, busy = [0.0] * len(capacity), [0.0] * len(capacity)
    now, total = from_s, 0.0
    for time_s, side, more_waiting, more_busy in events:
        at = min(max(time_s, from_s), until_s)
        if at > now:
            total += (at - now) * _idle_beside(waiting, busy, capacity)
            now = at
        waiting[side] += more_waiting
        busy[side] += more_busy if time_s < until_s else 0.0
    total += max(0.0, until_s - now) * _idle_beside(waiting, busy, capacity)
    return total / (until_s - from_s)


def _idle_beside(waiting: Sequence[float], busy: Sequence[float], capacity: Sequence[float]) -> float:
    found = 0.0
    for side, room in enumerate(capacity):
        elsewhere = sum(waiting) - waiting[side]
        found += min(max(0.0, room - busy[side]), max(0.0, elsewhere))
    return found


def moves(spells: Sequence[Spell], gpus_per_node: float, from_s: float, until_s: float, side: int = 1) -> float:
    """Nodes a day that would change sides if a side had each day what it needed at that day's peak, in the mean."""
    days = int((until_s - from_s) // 86400)
    peaks: list[int] = []
    for day in range(days):
        low, high = from_s + day * 86400, from_s + (day + 1) * 86400
        events: list[tuple[float, float]] = []
        for each in spells:
            if each.side == side and each.submitted_s < high and each.ended_s > low:
                length = each.ended_s - each.started_s
                begin = max(each.submitted_s, low)
                events += [(begin, each.gpus), (min(high, each.submitted_s + length), -each.gpus)]
        now = peak = 0.0
        for _, change in sorted(events):
            now += change
            peak = max(peak, now)
        peaks.append(round(-(-peak // gpus_per_node)))
    changes = [abs(one - other) for one, other in pairwise(peaks)]
    return sum(changes) / len(changes) if changes else 0.0


def yearly_cost(
    nodes: float, gpus_per_node: float, gpu_hour: float, people_both: float, people_one: float, person_year: float
) -> float:
    """What the split costs a year: its nodes at the price of a GPU-hour, and the people for the second system."""
    return nodes * gpus_per_node * HOURS_A_YEAR * gpu_hour + (people_both - people_one) * person_year


def bring_up_cost(days: float, people_one: float, person_year: float) -> float:
    """What it costs once to bring all work onto one system: so many days of its people."""
    return days * people_one * person_year / WORKING_DAYS
