"""Spot traces: how many instances were held over time.

Read are SkyPilot's JSON (``{"metadata": {"gap_seconds": 300}, "data": [16, 16, 3, ...]}``), and lists of events as CSV
(``milliseconds,add|remove,node``, as Bamboo's).
"""

from __future__ import annotations

import csv
import io

import msgspec
from msgspec import Struct

from muster.errors import InputError
from muster.traces.files import read_text

MOST_STEPS = 5_000_000
STEP_S = 60.0
"""Lists of events are counted in steps of this."""


class SpotTrace(Struct, frozen=True):
    """Instances held at each step."""

    step_s: float
    held: tuple[int, ...]


class SpotFigures(Struct, frozen=True):
    """What a trace tells.

    Attributes:
        nodes: the most that were held at once: the gang.
        hours: of the trace.
        full: part of the time in which the whole gang was held.
        losses: of one instance, an hour.
        together: of an instance's losses, the part that a given other one shares.
        breaks: of the whole gang, an hour in which it is whole.
        whole_at_once: of these breaks, the part that took all.
    """

    nodes: int
    hours: float
    full: float
    losses: float
    together: float
    breaks: float
    whole_at_once: float


class _Meta(Struct):
    gap_seconds: float


class _File(Struct):
    metadata: _Meta
    data: list[int]


def read_spot(path: str) -> SpotTrace:
    """A trace; raises `InputError` where it is none."""
    text = read_text(path)
    if text.lstrip()[:1] == "{":
        try:
            found = msgspec.json.decode(text, type=_File)
        except msgspec.DecodeError as error:
            hint = 'such as {"metadata": {"gap_seconds": 300}, "data": [16, 16, 3]}'
            raise InputError(str(error).splitlines()[0], file=path, hint=hint) from None
        trace = SpotTrace(found.metadata.gap_seconds, tuple(found.data))
    else:
        trace = _of_events(text, path)
    if trace.step_s <= 0 or len(trace.held) < 2 or min(trace.held) < 0 or not max(trace.held):
        raise InputError("holds no instances over time", file=path, hint="two steps at least, and an instance")
    return trace


def _of_events(text: str, path: str) -> SpotTrace:
    events: list[tuple[float, int]] = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if len(row) != 3 or row[1].strip() not in ("add", "remove"):
            if number == 1:
                continue
            raise InputError("is not milliseconds,add|remove,node", file=path, line=number)
        try:
            at = float(row[0]) / 1000
        except ValueError:
            raise InputError(f"{row[0][:20]!r} is no number", file=path, line=number) from None
        events.append((at, 1 if row[1].strip() == "add" else -1))
    if not events or events[-1][0] / STEP_S > MOST_STEPS:
        raise InputError("holds no events", file=path, hint="milliseconds,add|remove,node")
    events.sort()
    held: list[int] = []
    count, at = 0, 0
    for step in range(int(events[-1][0] // STEP_S) + 1):
        while at < len(events) and events[at][0] <= step * STEP_S:
            count += events[at][1]
            at += 1
        held.append(max(0, count))
    return SpotTrace(STEP_S, tuple(held))


def figures_of(trace: SpotTrace, path: str = "") -> SpotFigures:
    """What a trace tells; raises `InputError` where nothing was ever lost."""
    nodes, hour = max(trace.held), trace.step_s / 3600
    lost = pairs = held = held_pairs = full = breaks = whole = 0.0
    for before, after in zip(trace.held, trace.held[1:], strict=False):
        gone = max(0, before - after)
        lost += gone
        held += before * hour
        pairs += gone * (gone - 1)
        held_pairs += before * (before - 1) * hour
        if before == nodes:
            full += hour
            breaks += gone > 0
            whole += gone == nodes
    if not lost:
        raise InputError("loses no instance", file=path or None, hint="a longer trace")
    rate = lost / held
    together = (pairs / held_pairs) / rate if held_pairs and nodes > 1 else 0.0
    hours = (len(trace.held) - 1) * hour
    seen = breaks / full if full else 0.0
    return SpotFigures(nodes, hours, full / hours, rate, min(1.0, together), seen, whole / breaks if breaks else 0.0)
