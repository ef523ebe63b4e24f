"""A report as one HTML file that needs nothing from outside: no script, no font, no request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec import Struct

from muster.report.scale import pixel
from muster.report.style import style_sheet
from muster.report.svg import Picture, to_svg


class Cell(Struct, frozen=True):
    """A cell that stands out."""

    text: str
    best: bool = True


class Table(Struct, frozen=True):
    """Rows of text under headings; ``title`` stands above, ``caption`` below.

    The first ``left`` columns and those in ``words`` are text, the others numbers.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    left: int = 1
    caption: str = ""
    words: tuple[int, ...] = ()
    title: str = ""


class Figure(Struct, frozen=True):
    """A picture with what it shows; ``folded``: shown only when its title is clicked."""

    picture: Picture
    caption: str = ""
    folded: bool = False


class Pictures(Struct, frozen=True):
    """Small pictures side by side where there is room."""

    pictures: tuple[Picture, ...]
    caption: str = ""


class Commands(Struct, frozen=True):
    """Commands to try: what each does, and the command."""

    commands: tuple[tuple[str, str], ...]


Block = Table | Figure | Pictures | Commands


class Section(Struct, frozen=True):
    """A heading, a few sentences, and what belongs under them."""

    title: str
    text: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()


class Report(Struct, frozen=True):
    """All that a page shows, in its order.

    Attributes:
        title: of the page.
        lead: what came out, in a sentence each.
        facts: what was run, as name and value.
        sections: the rest.
        footer: the last line.
    """

    title: str
    lead: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()
    footer: str = ""


def to_html(report: Report) -> str:
    """The page; every text is escaped, and the same report gives the same bytes."""
    title = escape(report.title)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\">",
        f"<title>{title}</title>\n<style>\n{style_sheet()}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>",
    ]
    parts += [f'<p class="lead">{escape(sentence)}</p>' for sentence in report.lead]
    if report.facts:
        pairs = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts)
        parts.append(f"<dl>\n{pairs}\n</dl>")
    for section in report.sections:
        parts.append(f"<section>\n<h2>{escape(section.title)}</h2>")
        parts += [f"<p>{escape(sentence)}</p>" for sentence in section.text]
        parts += [_block(block) for block in section.blocks]
        parts.append("</section>")
    if report.footer:
        parts.append(f"<footer>{escape(report.footer)}</footer>")
    parts.append("</main>\n</body>\n</html>\n")
    return "\n".join(parts)


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        figure = _figure([block.picture], block.caption)
        if not block.folded:
            return figure
        return f"<details><summary>{escape(block.picture.title)}</summary>\n{figure}\n</details>"
    if isinstance(block, Pictures):
        return _figure(block.pictures, block.caption)
    lines = "\n".join(f"{escape('# ' + what)}\n{escape(command)}" for what, command in block.commands)
    return f"<pre>{lines}</pre>"


def _figure(pictures: Sequence[Picture], caption: str) -> str:
    drawn = "\n".join(
        f'<div class="scroll" style="--wide:{pixel(picture.width * 1.25)}px;--least:{pixel(picture.width * 0.7)}px">'
        f"{to_svg(picture, standalone=False)}</div>"
        for picture in pictures
    )
    if len(pictures) > 1:
        drawn = f'<div class="pair">\n{drawn}\n</div>'
    told = f"\n<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>\n{drawn}{told}\n</figure>"


def _table(table: Table) -> str:
    def side(index: int) -> str:
        return "" if index < table.left or index in table.words else "right"

    heads = "".join(
        f'<th scope="col"{_class(side(index))}>{escape(text)}</th>' for index, text in enumerate(table.headings)
    )
    rows = "\n".join(
        "<tr>" + "".join(_cell(cell, side(index)) for index, cell in enumerate(row)) + "</tr>" for row in table.rows
    )
    told = f'\n<p class="note">{escape(table.caption)}</p>' if table.caption else ""
    title = f"<h3>{escape(table.title)}</h3>\n" if table.title else ""
    body = f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return f'{title}<div class="scroll">{body}</div>{told}'


def _cell(cell: str | Cell, side: str) -> str:
    text, names = (cell, side) if isinstance(cell, str) else (cell.text, f"{side} best".strip() if cell.best else side)
    return f"<td{_class(names)}>{escape(text)}</td>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""
