"""What a workload and a node must keep to, whoever made them: readers and writers ask the same questions."""

from __future__ import annotations

import math

from muster.errors import InputError
from muster.model import Fleet, Node, PodSet, Workload, checked_shape
from muster.model.fleet import NODE_SHARING
from muster.traces.tables import MAX_CPU_MILLI, MAX_GPUS, MAX_JOB_GPUS, MAX_MEMORY_MIB, MAX_SECONDS

MAX_MEMORY_BYTES = MAX_MEMORY_MIB * 2**20
MAX_PODS = 1_000_000
"""Above what any kubelet is told to take."""


def check_workload(workload: Workload, file: str, line: int | None = None) -> None:
    """Raise `InputError` for a nameless workload, absurd times or no pods; `check_pod_set` looks at the pods."""
    if not workload.name:
        raise InputError("is empty", file=file, line=line, field="name")
    if not -MAX_SECONDS <= workload.submitted_s <= MAX_SECONDS:
        _refuse_time(workload.submitted_s, "submitted_s", file, line)
    for field, value in (
        ("duration_s", workload.duration_s),
        ("time_limit_s", workload.time_limit_s),
        ("recorded_wait_s", workload.recorded_wait_s),
    ):
        if value is not None and not 0 <= value <= MAX_SECONDS:
            _refuse_time(value, field, file, line)
    if not workload.pod_sets:
        raise InputError("has no pods", file=file, line=line, field="pod_sets")
    if not -(2**53) < workload.priority < 2**53:
        raise InputError("is absurdly large", file=file, line=line, field="priority")


def check_pod_set(pod_set: PodSet, file: str, line: int | None = None) -> None:
    """Raise `InputError` for counts or sizes that make no sense."""
    shape = pod_set.shape
    for field, value, limit in (
        ("cpu_milli", shape.cpu_milli, MAX_CPU_MILLI),
        ("memory_bytes", shape.memory_bytes, MAX_MEMORY_BYTES),
        ("gpus", shape.gpus, MAX_GPUS),
        ("gpu_milli", shape.gpu_milli, 1000),
        ("count", pod_set.count, MAX_JOB_GPUS),
        ("min_count", pod_set.min_count or 0, MAX_JOB_GPUS),
    ):
        if not -limit <= value <= limit:
            raise InputError("is absurdly large", file=file, line=line, field=field, hint=f"at most {limit:,}")
    checked_shape(shape, file=file, line=line)
    if pod_set.count < 1:
        raise InputError(f"is {pod_set.count}", file=file, line=line, field="count", hint="at least 1")
    if pod_set.min_count is not None and not 0 <= pod_set.min_count <= pod_set.count:
        what = f"is {pod_set.min_count} of {pod_set.count} pods"
        raise InputError(what, file=file, line=line, field="min_count", hint="at most count")


def check_node(node: Node, fleet: Fleet, file: str, line: int | None = None) -> None:
    """Raise `InputError` for a nameless node, negative or absurd sizes, or a place that is not one a level."""
    if not node.name:
        raise InputError("is empty", file=file, line=line, field="name")
    for field, value, limit in (
        ("cpu_milli", node.cpu_milli, MAX_CPU_MILLI),
        ("memory_bytes", node.memory_bytes, MAX_MEMORY_BYTES),
        ("devices", len(node.devices), MAX_GPUS),
        ("max_pods", node.max_pods, MAX_PODS),
    ):
        if not 0 <= value <= limit:
            what = "is negative" if value < 0 else "is absurdly large"
            raise InputError(what, file=file, line=line, field=field, hint=f"0 to {limit:,}")
    if node.topology and len(node.topology) != len(fleet.topology.levels):
        what = f"has {len(node.topology)} domains for {len(fleet.topology.levels)} levels"
        raise InputError(what, file=file, line=line, field="topology", hint="one domain a level, widest first")
    if [device.index for device in node.devices] != list(range(len(node.devices))):
        raise InputError("indexes are not 0, 1, 2 ...", file=file, line=line, field="devices")
    for device in node.devices:
        if not device.model or not 0 <= device.memory_bytes <= MAX_MEMORY_BYTES:
            raise InputError("a device lacks a model or has absurd memory", file=file, line=line, field="devices")

    if node.sharing and node.sharing not in NODE_SHARING:
        hint = f"one of {', '.join(NODE_SHARING)}"
        raise InputError(
            f"{node.sharing[:40]!r} is no way to share GPUs", file=file, line=line, field="sharing", hint=hint
        )


def _refuse_time(value: float, field: str, file: str, line: int | None) -> None:
    if math.isfinite(value) and abs(value) <= MAX_SECONDS:
        raise InputError(f"is negative ({value:g})", file=file, line=line, field=field)
    hint = f"seconds, at most {MAX_SECONDS:.0e}"
    raise InputError(f"is absurd ({value:g})", file=file, line=line, field=field, hint=hint)
