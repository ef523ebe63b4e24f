"""`muster simulate RUN.yaml`: one document through the whole scheduling cycle, and how its figures are printed."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, print_table, say, thousands, to_csv

if TYPE_CHECKING:
    from muster.sim.cluster_run import ClusterRun
    from muster.sim.metrics import RunMetrics
    from muster.sim.run_file import PreparedRun

SCHEMA = "muster.simulate.run/v1"
MOST_SHOWN = 20
"""Most jobs that are listed for people."""
STEPS = 200
"""In how many steps the progress bar moves."""

JOB_KEYS = (
    "name", "queue", "user", "pods", "gpus", "priority", "state", "submitted_s", "started_s", "finished_s", "wait_s",
    "promised_s", "reserved_s", "starts", "evictions", "moves", "resizes", "failures", "node_losses",
    "backfilled", "done_s", "lost_s", "restart_s", "stall_s", "slow_s", "slowdown", "placement", "held_idle_hours",
    "reason",
)  # fmt: skip
"""The keys of a job's record, in order."""


def simulate_run(path: str, output: str, *, timings: bool) -> None:
    """Run a run file and print it; raises `InputError` before anything runs if something in it is wrong."""
    from muster.sim.metrics import measure
    from muster.sim.run_file import prepare_run

    prepared = prepare_run(path)
    for note in prepared.notes:
        say(note)
    began = time.perf_counter()
    _run(prepared)
    wall_s = time.perf_counter() - began
    metrics = measure(prepared.run, gantt=prepared.document.gantt)
    if output in ("json", "yaml"):
        emit_document(_document(prepared, metrics, wall_s if timings else None), output)
        return
    jobs = list(job_records(prepared.run))
    if output == "csv":
        click.echo(to_csv(jobs, JOB_KEYS), nl=False)
    elif output == "name":
        for job in jobs:
            click.echo(job["name"])
    else:
        _print(prepared, metrics, jobs, output, wall_s if timings else None)


def _run(prepared: PreparedRun) -> None:
    run, until = prepared.run, prepared.document.until_s
    if not sys.stderr.isatty():
        run.run(until)
        return
    submitted = sorted(story.submitted_s for story in run.stories)
    marks = submitted[:: max(1, len(submitted) // STEPS)]
    with click.progressbar(marks, label="jobs submitted", file=sys.stderr) as bar:
        for mark in bar:
            run.run(mark if until is None else min(mark, until))
    run.run(until)


def job_records(run: ClusterRun) -> list[dict[str, Any]]:
    """A record a job, in the order of the run file; seconds, and None where it did not come to that."""
    from muster.sim.idle import held_idle_hours

    reasons, idle = run.reasons(), held_idle_hours(run)
    records: list[dict[str, Any]] = []
    for job, (workload, story) in enumerate(zip(run.workloads, run.stories, strict=True)):
        state = run.state_of(job)
        started = None if math.isnan(story.started_s) else story.started_s
        reason = reasons.get(job)
        records.append(
            {
                "name": workload.name,
                "queue": workload.queue,
                "user": workload.user,
                "pods": workload.pods,
                "gpus": workload.gpu_milli / 1000,
                "priority": workload.priority,
                "state": state,
                "submitted_s": story.submitted_s,
                "started_s": started,
                "finished_s": None if math.isnan(story.finished_s) else story.finished_s,
                "wait_s": None if started is None else max(0.0, started - story.submitted_s),
                "promised_s": None if math.isnan(story.promised_s) else story.promised_s,
                "reserved_s": None if math.isnan(at := run.reserved_s(job)) else at,
                "starts": story.starts,
                "evictions": story.evictions,
                "moves": story.moves,
                "resizes": story.resizes,
                "failures": story.failures,
                "node_losses": story.node_losses,
                "backfilled": story.backfilled,
                "done_s": story.done_s,
                "lost_s": story.lost_s,
                "restart_s": story.restart_s,
                "stall_s": story.stall_s,
                "slow_s": story.slow_s,
                "slowdown": None if math.isnan(story.slowdown) else story.slowdown,
                "placement": story.placement or None,
                "held_idle_hours": idle.get(job),
                "reason": reason.name.lower() if state == "waiting" and reason is not None else None,
            }
        )
    return records


def _document(prepared: PreparedRun, metrics: RunMetrics, wall_s: float | None) -> dict[str, Any]:
    import msgspec

    run = prepared.run
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "preset": prepared.preset,
        "config": msgspec.to_builtins(prepared.config),
        "seed": prepared.document.seed,
        "cycles": run.cycles,
        "events": run.events,
    }
    if wall_s is not None:
        document["wall_s"] = round(wall_s, 4)
    figures: dict[str, Any] = _without_nan(msgspec.to_builtins(metrics))
    gantt = figures.pop("gantt")
    document["metrics"] = figures
    document["jobs"] = job_records(run)
    if prepared.document.gantt:
        document["gantt"] = gantt
    return document


def _without_nan(value: Any) -> Any:
    """NaN, which JSON does not know, as null."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value


# -- for people -------------------------------------------------------------------------------------------------------


def _print(
    prepared: PreparedRun, metrics: RunMetrics, jobs: list[dict[str, Any]], output: str, wall_s: float | None
) -> None:
    if len(jobs) <= MOST_SHOWN or output == "wide":
        told = any(job["slowdown"] is not None for job in jobs)
        columns = [each for each in _JOB_COLUMNS if told or each.key != "slowdown"]
        emit(jobs, columns, output=output, schema=SCHEMA, list_key="jobs", title="Jobs")
        click.echo()
    if metrics.services:
        _print_services(metrics)
        click.echo()
    _print_waits("Waits by GPUs asked for", "GPUs", metrics, by_queue=False)
    if len(metrics.by_queue) > 1:
        click.echo()
        _print_waits("Waits by queue", "queue", metrics, by_queue=True)
    click.echo()
    columns = [Column("figure", "figure"), Column("value", "value", right=True), Column("note", "")]
    print_table(columns, _figures(prepared, metrics))
    if wall_s is not None:
        say(f"{prepared.run.cycles:,} cycles, {prepared.run.events:,} events in {wall_s:.1f} s.")
    other = "muster" if prepared.preset == "slurm-like" else "slurm-like"
    say(f"Next: -o json for every job and series; config: {{preset: {other}}} in the file to compare.")


def _figures(prepared: PreparedRun, metrics: RunMetrics) -> list[list[str]]:
    def share(part: float) -> str:
        return f"{part / metrics.allocated_hours:.1%} of the allocated" if metrics.allocated_hours else ""

    states = ", ".join(f"{count:,} {state}" for state, count in metrics.jobs.items())
    span = f"{metrics.gpus:,} GPUs for {duration(metrics.end_s - metrics.from_s)}"
    rows = [
        ["jobs", f"{sum(metrics.jobs.values()):,}", states],
        ["GPU utilisation", f"{metrics.utilisation:.1%}", span],
        ["GPU-hours allocated", _number(metrics.allocated_hours), ""],
        ["  useful", _number(metrics.useful_hours), share(metrics.useful_hours)],
        ["  lost", _number(metrics.lost_hours), share(metrics.lost_hours)],
        ["  restarts", _number(metrics.restart_hours), share(metrics.restart_hours)],
    ]
    told, broke = metrics.slowdowns, metrics.breakage
    if metrics.stall_hours:
        note = f"{share(metrics.stall_hours)}, hung as a node was gone"
        rows.append(["  stalled", _number(metrics.stall_hours), note])
    if metrics.slow_hours:
        rows.append(["  slow", _number(metrics.slow_hours), f"{share(metrics.slow_hours)}, by where jobs stand"])
    if prepared.config.gangs == "one-by-one":
        rows.append(["  idle", _number(metrics.idle_hours), "held by gangs that had not all their pods"])
    if metrics.held_idle_hours:
        note = f"{share(metrics.held_idle_hours)}, held by jobs that did not use them"
        rows.append(["  idle in jobs", _number(metrics.held_idle_hours), note])
    jobs = "job" if metrics.evicted_jobs == 1 else "jobs"
    rows += [
        ["preemptions", f"{metrics.evictions:,}", f"of {metrics.evicted_jobs:,} {jobs}"],
        ["moves", f"{metrics.moves:,}", f"cost {_number(metrics.move_hours)} GPU-hours" if metrics.moves else ""],
        ["backfilled jobs", f"{metrics.backfilled:,}", ""],
        ["reserved starts", f"{metrics.promised:,}", _kept(metrics)],
    ]
    if broke.nodes_lost or broke.failures:
        note = f"{broke.interruptions:,} times a job lost pods; {broke.quarantined:,} nodes in quarantine"
        rows.append(["nodes lost", f"{broke.nodes_lost:,}", note])
        rows.append(["failures of jobs", f"{broke.failures:,}", ""])
        sizes = ", ".join(f"{name}: {part:.1%}" for name, part in broke.ettr_by_size.items())
        rows.append(["ETTR", f"{broke.ettr:.1%}", f"by GPUs {sizes}"])
    if metrics.lent_hours:
        rows.append(["GPU-hours lent", _number(metrics.lent_hours), "by queues that keep headroom"])
    if broke.resizes:
        rows.append(["changes of size", f"{broke.resizes:,}", "of elastic jobs"])
    if told.jobs:
        note = f"mean of {told.jobs:,}; most {told.max:.3f}; {told.slowed:,} above 1.05"
        rows.append(["slow-down of a step", f"{told.mean:.3f}", note])
    return rows


def _print_services(metrics: RunMetrics) -> None:
    keys = ("replicas", "GPU-hours", "short", "cold", "p50", "p99", "max", "late")
    columns = [Column("name", "service"), *(Column(key, key, right=True) for key in keys)]
    rows = [
        [
            each.name, f"{each.replicas:,}", _number(each.wanted_hours), _share(each.short_hours, each.wanted_hours),
            _share(each.cold_hours, each.wanted_hours),
            *(duration(value) for value in (each.wait_p50_s, each.wait_p99_s, each.wait_max_s)), f"{each.late:,}",
        ]
        for each in metrics.services
    ]  # fmt: skip
    print_table(columns, rows, "Services: what was wanted, and waits of replicas for a place")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else ""


def _kept(metrics: RunMetrics) -> str:
    text = f"{metrics.promises_broken:,} of them missed"
    if metrics.promised_surely < metrics.promised:
        text += f"; {metrics.promised_surely:,} by stated limits, {metrics.sure_promises_broken:,} of these missed"
    return text


def _print_waits(title: str, heading: str, metrics: RunMetrics, *, by_queue: bool) -> None:
    groups = metrics.by_queue if by_queue else metrics.by_size
    columns = [
        Column("name", heading),
        *(Column(key, key, right=True) for key in ("jobs", "started", "waiting")),
        *(Column(key, key, right=True) for key in ("mean", "p50", "p90", "p99", "max", "still", "slowdown")),
    ]
    columns[9] = Column("still", "still waiting", right=True)
    everyone = (metrics.waits,) if len(groups) > 1 else ()
    rows = [
        [
            each.name or "(none)",
            f"{each.jobs:,}",
            f"{each.started:,}",
            f"{each.waiting:,}",
            *(duration(value) for value in (each.mean_s, each.p50_s, each.p90_s, each.p99_s, each.max_s)),
            duration(each.waiting_max_s),
            "" if math.isnan(each.slowdown_mean) else f"{each.slowdown_mean:,.2f}",
        ]
        for each in (*groups, *everyone)
    ]
    print_table(columns, rows, title)


def duration(seconds: float | None) -> str:
    """``0 s``, ``45 s``, ``12 min``, ``3.2 h`` or ``4.1 d``; empty for None and NaN."""
    if seconds is None or math.isnan(seconds):
        return ""
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{thousands(round(seconds / 86400, 1))} d"


def _number(hours: float) -> str:
    return thousands(round(hours, 1))


_JOB_COLUMNS = [
    Column("name", "job"),
    Column("queue", "queue"),
    Column("gpus", "GPUs", right=True, show=lambda gpus: f"{gpus:g}"),
    Column("state", "state"),
    Column("submitted_s", "submitted", right=True, show=duration),
    Column("wait_s", "wait", right=True, show=duration),
    Column("started_s", "started", right=True, show=duration, wide=True),
    Column("finished_s", "finished", right=True, show=duration),
    Column("evictions", "stopped", right=True),
    Column("lost_s", "lost", right=True, show=duration),
    Column("slowdown", "slow-down", right=True, show=lambda told: "" if told is None else f"{told:.3f}"),
    Column("reserved_s", "starts at", right=True, show=duration),
    Column("reason", "waits for", show=lambda reason: (reason or "").replace("_", " ")),
]
