"""Who would be looked at before a gang: counted over the columns of claims that sleep, and walked for the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from muster.engine.cluster import GangKind
from muster.engine.pending import Claim, Gang
from muster.engine.waiting import Rows, Waiting
from muster.kernels import Ints
from muster.policy.ordering.protocol import Rank

if TYPE_CHECKING:
    from muster.engine.scheduler import Scheduler

LEAST = -(1 << 62)


def ahead_of(scheduler: Scheduler, gang: Gang) -> int:
    """How many gangs would be looked at before a gang as things are now."""
    waiting = scheduler.pending.gangs.waiting
    counted = 0 if waiting is None else int(_asleep_before(scheduler, waiting, gang).sum())
    awake = [claim for claim in scheduler.pending.claims if scheduler.pending.asleep(claim) is None]
    return counted + sum(len(gangs) for claim in awake for gangs in _awake_before(scheduler, claim, gang))


def groups_ahead(scheduler: Scheduler, gang: Gang) -> Iterator[Sequence[Gang]]:
    """The gangs that would be looked at before a gang as things are now: the first ones of each claim and kind."""
    waiting = scheduler.pending.gangs.waiting
    counts: list[int] = [] if waiting is None else _asleep_before(scheduler, waiting, gang).tolist()
    for claim in list(scheduler.pending.claims):
        number = scheduler.pending.asleep(claim)
        if number is None or waiting is None:
            yield from _awake_before(scheduler, claim, gang)
            continue
        groups = waiting.by_kind
        for group in range(groups.bounds[number], groups.bounds[number + 1]):
            if counts[group]:
                first = groups.starts[group]
                yield Rows(waiting, groups.rows[first : first + counts[group]])


def names_ahead(scheduler: Scheduler, gang: Gang) -> Iterator[str]:
    """The names of these gangs, in the same order."""
    for gangs in groups_ahead(scheduler, gang):
        yield from gangs.names() if isinstance(gangs, Rows) else (each.workload.name for each in gangs)


def kinds_ahead(
    scheduler: Scheduler, gang: Gang, of: Callable[[Claim], bool], takes: Callable[[GangKind], bool]
) -> Iterator[Sequence[Gang]]:
    """Of these gangs those of some claims and kinds, all of a kind together where they are of claims that sleep."""
    waiting = scheduler.pending.gangs.waiting
    if waiting is not None and len(waiting):
        groups, counts = waiting.by_kind, _asleep_before(scheduler, waiting, gang)
        claims = np.array([of(claim) for claim in waiting.claims], np.bool_)
        kinds = np.array([takes(kind) for kind in waiting.kinds], np.bool_)
        counts = np.where(claims[groups.claims] & kinds[groups.kinds], counts, 0)
        sizes = np.diff(groups.starts)
        first = np.arange(len(waiting)) - np.repeat(groups.starts[:-1], sizes) < np.repeat(counts, sizes)
        rows = groups.rows[first]
        rows = rows[np.lexsort((waiting.since_s[rows], waiting.level[rows], waiting.kind[rows]))]
        for some in np.split(rows, np.flatnonzero(np.diff(waiting.kind[rows])) + 1):
            if len(some):
                yield Rows(waiting, some)
    for claim in [each for each in scheduler.pending.claims if scheduler.pending.asleep(each) is None and of(each)]:
        for gangs in _awake_before(scheduler, claim, gang):
            if takes(gangs[0].kind):
                yield gangs


def _awake_before(scheduler: Scheduler, claim: Claim, gang: Gang) -> Iterator[Sequence[Gang]]:
    """Of a claim."""
    mine, rank = scheduler.turn(gang), scheduler.shares.rank(claim)
    own: dict[str, int] = {}
    for kind, gangs in scheduler.pending.of_claim(claim).items():
        flavors = scheduler.flavors_of(kind) if scheduler.queues else ()
        for flavor in flavors:
            if flavor not in own:
                own[flavor] = scheduler.quota.own_left(claim[0], flavor)
        borrows = bool(scheduler.queues) and all(kind.least.milli > own[flavor] for flavor in flavors)
        same = borrows, rank  # as `turn` has them
        if same > mine[1:3] and gangs[0].order[0] >= mine[0]:
            continue
        # those of higher priority, and of the same those whose loan and rank, then order, come first
        before = bisect_left(gangs, mine[0], key=lambda each: each.order[0])
        if same < mine[1:3]:
            before = bisect_right(gangs, mine[0], key=lambda each: each.order[0])
        elif same == mine[1:3]:
            before = max(before, bisect_left(gangs, gang))
        if before:
            yield gangs[:before]


def _asleep_before(scheduler: Scheduler, waiting: Waiting, gang: Gang) -> Ints:
    """How many of each group of ``waiting.by_kind`` are before a gang; 0 for those of claims that are awake."""
    groups, mine = waiting.by_kind, scheduler.turn(gang)[1:3]
    choices: dict[tuple[str, ...], int] = {}
    choice = [choices.setdefault(tuple(scheduler.flavors_of(kind)), len(choices)) for kind in waiting.kinds]
    own = np.full((len(waiting.claims), len(choices)), LEAST, np.int64)
    behind = np.ones((len(waiting.claims), 2), np.int64)
    asleep = np.zeros(len(waiting.claims), np.bool_)
    for number, claim in enumerate(waiting.claims):
        if scheduler.pending.asleep(claim) is None:
            continue
        asleep[number] = True
        rank = scheduler.shares.rank(claim)
        behind[number] = [_compared((borrows, rank), mine) for borrows in (False, True)]
        for flavors, at in choices.items() if scheduler.queues else ():
            own[number, at] = max((scheduler.quota.own_left(claim[0], each) for each in flavors), default=LEAST)
    least = np.array([kind.least.milli for kind in waiting.kinds], np.int64)
    borrows = least[groups.kinds] > own[groups.claims, np.array(choice, np.int64)[groups.kinds]]
    counts = waiting.before(gang.order, behind[groups.claims, (borrows & bool(scheduler.queues)).astype(np.int64)])
    return np.where(asleep[groups.claims], counts, 0)


def _compared(one: tuple[bool, Rank], other: tuple[bool, Rank]) -> int:
    return -1 if one < other else int(one > other)
