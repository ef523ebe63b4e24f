"""The time axis: when and where a gang that waits could start, if what runs ends when it should."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from muster.engine.cluster import Cluster, Hold
from muster.engine.pending import Gang
from muster.engine.running import RunningGang, RunningSet
from muster.kernels import Ints
from muster.model.reasons import Reason


class Slot:
    """A reserved start: the gang's places from ``start_s`` to ``end_s``.

    ``need`` and ``coming`` have a row for each of ``nodes``: CPU, memory, then each device. ``need`` is what the gang
    takes there; ``coming`` is what running work will have given back by its start (``waits_for`` names it). What is
    needed and not coming must stay free: work that would still run at the start cannot have it.
    """

    def __init__(self, gang: Gang, flavor: str, start_s: float, end_s: float, nodes: Ints, need: Ints) -> None:
        self.name = gang.workload.name
        self.priority = gang.workload.priority
        self.flavor = flavor
        self.start_s = start_s
        self.end_s = end_s
        self.nodes = nodes
        self.need = need
        self.coming = np.zeros_like(need)
        self.waits_for: set[str] = set()
        self.stale = False
        self._row: dict[int, int] = {node: row for row, node in enumerate(nodes.tolist())}

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Whether work from ``start_s`` to ``end_s`` runs at the same time."""
        return self.start_s < end_s and start_s < self.end_s

    def hold(self) -> Hold:
        """What must stay free of the nodes."""
        return Hold(self.nodes, np.maximum(0, self.need - self.coming))

    def expect(self, run: RunningGang, cluster: Cluster) -> None:
        """Running work that will have ended by the start; of no interest if it is on other nodes."""
        if not run.nodes.isdisjoint(self._row) and self._count(run, cluster, 1):
            self.waits_for.add(run.workload.name)

    def ended(self, run: RunningGang, cluster: Cluster) -> None:
        """Running work has ended: what it gives back is no longer coming but there."""
        if run.workload.name in self.waits_for:
            self.waits_for.remove(run.workload.name)
            self._count(run, cluster, -1)

    def stands_on(self, node: int) -> bool:
        """Whether the gang is to stand on a node."""
        return node in self._row

    def changes(self, run: RunningGang, cluster: Cluster, sign: int) -> None:
        """The places of running work that it waits for are about to change (-1), or have changed (1)."""
        if run.workload.name in self.waits_for:
            self._count(run, cluster, sign)

    def suppose(self, run: RunningGang, cluster: Cluster, sign: int) -> None:
        """In a trial: work that it waits for has ended (-1), or has not after all (1)."""
        self._count(run, cluster, sign)

    def _count(self, run: RunningGang, cluster: Cluster, sign: int) -> bool:
        return add_rows(self.coming, self._row, run.rows, cluster, sign)

    def node_names(self, cluster: Cluster) -> tuple[str, ...]:
        """The nodes by name, in the fleet's order."""
        nodes: list[int] = self.nodes.tolist()
        return tuple(cluster.state.node_names[node] for node in nodes)


def add_rows(amounts: Ints, row_of: dict[int, int], rows: Ints, cluster: Cluster, sign: int) -> bool:
    """Add what the pods ``rows`` take to ``amounts``, on the nodes that ``row_of`` knows; whether there was any."""
    shapes = cluster.state.shapes
    pods: list[list[int]] = rows.T.tolist()
    found = False
    for node, shape, devices in pods:
        row = row_of.get(node)
        if row is None:
            continue
        found = True
        amounts[row, 0] += sign * shapes.cpu[shape]
        amounts[row, 1] += sign * shapes.memory[shape]
        for device in range(devices.bit_length()):
            if devices >> device & 1:
                amounts[row, 2 + device] += sign * shapes.gpu_milli[shape]
    return found


def earliest_slot(
    cluster: Cluster, running: RunningSet, gang: Gang, flavor: str, now_s: float, slots: Sequence[Slot]
) -> Slot | None:
    """The earliest start of a gang that delays none of ``slots``; None if it does not fit with nothing running.

    Ideally running work is released one by one in the order of its end, and the gang is tried after each. Without the
    slots of others, trying is monotone (more room never makes it fail), so the first time is found by doubling and
    halving; from there on, with the slots, time by time.
    """
    return _Search(cluster, running, gang, flavor, now_s, slots).first()


class _Search:
    def __init__(
        self, cluster: Cluster, running: RunningSet, gang: Gang, flavor: str, now_s: float, slots: Sequence[Slot]
    ) -> None:
        self.cluster = cluster
        self.gang = gang
        self.flavor = flavor
        self.now_s = now_s
        self.slots = slots
        self.runs = running.by_end(now_s)
        self.waiting: dict[str, list[Slot]] = {}
        for slot in slots:
            for name in slot.waits_for:
                self.waiting.setdefault(name, []).append(slot)
        self.expected_s = running.expected_s(gang.workload)
        self.gone = 0

    def first(self) -> Slot | None:
        try:
            enough = _least(self._fits, len(self.runs))
            if enough is None:
                return None
            start_s = self.runs[enough - 1][0] if enough else self.now_s
            if not self.slots:
                return self._slot_at(start_s)
            later = {end_s for end_s, _ in self.runs[enough:]} | {slot.end_s for slot in self.slots}
            for time_s in [start_s, *sorted(time_s for time_s in later if time_s > start_s)]:
                slot = self._slot_at(time_s)
                if slot is not None:
                    return slot
            return None
        finally:
            self._release_to(0)

    def _fits(self, count: int) -> bool:
        self._release_to(count)
        return self.cluster.fits(self.gang.kind.least, self.flavor)

    def _release_to(self, count: int) -> None:
        while self.gone < count:
            run = self.runs[self.gone][1]
            self.cluster.give_back(run.rows)
            for slot in self.waiting.get(run.workload.name, ()):
                slot.suppose(run, self.cluster, -1)
            self.gone += 1
        while self.gone > count:
            self.gone -= 1
            run = self.runs[self.gone][1]
            self.cluster.take(run.rows)
            for slot in self.waiting.get(run.workload.name, ()):
                slot.suppose(run, self.cluster, 1)

    def _slot_at(self, start_s: float) -> Slot | None:
        """The gang's slot at a time, if it fits there beside the slots of others."""
        self._release_to(bisect_right(self.runs, start_s, key=lambda each: each[0]))
        end_s = start_s + self.expected_s
        with ExitStack() as stack:
            for slot in self.slots:
                if slot.overlaps(start_s, end_s):
                    stack.enter_context(self.cluster.holding(slot.hold()))
            placed = self.cluster.place(self.gang.kind.least, self.flavor)
            if isinstance(placed, Reason):
                return None
            self.cluster.give_back(placed)
        nodes = np.unique(placed[0])
        row_of: dict[int, int] = {node: row for row, node in enumerate(nodes.tolist())}
        need = np.zeros((len(nodes), 2 + self.cluster.state.nodes.gpu_free.shape[1]), np.int64)
        add_rows(need, row_of, placed, self.cluster, 1)
        found = Slot(self.gang, self.flavor, start_s, end_s, nodes, need)
        for _, run in self.runs[: self.gone]:
            found.expect(run, self.cluster)
        return found


def _least(fits: Callable[[int], bool], most: int) -> int | None:
    """The least count in 0..most for which ``fits`` holds; None if it holds for none."""
    low, high = -1, 0
    while not fits(high):
        if high == most:
            return None
        low, high = high, min(most, max(1, 2 * high))
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle
    return high
