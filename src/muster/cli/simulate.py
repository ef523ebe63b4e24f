"""`muster simulate`: work through the scheduler on a simulated fleet, one run or a sweep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from muster.cli.output import Column, emit, emit_document, output_option, say, thousands, to_csv
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.model.fleet import Fleet
    from muster.model.workload import Workload
    from muster.report.published import Published
    from muster.sim.sweep import Outcome, Task

SCHEMA = "muster.simulate/v1"

EPILOG = """\b
Examples:
  muster simulate --fleet example --workload generate:mix=default --policy fgd,best-fit
  muster simulate --fleet openb:nodes.csv --workload openb:pods_default.csv \\
      --arrivals inflate:1.3 --policy fgd,default --seeds 42..51 --jobs 2 -o json
  muster simulate --fleet example --workload generate:mix=default --policy fgd,default \\
      --report report.html
  muster simulate --fleet uniform:nodes=312,gpus=8,model=P100 --workload philly:philly.csv
  muster simulate run.yaml
  RAY_ADDRESS=10.0.0.5:6379 muster simulate --fleet example \\
      --workload generate:mix=default --policy fgd,default --seeds 1..200 --on ray

\b
SPECs are explained by `muster trace --help`, policies in docs/reference/policies.md: random,
dot-product, gpu-clustering, gpu-packing, best-fit, fgd, default.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run_file", metavar="[RUN.yaml]", required=False)
@click.option("--fleet", metavar="SPEC", help="The fleet, such as openb:NODES.csv, uniform:nodes=N,gpus=8 or example.")
@click.option("--workload", "workloads", metavar="SPEC", multiple=True, help="The work; repeatable.")
@click.option("--arrivals", default=None, metavar="inflate:F|replay", help="How work arrives; see above.")
@click.option("--policy", "policies", default="default", show_default=True, help="Such as fgd,default; see below.")
@click.option("--seeds", default="42", show_default=True, help="Such as 42, 42,43 or 42..51.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes to run on.")
@click.option(
    "--on",
    "where",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="This machine, or the Ray cluster of RAY_ADDRESS.",
)
@click.option("--keep-unfit", is_flag=True, help="Count pods that no node could ever take as refused.")
@click.option("--resume", is_flag=True, help="Go on with this sweep where it was interrupted.")
@click.option("--report", metavar="FILE.html", help="Write a page with charts, causes and a map of the fleet.")
@click.option("--plot", metavar="FILE.svg|FILE.png", help="Write the chart of allocation against arrivals.")
@click.option("--published", metavar="CSV", help="Published allocation curves to draw beside ours.")
@click.option("--timings/--no-timings", default=True, help="Whether to print wall-clock figures; equal bytes without.")
@output_option
@click.pass_context
def command(
    context: click.Context,
    run_file: str | None,
    fleet: str | None,
    workloads: tuple[str, ...],
    arrivals: str | None,
    policies: str,
    seeds: str,
    jobs: int,
    where: Literal["local", "ray"],
    keep_unfit: bool,
    resume: bool,
    report: str | None,
    plot: str | None,
    published: str | None,
    timings: bool,
    output: str,
) -> None:
    """Run work through the scheduler on a simulated fleet.

    With --arrivals inflate:F pods only arrive, shuffled by the seed, until they ask for F times the fleet's GPUs (the
    experiment of the FGD paper). With --arrivals replay each job comes when it was recorded, runs as long as recorded
    and leaves; first come, first served. Where it is not given, jobs with recorded times (philly:, swf:) are replayed,
    and pods (openb:, generate:) arrive as with inflate:1.3. Pods that run on a fleet from a cluster are not counted;
    kubectl:DUMP.json,pods=subtract takes what they leave free.

    RUN.yaml is one document with fleet, queues, work and settings, worked through the whole scheduling cycle: gangs,
    quota, fair share, reserved starts, backfill and preemption. See docs/reference/run-file.md and explain-config.
    """
    if run_file is not None:
        from muster.cli.simulate_run import simulate_run

        _refuse_options(context, beside=("run_file", "timings", "output"))
        simulate_run(run_file, output, timings=timings)
        return
    if where == "ray" and context.get_parameter_source("jobs") is click.core.ParameterSource.COMMANDLINE:
        raise InputError("cannot be given with --on ray", field="--jobs", hint="there it is the CPUs of the cluster")
    from muster.cli.replay import default_arrivals
    from muster.policy.registry import find_policy

    if fleet is None:
        raise InputError("no fleet given", field="--fleet", hint="such as --fleet openb:NODES.csv or --fleet example")
    if not workloads:
        hint = "such as --workload generate:mix=default; or name a run file, see docs/reference/run-file.md"
        raise InputError("no work given", field="--workload", hint=hint)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise InputError("names no policy", field="--policy", hint="such as --policy fgd,default")
    for name in names:
        find_policy(name)
    arrivals = arrivals or default_arrivals(workloads)
    kind, factor = parse_arrivals(arrivals)
    drawn = report is not None or plot is not None
    if drawn or published is not None:
        from muster.cli.report import check_outputs

        check_outputs(report, plot, published, kind)
    if kind == "replay":
        from functools import partial

        from muster.cli.replay import replay_all
        from muster.cli.report import command_line, tell_outputs, write_replay_outputs
        from muster.sim.replay_runs import ReplayTask

        each = [(workload, name, seed) for workload in workloads for name in names for seed in parse_seeds(seeds)]
        replays = [ReplayTask(fleet, *one) for one in each]
        line = command_line(fleet, workloads, arrivals, names, seeds)
        write = partial(write_replay_outputs, tasks=replays, command=line, report=report, plot=plot)
        before = write if drawn else None
        replay_all(replays, jobs, output, resume=resume, timings=timings, where=where, before_printing=before)
        tell_outputs(report, plot)
        return
    from muster import __version__
    from muster.sim.sweep import Task, sweep, sweep_digest

    tasks = [
        Task(fleet, workload, name, seed, factor)
        for workload in workloads
        for name in names
        for seed in parse_seeds(seeds)
    ]
    curves: tuple[Published, ...] = ()
    if drawn:
        from muster.cli.report import read_curves, with_details

        tasks = with_details(tasks, report=report is not None)
        curves = read_curves(published, tasks)
    prepare(tasks, keep_unfit=keep_unfit)
    with _Progress(len(tasks)) as progress:
        outcomes = sweep(
            tasks,
            jobs,
            resume=resume,
            digest=sweep_digest(tasks, __version__),
            each=lambda _: progress.step(),
            where=where,
        )
    if drawn:
        from muster.cli.report import command_line, write_outputs

        line = command_line(fleet, workloads, arrivals, names, seeds)
        write_outputs(
            outcomes, tasks, line, report=report, plot=plot, published=curves, source=published, timings=timings
        )
    print_outcomes(outcomes, output, timings=timings)
    if drawn:
        from muster.cli.report import tell_outputs

        tell_outputs(report, plot)


def _refuse_options(context: click.Context, beside: tuple[str, ...]) -> None:
    """Raise `InputError` for an option that was given beside a run file, which says it all itself."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in beside and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = parameter.opts[0]
            one_run = name in ("jobs", "where", "resume", "seeds")
            hint = "a run file is one run" if one_run else "write it in the file instead"
            raise InputError("cannot be given beside a run file", field=option, hint=hint)


def parse_arrivals(text: str) -> tuple[str, float]:
    """``inflate:F`` or ``replay`` to the kind and F; F is 1.3 where it is not given."""
    kind, _, number = text.partition(":")
    if kind == "replay" and not number:
        return "replay", 1.0
    try:
        factor = float(number or "1.3")
    except ValueError:
        factor = -1.0
    if kind != "inflate" or not 0.01 <= factor <= 100:
        raise InputError(f"cannot be read ({text})", field="--arrivals", hint="inflate:1.3 (0.01 to 100) or replay")
    return "inflate", factor


def parse_seeds(text: str) -> list[int]:
    """``42``, ``42,43`` or ``42..51`` to numbers, in the order given and each once."""
    seeds: list[int] = []
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        digits = first + (last if dots else "0")
        if not (first and (last or not dots) and digits.isascii() and digits.isdecimal()):
            raise InputError(f"cannot be read ({shown})", field="--seeds", hint="such as 42, 42,43 or 42..51")
        if max(len(first), len(last)) > 10 or int(last or first) >= 2**31:
            raise InputError(f"are too large ({shown})", field="--seeds", hint="below 2^31")
        if int(last or first) < int(first):
            raise InputError(f"run backwards ({shown})", field="--seeds", hint="such as 42..51")
        if int(last or first) - int(first) >= 10000 or len(seeds) > 10000:
            raise InputError(f"are too many ({shown})", field="--seeds", hint="at most 10,000")
        seeds.extend(range(int(first), int(last or first) + 1))
    return list(dict.fromkeys(seeds))


def refuse_unfit(spec: str, fleet: Fleet, workloads: Sequence[Workload]) -> None:
    """Raise `InputError`, with file and line where they are known, for the first pod that no node could take."""
    from muster.sim.inflate import first_unfit

    found = first_unfit(fleet, workloads)
    if found is None:
        return
    name, shape, why, count = found
    path, line = _line_of(spec, name)
    more = f" (and {count - 1:,} more)" if count > 1 else ""
    raise InputError(
        f"pod {name} asks for {shape.describe()}{more}: {why}",
        file=path,
        line=line,
        field="workload",
        hint="take it out, or let --keep-unfit count it as refused",
    )


def _line_of(spec: str, name: str) -> tuple[str | None, int | None]:
    """The file of a spec and the line in which a workload is named; None where there is no such file or line."""
    path = Path(spec.partition(":")[2].partition(",")[0] or spec)
    if not path.is_file():
        return None, None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if name in line:
                return str(path), number
    return str(path), None


def prepare(tasks: list[Task], *, keep_unfit: bool = False) -> None:
    """Read every input once, so that a mistake shows before anything runs, and fit what must be fitted."""
    from muster.model.workload import ShapeMix
    from muster.policy.registry import find_policy
    from muster.sim.inflate import check_inflation
    from muster.sim.inputs import fleet_of, forget_inputs, workload_of

    forget_inputs()
    fleet = fleet_of(tasks[0].fleet)
    specs = list(dict.fromkeys(task.workload for task in tasks))
    for spec in specs:
        workloads = workload_of(spec, tasks[0].fleet).workloads
        check_inflation(fleet, workloads)
        if not keep_unfit:
            refuse_unfit(spec, fleet, workloads)
    for spec in specs:
        trace = workload_of(spec, tasks[0].fleet)
        if trace.skipped:
            say(f"{spec}: {len(trace.skipped):,} rows skipped; `muster trace info {spec}` tells why.")
        if any(find_policy(task.policy).needs_tuning for task in tasks):
            from muster.planning.tune import tuned

            tuned(fleet, ShapeMix.of(trace.workloads), say=say)


class _Progress:
    """A progress bar on stderr, only for more than one run and only on a terminal."""

    def __init__(self, total: int) -> None:
        self._bar: Any = None
        if total > 1 and sys.stderr.isatty():
            self._bar = click.progressbar(length=total, label="runs", file=sys.stderr)

    def __enter__(self) -> _Progress:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)

    def step(self) -> None:
        """One more run is done."""
        if self._bar is not None:
            self._bar.update(1)


def as_record(outcome: Outcome, *, timings: bool) -> dict[str, Any]:
    """One run as the contract of ``muster.simulate/v1`` has it."""
    import msgspec

    record: dict[str, Any] = {"workload": outcome.workload, "policy": outcome.policy, "seed": outcome.seed}
    run: dict[str, Any] = msgspec.to_builtins(outcome.run)
    record.update(gpus=run.pop("gpus"), arrived=run["arrived"], placed=run["placed"], rejected=run["rejected"])
    if timings:
        record["wall_s"] = round(outcome.wall_s, 4)
        record["placements_per_s"] = round(outcome.run.arrived / outcome.wall_s, 1)
    record.update(run)
    return record


def print_outcomes(outcomes: list[Outcome], output: str, *, timings: bool) -> None:
    """Print runs: every one for machines, the mean over the seeds for people."""
    records = [as_record(outcome, timings=timings) for outcome in outcomes]
    if output in ("json", "yaml"):
        emit_document({"schema": SCHEMA, "runs": records}, output)
        return
    if output == "csv":
        flat = [_flat(record) for record in records]
        keys = list(dict.fromkeys(key for record in flat for key in record))
        click.echo(to_csv(flat, keys), nl=False)
        return
    if output == "name":
        print_names(records)
        return
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["workload"], record["policy"]), []).append(record)
    rows = [_mean_row(workload, policy, group) for (workload, policy), group in groups.items()]
    marks = [mark for mark in ("90", "95", "100", "110", "130") if any(row.get(mark) is not None for row in rows)]
    columns = [
        Column("workload", "workload"),
        Column("policy", "policy"),
        Column("runs", "runs", right=True, wide=True),
        *(Column(mark, f"{mark} %", right=True, show=_percent) for mark in marks),
        *([Column("unallocated", "idle GPUs", right=True, show=_idle)] if "100" in marks else ()),
        Column("rejected_percent", "refused %", right=True, show=_percent),
        Column("placements_per_s", "pods/s", right=True, show=thousands, wide=not timings),
    ]
    for (workload, policy), group in groups.items():
        if not any(record["arrived"] for record in group):
            say(f"{workload}, {policy}: no pod arrived; the first one asks for more GPUs than may arrive in all.")
    runs = len(next(iter(groups.values())))
    mean = f" (mean of {runs} runs)" if runs > 1 else ""
    title = f"% of GPUs allocated when 90 % ... of them were asked for{mean}"
    emit(rows, columns, output=output, schema=SCHEMA, list_key="runs", title=title)
    say("Next: -o json for every run; --policy and --seeds 42..51 to compare; docs/reference/policies.md.")


def print_names(records: list[dict[str, Any]]) -> None:
    """One line a run: ``workload/policy/seed``."""
    for record in records:
        click.echo(f"{record['workload']}/{record['policy']}/{record['seed']}")


def _mean_row(workload: str, policy: str, group: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    allocated: dict[str, list[float]] = {}
    for record in group:
        for mark, value in record["allocated_percent"].items():
            allocated.setdefault(mark, []).append(value)
    row: dict[str, Any] = {mark: mean(values) for mark, values in allocated.items()}
    row.update(
        workload=workload,
        policy=policy,
        runs=len(group),
        unallocated=round(group[0]["gpus"] * (1 - row["100"] / 100)) if "100" in row else None,
        rejected_percent=100 * mean([record["rejected"] / max(1, record["arrived"]) for record in group]),
        placements_per_s=round(mean([record.get("placements_per_s", 0.0) for record in group])),
    )
    return row


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat.update({f"{key}_{name}": number for name, number in value.items()})  # pyright: ignore
        else:
            flat[key] = value
    return flat


def _idle(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _percent(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else ""
