"""`muster snapshot`: keep one instant of a cluster in a file: save, show, compare, anonymize, replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, say, tell, thousands
from muster.cli.source import cluster_options, named_source

if TYPE_CHECKING:
    from muster.answers.replay import Cycle
    from muster.answers.snapshots import Difference, Summary
    from muster.model.snapshot import Snapshot

DIFF_SCHEMA = "muster.snapshot.diff/v1"
REPLAY_SCHEMA = "muster.snapshot.replay/v1"
_SHOWN = 8


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Keep one instant of a cluster in a file: all that the scheduler decides by.

    A snapshot can be sent to a colleague, compared, edited as JSON or YAML, and asked by `muster why`, `fit`, `whatif`
    and the others with --from FILE.
    """


SAVE_EPILOG = """\b
Examples:
  kubectl get nodes,pods -A -o json > now.json
  muster snapshot save kubectl:now.json -o now.snap
  muster snapshot save --context prod -o now.snap          # a live cluster
  muster snapshot save run.yaml --at 90m -o after-90-min.snap
  muster snapshot save --fleet example --workload generate:mix=philly,pods=50 -o empty.yaml
"""


@command.command("save", epilog=SAVE_EPILOG)
@click.argument("source", required=False)
@click.option("--at", metavar="TIME", help="Of a run file: the instant, such as 90m, 2.5h or 5400 (seconds).")
@click.option("--fleet", "fleet", metavar="SPEC", help="Instead of SOURCE: an empty fleet ...")
@click.option("--workload", metavar="SPEC", help="... and the work that waits for it, as `muster simulate` takes it.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the scheduler to keep.")
@cluster_options
@click.option(
    "-o", "--out", required=True, type=click.Path(dir_okay=False), metavar="FILE",
    help="Where to write it: as a document where the name ends in .json or .yaml, else compact.",
)  # fmt: skip
def save(
    source: str | None, at: str | None, fleet: str | None, workload: str | None, settings: tuple[str, ...], out: str,
    **cluster: Any,
) -> None:  # fmt: skip
    """Take a snapshot of SOURCE: a live cluster, a run file at an instant, a dump of a cluster, or another snapshot.

    It is written whole or not at all. How long work will really run is no part of it, as no scheduler knows that.
    """
    from msgspec.structs import replace

    from muster.cli.source import settings_given
    from muster.engine.config import config_of, settings_of
    from muster.traces.files import check_target

    source = named_source(source, cluster)
    if (source is None) == (fleet is None and workload is None):
        raise click.UsageError("Give SOURCE or --context, or --fleet and --workload.")
    check_target(out, "--out")
    snapshot = _of_specs(fleet, workload, at) if source is None else _read(source, at)
    if settings:
        config = config_of({**dict(snapshot.settings), **settings_given(settings)})
        snapshot = replace(snapshot, settings=settings_of(config))
    from muster.traces.snapshots import write_snapshot

    write_snapshot(snapshot, out)
    say(f"{out}: {_in_short(snapshot)}.")
    say(f"Next: muster snapshot show {out}")


def _of_specs(fleet: str | None, workload: str | None, at: str | None) -> Snapshot:
    """An empty fleet for which all the work waits."""
    from msgspec.structs import replace

    from muster.answers.sources import without_run_times
    from muster.model.snapshot import Snapshot
    from muster.traces import read_fleet, read_workload

    if fleet is None:
        raise click.UsageError("--workload needs --fleet: what the work waits for.")
    if at is not None:
        raise click.UsageError("--at is an instant of a run file; without one, nothing runs yet.")
    nodes, skipped = read_fleet(fleet)
    _say_skipped(fleet, len(skipped))
    found = Snapshot(nodes, source=f"fleet:{fleet}")
    if workload is not None:
        work = read_workload(workload, nodes)
        _say_skipped(workload, len(work.skipped))
        taken_s = max((each.submitted_s for each in work.workloads), default=0.0)
        found = replace(found, pending=work.workloads, taken_s=taken_s, source=f"fleet:{fleet} workload:{workload}")
    return without_run_times(found)


def _read(source: str, at: str | None = None) -> Snapshot:
    """The snapshot of a source; what was left out is said."""
    from muster.answers.live import goes_on
    from muster.answers.sources import read_source
    from muster.cli.source import at_of, say_left_out

    snapshot, skipped = read_source(source, at_of(source, at), warn=say)
    if goes_on(source):
        say_left_out(source, skipped)
    else:
        _say_skipped(source, len(skipped))
    return snapshot


def _say_skipped(source: str, count: int) -> None:
    if count:
        what = f"{count:,} things are left out or not fully understood"
        say(f"{source}: {what}; `muster trace convert` tells which and why.")


def _in_short(snapshot: Snapshot) -> str:
    fleet = snapshot.fleet
    work = f"{len(snapshot.running):,} running, {len(snapshot.pending):,} waiting"
    return f"{len(fleet):,} nodes, {fleet.gpus:,} GPUs, {work}"


# -- show -------------------------------------------------------------------------------------------------------------

SHOW_EPILOG = """\b
Examples:
  muster snapshot show now.snap
  muster snapshot show now.snap -o yaml > now.yaml      # edit it; every command reads it back
  muster snapshot show run.yaml --at 90m
"""


@command.command("show", epilog=SHOW_EPILOG)
@click.argument("source")
@click.option("--at", metavar="TIME", help="Of a run file or a history: the instant.")
@output_option
def show(source: str, at: str | None, output: str) -> None:
    """Tell what a snapshot holds; -o json or yaml is all of it, in the schema muster.snapshot/v1.

    -o csv lists the work, -o name only its names.
    """
    from muster.answers.snapshots import summarize

    snapshot = _read(source, at)
    if output in ("json", "yaml"):
        from muster.traces.snapshots import snapshot_document, snapshot_text

        if output == "json":
            emit_document(snapshot_document(snapshot), output)
        else:
            click.echo(snapshot_text(snapshot, "yaml").decode(), nl=False)
    elif output in ("csv", "name"):
        work = summarize(snapshot, max(len(snapshot.pending), len(snapshot.running))).largest
        import msgspec

        records: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in work]
        columns = [Column(key, key) for key in ("workload", "state", "queue", "user", "pods", "gpus", "since_s")]
        emit(records, columns, output=output, schema="", list_key="work")
    else:
        _print_summary(summarize(snapshot, _SHOWN if output == "wide" else 3))


def _print_summary(found: Summary) -> None:
    from muster.answers.times import instant

    where = f" from {found.source}" if found.source else ""
    tell(f"Taken at {instant(found.taken_s)}{where}.")
    levels = ", ".join(f"{count:,} of level {name}" for name, count in found.levels)
    if levels:
        tell(f"Topology: {levels}.")
    if found.settings:
        tell("Settings that differ: " + ", ".join(f"{name}={value}" for name, value in found.settings) + ".")
    click.echo()
    columns = [
        Column("", "Flavor"), *(Column("", title, right=True) for title in (
            "Nodes", "cordoned", "spare", "whole free", "GPUs", "unhealthy", "used", "free")),
    ]  # fmt: skip
    print_table(columns, [
        [each.flavor, *map(thousands, (
            each.nodes, each.unusable_nodes, each.spare_nodes, each.whole_free_nodes, each.gpus, each.unhealthy_gpus,
            round(each.used_gpus, 1), round(each.free_gpus, 1),
        ))] for each in found.flavors
    ])  # fmt: skip
    click.echo()
    gangs = f" ({found.gangs_pending:,} of several pods)" if found.gangs_pending else ""
    held, asked = thousands(round(found.running_gpus, 1)), thousands(round(found.pending_gpus, 1))
    tell(f"{found.running:,} running on {held} GPUs; {found.pending:,} waiting{gangs} for {asked} GPUs.")
    _print_queues(found)
    _print_largest(found)
    more = [
        f"{count:,} {what}" for count, what in (
            (found.reservations, "advance reservations"), (found.failures, "failures of late"),
            (found.kinds_of_past_runs, "kinds of work with known run times"),
        ) if count
    ]  # fmt: skip
    if more:
        click.echo()
        tell(f"It also holds {', '.join(more)}.")


def _print_queues(found: Summary) -> None:
    if not found.queues or [each.queue for each in found.queues] == [""]:
        return
    click.echo()
    columns = [
        Column("", "Queue"), Column("", "below"), *(Column("", title, right=True) for title in (
            "weight", "nominal GPUs", "running", "on GPUs", "waiting", "for GPUs")),
    ]  # fmt: skip
    print_table(columns, [
        [each.queue or "(none)", each.parent, f"{each.weight:g}",
         "" if each.nominal_gpus is None else thousands(each.nominal_gpus), f"{each.running:,}",
         thousands(round(each.running_gpus, 1)), f"{each.pending:,}", thousands(round(each.pending_gpus, 1))]
        for each in found.queues
    ])  # fmt: skip


def _print_largest(found: Summary) -> None:
    from muster.answers.times import span

    if not found.largest:
        return
    click.echo()
    columns = [
        Column("", "Largest"), Column("", "state"), Column("", "queue"), Column("", "user"),
        Column("", "pods", right=True), Column("", "GPUs", right=True), Column("", "for", right=True),
    ]  # fmt: skip
    print_table(columns, [
        [each.workload, "waits" if each.state == "pending" else "runs", each.queue, each.user, f"{each.pods:,}",
         thousands(round(each.gpus, 1)), span(max(0.0, found.taken_s - each.since_s))]
        for each in found.largest
    ])  # fmt: skip


# -- diff -------------------------------------------------------------------------------------------------------------

DIFF_EPILOG = """\b
Examples:
  muster snapshot diff before.snap after.snap
  muster snapshot diff now.snap edited.yaml -o wide
  muster snapshot diff a.snap b.snap > /dev/null && echo the same

\b
Exit codes: 0 the same, 1 different, 2 usage or bad input.
"""


@command.command("diff", epilog=DIFF_EPILOG)
@click.argument("before")
@click.argument("after")
@output_option
def diff(before: str, after: str, output: str) -> None:
    """Tell what differs between two snapshots: what was submitted, started, stopped, ended; nodes, queues, settings.

    The exit code is 0 where they are the same, and 1 where they differ.
    """
    from muster.answers.snapshots import differences

    old, new = _read(before), _read(after)
    found = differences(old, new)
    if output in ("table", "wide"):
        _print_differences(found, old, new, None if output == "wide" else _SHOWN)
    else:
        import msgspec

        records: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in found]
        keys = ("group", "name", "text", "path", "before", "after")
        if output == "csv":
            for record in records:
                for key in ("before", "after"):
                    record[key] = None if record[key] is None else msgspec.json.encode(record[key]).decode()
        columns = [Column("name", "name"), *(Column(key, key) for key in keys if key != "name")]
        emit(records, columns, output=output, schema=DIFF_SCHEMA, list_key="differences", extra={"same": not found})
    if found:
        raise click.exceptions.Exit(1)


def _print_differences(found: Sequence[Difference], old: Snapshot, new: Snapshot, most: int | None) -> None:
    from muster.answers.snapshots import WHAT_HAPPENED
    from muster.answers.times import span

    if not found:
        tell("They are the same." if old == new else "They are the same, only listed in another order.")
        return
    later_s = new.taken_s - old.taken_s
    when = f"{span(abs(later_s))} {'later' if later_s > 0 else 'earlier'}" if later_s else "the same instant"
    counts = {group: sum(each.group == group for each in found) for group in WHAT_HAPPENED}
    tell(f"{when[0].upper()}{when[1:]}: " + ", ".join(f"{count:,} {group}" for group, count in counts.items() if count))
    for group in WHAT_HAPPENED:
        rows = [[each.name, each.text] for each in found if each.group == group]
        if rows:
            click.echo()
            shown = rows if most is None else rows[:most]
            print_table([Column("", group), Column("", "")], shown)
            if len(shown) < len(rows):
                tell(f"and {len(rows) - len(shown):,} more; -o wide lists all")


# -- anonymize --------------------------------------------------------------------------------------------------------

ANONYMIZE_EPILOG = """\b
Examples:
  muster snapshot anonymize now.snap for-the-issue.snap
  muster snapshot anonymize now.snap for-the-vendor.yaml --map names.json
  MUSTER_ANONYMIZE_KEY=$(cat key) muster snapshot anonymize monday.snap monday-anon.snap
"""


@command.command("anonymize", epilog=ANONYMIZE_EPILOG)
@click.argument("source")
@click.argument("out", type=click.Path(dir_okay=False))
@click.option(
    "--key", envvar="MUSTER_ANONYMIZE_KEY", default="", metavar="TEXT",
    help="Add a tag to each name that the same key always gives to the same name. [env: MUSTER_ANONYMIZE_KEY]",
)  # fmt: skip
@click.option(
    "--map", "mapping", type=click.Path(dir_okay=False), metavar="FILE", help="Keep which name became which, as JSON."
)
def anonymize_command(source: str, out: str, key: str, mapping: str | None) -> None:
    """Write a snapshot without the names of anybody or anything, by which the scheduler decides the same.

    Jobs, users, queues, namespaces, nodes, domains, tenants and labels become numbers in the order of their names, as
    ties are broken by name. Calendar times are moved. Sizes, shapes, GPU models, quotas, limits and priorities stay.
    """
    from muster.answers.anonymize import anonymize
    from muster.model.snapshot import write_atomically
    from muster.traces.files import check_target
    from muster.traces.snapshots import write_snapshot

    check_target(out)
    if mapping is not None:
        check_target(mapping, "--map")
        from pathlib import Path

        from muster.errors import InputError

        if Path(mapping).resolve() == Path(out).resolve():
            what = f"{mapping} is where the snapshot goes"
            raise InputError(what, field="--map", hint="the names would be sent with it; name another file")
    found = anonymize(_read(source), key)
    write_snapshot(found.snapshot, out)
    if mapping is not None:
        import msgspec

        names = {what: {new: old for old, new in names.items() if new != old} for what, names in found.names.of.items()}
        document = {"schema": "muster.snapshot.names/v1", "earlier_s": found.earlier_s, "names": names}
        write_atomically(mapping, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    say(f"{out}: {_in_short(found.snapshot)}, without names.")
    if found.unkept:
        say(
            f"The new names of {len(found.unkept):,} jobs sort in another way or are of another kind, such as "
            f"{found.unkept[0]}: where their order decides, the scheduler may decide otherwise."
        )
    if mapping is not None:
        say(f"{mapping}: which name became which. Keep it.")
    say(f"Next: muster snapshot show {out}")


# -- replay -----------------------------------------------------------------------------------------------------------

REPLAY_EPILOG = """\b
Examples:
  muster snapshot replay now.snap
  muster snapshot replay now.snap --for 6h --set reservations=4
  muster snapshot replay now.snap --cycles 1 -o json
  muster snapshot replay now.snap --for 1d --verify
"""


@command.command("replay", epilog=REPLAY_EPILOG)
@click.argument("source")
@click.option("--at", metavar="TIME", help="Of a run file or a history: the instant.")
@click.option("--cycles", type=click.IntRange(1, 1_000_000), help="So many cycles.  [default: 10, without --for]")
@click.option("--for", "for_", metavar="TIME", help="The cycles of so long a time, such as 6h.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the scheduler instead of the file's."
)
@click.option(
    "--verify", "verified", is_flag=True, help="Replay in another process, too: plans must be the same bytes."
)
@output_option
def replay_command(
    source: str, at: str | None, cycles: int | None, for_: str | None, settings: tuple[str, ...], verified: bool,
    output: str,
) -> None:  # fmt: skip
    """Run the next cycles of a snapshot and show each decision with its reason and its numbers.

    Work that runs ends when the scheduler takes it to end: at its limit, or as work like it did. Nothing new is
    submitted and nothing fails.
    """
    import math

    from muster.answers.replay import replay, verify
    from muster.cli.source import settings_given
    from muster.engine.config import config_of
    from muster.planning.quantities import seconds

    for_s = math.inf if for_ is None else seconds(for_, "--for")
    if cycles is None and for_ is None:
        cycles = 10
    snapshot = _read(source, at)
    config = config_of({**dict(snapshot.settings), **settings_given(settings)})
    found = replay(snapshot, config, cycles=cycles, for_s=for_s)
    _show_cycles(found, cycles, output)
    if verified:
        if not verify(snapshot, config, cycles=cycles, for_s=for_s):
            say("muster: the second replay decided otherwise; please report it with this snapshot.")
            raise click.exceptions.Exit(1)
        say(f"Verified: another process makes the same {len(found):,} plans, to the byte.")


def _show_cycles(found: Sequence[Cycle], cycles: int | None, output: str) -> None:
    from muster.answers.decisions import text_of

    records = [record for each in found for record in each.records()]
    for record in records:
        record["text"] = record.get("text") or text_of(record, record["time_s"])
    if output in ("table", "wide"):
        _print_cycles(found, records, wide=output == "wide")
        if cycles is not None and len(found) < cycles:
            tell("Nothing more happens: no running work is taken to end.")
        return
    keys = (
        "cycle", "time_s", "decision", "workload", "workloads", "for", "reason", "why", "nodes", "pods", "gpu_milli",
        "borrowed_milli", "backfilled", "start_s", "lost_gpu_s", "cost_gpu_s", "text",
    )  # fmt: skip
    columns = [Column("workload", "workload"), *(Column(key, key) for key in keys if key != "workload")]
    extra = {"cycles": len(found), "steady": not any(each.plan.decisions for each in found)}
    emit(records, columns, output=output, schema=REPLAY_SCHEMA, list_key="decisions", extra=extra)


def _print_cycles(found: Sequence[Cycle], records: Sequence[dict[str, Any]], *, wide: bool) -> None:
    """The decisions of each cycle; who waits is told where that changes, with -o wide in each cycle."""
    from muster.answers.decisions import text_of
    from muster.answers.times import instant

    rows: list[list[str]] = []
    waited: list[tuple[str, str]] = []
    for cycle in found:
        own = [each for each in records if each["cycle"] == cycle.number]
        texts = [(each["workload"] or f"{each['workloads']:,} jobs", text_of(each, cycle.time_s)) for each in own]
        waits = [text for text, each in zip(texts, own, strict=True) if each["decision"] == "wait"]
        if waits == waited and not wide:
            texts = texts[: len(texts) - len(waits)] or [("", "nothing is decided")]
        waited = waits
        for number, text in enumerate(texts or [("", "nothing is decided")]):
            head = ["", ""] if number else [str(cycle.number), instant(cycle.time_s)]
            rows.append([*head, *text])
    titles = Column("", "cycle", right=True), Column("", "at"), Column("", "job"), Column("", "decision")
    if rows:
        print_table(titles, rows)
        click.echo()
    decided = [each for each in found if each.plan.decisions]
    if not decided:
        tell(f"Steady state: nothing is decided in {len(found):,} {'cycle' if len(found) == 1 else 'cycles'}.")
    elif decided[-1] is not found[-1]:
        count = len(found) - decided[-1].number
        rest = "the cycle after it" if count == 1 else f"the {count:,} cycles after it"
        tell(f"Steady state after cycle {decided[-1].number}: nothing is decided in {rest}.")
