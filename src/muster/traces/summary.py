"""What is in a trace, in numbers: counts, sizes, times, demand, and what was skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from muster.model import Workload
from muster.traces.trace import Trace

QUANTILES = (0.1, 0.5, 0.9, 0.99)
EXAMPLES = 3
"""How many skipped rows of one kind are told in full."""


class Spread(Struct, frozen=True):
    """How one number is spread over the workloads that have it; quantiles are values that occur (nearest rank)."""

    known: int
    mean: float
    least: float
    p10: float
    p50: float
    p90: float
    p99: float
    most: float


class SizeClass(Struct, frozen=True):
    """Workloads of about one size.

    Attributes:
        size: such as ``no GPU``, ``share``, ``1``, ``2``, ``3-4``; cores where a trace has no GPUs.
        workloads, pods: how many.
        gpus: demand in GPUs.
        cores: demand in cores.
        gpu_hours: demand times run time, where that is known.
    """

    size: str
    workloads: int
    pods: int
    gpus: float
    cores: float
    gpu_hours: float


class SkippedSummary(Struct, frozen=True):
    """Rows that were skipped for the same field, with the first ones in full."""

    field: str
    rows: int
    examples: tuple[str, ...]


class TraceInfo(Struct, frozen=True):
    """The summary of one trace; times in seconds, memory in bytes."""

    name: str
    source: str
    epoch: str | None
    workloads: int
    pods: int
    gangs: int
    shapes: int
    queues: int
    users: int
    first_s: float
    last_s: float
    gpus: float
    cores: float
    memory_bytes: int
    gpu_hours: float
    gpu_workloads: int
    constrained: int
    unit: str
    sizes: tuple[SizeClass, ...]
    run_s: Spread | None
    wait_s: Spread | None
    limit_s: Spread | None
    qualities: tuple[tuple[str, int], ...]
    skipped: int
    skipped_by_field: tuple[SkippedSummary, ...]
    meta: tuple[tuple[str, str], ...]


def summarize(trace: Trace) -> TraceInfo:
    """Count a trace."""
    work = trace.workloads
    gpu_milli = [workload.gpu_milli for workload in work]
    with_gpus = sum(milli > 0 for milli in gpu_milli)
    sizes = _sizes(work, gpu_milli, in_cores=not with_gpus)
    memory = sum(one.count * one.shape.memory_bytes for workload in work for one in workload.pod_sets)
    return TraceInfo(
        name=trace.name,
        source=trace.source,
        epoch=trace.epoch,
        workloads=len(work),
        pods=sum(workload.pods for workload in work),
        gangs=sum(workload.pods > 1 for workload in work),
        shapes=len({one.shape for workload in work for one in workload.pod_sets}),
        queues=len({workload.queue for workload in work} - {""}),
        users=len({workload.user for workload in work} - {""}),
        first_s=min((workload.submitted_s for workload in work), default=0.0),
        last_s=max((workload.submitted_s for workload in work), default=0.0),
        gpus=sum(gpu_milli) / 1000,
        cores=sum(workload.cpu_milli for workload in work) / 1000,
        memory_bytes=memory,
        gpu_hours=sum(one.gpu_hours for one in sizes),
        gpu_workloads=with_gpus,
        constrained=sum(any(one.shape.gpu_models for one in workload.pod_sets) for workload in work),
        unit="GPUs" if with_gpus else "cores",
        sizes=tuple(sizes),
        run_s=spread([workload.duration_s for workload in work]),
        wait_s=spread([workload.recorded_wait_s for workload in work]),
        limit_s=spread([workload.time_limit_s for workload in work]),
        qualities=tuple(Counter(workload.quality for workload in work if workload.quality).most_common()),
        skipped=len(trace.skipped),
        skipped_by_field=_skipped(trace),
        meta=trace.meta,
    )


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and quantiles of the values that are known; None if none is."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    p10, p50, p90, p99 = (known[min(len(known) - 1, int(q * len(known)))] for q in QUANTILES)
    return Spread(len(known), sum(known) / len(known), known[0], p10, p50, p90, p99, known[-1])


def _sizes(work: Sequence[Workload], gpu_milli: Sequence[int], *, in_cores: bool) -> list[SizeClass]:
    rows: dict[int, list[float]] = {}
    for workload, milli in zip(work, gpu_milli, strict=True):
        cpu_milli = workload.cpu_milli
        row = rows.setdefault(_class(cpu_milli if in_cores else milli), [0, 0, 0, 0, 0])
        row[0] += 1
        row[1] += workload.pods
        row[2] += milli / 1000
        row[3] += cpu_milli / 1000
        row[4] += milli / 1000 * (workload.duration_s or 0.0) / 3600
    unit = "core" if in_cores else "GPU"
    return [
        SizeClass(_class_name(key, unit), int(row[0]), int(row[1]), row[2], row[3], row[4])
        for key, row in sorted(rows.items())
    ]


def _class(milli: int) -> int:
    """-2 for nothing, -1 for less than one, else the power of two that it is not above."""
    if milli <= 0:
        return -2
    return -1 if milli < 1000 else (-(-milli // 1000) - 1).bit_length()


def _class_name(key: int, unit: str) -> str:
    if key < 0:
        return f"no {unit}" if key == -2 else f"part of a {unit}"
    high = 2**key
    low = high // 2 + 1
    return f"{low:,}-{high:,}" if low < high else f"{high:,}"


def _skipped(trace: Trace) -> tuple[SkippedSummary, ...]:
    rows: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for one in trace.skipped:
        # Paths into a document differ in their indexes; what they have in common is what is told.
        field = one.field.partition("]")[2].lstrip(".") or one.field
        counts[field] += 1
        if counts[field] <= EXAMPLES:
            rows.setdefault(field, []).append(str(one))
    return tuple(SkippedSummary(field, counts[field], tuple(rows[field])) for field in rows)
