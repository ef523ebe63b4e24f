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
from contextlib import ExitStack

import numpy as np
from msgspec.structs import replace

from muster.engine.cluster import Cluster, GangKind, Hold, whole_nodes
from muster.engine.config import Config
from muster.engine.defrag import enough_free, plan_moves, relocate
from muster.engine.elastic import grow, next_growth_s, shrink
from muster.engine.failures import FailureLog, lose_pods, next_repair_s, repair
from muster.engine.future import Future
from muster.engine.loans import restore_headroom
from muster.engine.pending import Claim, Gang, Order, Pending
from muster.engine.predict import RunTimes, Span, surely_s
from muster.engine.preempt import find_victims, within_nominal
from muster.engine.quota import QuotaTree, check_queues
from muster.engine.requests import check_request
from muster.engine.running import RunningGang, RunningSet
from muster.engine.shares import Shares
from muster.engine.sharing import queue_tenants
from muster.engine.sizes import Counts, largest
from muster.engine.timeline import Slot, kept_for
from muster.errors import InputError, StateError
from muster.kernels import Ints
from muster.model.fleet import WHOLE_GPU_MILLI, Node, Topology
from muster.model.parallelism import check_parallelism
from muster.model.plan import Decision, Evict, Place, Plan, Quarantine
from muster.model.reasons import NO_ROOM, Reason, Tier
from muster.model.snapshot import AdvanceReservation, MoveSearch, NodeFailure, Running, Snapshot
from muster.model.workload import Workload
from muster.policy.ordering.protocol import Rank

Turn = tuple[int, bool, Rank, Order]
UNLIMITED = 1 << 62


class Scheduler:
    """Holds a fleet, its queues and its work, and makes plans.

    Args:
        snapshot: what there is at the start.
        config: how to decide.

    Raises:
        InputError: for a snapshot that contradicts itself, naming the field.
    """

    def __init__(self, snapshot: Snapshot, config: Config) -> None:
        check_queues(snapshot.queues)
        self.config = config
        self.queues = {queue.name: queue for queue in snapshot.queues}
        self.quota = QuotaTree(snapshot.queues)
        flavored = any(queue.quotas for queue in snapshot.queues)
        tenants = queue_tenants(snapshot.queues) if config.isolation == "tenants" else None
        self.cluster = Cluster(snapshot.fleet, config, flavored=flavored, tenants=tenants)
        self.shares = Shares(snapshot.queues, self.capacity_milli, config, snapshot.taken_s)
        self.pending = Pending()
        self.running = RunningSet(config, RunTimes(snapshot.run_times))
        self.finished = set(snapshot.finished)
        self.reservations = snapshot.reservations
        self.slots: dict[str, Slot] = {}
        self._searched = {each.workload: each.time_s for each in snapshot.searches}
        self.failures = FailureLog(config.quarantine_window_s, snapshot.failures)
        self.broken: dict[str, float] = {}
        self._now_s = snapshot.taken_s
        self._quarantined: list[Quarantine] = []
        self._future: Future | None = None
        self._quota_version = 0
        self._deadlines: list[tuple[float, str]] = []
        self._rooms: dict[str, tuple[int, int]] = {}
        for use in snapshot.usage:
            self.shares.add_past((use.queue, use.user), use.gpu_s)
        for run in snapshot.running:
            self._adopt(run)
        for workload in snapshot.pending:
            self.submit(workload)

    # -- events -------------------------------------------------------------------------------------------------------

    def submit(self, workload: Workload) -> None:
        """New work; raises `StateError` if the name is taken."""
        if workload.name in self.pending.gangs or workload.name in self.running:
            raise StateError(f"workload {workload.name} is there already")
        _check_workload(workload, self.cluster.fleet.topology)
        queue = self.queues.get(workload.queue)
        if queue is not None and queue.max_priority is not None and workload.priority > queue.max_priority:
            workload = replace(workload, priority=queue.max_priority)
        gang = Gang(workload, self.cluster.kind_of(workload))
        self.pending.add(gang)
        self.shares.know(gang.claim)
        if workload.start_deadline_s is not None:
            heapq.heappush(self._deadlines, (workload.start_deadline_s, workload.name))

    def note_idle(self, name: str, since_s: float | None) -> None:
        """Running work has used none of its GPUs since a time; None: it uses them again."""
        self.running.note_idle(name, since_s)

    def cancel(self, name: str) -> None:
        """Work that waits is withdrawn."""
        self.pending.remove(self.pending.gangs[name])
        self.slots.pop(name, None)
        self._searched.pop(name, None)

    def finish(self, name: str, now_s: float, *, well: bool = True) -> RunningGang:
        """Work that runs has ended; if ``well``, what depends on it may start."""
        run = self._stop(name, now_s)
        self.running.run_times.record(run.workload, now_s - run.started_s)
        if well:
            self.finished.add(name)
        return run

    def fail(self, name: str, now_s: float, node: str = "") -> bool:
        """Work that runs has failed by itself, or was not ready in time; on ``node`` if that is known.

        It goes back to its queue and waits for its back-off; False if it has failed too often and is given up.
        """
        workload = self._stop(name, now_s).again()
        if node:
            self._note_failure(NodeFailure(node, name, now_s))
        if workload.failures >= self.config.retries:
            return False
        wait_s = min(self.config.most_backoff_s, self.config.backoff_s * 2.0 ** min(workload.failures, 64))
        self.submit(
            replace(workload, failures=workload.failures + 1, not_before_s=max(workload.not_before_s, now_s + wait_s))
        )
        return True

    def _note_failure(self, failure: NodeFailure) -> None:
        workloads = self.failures.add(failure)
        node = self.cluster.fleet.nodes[self.cluster.position[failure.node]]
        if 0 < self.config.quarantine_failures <= len(workloads) and node.schedulable:
            reason = f"quarantined: {len(workloads)} workloads failed on it"
            self.set_node(replace(node, schedulable=False, reason=reason), failure.time_s)
            self._quarantined.append(Quarantine(node.name, workloads))

    def set_node(self, node: Node, now_s: float, *, lost: bool = False) -> None:
        """A node is not as it was: its health, its labels and taints, or whether work may start on it.

        Pods on devices that are not healthy are lost, with ``lost`` all pods of the node; what becomes of their gangs
        is decided in the next cycle. Raises `StateError` for a node that the fleet has not.
        """
        position = self.cluster.position.get(node.name)
        if position is None:
            raise StateError(f"there is no node {node.name}")
        if node.schedulable and not self.cluster.fleet.nodes[position].schedulable:
            self.failures.forget(node.name)
        lose_pods(self, node, now_s, everything=lost)
        self.cluster.set_node(node)
        self.shares.set_capacity(self.capacity_milli)
        for name in [name for name, slot in self.slots.items() if slot.stands_on(position)]:
            del self.slots[name]
        for slot in self.slots.values():
            slot.stale = True

    @property
    def capacity_milli(self) -> dict[str, int]:
        """What may be used of each flavor now; without quotas all is of the flavor ""."""
        capacity = self.cluster.fleet.capacity_milli
        return dict(capacity) if self.cluster.flavored else {"": sum(capacity.values())}

    def send_back(self, name: str, now_s: float) -> None:
        """Running work is stopped and goes back to its queue."""
        self.submit(self._stop(name, now_s).again())

    def _adopt(self, run: Running) -> None:
        kind = self.cluster.kind_of(run.workload)
        flavor = self._flavor_of(run)
        if run.counts:
            kind = self.cluster.sized(kind, run.counts)
        adopted = RunningGang(
            run.workload, kind, flavor, np.zeros((3, 0), np.int64), run.started_s, run.checkpointed_s, run.missing
        )
        present = self.cluster.sized(kind, adopted.present) if run.missing else kind
        adopted.stand_on(self.cluster.assign(present, flavor, run.pods))
        if run.missing:
            self.broken[run.workload.name] = self._now_s
        adopted.idle_since_s = run.idle_since_s
        adopted.resized_s = run.started_s if run.resized_s is None else run.resized_s
        adopted.limit_s = math.nan if run.expected_end_s is None else run.expected_end_s
        self._enter(adopted)

    def _flavor_of(self, run: Running) -> str:
        if not self.cluster.flavored or not run.pods:
            return ""
        return self.cluster.fleet.nodes[self.cluster.position[run.pods[0].node]].flavor

    def _enter(self, run: RunningGang, now_s: float | None = None) -> None:
        self.running.add(run)
        self.quota.charge(run.workload.queue, run.flavor, run.kind.milli)
        self._quota_version += 1
        since_s = run.started_s if now_s is None else now_s
        self.shares.hold((run.workload.queue, run.workload.user), run.flavor, run.kind.milli, since_s)

    def _leave(self, name: str, now_s: float) -> RunningGang:
        run = self.running.remove(name)
        self.quota.refund(run.workload.queue, run.flavor, run.kind.milli)
        self._quota_version += 1
        self.shares.hold((run.workload.queue, run.workload.user), run.flavor, -run.kind.milli, now_s)
        return run

    def _stop(self, name: str, now_s: float) -> RunningGang:
        run = self._leave(name, now_s)
        self.cluster.release(run.rows)
        self.broken.pop(name, None)
        for slot in self.slots.values():
            slot.ended(run, self.cluster)
            slot.stale = slot.stale or run.limit_s > now_s
        return run

    def snapshot(self, now_s: float) -> Snapshot:
        """All that a decision depends on, as a value; reserved starts are not part of it."""
        running = tuple(
            Running(
                run.workload,
                run.started_s,
                self.cluster.places(run.rows),
                run.checkpointed_s,
                run.counts if run.workload.elastic else (),
                run.missing,
                run.resized_s if run.resized_s != run.started_s else None,
                run.idle_since_s,
                run.limit_s,
            )
            for run in self.running
        )
        return Snapshot(
            self.cluster.fleet,
            tuple(self.queues.values()),
            tuple(gang.workload for gang in self.pending),
            running,
            self.reservations,
            self.shares.usage(now_s),
            tuple(sorted(self.finished)),
            self.failures.known(now_s),
            now_s,
            searches=tuple(
                MoveSearch(name, time_s)
                for name, time_s in self._searched.items()
                if name in self.pending.gangs and now_s - time_s < self.config.search_moves_every_s
            ),
            run_times=self.running.run_times.past(),
        )

    def next_s(self, now_s: float) -> float:
        """When a cycle may decide something new although nothing has happened meanwhile; infinite if never."""
        return min(next_growth_s(self, now_s), next_repair_s(self, now_s))

    def next_start_s(self, now_s: float) -> float:
        """The next reserved start that rests on predictions: it comes then, or is told anew; infinite if none."""
        told_s = (slot.start_s for slot in self.slots.values() if slot.start_s > now_s and not slot.sure)
        return min(told_s, default=math.inf)

    # -- the cycle ----------------------------------------------------------------------------------------------------

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
                if self._may_search(gang, now_s):
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
            self._backfill(now_s, decisions)
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

        def push(claim: Claim, after: Gang | None) -> None:
            # nothing behind it has a higher priority, so what it could reach is the most that the others could
            first = after or self.pending.next_within(claim, None, UNLIMITED)
            gang = first and self.pending.next_within(claim, after, self._within_reach(first))
            if gang is not None:
                heapq.heappush(heap, (self._turn(gang), claim, gang))

        for claim in list(self.pending.claims):
            push(claim, None)
        refused: set[tuple[Claim, GangKind]] = set()
        while heap:
            turn, claim, gang = heapq.heappop(heap)
            if gang.kind.least.milli <= self._within_reach(gang):
                if turn != (now := self._turn(gang)):
                    heapq.heappush(heap, (now, claim, gang))
                    continue
                if (claim, gang.kind) not in refused:
                    yield gang
                # those that only wait for room are looked at one by one: each may have a reserved start of its own
                waits = gang.reason if gang.workload.name in self.pending.gangs else None
                if waits is not None and waits.tier < Tier.WAITING_FOR_CAPACITY:
                    refused.add((claim, gang.kind))
            push(claim, gang)

    def _turn(self, gang: Gang) -> Turn:
        """Who goes first: priority, then what its queue need not borrow for, then rank, then submission and name."""
        borrows = bool(self.queues) and not any(within_nominal(self, gang, each) for each in self.flavors_of(gang.kind))
        return gang.order[0], borrows, self.shares.rank(gang.claim), gang.order

    def _within_reach(self, gang: Gang) -> int:
        """The most GPU (milli) that a gang could get: its queue's room, and what may be taken within the queue."""
        room = self._room(gang.claim[0])
        if room >= UNLIMITED or not self.queues:
            return room
        below = gang.workload.priority if self.config.preempt_lower_priority else None
        return room + self.running.may_yield(gang.workload.queue, below, gang.workload.priority, self._now_s)

    def _room(self, queue: str) -> int:
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

    def _own(self, queue: str) -> int:
        """The most GPU (milli) that is left of the queue's own, or its department's, on one flavor."""
        return max(self.quota.own_left(queue, flavor) for flavor in self.cluster.flavors)

    def flavors_of(self, kind: GangKind) -> Iterable[str]:
        """The flavors that a kind may use, in the order in which they are tried."""
        if not self.cluster.flavored:
            return ("",)
        return kind.flavors or self.cluster.flavors

    def _gated(self, workload: Workload, now_s: float) -> Reason | None:
        if self.queues and workload.queue not in self.queues:
            return Reason.UNKNOWN_QUEUE
        if workload.not_before_s > now_s:
            return Reason.HELD
        if any(name not in self.finished for name in workload.depends_on):
            return Reason.DEPENDENCY
        if not self.may_hold(workload, self.cluster.kind_of(workload).least.milli):
            return Reason.OVER_LIMIT
        return None

    def may_hold(self, workload: Workload, milli: int) -> bool:
        """Whether the workload's user may hold so much more in its queue."""
        queue = self.queues.get(workload.queue)
        if queue is None or queue.max_running_milli is None:
            return True
        return self.running.held_by(workload.queue, workload.user) + milli <= queue.max_running_milli

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
            if reason in (*NO_ROOM, Reason.QUOTA) and self._preempt(gang, some, reason, now_s, decisions):
                return None
            reasons.append(reason)
        gang.reason = _nearest(reasons)
        return gang.reason

    def _try(
        self, gang: Gang, flavors: Iterable[str], now_s: float, decisions: list[Decision], *, backfilled: bool
    ) -> Reason | None:
        """Start a gang if it may and can; else why not, the reason of the flavor that came nearest."""
        workload = gang.workload
        gang.reason = self._gated(workload, now_s)
        if gang.reason is not None:
            return gang.reason
        reasons: list[Reason] = []
        for flavor in flavors:
            found = self._fit(gang, flavor, now_s)
            if not isinstance(found, Reason):
                self._start(gang, flavor, *found, now_s, decisions, backfilled=backfilled)
                return None
            reasons.append(found)
        gang.reason = _nearest(reasons)
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
            elif self._fits_without(kind, flavor):
                return Reason.RESERVED
        return placed

    def place_beside(self, kind: GangKind, flavor: str, holds: Sequence[Hold]) -> Ints | Reason:
        """Place pods without using what is held."""
        with ExitStack() as stack:
            for hold in holds:
                stack.enter_context(self.cluster.holding(hold))
            return self.cluster.place(kind, flavor)

    def holds(
        self, workload: Workload, now_s: float, run: RunningGang | None = None, slots: Iterable[Slot] | None = None
    ) -> list[Hold]:
        """What a workload that starts now, or ``run``, which is of it, may not use: it is kept for others.

        Of reserved starts those in ``slots`` count, else those that it may not delay.
        """
        span = self._span(workload, now_s) if run is None else self.running.span(run)
        slots = self._ahead_of(workload) if slots is None else slots
        holds = kept_for([slot for slot in slots if slot.overlaps(span)], now_s)
        ends_s = span.ends_s if workload.time_limit_s is None else span.surely_s
        advance = (self._advance(each, workload, now_s, ends_s) for each in self.reservations)
        return holds + [hold for hold in advance if hold is not None]

    def _span(self, workload: Workload, now_s: float) -> Span:
        """When it runs if it starts now; no longer than when its start was reserved, for others have built on that."""
        slot, ends_s = self.slots.get(workload.name), now_s + self.running.expected_s(workload)
        return Span(now_s, min(ends_s, now_s + slot.lasts_s) if slot else ends_s, now_s + surely_s(workload))

    def _ahead_of(self, workload: Workload) -> list[Slot]:
        """The reserved starts that it may not delay: those of others, unless it has the higher priority."""
        name, priority = workload.name, workload.priority
        return [slot for slot in self.slots.values() if slot.name != name and slot.priority >= priority]

    def _fits_without(self, kind: GangKind, flavor: str) -> bool:
        placed = self.cluster.place(kind, flavor)
        if isinstance(placed, Reason):
            self.cluster.note_refused(kind, flavor, placed)
            return False
        self.cluster.give_back(placed)
        return True

    def _advance(self, each: AdvanceReservation, workload: Workload, now_s: float, ends_s: float) -> Hold | None:
        if each.start_s >= ends_s or each.end_s <= now_s:
            return None
        if workload.queue in each.queues or workload.name in each.workloads:
            return None
        rows = [self.cluster.position[name] for name in each.nodes if name in self.cluster.position]
        return whole_nodes(self.cluster, rows)

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

    def rebook(self, run: RunningGang, kind: GangKind, rows: Ints, now_s: float) -> None:
        """A running gang goes on with other pods; the nodes have them already."""
        name = run.workload.name
        for slot in self.slots.values():
            slot.changes(run, self.cluster, -1)
        self._leave(name, now_s)
        run.kind, run.resized_s = kind, now_s
        run.stand_on(rows)
        self._enter(run, now_s)
        for slot in self.slots.values():
            if name in slot.waits_for:
                slot.changes(run, self.cluster, 1)
            else:
                slot.expect(run, self.cluster)
            slot.stale = True

    # -- time ---------------------------------------------------------------------------------------------------------

    def _reserve(self, gang: Gang, now_s: float) -> Slot | None:
        """The earliest start of a gang that waits for room; never later than it was told, if work ends by its limit."""
        known = self.slots.get(gang.workload.name)
        if known is not None and not known.stale and known.start_s > now_s:
            return known
        others = self._ahead_of(gang.workload)
        best, until_s = None, known.start_s if known is not None and known.start_s > now_s else math.inf
        for flavor in self.flavors_of(gang.kind):
            if self._has_quota(gang, flavor):
                found = self.look_ahead(now_s).earliest(gang, flavor, now_s, others, until_s)
                if found is not None and (best is None or found.start_s < best.start_s):
                    best, until_s = found, found.start_s
        worse = best is None or (known is not None and known.sure > best.sure)
        if known is not None and known.start_s > now_s and worse:
            known.stale = False
            return known
        if best is None:
            gang.reason = Reason.NEVER_FITS
        return best

    def look_ahead(self, now_s: float) -> Future:
        """What will be free when; it is made when it is asked for first."""
        if self._future is None:
            self._future = Future(self.cluster, self.running, now_s)
        return self._future

    def _has_quota(self, gang: Gang, flavor: str) -> bool:
        if not self.queues or self.quota.fits(gang.workload.queue, flavor, gang.kind.least.milli) is None:
            return True
        return self.config.reclaim and within_nominal(self, gang, flavor)

    def _entitled(self, gang: Gang, reason: Reason | None) -> bool:
        """Whether it waits for others to give back what is its queue's own: then it has a reserved start."""
        return reason is Reason.QUOTA and any(self._has_quota(gang, flavor) for flavor in self.flavors_of(gang.kind))

    def _backfill(self, now_s: float, decisions: list[Decision]) -> None:
        """Start what may run past the slots: of the kinds that could fit, the first gang of each claim, in order.

        Ideally the first gangs of all claims and kinds are sorted. Here each claim stands with the best turn that a
        gang of it could have; only when it comes to the top is it seen which gang that is.
        """
        alive = {kind: None for kind in list(self.pending.kinds) if self._could_fit(kind.least)}
        heads: list[tuple[Turn, Claim, GangKind | None]] = []
        passed: set[tuple[Claim, GangKind]] = set()

        def push(claim: Claim) -> None:
            """Enter the claim with its best gang of those that could start."""
            room, best = self._room(claim[0]), None
            for kind, gangs in self.pending.of_claim(claim).items():
                if kind in alive and kind.least.milli <= room and (claim, kind) not in passed:
                    turn = self._turn(gangs[0])
                    if best is None or turn < best[0]:
                        best = turn, claim, kind
            if best is not None:
                heapq.heappush(heads, best)

        for claim in list(self.pending.claims) if alive else ():
            first = self.pending.next_within(claim, None, self._room(claim[0]))
            if first is not None:
                priority, _, rank, order = self._turn(first)
                borrows = bool(self.queues) and self.pending.least(claim) > self._own(claim[0])
                heapq.heappush(heads, ((priority, borrows, rank, order), claim, None))
        while heads and alive:
            turn, claim, kind = heapq.heappop(heads)
            if kind is not None and kind in alive and kind.least.milli <= self._room(claim[0]):
                gangs = self.pending.kinds[kind][claim]
                if turn == self._turn(gangs[0]):
                    if not self._start_first(gangs, now_s, decisions):
                        passed.add((claim, kind))
                    if self._refused_now(kind.least):
                        del alive[kind]
            push(claim)

    def _start_first(self, gangs: Sequence[Gang], now_s: float, decisions: list[Decision]) -> bool:
        """Start the first gang of a claim and kind that may run past the slots; only their time limits differ."""
        refused: tuple[float, float] | None = None
        for gang in gangs:
            lasts = self.running.expected_s(gang.workload), surely_s(gang.workload)
            if gang.workload.name in self.slots or (refused and lasts[0] >= refused[0] and lasts[1] >= refused[1]):
                continue
            passes = bool(self._ahead_of(gang.workload))
            reason = self._try(gang, self.tried(gang), now_s, decisions, backfilled=passes)
            if reason is None:
                return True
            if reason is Reason.RESERVED:
                refused = lasts
            elif reason in (*NO_ROOM, Reason.QUOTA, Reason.OVER_QUOTA, Reason.NO_FLAVOR):
                return False
        return False

    def _refused_now(self, kind: GangKind) -> bool:
        """Whether the kind was refused on all its flavors since something was released last."""
        return all(self.cluster.still_refused(kind, flavor) is not None for flavor in self.flavors_of(kind))

    def _could_fit(self, kind: GangKind) -> bool:
        """Whether the kind fits now on any of its flavors; if not, that is noted until something is released."""
        if self._refused_now(kind):
            return False
        for flavor in self.flavors_of(kind):
            if self.cluster.fits(kind, flavor):
                return True
            _, reason = kind.refused.get(flavor, (0, Reason.CAPACITY))
            self.cluster.note_refused(kind, flavor, reason)
        return False

    def waits(self, now_s: float) -> Iterator[tuple[str, Reason]]:
        """Each workload that waits, with the reason; one that was not looked at in the last cycle is looked at now."""
        for gang in self.pending:
            reason = self._gated(gang.workload, now_s) or gang.reason
            if reason is None and self.queues:
                short = [
                    self.quota.fits(gang.workload.queue, flavor, gang.kind.least.milli)
                    for flavor in self.flavors_of(gang.kind)
                ]
                reason = None if None in short else short[0]
            if reason is None:
                refused = gang.kind.least.refused
                noted = [refused[flavor][1] for flavor in self.flavors_of(gang.kind) if flavor in refused]
                reason = noted[0] if noted else Reason.RESERVED
            yield gang.workload.name, reason

    # -- preemption ---------------------------------------------------------------------------------------------------

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

    def _may_search(self, gang: Gang, now_s: float) -> bool:
        """Whether it is worth to look for moves: enough is free in all, and that was not done in vain just now."""
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


def _nearest(reasons: Sequence[Reason]) -> Reason:
    """The reason of the flavor that came nearest."""
    return max(reasons, key=lambda reason: (reason.tier, -reason.bit))


def _check_workload(workload: Workload, topology: Topology) -> None:
    where = f"workload {workload.name}"
    for index, pod_set in enumerate(workload.pod_sets):
        if pod_set.min_count is not None and not 0 <= pod_set.min_count <= pod_set.count:
            what = f"{where}: min_count is {pod_set.min_count}, count {pod_set.count}"
            raise InputError(what, field=f"pod_sets[{index}].min_count", hint="at least 0 and at most count")
    if workload.pod_sets and not any(each.required for each in workload.pod_sets):
        raise InputError(f"{where}: may run without any pod", field="pod_sets", hint="a min_count of at least 1")
    check_request(topology, workload.topology, f"{where}.topology")
    check_parallelism(workload, f"{where}.parallelism")
