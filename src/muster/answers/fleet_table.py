"""What a fleet has and what is free of it, by flavor."""

from __future__ import annotations

from msgspec import Struct

from muster.answers.view import View
from muster.model.fleet import WHOLE_GPU_MILLI


class FlavorFigures(Struct):
    """The nodes of one flavor after this instant's cycle. GPUs are in milli; the four parts sum up to ``gpu_milli``.

    Attributes:
        closed_nodes: cordoned, drained, not ready, or spares.
        unhealthy_milli: GPUs that are not healthy.
        allocated_milli: given to work.
        closed_milli: free, on nodes on which nothing may start.
        free_milli: free, on nodes where work may start; ``whole_free_milli`` of it on nodes of which all GPUs are.
        idle_milli: allocated to work that has used none of its GPUs for longer than the config allows.
    """

    flavor: str
    nodes: int = 0
    closed_nodes: int = 0
    gpu_milli: int = 0
    unhealthy_milli: int = 0
    allocated_milli: int = 0
    closed_milli: int = 0
    free_milli: int = 0
    whole_free_milli: int = 0
    whole_free_nodes: int = 0
    idle_milli: int = 0


def flavors(view: View) -> list[FlavorFigures]:
    """One a flavor, in the order in which the fleet names them."""
    scheduler = view.scheduler
    state = scheduler.cluster.state
    found: dict[str, FlavorFigures] = {}
    free_rows: list[int] = state.nodes.gpu_free.sum(axis=1).tolist()
    for node, free in zip(scheduler.cluster.fleet.nodes, free_rows, strict=True):
        of = found.setdefault(node.flavor, FlavorFigures(node.flavor))
        healthy = node.healthy_gpus * WHOLE_GPU_MILLI
        of.nodes += 1
        of.gpu_milli += len(node.devices) * WHOLE_GPU_MILLI
        of.unhealthy_milli += len(node.devices) * WHOLE_GPU_MILLI - healthy
        of.allocated_milli += healthy - free
        if node.schedulable and not node.spare:
            of.free_milli += free
            if free == healthy and healthy:
                of.whole_free_milli += free
                of.whole_free_nodes += 1
        else:
            of.closed_nodes += 1
            of.closed_milli += free
    for run in scheduler.running.idle(None, view.now_s):
        nodes: list[int] = run.rows[0].tolist()
        if nodes:
            found[scheduler.cluster.fleet.nodes[nodes[0]].flavor].idle_milli += run.kind.milli
    return list(found.values())
