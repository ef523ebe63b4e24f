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
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from muster.engine.predict import keys_of
from muster.engine.scheduler import Scheduler
from muster.engine.waiting import Waiting
from muster.model.snapshot import Key
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
        self._waiting = scheduler.pending.gangs.waiting
        self._likes: list[Workload | int] = []
        """What comes is like these: workloads, or rows of the work that waits; each so many times a second."""
        self._rates: list[float] = []
        runs, part = some_of(list(scheduler.running), MOST_RUNS)
        for run in runs:
            # what has outlived its kind by far says that the kind's mean is too small
            known_s, elapsed_s = mean_s(run.workload), now_s - run.started_s
            every_s = max(LEAST_S, elapsed_s / 2, 0.0 if math.isnan(known_s) else known_s)
            self._enter(run.workload, part / every_s)
        there = {next(keys_of(run.workload)) for run in runs}
        rates, known = _asleep(self._waiting, now_s, there) if self._waiting is not None else ([], [])
        for claim in list(scheduler.pending.claims):
            number = scheduler.pending.asleep(claim)
            if number is None or self._waiting is None:
                heads = [(gangs[0].workload, len(gangs)) for gangs in scheduler.pending.of_claim(claim).values()]
                for first, count in heads:
                    if next(keys_of(first)) not in there:
                        self._enter(first, count / max(LEAST_SINCE_S, now_s - first.submitted_s))
                continue
            groups = self._waiting.by_kind
            some = slice(groups.bounds[number], groups.bounds[number + 1])
            new = [not each for each in known[some]]
            self._likes += compress(groups.rows[groups.starts[some]].tolist(), new)
            self._rates += compress(rates[some], new)

    def _enter(self, like: Workload, rate: float) -> None:
        self._likes.append(like)
        self._rates.append(rate)

    def only(self, which: Callable[[str, int], bool]) -> Arrivals:
        """Those of some work, by its queue and priority."""
        some = copy.copy(self)
        kept = [which(*self._whose(each)) for each in self._likes]
        some._likes, some._rates = list(compress(self._likes, kept)), list(compress(self._rates, kept))
        return some

    def _whose(self, like: Workload | int) -> tuple[str, int]:
        """The queue and priority of work that comes."""
        if isinstance(like, Workload):
            return like.queue, like.priority
        assert self._waiting is not None, "rows are of the work that waits"
        claim, level = int(self._waiting.claim[like]), int(self._waiting.level[like])
        return self._waiting.claims[claim][0], -self._waiting.levels[level]

    def _workload(self, like: Workload | int) -> Workload:
        if isinstance(like, Workload):
            return like
        assert self._waiting is not None, "rows are of the work that waits"
        return self._waiting.gang(like).workload

    def draw(self, most: int, rng: np.random.Generator) -> list[tuple[float, Workload]]:
        """When the first ``most`` come, in seconds of the snapshot's epoch, and what; in order."""
        if not self._likes or most <= 0:
            return []
        rates = np.array(self._rates)
        pace = math.exp(PACE_SPREAD * float(rng.standard_normal()))
        times = self._now_s + np.cumsum(rng.exponential(1.0 / (pace * float(rates.sum())), most))
        which = rng.choice(len(rates), most, p=rates / rates.sum())
        at: list[int] = which.tolist()
        likes = [self._workload(self._likes[each]) for each in at]
        return list(zip(times.tolist(), likes, strict=True))


def _asleep(waiting: Waiting, now_s: float, there: Collection[Key]) -> tuple[list[float], list[bool]]:
    """How often there comes more of each claim and kind, and whether such work is ``there`` already."""
    groups = waiting.by_kind
    rows = groups.rows[groups.starts[:-1]]
    rates = np.diff(groups.starts) / np.maximum(LEAST_SINCE_S, now_s - waiting.submitted_s[rows])
    asked_for = [kind.asked_for for kind in waiting.kinds]
    owners = [(user, "" if user else queue) for queue, user in waiting.claims]
    # names are looked at last, and only of whom asks for what is there
    owned, asked = {key[:2] for key in there}, {key[3:5] for key in there}
    claims = np.array([each in owned for each in owners], np.bool_)
    kinds = np.array([each in asked for each in asked_for], np.bool_)
    known = np.zeros(len(rows), np.bool_)
    alike = {(*key[:2], *key[3:]) for key in there}
    some = np.flatnonzero(claims[groups.claims] & kinds[groups.kinds])
    for group, limit_s in zip(some.tolist(), waiting.limits_s(rows[some]), strict=True):
        owner, asks = owners[int(groups.claims[group])], asked_for[int(groups.kinds[group])]
        if (*owner, *asks, -1.0 if limit_s is None else limit_s) in alike:
            known[group] = next(keys_of(waiting.gang(int(rows[group])).workload)) in there
    return rates.tolist(), known.tolist()


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
