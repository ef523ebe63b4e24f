"""When jobs run in two variants, on one time axis: a row a job, two bars each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct

from muster.report.palette import ASH, BLUE, MINT, VERMILION, Colour
from muster.report.scale import Scale, nice_ticks, number, pixel, text_width
from muster.report.svg import LINE, Picture, text_element

MOST_ROWS = 400
"""More rows would be no picture any more."""

NAMED_ROWS = 70
"""So many rows have room for all names; of more only some names are written."""

_TOP, _BOTTOM, _NAMES, _LABEL_PX = 66.0, 34.0, 190.0, 11
_BEFORE, _EARLIER, _LATER, _SAME = ASH, BLUE, VERMILION, MINT

Spans = tuple[tuple[float, float], ...]


class JobRow(Struct, frozen=True):
    """A job: its name, its times before and after (start and end, in seconds from now), how much later it starts."""

    name: str
    before: Spans
    after: Spans
    later_s: float
    words: str = ""


def time_unit(last_s: float) -> tuple[str, float]:
    """The unit in which a time axis of that length is written, and its length in seconds."""
    if last_s >= 3 * 86400:
        return "days", 86400.0
    return ("hours", 3600.0) if last_s >= 2 * 3600 else ("minutes", 60.0)


def gantt(title: str, rows: Sequence[JobRow], end_s: float, *, width: float = 940) -> Picture:
    """The chart; rows are drawn in the order in which they are given.

    Args:
        title: as written.
        rows: at most `MOST_ROWS` are drawn.
        end_s: where the time axis ends, in seconds from now.
        width: in pixels; the height grows with the rows.
    """
    rows = rows[:MOST_ROWS]
    tall = 18.0 if len(rows) <= 30 else 13.0 if len(rows) <= NAMED_ROWS else 6.0
    height = _TOP + tall * max(1, len(rows)) + _BOTTOM
    unit, length = time_unit(end_s)
    x = Scale(0.0, max(end_s, 1.0), _NAMES, width - 16)
    body = [text_element(12, 20, title, size=14, bold=True, limit=width - 24), _legend(12, 40)]
    body.append(_axis(x, length, _TOP - 4, height - _BOTTOM + 4))
    body.append(text_element(x.end, height - 4, f"{unit} from now", anchor="end", muted=True))
    body += [_bars(row, _TOP + tall * number, tall, x) for number, row in enumerate(rows)]
    body.append(_names(rows, tall))
    if not rows:
        body.append(text_element((x.start + x.end) / 2, _TOP + 12, "no job waits", anchor="middle", muted=True))
    return Picture(width, height, title, "\n".join(body))


def _legend(x: float, y: float) -> str:
    parts: list[str] = []
    kinds = (
        ("as it is", _BEFORE),
        ("then: earlier", _EARLIER),
        ("then: later", _LATER),
        ("then: at the same time", _SAME),
    )
    for text, colour in kinds:
        parts.append(_rect(x, y - 8, 18, 8, colour, text))
        parts.append(text_element(x + 24, y, text, muted=True))
        x += 24 + text_width(text) + 18
    return "\n".join(parts)


def _axis(x: Scale, length: float, top: float, bottom: float) -> str:
    """Thin lines down the picture, with their times above and below."""
    lines, parts = "", list[str]()
    for tick in nice_ticks(0.0, x.high / length, max(2, round((x.end - x.start) / 90))):
        at = x(tick * length)
        lines += f"M{pixel(at)} {pixel(top)}V{pixel(bottom)}"
        parts.append(text_element(at, top - 5, number(tick), anchor="middle", muted=True))
        parts.append(text_element(at, bottom + 14, number(tick), anchor="middle", muted=True))
    return "\n".join([f'<path class="grid" stroke="{LINE}" fill="none" d="{lines}"/>', *parts])


def _bars(row: JobRow, top: float, tall: float, x: Scale) -> str:
    half = (tall - 1.0) / 2
    colour = _EARLIER if row.later_s < 0 else _LATER if row.later_s > 0 else _SAME
    parts = [_bar(x, span, top, half, _BEFORE) for span in row.before]
    parts += [_bar(x, span, top + half, half, colour) for span in row.after]
    return f"<g><title>{escape(row.words or row.name)}</title>{''.join(parts)}</g>"


def _bar(x: Scale, span: tuple[float, float], top: float, tall: float, colour: Colour) -> str:
    """A bar; a short one is still seen."""
    left = x(max(x.low, span[0]))
    return _rect(left, top, max(1.5, x(min(x.high, span[1])) - left), tall, colour)


def _names(rows: Sequence[JobRow], tall: float) -> str:
    """All names; where rows are thin, of each few rows that of the one that moves most, beside it."""
    every = 1 if len(rows) <= NAMED_ROWS else math.ceil((_LABEL_PX + 3) / tall)
    parts: list[str] = []
    lowest = -math.inf
    for first in range(0, len(rows), every):
        at = max(range(first, min(first + every, len(rows))), key=lambda at: (abs(rows[at].later_s), -at))
        middle = max(_TOP + tall * (at + 0.5), lowest)
        lowest = middle + _LABEL_PX + 1
        name = _fitted(rows[at].name, _NAMES - 20)
        parts.append(
            text_element(_NAMES - 8, middle + 4, name, anchor="end", size=_LABEL_PX, muted=not rows[at].later_s)
        )
    return "\n".join(parts)


def _fitted(name: str, room: float) -> str:
    """A name that has room; of a long one the end, which tells it from its like, stays."""
    if text_width(name, _LABEL_PX) <= room:
        return name
    most = max(4, int(room / _LABEL_PX / 0.58))
    return f"{name[: most // 3]}…{name[-(most - most // 3 - 1) :]}"


def _rect(x: float, y: float, wide: float, tall: float, colour: Colour, words: str = "") -> str:
    told = f"<title>{escape(words)}</title>" if words else ""
    place = f'x="{pixel(x)}" y="{pixel(y)}" width="{pixel(wide)}" height="{pixel(tall)}"'
    return f'<rect class="c-{colour.name}" color="{colour.light}" fill="currentColor" {place}>{told}</rect>'
