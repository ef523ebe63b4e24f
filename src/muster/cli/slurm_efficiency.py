"""`muster slurm efficiency`: what jobs asked for and used, as seff, jobstats and reportseff tell it, with GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, printable, tell, thousands
from muster.cli.source import is_typed
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.answers.efficiency import Advice, Use
    from muster.slurm.accounting import JobUse

SCHEMA = "muster.slurm-efficiency/v1"
SORTS = ("gpu-hours", "lost", "held", "gpu", "cpu", "memory", "wait", "requeues", "name")

EPILOG = """\b
Examples:
  muster slurm efficiency                          who used how much in the last 7 days
  muster slurm efficiency 4711                     one job, as seff tells it, with its GPUs
  muster slurm efficiency --by job -u anna --sort lost
  muster slurm efficiency --by account --since 2026-11-01 -o csv
  sacct -P -D -a -S now-7days -o $(muster slurm efficiency --fields) > week.txt
  muster slurm efficiency --from week.txt

\b
CPU: CPU time of the CPUs it had. Memory: the most of any step, of what was allocated. GPU: utilisation as jobstats
(AdminComment) or Slurm (gres/gpuutil) measured it, else unknown. Lost: GPU-hours of runs that failed or were requeued.
Held: GPU-hours of time limits that nobody used. Exit codes: 0 told, 2 bad input, 3 sacct cannot be asked.
"""


def _fields(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from muster.slurm.accounting import FIELDS

        click.echo(",".join(FIELDS))
        ctx.exit()


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("jobs", nargs=-1, metavar="[JOBID]...")
@click.option(
    "--from", "source", metavar="FILE", help="What sacct --parsable2 printed, instead of asking it; - is stdin."
)
@click.option(
    "--cluster", type=click.Choice(("slurm",)), default="slurm", show_default=True, help="This machine's sacct."
)  # fmt: skip
@click.option("--by", type=click.Choice(("job", "user", "account", "partition")), default=None, help="[default: user]")
@click.option(
    "-S",
    "--since",
    default="now-7days",
    show_default=True,
    metavar="TIME",
    help="As sacct -S takes it; not with --from.",
)
@click.option("-E", "--until", metavar="TIME", help="As sacct -E takes it; not with --from.")
@click.option("-u", "--user", metavar="USER", help="Only jobs of this user.")
@click.option("-A", "--account", metavar="NAME", help="Only jobs of this account.")
@click.option("-p", "--partition", metavar="NAME", help="Only jobs of this partition.")
@click.option("--sort", type=click.Choice(SORTS), default="gpu-hours", show_default=True, help="The largest first.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Most rows of a table.")
@click.option(
    "--fields", is_flag=True, is_eager=True, expose_value=False, callback=_fields,
    help="Print the fields to ask sacct for, and end.",
)  # fmt: skip
@output_option
def command(
    jobs: tuple[str, ...], source: str | None, cluster: str, by: str | None, since: str, until: str | None, sort: str,
    limit: int, output: str, **only: str | None,
) -> None:  # fmt: skip
    """Tell how well jobs used what they asked for: GPU-hours, GPUs, CPUs, memory, waits, requeues, time limits.

    It is sacct of this machine that is asked (SLURM_CONF counts), or a file with what it printed. One JOBID is told in
    full; else jobs are brought together by user, and advice says what to ask for instead, with its GPU-hours.
    """
    from muster.answers.efficiency import advice, efficiency

    del cluster  # there is one kind, and sacct of this machine tells of it
    for name in ("since", "until") if source is not None else ():
        if is_typed(name):
            hint = (
                f"the file holds what sacct was asked for; ask it again with sacct -{'S' if name == 'since' else 'E'}"
            )
            raise InputError("counts where sacct is asked, and a file is given", field=f"--{name}", hint=hint)
    found = [job for job in _jobs(jobs, source, since, until) if all(getattr(job, key) == value for key, value in
             only.items() if value is not None)]  # fmt: skip
    if jobs:
        found = [job for job in found if job.id in jobs or job.id.partition("_")[0] in jobs]
        missing = [each for each in jobs if not any(each in (job.id, job.id.partition("_")[0]) for job in found)]
        if missing:
            hint = "an old one needs --since; -u and -A must fit, too"
            raise InputError(f"there is no job {missing[0][:40]}", field="JOBID", hint=hint)
    if not found and source is not None:
        what = "has no such job" if any(only.values()) else "has no job, only the header"
        raise InputError(what, file="standard input" if source == "-" else source, hint="sacct -a -S now-7days asks "
                         "for all users' jobs of the last 7 days")  # fmt: skip
    if not found:
        raise InputError(
            "no job is there", field="--since", hint="sacct -S takes now-30days or 2026-11-01; -a is asked"
        )
    told = advice(found)
    if len(found) == 1 and jobs and by is None and output in ("table", "wide"):
        _print_one(found[0], told)
        return
    group = by or ("job" if jobs else "user")
    rows = _sorted(efficiency(found, group), sort)
    if output in ("table", "wide"):
        _print(rows, efficiency(found, group), found, told, group, limit, output)
    elif output in ("json", "yaml"):
        emit_document(_document(rows, found, told, group), output)
    else:
        emit([_record(use) for use in rows], _COLUMNS, output=output, schema=SCHEMA, list_key="rows")


def _jobs(jobs: tuple[str, ...], source: str | None, since: str, until: str | None) -> tuple[JobUse, ...]:
    from muster.slurm.accounting import read_sacct

    if source is None:
        from muster.backends.slurm.accounting import ask_sacct

        return read_sacct(ask_sacct(jobs, "" if jobs and since == "now-7days" else since, until or ""), "sacct")
    import sys

    from muster.traces.files import decode_text, read_bytes

    data = sys.stdin.buffer.read() if source == "-" else read_bytes(source)
    name = "standard input" if source == "-" else source
    return read_sacct(decode_text(data, name), name)


# -- records

_KEYS: dict[str, str] = {
    "gpu-hours": "gpu_hours", "lost": "lost_gpu_hours", "held": "held_gpu_hours", "gpu": "gpu", "cpu": "cpu",
    "memory": "memory", "wait": "wait_s", "requeues": "requeues",
}  # fmt: skip


def _sorted(rows: tuple[Use, ...], sort: str) -> tuple[Use, ...]:
    if sort == "name":
        return tuple(sorted(rows, key=lambda use: use.name))

    def key(use: Use) -> tuple[bool, float]:
        value = getattr(use, _KEYS[sort])
        return value is None, -(value or 0.0)

    return tuple(sorted(rows, key=key))


def _record(use: Use) -> dict[str, Any]:
    return {
        "name": use.name, "jobs": use.jobs, "started": use.started, "gpu_hours": use.gpu_hours, "gpu": use.gpu,
        "measured_gpu_hours": use.measured_gpu_hours, "cpu": use.cpu, "memory": use.memory, "wait_s": use.wait_s,
        "longest_wait_s": use.longest_s, "limit_used": use.limit_used, "requeues": use.requeues, "failed": use.failed,
        "lost_gpu_hours": use.lost_gpu_hours, "held_gpu_hours": use.held_gpu_hours,
    }  # fmt: skip


def _job_record(job: JobUse) -> dict[str, Any]:
    return {
        "id": job.id, "name": job.name, "user": job.user, "account": job.account, "partition": job.partition,
        "state": job.state, "gpus": job.gpus, "gpu_type": job.gpu_type, "cpus": job.cpus, "nodes": job.nodes,
        "memory_bytes": job.memory_bytes, "elapsed_s": job.elapsed_s, "limit_s": job.limit_s, "wait_s": job.wait_s,
        "gpu_hours": job.gpu_hours, "lost_gpu_hours": job.lost_gpu_hours, "requeues": job.requeues,
        "cpu_s": job.cpu_s, "used_bytes": job.used_bytes, "tasks": job.tasks, "gpu_percent": job.gpu_percent,
        "gpu_from": job.gpu_from, "gpu_percents": dict(job.gpu_percents),
    }  # fmt: skip


def _document(rows: tuple[Use, ...], jobs: list[JobUse], told: tuple[Advice, ...], by: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "by": by, "rows": [_record(use) for use in rows],
        "advice": [{"text": each.text, "gpu_hours": each.gpu_hours, "jobs": list(each.jobs)} for each in told],
        **({"jobs": [_job_record(job) for job in jobs]} if by == "job" else {}),
    }  # fmt: skip


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.0f} %"


def _span(value: float | None) -> str:
    from muster.answers.times import span

    return "" if value is None else span(value)


def _hours(value: float) -> str:
    if 0 < value < 0.1:
        return f"{value:.1g}"
    return f"{value:,.1f}" if value < 100 else thousands(round(value))


_COLUMNS = [
    Column("name", "Name"),
    Column("jobs", "jobs", right=True),
    Column("gpu_hours", "GPU-hours", right=True, show=_hours),
    Column("gpu", "GPU", right=True, show=_percent),
    Column("cpu", "CPU", right=True, show=_percent),
    Column("memory", "memory", right=True, show=_percent),
    Column("lost_gpu_hours", "lost", right=True, show=_hours),
    Column("held_gpu_hours", "held", right=True, show=_hours),
    Column("wait_s", "wait", right=True, show=_span),
    Column("longest_wait_s", "longest", right=True, show=_span, wide=True),
    Column("limit_used", "of limit", right=True, show=_percent),
    Column("requeues", "requeues", right=True),
    Column("failed", "failed", right=True),
    Column("started", "started", right=True, wide=True),
    Column("measured_gpu_hours", "measured", right=True, show=_hours, wide=True),
]


# -- for people


def _print(
    rows: tuple[Use, ...], all_rows: tuple[Use, ...], jobs: list[JobUse], told: tuple[Advice, ...], by: str, limit: int,
    output: str,
) -> None:  # fmt: skip
    from muster.answers.efficiency import use_of
    from muster.answers.words import plural

    whole = use_of("all", jobs)
    tell(
        f"{plural(whole.jobs, 'job')} of {plural(len({job.user for job in jobs}), 'user')}: "
        f"{_hours(whole.gpu_hours)} GPU-hours, of which {_hours(whole.lost_gpu_hours)} were lost to failures and "
        "requeues."
    )
    if whole.gpu_hours and not whole.measured_gpu_hours:
        tell("GPU utilisation is unknown: neither jobstats (AdminComment) nor gres/gpuutil is in what sacct tells.")
    click.echo()
    shown = rows[:limit]
    columns = [_title(column, by) for column in _COLUMNS]
    emit([_record(use) for use in shown], columns, output=output, schema=SCHEMA, list_key="rows")
    if len(shown) < len(all_rows):
        tell(f"... and {len(all_rows) - len(shown):,} more (--limit; -o json lists all)")
    _print_advice(told)


def _title(column: Column, by: str) -> Column:
    return Column(column.key, by.capitalize(), show=column.show) if column.key == "name" else column


def _print_advice(told: tuple[Advice, ...]) -> None:
    if not told:
        return
    click.echo()
    rows = [[f"{number}", each.text, _hours(each.gpu_hours)] for number, each in enumerate(told, 1)]
    print_table([Column("", ""), Column("", "What would help"), Column("", "GPU-hours", right=True)], rows)


def _print_one(job: JobUse, told: tuple[Advice, ...]) -> None:
    """One job, in the order in which seff tells it."""
    from muster.answers.efficiency import cores_used, held_gpu_hours, size
    from muster.answers.times import span
    from muster.answers.words import plural

    who = " of ".join(filter(None, (job.user, job.account)))
    tell(f"Job {job.id}, {job.name or 'without a name'}, of {who} in partition {job.partition}: {job.state}.")
    click.echo()
    lines: list[tuple[str, str]] = []
    had = job.cpus * job.elapsed_s
    gpus = f"{plural(job.gpus, 'GPU')}{f' ({job.gpu_type})' if job.gpu_type else ''}" if job.gpus else "no GPUs"
    memory = size(job.memory_bytes) if job.memory_bytes else "memory unknown"
    lines.append(("has", f"{plural(job.nodes, 'node')}, {gpus}, {plural(job.cpus, 'CPU')}, {memory}"))
    wait = "unknown" if job.wait_s is None else span(job.wait_s)
    lines.append(("waited", "it has not started" if not job.runs else wait))
    limit = (
        "no limit" if job.limit_s is None else f"{100 * job.elapsed_s / job.limit_s:.0f} % of its {span(job.limit_s)}"
    )
    lines.append(("ran", f"{span(job.elapsed_s)}, {limit}" + ("; it runs" if job.is_running else "")))
    if job.cpu_s is not None and had:
        busy = cores_used(job) or 0.0
        text = f"{100 * job.cpu_s / had:.1f} %: {span(job.cpu_s)} of {span(had)} core time, {busy:.1f} cores busy"
        lines.append(("CPU", text))
    else:
        lines.append(("CPU", "unknown until it ends" if job.is_running else "unknown"))
    if job.used_bytes is not None and job.memory_bytes:
        lines.append(("memory", f"{100 * job.used_bytes / job.memory_bytes:.1f} %: {size(job.used_bytes)} of {memory}"))
    else:
        lines.append(("memory", "unknown: it was not sampled (JobAcctGatherFrequency), or the job was too short"))
    if job.gpus:
        lines.append(("GPU", _gpu_line(job)))
        text = f"{_hours(job.gpu_hours)} GPU-hours, of which {_hours(job.lost_gpu_hours)} lost"
        lines.append(("cost", f"{text}; {_hours(held_gpu_hours(job))} more were held by its limit"))
    lines.append(("tasks", f"{job.tasks} in its largest step" if job.tasks else "unknown"))
    if job.requeues:
        runs = ", ".join(f"{run.state} after {span(run.elapsed_s)}" for run in job.runs)
        lines.append(("requeues", f"{job.requeues}: {runs}"))
    for title, text in lines:
        tell(f"  {title:<9} {text}")
    for name, value in job.gpu_percents:
        click.echo(f"            {printable(name):<20} {value:5.1f} %  {'#' * round(value / 4)}")
    _print_advice(told)


def _gpu_line(job: JobUse) -> str:
    if job.gpu_percent is None:
        return "unknown: neither jobstats nor gres/gpuutil measured it"
    return f"{job.gpu_percent:.1f} % busy, as {job.gpu_from} measured"
