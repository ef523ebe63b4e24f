"""`muster whatif`: changes to a snapshot, run forward beside things as they are."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.answers.times import moment, span
from muster.cli.output import Column, emit_document, output_option, print_table, say, tell, thousands, to_csv
from muster.cli.source import again, source_options, view_of
from muster.errors import InputError
from muster.planning.quantities import seconds

if TYPE_CHECKING:
    from muster.answers.view import View
    from muster.answers.whatif import Comparison, Options, Outcome, Variant, Waits

CSV_KEYS = ("variant", "job", "queue", "gpus", "before_s", "after_s", "later_s")
LONGEST_NAME = 34
"""A variant is called by its changes if they are no longer than this."""

EPILOG = """\b
Examples:
  muster whatif --from run.yaml --at 2h "add 2 racks"
  muster whatif --from now.snap add 8 nodes of H200-SXM5-141GB
  muster whatif --from now.snap "quota team-a +64" "weight team-a 2"
  muster whatif --from now.snap --variant "more=add 2 racks" \\
      --variant "slurm=policy slurm-like" --variant "drain=drain block b3"
  muster whatif --from now.snap "driver-wave 40 nodes batch 8 every 30m" --samples 20
  muster whatif --from now.snap "add 1 block" --report whatif.html

\b
Changes (all in docs/reference/changes.md; several with ';' or as several words in quotes):
  add 8 nodes like gpu01      add 2 racks            remove gpu[01-08]
  drain block b3 [evict]      uncordon gpu07         repair gpu[01-04]
  taint KEY NODES             untaint KEY            spare | unspare NODES
  quota team-a +64 [FLAVOR]   borrowing-limit team-a 64|none
  set reservations=4          policy slurm-like      placement gpu-packing
  job NAME priority=10 pods=4 topology=none          stop | cancel NAME
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("changes", nargs=-1, metavar="CHANGE...")
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME=CHANGE;...",
    help="Another variant, with a name of its own (repeatable).",
)  # fmt: skip
@click.option(
    "--for", "for_", metavar="TIME", help="How far to look, such as 6h; left out, until all that waits has started."
)
@click.option(
    "--samples", type=click.IntRange(1, 1000), default=1, show_default=True,
    help="1: work runs as long as the scheduler takes it to; more: run times are drawn so often.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws.")
@click.option(
    "--events", type=click.IntRange(1),
    help="A run goes no further than so many ends and other events. [default: 20,000; fewer where thousands wait]",
)  # fmt: skip
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="Jobs listed for each variant.")
@click.option(
    "--price", "prices", multiple=True, metavar="FLAVOR=USD",
    help="What an hour of one GPU costs, used or not (repeatable).",
)  # fmt: skip
@click.option("--report", metavar="FILE.html", help="Write a page with the tables and a Gantt chart of all variants.")
@source_options
@output_option
def command(
    source: str, at: str | None, settings: tuple[str, ...], changes: tuple[str, ...], variants: tuple[str, ...],
    for_: str | None, samples: int, seed: int, events: int | None, top: int, prices: tuple[str, ...],
    report: str | None, output: str,
) -> None:  # fmt: skip
    """Apply changes to a snapshot and tell who starts earlier or later, and what it costs.

    The snapshot is run forward as it is and with the changes, by the scheduler's own code and with the same run times.
    What will be submitted later is not known: nothing new comes.
    """
    from muster.answers.whatif import Options, compare

    if report is not None:
        from muster.report.files import REPORT_SUFFIXES, check_target

        check_target(report, REPORT_SUFFIXES, "--report")
    options = Options(
        samples,
        None if for_ is None else seconds(for_, "--for"),
        events,
        seed,
        tuple(map(_price, prices)),
        pictures=report is not None,
    )
    if not changes and not variants:
        raise InputError("no change is given", hint='such as: muster whatif --from now.snap "add 2 racks"')
    view = view_of(source, at, settings)
    asked = _variants(view, changes, variants)
    found = _with_progress(samples * (len(asked) + 1), lambda step: compare(view, asked, options, step))
    if report is not None:
        from muster.report.files import write_report
        from muster.report.whatif import whatif_report

        write_report(report, whatif_report(found, _facts(view, found, source), _next(found, source, at)))
        say(f"{report} is written.")
    if output in ("json", "yaml"):
        from muster.answers.whatif_document import whatif_document

        emit_document(whatif_document(view, found, options, source), output)
    elif output == "csv":
        click.echo(to_csv(list(_rows(found)), CSV_KEYS), nl=False)
    elif output == "name":
        for name in dict.fromkeys(each.job for outcome in found.outcomes[1:] for each in outcome.movers):
            click.echo(name)
    else:
        _print(view, found, options, top, source, report, output)


# -- what is asked ----------------------------------------------------------------------------------------------------


def _variants(view: View, changes: Sequence[str], named: Sequence[str]) -> list[Variant]:
    from muster.answers.changes import parse_change
    from muster.answers.changes.text import VERBS
    from muster.answers.whatif import Variant

    asked: list[tuple[str, str]] = []
    if changes:
        text = "; ".join(joined(changes))
        asked.append((text if len(text) <= LONGEST_NAME else "changed", text))
    for each in named:
        name, equals, text = each.partition("=")
        if not (equals and name.strip() and text.split()[:1] and text.split()[0] in VERBS):
            name, text = each, each  # it has no name of its own: what follows the sign is no change
        asked.append((name.strip(), text))
    return [Variant(name, parse_change(text, view.snapshot)) for name, text in asked]


def joined(words: Sequence[str]) -> list[str]:
    """Changes from the words of a command line, whether each change was put in quotes or not.

    A word that is a verb begins a change; so does one that holds a blank.
    """
    from muster.answers.changes.text import VERBS

    found: list[list[str]] = []
    open_ = False
    for each in words:
        whole = " " in each or ";" in each
        if whole or not open_ or each in VERBS:
            found.append([])
        found[-1].append(each)
        open_ = not whole
    return [" ".join(part) for part in found]


def _price(text: str) -> tuple[str, float]:
    flavor, equals, number = text.rpartition("=")
    try:
        usd = float(number)
    except ValueError:
        usd = math.nan
    if not equals or not flavor or not 0 <= usd <= 1e6:
        raise InputError(f"{text[:60]!r} is not FLAVOR=USD", field="--price", hint="such as H100-SXM5-80GB/spot=1.2")
    return flavor, usd


def _with_progress(runs: int, work: Callable[[Callable[[float], None] | None], Comparison]) -> Comparison:
    if not sys.stderr.isatty():
        return work(None)
    with click.progressbar(length=100 * runs, label=f"{runs} runs", file=sys.stderr) as bar:
        return work(lambda done: bar.update(max(0, int(100 * done) - bar.pos)))


def _facts(view: View, found: Comparison, source: str) -> list[tuple[str, str]]:
    from muster import __version__

    run_times = "as the scheduler takes them" if found.samples == 1 else f"drawn {found.samples} times"
    return [
        ("Snapshot", f"{source} at {moment(view, view.now_s)}"),
        ("Jobs", f"{len(view.snapshot.running):,} run, {len(view.snapshot.pending):,} wait"),
        ("Compared", _over(found)),
        ("Run times", f"{run_times}, the same in all variants"),
        ("To come", "what will be submitted later is not known: nothing new comes"),
        ("Muster", __version__),
    ]


def _over(found: Comparison) -> str:
    """How far ahead is compared."""
    starts, use = span(found.end_s), span(found.use_s)
    if starts == use:
        return f"starts and use of the fleet over {starts}"
    return f"starts over {starts}, use of the fleet over {use}"


def _compared(found: Comparison) -> str:
    starts, use = span(found.end_s), span(found.use_s)
    if starts == use:
        return f"Starts and the use of the fleet are compared over {starts}."
    return f"Starts are compared over {starts}, the use of the fleet over {use}."


def _next(found: Comparison, source: str, at: str | None) -> list[tuple[str, str]]:
    told = again(source, at, always=True).strip()
    last = found.outcomes[-1].variant
    text = shlex.quote("; ".join(map(str, last.changes)))
    return [
        (f"every job of {last.name}", f"muster whatif {told} {text} -o csv"),
        ("the same with run times that are drawn", f"muster whatif {told} {text} --samples 20"),
    ]


# -- for people -------------------------------------------------------------------------------------------------------


def _print(
    view: View, found: Comparison, options: Options, top: int, source: str, report: str | None, output: str
) -> None:
    from muster.report.whatif import figure_rows

    base = found.outcomes[0]
    running, waiting = len(view.snapshot.running), len(view.snapshot.pending)
    tell(f"{source} at {moment(view, view.now_s)}: {running:,} running, {waiting:,} waiting. {_compared(found)}")
    for outcome in found.outcomes[1:]:
        text = "; ".join(map(str, outcome.variant.changes))
        if text != outcome.variant.name:
            tell(f"{outcome.variant.name}: {text if len(text) <= 300 else text[:297] + '...'}")
    click.echo()
    columns = [
        Column("what", ""),
        *(Column(each.variant.name, each.variant.name, right=True) for each in found.outcomes),
    ]
    print_table(columns, figure_rows(found, span))
    for title, groups in (("queue", [each.figures.by_queue for each in found.outcomes]),
                          ("GPUs", [each.figures.by_size for each in found.outcomes])):  # fmt: skip
        if len(groups[0]) > 1:
            click.echo()
            _print_groups(title, groups, columns[1:], whole=output == "wide")
    for outcome in found.outcomes[1:]:
        _print_movers(outcome, top)
    click.echo()
    for line in _closing(view, found, options):
        tell(line)
    if base.figures.waiting and options.for_s is None and not found.cut:
        late = next(each.job for each in base.effects if math.isinf(each.before_s))
        of = again(source, None, always=True)
        tell(f"As it is, {thousands(base.figures.waiting)} never start: muster why {late}{of}")
    if report is None:
        tell("A page with a Gantt chart: add --report whatif.html")


def _print_groups(title: str, groups: Sequence[Sequence[Waits]], columns: Sequence[Column], *, whole: bool) -> None:
    from muster.report.whatif import shown_groups, waits_text

    heads = [Column("name", title), Column("jobs", "jobs", right=True), *columns]
    shown = list(range(len(groups[0]))) if whole else shown_groups(groups)
    rows = [
        [
            groups[0][at].name or "-",
            thousands(groups[0][at].jobs),
            *(waits_text(some[at], span) for some in groups),
        ]
        for at in shown
    ]
    print_table(heads, rows, f"Wait from now on, mean, by {'queue' if title == 'queue' else 'GPUs of the job'}")
    if len(shown) < len(groups[0]):
        tell(f"These {len(shown)} of {len(groups[0]):,} change most; all with -o wide or -o json.")


def _print_movers(outcome: Outcome, top: int) -> None:
    from muster.report.whatif import difference_text, lead_of, number_text, start_text

    click.echo()
    movers = outcome.movers
    earlier, later = [each for each in movers if each.later_s < 0], [each for each in movers if each.later_s > 0]
    added = [each for each in outcome.effects if math.isnan(each.before_s)]
    tell(lead_of(outcome))
    half = max(top - min(len(later), top // 2), 0)
    shown = [*earlier[:half], *later[: top - min(len(earlier), half)], *added[:top]]
    if not shown:
        return
    columns = [
        Column("job", "job"), Column("queue", "queue"), Column("gpus", "GPUs", right=True),
        Column("before", "as it is", right=True), Column("after", "then", right=True),
        Column("later", "difference", right=True),
    ]  # fmt: skip
    rows = [
        [each.job, each.queue or "-", number_text(each.gpus), start_text(each.before_s, "runs now", span),
         start_text(each.after_s, "-", span), difference_text(each, span)]
        for each in shown
    ]  # fmt: skip
    print_table(columns, rows)
    left = len(earlier) + len(later) + len(added) - len(shown)
    if left > 0:
        tell(f"and {left:,} more: --top {len(shown) + left}, or all with -o csv")


def _closing(view: View, found: Comparison, options: Options) -> Iterator[str]:
    from muster.answers.whatif import most_events

    yield "What will be submitted later is not known: nothing new comes."
    if found.samples == 1:
        yield (
            "Work is taken to run as long as the scheduler takes it to: to its limit, or as long as work like it. "
            "--samples 20 draws run times instead."
        )
    else:
        yield f"Means over {found.samples} draws of run times (seed {options.seed}), the same in all variants."
    if found.unknown:
        jobs = "1 job" if found.unknown == 1 else f"{found.unknown:,} jobs"
        yield (
            f"Of {jobs} neither a limit nor work like it is known: taken to run {span(view.config.run_s)} "
            "(--set run_s=SECONDS)."
        )
    if found.cut:
        used = options.events or most_events(max(each.figures.jobs for each in found.outcomes))
        yield f"A run used up its {used:,} events, so starts are told no further: --events {10 * used} looks further."
    if options.prices:
        priced = {flavor for flavor, _ in options.prices}
        missing = dict.fromkeys(
            flavor for each in found.outcomes for flavor, _ in each.figures.flavors if flavor not in priced
        )
        if missing:
            yield f"No price is given for {', '.join(missing)}: counted as nothing."


# -- for programs -----------------------------------------------------------------------------------------------------


def _rows(found: Comparison) -> Iterator[dict[str, Any]]:
    from muster.answers.whatif_document import effect_document

    for outcome in found.outcomes[1:]:
        for each in outcome.effects:
            yield {"variant": outcome.variant.name, **effect_document(each)}
