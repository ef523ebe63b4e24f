"""What `muster simulate` does for ``--report`` and ``--plot``: check before, write after."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from muster.cli.output import say, thousands
from muster.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.model.fleet import Fleet
    from muster.report.published import Published
    from muster.sim.replay_runs import ReplayOutcome, ReplayTask
    from muster.sim.sweep import Outcome, Task
    from muster.traces import Trace


def check_outputs(report: str | None, plot: str | None, published: str | None, kind: str) -> None:
    """Refuse what could not be written or drawn, before anything is run; raises `InputError`."""
    from muster.report.files import PLOT_SUFFIXES, REPORT_SUFFIXES, check_target

    if report is not None:
        check_target(report, REPORT_SUFFIXES, "--report")
    if plot is not None:
        check_target(plot, PLOT_SUFFIXES, "--plot")
    if kind == "replay" and published is not None:
        raise InputError("is for --arrivals inflate:F; a replay has no such curves", field="--published")
    if published is not None and report is None and plot is None:
        raise InputError("has nothing to be drawn into", field="--published", hint="add --report FILE.html")


def with_details(tasks: Sequence[Task], *, report: bool) -> list[Task]:
    """The tasks, keeping their curves, and for a report the nodes at the end of the first seed of each policy."""
    import msgspec

    from muster.sim.details import CURVES, CURVES_AND_NODES

    seen: set[tuple[str, str]] = set()
    kept: list[Task] = []
    for task in tasks:
        mapped = report and task.workload == tasks[0].workload and (task.workload, task.policy) not in seen
        seen.add((task.workload, task.policy))
        kept.append(msgspec.structs.replace(task, details=CURVES_AND_NODES if mapped else CURVES))
    return kept


def read_curves(path: str | None, tasks: Sequence[Task]) -> tuple[Published, ...]:
    """The published curves of the tasks' workloads and policies; raises `InputError` if the file has none."""
    if path is None:
        return ()
    from muster.report.published import read_published
    from muster.traces import read_fleet, read_workload

    fleet, _ = read_fleet(tasks[0].fleet)
    specs = dict.fromkeys(task.workload for task in tasks)
    names = [read_workload(spec, fleet).name for spec in specs]
    return read_published(path, names, list(dict.fromkeys(task.policy for task in tasks)))


def write_outputs(
    outcomes: Sequence[Outcome],
    tasks: Sequence[Task],
    command: str,
    *,
    report: str | None,
    plot: str | None,
    published: tuple[Published, ...],
    source: str | None,
    timings: bool,
) -> None:
    """Write the page and the chart that were asked for; raises `InputError` if that fails."""
    from muster import __version__
    from muster.report.files import write_plot, write_report
    from muster.report.simulation import Setup, allocation_plot, simulation_report
    from muster.traces import read_fleet, read_workload

    if plot is not None:
        write_plot(plot, allocation_plot(outcomes, published))
    if report is None:
        return
    fleet, _ = read_fleet(tasks[0].fleet)
    traces = {spec: read_workload(spec, fleet) for spec in dict.fromkeys(task.workload for task in tasks)}
    setup = Setup(
        command,
        __version__,
        _fleet_words(tasks[0].fleet, fleet),
        tuple(_trace_words(spec, trace) for spec, trace in traces.items()),
        tasks[0].fleet,
        tasks[0].workload,
        published,
        Path(source).name if source else "",
    )
    write_report(report, simulation_report(outcomes, setup, timings=timings))


def write_replay_outputs(
    outcomes: Sequence[ReplayOutcome],
    tasks: Sequence[ReplayTask],
    command: str,
    *,
    report: str | None,
    plot: str | None,
) -> None:
    """Write the page and the charts of replays; raises `InputError` if that fails."""
    from muster import __version__
    from muster.report.files import write_plot, write_report
    from muster.report.replay import ReplayRun, ReplaySetup, replay_plot, replay_report
    from muster.sim.replay_runs import read_inputs

    fleet, _ = read_inputs(tasks[0].fleet, tasks[0].workload)
    runs = [
        ReplayRun(
            one.workload, one.policy, one.seed, 1000 * one.gpus, fleet.cpu_milli, one.series, _replay_figures(one)
        )
        for one in outcomes
    ]
    if plot is not None:
        write_plot(plot, replay_plot(runs))
    if report is None:
        return
    traces = {spec: read_inputs(tasks[0].fleet, spec)[1] for spec in dict.fromkeys(task.workload for task in tasks)}
    words = tuple(_trace_words(spec, trace) for spec, trace in traces.items())
    commands = (
        ("the same for machines, with more figures", f"{command} -o json"),
        ("the charts for a paper", f"{command} --plot replay.svg"),
        ("what is in the trace", shlex.join(["muster", "trace", "info", tasks[0].workload])),
    )
    setup = ReplaySetup(command, __version__, _fleet_words(tasks[0].fleet, fleet), words, commands)
    write_report(report, replay_report(runs, setup))


def _replay_figures(one: ReplayOutcome) -> tuple[tuple[str, str], ...]:
    from muster.report.replay import figure_text
    from muster.report.scale import duration

    waits = [("mean", one.wait_mean_s), ("p50", one.wait_p50_s), ("p90", one.wait_p90_s), ("longest", one.wait_max_s)]
    return (
        ("jobs", thousands(one.arrived)),
        ("rejected", thousands(one.rejected)),
        *((f"wait, {name}", duration(value)) for name, value in waits),
        *((("GPU used", figure_text(100 * one.gpu_utilisation, "%")),) if one.gpus else ()),
        ("CPU used", figure_text(100 * one.cpu_utilisation, "%")),
    )


def _fleet_words(spec: str, fleet: Fleet) -> str:
    models = ", ".join(f"{count:,} {model}" for model, count in list(fleet.gpus_by_model.items())[:8])
    return f"{spec}: {len(fleet):,} nodes, {fleet.gpus:,} GPUs{f' ({models})' if models else ''}"


def _trace_words(spec: str, trace: Trace) -> str:
    pods = sum(workload.pods for workload in trace.workloads)
    gpus = sum(workload.gpu_milli for workload in trace.workloads) / 1000
    return f"{trace.name}: {pods:,} pods asking for {thousands(round(gpus, 1))} GPUs, from {spec}"


def tell_outputs(report: str | None, plot: str | None) -> None:
    """Say where things were written."""
    for what, path in (("Report", report), ("Chart", plot)):
        if path is not None:
            say(f"{what}: {path}")


def command_line(fleet: str, workloads: Sequence[str], arrivals: str, policies: Sequence[str], seeds: str) -> str:
    """The command that gives the same figures again."""
    words = ["muster", "simulate", "--fleet", fleet]
    for workload in workloads:
        words += ["--workload", workload]
    words += ["--arrivals", arrivals, "--policy", ",".join(policies), "--seeds", seeds]
    return shlex.join(words)
