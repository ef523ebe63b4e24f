"""The placement experiment of the FGD paper: pods only arrive, until the demand is a multiple of the capacity.

The arrivals and the node order of a seed are those of the published runs (`muster.sim.published_stream`), so a
result can be held against the published one run by run. A pod that does not fit is refused for good.
"""

from __future__ import annotations

# Numba has no stubs, and numpy's tell arrays from scalars only in part.
# pyright: reportArgumentType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false
# pyright: reportReturnType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from muster.engine.placement import Placer, empty_knowledge
from muster.engine.state import Allocation, FleetState
from muster.errors import InputError
from muster.kernels import Floats, Ints, Knowledge
from muster.model.fleet import Fleet
from muster.model.workload import PodShape, ShapeMix, Workload
from muster.policy.fragmentation import typical_shapes
from muster.policy.registry import PolicyEntry, find_policy
from muster.sim.published_stream import published_arrivals

MARKS = (50, 60, 70, 80, 90, 95, 100, 110, 120, 130)
"""Arrived demand, in percent of the fleet's GPUs, at which results are told."""

TuningSource = Callable[[FleetState, ShapeMix], Knowledge | None]
"""Gives the fitted knowledge of a policy that needs it; None where FGD is better for this fleet and mix."""


class InflationRun(Struct, frozen=True):
    """Figures of one run; percentages are of the fleet's GPUs, at each arrived percent in MARKS that was reached."""

    arrived: int
    placed: int
    rejected: int
    gpus: int
    allocated_percent: dict[str, float]
    fragmented_percent: dict[str, float]
    rejected_by_size: dict[str, int]
    arrived_by_size: dict[str, int]


class InflationData(NamedTuple):
    """Everything else of a run, for reports: a row an arrival, and the state at the end.

    ``nodes`` is -1 where the pod was refused; ``fragments`` is arrivals x causes in milli GPU.
    """

    state: FleetState
    stream: Ints
    nodes: Ints
    devices: Ints
    arrived_percent: Floats
    allocated_percent: Floats
    fragments: Floats


def pods_by_name(workloads: tuple[Workload, ...]) -> list[PodShape]:
    """One shape a pod, workloads in the order of their names."""
    return [
        pod_set.shape
        for workload in sorted(workloads, key=lambda workload: workload.name)
        for pod_set in workload.pod_sets
        for _ in range(pod_set.count)
    ]


def check_inflation(fleet: Fleet, workloads: tuple[Workload, ...]) -> int:
    """The fleet's healthy GPUs; raises `InputError` where the experiment has no meaning."""
    gpus = sum(node.healthy_gpus for node in fleet.nodes)
    if not gpus:
        raise InputError("the fleet has no GPUs", field="fleet", hint="use --arrivals replay for CPU-only fleets")
    if not any(workload.gpu_milli for workload in workloads):
        raise InputError("no pod asks for a GPU", field="workload", hint="use --arrivals replay for CPU-only work")
    return gpus


def first_unfit(fleet: Fleet, workloads: Sequence[Workload]) -> tuple[str, PodShape, str, int] | None:
    """The first workload with a pod that no node could ever take: name, shape, why, and how many such there are.

    None if there is none.
    """
    state = FleetState(fleet)
    known: dict[PodShape, str] = {}
    found: list[tuple[str, PodShape]] = []
    for workload in workloads:
        for pod_set in workload.pod_sets:
            if pod_set.shape not in known:
                known[pod_set.shape] = _why_unfit(state, pod_set.shape)
            if known[pod_set.shape]:
                found.append((workload.name, pod_set.shape))
    return (*found[0], known[found[0][1]], len(found)) if found else None


def _why_unfit(state: FleetState, shape: PodShape) -> str:
    """Why no node could ever take the shape, whatever its labels: the empty text if one could.

    A shape that only its GPU model keeps from the large nodes is none of these: traces have such pods.
    """
    models = {model for node in state.node_list for model in node.gpu_models}
    if shape.gpus and shape.gpu_models and not models.intersection(shape.gpu_models):
        return f"the fleet has {', '.join(sorted(models))}"
    if any(
        shape.cpu_milli <= cpu and shape.memory_bytes <= memory and shape.gpus <= len(devices)
        for cpu, memory, devices in state.kinds
    ):
        return ""
    return "no node of the fleet is so large"


def run_inflation(
    fleet: Fleet,
    workloads: tuple[Workload, ...],
    policy: PolicyEntry,
    seed: int,
    factor: float,
    tuning: TuningSource | None = None,
) -> tuple[InflationRun, InflationData]:
    """Run the experiment once.

    Args:
        fleet: the nodes; must have GPUs.
        workloads: the trace; its pods are shuffled, and drawn again until GPU demand is ``factor`` x capacity.
        policy: who places.
        seed: of arrivals, node order and random policies.
        factor: arrived demand over capacity at the end, such as 1.3.
        tuning: for policies that need it.
    """
    pods = pods_by_name(workloads)
    gpus = check_inflation(fleet, workloads)
    names = sorted(range(len(fleet)), key=lambda index: fleet.nodes[index].name)
    order, node_order = published_arrivals(
        [pod.gpu_milli if pod.gpus else 0 for pod in pods],
        [pod.gpu_milli_total for pod in pods],
        len(fleet),
        factor * gpus * 1000,
        seed,
    )
    state = FleetState(fleet, [names[index] for index in node_order.tolist()])
    mix = ShapeMix.of(workloads)
    measure = typical_knowledge(state, mix)
    knowledge = measure if policy.needs_typical else None
    if tuning is not None and policy.needs_tuning:
        knowledge = tuning(state, mix)
        if knowledge is None:
            policy, knowledge = find_policy("fgd"), measure
    ids = np.array([state.shape_id(pod) for pod in pods], np.int64)
    stream = ids[order]
    placer = Placer(state, policy.load_score(), knowledge, policy.selection, seed)
    out, fragments = placer.place_stream(stream, measure)
    return _figures(state, stream, out, fragments, gpus)


def typical_knowledge(state: FleetState, mix: ShapeMix) -> Knowledge:
    """What FGD and the measure of fragments know: the typical shapes of the mix and their shares."""
    shapes, shares = typical_shapes(mix)
    ids = np.array([state.shape_id(shape) for shape in shapes], np.int64)
    return empty_knowledge()._replace(typical=ids, typical_share=np.array(shares))


def allocations_of(data: InflationData) -> list[Allocation]:
    """The pods that were placed, for `FleetState.validate`."""
    rows = zip(data.nodes.tolist(), data.stream.tolist(), data.devices.tolist(), strict=True)
    return [Allocation(node, shape, devices) for node, shape, devices in rows if node >= 0]


def size_class(shape: PodShape) -> str:
    """``cpu``, ``1`` (with fractions), ``2-4``, ``5-8`` or ``9+`` GPUs."""
    for most, name in ((0, "cpu"), (1, "1"), (4, "2-4"), (8, "5-8")):
        if shape.gpus <= most:
            return name
    return "9+"


def _figures(
    state: FleetState, stream: Ints, out: Ints, fragments: Floats, gpus: int
) -> tuple[InflationRun, InflationData]:
    demand = np.array([shape.gpu_milli_total for shape in state.shape_list], np.int64)[stream]
    placed = out[0] >= 0
    capacity = gpus * 10.0
    arrived = np.cumsum(demand) / capacity
    allocated = np.cumsum(np.where(placed, demand, 0)) / capacity
    fragmented = fragments.sum(axis=1) / capacity
    column = np.rint(arrived).astype(np.int64)
    reached: dict[int, Ints] = {}
    for mark in MARKS:
        rows = np.flatnonzero(column == mark)
        # As in the published figures, an empty percent takes its neighbours (small fleets step over some).
        rows = rows if len(rows) else np.flatnonzero(np.abs(column - mark) <= 1)
        if len(rows):
            reached[mark] = rows
    classes = np.array([size_class(shape) for shape in state.shape_list])[stream]
    names = [name for name in ("cpu", "1", "2-4", "5-8", "9+") if (classes == name).any()]
    run = InflationRun(
        arrived=len(stream),
        placed=int(placed.sum()),
        rejected=int((~placed).sum()),
        gpus=gpus,
        allocated_percent={str(mark): round(float(allocated[rows].mean()), 2) for mark, rows in reached.items()},
        fragmented_percent={str(mark): round(float(fragmented[rows].mean()), 2) for mark, rows in reached.items()},
        rejected_by_size={name: int(((classes == name) & ~placed).sum()) for name in names},
        arrived_by_size={name: int((classes == name).sum()) for name in names},
    )
    return run, InflationData(state, stream, out[0], out[1], arrived, allocated, fragments)
