"""How much of a fleet a simulated run uses, and how much of the rest is of no use to whole-node work."""

from __future__ import annotations

# numpy's stubs tell arrays from scalars only in part.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
import math

import numpy as np
from msgspec import Struct

from muster.model.fleet import WHOLE_GPU_MILLI, Fleet, Node
from muster.sim.cluster_run import ClusterRun


class Use(Struct, frozen=True):
    """What is used of a fleet over a time.

    Attributes:
        gpus: healthy GPUs of all nodes; ``open_gpus`` of those on which work may start.
        gpu_hours: held by work.
        utilisation: of the healthy GPUs, 0 to 1; 0 where there are none.
        whole_free_nodes: open nodes all of whose GPUs are free, on average over the time.
        stranded_gpus: free GPUs on open nodes of which others are in use, on average.
    """

    gpus: float
    open_gpus: float
    gpu_hours: float
    utilisation: float
    whole_free_nodes: float
    stranded_gpus: float

    @staticmethod
    def mean(uses: list[Use]) -> Use:
        """The mean of each figure."""
        names = Use.__struct_fields__
        return Use(*(math.fsum(getattr(each, name) for each in uses) / len(uses) for name in names))


def measure_use(run: ClusterRun, fleet: Fleet, from_s: float, end_s: float) -> Use:
    """The use of a fleet from one time to another; the run has kept its places.

    A node's GPUs in use are a step function of time: the holdings' starts and ends are sorted by node and time, and
    each step counts for as long as it lasts.
    """
    position = {node.name: number for number, node in enumerate(fleet)}
    nodes, times, milli = list(range(len(fleet))), [from_s] * len(fleet), [0] * len(fleet)
    for each in run.holdings:
        start_s, stop_s = max(each.start_s, from_s), end_s if math.isnan(each.end_s) else min(each.end_s, end_s)
        if stop_s <= start_s:
            continue
        for pod in each.places:
            if pod.devices:
                nodes += (position[pod.node], position[pod.node])
                times += (start_s, stop_s)
                milli += (len(pod.devices) * pod.gpu_milli, -len(pod.devices) * pod.gpu_milli)
    node, time, change = np.array(nodes, np.int64), np.array(times), np.array(milli, np.int64)
    order = np.lexsort((time, node))
    node, time, change = node[order], time[order], change[order]
    used = np.cumsum(change)  # of one node after the other: each begins and ends with nothing in use
    until = np.append(time[1:], end_s)
    until[np.append(node[1:] != node[:-1], True)] = end_s
    lasts = until - time
    size = np.array([each.healthy_gpus * WHOLE_GPU_MILLI if _is_open(each) else 0 for each in fleet], np.int64)[node]
    span_s = max(end_s - from_s, 1e-9)
    whole = float((lasts * ((used == 0) & (size > 0))).sum()) / span_s
    stranded = float((lasts * np.where(used > 0, np.maximum(size - used, 0), 0)).sum()) / span_s / WHOLE_GPU_MILLI
    held_s = float((lasts * used).sum()) / WHOLE_GPU_MILLI
    gpus = sum(each.healthy_gpus for each in fleet)
    open_gpus = sum(each.healthy_gpus for each in fleet if _is_open(each))
    return Use(gpus, open_gpus, held_s / 3600, held_s / (gpus * span_s) if gpus else 0.0, whole, stranded)


def _is_open(node: Node) -> bool:
    return node.schedulable and not node.spare


def steps_in_use(run: ClusterRun, from_s: float, end_s: float, most: int = 300) -> tuple[tuple[float, float], ...]:
    """(time, GPUs in use), each until the next one; at most ``most`` of them, thinned evenly."""
    changes: dict[float, int] = {from_s: 0}
    for each in run.holdings:
        start_s, stop_s = max(each.start_s, from_s), end_s if math.isnan(each.end_s) else min(each.end_s, end_s)
        if stop_s > start_s:
            changes[start_s] = changes.get(start_s, 0) + each.gpu_milli
            changes[stop_s] = changes.get(stop_s, 0) - each.gpu_milli
    times = sorted(time_s for time_s in changes if time_s < end_s)
    held = np.cumsum([changes[time_s] for time_s in times]) / WHOLE_GPU_MILLI
    kept = np.arange(len(times))
    if len(times) > most:
        kept = np.linspace(0, len(times) - 1, most).astype(np.int64)
    return tuple((times[at], float(held[at])) for at in kept.tolist())
