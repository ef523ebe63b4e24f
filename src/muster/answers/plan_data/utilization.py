"""How a fleet's GPUs are used, from the metrics of dcgm-exporter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.answers.words import plural
from muster.planning.question import FromData
from muster.planning.utilization import Use, class_of, use_text
from muster.traces.dcgm import METRICS, GpuSample, GpuSamples, gpu_samples_of, read_gpu_samples


def read_utilization(path: str, given: Mapping[str, Any]) -> FromData:
    """Capacity, what is allocated, and the use of it by tenant and class; raises `InputError`."""
    return _told(read_gpu_samples(path), path)


def read_prometheus(url: str, given: Mapping[str, Any]) -> FromData:
    """The same from Prometheus, of the last day; raises `InputError` and `ClusterError`."""
    import time

    from muster.backends.prometheus import query_range

    return _told(gpu_samples_of(query_range(url, METRICS, time.time()), url), url)


def _told(found: GpuSamples, path: str) -> FromData:
    seen = _seen(found.gpus)
    held = [each for each in found.gpus if each.tenant]
    gpus = {each.gpu for each in found.gpus}
    owned = sum(each.samples / seen[each.gpu] for each in held)
    counted = held or list(found.gpus)
    told: list[str] = []
    if not held:
        told.append(f"{path}: no sample tells whose pod has the GPU: all count as allocated, to nobody by name")
    if found.blank:
        told.append(
            f"{path}: {plural(found.blank, 'value')} had no value and {'is' if found.blank == 1 else 'are'} left out"
        )
    source = f"{path}: {plural(len(gpus), 'GPU')}, {plural(found.samples, 'sample')}"
    values: dict[str, Any] = {
        "capacity": len(gpus),
        "healthy": 1.0,
        "allocated": min(1.0, owned / len(gpus)) if held else 1.0,
        "running": 1.0,
        "use": tuple(map(use_text, _grouped(counted, seen))),
    }
    return FromData(values, dict.fromkeys(values, source), tuple(told))


def _seen(samples: Iterable[GpuSample]) -> dict[str, int]:
    """How often each GPU was seen, whoever had it."""
    found: dict[str, int] = {}
    for each in samples:
        found[each.gpu] = found.get(each.gpu, 0) + each.samples
    return found


def _grouped(samples: Sequence[GpuSample], seen: Mapping[str, int]) -> list[Use]:
    """GPUs of one tenant and class together; one that a tenant had in a part of the samples counts for that part."""
    groups: dict[tuple[str, str], list[tuple[float, Use]]] = {}
    for each in samples:
        own = _use(each)
        groups.setdefault((own.tenant, class_of(own)), []).append((each.samples / seen[each.gpu], own))
    return [_mean(tenant, some) for (tenant, _), some in groups.items()]


def _use(sample: GpuSample) -> Use:
    get = sample.values.get
    tenant = (sample.tenant or "nobody").replace(":", "_").replace(",", "_")
    return Use(tenant, 1.0, sample.values["util"], get("sm"), get("tensor"), get("dram"), None, get("memory"))


def _mean(tenant: str, some: list[tuple[float, Use]]) -> Use:
    gpus = sum(part for part, _ in some)

    def of(name: str) -> float | None:
        known = [(part, value) for part, use in some if (value := getattr(use, name)) is not None]
        return sum(part * value for part, value in known) / sum(part for part, _ in known) if known else None

    return Use(
        tenant, gpus, of("gpu_util") or 0.0, of("sm_active"), of("tensor_active"), of("dram_active"), None, of("memory")
    )
