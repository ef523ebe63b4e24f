"""A derivation as a page on the terminal, as a document, and as files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli.output import Column, emit_document, print_table, tell

if TYPE_CHECKING:
    from muster.planning.derivation import Derivation

SCHEMA = "muster.plan/v1"
FORMATS = ("table", "json", "yaml", "markdown")


def emit_derivation(found: Derivation, output: str) -> None:
    """Print a derivation: as a worked page, as Markdown, or as json or yaml with a schema version."""
    if output in ("json", "yaml"):
        emit_document({"schema": SCHEMA, **_plain(msgspec.to_builtins(found))}, output)
    elif output == "markdown":
        from muster.report.derivations import to_markdown

        click.echo(to_markdown(found), nl=False)
    else:
        _print(found)


def _print(found: Derivation) -> None:
    from muster.planning.question import with_unit
    from muster.report.derivations import cell, numeric, sensitivity_titles, shown_inputs, shown_sensitivity

    tell(found.question)
    tell(found.answer)
    for table in found.tables:
        click.echo()
        if table.title:
            tell(table.title)
        _rows(table.columns, [[cell(each) for each in row] for row in table.rows], right=numeric(table))
    click.echo()
    click.echo("Formula")
    for line in found.formula:
        tell(f"  {line}")
    tell(f"  Source: {found.source}.")
    click.echo()
    rows, absent = shown_inputs(found)
    _rows(("", "Put in", "value", "who says so"), rows, right=())
    if absent:
        tell(absent)
    click.echo()
    steps = [
        [str(at), each.text, each.worked, with_unit(each.value, each.unit)] for at, each in enumerate(found.steps, 1)
    ]
    _rows(("", "Step", "worked", "gives"), steps, right=())
    click.echo()
    _rows(("Result", ""), [[each.name, with_unit(each.value, each.unit)] for each in found.results], right=())
    changed, idle = shown_sensitivity(found)
    if changed:
        click.echo()
        _rows(sensitivity_titles(found, changed), changed, right=())
        if idle:
            tell(idle)
    for title, lines in (("It does not hold when", found.fails_when), ("And now", found.todo)):
        if lines:
            click.echo()
            click.echo(title)
        for line in lines:
            tell(f"  - {line}")


def _rows(titles: Sequence[str], rows: list[list[str]], right: Sequence[int] | None = None) -> None:
    numbers = range(1, len(titles)) if right is None else right
    print_table([Column("", title, right=at in numbers) for at, title in enumerate(titles)], rows)


def _plain(value: Any) -> Any:
    """Numbers that JSON has not, as None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
