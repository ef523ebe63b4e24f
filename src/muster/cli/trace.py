"""`muster trace`: inspect, convert and generate traces of work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, console, emit, output_option, print_table, say, thousands
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.model import Fleet
    from muster.traces import Skipped, Trace
    from muster.traces.summary import SizeClass, Spread, TraceInfo

SCHEMA = "muster.trace.info/v1"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Inspect, convert and generate traces of work.

    \b
    A SPEC is KIND:PATH, KIND:key=value,... or KIND:PATH,key=value. A plain PATH will do where its
    contents tell the kind. Work comes from:
      openb:PODS.csv          Alibaba 2023 pods
      philly:JOBS.csv         Microsoft Philly's jobs    [gpus_per_pod cpu_per_gpu memory_gib_per_gpu]
      swf:JOBS.swf[.gz]       Standard Workload Format   [memory=1]
      muster:FILE[.gz]        Muster's own format
      generate:mix=NAME       synthetic                  [pods seed load ...]
    Fleets come from:
      openb:NODES.csv         Alibaba 2023 nodes
      slurm-conf:DIR          nodes of a slurm.conf
      alibaba2026:NODES.csv   Alibaba 2026 nodes         [memory_gib_per_cpu]
      kubectl:DUMP.json       kubectl get nodes,pods -A -o json      [pods=subtract]
      uniform:nodes=N         nodes that are alike       [gpus model cpu memory_gib gpu_memory_gib]
      muster:FILE[.gz]        Muster's own format, or a snapshot
      example                 a bundled synthetic fleet
    """


INFO_EPILOG = """\b
Examples:
  muster trace info openb:pods_default.csv
  muster trace info swf:RICC-2010-2.swf.gz philly:philly.csv -o csv
  muster trace info generate:mix=philly,pods=1000,seed=7 -o json
"""


@command.command("info", epilog=INFO_EPILOG)
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@output_option
def info(specs: tuple[str, ...], output: str) -> None:
    """Count a trace: sizes, times, demand, skipped rows."""
    from muster.traces.summary import summarize

    infos = [summarize(_read_work(spec, f"`muster fleet show {spec}` tells what it has")) for spec in specs]
    if output in ("table", "wide"):
        for number, one in enumerate(infos):
            if number:
                click.echo()
            _print_info(one, wide=output == "wide")
        return
    import msgspec

    records: list[dict[str, Any]] = [msgspec.to_builtins(one) for one in infos]
    for record, one in zip(records, infos, strict=True):
        record["qualities"] = dict(one.qualities)
        record["meta"] = [{"key": key, "value": value} for key, value in one.meta]
        if output == "csv":
            for key, found in (("run", one.run_s), ("wait", one.wait_s)):
                record[f"{key}_p50_s"], record[f"{key}_p99_s"] = (found.p50, found.p99) if found else (None, None)
    keys = (
        "name", "source", "epoch", "workloads", "pods", "gangs", "shapes", "queues", "users", "first_s", "last_s",
        "gpus", "cores", "memory_bytes", "gpu_hours", "gpu_workloads", "constrained", "run_p50_s", "run_p99_s",
        "wait_p50_s", "wait_p99_s", "skipped",
    )  # fmt: skip
    emit(records, [Column(key, key) for key in keys], output=output, schema=SCHEMA, list_key="traces")


CONVERT_EPILOG = """\b
Examples:
  muster trace convert swf:RICC-2010-2.swf.gz ricc.trace.gz
  muster trace convert --fleet openb:nodes.csv openb.fleet
  muster trace convert --snapshot kubectl:dump.json out.snap
"""


@command.command("convert", epilog=CONVERT_EPILOG)
@click.argument("spec")
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--fleet", "what", flag_value="fleet", help="SPEC is a fleet, not work.")
@click.option("--snapshot", "what", flag_value="snapshot", help="SPEC is a cluster with its pods; OUT is a snapshot.")
def convert(spec: str, out: str, what: str | None) -> None:
    """Turn a trace or a fleet into Muster's own format.

    OUT is packed where its name ends in .gz. It is written whole or not at all; the same input gives the same bytes.
    """
    from muster.model import save_snapshot
    from muster.traces import read_fleet, read_snapshot_and_skipped, write_fleet, write_trace
    from muster.traces.files import check_target

    check_target(out)
    if what == "fleet":
        fleet, skipped = read_fleet(spec)
        write_fleet(fleet, out)
        say(f"{out}: {_fleet_text(fleet)}.")
        _say_skipped(skipped)
    elif what == "snapshot":
        snapshot, skipped = read_snapshot_and_skipped(spec)
        save_snapshot(snapshot, out)
        counts = f"{len(snapshot.running):,} running and {len(snapshot.pending):,} pending pods"
        say(f"{out}: {_fleet_text(snapshot.fleet)}, {counts}.")
        _say_skipped(skipped)
    else:
        trace = _read_work(spec, "add --fleet to convert it")
        write_trace(trace, out)
        say(f"{out}: {len(trace.workloads):,} workloads.")
        _say_skipped(trace.skipped)
        say(f"Next: muster trace info {out}")


GENERATE_EPILOG = """\b
Examples:
  muster trace generate --mix default --seed 7 -O work.trace.gz
  muster trace generate --mix philly --pods 20000 -O philly.trace.gz
  muster trace generate --mix constrained --fleet openb:nodes.csv -O work.trace
  muster trace generate --list
"""


@command.command("generate", epilog=GENERATE_EPILOG)
@click.option("--mix", default="default", show_default=True, help="Name of a mix; --list shows them.")
@click.option(
    "--pods",
    type=click.IntRange(1, 5_000_000),
    help="How many workloads.  [default: what fills the fleet; 10,000 jobs]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same workload.")
@click.option(
    "--load", type=float, help="Mean demand by the fleet's GPUs, which sets the arrival rate.  [default: 0.9]"
)
@click.option("--fleet", "fleet_spec", default="example", show_default=True, help="Its size and GPU models count.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any option of generate:, such as cpu_pods=0.3."
)
@click.option("-O", "--out", type=click.Path(dir_okay=False), help="File to write; packed where its name ends in .gz.")
@click.option("--list", "list_mixes", is_flag=True, help="List the mixes and where their figures come from.")
@output_option
def generate(
    mix: str,
    pods: int | None,
    seed: int,
    load: float | None,
    fleet_spec: str,
    settings: tuple[str, ...],
    out: str | None,
    list_mixes: bool,
    output: str,
) -> None:
    """Write a synthetic workload, calibrated on published statistics."""
    if list_mixes:
        _list_mixes(output)
        return
    if not out:
        raise click.UsageError("Missing option '-O' / '--out': the file to write.")
    from muster.traces import read_fleet, read_workload, write_trace
    from muster.traces.files import check_target
    from muster.traces.summary import summarize

    check_target(out)
    options = [f"mix={mix}", *([f"pods={pods}"] if pods else []), f"seed={seed}"]
    options += [f"load={load:g}"] if load is not None else []
    fleet, _ = read_fleet(fleet_spec)
    trace = read_workload(f"generate:{','.join([*options, *settings])}", fleet)
    write_trace(trace, out)
    one = summarize(trace)
    say(f"{out}: {one.workloads:,} workloads, {one.gpus:,.1f} GPUs in all, over {duration_text(one.last_s)}.")
    say(f"Next: muster trace info {out}")


def _read_work(spec: str, hint: str) -> Trace:
    """The work of a spec; where it is a fleet, the error says so and gives the hint."""
    from muster.traces import read_fleet, read_workload

    try:
        return read_workload(spec)
    except InputError as error:
        try:
            read_fleet(spec)
        except InputError:
            raise error from None
        raise InputError(f"{spec} is a fleet, not work", hint=hint) from None


def duration_text(seconds: float) -> str:
    """Seconds as people say them: 45 s, 19 min, 3.2 h, 149 d."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if abs(seconds) < limit:
            return f"{_short(seconds / unit)} {name}"
    return f"{_short(seconds / 86400)} d"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"


def _list_mixes(output: str) -> None:
    from muster.traces.mixes import MIXES, PodMix

    records = [
        {"mix": name, "kind": "pods" if isinstance(mix, PodMix) else "jobs", "source": mix.source}
        for name, mix in MIXES.items()
    ]
    columns = [Column("mix", "Mix"), Column("kind", "Of"), Column("source", "Calibrated on")]
    emit(records, columns, output=output, schema="muster.trace.mixes/v1", list_key="mixes")


def _fleet_text(fleet: Fleet) -> str:
    return f"{len(fleet):,} nodes, {fleet.gpus:,} GPUs"


def _say_skipped(skipped: tuple[Skipped, ...], shown: int = 3) -> None:
    for one in skipped[:shown]:
        say(f"skipped {one}")
    if len(skipped) > shown:
        say(f"skipped {len(skipped) - shown:,} more")


def _print_info(info: TraceInfo, *, wide: bool) -> None:
    from rich.text import Text

    out = console()
    out.print(Text(info.name, style="bold"), Text(f"  {info.source}", style="dim"))
    span = duration_text(info.last_s - info.first_s)
    since = f" from {info.epoch}" if info.epoch else ""
    gangs = f" ({info.gangs:,} gangs of several)" if info.gangs else ""
    lines = [
        f"{info.workloads:,} workloads submitted over {span}{since}",
        f"{info.pods:,} pods{gangs} of {info.shapes:,} {'shape' if info.shapes == 1 else 'shapes'}",
    ]
    whose = [f"{count:,} {name}" for count, name in ((info.queues, "queues"), (info.users, "users")) if count]
    if whose:
        lines.append(", ".join(whose))
    demand = f"{thousands(round(info.gpus, 1))} GPUs, " if info.gpus else ""
    lines.append(f"demand in all: {demand}{thousands(round(info.cores))} cores, {_memory_text(info.memory_bytes)}")
    if info.constrained:
        share = 100 * info.constrained / max(1, info.gpu_workloads)
        lines.append(f"{info.constrained:,} name the GPU models that they accept ({share:.0f} % of those with GPUs)")
    if info.qualities:
        lines.append(", ".join(f"{count:,} {name}" for name, count in info.qualities))
    if wide:
        lines += [f"{key}: {value}" for key, value in info.meta]
    for line in lines:
        out.print(Text(f"  {line}"))
    out.print()
    _print_sizes(info.sizes, info.unit)
    _print_spreads(info)
    if info.skipped:
        out.print(Text(f"\nSkipped {info.skipped:,} {'row' if info.skipped == 1 else 'rows'}", style="bold"))
    for group in info.skipped_by_field:
        for example in group.examples:
            out.print(Text(f"  {example}"), soft_wrap=True)
        if group.rows > len(group.examples):
            out.print(Text(f"  and {group.rows - len(group.examples):,} more for '{group.field}'"))


def _print_sizes(sizes: tuple[SizeClass, ...], unit: str) -> None:
    in_gpus = unit == "GPUs"
    workloads = sum(one.workloads for one in sizes)
    demand = sum(one.gpus if in_gpus else one.cores for one in sizes)
    with_hours = any(one.gpu_hours for one in sizes)
    columns = [Column("", f"Size in {unit}")] + [
        Column("", title, right=True)
        for title in ("workloads", "%", "pods", unit, "%", *(("GPU-hours", "%") if with_hours else ()))
    ]
    hours = sum(one.gpu_hours for one in sizes)
    rows: list[list[str]] = []
    for one in sizes:
        amount = one.gpus if in_gpus else one.cores
        row = [one.size, f"{one.workloads:,}", _percent(one.workloads, workloads), f"{one.pods:,}"]
        row += [thousands(round(amount, 1)), _percent(amount, demand)]
        if with_hours:
            row += [f"{one.gpu_hours:,.0f}", _percent(one.gpu_hours, hours)]
        rows.append(row)
    print_table(columns, rows)


def _print_spreads(info: TraceInfo) -> None:
    titles = ("known", "mean", "least", "p10", "p50", "p90", "p99", "most")
    columns = [Column("", "Times"), *(Column("", title, right=True) for title in titles)]
    named: list[tuple[str, Spread | None]] = [("run", info.run_s), ("wait", info.wait_s), ("limit", info.limit_s)]
    rows = [
        [
            name,
            f"{one.known:,}",
            *(duration_text(value) for value in (one.mean, one.least, one.p10, one.p50, one.p90, one.p99, one.most)),
        ]
        for name, one in named
        if one is not None
    ]
    if rows:
        click.echo()
        print_table(columns, rows)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _memory_text(size: int) -> str:
    for power, name in ((5, "PiB"), (4, "TiB"), (3, "GiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:,.1f} {name} of memory"
    return f"{size / 1024**2:,.0f} MiB of memory" if size else "memory not stated"
