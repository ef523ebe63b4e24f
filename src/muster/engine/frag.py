"""What is free on a fleet, and in which pieces: fragments by cause, and the gangs that still fit."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.placement import empty_knowledge
from muster.engine.sharing import queue_tenants, with_tenant
from muster.engine.state import Allocation, FleetState
from muster.errors import InputError
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.snapshot import Snapshot
from muster.model.workload import PodShape, ShapeMix
from muster.policy.fragmentation import CAUSES, fragment_causes, typical_shapes

MOST_GPUS_PER_POD = 8
"""A gang of up to so many GPUs is one pod; a larger one is made of pods of this size."""


class GangFit(Struct, frozen=True):
    """How many gangs of one size fit now.

    Attributes:
        gpus: whole GPUs of a gang.
        pods: pods of a gang.
        pod: what each of them asks for.
        gangs: how many fit, side by side, each on GPUs of one model.
    """

    gpus: int
    pods: int
    pod: PodShape
    gangs: int


def assign_running(state: FleetState, snapshot: Snapshot) -> None:
    """Give the running pods of a snapshot what they hold.

    Raises:
        InputError: a pod runs on a node that the snapshot does not have.
        CapacityError: the pods hold more than there is.
    """
    position = {name: index for index, name in enumerate(state.node_names)}
    tenants = queue_tenants(snapshot.queues)
    for run in snapshot.running:
        sets = with_tenant(run.workload.pod_sets, tenants.get(run.workload.queue, ""))
        shapes = [one.shape for one in sets for _ in range(one.count)]
        for shape, pod in zip(shapes, run.pods, strict=False):
            if pod.node not in position:
                raise InputError(f"{run.workload.name} runs on node {pod.node}, which the snapshot does not have")
            node, devices = position[pod.node], sum(1 << index for index in pod.devices)
            row = state.row_on(state.shape_id(shape), node, devices, pod.mig_start)
            state.assign(Allocation(node, row, devices))


def fleet_fragment(state: FleetState, mix: ShapeMix) -> dict[str, float]:
    """The fleet's fragment in milli GPU by cause, for the typical pods of ``mix``; schedulable nodes only.

    Unlike FGD's, the typical pods carry their memory, so that lack of it is told.
    """
    shapes, shares = typical_shapes(mix, with_memory=True)
    ids = np.array([state.shape_id(shape) for shape in shapes], np.int64)
    knowledge = empty_knowledge()._replace(typical=ids, typical_share=np.array(shares))
    total = np.zeros(len(CAUSES))
    out = np.zeros(len(CAUSES))
    for node in (row for row, one in enumerate(state.node_list) if one.schedulable):
        fragment_causes(node, state.nodes, state.shapes, knowledge, out)
        total += out
    return dict(zip(CAUSES, total.tolist(), strict=True))


def mean_pod(mix: ShapeMix, gpus: int) -> PodShape:
    """A pod of ``gpus`` whole GPUs with the mean CPU and memory that the mix's pods of this size ask for.

    A size that the mix does not have gets the mean CPU and memory per GPU of all its GPU pods.
    """
    own = [(shape, count) for shape, count in zip(mix.shapes, mix.counts, strict=True) if shape.gpus]
    same = [(s, count) for s, count in own if s.gpus == gpus and s.gpu_milli == WHOLE_GPU_MILLI]
    pods = same or own
    asked = sum(count * shape.gpu_milli_total for shape, count in pods)
    if not asked:
        return PodShape(gpus=gpus)
    scale = gpus * WHOLE_GPU_MILLI
    cpu = scale * sum(count * shape.cpu_milli for shape, count in pods) // asked
    memory = scale * sum(count * shape.memory_bytes for shape, count in pods) // asked
    return PodShape(cpu, memory, gpus)


def gangs_that_fit(state: FleetState, mix: ShapeMix, gpus: int) -> GangFit:
    """How many gangs of ``gpus`` whole GPUs (a power of two) fit on schedulable nodes without taints.

    Ideal: place gang after gang until one does not fit. All pods of a gang are alike, so a node takes
    min(whole free GPUs / its GPUs, free CPU / its CPU, free memory / its memory) of them in any order, and the gangs
    are the pods that fit over the pods of a gang; that is what is counted, for each GPU model by itself.
    """
    size = min(gpus, MOST_GPUS_PER_POD)
    pod = mean_pod(mix, size)
    row_of_pod = state.shape_id(pod)
    refused = state.shapes.static_refusals[int(state.shapes.constraint[row_of_pod])]
    pods: dict[tuple[str, ...], int] = {}
    for row in np.flatnonzero(refused == 0).tolist():
        fits = int((state.nodes.gpu_free[row] == WHOLE_GPU_MILLI).sum()) // size
        if pod.cpu_milli:
            fits = min(fits, int(state.nodes.cpu_free[row]) // pod.cpu_milli)
        if pod.memory_bytes:
            fits = min(fits, int(state.nodes.memory_free[row]) // pod.memory_bytes)
        models = state.node_list[row].gpu_models
        pods[models] = pods.get(models, 0) + fits
    per_gang = gpus // size
    return GangFit(gpus, per_gang, pod, sum(count // per_gang for count in pods.values()))
