"""Published allocation curves that the user gives, to be drawn beside ours; none are in the package.

The file is that of the FGD paper's artifact: a row a run with the columns ``workload``, ``sc_policy``, ``seed``,
``total_gpus`` (and ``tune``, the final demand), then 0, 1, 2 ...: allocated GPU in % of the fleet when demand for so
many % of it has arrived.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from muster.errors import InputError

_NEEDED = ("workload", "sc_policy", "seed")
_POLICIES = {
    "random": "random",
    "dotprod": "dot-product",
    "gpuclustering": "gpu-clustering",
    "gpupacking": "gpu-packing",
    "bestfit": "best-fit",
    "fgd": "fgd",
}


class Published(Struct, frozen=True):
    """The mean curve of one workload and policy, over the runs in the file."""

    workload: str
    policy: str
    runs: int
    points: tuple[tuple[float, float], ...]


def read_published(path: str, workloads: Sequence[str], policies: Sequence[str]) -> tuple[Published, ...]:
    """The published curves of ``workloads`` x ``policies`` that the file has, in this order.

    Workloads match by name without ``openb_pod_list_``, ``pods_`` and the like; policies by name without a number.

    Raises:
        InputError: the file cannot be read, is not of this kind, or has none of these workloads and policies.
    """
    wanted = {(plain_workload(workload), policy): workload for workload in workloads for policy in policies}
    found: dict[tuple[str, str], list[dict[float, float]]] = {}
    seen: set[str] = set()
    for line, row in _rows(path):
        policy = plain_policy(row["sc_policy"])
        seen.add(f"{row['workload']} under {policy}")
        key = (plain_workload(row["workload"]), policy)
        if key in wanted:
            found.setdefault(key, []).append(_curve(row, path, line))
    if not found:
        known = ", ".join(sorted(seen)[:3])
        raise InputError(
            "has no curve of these workloads and policies", file=path, field="--published", hint=f"it has {known} ..."
        )
    curves: list[Published] = []
    for (name, policy), workload in wanted.items():
        runs = found.get((name, policy), [])
        if runs:
            marks = [mark for mark in sorted(runs[0]) if all(mark in run for run in runs)]
            points = tuple((mark, sum(run[mark] for run in runs) / len(runs)) for mark in marks)
            curves.append(Published(workload, policy, len(runs), points))
    return tuple(curves)


def plain_workload(name: str) -> str:
    """``openb_pod_list_cpu250`` and ``pods_cpu250`` to ``cpu250``."""
    return re.sub(r"^(openb[_-])?(pod[_-]list|pods?)[_-]", "", Path(name).name.split(".")[0].lower())


def plain_policy(name: str) -> str:
    """``05-BestFit`` to ``best-fit``; names that are not known stay, without their number."""
    bare = re.sub(r"^\d+-", "", name.strip())
    return _POLICIES.get(re.sub(r"[^a-z]", "", bare.lower()), bare)


def _rows(path: str) -> list[tuple[int, dict[str, str]]]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream, restval="")
            missing = [column for column in _NEEDED if column not in (reader.fieldnames or ())]
            if missing:
                hint = "the columns are workload, sc_policy, seed, then 0, 1, 2 ... (arrived %)"
                raise InputError(f"has no column {missing[0]}", file=path, line=1, hint=hint)
            return [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", file=path) from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError("is not a CSV text file", file=path) from None


def _curve(row: dict[str, str], path: str, line: int) -> dict[float, float]:
    curve: dict[float, float] = {}
    for column, text in row.items():
        if not column or not column.isdecimal() or not text.strip():
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 100.5:
            raise InputError(f"is no percentage ({text})", file=path, line=line, field=column)
        curve[float(column)] = value
    if not curve:
        raise InputError("has no figures", file=path, line=line, hint="columns 0, 1, 2 ... hold them")
    return curve
