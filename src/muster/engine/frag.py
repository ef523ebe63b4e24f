"""What is free on a fleet, and in which pieces: fragments by cause."""

from __future__ import annotations

import numpy as np

from muster.engine.placement import empty_knowledge
from muster.engine.state import Allocation, FleetState
from muster.model.snapshot import Snapshot
from muster.model.workload import ShapeMix
from muster.policy.fragmentation import CAUSES, fragment_causes, typical_shapes


def assign_running(state: FleetState, snapshot: Snapshot) -> None:
    """Give the running pods of a snapshot what they hold."""
    position = {name: index for index, name in enumerate(state.node_names)}
    for run in snapshot.running:
        shapes = [one.shape for one in run.workload.pod_sets for _ in range(one.count)]
        for shape, pod in zip(shapes, run.pods, strict=False):
            devices = sum(1 << index for index in pod.devices)
            state.assign(Allocation(position[pod.node], state.shape_id(shape), devices))


def fleet_fragment(state: FleetState, mix: ShapeMix) -> dict[str, float]:
    """The fleet's fragment in milli GPU by cause, for the typical pods of ``mix``; schedulable nodes only."""
    shapes, shares = typical_shapes(mix)
    ids = np.array([state.shape_id(shape) for shape in shapes], np.int64)
    knowledge = empty_knowledge()._replace(typical=ids, typical_share=np.array(shares))
    total = np.zeros(len(CAUSES))
    out = np.zeros(len(CAUSES))
    for node in (row for row, one in enumerate(state.node_list) if one.schedulable):
        fragment_causes(node, state.nodes, state.shapes, knowledge, out)
        total += out
    return dict(zip(CAUSES, total.tolist(), strict=True))


def gangs_that_fit(whole_free: list[int], gpus: int) -> int:
    """How many gangs of ``gpus`` whole GPUs fit, in pods of at most 8 on one node; only GPUs are counted."""
    pod = min(gpus, 8)
    return sum(free // pod for free in whole_free) // (gpus // pod)
