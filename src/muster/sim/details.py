"""What a report shows of a run, small enough to keep for every run of a sweep and to send between processes."""

from __future__ import annotations

# numpy's stubs tell arrays from scalars only in part.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from muster.engine.state import FleetState
from muster.policy.fragmentation import CAUSES

if TYPE_CHECKING:
    from muster.sim.inflate import InflationData

CURVES, CURVES_AND_NODES = "curves", "nodes"
MOST_POINTS = 500
"""Most points of a curve."""


class NodeUse(Struct, frozen=True, array_like=True):
    """What one node has and what is free on it at the end; healthy devices only."""

    name: str
    gpu_models: tuple[str, ...]
    gpu_free_milli: tuple[int, ...]
    cpu_milli: int
    cpu_free_milli: int
    memory_bytes: int
    memory_free_bytes: int


class RunDetails(Struct, frozen=True):
    """Curves over arrived demand, and the nodes at the end where they were asked for.

    Attributes:
        arrived_percent: whole percents of the fleet's GPUs that were reached, rising.
        allocated_percent: the mean over the arrivals in each, as in the published figures.
        fragmented_percent: the same by cause (`muster.policy.fragmentation.CAUSES`).
        nodes: in the order of their names.
    """

    arrived_percent: tuple[int, ...]
    allocated_percent: tuple[float, ...]
    fragmented_percent: dict[str, tuple[float, ...]]
    nodes: tuple[NodeUse, ...] = ()


def details_of(data: InflationData, gpus: int, *, nodes: bool) -> RunDetails:
    """Reduce a run's data; ``gpus`` is the fleet's number of healthy GPUs."""
    marks, row_of = np.unique(np.rint(data.arrived_percent).astype(np.int64), return_inverse=True)
    counts = np.bincount(row_of)
    # every k-th percent where there are too many, counted from the end so that the last is always there
    chosen = np.arange(len(marks) - 1, -1, -max(1, -(-len(marks) // MOST_POINTS)))[::-1]

    def mean(values: np.ndarray) -> tuple[float, ...]:
        sums = np.bincount(row_of, weights=values)
        return tuple(round(float(value), 4) for value in (sums / counts)[chosen])

    capacity = gpus * 10.0
    return RunDetails(
        tuple(int(mark) for mark in marks[chosen]),
        mean(data.allocated_percent),
        {cause: mean(data.fragments[:, column] / capacity) for column, cause in enumerate(CAUSES)},
        node_uses(data.state) if nodes else (),
    )


def node_uses(state: FleetState) -> tuple[NodeUse, ...]:
    """What is free on each node now, in the order of their names."""
    arrays = state.nodes
    found: list[NodeUse] = []
    for position in sorted(range(len(state.node_list)), key=lambda index: state.node_names[index]):
        node = state.node_list[position]
        devices = [device for device in node.devices if device.healthy]
        found.append(
            NodeUse(
                node.name,
                tuple(device.model for device in devices),
                tuple(int(arrays.gpu_free[position, device.index]) for device in devices),
                int(arrays.cpu_total[position]),
                int(arrays.cpu_free[position]),
                int(arrays.memory_total[position]),
                int(arrays.memory_free[position]),
            )
        )
    return tuple(found)
