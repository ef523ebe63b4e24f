"""How instants and spans of time are written for people."""

from __future__ import annotations

import math

LEAST_CALENDAR_S = 1e9
"""Instants from here on are taken for seconds since 1970 (this is 2001); below, for seconds of a simulation."""


def instant_text(seconds: float) -> str:
    """An instant: ``2026-11-30 14:03:05 UTC`` of a real cluster, ``1 h 2 min`` (from the start) of a simulated one."""
    if not math.isfinite(seconds):
        return "never"
    if seconds >= LEAST_CALENDAR_S:
        from datetime import UTC, datetime

        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return span_text(seconds)


def span_text(seconds: float) -> str:
    """A span in its two largest units: ``45 s``, ``12 min``, ``3 h 12 min``, ``2 d 4 h``; ``-`` if it never ends."""
    if not math.isfinite(seconds):
        return "-"
    sign, seconds = "-" if seconds < 0 else "", abs(seconds)
    if seconds < 10 and not float(seconds).is_integer():
        return f"{sign}{seconds:.2g} s"
    left = round(seconds)
    if left < 60:
        return f"{sign}{left} s"
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= size or parts:
            parts.append(f"{left // size} {unit}" if left // size else "")
        left %= size
        if len(parts) == 2:
            break
    return sign + " ".join(part for part in parts if part)
