"""The page of `muster whatif`: variants in figures, and when each job runs as things are and then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from muster.report.gantt import MOST_ROWS, JobRow, gantt, time_unit
from muster.report.page import Block, Commands, Figure, Report, Section, Table
from muster.report.palette import BLUE, GREEN, GREY, OCHRE, PURPLE, SKY, VERMILION
from muster.report.scale import duration
from muster.report.svg import Curve, Picture, line_chart

if TYPE_CHECKING:
    from muster.answers.whatif import Comparison, Effect, Figures, Outcome, Waits

MOST_GROUPS = 20
"""Queues listed."""

MOST_LISTED = 40
"""Jobs listed for each variant."""

_COLOURS = (GREY, BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY)

Spans = Callable[[float], str]
"""How spans of time are written."""


def whatif_report(found: Comparison, facts: Sequence[tuple[str, str]], commands: Sequence[tuple[str, str]]) -> Report:
    """The whole page; facts and next commands are given in words."""
    base, others = found.outcomes[0], found.outcomes[1:]
    names = tuple(each.variant.name for each in found.outcomes)
    sections = [
        Section(
            "In numbers", blocks=(Table(("", *names), tuple(map(tuple, figure_rows(found, duration)))), *_groups(found))
        ),
        Section("GPUs in use", blocks=(Figure(_use_chart(found)),)),
    ]
    sections += [_variant_section(base, each, found.drawn_s) for each in others]
    sections.append(Section("And now what?", blocks=(Commands(tuple(commands)),)))
    return Report(
        title="What if",
        lead=tuple(lead_of(each) for each in others),
        facts=tuple(facts),
        sections=tuple(sections),
        footer="Made by muster whatif. One file, nothing is loaded from elsewhere.",
    )


def figure_rows(found: Comparison, spans: Spans) -> list[list[str]]:
    """A row a figure: its name, and its value in each variant, as text."""
    figures = [each.figures for each in found.outcomes]

    def row(title: str, show: Callable[[Figures], str]) -> list[str]:
        return [title, *map(show, figures)]

    def within(value_s: float) -> str:
        return "not all" if math.isinf(value_s) else "now" if value_s < 1 else spans(value_s)

    rows = [
        row("jobs that wait", lambda each: f"{each.jobs:,}"),
        row("start at once", lambda each: number_text(each.starts_now)),
        row("do not start in that time", lambda each: number_text(each.waiting)),
        row("wait from now on, mean", lambda each: ("over " if each.waits.waiting else "") + spans(each.waits.mean_s)),
        row("9 in 10 start within", lambda each: within(each.wait_p90_s)),
        row("the last one starts in", lambda each: within(each.last_start_s)),
        row("GPUs in use, % of healthy", lambda each: f"{100 * each.use.utilisation:.1f}"),
        row("GPU-hours used", lambda each: f"{each.use.gpu_hours:,.0f}"),
        row("GPUs, healthy and open", lambda each: number_text(each.use.open_gpus)),
        row("whole nodes free, mean", lambda each: number_text(each.use.whole_free_nodes)),
        row("GPUs free on half-used nodes, mean", lambda each: number_text(each.use.stranded_gpus)),
        row("running jobs stopped", lambda each: number_text(each.stopped)),
        row("running jobs moved", lambda each: number_text(each.moved)),
        row("work lost, GPU-hours", lambda each: f"{each.lost_gpu_s / 3600:,.1f}"),
    ]
    if figures[0].usd_per_hour is not None:
        rows.append(row("the fleet costs, USD an hour", lambda each: f"{each.usd_per_hour or 0.0:,.2f}"))
        rows.append(row("USD a GPU-hour used", lambda each: _per_used(each, found.use_s)))
    return rows


def waits_text(waits: Waits, spans: Spans) -> str:
    """The mean wait of a group, and how many do not start; it is then longer than what is told."""
    return f"over {spans(waits.mean_s)} ({number_text(waits.waiting)} not)" if waits.waiting else spans(waits.mean_s)


def shown_groups(groups: Sequence[Sequence[Waits]]) -> list[int]:
    """Which groups are listed, in their order: all, or where they are many those that change most."""
    base, many = groups[0], range(len(groups[0]))
    if len(base) <= MOST_GROUPS:
        return list(many)

    def change(at: int) -> tuple[float, float, int]:
        moved = max(abs(some[at].mean_s - base[at].mean_s) for some in groups)
        return -moved, -max(abs(some[at].waiting - base[at].waiting) for some in groups), at

    return sorted(sorted(many, key=change)[:MOST_GROUPS])


def start_text(value_s: float, none: str, spans: Spans) -> str:
    """When a job starts: ``now``, ``in 3 h``, ``not by then``; ``none`` where it does not wait in the variant."""
    if math.isnan(value_s):
        return none
    return "not by then" if math.isinf(value_s) else "now" if value_s < 1 else f"in {spans(value_s)}"


def difference_text(effect: Effect, spans: Spans) -> str:
    """How much earlier or later a job starts."""
    if math.isnan(effect.later_s):
        return "new" if math.isnan(effect.before_s) else "withdrawn"
    if math.isinf(effect.later_s):
        return "starts at all" if effect.later_s < 0 else "no more"
    return f"{spans(abs(effect.later_s))} {'earlier' if effect.later_s < 0 else 'later'}" if effect.later_s else "same"


def number_text(value: float) -> str:
    """A number with at most one decimal."""
    value = round(value, 1)
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.1f}"


def _per_used(figures: Figures, use_s: float) -> str:
    hours = figures.use.gpu_hours
    return f"{(figures.usd_per_hour or 0.0) * use_s / 3600 / hours:,.2f}" if hours else "-"


def lead_of(outcome: Outcome) -> str:
    """A variant in a sentence."""
    moved = outcome.movers
    earlier = sum(each.later_s < 0 for each in moved)
    later = len(moved) - earlier
    text = f"{earlier:,} job{' starts' if earlier == 1 else 's start'} earlier, {later:,} later." if moved else ""
    return f"{outcome.variant.name}: {' '.join([*([text] if text else []), *outcome.notes])}"


def _groups(found: Comparison) -> list[Block]:
    blocks: list[Block] = []
    for title, groups in (
        ("queue", [each.figures.by_queue for each in found.outcomes]),
        ("GPUs", [each.figures.by_size for each in found.outcomes]),
    ):
        if len(groups[0]) > 1:
            shown = shown_groups(groups)
            rows = tuple(
                (
                    groups[0][at].name or "-",
                    f"{groups[0][at].jobs:,}",
                    *(waits_text(some[at], duration) for some in groups),
                )
                for at in shown
            )
            names = tuple(each.variant.name for each in found.outcomes)
            caption = "Wait from now on, mean, of the jobs that wait in all variants."
            if len(shown) < len(groups[0]):
                caption += f" Of {len(groups[0]):,} the {len(shown)} that change most."
            blocks.append(Table((title, "jobs", *names), rows, 1, caption))
    return blocks


def _use_chart(found: Comparison) -> Picture:
    unit, length = time_unit(found.drawn_s)
    curves: list[Curve] = []
    for number, outcome in enumerate(found.outcomes):
        steps: list[tuple[float, float]] = []
        for at_s, gpus in outcome.in_use:
            if steps:
                steps.append((at_s / length, steps[-1][1]))
            steps.append((at_s / length, gpus))
        if steps:
            steps.append((found.drawn_s / length, steps[-1][1]))
        colour = _COLOURS[number % len(_COLOURS)]
        curves.append(Curve(outcome.variant.name, tuple(steps), colour, dashed=number == 0))
    most = max([gpus for each in found.outcomes for _, gpus in each.in_use], default=1.0)
    return line_chart(
        "GPUs in use", curves, x_label=f"{unit} from now", y_label="GPUs held by work",
        x_range=(0.0, found.drawn_s / length), y_range=(0.0, max(1.0, most * 1.05)),
        last_values=False, height=300, width=940,
    )  # fmt: skip


def _variant_section(base: Outcome, outcome: Outcome, end_s: float) -> Section:
    changes = "; ".join(map(str, outcome.variant.changes))
    rows = _rows(base, outcome)
    caption = "What waits now, in the order in which it starts as things are. Point at a row for its times."
    if len(rows) > MOST_ROWS:
        caption += f" Of {len(rows):,} jobs the {MOST_ROWS} that move most."
        keep = set(sorted(range(len(rows)), key=lambda at: -abs(rows[at].later_s))[:MOST_ROWS])
        rows = [row for at, row in enumerate(rows) if at in keep]
    figure = Figure(gantt(f"{outcome.variant.name}: when jobs run", rows, end_s), caption)
    moved = outcome.movers[:MOST_LISTED]
    table = Table(
        ("job", "queue", "GPUs", "as it is", "then", "difference"),
        tuple(
            (
                each.job, each.queue or "-", number_text(each.gpus), start_text(each.before_s, "runs now", duration),
                start_text(each.after_s, "-", duration), difference_text(each, duration),
            )
            for each in moved
        ), 2, f"The {len(moved)} jobs whose start moves most, of {len(outcome.movers):,}.",
    )  # fmt: skip
    blocks: tuple[Block, ...] = (figure, table) if moved else (figure,)
    return Section(outcome.variant.name, (f"Changes: {changes}", *outcome.notes), blocks)


def _rows(base: Outcome, outcome: Outcome) -> list[JobRow]:
    """A row for each job that waits before or after, in the order of starts as things are."""
    before, after = _spans(base), _spans(outcome)

    def order(effect: Effect) -> tuple[float, float, str]:
        starts = (each if not math.isnan(each) else 0.0 for each in (effect.before_s, effect.after_s))
        return (*starts, effect.job)  # type: ignore[return-value]

    rows: list[JobRow] = []
    for effect in sorted(outcome.effects, key=order):
        then = start_text(effect.after_s, "-", duration)
        words = f"{effect.job}, {number_text(effect.gpus)} GPUs, {effect.queue}: "
        words += f"{start_text(effect.before_s, 'runs now', duration)}; then {then}"
        later_s = 0.0 if math.isnan(effect.later_s) else effect.later_s
        rows.append(JobRow(effect.job, before.get(effect.job, ()), after.get(effect.job, ()), later_s, words))
    return rows


def _spans(outcome: Outcome) -> dict[str, tuple[tuple[float, float], ...]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for bar in outcome.bars:
        found.setdefault(bar.job, []).append((bar.start_s, bar.end_s))
    return {name: tuple(spans) for name, spans in found.items()}
