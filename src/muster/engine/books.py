"""What waits, what runs, and on what: the state between cycles, kept right by every event.

`muster.engine.scheduler.Scheduler` decides on it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np
from msgspec.structs import replace

from muster.engine.cluster import Cluster, GangKind, Hold, whole_nodes
from muster.engine.config import Config, settings_of
from muster.engine.failures import FailureLog, lose_pods
from muster.engine.future import Future, Kept
from muster.engine.pending import Gang, Pending
from muster.engine.predict import RunTimes, Span, surely_s
from muster.engine.quota import QuotaTree, check_queues
from muster.engine.requests import check_request
from muster.engine.running import RunningGang, RunningSet
from muster.engine.shares import Shares
from muster.engine.sharing import queue_tenants
from muster.engine.timeline import Slot, kept_for
from muster.engine.waiting import Waiting
from muster.errors import InputError, StateError
from muster.kernels import Ints
from muster.model.fleet import Node, Topology
from muster.model.parallelism import check_parallelism
from muster.model.plan import Quarantine
from muster.model.queue import Queue
from muster.model.reasons import Reason
from muster.model.snapshot import AdvanceReservation, MoveSearch, NodeFailure, Running, Snapshot, collector_paused
from muster.model.workload import Workload


class Books:
    """Holds a fleet, its queues and its work; each event enters all that it changes.

    Args:
        snapshot: what there is at the start.
        config: how to decide.

    Raises:
        InputError: for a snapshot that contradicts itself, naming the field.
    """

    @collector_paused()
    def __init__(self, snapshot: Snapshot, config: Config) -> None:
        check_queues(snapshot.queues)
        self.config = config
        self.queues = {queue.name: queue for queue in snapshot.queues}
        self.quota = QuotaTree(snapshot.queues)
        flavored = any(queue.quotas for queue in snapshot.queues)
        tenants = queue_tenants(snapshot.queues) if config.isolation == "tenants" else None
        self.cluster = Cluster(snapshot.fleet, config, flavored=flavored, tenants=tenants)
        self.shares = Shares(snapshot.queues, self.capacity_milli, config, snapshot.taken_s)
        self.running = RunningSet(config, RunTimes(snapshot.run_times))
        self.pending = Pending(self.running.length)
        self.finished = set(snapshot.finished)
        self.reservations = snapshot.reservations
        self._local_queues = snapshot.local_queues
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
        self._adopt_all(snapshot.running)
        self._submit_all(snapshot.pending)

    @contextmanager
    def trial(self, searches: Iterable[MoveSearch] = ()) -> Generator[Self]:
        """A twin on which anything may be tried, with no reserved starts yet: those are told anew by its cycle.

        What both share is as before afterwards. It costs O(nodes + running + pending), some 50 ms for 10,000 nodes and
        100,000 gangs; a cycle of the twin then costs what a change of this one would cost. ``searches`` are the moves
        that the twin takes to have been looked for in vain.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.finished = set(self.finished)
        twin.quota, twin.shares, twin.cluster = self.quota.copy(), self.shares.copy(), self.cluster.copy()
        twin.pending, twin.running, twin.failures = self.pending.copy(), self.running.copy(), self.failures.copy()
        twin.slots, twin.broken = {}, dict(self.broken)
        twin._searched = {each.workload: each.time_s for each in searches}
        twin._quarantined, twin._deadlines = list(self._quarantined), list(self._deadlines)
        twin._rooms = {}
        twin._future = self._future.copy(twin.cluster, twin.running) if self._future is not None else None
        shared = [self.running.memory(), self.pending.reasons(), *(kind.memory() for kind in self.cluster.kinds)]
        try:
            yield twin
        finally:
            for recall in shared:
                recall()

    def submit(self, workload: Workload) -> None:
        """New work; raises `StateError` if the name is taken."""
        name = workload.name
        if name in self.pending.gangs or name in self.running:
            raise StateError(f"workload {name} is there already")
        kind = self._checked_kind(workload)
        queue = self.queues.get(workload.queue)
        if queue is not None and queue.max_priority is not None and workload.priority > queue.max_priority:
            workload = replace(workload, priority=queue.max_priority)
        if workload.start_deadline_s is not None:
            heapq.heappush(self._deadlines, (workload.start_deadline_s, name))
        gang = Gang(workload, kind)
        self.pending.add((gang,))
        self.shares.know(gang.claim)

    def _submit_all(self, workloads: Sequence[Workload]) -> None:
        """What waits at first: ideally as `submit` of each."""
        most = {name: queue.max_priority for name, queue in self.queues.items() if queue.max_priority is not None}
        waiting = Waiting(workloads, self._checked_kind, Gang, self.cluster.tenants or {}, most)
        taken = next((run.workload.name for run in self.running if run.workload.name in waiting.row_of), None)
        if len(waiting.row_of) < len(waiting):
            seen = set[str]()
            taken = next(name for name in waiting.names if name in seen or seen.add(name))
        if taken is not None:
            raise StateError(f"workload {taken} is there already")
        self.pending = Pending(self.running.length, waiting)
        self._deadlines = waiting.deadlines()
        heapq.heapify(self._deadlines)
        for claim in waiting.claims:
            self.shares.know(claim)

    def _checked_kind(self, workload: Workload) -> GangKind:
        _check_workload(workload, self.cluster.fleet.topology)
        return self.cluster.kind_of(workload)

    def put(self, runs: Iterable[Running]) -> None:
        """Work runs as a snapshot says, and not as it did, if it did: all leave their places before any is entered."""
        runs = list(runs)
        for run in runs:
            if run.workload.name in self.running:
                self.take_out(run.workload.name)
        self._adopt_all(runs)

    def take_out(self, name: str) -> None:
        """Running work is there no more, as if it had never been."""
        self._stop(name, self._now_s)

    def set_queues(self, queues: Sequence[Queue]) -> None:
        """Other quotas and limits of the same queues; raises `InputError` where they contradict each other."""
        self.quota = QuotaTree(tuple(queues))
        self.queues = {queue.name: queue for queue in queues}
        for run in self.running:
            if run.leaving_s is None:
                self.quota.charge(run.workload.queue, run.flavor, run.kind.milli)
        self._quota_version += 1
        self._rooms.clear()

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

    def leave(self, name: str, until_s: float, now_s: float, *, for_workload: str = "") -> None:
        """Running work was told to stop, for others or for nobody: it holds its places until it ends, by ``until_s``.

        Its quota is free at once. When it has gone, it is to be finished (not ``well``).
        """
        run = self._leave(name, now_s)
        run.leaving_s, run.leaving_for = until_s, for_workload
        run.limit_s = until_s
        self.broken.pop(name, None)
        self._enter(run)
        for slot in self.slots.values():
            slot.stale = True

    def frees_enough(self, kind: GangKind, flavor: str) -> bool:
        """Whether a gang that does not fit now will fit when all work that leaves has gone."""
        places = [run.rows for run in self.running.leaving if run.flavor == flavor]
        for rows in places:
            self.cluster.give_back(rows)
        try:
            return bool(places) and self.cluster.fits(kind, flavor)
        finally:
            for rows in places:
                self.cluster.take(rows)

    def send_back(self, name: str, now_s: float) -> None:
        """Running work is stopped and goes back to its queue."""
        self.submit(self._stop(name, now_s).again())

    def _adopt_all(self, runs: Sequence[Running]) -> None:
        """Enter what runs already; raises `InputError` where its places are not free."""
        known: dict[tuple[int, int, int, str], GangKind] = {}
        asked = [self.asked(run, known) for run in runs]
        rows = self.cluster.assign_all([(*each, run.pods) for each, run in zip(asked, runs, strict=True)])
        for (kind, flavor), run, places in zip(asked, runs, rows, strict=True):
            self._adopt(run, kind, flavor, places)

    def asked(
        self, run: Running, known: dict[tuple[int, int, int, str], GangKind] | None = None
    ) -> tuple[GangKind, str]:
        """The kind of what is there of running work, and its flavor; ``known`` are kinds of what is asked for."""
        workload = run.workload
        key = id(workload.pod_sets), id(workload.topology), id(workload.flavors), workload.queue
        kind = known.get(key) if known is not None and workload.parallelism is None else None
        if kind is None:
            kind = self.cluster.kind_of(workload)
            if known is not None:
                known[key] = kind
        if run.counts:
            kind = self.cluster.sized(kind, run.counts)
        if run.missing:
            whole = RunningGang(run.workload, kind, "", np.zeros((3, 0), np.int64), 0.0, missing=run.missing)
            kind = self.cluster.sized(kind, whole.present)
        return kind, self._flavor_of(run)

    def _adopt(self, run: Running, present: GangKind, flavor: str, rows: Ints) -> None:
        kind = present
        if run.missing:
            kind = self.cluster.kind_of(run.workload)
            kind = self.cluster.sized(kind, run.counts) if run.counts else kind
        adopted = RunningGang(run.workload, kind, flavor, rows, run.started_s, run.checkpointed_s, run.missing)
        adopted.leaving_s, adopted.leaving_for = run.leaving_s, run.leaving_for
        if run.missing and run.leaving_s is None:
            self.broken[run.workload.name] = self._now_s
        adopted.idle_since_s = run.idle_since_s
        adopted.resized_s = run.started_s if run.resized_s is None else run.resized_s
        ends_s = run.expected_end_s if run.leaving_s is None else run.leaving_s
        adopted.limit_s = math.nan if ends_s is None else ends_s
        self._enter(adopted)

    def _flavor_of(self, run: Running) -> str:
        if not self.cluster.flavored or not run.pods:
            return ""
        return self.cluster.fleet.nodes[self.cluster.position[run.pods[0].node]].flavor

    def _enter(self, run: RunningGang, now_s: float | None = None) -> None:
        self.running.add(run)
        if run.leaving_s is not None:
            return
        self.quota.charge(run.workload.queue, run.flavor, run.kind.milli)
        self._quota_version += 1
        since_s = run.started_s if now_s is None else now_s
        self.shares.hold((run.workload.queue, run.workload.user), run.flavor, run.kind.milli, since_s)

    def _leave(self, name: str, now_s: float) -> RunningGang:
        run = self.running.remove(name)
        if run.leaving_s is not None:
            return run
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
                run.leaving_s,
                run.leaving_for,
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
            settings=settings_of(self.config),
            local_queues=self._local_queues,
        )

    def flavors_of(self, kind: GangKind) -> Iterable[str]:
        """The flavors that a kind may use, in the order in which they are tried."""
        if not self.cluster.flavored:
            return ("",)
        return kind.flavors or self.cluster.flavors

    def may_hold(self, workload: Workload, milli: int) -> bool:
        """Whether the workload's user may hold so much more in its queue."""
        queue = self.queues.get(workload.queue)
        if queue is None or queue.max_running_milli is None:
            return True
        return self.running.held_by(workload.queue, workload.user) + milli <= queue.max_running_milli

    def place_beside(self, kind: GangKind, flavor: str, holds: Sequence[Hold]) -> Ints | Reason:
        """Place pods without using what is held."""
        with self.cluster.holding_all(holds):
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
        return holds + [each.hold for each in self.kept_from(workload, now_s, ends_s)]

    def _span(self, workload: Workload, now_s: float) -> Span:
        """When it runs if it starts now; no longer than when its start was reserved, for others have built on that."""
        slot, ends_s = self.slots.get(workload.name), now_s + self.running.expected_s(workload)
        return Span(now_s, min(ends_s, now_s + slot.lasts_s) if slot else ends_s, now_s + surely_s(workload))

    def _ahead_of(self, workload: Workload) -> list[Slot]:
        """The reserved starts that it may not delay: those of others, unless it has the higher priority."""
        name, priority = workload.name, workload.priority
        return [slot for slot in self.slots.values() if slot.name != name and slot.priority >= priority]

    def kept_from(self, workload: Workload, from_s: float = -math.inf, to_s: float = math.inf) -> list[Kept]:
        """The nodes, and when, that advance reservations keep from a workload at any time between two."""
        return [
            Kept(each.start_s, each.end_s, whole_nodes(self.cluster, self._positions(each)))
            for each in self.reservations
            if each.start_s < to_s and from_s < each.end_s
            if workload.queue not in each.queues and workload.name not in each.workloads
        ]

    def _positions(self, each: AdvanceReservation) -> list[int]:
        return [self.cluster.position[name] for name in each.nodes if name in self.cluster.position]

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

    def look_ahead(self, now_s: float) -> Future:
        """What will be free when; it is made when it is asked for first."""
        if self._future is None:
            self._future = Future(self.cluster, self.running, now_s)
        return self._future


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
