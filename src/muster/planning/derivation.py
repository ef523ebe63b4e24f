"""A number with all that it came from: formula, inputs, steps worked as one would by hand, sensitivity, limits.

Every planner returns one, whatever it plans; the command line, reports and the API print it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Origin = Literal["given", "from your data", "default"]


class Input(Struct, frozen=True):
    """A number that was put in.

    Attributes:
        symbol: as the formula and the steps call it.
        name: what it is.
        value: a number in ``unit``, or text.
        origin: who says so; of a default, ``source`` is where it is from and of when.
        option: by which option it is given; empty: by none.
        shown: the value as people read it; empty: value and unit.
    """

    symbol: str
    name: str
    value: float | str
    unit: str = ""
    origin: Origin = "given"
    source: str = ""
    option: str = ""
    shown: str = ""


class Step(Struct, frozen=True):
    """One step: what is worked out, the formula with the numbers in it, and what comes out."""

    text: str
    worked: str
    value: float
    unit: str = ""


class Result(Struct, frozen=True):
    """What is asked for."""

    name: str
    value: float | str
    unit: str = ""


class Sensitivity(Struct, frozen=True):
    """What becomes of the first result if an input is another."""

    name: str
    change: str
    value: float
    unit: str = ""


class Table(Struct, frozen=True):
    """Alternatives beside each other; ``rows`` have a cell a column, numbers in the columns' units."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[float | str, ...], ...]


class Line(Struct, frozen=True):
    """A line of a chart: ``(x, y)`` by rising x; one point is a mark. ``dashed``: a bound, or what others say."""

    name: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


class Chart(Struct, frozen=True):
    """What people would rather look at than read; axes' labels name the units."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]


class Derivation(Struct, frozen=True):
    """A planner's answer.

    Attributes:
        planner: such as ``hybrid``.
        question: what was asked, in words.
        answer: the result in one or two sentences.
        formula: with the symbols of the inputs; ``source`` is where it is from.
        inputs, steps, results, sensitivity: see there; the first result is the one that the sensitivity is about.
        tables: alternatives that were compared.
        fails_when: when the formula, or the simulation, does not hold.
        todo: what to do, most useful first.
        charts: pictures of it, for reports and pages.
    """

    planner: str
    question: str
    answer: str
    formula: tuple[str, ...]
    source: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    sensitivity: tuple[Sensitivity, ...] = ()
    tables: tuple[Table, ...] = ()
    fails_when: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
