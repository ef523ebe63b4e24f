"""Placing pods: refresh what changed, take the best node, apply. One pod, a gang, or a whole stream in one call."""

from __future__ import annotations

# Numpy's stubs do not tell an element from an array where the number of axes is not known.
# pyright: reportArgumentType=false
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.engine.kernels.nodes import apply, lowest_fitting, refusal, same_state, state_hash
from muster.kernels import (
    Floats,
    Ints,
    Knowledge,
    NodeArrays,
    Score,
    ShapeArrays,
    kernel,
)
from muster.policy.fragmentation import fragment_causes

FIRST, RANDOM = 0, 1
"""How a node is selected: the first of those with the best score, or a random feasible one."""


class ScoreCache(NamedTuple):
    """What is known of each shape (row) on each node (column).

    ``scores`` is -inf where the node refuses; ``refusals`` the mask of reasons; ``seen`` the node's version when that
    was computed (-1: never); ``position`` the change count up to which a shape has looked (-1: never);
    ``scratch`` (a power of two above 2 N) and ``hashes`` (N) serve the search for nodes in the same state;
    ``random`` holds the generator's state.
    """

    scores: Floats
    refusals: npt.NDArray[np.int16]
    seen: npt.NDArray[np.int32]
    position: Ints
    scratch: Ints
    hashes: Ints
    random: Ints


@kernel
def random_below(bound: int, state: Ints) -> int:
    """A number in 0..bound-1: the high bits of a 31-bit linear congruential generator, twice."""
    state[0] = (state[0] * 1103515245 + 12345) & 0x7FFFFFFF
    high = state[0] >> 15
    state[0] = (state[0] * 1103515245 + 12345) & 0x7FFFFFFF
    return ((high << 16) | (state[0] >> 15)) % bound


@kernel
def evaluate(
    score: Score,
    node: int,
    shape: int,
    nodes: NodeArrays,
    shapes: ShapeArrays,
    knowledge: Knowledge,
    cache: ScoreCache,
    device_out: Ints,
) -> None:
    """Compute refusal and score of one shape on one node and keep both."""
    mask = refusal(node, shape, nodes, shapes)
    cache.refusals[shape, node] = mask
    cache.seen[shape, node] = nodes.version[node]
    if mask == 0:
        cache.scores[shape, node] = score(node, shape, nodes, shapes, knowledge, device_out)
    else:
        cache.scores[shape, node] = -np.inf


@kernel
def evaluate_all(
    score: Score,
    shape: int,
    nodes: NodeArrays,
    shapes: ShapeArrays,
    knowledge: Knowledge,
    cache: ScoreCache,
    device_out: Ints,
) -> None:
    """Bring the shape's whole row up to date; of nodes in the same state only the first is evaluated."""
    constraint = shapes.constraint[shape]
    slots = cache.scratch.shape[0] - 1
    cache.scratch[:] = -1
    for node in range(nodes.kind.shape[0]):
        if cache.seen[shape, node] == nodes.version[node]:
            continue
        digest = state_hash(node, shapes.static_refusals[constraint, node], nodes)
        cache.hashes[node] = digest
        slot = digest & slots
        while True:
            twin = cache.scratch[slot]
            if twin < 0:
                cache.scratch[slot] = node
                evaluate(score, node, shape, nodes, shapes, knowledge, cache, device_out)
                break
            if cache.hashes[twin] == digest and same_state(twin, node, constraint, nodes, shapes.static_refusals):
                cache.scores[shape, node] = cache.scores[shape, twin]
                cache.refusals[shape, node] = cache.refusals[shape, twin]
                cache.seen[shape, node] = nodes.version[node]
                break
            slot = (slot + 1) & slots


@kernel
def refresh(
    score: Score,
    shape: int,
    nodes: NodeArrays,
    shapes: ShapeArrays,
    knowledge: Knowledge,
    cache: ScoreCache,
    device_out: Ints,
) -> None:
    """Evaluate the shape on every node, which is: on those that changed since it last looked."""
    count = nodes.change_count[0]
    since = cache.position[shape]
    ring = nodes.changes.shape[0]
    if since < 0 or count - since > ring:
        evaluate_all(score, shape, nodes, shapes, knowledge, cache, device_out)
    else:
        for change in range(since, count):
            node = nodes.changes[change % ring]
            if cache.seen[shape, node] != nodes.version[node]:
                evaluate(score, node, shape, nodes, shapes, knowledge, cache, device_out)
    cache.position[shape] = count


@kernel
def select_node(selection: int, shape: int, cache: ScoreCache) -> int:
    """The first node with the best score, or a random feasible one; -1 if all refuse."""
    row = cache.scores[shape]
    if selection == RANDOM:
        feasible = 0
        for node in range(row.shape[0]):
            if row[node] != -np.inf:
                feasible += 1
        if feasible == 0:
            return -1
        skip = random_below(feasible, cache.random)
        for node in range(row.shape[0]):
            if row[node] != -np.inf:
                if skip == 0:
                    return node
                skip -= 1
    best = -1
    highest = -np.inf
    for node in range(row.shape[0]):
        if row[node] > highest:
            highest = row[node]
            best = node
    return best


@kernel
def select_devices(
    score: Score,
    selection: int,
    node: int,
    shape: int,
    nodes: NodeArrays,
    shapes: ShapeArrays,
    knowledge: Knowledge,
    cache: ScoreCache,
    device_out: Ints,
) -> int:
    """The devices for the pod, as a bit mask: the policy's choice for a fraction, else the first that fit."""
    wanted = shapes.gpus[shape]
    milli = shapes.gpu_milli[shape]
    if wanted == 0:
        return 0
    if wanted > 1 or milli == 1000:
        return lowest_fitting(node, wanted, milli, nodes)
    if selection == RANDOM:
        fitting = 0
        for device in range(nodes.gpu_free.shape[1]):
            if nodes.gpu_free[node, device] >= milli:
                fitting += 1
        skip = random_below(fitting, cache.random)
        for device in range(nodes.gpu_free.shape[1]):
            if nodes.gpu_free[node, device] >= milli:
                if skip == 0:
                    return 1 << device
                skip -= 1
    score(node, shape, nodes, shapes, knowledge, device_out)
    return 1 << device_out[0]


@kernel
def place_one(
    score: Score,
    selection: int,
    shape: int,
    nodes: NodeArrays,
    shapes: ShapeArrays,
    knowledge: Knowledge,
    cache: ScoreCache,
    device_out: Ints,
) -> int:
    """Place one pod: returns its node and leaves its devices in ``device_out[1]``; -1 if no node takes it."""
    refresh(score, shape, nodes, shapes, knowledge, cache, device_out)
    node = select_node(selection, shape, cache)
    if node >= 0:
        devices = select_devices(score, selection, node, shape, nodes, shapes, knowledge, cache, device_out)
        apply(node, shape, devices, 1, nodes, shapes)
        device_out[1] = devices
    return node


@kernel
def place_pods(
    score: Score,
    selection: int,
    shape: int,
    count: int,
    nodes: NodeArrays,
    shapes: ShapeArrays,
    knowledge: Knowledge,
    cache: ScoreCache,
    out: Ints,
) -> int:
    """Place ``count`` pods of one shape, all or none: row 0 of ``out`` gets the nodes, row 1 the devices.

    Returns how many found a place; if fewer than ``count``, what was placed is taken back.
    """
    device_out = np.zeros(2, np.int64)
    for pod in range(count):
        node = place_one(score, selection, shape, nodes, shapes, knowledge, cache, device_out)
        if node < 0:
            for back in range(pod - 1, -1, -1):
                apply(out[0, back], shape, out[1, back], -1, nodes, shapes)
            return pod
        out[0, pod] = node
        out[1, pod] = device_out[1]
    return count


@kernel
def place_stream(
    score: Score,
    selection: int,
    stream: Ints,
    nodes: NodeArrays,
    shapes: ShapeArrays,
    knowledge: Knowledge,
    cache: ScoreCache,
    measure: Knowledge,
    out: Ints,
    fragments: Floats,
) -> None:
    """Place pods one after another as they arrive, with no departures; who does not fit is refused for good.

    Row 0 of ``out`` gets each pod's node (-1: refused), row 1 its devices. ``fragments`` (arrivals x causes, or with
    0 rows: not measured) gets the fleet's fragment by cause after each arrival, in milli, for the typical pods of
    ``measure``.
    """
    device_out = np.zeros(2, np.int64)
    causes = fragments.shape[1]
    measured = fragments.shape[0] > 0
    of_node = np.zeros((nodes.kind.shape[0] if measured else 0, causes))
    total = np.zeros(causes)
    if measured:
        for node in range(nodes.kind.shape[0]):
            fragment_causes(node, nodes, shapes, measure, of_node[node])
            total += of_node[node]
    for arrival in range(stream.shape[0]):
        shape = stream[arrival]
        node = place_one(score, selection, shape, nodes, shapes, knowledge, cache, device_out)
        out[0, arrival] = node
        out[1, arrival] = device_out[1] if node >= 0 else 0
        if measured:
            if node >= 0:
                total -= of_node[node]
                fragment_causes(node, nodes, shapes, measure, of_node[node])
                total += of_node[node]
            fragments[arrival] = total
