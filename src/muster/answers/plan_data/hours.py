"""GPUs in use hour by hour: from a table of hours, or from the jobs of a trace or of accounting."""

from __future__ import annotations

import csv
import io
import math

from muster.errors import InputError
from muster.traces.files import read_text

HOUR_S = 3600.0
_COLUMNS = ("gpus", "gpus_used", "gpu_demand", "demand", "value")
MOST_HOURS = 24 * 366 * 5


def hours_of(path: str) -> tuple[tuple[float, ...], str]:
    """GPUs in use in the mean of each hour, and where they are from; raises `InputError`.

    A CSV with a column ``gpus`` has one row an hour; everything else is read as a trace, whose jobs run from their
    submission for their recorded time.
    """
    table = _of_table(path)
    return (table, f"{path}: {len(table):,} hours") if table is not None else _of_jobs(path)


def _of_table(path: str) -> tuple[float, ...] | None:
    try:
        text = read_text(path)
    except (InputError, ValueError):
        return None
    reader = csv.DictReader(io.StringIO(text))
    titles = [title.strip().lower() for title in reader.fieldnames or ()]
    column = next((name for name in _COLUMNS if name in titles), None)
    if column is None or len(titles) > 3:
        return None
    found: list[float] = []
    for number, row in enumerate(reader, 2):
        cell = (row.get((reader.fieldnames or ())[titles.index(column)]) or "").strip()
        try:
            value = float(cell)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e8:
            raise InputError(f"{cell[:30]!r} is no number of GPUs", file=path, line=number, field=column)
        found.append(value)
    if not found:
        raise InputError("has no rows", file=path, hint="one row an hour, with a column gpus")
    return tuple(found)


def _of_jobs(path: str) -> tuple[tuple[float, ...], str]:
    from muster.traces import read_workload

    trace = read_workload(path)
    spans = [
        (each.submitted_s, each.submitted_s + each.duration_s, each.gpu_milli / 1000)
        for each in trace.workloads
        if each.duration_s is not None and each.gpu_milli
    ]
    if not spans:
        raise InputError("has no GPU jobs with run times", file=path, hint="a CSV with a column gpus, one row an hour")
    first = math.floor(min(begin for begin, _, _ in spans) / HOUR_S)
    last = math.ceil(max(end for _, end, _ in spans) / HOUR_S)
    if last - first > MOST_HOURS:
        raise InputError(f"spans {(last - first) / 8766:.0f} years", file=path, hint="cut it to the years that count")
    return _filled(spans, first, last - first), f"{path}: {len(spans):,} jobs of {(last - first) / 24:,.0f} days"


def _filled(spans: list[tuple[float, float, float]], first: int, hours: int) -> tuple[float, ...]:
    """Mean GPUs of each hour: whole hours by differences, so that long jobs cost no more than short ones."""
    parts = [0.0] * hours
    steps = [0.0] * (hours + 1)
    for begin, end, gpus in spans:
        low, high = begin / HOUR_S - first, end / HOUR_S - first
        at, until = math.floor(low), math.floor(high)
        if at == until:
            parts[at] += gpus * (high - low)
            continue
        parts[at] += gpus * (at + 1 - low)
        steps[at + 1] += gpus
        steps[until] -= gpus
        if until < hours:
            parts[until] += gpus * (high - until)
    running = 0.0
    found: list[float] = []
    for part, step in zip(parts, steps, strict=False):
        running += step
        found.append(max(0.0, running + part))
    return tuple(found)
