"""`muster queue`: what waits and why, what runs and until when, and who holds how much."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit_document, output_option, print_table, say, tell, to_csv
from muster.cli.source import again, namespace_asked, source_options, view_of
from muster.cli.starts import between
from muster.errors import BackendError, InputError

if TYPE_CHECKING:
    from muster.answers.view import View

SHOWN = 20

EPILOG = """\b
Examples:
  muster queue --from now.snap
  muster queue --context prod -n research
  muster queue --from now.snap --queue research --all
  muster queue --from run.yaml --at 3h -o json
  muster queue --from now.snap --waiting -o csv
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@source_options
@click.option("--queue", default="", metavar="NAME", help="Only this queue and those below it.")
@click.option("--waiting", "only", flag_value="waiting", help="Only what waits.")
@click.option("--running", "only", flag_value="running", help="Only what runs.")
@click.option("--tree", "only", flag_value="tree", help="Only the tree of queues.")
@click.option("--all", "everything", is_flag=True, help=f"List all, not the first {SHOWN} of each.")
@click.option("--watch", is_flag=True, help="Draw it anew whenever the source changes, until Ctrl-C.")
@output_option
def command(
    source: str, at: str | None, settings: tuple[str, ...], queue: str, only: str | None, everything: bool,
    watch: bool, output: str,
) -> None:  # fmt: skip
    """List pending gangs in order with reason and expected start, running ones, and the tree of queues.

    The expected start is told for those at the head of the line; `muster why JOB` tells it for any.
    """
    parts = (only,) if only else ("tree", "waiting", "running")
    if output in ("csv", "name") and only is None:
        parts = ("waiting",)

    most = None if everything else SHOWN

    def draw() -> None:
        _draw(view_of(source, at, settings), queue, namespace_asked(), parts, most, output, again(source, at))

    if watch:
        _watch(source, draw)
    else:
        draw()


def _draw(
    view: View, queue: str, namespace: str, parts: Sequence[str], most: int | None, output: str, of: str
) -> None:  # fmt: skip
    """``of`` are the options that name the source again."""
    from muster.answers.documents import queue_document

    known = {each.name for each in view.snapshot.queues}
    if queue and queue not in known:
        from muster.errors import near

        hint = near(queue, sorted(known)) or ("its queues are in `muster queue --tree`" if known else "it has none")
        raise InputError(f"there is no queue {queue!r}", field="--queue", hint=hint)
    machine = output not in ("table", "wide")
    document = queue_document(view, queue=queue, namespace=namespace, parts=parts, most=None if machine else most)
    if output in ("json", "yaml"):
        emit_document(document, output)
    elif machine:
        records = [flat(each) for each in document[{"tree": "queues"}.get(parts[0], parts[0])]]
        if output == "csv":
            click.echo(to_csv(records, list(records[0]) if records else ["job"]), nl=False)
        else:
            click.echo("".join(f"{each.get('job', each.get('queue'))}\n" for each in records), nl=False)
    else:
        _print(view, document, parts, of, wide=output == "wide")


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with one value a column: of the start only when."""
    found = dict(record)
    if "start" in found:
        start: Mapping[str, Any] = found.pop("start") or {}
        found.update({key: start.get(key) for key in ("expected_s", "low_s", "high_s")})
    return found


def _print(view: View, document: dict[str, Any], parts: Sequence[str], of: str, *, wide: bool) -> None:
    first = True
    for part, show in (("tree", _tree), ("waiting", _waiting), ("running", _running)):
        if part in parts:
            if not first:
                click.echo()
            show(view, document, of, wide)
            first = False


def _tree(view: View, document: dict[str, Any], of: str, wide: bool) -> None:
    if not document["queues"]:
        tell("There are no queues with quotas: work is limited by room alone.")
        return
    columns = [Column("queue", "queue"), Column("flavor", "flavor")]
    keys = ("guaranteed", "fair", "used", "borrowed", "lent", "available")
    columns += [Column(key, key, right=True) for key in keys]
    columns.append(Column("waiting", "waiting", right=True))
    rows = [
        [
            "  " * each["depth"] + each["queue"], each["flavor"],
            *(_gpus(each[f"{key}_milli"]) for key in keys),
            f"{each['waiting']:,} ({_gpus(each['waiting_milli'])})" if each["waiting"] else "",
        ]
        for each in document["queues"]
    ]  # fmt: skip
    print_table(columns, rows, "Queues, in GPUs", fold=not wide)


def _waiting(view: View, document: dict[str, Any], of: str, wide: bool) -> None:
    from muster.answers.times import span

    found, total = document["waiting"], document["total_waiting"]
    if not total:
        starts = sum(each["starts_now"] for each in document.get("running", ()))
        tell(f"Nothing waits{f' but {starts:,} that would start now, listed as running' if starts else ''}.")
        return
    columns = [
        Column("position", "#", right=True), Column("job", "job"), Column("queue", "queue"),
        Column("gpus", "GPUs", right=True), Column("waited", "waited", right=True), Column("cause", "waits for"),
        Column("start", "starts in", right=True), Column("between", "80 % within", right=True),
        Column("borrows", "borrows"),
    ]  # fmt: skip
    of_slurm = any(each["slurm"] for each in found)
    if of_slurm:  # its accounts have limits, and nothing that is lent
        columns[-1] = Column("slurm", "Slurm says", code=True)
    rows = [
        [
            f"{each['position']:,}", _called(each), each["queue"], _gpus(each["gpu_milli"]), span(each["waited_s"]),
            each["cause"], *starts_of(view, each),
            each["slurm"] if of_slurm else "yes" if each["borrows"] else "",
        ]
        for each in found
    ]  # fmt: skip
    print_table(columns, rows, f"Waiting: {total:,} {'gang' if total == 1 else 'gangs'}", fold=not wide)
    if len(found) < total:
        tell(f"... and {total - len(found):,} more (--all lists them)")
    from muster.answers.by_hand.quoting import quoted

    tell(f"Why one waits: muster why {quoted(found[0]['job'])}{of}")


def starts_of(view: View, each: Mapping[str, Any]) -> tuple[str, str]:
    """In how long it starts, and between when with 80 %; empty where that was not looked at."""
    from muster.answers.times import span

    told = each["start"]
    if told is None:
        return "", ""
    if told["expected_s"] is None:
        return "never", ""
    return span(max(0.0, told["expected_s"] - view.now_s)), between(view, told)


def _running(view: View, document: dict[str, Any], of: str, wide: bool) -> None:
    from muster.answers.times import EPOCH_S, span

    found, total = document["running"], document["total_running"]
    ends = "ends in" if view.now_s < EPOCH_S else "ends"
    if not total:
        tell("Nothing runs.")
        return
    columns = [
        Column("job", "job"), Column("queue", "queue"), Column("gpus", "GPUs", right=True),
        Column("ran", "ran", right=True), Column("progress", "done", right=True),
        Column("unsaved", "checkpoint", right=True), Column("end", ends, right=True), Column("note", "note"),
    ]  # fmt: skip
    rows = [
        [
            _called(each), each["queue"], _gpus(each["gpu_milli"]),
            "" if each["ran_s"] is None else span(each["ran_s"]),
            "" if each["progress"] is None else f"{each['progress']:.0%}",
            "none" if each["unsaved_s"] is None else f"{span(each['unsaved_s'])} old",
            end_of(view, each), note_of(each),
        ]
        for each in found
    ]  # fmt: skip
    print_table(columns, rows, f"Running: {total:,} {'gang' if total == 1 else 'gangs'}", fold=not wide)
    if total > len(found):
        tell(f"... and {total - len(found):,} more (--all lists them)")
    if any(not each["sure"] for each in found):
        tell("~ predicted: it has no limit of its own, or outlived it")


def end_of(view: View, each: Mapping[str, Any]) -> str:
    """When running work should end; ``~`` marks what is predicted."""
    from muster.answers.times import until

    end_s = math.inf if each["expected_end_s"] is None else each["expected_end_s"]
    return ("" if each["sure"] else "~") + until(view, end_s).removeprefix("in ")


def note_of(each: Mapping[str, Any]) -> str:
    """What else is to be said of running work."""
    from muster.answers.times import span

    notes = ["would start now"] if each["starts_now"] else []
    notes += ["borrows"] if each["borrowing"] else []
    if each["idle_s"] is not None:
        notes.append(f"idle for {span(each['idle_s'])}")
    if each["missing"]:
        notes.append(f"{each['missing']} pods lost")
    return ", ".join(notes)


def _called(each: Mapping[str, Any]) -> str:
    """Its number and, shortened, what its owner calls it; or its name alone."""
    title = each["title"]
    return f"{each['job']} {title if len(title) <= 12 else title[:11] + '…'}" if title else each["job"]


def _gpus(milli: float) -> str:
    return f"{milli / 1000:,g}" if milli else "0"


def _watch(source: str, draw: Callable[[], None]) -> None:
    """Draw whenever the file changes, and a live cluster after a while; what cannot be read now is looked at again."""
    from muster.answers.live import goes_on
    from muster.service.latest import AGAIN_S
    from muster.traces.files import dump_files

    def changed_s() -> float:
        files = dump_files(source.removeprefix("kubectl:"))
        return max((Path(file).stat().st_mtime for file in files), default=0.0)

    seen = 0.0
    while True:
        try:
            changed = time.monotonic() // AGAIN_S + 1 if goes_on(source) else changed_s()
        except OSError:
            changed = seen
        if changed != seen:
            seen = changed
            if sys.stdout.isatty():
                click.clear()
            try:
                draw()
            except (InputError, BackendError) as error:
                say(f"muster: {error}")
        time.sleep(1.0)
