"""Placing pods: refresh what changed, take the best node, apply. One pod, a gang, or a whole stream in one call."""

from __future__ import annotations

# Numpy's stubs do not tell an element from an array where the number of axes is not known.
# pyright: reportArgumentType=false
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.engine.kernels.devices import best_instance, choose_shared, same_sharing, sharing_hash
from muster.engine.kernels.nodes import apply, closer, lowest_fitting, plain_refusal, same_state, state_hash
from muster.kernels import (
    CHANGES,
    CONSTRAINT,
    COUNT,
    GPU_MILLI,
    GPUS,
    KEPT,
    OWNER,
    RING,
    VERSION,
    Floats,
    Ints,
    Knowledge,
    NodeArrays,
    Scores,
    ShapeArrays,
    entry_kernel,
    kernel,
    part,
    vector_kernel,
)
from muster.policy.fragmentation import fragment_causes
from muster.policy.sharing import ANYBODY, plain, room_on

FIRST, RANDOM = 0, 1
"""How a node is selected: the first of those with the best score, or a random feasible one."""


BLOCK = 64
"""Scores that are searched together."""


HASHES, TWIN, DUE = range(3)
"""Rows of `ScoreCache.work`."""

GENERATOR, DEVICES, ROW = range(3)
"""Numbers of `ScoreCache.marks`."""


class ScoreCache(NamedTuple):
    """What is known of each shape (row) on each node (column).

    ``scores`` is -inf where the node refuses; ``refusals`` the mask of reasons; ``seen`` the node's version when that
    was computed (-1: never); ``position`` the change count up to which a shape has looked (-1: never);
    ``scratch`` (a power of two above 2 N) and the rows ``HASHES`` and ``TWIN`` of ``work`` (3 x N) serve the search for
    nodes in the same state; its row ``DUE`` are nodes to be scored. ``marks`` are three numbers: the random generator's
    state, and of the pod placed last the mask of its devices and its row. ``devices`` is the device that the policy
    chose for a fraction.
    """

    scores: Floats
    refusals: npt.NDArray[np.uint16]
    seen: npt.NDArray[np.int32]
    position: Ints
    scratch: Ints
    work: Ints
    marks: Ints
    devices: npt.NDArray[np.int8]


class Scene(NamedTuple):
    """All that placing a pod reads and changes: the policy, the fleet's state, the shapes and what is known of them."""

    scores: Scores
    selection: int
    nodes: NodeArrays
    shapes: ShapeArrays
    knowledge: Knowledge
    cache: ScoreCache


@kernel
def random_below(bound: int, state: Ints) -> int:
    """A number in 0..bound-1: the high bits of a 31-bit linear congruential generator, twice."""
    state[GENERATOR] = (state[GENERATOR] * 1103515245 + 12345) & 0x7FFFFFFF
    high = state[GENERATOR] >> 15
    state[GENERATOR] = (state[GENERATOR] * 1103515245 + 12345) & 0x7FFFFFFF
    return ((high << 16) | (state[GENERATOR] >> 15)) % bound


@part
def note(node: int, shape: int, mask: int, scene: Scene) -> bool:
    """Keep why the node refuses the shape; whether it does not, and its score is due."""
    cache = scene.cache
    cache.refusals[shape, node] = mask
    cache.seen[shape, node] = scene.nodes.table[node, VERSION]
    if mask != 0:
        cache.scores[shape, node] = -np.inf
    return mask == 0


@kernel
def look(node: int, shape: int, simple: bool, scene: Scene) -> bool:
    """Note why the node refuses the shape; if it does not, its score is due. ``simple``: nothing is shared."""
    mask = plain_refusal(node, shape, scene.nodes, scene.shapes)
    if not simple:
        mask = closer(mask, node, shape, scene.nodes, scene.shapes)
    return note(node, shape, mask, scene)


@part
def nothing_shared(shape: int, scene: Scene) -> bool:
    """Whether all nodes are plain for the shape."""
    return scene.nodes.changes[KEPT] == 0 and scene.shapes.table[shape, OWNER] <= ANYBODY


@kernel
def refresh_all(shape: int, scene: Scene) -> None:
    """Bring the shape's whole row up to date; of nodes in the same state only the first is evaluated."""
    nodes, cache = scene.nodes, scene.cache
    static_refusals = scene.shapes.static_refusals
    constraint = scene.shapes.table[shape, CONSTRAINT]
    slots = cache.scratch.shape[0] - 1
    simple = nothing_shared(shape, scene)
    cache.scratch[:] = -1
    due = 0
    for node in range(nodes.table.shape[0]):
        cache.work[TWIN, node] = node
        if cache.seen[shape, node] == nodes.table[node, VERSION]:
            continue
        digest = state_hash(node, static_refusals[constraint, node], nodes)
        if not simple:
            digest ^= sharing_hash(node, nodes)
        cache.work[HASHES, node] = digest
        slot = digest & slots
        while True:
            twin = cache.scratch[slot]
            if twin < 0:
                cache.scratch[slot] = node
                if look(node, shape, simple, scene):
                    cache.work[DUE, due] = node
                    due += 1
                break
            if (
                cache.work[HASHES, twin] == digest
                and same_state(twin, node, constraint, nodes, static_refusals)
                and (simple or same_sharing(twin, node, nodes))
            ):
                cache.work[TWIN, node] = twin
                break
            slot = (slot + 1) & slots
    scene.scores(
        shape, cache.work[DUE], due, nodes, scene.shapes, scene.knowledge, cache.scores[shape], cache.devices[shape]
    )
    for node in range(nodes.table.shape[0]):
        twin = cache.work[TWIN, node]
        if twin != node:
            cache.scores[shape, node] = cache.scores[shape, twin]
            cache.devices[shape, node] = cache.devices[shape, twin]
            cache.refusals[shape, node] = cache.refusals[shape, twin]
            cache.seen[shape, node] = nodes.table[node, VERSION]


@entry_kernel
def refresh(shape: int, scene: Scene) -> None:
    """Evaluate the shape on every node, which is: on those that changed since it last looked."""
    nodes, cache = scene.nodes, scene.cache
    count = nodes.changes[CHANGES]
    since = cache.position[shape]
    ring = nodes.changes.shape[0] - RING
    if since < 0 or count - since > ring:
        refresh_all(shape, scene)
    else:
        due = 0
        simple = nothing_shared(shape, scene)
        for change in range(since, count):
            node = nodes.changes[RING + change % ring]
            if cache.seen[shape, node] != nodes.table[node, VERSION] and look(node, shape, simple, scene):
                cache.work[DUE, due] = node
                due += 1
        scene.scores(
            shape, cache.work[DUE], due, nodes, scene.shapes, scene.knowledge, cache.scores[shape], cache.devices[shape]
        )
    cache.position[shape] = count


@vector_kernel
def largest(row: Floats) -> float:
    """The largest of the numbers."""
    highest = -np.inf
    for index in range(row.shape[0]):
        if row[index] > highest:
            highest = row[index]
    return highest


@part
def first_best(row: Floats) -> int:
    """The index of the first of the largest numbers; -1 if all are -inf."""
    highest = -np.inf
    best = 0
    for start in range(0, row.shape[0], BLOCK):
        value = largest(row[start : start + BLOCK])
        if value > highest:
            highest = value
            best = start
    if highest == -np.inf:
        return -1
    while row[best] != highest:
        best += 1
    return best


@part
def select_node(shape: int, scene: Scene) -> int:
    """The first node with the best score, or a random feasible one; -1 if all refuse."""
    row = scene.cache.scores[shape]
    if scene.selection == RANDOM:
        feasible = 0
        for node in range(row.shape[0]):
            if row[node] != -np.inf:
                feasible += 1
        if feasible == 0:
            return -1
        skip = random_below(feasible, scene.cache.marks)
        for node in range(row.shape[0]):
            if row[node] != -np.inf:
                if skip == 0:
                    return node
                skip -= 1
    return first_best(row)


@kernel
def takes(node: int, device: int, shape: int, milli: int, scene: Scene) -> bool:
    """Whether a device takes a share of the pod."""
    if scene.nodes.gpu_free[node, device] < milli:
        return False
    return plain(node, shape, scene.nodes, scene.shapes) or room_on(node, device, shape, scene.nodes, scene.shapes) > 0


@kernel
def select_devices(node: int, shape: int, scene: Scene) -> int:
    """The devices for the pod, as a bit mask: the policy's choice for a fraction, else the first that fit."""
    nodes, cache = scene.nodes, scene.cache
    wanted = scene.shapes.table[shape, GPUS]
    milli = scene.shapes.table[shape, GPU_MILLI]
    if wanted == 0:
        return 0
    if not plain(node, shape, nodes, scene.shapes) and not (wanted == 1 and scene.selection == RANDOM):
        return choose_shared(node, shape, nodes, scene.shapes)
    if wanted > 1 or milli == 1000:
        return lowest_fitting(node, wanted, milli, nodes)
    if scene.selection != RANDOM:
        return 1 << int(cache.devices[shape, node])
    fitting = 0
    for device in range(nodes.gpu_free.shape[1]):
        if takes(node, device, shape, milli, scene):
            fitting += 1
    skip = random_below(fitting, cache.marks)
    for device in range(nodes.gpu_free.shape[1]):
        if takes(node, device, shape, milli, scene):
            if skip == 0:
                return 1 << device
            skip -= 1
    return 0


@kernel
def give(node: int, shape: int, devices: int, scene: Scene) -> None:
    """Give a pod its devices, and leave them and its row (of a MIG pod, that of its start) in ``cache.marks``."""
    row = shape
    if scene.shapes.table[shape, COUNT] > 0:
        row = best_instance(node, devices, shape, scene.nodes, scene.shapes)
    apply(node, row, devices, 1, scene.nodes, scene.shapes)
    scene.cache.marks[DEVICES] = devices
    scene.cache.marks[ROW] = row


@part
def place_one(shape: int, scene: Scene) -> int:
    """Place one pod: returns its node and leaves in ``cache.marks`` what `give` does; -1 if no node takes it."""
    refresh(shape, scene)
    node = select_node(shape, scene)
    if node >= 0:
        give(node, shape, select_devices(node, shape, scene), scene)
    return node


@entry_kernel
def place_pods(shape: int, count: int, scene: Scene, out: Ints) -> int:
    """Place ``count`` pods of one shape, all or none: rows of ``out`` get the nodes, the devices and their shape rows.

    Returns how many found a place; if fewer than ``count``, what was placed is taken back.
    """
    for pod in range(count):
        node = place_one(shape, scene)
        if node < 0:
            for back in range(pod - 1, -1, -1):
                apply(out[0, back], out[2, back], out[1, back], -1, scene.nodes, scene.shapes)
            return pod
        out[0, pod] = node
        out[1, pod] = scene.cache.marks[DEVICES]
        out[2, pod] = scene.cache.marks[ROW]
    return count


@entry_kernel
def place_stream(stream: Ints, scene: Scene, measure: Knowledge, of_node: Floats, out: Ints, fragments: Floats) -> None:
    """Place pods one after another as they arrive, with no departures; who does not fit is refused for good.

    Row 0 of ``out`` gets each pod's node (-1: refused), row 1 its devices. ``fragments`` (arrivals x causes, or with
    0 rows: not measured) gets the fleet's fragment by cause after each arrival, in milli, for the typical pods of
    ``measure``; ``of_node`` ((N + 1) x causes) is room for each node's fragment and, last, their sum.
    """
    nodes = scene.nodes
    measured = fragments.shape[0] > 0
    causes = fragments.shape[1]
    total = of_node.shape[0] - 1
    if measured:
        of_node[total] = 0.0
        for node in range(nodes.table.shape[0]):
            fragment_causes(node, nodes, scene.shapes, measure, of_node[node])
            for cause in range(causes):
                of_node[total, cause] += of_node[node, cause]
    for arrival in range(stream.shape[0]):
        node = place_one(stream[arrival], scene)
        out[0, arrival] = node
        out[1, arrival] = scene.cache.marks[DEVICES] if node >= 0 else 0
        if not measured:
            continue
        if node >= 0:
            for cause in range(causes):
                of_node[total, cause] -= of_node[node, cause]
            fragment_causes(node, nodes, scene.shapes, measure, of_node[node])
            for cause in range(causes):
                of_node[total, cause] += of_node[node, cause]
        for cause in range(causes):
            fragments[arrival, cause] = of_node[total, cause]
