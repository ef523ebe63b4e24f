"""Nodes that are alike in all but name and place: what is told of a node is told once for all of these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.kernels import Ints
from muster.model.fleet import Node


def alike(nodes: Sequence[Node]) -> tuple[list[Node], Ints]:
    """One node of each kind, and of all nodes which kind they are.

    Nodes whose devices, labels or taints are equal but not one object may be told apart.
    """
    numbers: dict[tuple[object, ...], int] = {}
    first: list[Node] = []
    found: list[int] = []
    for node in nodes:
        key = (
            id(node.devices), id(node.labels), id(node.taints), node.cpu_milli, node.memory_bytes, node.max_pods,
            node.schedulable, node.spare, node.sharing, node.purchase,
        )  # fmt: skip
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(first)
            first.append(node)
        found.append(number)
    return first, np.array(found, np.int64)
