"""Axes: ticks that people like, and numbers as short as they can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Scale(NamedTuple):
    """A linear map of the values ``low``..``high`` to the pixels ``start``..``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def nice_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten inside ``low``..``high``; about ``count`` of them, at least two.

    Where low and high are equal or not finite, ticks around them (or around zero).
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = 0.0, 1.0
    if high <= low:
        low, high = low - 0.5, low + 0.5
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [round(index * step, 12) + 0.0 for index in range(first, last + 1)]
    return ticks if len(ticks) > 1 else [low, high]


def outward(low: float, high: float, count: int = 6) -> tuple[float, float]:
    """The range widened so that it begins and ends on a tick."""
    ticks = nice_ticks(low, high, count)
    step = ticks[1] - ticks[0]
    first = ticks[0] - step if ticks[0] > low + 1e-9 else ticks[0]
    last = ticks[-1] + step if ticks[-1] < high - 1e-9 else ticks[-1]
    return first, last


def number(value: float) -> str:
    """Short text of a number: ``12,500``, ``0.5``; no trailing zeros."""
    if abs(value - round(value)) < 1e-9:
        return f"{round(value):,}"
    return f"{value:,.6g}"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits: ``45 s``, ``12 min``, ``3.4 h``, ``62.9 d``."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:,.1f} d"


def pixel(value: float) -> str:
    """A coordinate with one decimal at most."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def text_width(text: str, size: float = 12.0) -> float:
    """About how wide a text is in a proportional sans-serif font, in pixels; rather too wide than too narrow."""
    narrow = sum(character in "iljtfr.,:;|!' ()" for character in text)
    return size * (0.6 * (len(text) - narrow) + 0.36 * narrow)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move sorted positions apart to at least ``gap``, inside ``low``..``high`` where there is room, and centred."""
    groups: list[tuple[float, int]] = []
    for position in wanted:
        groups.append((position, 1))
        while len(groups) > 1:
            (above, many), (below, few) = groups[-2:]
            if above + gap * (many - 1) / 2 + gap <= below - gap * (few - 1) / 2:
                break
            groups[-2:] = [((above * many + below * few) / (many + few), many + few)]
    placed: list[float] = []
    for centre, many in groups:
        half = gap * (many - 1) / 2
        centre = max(low + half, min(high - half, centre))
        placed.extend(centre - half + gap * index for index in range(many))
    for index in range(1, len(placed)):
        placed[index] = max(placed[index], placed[index - 1] + gap)
    overflow = placed[-1] - high if placed else 0.0
    return [position - max(0.0, overflow) for position in placed]
