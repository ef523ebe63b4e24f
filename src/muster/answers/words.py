"""Amounts in words, the same in every answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.workload import PodSet, PodShape


def plural(count: float, noun: str, many: str | None = None) -> str:
    """``1 pod``, ``64 pods``; thousands are set apart."""
    number = f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"
    return f"{number} {noun if count == 1 else many or noun + 's'}"


def gpus(milli: float) -> str:
    """GPU in thousandths as ``1 GPU``, ``64 GPUs`` or ``0.25 GPU``."""
    whole = milli / WHOLE_GPU_MILLI
    if 0 < whole < 1:
        return f"{whole:g} GPU"
    return f"{whole:,g} GPU{'' if whole == 1 else 's'}"


def gpu_hours(gpu_s: float) -> str:
    """GPU-seconds as ``4.2 GPU-hours``, of little ``1.5 GPU-minutes``."""
    hours = gpu_s / 3600
    if 0 < hours < 0.05:
        return f"{gpu_s / 60:.1f} GPU-minutes"
    return f"{f'{hours:.1f}'.removesuffix('.0')} GPU-hours" if hours < 100 else f"{hours:,.0f} GPU-hours"


def listed(names: Iterable[str], most: int = 3) -> str:
    """``a, b and c``; of more than ``most`` names the first, and how many more."""
    shown = list(names)
    if len(shown) > most:
        return f"{', '.join(shown[:most])} and {len(shown) - most:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def pods_of(sets: Sequence[PodSet]) -> str:
    """``64 pods x 8 GPUs (H100)``, of several sets each with its role."""
    shown = [each for each in sets if each.count]
    if len(shown) == 1:
        return _pods(shown[0])
    return " + ".join(f"{each.role}: {_pods(each)}" for each in shown)


def _pods(pod_set: PodSet) -> str:
    least = pod_set.required
    count = f"{least:,} to {pod_set.count:,} pods" if least < pod_set.count else plural(pod_set.count, "pod")
    return f"{count} x {shape_of(pod_set.shape)}"


def shape_of(shape: PodShape) -> str:
    """``8 GPUs (H100)``, ``0.5 GPU``, ``MIG 1g.10gb`` or ``16 CPU``."""
    if not shape.gpus:
        return f"{shape.cpu_milli / 1000:g} CPU"
    what = f"MIG {shape.mig_profile}" if shape.mig_profile else gpus(shape.gpu_milli_total)
    return f"{what} ({' or '.join(shape.gpu_models)})" if shape.gpu_models else what
