"""Where reports and plots go: checked before anything is run, written whole or not at all."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from muster.errors import InputError
from muster.model.snapshot import write_atomically
from muster.report.page import Report, to_html
from muster.report.svg import Picture, to_svg
from muster.traces.files import check_target as check_writable

REPORT_SUFFIXES = (".html", ".htm")
PLOT_SUFFIXES = (".svg", ".png")
PNG_ZOOM = 2
_PNG_HINT = "pip install '.[png]', or write an .svg"


def check_target(path: str, suffixes: tuple[str, ...], option: str) -> None:
    """Raise `InputError` if a file of this name cannot be written or would be of an unknown kind."""
    target = Path(path)
    if path and target.suffix.lower() not in suffixes:
        raise InputError(
            f"is of an unknown kind ({target.suffix or 'no suffix'})", file=path, field=option,
            hint=f"name it {' or '.join('*' + suffix for suffix in suffixes)}",
        )  # fmt: skip
    check_writable(path, option)
    if target.suffix.lower() == ".png" and importlib.util.find_spec("resvg_py") is None:
        raise InputError("needs a library that is not here", file=path, field=option, hint=_PNG_HINT)


def write_report(path: str, report: Report) -> None:
    """Write the page; raises `InputError` if that fails."""
    write_atomically(path, to_html(report).encode())


def write_plot(path: str, picture: Picture) -> None:
    """Write the picture as SVG, or as PNG at twice its size, by the suffix; raises `InputError` if that fails."""
    svg = to_svg(picture)
    write_atomically(path, to_png(svg) if Path(path).suffix.lower() == ".png" else svg.encode())


def to_png(svg: str, zoom: int = PNG_ZOOM) -> bytes:
    """SVG text as PNG bytes; the extra ``png`` brings its own font, so the bytes are the same on every machine."""
    try:
        import resvg_py
    except ImportError:
        raise InputError("a PNG needs a library that is not here", hint=_PNG_HINT) from None
    fonts = _bundled_fonts()
    if not fonts:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom))
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg, zoom=zoom, skip_system_fonts=True, font_files=fonts, sans_serif_family="Source Sans Pro"
        )
    )


def _bundled_fonts() -> list[str]:
    found = importlib.util.find_spec("font_source_sans_pro")
    if found is None or not found.submodule_search_locations:
        return []
    folder = Path(found.submodule_search_locations[0]) / "files"
    return [str(folder / name) for name in ("SourceSansPro-Regular.ttf", "SourceSansPro-Semibold.ttf")]
