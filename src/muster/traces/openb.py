"""Alibaba's openb CSV files (cluster-trace-gpu-v2023): nodes and pods.

Times of a pod: ``submitted_s`` is its creation. ``duration_s`` is deletion minus scheduled, the time that it held its
GPUs; a pod that was never scheduled (phase Pending) has deletion minus creation instead: the time that its owner let it
live, and the best that is known. ``recorded_wait_s`` is scheduled minus creation, absent for a pod never scheduled.
No pod is left out: the published experiments count all of them, also those that failed or never ran.
"""

from __future__ import annotations

from pathlib import Path

from muster.model import WHOLE_GPU_MILLI, Device, Fleet, Node, PodSet, PodShape, Workload
from muster.traces.tables import (
    MAX_CPU_MILLI,
    MAX_GPUS,
    MAX_MEMORY_MIB,
    MAX_SECONDS,
    Record,
    read_table,
    refuse_duplicate,
)
from muster.traces.trace import Trace

POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
POD_OPTIONAL = ("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
MIB = 2**20


def read_openb_pods(path: str, source: str) -> Trace:
    """Pods of an openb list; every pod is a workload of its own."""
    shared: dict[PodShape, tuple[PodSet, ...]] = {}
    seen: dict[str, int] = {}
    workloads: list[Workload] = []
    for row in read_table(path, POD_COLUMNS, POD_OPTIONAL):
        name = row.name("name")
        refuse_duplicate(seen, name, path, row.line, "name")
        shape = _shape(row)
        pod_sets = shared.get(shape)
        if pod_sets is None:
            pod_sets = shared[shape] = (PodSet(shape),)
        submitted_s, duration_s, wait_s = _times(row)
        workloads.append(
            Workload(
                name,
                pod_sets,
                submitted_s=submitted_s,
                duration_s=duration_s,
                recorded_wait_s=wait_s,
                quality=row.text("qos"),
            )
        )
    return Trace(Path(path).stem, source, tuple(workloads))


def read_openb_nodes(path: str) -> Fleet:
    """Nodes of an openb list; GPU models keep the trace's names, device memory is not in it."""
    devices: dict[tuple[str, int], tuple[Device, ...]] = {}
    seen: dict[str, int] = {}
    nodes: list[Node] = []
    for row in read_table(path, NODE_COLUMNS):
        name = row.name("sn")
        refuse_duplicate(seen, name, path, row.line, "sn")
        gpus, model = row.integer("gpu", 0, MAX_GPUS), row.text("model")
        if gpus and not model:
            raise row.error("model", f"is empty on a node with {gpus} GPUs")
        key = (model, gpus)
        if key not in devices:
            devices[key] = tuple(Device(index, model) for index in range(gpus))
        cpu_milli = row.integer("cpu_milli", 0, MAX_CPU_MILLI)
        nodes.append(Node(name, cpu_milli, row.integer("memory_mib", 0, MAX_MEMORY_MIB) * MIB, devices[key]))
    return Fleet(tuple(nodes), name=Path(path).stem)


def _shape(row: Record) -> PodShape:
    gpus = row.integer("num_gpu", 0, MAX_GPUS)
    gpu_milli = row.integer("gpu_milli", 0, 10**6)
    models = tuple(sorted({model.strip() for model in row.text("gpu_spec").split("|")} - {""}))
    if gpus and not 0 < gpu_milli <= WHOLE_GPU_MILLI:
        raise row.error("gpu_milli", f"is {gpu_milli} with num_gpu {gpus}", "1 to 1000, where 1000 is one whole GPU")
    if gpus > 1 and gpu_milli != WHOLE_GPU_MILLI:
        raise row.error("gpu_milli", f"is {gpu_milli} with num_gpu {gpus}", "several GPUs are whole ones: 1000")
    if not gpus and gpu_milli:
        raise row.error("gpu_milli", f"is {gpu_milli} with num_gpu 0", "num_gpu 1 asks for a share of one GPU")
    return PodShape(
        cpu_milli=row.integer("cpu_milli", 0, MAX_CPU_MILLI),
        memory_bytes=row.integer("memory_mib", 0, MAX_MEMORY_MIB) * MIB,
        gpus=gpus,
        gpu_milli=gpu_milli if gpus else WHOLE_GPU_MILLI,
        gpu_models=models if gpus else (),
    )


def _times(row: Record) -> tuple[float, float | None, float | None]:
    """Submitted, duration and recorded wait of a pod, as the module says."""
    created = row.optional_number("creation_time", 0, MAX_SECONDS)
    deleted = row.optional_number("deletion_time", 0, MAX_SECONDS)
    scheduled = row.optional_number("scheduled_time", 0, MAX_SECONDS)
    if created is None:
        if deleted is not None and scheduled is not None and deleted >= scheduled:
            return 0.0, deleted - scheduled, None
        return 0.0, None, None
    if scheduled is not None and scheduled < created:
        raise row.error("scheduled_time", f"{scheduled:g} is before creation_time {created:g}")
    started = created if scheduled is None else scheduled
    if deleted is not None and deleted < started:
        raise row.error("deletion_time", f"{deleted:g} is before the pod's start at {started:g}")
    duration_s = None if deleted is None else deleted - started
    return created, duration_s, None if scheduled is None else scheduled - created
