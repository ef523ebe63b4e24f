"""`muster history`: snapshots and decisions over time, and the story of a job."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.output import Column, emit, output_option, print_table, say, tell, thousands
from muster.cli.source import cluster_options, named_source
from muster.errors import BackendError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.answers.history import Decided, Event, Kept

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_SIZES = {
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


def store_option(function: _Function) -> _Function:
    """Add ``--store``; the parameter is ``store``."""
    return click.option(
        "--store", envvar="MUSTER_STORE", metavar="FILE",
        help="The history's file. [env: MUSTER_STORE] [default: muster/history.db in the folder of the user's state]",
    )(function)  # fmt: skip


def store_path(store: str | None) -> str:
    """The history's file: the one named, else one in the folder where programs keep their state."""
    if store:
        return store
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(state) / "muster" / "history.db")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Keep snapshots and decisions over time: why did it do that at 14:03?

    A history is one file (SQLite). Snapshots are kept compressed, and what does not change is kept once. `muster why`
    and all other answers look at an instant of it with --from history:FILE --at 14:03.
    """


ADD_EPILOG = """\b
Examples:
  muster history add now.snap
  muster history add monday-*.snap --store cluster.db
  kubectl get nodes,pods -A -o json > now.json && muster history add kubectl:now.json   # each 10 minutes, by cron
"""


@command.command("add", epilog=ADD_EPILOG)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@store_option
def add(sources: tuple[str, ...], store: str | None) -> None:
    """Add snapshots, in the order of their times, and beside each what Muster decides at its instant.

    What is there already is not added again, so that it does no harm to add everything anew.
    """
    from muster.answers.history import History
    from muster.answers.sources import read_source
    from muster.answers.times import instant

    found = [(source, read_source(source)[0]) for source in sources]
    found.sort(key=lambda each: each[1].taken_s)
    with History(_writable(store), write=True) as history:
        for source, snapshot in found:
            added = history.add(snapshot)
            kept = f"{added.bytes:,} bytes more" if added.new else "it was there already"
            say(f"{source}: number {added.id}, taken at {instant(snapshot.taken_s)}, {kept}.")
        say(f"Next: muster history show --at {_at(found[-1][1].taken_s)}{_named(store)}")


RECORD_EPILOG = """\b
Examples:
  muster history record run.yaml --every 10m --store run.db
  muster history record --context prod --every 10m          # a live cluster, until Ctrl-C
  muster history show --store run.db --job train
"""


@command.command("record", epilog=RECORD_EPILOG)
@click.argument("run", metavar="[RUN.yaml]", required=False)
@click.option("--every", default="10m", show_default=True, metavar="TIME", help="A snapshot each so long.")
@click.option("--until", metavar="TIME", help="Up to this time of the run.  [default: when nothing more happens]")
@click.option("--for", "for_", metavar="TIME", help="Of a live cluster: for so long.  [default: until Ctrl-C]")
@cluster_options
@store_option
def record_command(
    run: str | None, every: str, until: str | None, for_: str | None, store: str | None, **cluster: Any
) -> None:  # fmt: skip
    """Keep a snapshot every so often: of a run file, which is simulated, or of a live cluster.

    Of a run file every decision in between is kept, of a live cluster what Muster would decide at each instant.
    """
    from muster.answers.history import History
    from muster.answers.live import goes_on
    from muster.answers.recording import record
    from muster.planning.quantities import seconds

    source = named_source(run, cluster)
    every_s, until_s = seconds(every, "--every"), None if until is None else seconds(until, "--until")
    for_s = None if for_ is None else seconds(for_, "--for")
    if source is None:
        raise click.UsageError("Give RUN.yaml, or a live cluster by --context.")
    run = source
    if goes_on(source) and until is not None:
        raise InputError("is of a run file", field="--until", hint="--for TIME ends it")
    if not goes_on(source) and for_ is not None:
        raise InputError("is of a live cluster", field="--for", hint="--until TIME ends it")
    if goes_on(source):
        _record_live(source, every_s, for_s, store)
        return
    with History(_writable(store), write=True) as history:
        added = [each for _, each in record(history, run, every_s, until_s)]
        new = sum(each.new for each in added)
        say(f"{run}: {len(added):,} snapshots, {new:,} of them new, {sum(each.bytes for each in added):,} bytes.")
        say(f"Next: muster history list{_named(store)}")


def _record_live(source: str, every_s: float, for_s: float | None, store: str | None) -> None:
    """Add a snapshot of a live cluster every so often; one that cannot be taken is told, and the next is tried."""
    import time

    from muster.answers.history import History
    from muster.answers.sources import read_source
    from muster.answers.times import instant

    if not every_s > 0:
        raise InputError("is not above 0", field="--every", hint="such as 10m")
    end_s = math.inf if for_s is None else time.monotonic() + for_s
    next_s, count = time.monotonic(), 0
    warned: set[str] = set()

    def warn(text: str) -> None:
        if text not in warned:
            say(text)
        warned.add(text)

    with History(_writable(store), write=True) as history:
        while next_s <= end_s:
            time.sleep(max(0.0, next_s - time.monotonic()))
            next_s = max(next_s + every_s, time.monotonic())
            try:
                snapshot = read_source(source, warn=warn)[0]
            except BackendError as error:
                if not count:
                    raise
                say(f"muster: {error}")
                continue
            added, count = history.add(snapshot), count + 1
            say(f"{instant(snapshot.taken_s)}: number {added.id}, {added.bytes:,} bytes more.")
        say(f"Next: muster history list{_named(store)}")


def _writable(store: str | None) -> str:
    path = store_path(store)
    if not store:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    return path


def _named(store: str | None) -> str:
    return f" --store {store}" if store else ""


def _at(time_s: float) -> str:
    """A time as ``--at`` reads it."""
    from muster.answers.times import EPOCH_S

    if time_s < EPOCH_S:
        return f"{time_s:.10g}"
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%dT%H:%M:%S}"


# -- list -------------------------------------------------------------------------------------------------------------


@command.command("list", epilog="\b\nExamples:\n  muster history list\n  muster history list --store run.db -o csv")
@store_option
@output_option
def list_command(store: str | None, output: str) -> None:
    """List the snapshots that a history has, the oldest first."""
    import msgspec

    from muster.answers.history import History
    from muster.answers.times import instant

    with History(store_path(store)) as history:
        kept, size = history.kept(), history.bytes
    records: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in kept]
    columns = [
        Column("id", "number", right=True), Column("taken_s", "taken at", show=instant), Column("source", "source"),
        Column("nodes", "nodes", right=True, show=thousands), Column("running", "running", right=True, show=thousands),
        Column("pending", "waiting", right=True, show=thousands),
        Column("decisions", "decisions", right=True, show=thousands),
        Column("carried_out", "carried out", wide=True, show=lambda done: "yes" if done else "proposed"),
    ]  # fmt: skip
    emit(records, columns, output=output, schema="muster.history/v1", list_key="snapshots", extra={"bytes": size})
    if output in ("table", "wide"):
        tell(f"\n{len(kept):,} {'snapshot' if len(kept) == 1 else 'snapshots'} in {size:,} bytes.")


# -- show -------------------------------------------------------------------------------------------------------------

SHOW_EPILOG = """\b
Examples:
  muster history show --at 14:03
  muster history show --at 2026-11-30T14:03 --around 1h
  muster history show --job train
  muster why train --from history:cluster.db --at 14:03      # all that `why` tells, as it was then
"""


@command.command("show", epilog=SHOW_EPILOG)
@click.option("--at", metavar="TIME", help="Such as 14:03, 2026-11-30T14:03 (UTC), 2h (before the newest) or seconds.")
@click.option("--around", default="10m", show_default=True, metavar="TIME", help="Decisions so long before and after.")
@click.option("--job", metavar="NAME", help="The story of a job instead.")
@store_option
@output_option
def show(at: str | None, around: str, job: str | None, store: str | None, output: str) -> None:
    """Tell what was decided near a time, or the story of a job: submitted, waited why, reserved, started, stopped.

    Times of a real cluster are UTC.
    """
    from muster.answers.history import History
    from muster.answers.times import parse_instant
    from muster.planning.quantities import seconds

    around_s = seconds(around, "--around")
    with History(store_path(store)) as history:
        at_s = None if at is None else parse_instant(at, history.newest_s())
        if job is not None:
            events = history.story(job)
            near = None if at_s is None else (at_s - around_s, at_s + around_s)
            _show_story(job, [each for each in events if not near or near[0] <= each.time_s <= near[1]], output)
            return
        kept = history.at(at_s)
        middle_s = kept.taken_s if at_s is None else at_s
        _show_decisions(kept, history.decisions(middle_s - around_s, middle_s + around_s), store, output)


def _show_story(job: str, events: Sequence[Event], output: str) -> None:
    import msgspec

    from muster.answers.times import instant

    records: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in events]
    columns = [
        Column("time_s", "at", show=instant), Column("kind", job), Column("text", ""),
        Column("snapshot", "snapshot", right=True, wide=True),
    ]  # fmt: skip
    if not records and output in ("table", "wide"):
        tell("Nothing happened to it near that time; without --at all of its story is told.")
        return
    emit(records, columns, output=output, schema="muster.history.story/v1", list_key="events", extra={"job": job})


def _show_decisions(kept: Kept, found: Sequence[Decided], store: str | None, output: str) -> None:
    import msgspec

    from muster.answers.decisions import text_of
    from muster.answers.times import instant

    records: list[dict[str, Any]] = [
        {"snapshot": each.snapshot, "time_s": each.time_s, "carried_out": each.carried_out, **each.record,
         "text": text_of(each.record, each.time_s)}
        for each in found
    ]  # fmt: skip
    if output in ("table", "wide"):
        work = f"{kept.running:,} running, {kept.pending:,} waiting"
        tell(f"Snapshot {kept.id}, taken at {instant(kept.taken_s)}: {kept.nodes:,} nodes, {work}.")
        click.echo()
        if not found:
            tell("Nothing was decided near that time.")
        else:
            rows = [
                [instant(each["time_s"]), each["workload"], each["text"], "" if each["carried_out"] else "proposed"]
                for each in records
            ]
            print_table([Column("", "at"), Column("", "job"), Column("", "decision"), Column("", "")], rows)
        click.echo()
        tell(f"Then: muster queue --from history:{store_path(store)} --at {_at(kept.taken_s)}")
        return
    columns = [
        Column(key, key) for key in ("workload", "time_s", "decision", "for", "nodes", "start_s", "snapshot", "text")
    ]
    extra = {"snapshot": msgspec.to_builtins(kept)}
    emit(records, columns, output=output, schema="muster.history.decisions/v1", list_key="decisions", extra=extra)


# -- export and prune -------------------------------------------------------------------------------------------------


@command.command(
    "export", epilog="\b\nExamples:\n  muster history export 17 then.snap\n  muster history export 17 then.yaml"
)
@click.argument("number", type=int)
@click.argument("out", type=click.Path(dir_okay=False))
@store_option
def export(number: int, out: str, store: str | None) -> None:
    """Write the snapshot of a NUMBER, as `muster history list` has them, to a file."""
    from muster.answers.history import History
    from muster.traces.files import check_target
    from muster.traces.snapshots import write_snapshot

    check_target(out)
    with History(store_path(store)) as history:
        write_snapshot(history.snapshot(number), out)
    say(f"Next: muster snapshot show {out}")


@command.command(
    "prune", epilog="\b\nExamples:\n  muster history prune --keep 7d\n  muster history prune --keep 30d --most 500MB"
)
@click.option("--keep", metavar="TIME", help="Remove what was taken so long before the newest snapshot, such as 7d.")
@click.option("--most", metavar="SIZE", help="Remove the oldest beyond this size, such as 500MB.")
@store_option
def prune(keep: str | None, most: str | None, store: str | None) -> None:
    """Remove old snapshots and what only they held; the newest always stays."""
    from muster.answers.history import History
    from muster.planning.quantities import seconds

    if keep is None and most is None:
        raise click.UsageError("Give --keep TIME or --most SIZE.")
    keep_s = None if keep is None else seconds(keep, "--keep")
    most_bytes = None if most is None else size_of(most)
    path = store_path(store)
    with History(path):
        pass  # one that does not exist is not made
    with History(path, write=True) as history:
        before = history.bytes
        gone = history.prune(keep_s=keep_s, most_bytes=most_bytes)
        left = len(history.kept())
        say(f"{len(gone):,} snapshots removed, {left:,} left; {before:,} bytes before, {history.bytes:,} now.")


def size_of(text: str) -> int:
    """``500MB``, ``2GiB`` or plain bytes as a number; raises `InputError`."""
    number = text.rstrip("kKmMgGiIbB ")
    unit = text[len(number) :].strip().upper()
    try:
        size = float(number) * (1 if unit in ("", "B") else _SIZES[unit])
    except (ValueError, KeyError):
        size = -1.0
    if not 0 < size < 1e18:
        raise InputError(f"{text[:40]!r} is no size", field="--most", hint="such as 500MB or 2GB")
    return int(size)
