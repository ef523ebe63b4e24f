"""Workloads of `muster plan sharing` out of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.errors import InputError
from muster.planning.plans.sharing import MOST_JOBS, read_job
from muster.planning.question import FromData
from muster.traces.tables import read_table, refuse_duplicate

_OPTIONAL = ("busy", "count", "tenant")


def workloads_of(named: str, given: Mapping[str, Any]) -> FromData:
    """The workloads of a CSV file: name, memory (``10GB``), compute, and if told busy, count, tenant.

    Raises:
        InputError: a cell that is not what it should be, with its line.
    """
    del given
    found: list[str] = []
    seen: dict[str, int] = {}
    for row in read_table(named, ("name", "memory", "compute"), _OPTIONAL):
        name = row.name("name")
        if set(name) & set(":,="):
            raise row.error("name", f"{name[:30]!r} has one of : , =", "another name")
        refuse_duplicate(seen, name, named, row.line, "name")
        parts = [f"{key}={row.text(key)}" for key in ("memory", "compute", *_OPTIONAL) if row.text(key)]
        text = f"{name}:{','.join(parts)}"
        try:
            read_job(text)
        except InputError as error:
            raise InputError(error.what, file=named, line=row.line, hint=error.hint) from None
        if len(found) == MOST_JOBS:
            raise row.error("name", f"is workload {MOST_JOBS + 1}", f"at most {MOST_JOBS}; put like ones together")
        found.append(text)
    return FromData({"jobs": tuple(found)}, {"jobs": f"{named}: {len(found)} workloads"})
