"""The command of a planner, made from the declaration of its inputs; see `muster.planning.question`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from muster.cli.plan.derived import FORMATS, emit_derivation
from muster.errors import InputError
from muster.planning.question import Field, FromData, Question, derive, fields_of

if TYPE_CHECKING:
    from muster.planning.derivation import Derivation, Origin


class Data(Struct, frozen=True):
    """An option that fills inputs from a user's data, or says more of one that does.

    Attributes:
        option: such as ``--from``.
        metavar, help: for the command's help.
        read: ``module.function`` of `muster.answers.plan_data`, imported when it is used; called with what the option
            names and all options as they are given (None where they are not), it returns `FromData` or raises
            `InputError`.
        beside: of an option without ``read``: the one that it says more of, and is nothing without.
    """

    option: str
    metavar: str
    help: str
    read: str = ""
    beside: str = ""

    @property
    def key(self) -> str:
        """Its name among what is given."""
        return self.option.lstrip("-").replace("-", "_")

    def values(self, named: str, given: Mapping[str, Any]) -> FromData:
        """What the data say; raises `InputError`."""
        if not self.read:
            if given[self.beside.lstrip("-").replace("-", "_")] is None:
                raise InputError("says nothing by itself", field=self.option, hint=f"it is for {self.beside}")
            return FromData({})
        module, _, function = self.read.partition(".")
        found: FromData = getattr(importlib.import_module(f"muster.answers.plan_data.{module}"), function)(named, given)
        return found


def plan_command(
    planner: type[Question], text: str, examples: Sequence[str], data: Sequence[Data] = (), notes: str = ""
) -> click.Command:
    """A command with an option an input, the given sources of data, and the common ways out.

    Args:
        planner: the declaration; the command is named by it.
        text: of the help, a sentence or three.
        examples: command lines, without ``muster plan NAME``'s prompt.
        data: options that read inputs from the user's data; inputs that are given win over them.
        notes: what else the help should say, after the examples.
    """
    fields = fields_of(planner)

    def run(output: str, report: str | None, plot: str | None, sensitivity: bool, **given: Any) -> None:
        _check_targets(report, plot)
        found = _answer(planner, fields, data, given, sensitivity=sensitivity)
        _write(found, report, plot)
        emit_derivation(found, output)

    run.__doc__ = text
    options: list[click.Parameter] = [_option(field) for field in fields]
    options += [click.Option([each.option], metavar=each.metavar, help=each.help) for each in data]
    options += [
        click.Option(["--sensitivity/--no-sensitivity"], default=True, help="Also the result with each input changed."),
        click.Option(["--report"], metavar="FILE", help="Also write a page: FILE.html."),
        click.Option(["--plot"], metavar="FILE", help="Also write the first chart: FILE.svg or FILE.png."),
        click.Option(
            ["-o", "--output"], type=click.Choice(FORMATS), default="table", show_default=True,
            help="table: a worked page; json or yaml for machines; markdown for documents.",
        ),
    ]  # fmt: skip
    lines = "\n".join(f"  {line}" for line in examples)
    epilog = f"\b\nExamples:\n{lines}\n\n" + (f"\b\n{notes}\n\n" if notes else "") + "Exit codes: 0 told, 2 bad input."
    return click.Command(
        planner.planner, params=options, callback=run, help=text, epilog=epilog,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip


def _option(field: Field) -> click.Option:
    ask = field.ask
    told = [f"{ask.name[:1].upper()}{ask.name[1:]}."]
    if ask.usual:
        told.append(f"Usually {ask.usual}.")
    if field.required:
        told.append("[required]")
    elif field.default is not None and field.default != () and field.default != "":
        told.append(f"[default: {_text(field)}]")
    if isinstance(field.default, bool):
        return click.Option([f"{field.option}/--no-{field.option[2:]}", field.name], default=None, help=" ".join(told))
    kind = click.Choice(ask.choices) if ask.choices else None
    metavar = None if ask.choices else _metavar(field)
    return click.Option(
        [field.option, field.name], type=kind, metavar=metavar, help=" ".join(told), multiple=field.many
    )


def _text(field: Field) -> str:
    """The default for people."""
    default: Any = field.default
    if isinstance(default, bool):
        return "yes" if default else "no"
    each: list[Any] = list(default) if field.many else [default]
    kind = field.ask.kind
    return ", ".join(str(one) if kind is None or isinstance(one, str) else kind.show(one) for one in each)


def _metavar(field: Field) -> str:
    from muster.planning.quantities import BYTES, FLOPS, RATE, SHARE, TIME

    kind = field.ask.kind
    known = ((TIME, "TIME"), (BYTES, "BYTES"), (RATE, "RATE"), (SHARE, "SHARE"), (FLOPS, "FLOPS"))
    return next((name for each, name in known if each is kind), "N" if kind else "TEXT")


def _answer(
    planner: type[Question], fields: Sequence[Field], data: Sequence[Data], given: dict[str, Any], *, sensitivity: bool
) -> Derivation:
    from muster.cli.output import say

    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    sources: dict[str, str] = {}
    for each in data:
        named = given[each.key]
        if named is None:
            continue
        read = each.values(named, given)
        values.update(read.values)
        origins.update(dict.fromkeys(read.values, "from your data"))
        sources.update({**dict.fromkeys(read.values, str(named)), **read.sources})
        for line in read.told:
            say(line)
    for field in fields:
        text = given[field.name]
        if text is None or text == ():
            continue
        values[field.name] = _value(field, text)
        origins[field.name] = "given"
    for field in fields:
        if field.required and field.name not in values:
            usual = f"; usually {field.ask.usual}" if field.ask.usual else ""
            example = field.ask.kind.hint if field.ask.kind else "see --help"
            raise InputError("is missing", field=field.option, hint=f"{field.ask.name}, {example}{usual}")
    return derive(planner(**values), origins, sources, sensitivity=sensitivity)


def _value(field: Field, text: Any) -> Any:
    if isinstance(text, bool):
        return text
    return tuple(field.read(each) for each in text) if field.many else field.read(text)


def _check_targets(report: str | None, plot: str | None) -> None:
    if report is None and plot is None:
        return
    from muster.report.files import PLOT_SUFFIXES, REPORT_SUFFIXES, check_target

    if report is not None:
        check_target(report, REPORT_SUFFIXES, "--report")
    if plot is not None:
        check_target(plot, PLOT_SUFFIXES, "--plot")


def _write(found: Derivation, report: str | None, plot: str | None) -> None:
    if report is not None:
        import shlex
        import sys

        from muster.report.derivations import derivation_report
        from muster.report.files import write_report

        write_report(report, derivation_report(found, shlex.join(["muster", *sys.argv[1:]])))
    if plot is not None:
        from muster.report.derivations import picture_of
        from muster.report.files import write_plot

        if not found.charts:
            raise InputError(f"muster plan {found.planner} draws no chart", field="--plot")
        write_plot(plot, picture_of(found.charts[0]))
