"""The report of a replay: what was in use and who waited, over time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.report.page import Commands, Figure, Report, Section, Table
from muster.report.palette import policy_colour
from muster.report.scale import number
from muster.report.svg import Curve, Picture, grid, line_chart

_HOUR_S, _DAY_S = 3600.0, 86400.0


class ReplayRun(Struct, frozen=True):
    """One replay, as the page shows it.

    Attributes:
        workload, policy, seed: what was replayed, and how.
        gpu_milli, cpu_milli: what the fleet has in all.
        series: (from, to, milli GPU in use, jobs waiting, milli CPU in use), by rising time: means over this time.
        figures: name and value in words, the same names in every run.
    """

    workload: str
    policy: str
    seed: int
    gpu_milli: int
    cpu_milli: int
    series: tuple[tuple[float, float, float, float, float], ...]
    figures: tuple[tuple[str, str], ...]


class ReplaySetup(Struct, frozen=True):
    """What was run, in words, and commands to go on with (what it does, the command)."""

    command: str
    version: str
    fleet: str
    workloads: tuple[str, ...]
    next_commands: tuple[tuple[str, str], ...] = ()


def replay_report(runs: Sequence[ReplayRun], setup: ReplaySetup) -> Report:
    """The whole page."""
    facts = [("Command", setup.command), ("Muster", setup.version), ("Fleet", setup.fleet)]
    facts += [("Workload", text) for text in setup.workloads]
    names = [name for name, _ in runs[0].figures] if runs else []
    rows = tuple((run.workload, run.policy, str(run.seed), *(value for _, value in run.figures)) for run in runs)
    caption = "First come, first served: the job at the head of the queue blocks those behind it."
    sections = [Section("Jobs", blocks=(Table(("workload", "policy", "seed", *names), rows, 2, caption),))]
    for workload, members in _by_workload(runs).items():
        bins = len(members[0].series)
        drawn = f"Means over {bins} equal spans of time. Seed {members[0].seed}."
        figures = (Figure(_use_chart(members), drawn), Figure(_waiting_chart(members), drawn))
        sections.append(Section(f"Workload {workload}", blocks=figures))
    if setup.next_commands:
        sections.append(Section("And now what?", blocks=(Commands(setup.next_commands),)))
    return Report(
        title="Recorded jobs on a simulated fleet",
        facts=tuple(facts),
        sections=tuple(sections),
        footer="Made by muster simulate. One file, nothing is loaded from elsewhere.",
    )


def replay_plot(runs: Sequence[ReplayRun]) -> Picture:
    """Use and waiting of all workloads in one picture, a workload a row."""
    charts: list[Picture] = []
    for workload, members in _by_workload(runs).items():
        charts += [_use_chart(members, f"Workload {workload}: "), _waiting_chart(members, f"Workload {workload}: ")]
    return grid(charts, 2, "What is in use, and who waits")


def _by_workload(runs: Sequence[ReplayRun]) -> dict[str, list[ReplayRun]]:
    """The runs with the first seed, by workload."""
    found: dict[str, list[ReplayRun]] = {}
    for run in (run for run in runs if run.seed == runs[0].seed):
        found.setdefault(run.workload, []).append(run)
    return found


def _use_chart(runs: Sequence[ReplayRun], prefix: str = "") -> Picture:
    """GPUs in use in % of the fleet; CPU where the fleet has no GPU."""
    what, column, total = ("GPUs", 2, runs[0].gpu_milli) if runs[0].gpu_milli else ("CPU", 4, runs[0].cpu_milli)
    curves = [_curve(run, tuple(100.0 * row[column] / max(1, total) for row in run.series)) for run in runs]
    return _chart(f"{prefix}{what} in use", f"{what} in use, % of the fleet", curves, 100.0)


def _waiting_chart(runs: Sequence[ReplayRun], prefix: str = "") -> Picture:
    curves = [_curve(run, tuple(row[3] for row in run.series)) for run in runs]
    return _chart(f"{prefix}Jobs that wait", "jobs in the queue", curves, None)


def _curve(run: ReplayRun, values: tuple[float, ...]) -> Curve:
    """Steps: each mean over the time that it is of."""
    first = run.series[0][0] if run.series else 0.0
    steps: list[tuple[float, float]] = []
    for (start, end, *_), value in zip(run.series, values, strict=True):
        steps += [(start - first, value), (end - first, value)]
    return Curve(run.policy, tuple(steps), policy_colour(run.policy))


def _chart(title: str, y_label: str, curves: Sequence[Curve], top: float | None) -> Picture:
    last = max([curve.points[-1][0] for curve in curves if curve.points], default=0.0)
    unit, size = ("days", _DAY_S) if last >= 2 * _DAY_S else ("hours", _HOUR_S) if last >= 2 * _HOUR_S else ("s", 1.0)
    scaled = [Curve(one.name, tuple((at / size, value) for at, value in one.points), one.colour) for one in curves]
    most = max([value for curve in curves for _, value in curve.points], default=0.0)
    return line_chart(
        title,
        scaled,
        x_label=f"{unit} since the first submission",
        y_label=y_label,
        x_range=(0.0, max(last / size, 1e-9)),
        y_range=(0.0, top or max(1.0, most * 1.05)),
        last_values=False,
        height=300,
    )


def figure_text(value: float, unit: str = "") -> str:
    """A figure of a replay in words: ``1,234 s``, ``87.5 %``."""
    rounded = round(value, 1) if abs(value) < 100 else float(round(value))
    return f"{number(rounded)} {unit}".strip()
