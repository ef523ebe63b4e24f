"""How the start of a waiting job is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.answers.view import View


def between(view: View, start: Mapping[str, Any]) -> str:
    """``11 h to 14 h``; with no end ``11 h or later``."""
    from muster.answers.times import moment

    if start["low_s"] is None:
        return "never"
    low = moment(view, start["low_s"])
    return f"{low} or later" if start["high_s"] is None else f"{low} to {moment(view, start['high_s'])}"


def start_lines(view: View, start: Mapping[str, Any]) -> list[str]:
    """When a job starts, in sentences: the interval, what it rests on, and what it waits for."""
    from muster.answers.times import moment
    from muster.answers.words import listed, plural

    if start["expected_s"] is None:
        return ["It will not start as things are."]
    expected, part = moment(view, start["expected_s"]), f"{start['confidence']:.0%}"
    basis = {
        "simulated": f"from {plural(start['samples'], 'run')} of the snapshot into the future",
        "queue ahead": "from what is ahead of it and what running work gives back: a rough figure",
    }.get(start["method"], "")
    lines = [f"Starts about {expected} ({part}: {between(view, start)})" + (f", {basis}." if basis else ".")]
    if start["sure_s"] is not None:
        lines.append(f"At the latest at {moment(view, start['sure_s'])}: all that it waits for has a limit by then.")
    waits_for = start["waits_for"]
    if waits_for:
        told = [f"{each['job']} ({_end(view, each['ends_s'])})" for each in waits_for]
        nodes = plural(sum(each["nodes"] for each in waits_for), "node")
        lines.append(f"It waits for {plural(len(waits_for), 'job')} on {nodes}: {listed(told, 4)}.")
    if start["ahead"]:
        lines.append(f"Ahead of it: {listed(start['ahead'], 4)}.")
    return lines


def _end(view: View, time_s: float | None) -> str:
    from muster.answers.times import moment

    return "no end is known" if time_s is None else f"ends {moment(view, time_s)}"
