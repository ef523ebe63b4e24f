"""Work that runs on nodes of somebody else's choice: which devices it is taken to have there.

Kubernetes tells on which node a pod runs, and not on which of its GPUs. What counts for all that is placed later is how
much of each GPU is taken: whole ones are taken to be the lowest that are free, shares to stand on the fullest GPU that
has room, MIG instances where the engine itself would put them.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.engine.cluster import Cluster, GangKind
from muster.engine.state import Allocation
from muster.errors import CapacityError
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.plan import PodPlacement


def places_on(cluster: Cluster, kind: GangKind, flavor: str, nodes: Sequence[str]) -> tuple[PodPlacement, ...] | str:
    """A placement for each pod of a kind, in order, on the nodes that are named; else why there is no room.

    Nothing is taken: the caller enters it.
    """
    shapes = [shape for shape, count in cluster.pods_of(kind, flavor).T.tolist() for _ in range(count)]
    found: list[PodPlacement] = []
    with cluster.state.trial():
        for shape, name in zip(shapes, nodes, strict=True):
            position = cluster.position.get(name)
            if position is None:
                return f"runs on node {name}, which is not there"
            place = _place_on(cluster, shape, position)
            if isinstance(place, str):
                return f"runs on node {name}, {place}"
            found.append(place)
    return tuple(found)


def _place_on(cluster: Cluster, shape: int, node: int) -> PodPlacement | str:
    state = cluster.state
    wanted = state.shape_list[shape]
    free: list[int] = state.nodes.gpu_free[node].tolist()
    order = [index for index, milli in enumerate(free) if milli >= wanted.gpu_milli]
    if wanted.gpus and wanted.gpu_milli < WHOLE_GPU_MILLI:
        order.sort(key=lambda index: (free[index], index))
    if wanted.gpus and len(order) < wanted.gpus:
        return f"which has {len(order)} GPUs free, not {wanted.gpus}"
    choices = [order[: wanted.gpus]]
    if wanted.gpus == 1:
        choices = [[index] for index in order]
    why = ""
    for devices in choices:
        mask = sum(1 << index for index in devices)
        try:
            row = state.row_on(shape, node, mask)
            allocation = Allocation(node, row, mask)
            state.assign(allocation)
        except CapacityError as error:
            why = str(error).partition(": ")[2] or str(error)
            continue
        instance = state.instances.get(row)
        mig = (instance.profile, instance.start) if instance else ("", -1)
        milli = state.shape_list[row].gpu_milli if devices else 0
        return PodPlacement(state.node_names[node], tuple(devices), milli, *mig)
    return f"where {why}" if why else "which has no GPU that may be shared so"
