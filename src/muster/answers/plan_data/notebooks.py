"""Sessions and cells of notebooks, as hubs and kernels log them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct

from muster.answers.plan_data.coldstart import moment_of
from muster.answers.words import plural
from muster.errors import InputError
from muster.planning.question import FromData
from muster.traces.files import read_text

BREAK_S = 6 * 3600.0
"""A pause as long as this is no pause: the user went, and the next cell begins new work."""
MOST_STEPS = 20_000
_HINT = "columns user, start, end; last_active if it is known; seconds or dates"


class Span(Struct, frozen=True):
    """A row: a session, or a cell; times in seconds."""

    user: str
    start_s: float
    end_s: float
    last_s: float | None


def read_sessions(path: str, given: Mapping[str, Any]) -> FromData:
    """Users, how many notebooks are open at a time, and the tail of a session; raises `InputError`."""
    spans, told = _spans(path)
    first, last = min(each.start_s for each in spans), max(each.end_s for each in spans)
    length = last - first
    if length < 3600:
        raise InputError(f"spans {length:.0f} s", file=path, hint="an hour at least, better weeks")
    step = max(600.0, length / MOST_STEPS)
    seen = _open_at(spans, first, step, math.ceil(length / step))
    users = len({each.user for each in spans})
    hour = max(1, round(3600 / step))
    busiest = max(sum(part := seen[at : at + hour]) / len(part) for at in range(0, max(1, len(seen) - hour + 1), hour))
    source = f"{path}: {plural(len(spans), 'session')}, {length / 86400:.3g} days"
    values: dict[str, Any] = {
        "users": users, "open": min(1.0, max(busiest, 1e-6) / users), "seen": tuple(map(float, seen)),
    }  # fmt: skip
    known = [(each, each.last_s) for each in spans if each.last_s is not None]
    if known:
        values["work_s"] = max(1.0, math.fsum(at - each.start_s for each, at in known) / len(known))
        values["tail_s"] = math.fsum(each.end_s - at for each, at in known) / len(known)
    else:
        told.append(f"{path}: no column last_active: how long sessions stay open after the last cell is not from it")
    return FromData(values, dict.fromkeys(values, source), tuple(told))


def read_cells(path: str, given: Mapping[str, Any]) -> FromData:
    """Pauses between the cells of a user, and the share of the work in which one runs; raises `InputError`."""
    spans, told = _spans(path)
    by_user: dict[str, list[Span]] = {}
    for each in spans:
        by_user.setdefault(each.user, []).append(each)
    pauses: list[float] = []
    running, breaks = 0.0, 0
    for mine in by_user.values():
        merged = _merged(sorted((each.start_s, each.end_s) for each in mine))
        running += math.fsum(end - start for start, end in merged)
        for (_, before), (after, _) in pairwise(merged):
            if after - before < BREAK_S:
                pauses.append(after - before)
            else:
                breaks += 1
    if len(pauses) < 20:
        raise InputError(f"has {plural(len(pauses), 'pause')} between cells", file=path, hint="20 at least")
    told.append(f"{path}: {plural(breaks, 'gap')} of {BREAK_S / 3600:.0f} h and more left out: new work, not a pause")
    source = f"{path}: {plural(len(spans), 'cell')} of {plural(len(by_user), 'user')}"
    share = running / (running + math.fsum(pauses))
    values = {"pauses": tuple(sorted(pauses)), "active": min(0.999, max(1e-6, share))}
    return FromData(values, dict.fromkeys(values, source), tuple(told))


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without overlaps: two notebooks of a user count as one."""
    found: list[tuple[float, float]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _open_at(spans: list[Span], first: float, step: float, count: int) -> list[int]:
    """How many are open in the middle of each step."""
    steps = [0] * (count + 1)
    for each in spans:
        begin = min(count, max(0, math.ceil((each.start_s - first) / step - 0.5)))
        end = min(count, max(begin, math.ceil((each.end_s - first) / step - 0.5)))
        steps[begin] += 1
        steps[end] -= 1
    found: list[int] = []
    running = 0
    for each in steps[:-1]:
        running += each
        found.append(running)
    return found


def _spans(path: str) -> tuple[list[Span], list[str]]:
    found = [each for each in _rows(path) if each is not None]
    total = sum(1 for _ in _rows(path))
    if not found:
        raise InputError("tells no session", file=path, hint=_HINT)
    left = total - len(found)
    return found, [f"{path}: {plural(left, 'row')} without a user, a start or an end after it left out"] if left else []


def _rows(path: str) -> Iterator[Span | None]:
    reader = csv.DictReader(io.StringIO(read_text(path)))
    titles = {title.strip().lower(): title for title in reader.fieldnames or ()}
    if not {"user", "start", "end"} <= titles.keys():
        raise InputError("lacks a column of user, start, end", file=path, hint=_HINT)
    for row in reader:
        cells = {name: (row.get(title) or "").strip() for name, title in titles.items()}
        start, end = moment_of(cells["start"]), moment_of(cells["end"])
        if not cells["user"] or start is None or end is None or end < start:
            yield None
            continue
        last = moment_of(cells["last_active"]) if cells.get("last_active") else None
        yield Span(cells["user"], start, end, last if last is not None and start <= last <= end else None)
