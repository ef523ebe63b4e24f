"""Many pods in one call: how many of a shape there is room for, and the release of a whole gang."""

from __future__ import annotations

from muster.engine.kernels.nodes import apply
from muster.kernels import Ints, NodeArrays, ShapeArrays, kernel


@kernel
def count_room(shape: int, enough: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """How many pods of the shape the fleet takes as it is now, counted up to ``enough``.

    Ideally each pod is placed in turn until none fits. Equal pods take the same wherever they land, so the room of a
    node does not depend on the order, and nodes are simply summed. Exact for whole GPUs, for a fraction of one GPU and
    for pods without GPUs; for fractions of several GPUs it is an upper bound (devices of a pod must differ).
    """
    constraint = shapes.constraint[shape]
    cpu = shapes.cpu[shape]
    memory = shapes.memory[shape]
    gpus = shapes.gpus[shape]
    milli = shapes.gpu_milli[shape]
    total = 0
    for node in range(nodes.kind.shape[0]):
        if shapes.static_refusals[constraint, node] != 0 or gpus > nodes.gpus[node]:
            continue
        room = enough - total
        if cpu > 0:
            room = min(room, nodes.cpu_free[node] // cpu)
        if memory > 0:
            room = min(room, nodes.memory_free[node] // memory)
        if gpus > 0:
            slots = 0
            for device in range(nodes.gpu_free.shape[1]):
                slots += nodes.gpu_free[node, device] // milli
            room = min(room, slots // gpus)
        if room > 0:
            total += room
            if total == enough:
                break
    return total


@kernel
def release_pods(pods: Ints, nodes: NodeArrays, shapes: ShapeArrays) -> None:
    """Take back what pods were given: rows of ``pods`` are node, shape and device mask, a column a pod."""
    for pod in range(pods.shape[1]):
        apply(pods[0, pod], pods[1, pod], pods[2, pod], -1, nodes, shapes)
