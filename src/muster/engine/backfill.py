"""Starting what may run past the reserved starts: the last part of a cycle.

Ideally each gang that waits is tried in order, beside what the reserved starts need. Work of one claim and kind that
runs equally long is refused together, so here only the first of these is looked at; and how many pods there is room
for is counted once for each shape and set of reserved starts, which tells of most kinds that they cannot start.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from muster.engine.cluster import GangKind
from muster.engine.pending import NOTHING, Claim, Gang
from muster.engine.predict import Span, surely_s
from muster.engine.timeline import Slot, kept_for
from muster.model.plan import Decision
from muster.model.reasons import NO_ROOM, Reason
from muster.model.workload import Workload
from muster.policy.ordering.protocol import Rank

if TYPE_CHECKING:
    from muster.engine.pending import Order
    from muster.engine.scheduler import Scheduler

    Turn = tuple[int, bool, Rank, Order]

Lasts = tuple[float, float]
"""How long work is taken to run, and how long at most."""

OF_ALL = (*NO_ROOM, Reason.QUOTA, Reason.OVER_QUOTA, Reason.NO_FLAVOR, Reason.OVER_LIMIT, Reason.UNKNOWN_QUEUE)
"""What keeps all gangs of a claim and kind from starting if it keeps one of them."""


class Beside:
    """The room that there is beside reserved starts as long as nothing starts, counted once."""

    def __init__(self, scheduler: Scheduler, now_s: float) -> None:
        self._of = scheduler
        self._now_s = now_s
        self._in_way: dict[tuple[float, float, float], tuple[Slot, ...]] = {}
        self._rooms: dict[tuple[int, tuple[Slot, ...]], tuple[int, int]] = {}

    def forget(self) -> None:
        """Something has started."""
        self._in_way.clear()
        self._rooms.clear()

    def lasts(self, workload: Workload) -> Lasts:
        """How long a workload runs that has no reserved start."""
        return self._of.running.expected_s(workload), surely_s(workload)

    def in_way(self, lasts: Lasts, priority: float) -> tuple[Slot, ...]:
        """The reserved starts that work may not delay which starts now and has none itself."""
        key = (*lasts, priority)
        found = self._in_way.get(key)
        if found is None:
            span = Span(self._now_s, self._now_s + lasts[0], self._now_s + lasts[1])
            found = self._in_way[key] = tuple(
                slot for slot in self._of.slots.values() if slot.priority >= priority and slot.overlaps(span)
            )
        return found

    def has_room(self, kind: GangKind, flavor: str, slots: tuple[Slot, ...]) -> bool:
        """Whether there is room for a gang beside these reserved starts, as far as that can be counted."""
        counts = self._of.cluster.counts_of(kind, flavor)
        return all(self._has_room(shape, count, slots) for shape, count in counts)

    def _has_room(self, shape: int, count: int, slots: tuple[Slot, ...]) -> bool:
        cluster = self._of.cluster
        if not slots:
            return cluster.has_room(shape, count)
        room, enough = self._rooms.get((shape, slots), (0, 0))
        if room == enough < count:
            enough = 4 * count
            with cluster.holding_all(kept_for(slots, self._now_s)):
                room = cluster.count_room(shape, enough)
            self._rooms[shape, slots] = room, enough
        return count <= room

    def refuses(self, workload: Workload, kind: GangKind, flavor: str) -> bool:
        """Whether only reserved starts keep a workload from starting at the size of ``kind``; False: that is not known.

        It may be asked of work that has none itself.
        """
        if workload.name in self._of.slots or self._of.reservations:
            return False
        slots = self.in_way(self.lasts(workload), workload.priority)
        if not slots or self.has_room(kind, flavor, slots):
            return False
        return self.fits(kind, flavor)

    def fits(self, kind: GangKind, flavor: str) -> bool:
        """Whether a kind fits now on a flavor, whatever is reserved."""
        if self._of.cluster.counts_exactly(kind):
            return self.has_room(kind, flavor, ())
        return not self._of.refused_here(kind, flavor)


class Backfill:
    """What of one cycle may run past the reserved starts.

    Args:
        scheduler: whose gangs they are.
        now_s: when.
        decisions: what is started is appended.
    """

    def __init__(self, scheduler: Scheduler, now_s: float, decisions: list[Decision]) -> None:
        self._of = scheduler
        self._beside = scheduler.beside = Beside(scheduler, now_s)
        self._now_s = now_s
        self._decisions = decisions
        self._passed: set[tuple[Claim, GangKind]] = set()
        self._highest = scheduler.pending.highest_priority
        self._alive: dict[GangKind, None] = {}
        self._heads: list[tuple[Turn, Claim, GangKind | None]] = []

    def run(self) -> None:
        """Do it."""
        try:
            self._run()
        finally:
            self._of.beside = None

    def _run(self) -> None:
        """Start, of the kinds that could fit, the first gang of each claim that may run past the slots, in order.

        Ideally the first gangs of all claims and kinds are sorted. Here each claim stands with the best turn that a
        gang of it could have; only when it comes to the top is it seen which gang that is. Turns only become worse as
        gangs start, so that the best one at the top is the best of all.
        """
        scheduler, pending = self._of, self._of.pending
        self._alive = {kind: None for kind in self._with_room() if self._may_start(kind) and self._fits(kind)}
        for claim in list(pending.claims) if self._alive else ():
            first = pending.next_within(claim, None, scheduler.room_of(claim[0]))
            if first is not None:
                priority, _, rank, order = scheduler.turn(first)
                borrows = bool(scheduler.queues) and pending.least(claim) > scheduler.own_of(claim[0])
                heapq.heappush(self._heads, ((priority, borrows, rank, order), claim, None))
        while self._heads and self._alive:
            turn, claim, kind = heapq.heappop(self._heads)
            if kind is not None and kind in self._alive and kind.least.milli <= scheduler.room_of(claim[0]):
                first = pending.kinds[kind][claim][0]
                if turn == scheduler.turn(first):
                    self._start_first(claim, kind)
            self._push(claim)

    def _push(self, claim: Claim) -> None:
        """Enter the claim with its best gang of those that could start."""
        scheduler, alive = self._of, self._alive
        room, best = scheduler.room_of(claim[0]), None
        for kind, gangs in scheduler.pending.of_claim(claim).items():
            if kind in alive and kind.least.milli <= room and (claim, kind) not in self._passed:
                turn = scheduler.turn(gangs[0])
                if best is None or turn < best[0]:
                    if self._any_may_start(claim, kind):
                        best = turn, claim, kind
                    else:
                        self._passed.add((claim, kind))
        if best is not None:
            heapq.heappush(self._heads, best)

    def _with_room(self) -> list[GangKind]:
        """The kinds for which there is room, whatever is reserved, as far as that can be counted."""
        cluster, scheduler = self._of.cluster, self._of
        refused: dict[int, int] = {}  # of each shape the least number of pods for which there is no room

        def has_room(kind: GangKind, flavor: str) -> bool:
            for shape, count in cluster.counts_of(kind, flavor):
                if count >= refused.get(shape, NOTHING):
                    return False
                if not cluster.has_room(shape, count):
                    refused[shape] = count
                    return False
            return True

        kinds = list(scheduler.pending.kinds)
        return [kind for kind in kinds if any(has_room(kind.least, each) for each in scheduler.flavors_of(kind))]

    def _fits(self, kind: GangKind) -> bool:
        return any(self._beside.fits(kind.least, flavor) for flavor in self._of.flavors_of(kind))

    def _may_start(self, kind: GangKind) -> bool:
        """Whether there is room for a kind beside what must be kept of the reserved starts at the least."""
        limit_s, unlimited = self._of.pending.shortest(kind)
        expected_s = self._of.running.least_expected_s(limit_s, unlimited=unlimited)
        return self._has_room(kind, (expected_s, limit_s), self._highest)

    def _any_may_start(self, claim: Claim, kind: GangKind) -> bool:
        """Whether there is room for any gang of a claim and kind beside the reserved starts that it may not delay."""
        groups = self._of.pending.by_length(claim, kind)
        return any(
            self._has_room(kind, self._beside.lasts(gangs[0].workload), gangs[0].workload.priority) for gangs in groups
        )

    def _has_room(self, kind: GangKind, lasts: Lasts, priority: float) -> bool:
        slots = self._beside.in_way(lasts, priority)
        return any(self._beside.has_room(kind.least, flavor, slots) for flavor in self._of.flavors_of(kind))

    def _start_first(self, claim: Claim, kind: GangKind) -> None:
        """Start the first gang of a claim and kind that may run past the slots, or see that none may."""
        if not self._starts(self._of.pending.by_length(claim, kind)):
            self._passed.add((claim, kind))
        else:
            self._beside.forget()
            kinds = self._of.pending.kinds
            self._alive = {each: None for each in self._alive if each in kinds and self._may_start(each)}
        exact = self._of.cluster.counts_exactly(kind.least)
        if kind in self._alive and not exact and self._of.refused_now(kind.least):
            del self._alive[kind]

    def _starts(self, groups: Iterable[Sequence[Gang]]) -> bool:
        """Whether a gang is started, the first that can be; those of a group run equally long.

        What would run as long as a gang that was refused for a reserved start, or longer, is not looked at. It is
        again once another was refused since that ran shorter in one way and longer in another.
        """
        scheduler = self._of
        heads = [(gangs[0], 0, self._beside.lasts(gangs[0].workload), gangs) for gangs in groups]
        heapq.heapify(heads)
        refused: Lasts | None = None
        longer: list[tuple[Gang, int, Lasts, Sequence[Gang]]] = []
        while heads:
            gang, at, lasts, gangs = head = heapq.heappop(heads)
            if refused is not None and at_least(lasts, refused):
                longer.append(head)
                continue
            if gang.workload.name not in scheduler.slots:
                reason = scheduler.start(gang, self._now_s, self._decisions)
                if reason is None:
                    return True
                if reason in OF_ALL:
                    return False
                if reason is Reason.RESERVED:
                    refused = lasts
                    again = [each for each in longer if not at_least(each[2], refused)]
                    longer = [each for each in longer if at_least(each[2], refused)]
                    for _, skipped, other, behind in again:
                        after = bisect_right(behind, gang, skipped)
                        if after < len(behind):
                            heapq.heappush(heads, (behind[after], after, other, behind))
            if at + 1 < len(gangs):
                heapq.heappush(heads, (gangs[at + 1], at + 1, lasts, gangs))
        return False


def at_least(one: Lasts, other: Lasts) -> bool:
    """Whether work runs as long as other work, or longer, both as it is expected and at most."""
    return one[0] >= other[0] and one[1] >= other[1]
