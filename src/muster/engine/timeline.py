"""Reserved starts: when and where a gang that waits will start, and what must stay free for it until then."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from muster.engine.cluster import Cluster, Hold
from muster.engine.kernels.future import add_use, keep_for_all
from muster.engine.pending import Gang
from muster.engine.predict import Span
from muster.engine.running import RunningGang
from muster.engine.sharing import keep_whole
from muster.kernels import ON_NODE, Ints, direct
from muster.model.plan import Reserve

_add_use, _keep_for_all = direct(add_use), direct(keep_for_all)


class Slot:
    """A reserved start: the gang's places ``rows`` (node, shape and device mask) from ``start_s`` to ``end_s``.

    ``need`` and ``coming`` have a row for each of ``nodes``: CPU, memory and pods, then each device. ``need`` is what
    the gang takes there; ``coming`` is what running work will have given back by its start (``waits_for`` names it).
    What is needed and not coming must stay free: work that would still run at the start cannot have it. Where GPUs are
    kept from others by those who share them, a GPU is needed ``whole``. A start is ``sure`` if all work that it waits
    for has a stated limit; then only such work may run past it. ``lasts_s`` is how long the gang was taken to run when
    it was made; that is ``limited`` if it is the limit that its owner stated.
    """

    def __init__(self, gang: Gang, flavor: str, start_s: float, lasts_s: float, rows: Ints, cluster: Cluster) -> None:
        self.name = gang.workload.name
        self.priority = gang.workload.priority
        self.lasts_s = lasts_s
        self.limited = lasts_s == gang.workload.time_limit_s
        self.flavor = flavor
        self.start_s = start_s
        self.end_s = start_s + lasts_s
        self.rows = rows
        self.nodes: Ints = np.unique(rows[0])
        self.need = np.zeros((len(self.nodes), ON_NODE + cluster.state.nodes.gpu_free.shape[1]), np.int64)
        _add_use(rows, 1, self.nodes, self.need, cluster.state.shapes)
        self.whole = cluster.state.owned
        if self.whole:
            keep_whole(self.need)
        self.coming = np.zeros_like(self.need)
        self.waits_for: set[str] = set()
        self.stale = False
        self.sure = True
        self._nodes = frozenset[int](self.nodes.tolist())

    def overlaps(self, span: Span) -> bool:
        """Whether work runs at the same time; beside a sure start it counts for as long as it may run at most."""
        ends_s = span.surely_s if self.sure else span.ends_s
        return self.start_s < ends_s and span.start_s < self.end_s

    def shares_nodes(self, other: Slot) -> bool:
        """Whether both are to stand on some node."""
        return not self._nodes.isdisjoint(other._nodes)

    def from_now(self, now_s: float) -> Slot:
        """The same slot, moved: its time has passed and the gang has not started."""
        moved = copy.copy(self)
        moved.start_s, moved.end_s = now_s, now_s + self.lasts_s
        moved.coming, moved.waits_for = self.coming.copy(), set(self.waits_for)
        return moved

    def repeats(self, told: Slot | None) -> bool:
        """Whether it says the same, start and nodes and how sure, as one that was told before."""
        if told is None or (self.start_s, self.sure) != (told.start_s, told.sure):
            return False
        return np.array_equal(self.nodes, told.nodes)

    def hold(self) -> Hold:
        """What must stay free of the nodes."""
        return Hold(self.nodes, np.maximum(0, self.need - self.coming))

    def build_on(self, run: RunningGang, cluster: Cluster) -> None:
        """Running work that will have ended by the start; of no interest if it is on other nodes."""
        if not run.nodes.isdisjoint(self._nodes) and self._count(run, cluster, 1):
            self.waits_for.add(run.workload.name)
            self.sure &= run.sure

    def expect(self, run: RunningGang, cluster: Cluster) -> None:
        """Work starts, or has other places now: if it ends by the start, what it holds will be there."""
        if run.limit_s <= self.start_s and (run.sure or not self.sure):
            self.build_on(run, cluster)

    def needs_end_of(self, run: RunningGang) -> bool:
        """Whether it waits for running work that now ends after the start."""
        return self.start_s < run.limit_s and run.workload.name in self.waits_for

    def ended(self, run: RunningGang, cluster: Cluster) -> None:
        """Running work has ended: what it gives back is no longer coming but there."""
        if run.workload.name in self.waits_for:
            self.waits_for.remove(run.workload.name)
            self._count(run, cluster, -1)

    def stands_on(self, node: int) -> bool:
        """Whether the gang is to stand on a node."""
        return node in self._nodes

    def changes(self, run: RunningGang, cluster: Cluster, sign: int) -> None:
        """The places of running work that it waits for are about to change (-1), or have changed (1)."""
        if run.workload.name in self.waits_for:
            self._count(run, cluster, sign)

    def _count(self, run: RunningGang, cluster: Cluster, sign: int) -> bool:
        return _add_use(run.rows, sign, self.nodes, self.coming, cluster.state.shapes) > 0

    def reserve(self, cluster: Cluster) -> Reserve:
        """The slot as a decision, its nodes in the fleet's order."""
        nodes: list[int] = self.nodes.tolist()
        names = tuple(cluster.state.node_names[node] for node in nodes)
        return Reserve(self.name, self.start_s, names, self.sure)


def kept_for(slots: Sequence[Slot], now_s: float) -> list[Hold]:
    """What must stay free for some slots, from now on: on each node the most that is needed at any of their starts.

    What is needed at a time is what the slots under way then take, less what running work gives back until then.
    """
    if len(slots) < 2:
        return [slot.hold() for slot in slots]
    counts = [len(slot.nodes) for slot in slots]
    nodes = np.concatenate([slot.nodes for slot in slots])
    order = np.argsort(nodes, kind="stable")
    needs, coming = (np.concatenate([getattr(slot, what) for slot in slots])[order] for what in ("need", "coming"))
    times = np.array([(max(slot.start_s, now_s), slot.end_s) for slot in slots])
    spans = np.ascontiguousarray(np.repeat(times, counts, axis=0)[order].T)
    rows, first = np.unique(nodes[order], return_index=True)
    most = np.zeros((len(rows), needs.shape[1]), np.int64)
    _keep_for_all(np.append(first, len(nodes)), spans, needs, coming, most)
    return [Hold(rows, most)]
