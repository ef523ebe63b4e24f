"""A derivation as a page on the terminal, and as a document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli.output import Column, emit_document, print_table, tell

if TYPE_CHECKING:
    from muster.planning.derivation import Derivation, Input

SCHEMA = "muster.plan/v1"


def emit_derivation(found: Derivation, output: str) -> None:
    """Print a derivation: as a worked page, or as json or yaml with a schema version."""
    if output in ("json", "yaml"):
        emit_document({"schema": SCHEMA, **_plain(msgspec.to_builtins(found))}, output)
        return
    tell(found.question)
    tell(found.answer)
    for table in found.tables:
        click.echo()
        _rows(table.columns, [[number(cell) for cell in row] for row in table.rows])
    click.echo()
    click.echo("Formula")
    for line in found.formula:
        tell(f"  {line}")
    tell(f"  Source: {found.source}.")
    click.echo()
    rows = [[each.symbol, each.name, _valued(each.value, each.unit), _origin(each)] for each in found.inputs]
    _rows(("", "Put in", "value", "who says so"), rows, right=())
    click.echo()
    steps = [
        [str(at), each.text, each.worked, _valued(each.value, each.unit)] for at, each in enumerate(found.steps, 1)
    ]
    _rows(("", "Step", "worked", "gives"), steps, right=())
    click.echo()
    _rows(("Result", ""), [[each.name, _valued(each.value, each.unit)] for each in found.results], right=())
    if found.sensitivity:
        click.echo()
        told = [[each.name, each.change, _valued(each.value, each.unit)] for each in found.sensitivity]
        _rows((f"{found.results[0].name.capitalize()}, if", "is", ""), told, right=())
    for title, lines in (("It does not hold when", found.fails_when), ("And now", found.todo)):
        click.echo()
        click.echo(title)
        for line in lines:
            tell(f"  - {line}")


def _rows(titles: Sequence[str], rows: list[list[str]], right: Sequence[int] | None = None) -> None:
    numbers = range(1, len(titles)) if right is None else right
    print_table([Column("", title, right=at in numbers) for at, title in enumerate(titles)], rows)


def _valued(value: float | str, unit: str) -> str:
    return f"{number(value)} {unit}".strip()


def _origin(each: Input) -> str:
    where = f", {each.source}" if each.source else ""
    option = f" ({each.option})" if each.option and each.origin == "default" else ""
    return f"{each.origin}{where}{option}"


def number(value: float | str) -> str:
    """A number as people read it: three figures, thousands apart; a dash where there is none."""
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "no limit"
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _plain(value: Any) -> Any:
    """Numbers that JSON has not, as None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
