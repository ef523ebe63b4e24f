"""Instants and spans in words."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from muster.errors import InputError

if TYPE_CHECKING:
    from muster.answers.view import View

EPOCH_S = 1e9
"""Times beyond this (September 2001) are read as seconds since 1970: those of real clusters."""


LAST_S = 253_402_300_799.0
"""The last second of the year 9999: what is beyond has no date."""


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
    return f"{seconds / 86400:,.1f} d" if seconds < LAST_S else f"{seconds:g} s"


def moment(view: View, time_s: float) -> str:
    """An instant: ``Tue 14:20`` (UTC) for clusters, with the date where it is further off; else ``5 h 2 min``.

    Of a simulated cluster instants are told since its start.
    """
    if math.isinf(time_s):
        return "never"
    if abs(time_s) > LAST_S or abs(view.now_s) > LAST_S:
        return f"{time_s:g} s"
    if view.now_s < EPOCH_S:
        return span(time_s)
    at = datetime.fromtimestamp(time_s, UTC)
    return f"{at:%a %H:%M}" if abs(time_s - view.now_s) < 6 * 86400 else f"{at:%Y-%m-%d %H:%M}"


def until(view: View, time_s: float) -> str:
    """An instant to come: ``Tue 14:20`` of clusters; of a simulated one how far it is, ``in 5 h 2 min``."""
    if view.now_s >= EPOCH_S or math.isinf(time_s):
        return moment(view, time_s)
    return f"in {span(time_s - view.now_s)}" if time_s > view.now_s else "now"


def instant(time_s: float) -> str:
    """An instant to the second: ``2026-11-30 14:03:05 UTC``; of a simulated cluster ``5400 s (1 h 30 min)``."""
    if math.isinf(time_s):
        return "never"
    if abs(time_s) > LAST_S:
        return f"{time_s:g} s"
    if time_s < EPOCH_S:
        return f"{time_s:.7g} s ({span(time_s)})" if time_s >= 60 else span(time_s)
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


_CLOCK = re.compile(r"(\d{1,4}):(\d\d)(?::(\d\d))?")
_SPAN = re.compile(r"(\d+(?:\.\d*)?)(s|m|min|h|d)")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_instant(text: str, newest_s: float, field: str = "--at") -> float:
    """An instant as people write it, not after ``newest_s`` where it says no day; raises `InputError`.

    Of a real cluster: ``14:03`` (UTC, the last one there was), ``2026-11-30 14:03``, ``2h`` (so long before the
    newest). Of a simulated one: ``14:03`` (hours and minutes) or ``2h`` since its start. Plain seconds are as they are.
    """
    real = newest_s >= EPOCH_S
    clock, length = _CLOCK.fullmatch(text), _SPAN.fullmatch(text)
    if clock:
        hours, minutes, seconds = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        past_s = hours * 3600.0 + minutes * 60.0 + seconds
        if minutes < 60 and seconds < 60 and (hours < 24 or not real):
            if not real:
                return past_s
            midnight = datetime.fromtimestamp(newest_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            found = midnight + timedelta(seconds=past_s)
            return (found if found.timestamp() <= newest_s else found - timedelta(days=1)).timestamp()
    elif length:
        seconds_s = float(length[1]) * _UNITS[length[2]]
        return newest_s - seconds_s if real else seconds_s
    else:
        try:
            return _seconds_or_date(text)
        except ValueError:
            pass
    hint = "such as 14:03, 2026-11-30T14:03 (UTC), 2h or seconds"
    raise InputError(f"{text[:40]!r} is no time", field=field, hint=hint)


def _seconds_or_date(text: str) -> float:
    """Plain seconds, or a date with or without a time of day (UTC, unless it says otherwise); raises ValueError."""
    try:
        seconds_s = float(text)
    except ValueError:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds_s <= 1e12:
        raise ValueError(text)
    return seconds_s
