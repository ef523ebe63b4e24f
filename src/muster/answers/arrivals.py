"""Work that will yet come: a snapshot has none, so what runs now says what comes.

By Little's law (Operations Research 9, 1961) as much of each kind begins each second as there runs of it, over how long
it runs on average. So each running job stands for copies of it that come at random (a Poisson process), one in the mean
run time of its kind. The GPUs that are asked for in all are then those that are in use now; and kinds that end so fast
that a snapshot seldom shows one come the more often when it does. Kinds of which some
wait and none run come as often as they did since the first of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from muster.engine.predict import keys_of
from muster.engine.scheduler import Scheduler
from muster.model.workload import Workload

LEAST_S = 300.0
"""Nothing comes more often than so for each that is there: very short work would fill the budget and delay nobody."""

PACE_SPREAD = 0.3
"""Work may come faster or slower than it begins now: by a factor whose logarithm has this standard deviation."""


LEAST_SINCE_S = 3600.0
"""What has only just come says no more than that one comes in so long."""

MOST_RUNS = 500
"""Of more running work every second, third ... stands for all."""

_Item = TypeVar("_Item")


def some_of(items: Sequence[_Item], most: int) -> tuple[Sequence[_Item], float]:
    """Items at equal steps, so that at most ``most`` are left, and for how many each stands."""
    step = max(1, math.ceil(len(items) / most))
    some = items[::step]
    return some, len(items) / max(1, len(some))


class Arrivals:
    """What comes after a snapshot.

    Args:
        scheduler: whose running and waiting work says what comes.
        now_s: from when on.
        mean_s: how long work like this runs on average, in seconds; NaN where nothing is known.
    """

    def __init__(self, scheduler: Scheduler, now_s: float, mean_s: Callable[[Workload], float]) -> None:
        self._now_s = now_s
        self._likes: list[tuple[Workload, float]] = []
        runs, part = some_of(list(scheduler.running), MOST_RUNS)
        for run in runs:
            # what has outlived its kind by far says that the kind's mean is too small
            known_s, elapsed_s = mean_s(run.workload), now_s - run.started_s
            every_s = max(LEAST_S, elapsed_s / 2, 0.0 if math.isnan(known_s) else known_s)
            self._likes.append((run.workload, part / every_s))
        there = {next(keys_of(run.workload)) for run in runs}
        for claim in scheduler.pending.claims:
            for gangs in scheduler.pending.of_claim(claim).values():
                first = gangs[0].workload
                if next(keys_of(first)) not in there:
                    since_s = max(LEAST_SINCE_S, now_s - first.submitted_s)
                    self._likes.append((first, len(gangs) / since_s))

    def only(self, which: Callable[[Workload], bool]) -> Arrivals:
        """Those of some work."""
        some = copy.copy(self)
        some._likes = [each for each in self._likes if which(each[0])]
        return some

    def draw(self, most: int, rng: np.random.Generator) -> list[tuple[float, Workload]]:
        """When the first ``most`` come, in seconds of the snapshot's epoch, and what; in order."""
        if not self._likes or most <= 0:
            return []
        rates = np.array([rate for _, rate in self._likes])
        pace = math.exp(PACE_SPREAD * float(rng.standard_normal()))
        times = self._now_s + np.cumsum(rng.exponential(1.0 / (pace * float(rates.sum())), most))
        which = rng.choice(len(rates), most, p=rates / rates.sum())
        return [(time_s, self._likes[at][0]) for time_s, at in zip(times.tolist(), which.tolist(), strict=True)]


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
