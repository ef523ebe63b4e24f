"""How the start of a waiting job is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.answers.view import View


def between(view: View, start: Mapping[str, Any]) -> str:
    """``11 h to 14 h``, from now on; of clusters with a clock ``13:05 to 16:40``; with no end ``11 h or later``."""
    if start["low_s"] is None:
        return "never"
    low = _when(view, start["low_s"])
    if start["high_s"] is None:
        return f"{low} or later"
    high = _when(view, start["high_s"])
    return low if low == high else f"{low} to {high}"


def _when(view: View, time_s: float) -> str:
    from muster.answers.times import EPOCH_S, moment, span

    return moment(view, time_s) if view.now_s >= EPOCH_S else span(max(0.0, time_s - view.now_s))


def start_lines(view: View, start: Mapping[str, Any]) -> list[str]:
    """When a job starts, in sentences: the interval, what it rests on, and what it waits for."""
    from muster.answers.times import EPOCH_S, moment, span
    from muster.answers.words import listed, plural

    if start["expected_s"] is None:
        return ["It will not start as things are."]
    clock = f" (about {moment(view, start['expected_s'])})" if view.now_s >= EPOCH_S else ""
    basis = {
        "simulated": f"{plural(start['samples'], 'run')} into the future, with work coming as it does now",
        "queue ahead": "from what is ahead of it and what running work gives back: a rough figure",
    }.get(start["method"], "")
    wait = span(max(0.0, start["expected_s"] - view.now_s))
    lines = [f"Starts in about {wait}{clock}; {start['confidence']:.0%}: {between(view, start)} ({basis})."]
    if start["sure_s"] is not None:
        reserved = f"Its reserved start is in {span(start['sure_s'] - view.now_s)}"
        overtaken = "" if view.config.ordering == "fifo" else ", unless somebody who waits overtakes it by rank"
        lines.append(f"{reserved}: all that it waits for has a limit by then{overtaken}.")
    waits_for = start["waits_for"]
    if waits_for:
        told = [f"{each['job']} ({_end(view, each['ends_s'])})" for each in waits_for]
        nodes = plural(sum(each["nodes"] for each in waits_for), "node")
        lines.append(f"It waits for {plural(len(waits_for), 'job')} on {nodes}: {listed(told, 4)}.")
    if start["ahead"]:
        lines.append(f"Ahead of it: {listed(start['ahead'], 4)}.")
    return lines


def _end(view: View, time_s: float | None) -> str:
    from muster.answers.times import span

    return "no end is known" if time_s is None else f"ends in {span(max(0.0, time_s - view.now_s))}"
