"""What breaks: pods that are lost with their node, gangs that go on without them, and nodes on which everything fails.

A gang that lost pods keeps the others where they are. In the next cycle, before anything else is decided:

1. It gets the best replacement that there is now, of spare nodes first, in the domain in which it must stand; it goes
   on from its last checkpoint.
2. Else an elastic gang goes on smaller, if that is faster: waiting loses the time t until there is a replacement;
   shrinking one of d pods and growing back loses t / d and two restarts. So it shrinks if t > 2 r d / (d - 1).
3. Else it is stopped and goes back to its queue, where it keeps its place.

A node on which several different workloads fail within a short time is a black hole: it always looks free, and eats all
that comes. It is put into quarantine, where nothing starts any more, until somebody sets it right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from muster.engine.cluster import GangKind, Hold, whole_nodes
from muster.engine.elastic import outside, resized, turn_of
from muster.engine.grains import nvlink_depth
from muster.engine.pending import Gang
from muster.engine.running import RunningGang
from muster.engine.state import REPLACEMENT
from muster.kernels import Ints
from muster.model.fleet import Node
from muster.model.plan import Decision, Evict, Migrate
from muster.model.reasons import Reason
from muster.model.snapshot import NodeFailure

if TYPE_CHECKING:
    from muster.engine.books import Books


class FailureLog:
    """Which work failed where, for as long as it counts.

    Args:
        window_s: how long a failure counts.
        failures: those that are known at the start.
    """

    def __init__(self, window_s: float, failures: Iterable[NodeFailure] = ()) -> None:
        self.window_s = window_s
        self._by_node: dict[str, list[NodeFailure]] = {}
        for each in failures:
            self._by_node.setdefault(each.node, []).append(each)

    def copy(self) -> FailureLog:
        """An independent copy."""
        return FailureLog(self.window_s, (each for failures in self._by_node.values() for each in failures))

    def add(self, failure: NodeFailure) -> tuple[str, ...]:
        """Note a failure; the different workloads that failed on its node within the window, this one included."""
        kept = [each for each in self._by_node.get(failure.node, ()) if failure.time_s - each.time_s < self.window_s]
        self._by_node[failure.node] = [*kept, failure]
        return tuple(dict.fromkeys(each.workload for each in self._by_node[failure.node]))

    def forget(self, node: str) -> None:
        """The node was looked after: what failed on it counts no more."""
        self._by_node.pop(node, None)

    def nodes_of(self, workload: str, now_s: float) -> list[str]:
        """The nodes on which a workload has failed within the window."""
        return [
            node
            for node, failures in self._by_node.items()
            if any(each.workload == workload and now_s - each.time_s < self.window_s for each in failures)
        ]

    def known(self, now_s: float) -> tuple[NodeFailure, ...]:
        """All failures that still count."""
        failures = (each for failures in self._by_node.values() for each in failures)
        return tuple(each for each in failures if now_s - each.time_s < self.window_s)


def lose_pods(books: Books, node: Node, now_s: float, *, everything: bool) -> None:
    """Running gangs lose their pods on devices of a node that are not healthy; or all that they have there."""
    cluster = books.cluster
    position = cluster.position[node.name]
    dead = sum(1 << device.index for device in node.devices if not device.healthy)
    for run in list(books.running):
        if position not in run.nodes:
            continue
        lost = (run.rows[0] == position) & ((run.rows[2] & dead != 0) | everything)
        columns = np.flatnonzero(lost).tolist()
        if columns:
            for slot in books.slots.values():
                slot.changes(run, cluster, -1)
            cluster.release(run.rows[:, columns])
            ranks = [rank for rank in range(run.kind.count) if rank not in run.missing]
            run.missing = tuple(sorted((*run.missing, *(ranks[column] for column in columns))))
            run.stand_on(np.delete(run.rows, columns, axis=1))
            for slot in books.slots.values():
                slot.changes(run, cluster, 1)
            if run.leaving_s is None:
                books.broken.setdefault(run.workload.name, now_s)


def repair(books: Books, now_s: float) -> list[Decision]:
    """What becomes of the gangs that lost pods, those first that are first in order."""
    decisions: list[Decision] = []
    broken = [books.running[name] for name in books.broken if name in books.running]
    for run in sorted(broken, key=lambda run: turn_of(books, run)):
        decision = _replace(books, run, now_s)
        if decision is None and run.workload.elastic:
            if _should_wait(books, run, now_s):
                continue
            decision = _go_on_smaller(books, run, now_s)
        if decision is None:
            decision = Evict(run.workload.name, "", "failure", run.lost_gpu_s(now_s))
            books.send_back(run.workload.name, now_s)
        decisions.append(decision)
        books.broken.pop(run.workload.name, None)
    return decisions


def _replace(books: Books, run: RunningGang, now_s: float) -> Migrate | None:
    """Give a gang other pods for those that it lost, on spare nodes if possible."""
    cluster, missing = books.cluster, _replacements(books, run)
    away = _away_from_its_group(books, run)
    if away is None:
        return None
    holds = books.holds(run.workload, now_s, run) + outside(books, run) + away
    placed: Ints | Reason = Reason.CAPACITY
    if spares := _others_than_spares(books):
        placed = books.place_beside(missing, run.flavor, [*holds, spares])
    if isinstance(placed, Reason):
        placed = books.place_beside(missing, run.flavor, holds)
    if isinstance(placed, Reason):
        return None
    rows = np.zeros((3, run.kind.count), np.int64)
    rows[:, run.missing] = placed
    rows[:, np.setdiff1d(np.arange(run.kind.count), run.missing)] = run.rows
    cost_gpu_s = run.lost_gpu_s(now_s)
    run.missing = ()
    books.rebook(run, run.kind, rows, now_s)
    run.checkpointed_s = now_s  # what was done since its last checkpoint is lost, and no more at risk
    return Migrate(run.workload.name, cluster.places(run.rows), "failure", cost_gpu_s)


def _replacements(books: Books, run: RunningGang) -> GangKind:
    """The pods that a gang lost, as a kind that may use spare nodes."""
    sets = tuple(
        replace(
            each, count=count, min_count=None,
            shape=replace(each.shape, tolerations=tuple(sorted({*each.shape.tolerations, REPLACEMENT}))),
        )
        for each, count in zip(run.kind.asked, run.per_set(run.missing), strict=True)
    )  # fmt: skip
    return books.cluster.kind(sets, run.kind.topology, run.kind.flavors)


def _group_of(run: RunningGang, size: int) -> Ints:
    """Of each rank, the run of ``size`` ranks that it belongs to; -1 for pods without GPUs, which belong to none."""
    gpus = np.repeat([each.shape.gpus > 0 for each in run.kind.asked], run.counts)
    return np.where(gpus, (np.cumsum(gpus) - 1) // size, -1)


def _away_from_its_group(books: Books, run: RunningGang) -> list[Hold] | None:
    """Keeps lost pods of tensor parallel groups in the NVLink domain of the others; None if that are several."""
    size, index = run.kind.groups.together, books.cluster.index
    if size == 1:
        return []
    group = _group_of(run, size)
    there = np.setdiff1d(np.arange(run.kind.count), run.missing)
    beside = np.isin(group[there], group[list(run.missing)]) & (group[there] >= 0)
    domain = index.groups[nvlink_depth(index)]
    domains = np.unique(domain[run.rows[0, beside]])
    whole_groups = not beside.any() and len(run.missing) == size
    if len(domains) != 1 and not whole_groups:
        return None
    elsewhere: list[int] = np.flatnonzero(domain != domains[0]).tolist() if len(domains) else []
    return [whole_nodes(books.cluster, elsewhere)]


def _others_than_spares(books: Books) -> Hold | None:
    nodes = books.cluster.fleet.nodes
    if not any(node.spare and node.schedulable for node in nodes):
        return None
    return whole_nodes(books.cluster, [position for position, node in enumerate(nodes) if not node.spare])


def _should_wait(books: Books, run: RunningGang, now_s: float) -> bool:
    """Whether an elastic gang waits for a replacement rather than to go on smaller."""
    until_s = _waits_until_s(books, run)
    if now_s >= until_s:
        return False
    gang = Gang(run.workload, _replacements(books, run))
    others = list(books.slots.values())
    kept = books.kept_from(run.workload)
    return books.look_ahead(now_s).earliest(gang, run.flavor, now_s, others, until_s, kept) is not None


def _waits_until_s(books: Books, run: RunningGang) -> float:
    """Up to when waiting loses less than going on smaller and growing back."""
    pods, saved = sum(run.counts), run.workload.checkpointing
    worth_s = 2.0 * (saved.restart_s if saved else 0.0) * pods / max(1, pods - len(run.missing))
    return books.broken[run.workload.name] + worth_s


def next_repair_s(books: Books, now_s: float) -> float:
    """When the next gang that waits for a replacement waits no longer; infinite if none does."""
    waits = (_waits_until_s(books, books.running[name]) for name in books.broken)
    return min((time_s for time_s in waits if time_s > now_s), default=math.inf)


def _go_on_smaller(books: Books, run: RunningGang, now_s: float) -> Decision | None:
    """An elastic gang without what it lost, at the largest size that it may have; None if too little is left."""
    cluster, near = books.cluster, run.kind.groups.near
    full = cluster.kind_of(run.workload)
    there = np.setdiff1d(np.arange(run.kind.count), run.missing)
    group = _group_of(run, near)
    torn = np.isin(group[there], group[list(run.missing)]) & (group[there] >= 0) & (near > 1)
    present = run.per_set(there[~torn].tolist())
    size = next((size for size in reversed(full.sizes) if all(map(int.__ge__, present, size))), None)
    if size is None:
        return None
    cost_gpu_s = run.lost_gpu_s(now_s)
    sets = np.repeat(np.arange(len(run.counts)), run.counts)[there]
    spared = np.zeros(len(there), np.bool_)
    for number, count in enumerate(size):  # the first of each set that are left, replica by replica
        spared[np.flatnonzero((sets == number) & ~torn)[:count]] = True
    cluster.release(run.rows[:, ~spared])
    rows = run.rows[:, spared]
    run.missing = ()
    books.rebook(run, cluster.sized(full, size), rows, now_s)
    return replace(resized(books, run, now_s, "failure"), cost_gpu_s=cost_gpu_s)
