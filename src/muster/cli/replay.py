"""`muster simulate --arrivals replay`: recorded submissions, first come first served, and how it is printed."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli.output import Column, emit, emit_document, say, thousands
from muster.errors import InputError
from muster.report.scale import duration

if TYPE_CHECKING:
    from muster.sim.processes import Where
    from muster.sim.replay_runs import ReplayOutcome, ReplayTask

SCHEMA = "muster.simulate/v1"
RECORDED_KINDS = ("philly", "swf")
"""Kinds of work whose recorded submissions are what one wants of them: they are replayed where nothing is said."""


def default_arrivals(specs: Sequence[str]) -> str:
    """How work arrives where --arrivals is not given: the one rule.

    ``replay`` for traces of jobs with recorded times (RECORDED_KINDS, or converted from them), ``inflate:1.3`` for
    lists of pods and generated work. Raises `InputError` where workloads of both sorts are given.
    """
    from muster.traces.read import workload_kind

    replayed = [workload_kind(spec) in RECORDED_KINDS for spec in specs]
    if any(replayed) and not all(replayed):
        what = f"is needed: {specs[replayed.index(True)]} would be replayed, {specs[replayed.index(False)]} inflated"
        raise InputError(what, field="--arrivals", hint="say --arrivals replay or --arrivals inflate:1.3")
    return "replay" if all(replayed) else "inflate:1.3"


def replay_all(
    tasks: list[ReplayTask],
    jobs: int,
    output: str,
    *,
    resume: bool,
    timings: bool,
    where: Where = "local",
    before_printing: Callable[[list[ReplayOutcome]], None] | None = None,
) -> None:
    """Replay each workload under each policy and seed, and print the figures; reports are written just before."""
    from muster.sim.replay_runs import PARTS, replay_tasks

    if resume:
        raise InputError("is for sweeps with --arrivals inflate:F", field="--resume", hint="replays keep nothing")
    prepare(tasks, jobs if where == "local" else len(tasks) + 1)
    outcomes: list[ReplayOutcome] = []
    if sys.stderr.isatty():
        with click.progressbar(length=PARTS * len(tasks), label="replay", file=sys.stderr) as bar:
            outcomes.extend(replay_tasks(tasks, jobs, lambda: bar.update(1), where))
    else:
        outcomes.extend(replay_tasks(tasks, jobs, where=where))
    if before_printing is not None:
        before_printing(outcomes)
    print_outcomes(outcomes, output, timings=timings)
    if output in ("table", "wide"):
        _tell_what_next(tasks, outcomes, reported=before_printing is not None)


def prepare(tasks: list[ReplayTask], jobs: int) -> None:
    """Where more than one input or process is used, read every input first, so that a mistake shows before a run.

    What must be fitted is fitted here, once.
    """
    from muster.policy.registry import find_policy
    from muster.sim.inputs import forget_inputs
    from muster.sim.replay_runs import fit_for, read_inputs

    forget_inputs()
    tuned = any(find_policy(task.policy).needs_tuning for task in tasks)
    specs = list(dict.fromkeys(task.workload for task in tasks))
    if tuned or len(specs) > 1 or jobs > 1:
        for spec in specs:
            read_inputs(tasks[0].fleet, spec)
    if tuned:
        for spec in specs:
            fleet, trace = read_inputs(tasks[0].fleet, spec)
            if not fit_for(fleet, trace.workloads, say):
                say(f"{trace.name}: no GPU is asked for, or there is none; default places with its start weights.")


def as_record(outcome: ReplayOutcome, *, timings: bool) -> dict[str, Any]:
    """One replay as ``muster.simulate/v1`` has it: all counts are jobs, but ``pods`` and ``gpus``."""
    record: dict[str, Any] = {
        "workload": outcome.workload, "policy": outcome.policy, "seed": outcome.seed, "gpus": outcome.gpus,
        "arrived": outcome.arrived, "placed": outcome.started, "rejected": outcome.rejected,
    }  # fmt: skip
    if timings:
        record["wall_s"] = round(outcome.wall_s, 4)
        record["placements_per_s"] = round(outcome.pods / outcome.wall_s, 1)
    figures: dict[str, Any] = msgspec.to_builtins(outcome)
    done = {*record, "started", "wall_s", "rejections", "series", "gpu_most", "cpu_most"}
    record.update({name: value for name, value in figures.items() if name not in done})
    record["waiting"] = outcome.arrived - outcome.started - outcome.rejected
    record["rejected_by_reason"] = {each.reason: each.jobs for each in outcome.rejections}
    return record


def print_outcomes(outcomes: list[ReplayOutcome], output: str, *, timings: bool) -> None:
    """Print replays in the asked format; what was skipped or rejected, and why, is also said."""
    records = [as_record(outcome, timings=timings) for outcome in outcomes]
    _tell_what_did_not_run(outcomes)
    if output in ("json", "yaml"):
        emit_document({"schema": SCHEMA, "runs": records}, output)
        return
    if output == "name":
        from muster.cli.simulate import print_names

        print_names(records)
        return
    reasons: dict[str, None] = {}
    for record in records:
        for reason, jobs in record.pop("rejected_by_reason").items():
            reasons[f"rejected_by_reason_{reason}"] = None
            record[f"rejected_by_reason_{reason}"] = jobs
    no_gpus = all(outcome.gpus == 0 for outcome in outcomes)
    no_cpu = all(outcome.cpu_utilisation == 0 for outcome in outcomes)
    columns = [
        Column("workload", "workload"),
        Column("policy", "policy"),
        Column("seed", "seed", right=True, wide=len({outcome.seed for outcome in outcomes}) < 2),
        Column("arrived", "jobs", right=True, show=thousands),
        Column("rejected", "rejected", right=True, show=thousands),
        Column("wait_mean_s", "mean wait", right=True, show=duration),
        Column("wait_p50_s", "p50", right=True, show=duration),
        Column("wait_p90_s", "p90", right=True, show=duration),
        Column("wait_max_s", "max", right=True, show=duration),
        Column("slowdown_mean", "slowdown", right=True, show=_tenths),
        Column("gpu_utilisation", "GPU used", right=True, show=_share, wide=no_gpus),
        Column("cpu_utilisation", "CPU used", right=True, show=_share, wide=no_cpu),
        Column("gpus", "GPUs", right=True, show=thousands, wide=True),
        Column("placed", "placed", right=True, show=thousands, wide=True),
        Column("finished", "finished", right=True, show=thousands, wide=True),
        Column("waiting", "waiting", right=True, show=thousands, wide=True),
        Column("pods", "pods", right=True, show=thousands, wide=True),
        Column("wait_p99_s", "p99", right=True, show=duration, wide=True),
        Column("makespan_s", "makespan", right=True, show=duration, wide=True),
        Column("scored_by", "scored by", wide=True),
    ]
    if timings:
        columns.append(Column("wall_s", "wall s", right=True, wide=True))
        columns.append(Column("placements_per_s", "pods/s", right=True, show=thousands, wide=True))
    if output == "csv":
        columns.extend(Column(reason, reason) for reason in reasons)
    emit(records, columns, output=output, schema=SCHEMA, list_key="runs")


def _tell_what_did_not_run(outcomes: list[ReplayOutcome]) -> None:
    """What was skipped, and why jobs can never start: once for each workload, for it does not depend on the policy."""
    told: set[str] = set()
    for outcome in outcomes:
        if outcome.workload in told:
            continue
        told.add(outcome.workload)
        if outcome.skipped:
            say(f"{outcome.workload}: {outcome.skipped:,} rows skipped; `muster trace info` tells why.")
        for each in outcome.rejections:
            jobs = "1 job" if each.jobs == 1 else f"{each.jobs:,} jobs"
            say(f"{outcome.workload}: {jobs} can never start ({each.reason}); {each.example} {each.text}.")


def _tell_what_next(tasks: list[ReplayTask], outcomes: list[ReplayOutcome], *, reported: bool) -> None:
    """Where nothing waited, the fleet on which something would; and how to go on."""
    idle: dict[str, None] = {}
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.started and not outcome.wait_max_s:
            idle[_idle_hint(task.fleet, outcome)] = None
    for hint in idle:
        say(hint)
    ideas = ["-o json for all figures", *([] if reported else ["--report FILE.html for charts over time"])]
    ideas += ["--policy fgd,best-fit to compare"] if len({task.policy for task in tasks}) == 1 else []
    say(f"Next: {'; '.join(ideas)}; docs/reference/simulate.md.")


def _idle_hint(spec: str, outcome: ReplayOutcome) -> str:
    """What to change where nothing waited: fewer nodes than the busiest moment needs."""
    from muster.sim.inputs import fleet_of

    most, of_gpus = max((outcome.gpu_most, True), (outcome.cpu_most, False))
    what = f"{most * outcome.gpus:,.0f} of {outcome.gpus:,} GPUs" if of_gpus else f"{100 * most:.1f} % of the CPU"
    text = f"{outcome.workload}, {outcome.policy}: nothing waited; at most {what} were in use at once."
    nodes = fleet_of(spec).nodes
    alike = len({(node.cpu_milli, node.memory_bytes, node.gpu_models, node.healthy_gpus) for node in nodes}) == 1
    fewer = math.ceil(most * len(nodes) - 1e-9) - 1
    if not alike or fewer < 1:
        return f"{text} A smaller fleet, or more work, would show how jobs wait."
    shown = re.sub(r"\bnodes=\d+", f"nodes={fewer}", spec)
    again = f"--fleet {shown}" if shown != spec else f"a fleet of {fewer:,} such nodes"
    return f"{text} Jobs begin to wait on fewer than {fewer + 1:,} of its {len(nodes):,} nodes; try {again}."


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
