"""A derivation as a section of a page, as pictures, and as Markdown for documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from muster.planning.derivation import Chart, Derivation, Input
from muster.planning.derivation import Table as Alternatives
from muster.planning.quantities import figure
from muster.planning.question import NOT_GIVEN, with_unit
from muster.report.page import Block, Figure, Report, Section, Table
from muster.report.palette import BLUE, GREEN, GREY, OCHRE, PURPLE, SKY, VERMILION
from muster.report.svg import Curve, Picture, line_chart

_AMOUNT = re.compile(r"[-<>~]?\d[\d,.e+-]*(?: ?[\w/%]{1,9})?$|-$|no limit$|$")
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY, GREY)


def cell(value: float | str) -> str:
    """A cell of a table of alternatives."""
    return value if isinstance(value, str) else figure(value)


def numeric(table: Alternatives) -> tuple[int, ...]:
    """The columns of a table of alternatives that hold numbers only, perhaps with their unit."""
    return tuple(
        at
        for at in range(1, len(table.columns))
        if all(not isinstance(row[at], str) or _AMOUNT.match(str(row[at])) for row in table.rows)
    )


def value_of(each: Input) -> str:
    """An input's value for people."""
    return each.shown or with_unit(each.value, each.unit)


def origin_of(each: Input) -> str:
    """Who says an input, with the source of a default and the option that would change it."""
    where = f", {each.source}" if each.source else ""
    option = f" ({each.option})" if each.option and each.origin == "default" else ""
    return f"{each.origin}{where}{option}"


def shown_inputs(found: Derivation) -> tuple[list[list[str]], str]:
    """The rows of the inputs that are there, and a sentence on those that are not."""
    there = [each for each in found.inputs if each.value != NOT_GIVEN]
    rows = [[each.symbol, each.name, value_of(each), origin_of(each)] for each in there]
    absent = [f"{each.option} ({each.name})" for each in found.inputs if each.value == NOT_GIVEN]
    return rows, f"Not given: {'; '.join(absent)}." if absent else ""


def shown_sensitivity(found: Derivation) -> tuple[list[list[str]], str]:
    """A row an input with the result at its changes, and a sentence on the inputs that change nothing."""
    first = found.results[0]
    by_name: dict[str, list[tuple[str, str]]] = {}
    for each in found.sensitivity:
        by_name.setdefault(each.name, []).append((each.change, with_unit(each.value, each.unit)))
    base = with_unit(first.value, first.unit)
    idle = [name for name, some in by_name.items() if all(gives == base for _, gives in some)]
    moved = {name: some for name, some in by_name.items() if name not in idle}
    most = max((len(some) for some in moved.values()), default=0)
    rows = [
        [name, *(text for pair in some for text in pair), *[""] * (2 * (most - len(some)))]
        for name, some in moved.items()
    ]
    return rows, f"It does not change with: {'; '.join(idle)}." if idle else ""


def picture_of(chart: Chart, width: float = 720, height: float = 400) -> Picture:
    """A chart drawn."""
    curves = [
        Curve(line.name, line.points, _COLOURS[at % len(_COLOURS)], dashed=line.dashed, label=line.name)
        for at, line in enumerate(chart.lines)
    ]
    return line_chart(
        chart.title, curves, x_label=chart.x_label, y_label=chart.y_label, last_values=False, width=width,
        height=height,
    )  # fmt: skip


def derivation_report(found: Derivation, command: str) -> Report:
    """The page of a planner."""
    return Report(
        title=found.question,
        lead=(found.answer,),
        facts=(("command", command),) if command else (),
        sections=tuple(sections_of(found)),
        footer="Made by muster plan. One file, nothing is loaded from elsewhere.",
    )


def sections_of(found: Derivation) -> Iterator[Section]:
    """The parts of a derivation, in the order of the terminal's page."""
    results = Table(("Result", ""), tuple((each.name, with_unit(each.value, each.unit)) for each in found.results))
    pictures: tuple[Block, ...] = tuple(Figure(picture_of(chart)) for chart in found.charts)
    yield Section("Result", blocks=(results, *pictures, *(_alternatives(each) for each in found.tables)))
    yield Section("Formula", text=(*found.formula, f"Source: {found.source}."))
    inputs, absent = shown_inputs(found)
    rows = tuple(tuple(row) for row in inputs)
    yield Section("Put in", blocks=(Table(("", "what", "value", "who says so"), rows, left=4, caption=absent),))
    steps = tuple(
        (str(at), each.text, each.worked, with_unit(each.value, each.unit)) for at, each in enumerate(found.steps, 1)
    )
    yield Section("Worked", blocks=(Table(("", "step", "worked", "gives"), steps, left=3),))
    changed, idle = shown_sensitivity(found)
    if changed:
        rows = tuple(tuple(row) for row in changed)
        yield Section("Sensitivity", blocks=(Table(sensitivity_titles(found, changed), rows, left=9, caption=idle),))
    if found.fails_when:
        yield Section("It does not hold when", text=found.fails_when)
    if found.todo:
        yield Section("And now", text=found.todo)


def sensitivity_titles(found: Derivation, rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Headings for `shown_sensitivity`."""
    name = found.results[0].name
    return (f"{name[:1].upper()}{name[1:]}, if", *("is", "gives") * ((len(rows[0]) - 1) // 2))


def _alternatives(table: Alternatives) -> Table:
    rows = tuple(tuple(cell(each) for each in row) for row in table.rows)
    figures = numeric(table)
    words = tuple(at for at in range(1, len(table.columns)) if at not in figures)
    return Table(table.columns, rows, words=words, title=table.title)


def to_markdown(found: Derivation) -> str:
    """The worked page as Markdown: to be pasted into a design document, and for the pages of the docs."""
    parts = [f"**{found.question}** {found.answer}", ""]
    for table in found.tables:
        rows = [[cell(each) for each in row] for row in table.rows]
        parts += [f"{table.title}:", "", *_grid(table.columns, rows, right=numeric(table))]
    parts += ["Formula:", "", *(f"    {line}" for line in found.formula), "", f"Source: {found.source}.", ""]
    inputs, absent = shown_inputs(found)
    parts += _grid(("", "put in", "value", "who says so"), inputs, left=4)
    parts += [absent, ""] if absent else []
    steps = [
        [str(at), each.text, each.worked, with_unit(each.value, each.unit)] for at, each in enumerate(found.steps, 1)
    ]
    parts += _grid(("", "step", "worked", "gives"), steps, left=3)
    parts += _grid(("result", ""), [[each.name, with_unit(each.value, each.unit)] for each in found.results])
    changed, idle = shown_sensitivity(found)
    if changed:
        parts += _grid(sensitivity_titles(found, changed), changed, left=9)
        parts += [idle, ""] if idle else []
    for title, lines in (("It does not hold when:", found.fails_when), ("And now:", found.todo)):
        if lines:
            parts += [title, "", *(f"- {_escaped(line)}" for line in lines), ""]
    return "\n".join(parts).rstrip() + "\n"


def _grid(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, right: Sequence[int] | None = None
) -> list[str]:
    """A table; its first ``left`` columns are names, or those that are not in ``right``."""
    names = range(left) if right is None else [at for at in range(len(titles)) if at not in right]
    line = "| " + " | ".join(titles) + " |"
    rule = "|" + "|".join("---" if at in names else "---:" for at in range(len(titles))) + "|"
    return [line, rule, *("| " + " | ".join(map(_escaped, row)) + " |" for row in rows), ""]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace("\n", " ")
