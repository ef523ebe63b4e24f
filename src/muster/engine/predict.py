"""How long work will run, told from how long the last work like it ran.

Who owns it and what it is called say most: a user runs the same thing again and again (Gibbons 1997; Smith, Foster and
Taylor 1998), and recent runs say more than old ones (Tsafrir, Etsion and Feitelson, IEEE TPDS 18(6), 2007, who take the
mean of a user's last two). So the last `KEPT` run times are kept of each of these, and the first that has `LEAST` of
them is asked:

1. the owner's work of this name, size and stated limit,
2. the owner's work of this name,
3. the owner's work,
4. the queue's work of about this size (GPU to the next power of two; of CPU work its pods),
5. all work.

The owner is the user; of work without a user its queue. The name is the workload's without what counts it
(`name_stem`). What is asked for is a quantile: the least kept run time that so large a part of them did not exceed.

A prediction is never a limit: nothing is killed by it. Work that outlives it is looked up again among those that ran
longer (`RunTimes.remaining_s`).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from muster.model.snapshot import Key, PastRuns
from muster.model.workload import Workload

KEPT = 20
"""Run times kept of each kind of work."""

LEAST = 3
"""Fewer say too little: the next wider kind is asked."""

MOST_KINDS = 100_000
"""Kinds kept a level; beyond it those are forgotten of which nothing ended for longest."""

LEVELS = ("job", "name", "owner", "size", "all")
"""The names of the five levels in snapshots, narrow to wide."""

_POD_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_TAIL = re.compile(
    r"[^0-9A-Za-z]+$"  # a separator, or the end of a task number in brackets
    r"|(?:^|(?<=[^0-9A-Za-z]))(?:"
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|\d{8}T\d{4,6}Z?"  # a time of day
    r"|(?=[a-f]*\d)[0-9a-f]{6,}"  # a hash
    rf"|[{_POD_SUFFIX}]{{5}}|[{_POD_SUFFIX}]{{8,10}}"  # what Kubernetes appends for generateName and ReplicaSets
    r")$"
    r"|\d+$"
)


class Span(NamedTuple):
    """When work runs: from when, until when it is taken to, and until when at most (infinite without a limit)."""

    start_s: float
    ends_s: float
    surely_s: float


def surely_s(workload: Workload) -> float:
    """How long a workload runs at most: its limit; infinite without one."""
    return math.inf if workload.time_limit_s is None else workload.time_limit_s


@lru_cache(maxsize=1 << 16)
def name_stem(name: str) -> str:
    """A name without what tells one run from the next, as long as there is such a thing at its end.

    Cut are: digits; hashes (six or more hexadecimal digits, one of them 0 to 9); UUIDs; times such as
    ``20260131T0910``; the suffixes that Kubernetes appends (five, or eight to ten, of its letters without vowels); and
    separators. ``train-llama-70b-2026-01-31`` and ``train-llama-70b-x7f2k`` are both ``train-llama-70b``.
    """
    while True:
        shorter = _TAIL.sub("", name)
        if shorter == name:
            return name
        name = shorter


class _Kind:
    """The last run times of one kind of work: in the order of their ends, and sorted."""

    __slots__ = ("by_length", "seconds")

    def __init__(self) -> None:
        self.seconds: deque[float] = deque()
        self.by_length: list[float] = []

    def add(self, seconds: float) -> None:
        if len(self.seconds) == KEPT:
            del self.by_length[bisect_left(self.by_length, self.seconds.popleft())]
        self.seconds.append(seconds)
        insort(self.by_length, seconds)

    def quantile(self, part: float, above_s: float = -1.0) -> float | None:
        """Of the run times above ``above_s`` the least that ``part`` of them did not exceed; None if there is none."""
        first = bisect_right(self.by_length, above_s)
        count = len(self.by_length) - first
        return self.by_length[first + max(0, math.ceil(part * count) - 1)] if count else None


class RunTimes:
    """What has run, and for how long; deterministic, and bounded in memory.

    Args:
        past: the history that a snapshot holds.
    """

    def __init__(self, past: Iterable[PastRuns] = ()) -> None:
        self._levels: tuple[dict[Key, _Kind], ...] = tuple({} for _ in LEVELS)
        for each in past:
            if each.level in LEVELS:
                for seconds in each.seconds:
                    _add(self._levels[LEVELS.index(each.level)], each.key, seconds)
        self._learns = True

    def frozen(self) -> RunTimes:
        """The same history, which learns no more: of use where ends are only imagined. This one must not change."""
        twin = object.__new__(RunTimes)
        twin._levels, twin._learns = self._levels, False
        return twin

    def record(self, workload: Workload, ran_s: float) -> None:
        """A workload has ended after ``ran_s`` (0 or more): by itself, or killed at its limit.

        What went on from a checkpoint says nothing: its last part is shorter than the whole.
        """
        if not self._learns or (workload.attempts and workload.checkpointing is not None):
            return
        for level, key in zip(self._levels, keys_of(workload), strict=True):
            _add(level, key, max(0.0, ran_s))

    def predicted_s(self, workload: Workload, quantile: float) -> float | None:
        """How long it will run, by a quantile (above 0, at most 1) of those like it; None with no history."""
        kind = self._of(workload)
        return None if kind is None else kind.quantile(quantile)

    def remaining_s(self, workload: Workload, elapsed_s: float, quantile: float) -> float | None:
        """How much longer it will run after ``elapsed_s``: by a quantile of those like it that ran longer than that.

        None if nothing is known that did.
        """
        kind = self._of(workload)
        longer_s = None if kind is None else kind.quantile(quantile, elapsed_s)
        return None if longer_s is None else longer_s - elapsed_s

    def past(self) -> tuple[PastRuns, ...]:
        """The history for a snapshot: narrow kinds first, each level in the order of its last ends."""
        return tuple(
            PastRuns(name, key, tuple(kind.seconds))
            for name, level in zip(LEVELS, self._levels, strict=True)
            for key, kind in level.items()
        )

    def _of(self, workload: Workload) -> _Kind | None:
        """The narrowest kind of which enough is known."""
        for level, key in zip(self._levels, keys_of(workload), strict=True):
            kind = level.get(key)
            if kind is not None and len(kind.seconds) >= LEAST:
                return kind
        return None


def _add(level: dict[Key, _Kind], key: Key, seconds: float) -> None:
    kind = level.pop(key, None)
    if kind is None:
        kind = _Kind()
        if len(level) >= MOST_KINDS:
            del level[next(iter(level))]
    level[key] = kind  # at the end: the first is the one that is forgotten next
    kind.add(seconds)


def keys_of(workload: Workload) -> Iterator[Key]:
    """The kinds that a workload is of, narrow to wide; made as they are asked for."""
    owner = (workload.user, "" if workload.user else workload.queue)
    stem = name_stem(workload.title or workload.name)
    limit_s = -1.0 if workload.time_limit_s is None else workload.time_limit_s
    milli, pods = workload.gpu_milli, workload.pods
    yield (*owner, stem, pods, milli, limit_s)
    yield (*owner, stem)
    yield owner
    yield (workload.queue, milli.bit_length() if milli else -pods.bit_length())
    yield ()
