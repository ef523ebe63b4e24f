"""The time axis: when and where a gang that waits could start, if what runs ends when it should."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from muster.engine.cluster import Cluster, Hold
from muster.engine.pending import Gang
from muster.engine.running import RunningSet
from muster.kernels import Ints
from muster.model.reasons import Reason


class Slot:
    """A reserved start: the gang's places from ``start_s`` on.

    ``spare`` has a row for each of ``nodes``: the CPU, the memory and of each device what will be left beside the gang
    at its start. Work that will still run then may take that much of the node now, and no more.
    """

    def __init__(self, gang: Gang, flavor: str, start_s: float, nodes: Ints, spare: Ints) -> None:
        self.name = gang.workload.name
        self.priority = gang.workload.priority
        self.flavor = flavor
        self.start_s = start_s
        self.nodes = nodes
        self.spare = spare
        self.stale = False
        self._row = {node: row for row, node in enumerate(nodes.tolist())}

    def hold(self, cluster: Cluster) -> Hold:
        """What of the nodes must be left alone by work that will still run at the start."""
        arrays = cluster.state.nodes
        free = np.concatenate(
            [
                arrays.cpu_free[self.nodes, None],
                arrays.memory_free[self.nodes, None],
                arrays.gpu_free[self.nodes],
            ],
            axis=1,
        )
        return Hold(self.nodes, np.maximum(0, free - self.spare))

    def charge(self, cluster: Cluster, rows: Ints) -> None:
        """Work that will still run at the start has taken the places ``rows``."""
        shapes = cluster.state.shapes
        for node, shape, devices in rows.T.tolist():
            row = self._row.get(node)
            if row is not None:
                self.spare[row, 0] -= shapes.cpu[shape]
                self.spare[row, 1] -= shapes.memory[shape]
                for device in range(self.spare.shape[1] - 2):
                    if devices >> device & 1:
                        self.spare[row, 2 + device] -= shapes.gpu_milli[shape]

    def node_names(self, cluster: Cluster) -> tuple[str, ...]:
        """The nodes by name, in the fleet's order."""
        nodes: list[int] = self.nodes.tolist()
        return tuple(cluster.state.node_names[node] for node in nodes)


def earliest_slot(
    cluster: Cluster, running: RunningSet, gang: Gang, flavor: str, now_s: float, slots: Sequence[Slot]
) -> Slot | None:
    """The earliest start of a gang beside the slots of those ahead of it; None if it does not fit with nothing running.

    Ideally running work is released one by one in the order of its end, and the gang is tried after each. Trying is
    monotone (more room never makes it fail), so the number of releases is found by doubling and halving.
    """
    ends = running.by_end(now_s)
    gone = 0

    def release_to(count: int) -> None:
        nonlocal gone
        while gone < count:
            cluster.give_back(ends[gone][1].rows)
            gone += 1
        while gone > count:
            gone -= 1
            cluster.take(ends[gone][1].rows)

    def hold(stack: ExitStack) -> None:
        # what others have reserved grows as work ends on their nodes, so it is held anew for each count
        for slot in slots:
            stack.enter_context(cluster.holding(slot.hold(cluster)))

    def fits(count: int) -> bool:
        release_to(count)
        with ExitStack() as stack:
            hold(stack)
            return cluster.fits(gang.kind, flavor)

    try:
        enough = _least(fits, len(ends))
        if enough is None:
            return None
        release_to(enough)
        with ExitStack() as stack:
            hold(stack)
            placed = cluster.place(gang.kind, flavor)
            if isinstance(placed, Reason):
                return None
            nodes = np.unique(placed[0])
            arrays = cluster.state.nodes
            spare = np.concatenate(
                [arrays.cpu_free[nodes, None], arrays.memory_free[nodes, None], arrays.gpu_free[nodes]], axis=1
            )
            cluster.give_back(placed)
    finally:
        release_to(0)
    start_s = ends[enough - 1][0] if enough else now_s
    return Slot(gang, flavor, start_s, nodes, spare)


def _least(fits: object, most: int) -> int | None:
    """The least count in 0..most for which ``fits`` holds; None if it holds for none."""
    assert callable(fits)
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
