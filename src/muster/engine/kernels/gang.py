"""Many pods in one call: how many of a shape there is room for, a gang's placement, and its release."""

from __future__ import annotations

from muster.engine.kernels.nodes import apply, refusal
from muster.engine.kernels.place import DEVICES, ROW, Scene, place_one
from muster.kernels import (
    ALL_GPUS,
    CONSTRAINT,
    CPU,
    FREE_CPU,
    FREE_MEMORY,
    FREE_PODS,
    GPU_MILLI,
    GPUS,
    MEMORY,
    Ints,
    NodeArrays,
    ShapeArrays,
    entry_kernel,
)
from muster.policy.sharing import plain, room_on


@entry_kernel
def count_room(shape: int, enough: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """How many pods of the shape the fleet takes as it is now, counted up to ``enough``.

    Ideally each pod is placed in turn until none fits. Equal pods take the same wherever they land, so the room of a
    node does not depend on the order, and nodes are simply summed. Exact for whole GPUs, for a share of one GPU and
    for pods without GPUs; for fractions of several GPUs it is an upper bound (devices of a pod must differ).
    """
    constraint = shapes.table[shape, CONSTRAINT]
    cpu = shapes.table[shape, CPU]
    memory = shapes.table[shape, MEMORY]
    gpus = shapes.table[shape, GPUS]
    milli = shapes.table[shape, GPU_MILLI]
    total = 0
    for node in range(nodes.table.shape[0]):
        if shapes.static_refusals[constraint, node] != 0 or gpus > nodes.table[node, ALL_GPUS]:
            continue
        room = min(enough - total, nodes.table[node, FREE_PODS])
        if cpu > 0:
            room = min(room, nodes.table[node, FREE_CPU] // cpu)
        if memory > 0:
            room = min(room, nodes.table[node, FREE_MEMORY] // memory)
        if gpus > 0:
            slots = 0
            if plain(node, shape, nodes, shapes):
                for device in range(nodes.gpu_free.shape[1]):
                    slots += nodes.gpu_free[node, device] // milli
            else:
                for device in range(nodes.gpu_free.shape[1]):
                    slots += room_on(node, device, shape, nodes, shapes)
            room = min(room, slots // gpus)
        if room > 0:
            total += room
            if total == enough:
                break
    return total


@entry_kernel
def any_takes(shape: int, rows: Ints, nodes: NodeArrays, shapes: ShapeArrays) -> bool:
    """Whether any of the nodes ``rows`` takes a pod of the shape."""
    takes = False
    for index in range(rows.shape[0]):
        takes = takes or refusal(rows[index], shape, nodes, shapes) == 0
    return takes


@entry_kernel
def place_gang(pod_sets: Ints, scene: Scene, out: Ints) -> int:
    """Place a gang, all or none; returns how many pods were placed: all, or 0 with the state as it was.

    Row 0 of ``pod_sets`` are shapes, row 1 counts. Rows of ``out`` get node, shape and device mask of each pod.
    A gang for which there is no room is not tried: that is far cheaper than placing most of it and taking it back.
    """
    nodes, shapes = scene.nodes, scene.shapes
    pods = 0
    for each in range(pod_sets.shape[1]):
        pods += pod_sets[1, each]
    if pods > 1:
        for each in range(pod_sets.shape[1]):
            if count_room(pod_sets[0, each], pod_sets[1, each], nodes, shapes) < pod_sets[1, each]:
                return 0
    placed = 0
    for each in range(pod_sets.shape[1]):
        shape = pod_sets[0, each]
        for _ in range(pod_sets[1, each]):
            node = place_one(shape, scene)
            if node < 0:
                for back in range(placed - 1, -1, -1):
                    apply(out[0, back], out[1, back], out[2, back], -1, nodes, shapes)
                return 0
            out[0, placed] = node
            out[1, placed] = scene.cache.marks[ROW]
            out[2, placed] = scene.cache.marks[DEVICES]
            placed += 1
    return placed


@entry_kernel
def release_pods(pods: Ints, nodes: NodeArrays, shapes: ShapeArrays) -> None:
    """Take back what pods were given: rows of ``pods`` are node, shape and device mask, a column a pod."""
    for pod in range(pods.shape[1]):
        apply(pods[0, pod], pods[1, pod], pods[2, pod], -1, nodes, shapes)
