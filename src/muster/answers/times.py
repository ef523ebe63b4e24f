"""Instants and spans in words."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.answers.view import View

EPOCH_S = 1e9
"""Times beyond this (September 2001) are read as seconds since 1970: those of real clusters."""


def span(seconds: float) -> str:
    """``0 s``, ``45 s``, ``12 min``, ``3 h 12 min``, ``4.1 d`` or ``never``."""
    if math.isnan(seconds):
        return ""
    if math.isinf(seconds):
        return "never"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{seconds / 86400:,.1f} d"


def moment(view: View, time_s: float) -> str:
    """An instant: ``Tue 14:20`` (UTC) for clusters, with the date where it is further off; else ``5 h 2 min``.

    Of a simulated cluster instants are told since its start.
    """
    if math.isinf(time_s):
        return "never"
    if view.now_s < EPOCH_S:
        return span(time_s)
    at = datetime.fromtimestamp(time_s, UTC)
    return f"{at:%a %H:%M}" if abs(time_s - view.now_s) < 6 * 86400 else f"{at:%Y-%m-%d %H:%M}"


def instant(time_s: float) -> str:
    """An instant to the second: ``2026-11-30 14:03:05 UTC``; of a simulated cluster ``5400 s (1 h 30 min)``."""
    if math.isinf(time_s):
        return "never"
    if time_s < EPOCH_S:
        return f"{time_s:.7g} s ({span(time_s)})" if time_s >= 60 else span(time_s)
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
