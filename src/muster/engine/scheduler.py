"""The scheduling cycle: what waits, what runs, and the plan that one cycle makes of them.

A `Scheduler` is fed events (submitted, finished, cancelled) and asked for a plan when something changed. It keeps
what it learned: a kind of gang that was refused is not tried again before something was released that one of its pods
could use, and what is above its queue's quota is passed over without a look. So a cycle costs what changed, not what
waits.

`muster.engine.decide.decide` is the same from a snapshot, with nothing kept.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence

from muster.engine.ahead import ahead_of, groups_ahead
from muster.engine.backfill import Backfill, Beside
from muster.engine.books import Books
from muster.engine.cluster import GangKind, whole_nodes
from muster.engine.defrag import enough_free, plan_moves, relocate
from muster.engine.elastic import grow, next_growth_s, shrink
from muster.engine.failures import next_repair_s, repair
from muster.engine.loans import restore_headroom
from muster.engine.pending import Claim, Gang, Order
from muster.engine.preempt import find_victims, within_nominal
from muster.engine.running import RunningGang
from muster.engine.sizes import Counts, largest
from muster.engine.timeline import Slot
from muster.kernels import Ints
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.plan import Decision, Evict, Place, Plan
from muster.model.reasons import NO_ROOM, Reason, Tier
from muster.model.workload import Workload
from muster.policy.ordering.protocol import Rank

Turn = tuple[int, bool, Rank, Order]
UNLIMITED = 1 << 62


class Scheduler(Books):
    """Makes plans for a fleet, its queues and its work; ``beside`` is there only as long as work is backfilled."""

    beside: Beside | None = None

    def next_s(self, now_s: float) -> float:
        """When a cycle may decide something new although nothing has happened meanwhile; infinite if never."""
        return min(next_growth_s(self, now_s), next_repair_s(self, now_s))

    def next_start_s(self, now_s: float) -> float:
        """The next reserved start that rests on predictions: it comes then, or is told anew; infinite if none."""
        told_s = (slot.start_s for slot in self.slots.values() if slot.start_s > now_s and not slot.sure)
        return min(told_s, default=math.inf)

    def cycle(self, now_s: float) -> Plan:
        """Decide what starts, waits, and stops now. The plan is taken as carried out: the state is that after it."""
        self._now_s = now_s
        self.shares.advance(now_s)
        self._give_up(now_s)
        self._correct(now_s)
        decisions: list[Decision] = [*self._quarantined, *repair(self, now_s)]
        self._quarantined.clear()
        met: set[str] = set()
        for gang in self._heads():
            reason = self._admit(gang, now_s, decisions, backfilled=bool(met))
            if reason not in (*NO_ROOM, Reason.RESERVED) and not self._entitled(gang, reason):
                continue
            if self.config.queueing != "backfill":
                break
            slot = self._reserve(gang, now_s)
            if slot is not None and reason in NO_ROOM:
                waits_gpu_s = (slot.start_s - now_s) * gang.kind.least.milli / WHOLE_GPU_MILLI
                if self._may_search(gang, now_s) and not self._awaits(gang):
                    if self._move(gang, self.config.move_limit * waits_gpu_s, now_s, decisions):
                        continue
                    self._searched[gang.workload.name] = now_s
            if slot is not None:
                if not slot.repeats(self.slots.get(slot.name)):
                    decisions.append(slot.reserve(self.cluster))
                self.slots[slot.name] = slot
                met.add(slot.name)
                if len(met) == self.config.reservations:
                    break
        self.slots = {name: slot for name, slot in self.slots.items() if name in met}
        if self.config.queueing != "strict":
            Backfill(self, now_s, decisions).run()
        decisions += restore_headroom(self, now_s)
        decisions += grow(self, now_s)
        return Plan(tuple(decisions))

    def _give_up(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] < now_s:
            _, name = heapq.heappop(self._deadlines)
            gang = self.pending.gangs.get(name)
            if gang is not None and (gang.workload.start_deadline_s or now_s) < now_s:
                self.cancel(name)

    def _correct(self, now_s: float) -> None:
        """What outlived its limit or prediction is taken to run on; reserved starts that no longer hold are undone."""
        broken = [
            slot for run in self.running.outlived(now_s) for slot in self.slots.values() if slot.needs_end_of(run)
        ]
        for slot in broken:
            self.slots.pop(slot.name, None)
        for slot in sorted(self.slots.values(), key=lambda slot: slot.start_s):
            if slot.start_s < now_s and slot.name in self.slots:  # late: it starts now, or what is behind it goes first
                late = slot.from_now(now_s)
                behind = [
                    each
                    for each in self.slots.values()
                    if slot.end_s <= each.start_s < late.end_s and slot.shares_nodes(each)
                ]
                self.slots[slot.name] = late
                for each in [slot] if not slot.sure and any(each.sure for each in behind) else behind:
                    del self.slots[each.name]

    def _heads(self) -> Iterator[Gang]:
        """Gangs in order over all claims.

        A claim's turn changes as its work starts: it is compared anew whenever the claim comes to the top. What asks
        for more than its queue could get, by quota or by reclaim, is passed over without a look.
        """
        heap: list[tuple[Turn, Claim, Gang]] = []
        lower = self.config.preempt_lower_priority and self.running.lowest_priority < self.pending.highest_priority
        yields = lower or self.running.may_shrink_or_idle

        def push(claim: Claim, after: Gang | None) -> None:
            reach = self.room_of(claim[0])
            if yields:
                # nothing behind it has a higher priority, so what it could reach is the most that the others could
                reach = self._within_reach(after or self.pending.first(claim))
            if self.pending.least(claim) <= reach:
                gang = self.pending.next_within(claim, after, reach)
                if gang is not None:
                    heapq.heappush(heap, (self.turn(gang), claim, gang))

        for claim in list(self.pending.claims):
            push(claim, None)
        refused: set[tuple[Claim, GangKind]] = set()
        while heap:
            turn, claim, gang = heapq.heappop(heap)
            if gang.kind.least.milli <= (self._within_reach(gang) if yields else self.room_of(claim[0])):
                if turn != (now := self.turn(gang)):
                    heapq.heappush(heap, (now, claim, gang))
                    continue
                if (claim, gang.kind) not in refused:
                    yield gang
                # those that only wait for room are looked at one by one: each may have a reserved start of its own
                waits = gang.reason if gang.workload.name in self.pending.gangs else None
                if waits is not None and waits.tier < Tier.WAITING_FOR_CAPACITY:
                    refused.add((claim, gang.kind))
            push(claim, gang)

    def turn(self, gang: Gang) -> Turn:
        """Who goes first: priority, then what its queue need not borrow for, then rank, then submission and name."""
        borrows = bool(self.queues) and not any(within_nominal(self, gang, each) for each in self.flavors_of(gang.kind))
        return gang.order[0], borrows, self.shares.rank(gang.claim), gang.order

    def _within_reach(self, gang: Gang) -> int:
        """The most GPU (milli) that a gang could get: its queue's room, and what may be taken within the queue."""
        room = self.room_of(gang.claim[0])
        if room >= UNLIMITED or not self.queues:
            return room
        below = gang.workload.priority if self.config.preempt_lower_priority else None
        return room + self.running.may_yield(gang.workload.queue, below, gang.workload.priority, self._now_s)

    def room_of(self, queue: str) -> int:
        """The most GPU (milli) that a gang of the queue could get on one flavor now, by quota or by reclaim."""
        if not self.queues or queue not in self.queues:
            return UNLIMITED
        known = self._rooms.get(queue)
        if known is not None and known[0] == self._quota_version:
            return known[1]
        room = 0
        for flavor in self.cluster.flavors:
            own = self.quota.own_left(queue, flavor) if self.config.reclaim else 0
            room = max(room, own, self.quota.available(queue, flavor))
        self._rooms[queue] = (self._quota_version, room)
        return room

    def own_of(self, queue: str) -> int:
        """The most GPU (milli) that is left of the queue's own, or its department's, on one flavor."""
        return max(self.quota.own_left(queue, flavor) for flavor in self.cluster.flavors)

    def gated(self, workload: Workload, now_s: float) -> Reason | None:
        """What keeps a workload from being looked at, whatever room there is."""
        if self.queues and workload.queue not in self.queues:
            return Reason.UNKNOWN_QUEUE
        if workload.not_before_s > now_s:
            return Reason.HELD
        if any(name not in self.finished for name in workload.depends_on):
            return Reason.DEPENDENCY
        if not self.may_hold(workload, self.cluster.kind_of(workload).least.milli):
            return Reason.OVER_LIMIT
        return None

    def tried(self, gang: Gang) -> Sequence[str]:
        """The flavors that a gang may use in the order of its queue: those without a loan first, if it says so."""
        flavors, queue = tuple(self.flavors_of(gang.kind)), self.queues.get(gang.workload.queue)
        if queue is None or queue.when_can_borrow == "borrow":
            return flavors
        return sorted(flavors, key=lambda flavor: not within_nominal(self, gang, flavor))

    def _admit(self, gang: Gang, now_s: float, decisions: list[Decision], *, backfilled: bool) -> Reason | None:
        """Start a gang, by stopping or moving others if that is right; else why not."""
        flavors, queue = self.tried(gang), self.queues.get(gang.workload.queue)
        alone = queue is not None and queue.when_can_preempt == "preempt"
        reasons: list[Reason] = []
        for some in [(flavor,) for flavor in flavors] if alone else [flavors]:
            reason = self._try(gang, some, now_s, decisions, backfilled=backfilled)
            if reason is None:
                return None
            if reason in NO_ROOM and any(self.frees_enough(gang.kind.least, flavor) for flavor in some):
                reasons.append(reason)  # others have been stopped already
                continue
            if reason in (*NO_ROOM, Reason.QUOTA) and self._preempt(gang, some, reason, now_s, decisions):
                return None
            reasons.append(reason)
        gang.reason = nearest(reasons)
        return gang.reason

    def _try(
        self, gang: Gang, flavors: Iterable[str], now_s: float, decisions: list[Decision], *, backfilled: bool
    ) -> Reason | None:
        """Start a gang if it may and can; else why not, the reason of the flavor that came nearest."""
        workload = gang.workload
        gang.reason = self.gated(workload, now_s)
        if gang.reason is not None:
            return gang.reason
        reasons: list[Reason] = []
        for flavor in flavors:
            found = self._fit(gang, flavor, now_s)
            if not isinstance(found, Reason):
                self._start(gang, flavor, *found, now_s, decisions, backfilled=backfilled)
                return None
            reasons.append(found)
        gang.reason = nearest(reasons)
        return gang.reason

    def _fit(self, gang: Gang, flavor: str, now_s: float) -> tuple[GangKind, Ints] | Reason:
        """The largest size at which a gang may start now, and its places there; else why it cannot at the least."""
        kind, workload = gang.kind, gang.workload
        if kind.least is kind:
            placed = self._fit_size(workload, kind, flavor, now_s)
            return placed if isinstance(placed, Reason) else (kind, placed)

        def fits(counts: Counts) -> bool:
            placed = self._fit_size(workload, self.cluster.sized(kind, counts), flavor, now_s)
            if isinstance(placed, Reason):
                return False
            self.cluster.give_back(placed)
            return True

        size = kind.sizes[-1] if fits(kind.sizes[-1]) else largest(kind.sizes[:-1], fits)
        sized = self.cluster.sized(kind, size or kind.sizes[0])
        placed = self._fit_size(workload, sized, flavor, now_s)
        return placed if isinstance(placed, Reason) else (sized, placed)

    def _fit_size(self, workload: Workload, kind: GangKind, flavor: str, now_s: float) -> Ints | Reason:
        """The places of a workload at the size of ``kind``, if quota, limits and nodes allow it now."""
        reason = self.quota.fits(workload.queue, flavor, kind.milli) if self.queues else None
        if reason is not None:
            return reason
        if not self.may_hold(workload, kind.milli):
            return Reason.OVER_LIMIT
        if self.beside is not None and self.beside.refuses(workload, kind, flavor):
            return Reason.RESERVED
        known = self.cluster.still_refused(kind, flavor)
        if known is not None:
            return known
        holds = self.holds(workload, now_s)
        placed: Ints | Reason = Reason.CAPACITY
        avoided = self.failures.nodes_of(workload.name, now_s) if workload.failures else ()
        if avoided:
            rows = [self.cluster.position[name] for name in avoided]
            placed = self.place_beside(kind, flavor, [*holds, whole_nodes(self.cluster, rows)])
        if isinstance(placed, Reason):
            placed = self.place_beside(kind, flavor, holds)
        if isinstance(placed, Reason):
            if not holds:
                self.cluster.note_refused(kind, flavor, placed)
            elif not self.refused_here(kind, flavor):
                return Reason.RESERVED
        return placed

    def _start(
        self, gang: Gang, flavor: str, kind: GangKind, rows: Ints, now_s: float, decisions: list[Decision], *,
        backfilled: bool,
    ) -> None:  # fmt: skip
        workload = gang.workload
        borrowed_before = self.quota.borrowed(workload.queue, flavor) if self.queues else 0
        self.pending.remove(gang)
        self._searched.pop(workload.name, None)
        run = RunningGang(workload, kind, flavor, rows, now_s)
        run.limit_s = self._span(workload, now_s).ends_s
        self.slots.pop(workload.name, None)
        self._enter(run)
        for slot in self.slots.values():
            slot.expect(run, self.cluster)
        borrowed = self.quota.borrowed(workload.queue, flavor) - borrowed_before if self.queues else 0
        places, counts = self.cluster.places(rows), run.counts if workload.elastic else ()
        decisions.append(Place(workload.name, places, flavor, borrowed, backfilled, counts))

    def _reserve(self, gang: Gang, now_s: float) -> Slot | None:
        """The earliest start of a gang that waits for room; never later than it was told, if work ends by its limit."""
        known = self.slots.get(gang.workload.name)
        if known is not None and not known.stale and known.start_s > now_s:
            return known
        others = self._ahead_of(gang.workload)
        best, until_s = None, known.start_s if known is not None and known.start_s > now_s else math.inf
        kept = self.kept_from(gang.workload)
        for flavor in self.flavors_of(gang.kind):
            if self._has_quota(gang, flavor):
                found = self.look_ahead(now_s).earliest(gang, flavor, now_s, others, until_s, kept)
                if found is not None and (best is None or found.start_s < best.start_s):
                    best, until_s = found, found.start_s
        worse = best is None or (known is not None and known.sure > best.sure)
        if known is not None and known.start_s > now_s and worse:
            known.stale = False
            return known
        if best is None and gang.kind.lasting == gang.kind.asked:
            gang.reason = Reason.NEVER_FITS
        return best

    def _has_quota(self, gang: Gang, flavor: str) -> bool:
        if not self.queues or self.quota.fits(gang.workload.queue, flavor, gang.kind.least.milli) is None:
            return True
        return self.config.reclaim and within_nominal(self, gang, flavor)

    def _entitled(self, gang: Gang, reason: Reason | None) -> bool:
        """Whether it waits for others to give back what is its queue's own: then it has a reserved start."""
        return reason is Reason.QUOTA and any(self._has_quota(gang, flavor) for flavor in self.flavors_of(gang.kind))

    def start(self, gang: Gang, now_s: float, decisions: list[Decision]) -> Reason | None:
        """Start a gang that may run past others if it may and can; else why not."""
        passes = bool(self._ahead_of(gang.workload))
        return self._try(gang, self.tried(gang), now_s, decisions, backfilled=passes)

    def refused_now(self, kind: GangKind) -> bool:
        """Whether the kind was refused on all its flavors since something was released last."""
        return all(self.cluster.still_refused(kind, flavor) is not None for flavor in self.flavors_of(kind))

    def refused_here(self, kind: GangKind, flavor: str) -> bool:
        """Whether the kind does not fit now on a flavor; that is noted until something is released."""
        if self.cluster.still_refused(kind, flavor) is not None:
            return True
        placed = self.cluster.place(kind, flavor)
        if isinstance(placed, Reason):
            self.cluster.note_refused(kind, flavor, placed)
            return True
        self.cluster.give_back(placed)
        return False

    def waits(self, now_s: float) -> Iterator[tuple[str, Reason]]:
        """Each workload that waits, with the reason as things are now.

        What was refused is known by kind, so that it costs as much as there are kinds.
        """
        for gang in self.pending:
            yield gang.workload.name, self.waits_for(gang, now_s)

    def waits_for(self, gang: Gang, now_s: float) -> Reason:
        """Why a gang waits as things are now.

        First what is hopeless, then what gates it, then quota, then room; of several flavors the one that came nearest.
        """
        gated = self.gated(gang.workload, now_s)
        if gated is Reason.UNKNOWN_QUEUE:
            return gated
        reason = nearest([self.refused_on(gang, flavor) for flavor in self.flavors_of(gang.kind)])
        return reason if gated is None or reason.tier <= Tier.OVER_LIMIT else gated

    def refused_on(self, gang: Gang, flavor: str) -> Reason:
        """Why a gang does not start on a flavor now, whatever gates it."""
        kind, queue = gang.kind.least, gang.workload.queue
        short = self.quota.fits(queue, flavor, kind.milli) if self.queues else None
        if short is not None and short.tier < Tier.IMPOSSIBLE:
            return short
        if self.cluster.never_fits(kind, flavor):
            return Reason.NEVER_FITS
        if short is not None:
            return short
        if any(run.leaving_for == gang.workload.name and run.flavor == flavor for run in self.running.leaving):
            return Reason.EVICTING
        if not self.refused_here(kind, flavor):
            return Reason.RESERVED
        return kind.refused[flavor][1]

    def in_order(self) -> list[Gang]:
        """All that waits, in the order in which it would be looked at as things are now."""
        borrows: dict[tuple[Claim, GangKind], tuple[bool, Rank]] = {}

        def key(gang: Gang) -> Turn:
            known = borrows.get((gang.claim, gang.kind))
            if known is None:
                known = borrows[gang.claim, gang.kind] = self.turn(gang)[1:3]
            return gang.order[0], *known, gang.order

        return sorted(self.pending, key=key)

    def ahead_of(self, gang: Gang) -> int:
        """How many gangs would be looked at before a gang as things are now."""
        return ahead_of(self, gang)

    def groups_ahead(self, gang: Gang) -> Iterator[Sequence[Gang]]:
        """The gangs that would be looked at before a gang as things are now: the first ones of each claim and kind."""
        return groups_ahead(self, gang)

    def _preempt(
        self, gang: Gang, flavors: Iterable[str], reason: Reason, now_s: float, decisions: list[Decision]
    ) -> bool:
        """Stop others for a gang that is entitled, unless moving some costs no more; True if it started by that."""
        found = find_victims(self, gang, flavors, now_s)
        if found is None:
            return False
        parts, flavor = found
        lost_gpu_s = sum(part.lost_gpu_s(now_s) for part in parts)
        if reason in NO_ROOM and self._move(gang, lost_gpu_s, now_s, decisions):
            return True
        for part in parts:
            run = part.run
            why = "reclaim" if run.workload.queue != gang.workload.queue else "priority"
            if not part.whole:
                if why == "priority" and run.workload.priority == gang.workload.priority:
                    why = "yield"
                decisions.append(shrink(self, run, part.columns, now_s, why, gang.workload.name))
                continue
            lost = run.lost_gpu_s(now_s)
            self._stop(run.workload.name, now_s)
            decisions.append(Evict(run.workload.name, gang.workload.name, why, lost))
        fitted = self._fit(gang, flavor, now_s)
        if isinstance(fitted, Reason):  # reserved starts of others keep it from all but its least size
            placed = self.cluster.place(gang.kind.least, flavor)
            assert not isinstance(placed, Reason), "victims were stopped and the gang does not fit"
            fitted = gang.kind.least, placed
        self._start(gang, flavor, *fitted, now_s, decisions, backfilled=False)
        for part in parts:
            if part.whole:
                self.submit(part.run.again())
        return True

    def _awaits(self, gang: Gang) -> bool:
        """Whether it will have room by itself when work that was stopped has gone: nobody else is moved for it."""
        return any(self.frees_enough(gang.kind.least, flavor) for flavor in self.flavors_of(gang.kind))

    def _may_search(self, gang: Gang, now_s: float) -> bool:
        """Whether it is worth to look for moves: enough is free in all, and that was not done in vain just now."""
        if not self.config.defragment:
            return False
        searched_s = self._searched.get(gang.workload.name, -math.inf)
        return now_s - searched_s >= self.config.search_moves_every_s and enough_free(self, gang)

    def _move(self, gang: Gang, budget_gpu_s: float, now_s: float, decisions: list[Decision]) -> bool:
        """Move others out of the way of a gang, at a price of at most the budget; True if it started by that."""
        moves = plan_moves(self, gang, now_s, budget_gpu_s) if self.config.defragment else None
        if moves is None:
            return False
        decisions += relocate(self, gang, moves, now_s)
        self._start(gang, moves.flavor, gang.kind.least, moves.rows, now_s, decisions, backfilled=False)
        return True


def nearest(reasons: Sequence[Reason]) -> Reason:
    """The reason of the flavor that came nearest; without any flavor that is the reason."""
    return max(reasons, key=lambda reason: (reason.tier, -reason.bit), default=Reason.NO_FLAVOR)
