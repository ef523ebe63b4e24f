"""What a planner is asked: a frozen value whose fields declare their symbol, unit, range and source once.

A planner is a subclass of `Question` and its ``work``. From the declaration come the command's options, the checks and
their errors, the inputs that the derivation lists, and the sensitivity to each of them:

    class Waits(Question, frozen=True, kw_only=True):
        planner = "waits"
        asks = "How long does work wait for one of c servers?"
        servers: Annotated[int, Ask("c", "servers", counts("servers", "64"), least=1, usual="1 to 10,000")] = 8
        service_s: Annotated[float, Ask("S", "time of service", TIME, least=0, usual="1m to 3d")] = 3600.0

        def work(self) -> Worked: ...

    derive(Waits(servers=32))     # a Derivation; the rest are the defaults, and marked so
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InputError
from muster.planning.derivation import Chart, Derivation, Input, Origin, Result, Sensitivity, Step, Table
from muster.planning.quantities import SHARE, Kind, figure

NOT_GIVEN = "not given"
_MOST_LISTED = 8


class Ask(Struct, frozen=True):
    """The declaration of an input.

    Attributes:
        symbol: as the formula and the steps call it.
        name: what it is, without its unit.
        kind: how it is read and shown; None: it is text.
        least, most: bounds that make no sense to be passed.
        usual: the usual range, for people, such as ``1h to 14d``.
        source: of the default: document and date; empty: it is an example, and the derivation says so.
        vary: what the sensitivity tries: factors of the value; empty: none. Whole numbers are rounded.
        choices: the texts that there are; empty: any.
        option: the option's name without dashes where it is not the field's name with dashes.
        above: whether ``least`` itself is excluded.
    """

    symbol: str
    name: str
    kind: Kind | None = None
    least: float = 0.0
    most: float = 1e18
    usual: str = ""
    source: str = ""
    vary: tuple[float, ...] = (0.5, 2.0)
    choices: tuple[str, ...] = ()
    option: str = ""
    above: bool = False


class Worked(Struct, frozen=True):
    """What a planner works out; see `Derivation` for the fields. The first result is what the sensitivity is about."""

    answer: str
    formula: tuple[str, ...]
    source: str
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    fails_when: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()


class Question(Struct, frozen=True, kw_only=True):
    """A planner's inputs; ``work`` works the answer out. Values are in base units (s, B, B/s, shares of 1)."""

    planner: ClassVar[str]
    asks: ClassVar[str]

    def work(self) -> Worked:
        """The answer; raises `InputError` where inputs contradict each other."""
        raise NotImplementedError

    def asked(self) -> str:
        """The question in words; with numbers in it where that reads better."""
        return self.asks

    def headline(self) -> float:
        """The first result alone, for the sensitivity; a planner whose ``work`` is slow says it more cheaply."""
        value = self.work().results[0].value
        return float("nan") if isinstance(value, str) else float(value)


class Field(Struct, frozen=True):
    """One input of a planner, as declared.

    Attributes:
        many: whether it is a tuple, given by repeating the option.
        optional: whether None means that it is not given.
        required: whether there is no default.
    """

    name: str
    ask: Ask
    default: Any
    many: bool
    optional: bool
    required: bool

    @property
    def option(self) -> str:
        """As it is written on the command line."""
        return f"--{self.ask.option or self.name.removesuffix('_s').removesuffix('_bytes').replace('_', '-')}"

    def read(self, text: str | float, field: str = "") -> Any:
        """A value in base units; raises `InputError` that names the option, its unit and its usual range."""
        field = field or self.option
        usual = f"; usually {self.ask.usual}" if self.ask.usual else ""
        if self.ask.kind is None:
            if self.ask.choices and text not in self.ask.choices:
                raise InputError(f"is {str(text)[:40]!r}", field=field, hint=f"one of {', '.join(self.ask.choices)}")
            return str(text)
        try:
            value = self.ask.kind.read(text, field)
        except InputError as error:
            raise InputError(error.what, field=field, hint=f"{error.hint}{usual}") from None
        self.check(value, field)
        return int(value) if self.ask.kind.whole else value

    def check(self, value: Any, field: str = "") -> None:
        """Raise `InputError` where a value is out of its bounds."""
        if isinstance(value, tuple):
            for each in value:  # pyright: ignore[reportUnknownVariableType]
                self.check(each, field)
            return
        if self.ask.choices and value not in self.ask.choices:
            raise InputError(f"is {value!r}", field=field or self.option, hint=f"one of {', '.join(self.ask.choices)}")
        if value is None or isinstance(value, (str, bool)) or self.ask.kind is None:
            return
        low, high, kind = self.ask.least, self.ask.most, self.ask.kind
        if low <= value <= high and not (self.ask.above and value == low):
            return
        bound = f"above {kind.show(low)}" if self.ask.above else f"{kind.show(low)} or more"
        if high < 1e18:
            bound += f", at most {kind.show(high)}"
        usual = f"; usually {self.ask.usual}" if self.ask.usual else ""
        hint = f"{bound}{usual}"
        raise InputError(f"is {kind.show(value)}", field=field or self.option, hint=hint)


class FromData(Struct, frozen=True):
    """What a user's data says about a planner's inputs.

    Attributes:
        values: of fields, in base units.
        sources: where a field is from, such as ``jobs.csv: 4,210 jobs of 30 days``; of others, the option's value is.
        told: sentences about what was left out or could not be read, for stderr.
    """

    values: Mapping[str, Any]
    sources: Mapping[str, str] = {}
    told: tuple[str, ...] = ()


def fields_of(planner: type[Question]) -> tuple[Field, ...]:
    """The declared inputs of a planner, in their order."""
    hints = get_type_hints(planner, include_extras=True)
    found: list[Field] = []
    for each in msgspec.structs.fields(planner):
        hint = hints[each.name]
        assert get_origin(hint) is Annotated, f"{planner.__name__}.{each.name} declares no Ask"
        inner, *extra = get_args(hint)
        ask = next(one for one in extra if isinstance(one, Ask))
        required, default = each.required, each.default
        if default is msgspec.NODEFAULT:
            default = None if required else each.default_factory()
        found.append(
            Field(each.name, ask, default, get_origin(inner) is tuple, type(None) in get_args(inner), required)
        )
    return tuple(found)


def derive(
    question: Question,
    origins: Mapping[str, Origin] | None = None,
    sources: Mapping[str, str] | None = None,
    *,
    sensitivity: bool = True,
) -> Derivation:
    """Work a question out, with its inputs marked and the sensitivity to each.

    Args:
        question: the inputs.
        origins: who says a field; those that are missing are ``default`` where they are as declared, else ``given``.
        sources: of fields from data, where exactly they are from.
        sensitivity: whether to vary the inputs; each costs another `Question.headline`.

    Raises:
        InputError: an input is out of its bounds, or inputs contradict each other.
    """
    fields = fields_of(type(question))
    for field in fields:
        field.check(getattr(question, field.name))
    worked = _worked(question, fields, origins or {})
    inputs = tuple(_input(question, field, origins or {}, sources or {}) for field in fields)
    varied = tuple(_varied(question, fields, worked)) if sensitivity else ()
    return Derivation(
        question.planner, question.asked(), worked.answer, worked.formula, worked.source, inputs, worked.steps,
        worked.results, varied, worked.tables, worked.fails_when, worked.todo, worked.charts,
    )  # fmt: skip


def _worked(question: Question, fields: Sequence[Field], origins: Mapping[str, Origin]) -> Worked:
    """The answer; where there is none, the error names options of the command and not what a formula calls them."""
    said = [field.option for field in fields if origins.get(field.name) in ("given", "from your data")]
    try:
        worked = question.work()
    except InputError as error:
        if error.file is not None or error.field is None or error.field.startswith("-"):
            raise
        options = {field.name: field.option for field in fields} | {field.option[2:]: field.option for field in fields}
        option = options.get(error.field, error.field)
        named = option if option in said or not said else ", ".join(said)
        what = error.what if named == option or not error.what.startswith("is ") else f"{error.field} {error.what}"
        raise InputError(what, field=named, hint=error.hint) from None
    except ArithmeticError:
        worked = None
    if worked is None or (worked.results and worked.results[0].value != worked.results[0].value):  # not a number
        what = "lead beyond what can be calculated: an input, or what two of them make, is 0 or too large"
        raise InputError(what, field=", ".join(said) or None, hint="see the usual ranges in --help")
    return worked


def _input(question: Question, field: Field, origins: Mapping[str, Origin], sources: Mapping[str, str]) -> Input:
    value, ask = getattr(question, field.name), field.ask
    as_declared: Origin = "default" if not field.required and value == field.default else "given"
    origin = origins.get(field.name, as_declared)
    source = sources.get(field.name, "") or (ask.source or "an example") if origin != "given" else ""
    if origin == "from your data":
        source = sources.get(field.name, "")
    if value is None or value in ((), ""):
        return Input(ask.symbol, ask.name, NOT_GIVEN, "", origin, "", field.option)
    if isinstance(value, tuple):
        return Input(ask.symbol, ask.name, _listed(list(value), ask.kind), "", origin, source, field.option)  # pyright: ignore[reportUnknownArgumentType]
    if ask.kind is None or isinstance(value, (str, bool)):
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        return Input(ask.symbol, ask.name, text, "", origin, source, field.option)
    shown = ask.kind.show(value)
    return Input(ask.symbol, ask.name, float(value), ask.kind.base, origin, source, field.option, shown)


def _listed(values: list[Any], kind: Kind | None) -> str:
    """Several values in words: all of a few, a summary of many."""
    if kind is None or len(values) <= _MOST_LISTED:
        shown = [kind.show(each) if kind else str(each) for each in values[:_MOST_LISTED]]
        more = len(values) - len(shown)
        return ", ".join(shown) + (f" and {more:,} more" if more else "")
    mean = sum(values) / len(values)
    return f"{len(values):,} values: {kind.show(min(values))} to {kind.show(max(values))}, mean {kind.show(mean)}"


def _varied(question: Question, fields: Sequence[Field], worked: Worked) -> list[Sensitivity]:
    """The first result with each input changed, one at a time; changes that the planner refuses are left out."""
    unit = worked.results[0].unit
    found: list[Sensitivity] = []
    for field in fields:
        value, kind = getattr(question, field.name), field.ask.kind
        if kind is None or value is None or isinstance(value, (tuple, str, bool)) or not value:
            continue
        for factor in field.ask.vary:
            other = float(value) * factor
            if kind is SHARE:
                other = min(other, 1 - (1 - value) / factor if factor > 1 else other)
            if kind.whole:
                other = round(other)
            if other == value:
                continue
            try:
                field.check(other)
                changed = replace(question, **{field.name: other})
                gives = changed.headline()
            except (InputError, ArithmeticError):
                continue
            found.append(Sensitivity(field.ask.name, f"{field.ask.symbol} = {kind.show(other)}", gives, unit))
    return found


def with_unit(value: float | str, unit: str) -> str:
    """A result or a step's value for people: times, bytes and rates in the unit that suits them."""
    from muster.planning.quantities import BYTES, FLOPS, RATE, TIME

    if isinstance(value, str):
        return f"{value} {unit}".strip()
    for kind in (TIME, BYTES, RATE, FLOPS):
        if unit == kind.base:
            return kind.show(value)
    if unit == "share":
        return SHARE.show(value)
    return f"{figure(value)} {unit}".strip()
