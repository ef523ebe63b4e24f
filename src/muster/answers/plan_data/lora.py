"""How popular each adapter is, from a log of requests."""

from __future__ import annotations

import csv
import io
import tarfile
from collections import Counter
from collections.abc import Mapping
from typing import Any

from muster.answers.words import plural
from muster.errors import InputError
from muster.planning.question import FromData
from muster.traces.files import read_bytes

COLUMNS = ("adapter", "lora", "lora_name", "lora_adapter", "tenant", "model", "checkpoint_model_version_id")
"""Columns that name whom a request was for, the best first."""


def read_lora(path: str, given: Mapping[str, Any]) -> FromData:
    """Requests counted by adapter, from CSV (also in a .tar.gz of one file); raises `InputError`."""
    text = _text(path)
    reader = csv.DictReader(io.StringIO(text))
    titles = [title.strip().lower() for title in reader.fieldnames or ()]
    column = next((name for name in COLUMNS if name in titles), None)
    if column is None:
        raise InputError("names no adapters", file=path, hint=f"a CSV with a column {', '.join(COLUMNS[:4])}")
    counted: Counter[str] = Counter()
    empty = 0
    for row in reader:
        name = (row.get((reader.fieldnames or ())[titles.index(column)]) or "").strip()
        if name:
            counted[name.replace("=", "_")] += 1
        else:
            empty += 1
    if not counted:
        raise InputError("names no adapter in any row", file=path, field=column)
    told = (f"{path}: {plural(empty, 'request')} without an adapter left out",) if empty else ()
    source = f"{path}: {plural(sum(counted.values()), 'request')} by {column}"
    values = {"popular": tuple(f"{name}={count}" for name, count in counted.most_common()), "tenants": len(counted)}
    return FromData(values, {"popular": source, "tenants": source}, told)


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
