"""GPU metrics of dcgm-exporter: its text (/metrics), answers of Prometheus' HTTP API as JSON, or a CSV of samples.

What is read of each GPU: GPU_UTIL, SM_ACTIVE, PIPE_TENSOR_ACTIVE, DRAM_ACTIVE, memory used and free, and whose pod has
it. Names of labels changed over the versions (`Hostname`, `exported_namespace`); all are known. Samples of one GPU are
averaged.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from muster.errors import InputError
from muster.traces.files import read_text

METRICS: Mapping[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("util", 0.01),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram", 1.0),
    "DCGM_FI_DEV_FB_USED": ("used", 1.0),
    "DCGM_FI_DEV_FB_FREE": ("free", 1.0),
}
"""Metric to its short name and the factor that makes it a share of 1; memory stays in MiB."""

BLANK = 9.2e18
"""DCGM's values for "no value" are above this."""

_LINE = re.compile(r"(DCGM_\w+)\{(.*)\}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TENANT = ("namespace", "exported_namespace", "pod_namespace", "dra_claim_namespace", "hpc_job", "tenant", "account")
_HOST = ("Hostname", "hostname", "node", "instance", "kubernetes_node")
_COLUMNS = {
    "gpu_util": "util", "util": "util", "sm_active": "sm", "sm": "sm", "tensor_active": "tensor", "tensor": "tensor",
    "dram_active": "dram", "dram": "dram", "fb_used": "used", "fb_free": "free", "memory": "memory",
}  # fmt: skip


class GpuSample(Struct, frozen=True):
    """A GPU in the mean over the samples: shares of 1; ``tenant`` is empty where no pod has it.

    ``values`` has some of ``util``, ``sm``, ``tensor``, ``dram``, ``memory``; ``samples`` is how often it was seen so.
    """

    gpu: str
    tenant: str
    values: dict[str, float]
    samples: int = 1


class GpuSamples(Struct, frozen=True):
    """What was read: the GPUs, how many samples, and how many values were blank."""

    gpus: tuple[GpuSample, ...]
    samples: int
    blank: int


_Row = tuple[str, str, str, float]
"""GPU, tenant, short name, value."""


def read_gpu_samples(path: str) -> GpuSamples:
    """Metrics from a file; raises `InputError` where there are none of GPUs."""
    return gpu_samples_of(read_text(path), path)


def gpu_samples_of(text: str, path: str) -> GpuSamples:
    """The same from a text; ``path`` is where it is from, for errors."""
    start = text.lstrip()[:1]
    if start in ("{", "[") and start:
        rows = list(_of_json(text, path))
    elif _LINE.search(text):
        rows = list(_of_text(text))
    else:
        rows = list(_of_csv(text, path))
    kept = [row for row in rows if row[3] < BLANK]
    if not any(row[2] == "util" for row in kept):
        raise InputError(
            "holds no GPU utilisation", file=path,
            hint="dcgm-exporter's text, Prometheus' JSON of DCGM_FI_DEV_GPU_UTIL, or CSV with gpu,tenant,gpu_util",
        )  # fmt: skip
    return GpuSamples(tuple(_averaged(kept)), sum(row[2] == "util" for row in kept), len(rows) - len(kept))


def _averaged(rows: Iterable[_Row]) -> Iterator[GpuSample]:
    sums: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
    for gpu, tenant, name, value in rows:
        values = sums.setdefault((gpu, tenant), {})
        total, count = values.get(name, (0.0, 0))
        values[name] = total + value, count + 1
    for (gpu, tenant), values in sums.items():
        means = {name: total / count for name, (total, count) in values.items()}
        used, free = means.pop("used", None), means.pop("free", None)
        if used is not None and free is not None and used + free > 0:
            means["memory"] = used / (used + free)
        if "util" in means:
            shares = {name: min(1.0, max(0.0, value)) for name, value in means.items()}
            yield GpuSample(gpu, tenant, shares, values["util"][1])


def _labelled(labels: Mapping[str, str]) -> tuple[str, str]:
    """Which GPU labels mean, and whose it is."""
    host = next((labels[name] for name in _HOST if labels.get(name)), "")
    gpu = labels.get("UUID") or f"{host}/{labels.get('gpu', '')}"
    part = labels.get("GPU_I_ID", "")
    tenant = next((labels[name] for name in _TENANT if labels.get(name)), "")
    return f"{gpu}/{part}" if part else gpu, tenant


def _of_text(text: str) -> Iterator[_Row]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None or found[1] not in METRICS:
            continue
        short, factor = METRICS[found[1]]
        try:
            value = float(found[3])
        except ValueError:
            continue
        gpu, tenant = _labelled(dict(_LABEL.findall(found[2])))
        yield gpu, tenant, short, value * factor if value < BLANK else value


class _Series(Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(Struct):
    result: list[_Series]


class _Answer(Struct):
    data: _Data


def _of_json(text: str, path: str) -> Iterator[_Row]:
    try:
        answer = msgspec.json.decode(text, type=_Answer | list[_Answer])
    except msgspec.DecodeError as error:
        hint = "the JSON of Prometheus' /api/v1/query or query_range"
        raise InputError(str(error).splitlines()[0], file=path, hint=hint) from None
    for each in answer if isinstance(answer, list) else [answer]:
        for series in each.data.result:
            known = METRICS.get(series.metric.get("__name__", ""))
            if known is None:
                continue
            gpu, tenant = _labelled(series.metric)
            for _, number in [*([series.value] if series.value else []), *series.values]:
                try:
                    value = float(number)
                except ValueError:
                    continue
                if value == value:
                    yield gpu, tenant, known[0], value * known[1] if value < BLANK else value


def _of_csv(text: str, path: str) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(text))
    titles = [title.strip().lower() for title in reader.fieldnames or ()]
    known = {title: _COLUMNS[title] for title in titles if title in _COLUMNS}
    if "gpu" not in titles or "util" not in known.values():
        return
    percent = {
        short: any(value > 1.0 for value in _column(text, titles.index(title)))
        for title, short in known.items() if short not in ("used", "free")
    }  # fmt: skip
    for number, row in enumerate(reader, 2):
        cells = {
            (key or "").strip().lower(): (value or "").strip() for key, value in row.items() if isinstance(value, str)
        }
        tenant = next((cells[name] for name in ("tenant", "namespace", "account", "user") if cells.get(name)), "")
        for title, short in known.items():
            if not cells.get(title):
                continue
            try:
                value = float(cells[title].rstrip("%"))
            except ValueError:
                raise InputError(f"{cells[title][:30]!r} is no number", file=path, line=number, field=title) from None
            yield cells["gpu"], tenant, short, value / 100 if percent.get(short) else value


def _column(text: str, index: int) -> Iterator[float]:
    """The numbers in a column; what is none is told when its row is read."""
    for row in list(csv.reader(io.StringIO(text)))[1:]:
        try:
            yield float(row[index].strip().rstrip("%"))
        except (ValueError, IndexError):
            continue
