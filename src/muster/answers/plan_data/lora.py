"""How popular each adapter is, and how many requests the busiest hour has, from a log of requests."""

from __future__ import annotations

import csv
import io
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from muster.answers.plan_data.coldstart import COLUMNS as TIMES
from muster.answers.plan_data.coldstart import moment_of
from muster.answers.words import plural
from muster.errors import InputError
from muster.planning.question import FromData
from muster.traces.files import read_bytes

COLUMNS = ("adapter", "lora", "lora_name", "lora_adapter", "tenant", "model", "checkpoint_model_version_id")
"""Columns that name whom a request was for, the best first."""


def read_lora(path: str, given: Mapping[str, Any]) -> FromData:
    """Requests by adapter and of the busiest hour, from CSV (also in a .tar.gz of one file); raises `InputError`."""
    text = _text(path)
    reader = csv.DictReader(io.StringIO(text))
    titles = [title.strip().lower() for title in reader.fieldnames or ()]
    column = next((name for name in COLUMNS if name in titles), None)
    if column is None:
        raise InputError("names no adapters", file=path, hint=f"a CSV with a column {', '.join(COLUMNS[:4])}")
    counted: Counter[str] = Counter()
    hours: Counter[int] = Counter()
    clock = next((name for name in TIMES if name in titles), None)
    empty = 0
    for row in reader:
        name = _cell(row, reader.fieldnames, titles, column)
        if name:
            counted[name.replace("=", "_")] += 1
            moment = moment_of(_cell(row, reader.fieldnames, titles, clock)) if clock else None
            if moment is not None:
                hours[int(moment // 3600)] += 1
        else:
            empty += 1
    if not counted:
        raise InputError("names no adapter in any row", file=path, field=column)
    told = (f"{path}: {plural(empty, 'request')} without an adapter left out",) if empty else ()
    source = f"{path}: {plural(sum(counted.values()), 'request')} by {column}"
    values: dict[str, Any] = {
        "popular": tuple(f"{name}={count}" for name, count in counted.most_common()), "tenants": len(counted),
    }  # fmt: skip
    sources = dict.fromkeys(values, source)
    if len(hours) > 1:
        values["requests"] = float(max(hours.values()))
        sources["requests"] = (
            f"{source}: the busiest hour; the mean of those with any is {hours.total() / len(hours):.0f}"
        )
    return FromData(values, sources, told)


def _cell(row: Mapping[str, str | None], titles: Sequence[str] | None, lower: Sequence[str], name: str) -> str:
    """A cell by its column's name in lower case."""
    return (row.get((titles or ())[lower.index(name)]) or "").strip()


def _text(path: str) -> str:
    data = read_bytes(path)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            member = next(
                (each for each in archive if each.isfile() and not each.name.rpartition("/")[2].startswith(".")), None
            )
            inner = archive.extractfile(member) if member is not None else None
            data = inner.read() if inner is not None else b""
    except tarfile.TarError:
        pass
    return data.decode("utf-8-sig", "replace")
