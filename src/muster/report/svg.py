"""Charts as SVG text: pure functions of their numbers.

Every element carries its light colours as attributes, so a picture stands alone (papers, README); inside a page, the
classes let the style sheet turn it dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from msgspec import Struct

from muster.report.palette import Colour
from muster.report.scale import Scale, nice_ticks, number, outward, pixel, spread, text_width

INK, MUTED, LINE = "#1f2328", "#59636e", "#dfe3e8"
FONT = "system-ui, 'Source Sans Pro', 'Segoe UI', Helvetica, Arial, sans-serif"
TEXT_PX, TITLE_PX = 12, 14
_GAP, _INDENT, _MANY = 15.0, 12, 300

Points = tuple[tuple[float, float], ...]


class Curve(Struct, frozen=True):
    """One line of a chart.

    Attributes:
        name: written at its end.
        points: ``(x, y)`` by rising x.
        colour: of the line, its name and its band.
        band: ``(x, lowest, highest)`` over the seeds; empty: none.
        dashed: for results of others.
        strong: a thicker line.
        label: what stands at its end instead of the name and the last y; empty: nothing.
    """

    name: str
    points: Points
    colour: Colour
    band: tuple[tuple[float, float, float], ...] = ()
    dashed: bool = False
    strong: bool = False
    label: str | None = None


class Area(Struct, frozen=True):
    """One layer of a stacked chart: a value for each x of the chart."""

    name: str
    values: tuple[float, ...]
    colour: Colour


class Picture(Struct, frozen=True):
    """A finished drawing: size in pixels, what it shows in words, and its SVG elements."""

    width: float
    height: float
    title: str
    body: str


def to_svg(picture: Picture, *, standalone: bool = True) -> str:
    """The picture as an ``<svg>`` element; standalone ones have a namespace, a white ground and a final newline."""
    left = 0 if standalone else _INDENT  # inside a page, the titles stand at the edge of its text
    size = f'viewBox="{left} 0 {pixel(picture.width - left)} {pixel(picture.height)}"'
    label = f'role="img" aria-label="{escape(picture.title)}"'
    font = f'font-family="{FONT}" font-size="{TEXT_PX}"'
    if not standalone:
        return f"<svg {size} {label} {font}>{picture.body}</svg>"
    measure = f'width="{pixel(picture.width)}" height="{pixel(picture.height)}"'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {measure} {size} {label} {font}>\n{ground}{picture.body}\n</svg>\n'


def grid(pictures: Sequence[Picture], columns: int, title: str) -> Picture:
    """Several pictures in one, row by row."""
    columns = max(1, min(columns, len(pictures)))
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    wide = max([picture.width for picture in pictures], default=0.0)
    top, body = 0.0, ""
    for row in rows:
        for column, picture in enumerate(row):
            body += f'<g transform="translate({pixel(column * wide)} {pixel(top)})">{picture.body}</g>\n'
        top += max(picture.height for picture in row)
    return Picture(wide * columns, top, title, body)


def line_chart(
    title: str,
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    diagonal: str = "",
    last_values: bool = True,
    width: float = 720,
    height: float = 400,
) -> Picture:
    """Curves with their names at the right end.

    Args:
        title, x_label, y_label: as written.
        curves: drawn in this order; points that are not finite are left out.
        x_range, y_range: what is shown; from the data where None.
        diagonal: name of a thin line y = x; empty: none.
        last_values: whether a curve's last y stands beside its name.
        width, height: in pixels.
    """
    curves = [_finite(curve) for curve in curves]
    x_range = x_range or outward(*_extent(x for curve in curves for x, _ in curve.points))
    seen = [y for curve in curves for x, y in curve.points if x_range[0] <= x <= x_range[1]]
    y_range = y_range or outward(*_extent(seen))
    right = max([text_width(_end_label(curve, last_values)) for curve in curves if curve.points], default=0.0) + 26
    y = Scale(*y_range, height - 46, 52)
    x = Scale(*x_range, _left(y), width - right)
    body = [_frame(title, x_label, y_label, x, y, width)]
    clip = f"clip-{zlib_name(title)}-{round(width)}-{round(height)}"
    body.append(
        f'<clipPath id="{clip}"><rect x="{pixel(x.start)}" y="{pixel(y.end - 2)}" '
        f'width="{pixel(x.end - x.start + 2)}" height="{pixel(y.start - y.end + 4)}"/></clipPath>'
    )
    body.append(f'<g clip-path="url(#{clip})">')
    if diagonal:
        body.append(_diagonal(x, y))
    body += [_band(curve, x, y) for curve in curves if curve.band]
    body += [_line(curve, x, y) for curve in curves if curve.points]
    body.append("</g>")
    if diagonal:
        body.append(_diagonal_label(diagonal, x, y))
    body.append(_end_labels(curves, x, y, last_values))
    if not any(curve.points for curve in curves):
        body.append(text_element((x.start + x.end) / 2, (y.start + y.end) / 2, "no data", anchor="middle", muted=True))
    return Picture(width, height, title, "\n".join(body))


def stacked_area_chart(
    title: str,
    xs: Sequence[float],
    areas: Sequence[Area],
    *,
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
    width: float = 460,
    height: float = 300,
) -> Picture:
    """Layers on one another, the first at the bottom; those that are thick at the end are named there.

    ``y_range`` is what is shown, such as the same for several charts side by side; from the data where None.
    """
    sums = [sum(area.values[index] for area in areas) for index in range(len(xs))]
    y_range = y_range or outward(0.0, max([*sums, 1e-9]), 5)
    right = max([text_width(area.name) for area in areas], default=0.0) + 20
    y = Scale(*y_range, height - 46, 52)
    x = Scale(*_extent(xs), _left(y), width - right)
    body = [_frame(title, x_label, y_label, x, y, width)]
    lower = [0.0] * len(xs)
    names: list[tuple[float, Area]] = []
    for area in areas:
        upper = [below + value for below, value in zip(lower, area.values, strict=True)]
        if any(value > 0 for value in area.values):
            there = _path([(x(at), y(top)) for at, top in zip(xs, upper, strict=True)])
            back = _path([(x(at), y(below)) for at, below in zip(reversed(xs), reversed(lower), strict=True)])
            body.append(
                f'<path class="c-{area.colour.name}" color="{area.colour.light}" fill="currentColor" '
                f'stroke="#ffffff" stroke-width="0.6" stroke-opacity="0.7" d="{there}L{back[1:]}Z">'
                f"<title>{escape(area.name)}</title></path>"
            )
            names.append((y((upper[-1] + lower[-1]) / 2), area))
        lower = upper
    names.sort(key=lambda item: item[0])
    placed = spread([at for at, _ in names], _GAP, y.end, y.start)
    for (at, area), position in zip(names, placed, strict=True):
        body.append(_leader(x.end, at, position, area.colour))
        body.append(text_element(x.end + 14, position + 4, area.name))
    if not xs:
        body.append(text_element((x.start + x.end) / 2, (y.start + y.end) / 2, "no data", anchor="middle", muted=True))
    return Picture(width, height, title, "\n".join(body))


def zlib_name(text: str) -> str:
    """A short name made of a text, the same in every run; for ids inside one page."""
    import zlib

    return f"{zlib.crc32(text.encode()):08x}"


def _finite(curve: Curve) -> Curve:
    points = tuple(point for point in curve.points if math.isfinite(point[0]) and math.isfinite(point[1]))
    band = tuple(row for row in curve.band if all(math.isfinite(value) for value in row))
    return Curve(curve.name, points, curve.colour, band, curve.dashed, curve.strong, curve.label)


def _extent(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _left(y: Scale) -> float:
    """Where the y axis stands: right of its widest number."""
    widest = max(text_width(number(tick)) for tick in nice_ticks(y.low, y.high, 5))
    return max(52.0, _INDENT + widest + 8)


def _frame(title: str, x_label: str, y_label: str, x: Scale, y: Scale, width: float) -> str:
    """Title, axes' names, ticks and a thin grid."""
    parts = [text_element(12, 20, title, size=TITLE_PX, bold=True, limit=width - 24)]
    parts.append(text_element(12, 38, y_label, muted=True))
    parts.append(text_element(x.end, y.start + 36, x_label, anchor="end", muted=True))
    lines = f"M{pixel(x.start)} {pixel(y.start)}H{pixel(x.end)}"
    for tick in nice_ticks(y.low, y.high, 5):
        lines += f"M{pixel(x.start)} {pixel(y(tick))}H{pixel(x.end)}"
        parts.append(text_element(x.start - 7, y(tick) + 4, number(tick), anchor="end", muted=True))
    for tick in nice_ticks(x.low, x.high, max(2, round((x.end - x.start) / 75))):
        parts.append(text_element(x(tick), y.start + 17, number(tick), anchor="middle", muted=True))
        parts.append(f'<path class="rule" stroke="{MUTED}" fill="none" d="M{pixel(x(tick))} {pixel(y.start)}v4"/>')
    parts.insert(0, f'<path class="grid" stroke="{LINE}" fill="none" d="{lines}"/>')
    return "\n".join(parts)


def text_element(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "",
    size: int = 0,
    bold: bool = False,
    muted: bool = False,
    limit: float = 0,
) -> str:
    """A line of text at a place; cut short where it would be wider than ``limit`` pixels."""
    if limit and text_width(text, size or TEXT_PX) > limit:
        text = text[: max(1, int(limit / (size or TEXT_PX) / 0.6) - 1)] + "…"
    extra = f' text-anchor="{anchor}"' if anchor else ""
    extra += f' font-size="{size}"' if size else ""
    extra += ' font-weight="600"' if bold else ""
    kind, fill = ("muted", MUTED) if muted else ("ink", INK)
    return f'<text class="{kind}" fill="{fill}" x="{pixel(x)}" y="{pixel(y)}"{extra}>{escape(text)}</text>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{pixel(across)} {pixel(down)}" for across, down in points)


def _line(curve: Curve, x: Scale, y: Scale) -> str:
    points = [(x(across), y(up)) for across, up in curve.points]
    dash = ' stroke-dasharray="5 4"' if curve.dashed else ""
    wide = 2.6 if curve.strong else 1.4 if curve.dashed else 1.2 if len(points) > _MANY else 1.8
    head = f'<g class="c-{curve.colour.name}" color="{curve.colour.light}"><title>{escape(curve.name)}</title>'
    if len(points) == 1:
        return f'{head}<circle cx="{pixel(points[0][0])}" cy="{pixel(points[0][1])}" r="4" fill="currentColor"/></g>'
    return (
        f'{head}<path fill="none" stroke="currentColor" stroke-width="{wide}" stroke-linejoin="round"{dash} '
        f'd="{_path(points)}"/></g>'
    )


def _band(curve: Curve, x: Scale, y: Scale) -> str:
    there = [(x(across), y(high)) for across, _, high in curve.band]
    back = [(x(across), y(low)) for across, low, _ in reversed(curve.band)]
    return (
        f'<path class="c-{curve.colour.name}" color="{curve.colour.light}" fill="currentColor" fill-opacity="0.16" '
        f'd="{_path([*there, *back])}Z"/>'
    )


def _end_label(curve: Curve, value: bool) -> str:
    if curve.label is not None:
        return curve.label
    return f"{curve.name} {curve.points[-1][1]:.1f}" if value else curve.name


def _end_labels(curves: Sequence[Curve], x: Scale, y: Scale, values: bool) -> str:
    named = sorted(
        (curve for curve in curves if curve.points and curve.label != ""), key=lambda curve: -curve.points[-1][1]
    )
    ends = [min(y.start, max(y.end, y(curve.points[-1][1]))) for curve in named]
    placed = spread(ends, _GAP, y.end - 4, y.start)
    parts: list[str] = []
    for curve, end, position in zip(named, ends, placed, strict=True):
        parts.append(_leader(x.end, end, position, curve.colour))
        weight = ' font-weight="600"' if curve.strong else ""
        parts.append(
            f'<text class="c-{curve.colour.name}" color="{curve.colour.light}" fill="currentColor" '
            f'x="{pixel(x.end + 14)}" y="{pixel(position + 4)}"{weight}>{escape(_end_label(curve, values))}</text>'
        )
    return "\n".join(parts)


def _leader(edge: float, end: float, position: float, colour: Colour) -> str:
    """A thin line from a curve's end to its name."""
    return (
        f'<path class="c-{colour.name}" color="{colour.light}" fill="none" stroke="currentColor" '
        f'd="M{pixel(edge + 2)} {pixel(end)}L{pixel(edge + 11)} {pixel(position)}"/>'
    )


def _diagonal(x: Scale, y: Scale) -> str:
    low, high = max(x.low, y.low), min(x.high, y.high)
    if high <= low:
        return ""
    return (
        f'<path class="rule" stroke="{MUTED}" stroke-width="1" stroke-dasharray="1 3" fill="none" '
        f'd="{_path([(x(low), y(low)), (x(high), y(high))])}"/>'
    )


def _diagonal_label(text: str, x: Scale, y: Scale) -> str:
    """The diagonal's name, left of the line in the upper half."""
    low, high = max(x.low, y.low), min(x.high, y.high)
    if high <= low:
        return ""
    at = low + 0.62 * (high - low)
    if x(at) - x.start < text_width(text) + 12:
        return ""
    return text_element(x(at) - 8, y(at) - 2, text, anchor="end", muted=True)
