"""Work that will yet come: a snapshot has none, so the recent past is played again.

What was submitted within the last `WINDOW_S` and still runs or waits comes again, at the same distances, from another
point of the window on, so that bursts stay bursts. What came and has ended already is not in a snapshot. It is made up
for by weight: if one in three of a kind lasts as long as this one has, there were three of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from muster.model.snapshot import Snapshot
from muster.model.workload import Workload

WINDOW_S = 6 * 3600.0
"""What was submitted within so long counts as the recent past; longer where too little was."""

LEAST_SEEN = 30
"""With fewer submissions in it the window is doubled, up to `MOST_WINDOW_S`."""

MOST_WINDOW_S = 4 * 86400.0

MOST_WEIGHT = 10.0


class _Past(NamedTuple):
    workload: Workload
    submitted_s: float
    weight: float


class Arrivals:
    """Plays the arrivals of a snapshot's recent past again.

    Args:
        snapshot: whose running and waiting work says what came.
        lasts: the part of all work like this one that runs longer than so many seconds.
    """

    def __init__(self, snapshot: Snapshot, lasts: Callable[[Workload, float], float]) -> None:
        now_s = snapshot.taken_s
        self._now_s = now_s
        runs = {id(each.workload): each for each in snapshot.running}
        work: list[Workload] = [*snapshot.pending, *(each.workload for each in snapshot.running)]
        fresh = [each for each in work if now_s - MOST_WINDOW_S < each.submitted_s <= now_s and not each.attempts]
        ages = sorted(now_s - each.submitted_s for each in fresh)
        self.window_s = WINDOW_S
        while self.window_s < MOST_WINDOW_S and np.searchsorted(ages, self.window_s) < LEAST_SEEN:
            self.window_s *= 2
        self._past: list[_Past] = []
        for each in sorted(fresh, key=lambda one: (one.submitted_s, one.name)):
            if now_s - each.submitted_s < self.window_s:
                run = runs.get(id(each))
                weight = 1.0 if run is None else 1.0 / max(lasts(each, now_s - run.started_s), 1 / MOST_WEIGHT)
                self._past.append(_Past(each, each.submitted_s, weight))

    @property
    def per_s(self) -> float:
        """Workloads a second."""
        return sum(each.weight for each in self._past) / self.window_s

    def draw(self, most: int, rng: np.random.Generator) -> list[tuple[float, Workload]]:
        """Times and what comes at them, in order; of what never ends the first ``most``."""
        found: list[tuple[float, Workload]] = []
        if not self._past or most <= 0:
            return found
        shift_s, near_s = float(rng.random()) * self.window_s, self.window_s / (1 + len(self._past))
        for time_s, past in self._again(shift_s):
            for copy in range(math.floor(past.weight + float(rng.random()))):
                # those that are made up for come at their own times, near the one that is seen
                found.append((time_s + (near_s * float(rng.random()) if copy else 0.0), past.workload))
            if len(found) >= most:
                break
        found.sort(key=lambda each: each[0])
        return found[:most]

    def _again(self, shift_s: float) -> Iterator[tuple[float, _Past]]:
        turned: Sequence[tuple[float, _Past]] = sorted(
            (((each.submitted_s - self._now_s - shift_s) % self.window_s, each) for each in self._past),
            key=lambda pair: pair[0],
        )
        begin_s = self._now_s
        while True:
            for after_s, past in turned:
                yield begin_s + after_s, past
            begin_s += self.window_s


def named(arrivals: Sequence[tuple[float, Workload]], run_s: Sequence[float], taken: set[str]) -> tuple[Workload, ...]:
    """The arrivals as workloads of their own: new names, their times, and how long they run."""
    found: list[Workload] = []
    for number, ((time_s, like), seconds) in enumerate(zip(arrivals, run_s, strict=True)):
        name = f"{like.name}+{number}"
        while name in taken:
            name += "+"
        deadline_s = None if like.start_deadline_s is None else time_s + like.start_deadline_s - like.submitted_s
        found.append(
            replace(
                like, name=name, submitted_s=time_s, duration_s=seconds, recorded_wait_s=None, depends_on=(),
                not_before_s=0.0, start_deadline_s=deadline_s, attempts=0, failures=0,
            )
        )  # fmt: skip
    return tuple(found)
