"""How commands print: tables for people, `-o json|yaml|csv|name` with a schema version for machines."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console

MOST_COLUMNS = 100
"""Sentences are broken here, however wide the terminal is."""

PLUGIN_NAME = "kubectl muster"
"""What the command is called where kubectl runs it as a plugin."""

_NO_LIMIT, _SHORT, _GAP = 10_000, 16, 2
_END_BLANKS = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")
"""Blanks at the end of a line, and the colours among them, which stay."""

FORMATS = ("table", "wide", "json", "yaml", "csv", "name")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Column(msgspec.Struct, frozen=True):
    """One column of a listing.

    Attributes:
        key: the record's key; also the CSV header and the JSON key.
        title: the heading in a table.
        right: align to the right (numbers).
        wide: shown only with ``-o wide`` (always in json, yaml and csv).
        show: how a value is written in a table.
        code: names without blanks, which are copied and looked up: not broken while the line has room for them.
    """

    key: str
    title: str
    right: bool = False
    wide: bool = False
    show: Callable[[Any], str] = str
    code: bool = False


def output_option(function: _Function) -> _Function:
    """Add ``-o/--output`` to a command; the parameter is named ``output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="table or wide for people; json, yaml, csv or name for machines.",
    )(function)


def emit(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    output: str,
    schema: str,
    list_key: str,
    title: str = "",
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Print records in the asked format on stdout.

    json and yaml are ``{"schema": schema, **extra, list_key: [records]}``; csv has one column a `Column`; name prints
    the first column of each record.
    """
    if output in ("json", "yaml"):
        emit_document({"schema": schema, **(extra or {}), list_key: list(records)}, output)
    elif output == "csv":
        click.echo(to_csv(records, [column.key for column in columns]), nl=False)
    elif output == "name":
        for record in records:
            click.echo(str(record[columns[0].key]))
    else:
        shown = [column for column in columns if output == "wide" or not column.wide]
        rows = [[column.show(record.get(column.key, "")) for column in shown] for record in records]
        print_table(shown, rows, title, fold=output != "wide")


def emit_document(document: Any, output: str) -> None:
    """Print one object as json or yaml."""
    if output == "yaml":
        from msgspec import yaml

        click.echo(yaml.encode(document).decode(), nl=False)
    else:
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def to_csv(records: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """Records as CSV text with a header line; missing values are empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([["" if record.get(key) is None else record[key] for key in keys] for record in records])
    return buffer.getvalue()


def console(*, err: bool = False) -> Console:
    """A rich console on stdout (or stderr), as wide as the terminal; 100 columns where there is none."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    asked = os.environ.get("COLUMNS", "")
    # A width that is no number, or none that a table could have, is as good as none.
    columns = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0
    width = None if stream.isatty() else columns or 100
    # With both sizes given, rich does not look at the environment, whose figures may be beyond reading.
    height = None if width is None else 25
    return Console(file=stream, width=width, height=height, highlight=False, soft_wrap=False)


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "", *, fold: bool = True
) -> None:
    """Print a plain table without borders and without blanks at the ends of lines; cells are never read as markup.

    ``fold`` breaks cells so that a line has room in the terminal; else lines are as long as they are.
    """
    from rich.table import Table
    from rich.text import Text

    out = console()
    if not fold:
        out.width = _NO_LIMIT
    # short names are never broken: headings of numbers have two words more often, and give way first
    whole = [
        not column.right and all(len(row[index]) <= _SHORT for row in rows) for index, column in enumerate(columns)
    ]
    codes = [short or column.code for short, column in zip(whole, columns, strict=True)]
    if _least_width(columns, rows, codes) <= out.width:
        whole = codes
    # where that is enough, numbers below a heading of one word are not broken either, nor is that word
    wider = [short or (column.right and " " not in column.title) for short, column in zip(whole, columns, strict=True)]
    if _least_width(columns, rows, wider) <= out.width:
        whole = wider
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, no_wrap in zip(columns, whole, strict=True):
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    with out.capture() as drawn:
        if title:
            out.print(Text(title, style="bold"))
        out.print(table)
    for line in drawn.get().splitlines():
        out.file.write(_END_BLANKS.sub(lambda end: end[0].replace(" ", ""), line) + "\n")


def printable(text: str) -> str:
    """A text whose names may come from anywhere, with what a terminal would obey as an escape."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )


def _least_width(columns: Sequence[Column], rows: Sequence[Sequence[str]], whole: Sequence[bool]) -> int:
    """Columns that a table takes at least if only blanks break lines, and none in the columns that stay ``whole``."""
    width = _GAP * (len(columns) - 1)
    for index, column in enumerate(columns):
        texts = [column.title, *(row[index] for row in rows)]
        width += max((len(part) for text in texts for part in ([text] if whole[index] else text.split())), default=0)
    return width


def say(text: str) -> None:
    """Talk to the user: always on stderr, so that stdout stays data; where stderr is full or gone, work goes on.

    On a terminal long lines are broken between words; elsewhere, where programs read them, one line stays one.
    """
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():
            text = wrapped(text, os.get_terminal_size(sys.stderr.fileno()).columns)
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def tell(text: str) -> None:
    """A sentence that belongs to a table on stdout, broken between words where it is long."""
    click.echo(wrapped(printable(text), terminal_width()))


def wrapped(text: str, width: int) -> str:
    """Each line broken between words at the smaller of ``width`` and MOST_COLUMNS; what has no blank stays whole."""
    import textwrap

    width = min(width, MOST_COLUMNS) if width > 20 else MOST_COLUMNS
    lines: list[list[str]] = []
    for line in text.split("\n"):
        inner = " " * (len(line) - len(line.lstrip()) + 2)
        broken = textwrap.wrap(line, width, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False)
        lines.append(broken if len(line) > width else [line])
    return "\n".join(part for parts in lines for part in parts)


def thousands(value: float) -> str:
    """A number with thousands separators; one decimal where it is no whole number."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def terminal_width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns
