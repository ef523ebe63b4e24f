"""Pods within given nodes: how many each node has room for, and filling topology domains under the policy."""

from __future__ import annotations

import numpy as np

from muster.engine.kernels.nodes import apply
from muster.engine.kernels.place import RANDOM, ROW, Scene, give, random_below, refresh, select_devices
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
    kernel,
)
from muster.policy.sharing import plain, room_on

WHOLE = 1000


@kernel
def slots_of(free: int, milli: int) -> int:
    """How many shares of ``milli`` a device has room for: the common cases without a division."""
    if free < milli:
        return 0
    if milli == WHOLE:
        return 1
    return free // milli


@kernel
def shared_room(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """`distinct_room` on a node where GPUs are shared."""
    gpus = shapes.table[shape, GPUS]
    slots = 0
    for device in range(nodes.gpu_free.shape[1]):
        slots += room_on(node, device, shape, nodes, shapes)
    room = slots // gpus
    while gpus > 1 and room > 0:
        usable = 0
        for device in range(nodes.gpu_free.shape[1]):
            usable += min(room_on(node, device, shape, nodes, shapes), room)
        if usable >= room * gpus:
            break
        room -= 1
    return room


@kernel
def distinct_room(node: int, gpus: int, milli: int, nodes: NodeArrays) -> int:
    """How many pods that take ``milli`` of each of ``gpus`` different devices the node's devices have room for.

    The largest t with: sum over devices of min(slots of the device, t) >= t * gpus. Each pod then gets a device at
    most once (the wrap-around rule: fill devices in turn; no device holds more than t shares, so none meets itself).
    """
    slots = 0
    for device in range(nodes.gpu_free.shape[1]):
        slots += slots_of(nodes.gpu_free[node, device], milli)
    room = slots // gpus
    if gpus == 1 or milli == WHOLE:
        return room
    while room > 0:
        usable = 0
        for device in range(nodes.gpu_free.shape[1]):
            usable += min(slots_of(nodes.gpu_free[node, device], milli), room)
        if usable >= room * gpus:
            break
        room -= 1
    return room


@entry_kernel
def node_rooms(
    shape: int, most: int, order: Ints, start: int, end: int, nodes: NodeArrays, shapes: ShapeArrays, out: Ints
) -> int:
    """How many pods of the shape each of the nodes ``order[start:end]`` takes as it is, at most ``most``.

    Writes them to ``out`` (N, by node) and returns their sum.

    Equal pods take the same wherever they land, so this is exact: whatever the order, as many fit as are counted.
    """
    constraint = shapes.table[shape, CONSTRAINT]
    cpu, memory = shapes.table[shape, CPU], shapes.table[shape, MEMORY]
    gpus, milli = shapes.table[shape, GPUS], shapes.table[shape, GPU_MILLI]
    total = 0
    for index in range(start, end):
        node = order[index]
        room = min(most, max(nodes.table[node, FREE_PODS], 0))
        if shapes.static_refusals[constraint, node] != 0 or gpus > nodes.table[node, ALL_GPUS]:
            room = 0
        if gpus > 0 and room > 0:
            if plain(node, shape, nodes, shapes):
                room = min(room, distinct_room(node, gpus, milli, nodes))
            else:
                room = min(room, shared_room(node, shape, nodes, shapes))
        if cpu > 0 and room > 0:
            room = min(room, nodes.table[node, FREE_CPU] // cpu)
        if memory > 0 and room > 0:
            room = min(room, nodes.table[node, FREE_MEMORY] // memory)
        out[node] = room
        total += room
    return total


@kernel
def roomiest_devices(node: int, wanted: int, milli: int, nodes: NodeArrays) -> int:
    """The ``wanted`` devices with most slots of ``milli``, the first of equals: spoils least for pods of the kind."""
    mask = 0
    for _ in range(wanted):
        best = -1
        for device in range(nodes.gpu_free.shape[1]):
            if (mask >> device) & 1 == 0 and (
                best < 0 or slots_of(nodes.gpu_free[node, device], milli) > slots_of(nodes.gpu_free[node, best], milli)
            ):
                best = device
        mask |= 1 << best
    return mask


@kernel
def roomiest_shared(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """`roomiest_devices` on a node where GPUs are shared."""
    mask = 0
    for _ in range(shapes.table[shape, GPUS]):
        best = -1
        most = -1
        for device in range(nodes.gpu_free.shape[1]):
            if (mask >> device) & 1 == 0:
                room = room_on(node, device, shape, nodes, shapes)
                if room > most:
                    most = room
                    best = device
        mask |= 1 << best
    return mask


@kernel
def best_member(shape: int, order: Ints, start: int, end: int, scene: Scene) -> int:
    """Of the nodes ``order[start:end]`` the one that the policy scores best, the first in tie order; -1 for none."""
    row = scene.cache.scores[shape]
    best = -1
    feasible = 0
    for index in range(start, end):
        node = order[index]
        value = row[node]
        if value == -np.inf:
            continue
        feasible += 1
        if best < 0 or value > row[best] or (value == row[best] and node < best):
            best = node
    if scene.selection != RANDOM or feasible == 0:
        return best
    skip = random_below(feasible, scene.cache.marks)
    for index in range(start, end):
        if row[order[index]] != -np.inf:
            if skip == 0:
                return order[index]
            skip -= 1
    return best


@entry_kernel
def fill_spans(shape: int, spans: Ints, order: Ints, scene: Scene, out: Ints) -> int:
    """Place pods of one shape span by span, all or none; returns how many found a place.

    Columns of ``spans`` are start and end in ``order`` (node positions, neighbours together) and the number of pods
    for these nodes. Rows of ``out`` get the nodes, the device masks and the shape rows. If one finds no place, all are
    taken back.
    """
    nodes, shapes = scene.nodes, scene.shapes
    gpus, milli = shapes.table[shape, GPUS], shapes.table[shape, GPU_MILLI]
    placed = 0
    for span in range(spans.shape[1]):
        for _ in range(spans[2, span]):
            refresh(shape, scene)
            node = best_member(shape, order, spans[0, span], spans[1, span], scene)
            if node < 0:
                for back in range(placed - 1, -1, -1):
                    apply(out[0, back], out[2, back], out[1, back], -1, nodes, shapes)
                return placed
            if gpus > 1 and milli < WHOLE and plain(node, shape, nodes, shapes):
                devices = roomiest_devices(node, gpus, milli, nodes)
            elif gpus > 1 and milli < WHOLE:
                devices = roomiest_shared(node, shape, nodes, shapes)
            else:
                devices = select_devices(node, shape, scene)
            give(node, shape, devices, scene)
            out[0, placed] = node
            out[1, placed] = devices
            out[2, placed] = scene.cache.marks[ROW]
            placed += 1
    return placed
