"""The most useful GPUs that nodes can serve, by the multisets of pods that fit on one node.

    maximise    sum u_s x_s
    subject to  x_s <= n_s                              the pods that there are
                x_s <= sum over types t, patterns P of a_sP z_tP
                sum over P of z_tP = nodes of type t

Exact but for whole numbers. A pattern is maximal: no pod of any shape could be added. Parts of GPUs on a node take at
least the GPUs that their sum and those above a half need, which is a bound and not a packing.

Source: Gilmore and Gomory, Operations Research 1961.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from muster.model.fleet import WHOLE_GPU_MILLI, Fleet, Node
from muster.model.workload import PodShape
from muster.planning.packing import TooLong

MOST_SHAPES, MOST_PATTERNS, MOST_LEAVES = 6, 2000, 500


class NodeType(Struct, frozen=True):
    """What nodes have that are alike."""

    gpus: int
    cpu_milli: int
    memory_bytes: int
    models: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()


def served_by_patterns(fleet: Fleet, pods: Sequence[tuple[PodShape, float, float]]) -> float | None:
    """Useful GPUs of the best placement; None where there are too many patterns to look at.

    Args:
        fleet: schedulable nodes with healthy GPUs.
        pods: shape, how many there are, and the useful GPUs of one.
    """
    if len(pods) > MOST_SHAPES:
        return None
    import numpy as np
    from scipy.optimize import linprog  # pyright: ignore[reportUnknownVariableType]

    shapes = [shape for shape, _, _ in pods]
    named = {key for shape in shapes for key, _ in shape.node_selector}
    types = Counter(_type_of(node, named) for node in fleet)
    columns: list[tuple[int, tuple[int, ...]]] = []
    try:
        for at, kind in enumerate(types):
            columns += [(at, pattern) for pattern in _patterns(kind, shapes)]
            if len(columns) > MOST_PATTERNS:
                return None
    except TooLong:
        return None
    count = len(shapes)
    gain = np.zeros(count + len(columns))
    gain[:count] = [-useful for _, _, useful in pods]
    upper = np.zeros((count + len(types), count + len(columns)))
    upper[:count, :count] = np.eye(count)
    upper[:count, count:] = -np.array([pattern for _, pattern in columns], float).T
    upper[count:, count:] = [[float(of == at) for of, _ in columns] for at in range(len(types))]
    limits = [0.0] * count + [float(nodes) for nodes in types.values()]
    bounds: list[Any] = [(0, number) for _, number, _ in pods] + [(0, None)] * len(columns)
    found: Any = linprog(gain, A_ub=upper, b_ub=limits, bounds=bounds, method="highs")
    return -float(found.fun)


def _type_of(node: Node, named: set[str]) -> NodeType:
    labels = tuple(pair for pair in node.labels if pair[0] in named)
    return NodeType(node.healthy_gpus, node.cpu_milli, node.memory_bytes, node.gpu_models, labels)


def _patterns(node: NodeType, shapes: Sequence[PodShape]) -> Iterator[tuple[int, ...]]:
    """Maximal multisets of pods on a node: how many of each shape; the empty one where none fits."""
    fits = [_may(node, shape) for shape in shapes]
    leaves = 0

    def most(chosen: Sequence[int], at: int) -> int:
        """How many more of a shape fit beside those that are chosen."""
        shape = shapes[at]
        if not fits[at]:
            return 0
        cpu = node.cpu_milli - sum(n * s.cpu_milli for n, s in zip(chosen, shapes, strict=True))
        memory = node.memory_bytes - sum(n * s.memory_bytes for n, s in zip(chosen, shapes, strict=True))
        room = node.gpus * (WHOLE_GPU_MILLI // shape.gpu_milli) // shape.gpus
        if shape.cpu_milli:
            room = min(room, cpu // shape.cpu_milli)
        if shape.memory_bytes:
            room = min(room, memory // shape.memory_bytes)
        more = list(chosen)
        while room > 0:
            more[at] = chosen[at] + room
            if _gpus(more, shapes) <= node.gpus:
                return room
            room -= 1
        return 0

    def ways(at: int, chosen: list[int]) -> Iterator[tuple[int, ...]]:
        nonlocal leaves
        if at == len(shapes):
            leaves += 1
            if leaves > MOST_LEAVES:
                raise TooLong
            if not any(most(chosen, other) for other in range(len(shapes))):
                yield tuple(chosen)
            return
        for number in range(most(chosen, at), -1, -1):
            chosen[at] = number
            yield from ways(at + 1, chosen)
        chosen[at] = 0

    yield from ways(0, [0] * len(shapes))


def _may(node: NodeType, shape: PodShape) -> bool:
    models = not shape.gpu_models or bool(set(shape.gpu_models) & set(node.models))
    return models and set(shape.node_selector) <= set(node.labels)


def _gpus(chosen: Sequence[int], shapes: Sequence[PodShape]) -> int:
    """GPUs that these pods take at least."""
    whole = part = over_half = 0
    for number, shape in zip(chosen, shapes, strict=True):
        if shape.gpu_milli >= WHOLE_GPU_MILLI:
            whole += number * shape.gpus
        else:
            part += number * shape.gpu_milli_total
            over_half += number * shape.gpus if 2 * shape.gpu_milli > WHOLE_GPU_MILLI else 0
    return whole + max(-(-part // WHOLE_GPU_MILLI), over_half)
