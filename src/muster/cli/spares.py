"""`muster spares`: how many spare nodes the failure rate asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, tell
from muster.cli.source import source_options, view_of
from muster.errors import InputError
from muster.planning.quantities import seconds

if TYPE_CHECKING:
    from muster.answers.spares import Group, Rate

SCHEMA = "muster.spares/v1"
MOST_TABLES = 4

EPILOG = """\b
Examples:
  muster spares --from now.snap
  muster spares --from now.snap --rate 4 --repair 7d --target 0.999
  muster spares --from now.snap --mtbf 200d --per block
  muster spares --from run.yaml -o json

\b
Exit codes: 0 there are enough spares, 1 some are missing, 2 usage or bad input.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rate", type=float, metavar="N", help="Failures of nodes, of each 1,000 in a day.")
@click.option("--mtbf", metavar="TIME", help="The same as the mean time between failures of one node, such as 200d.")
@click.option("--repair", default="3d", show_default=True, metavar="TIME", help="How long a node is away, in the mean.")
@click.option("--target", type=float, default=0.99, show_default=True, help="Part of the time in which all are up.")
@click.option("--per", "level", default="", metavar="LEVEL", help="Spares stay in their domain of this level.")
@source_options
@output_option
def command(
    rate: float | None, mtbf: str | None, repair: str, target: float, level: str, source: str, at: str | None,
    settings: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Tell how many spare nodes each flavor needs, how many there are, and what each further one buys.

    Spares are nodes that only replacements of lost pods may use. Without --rate or --mtbf the failures in the snapshot
    are counted, if there are enough of them; else a published rate is taken, and its source is told.
    """
    from muster.answers.spares import failure_rate, spares_by_group

    given_ = _given(rate, mtbf)
    if not 0 < target < 1:
        raise InputError(f"is {target:g}", field="--target", hint="above 0 and below 1, such as 0.99")
    repair_days = seconds(repair, "--repair") / 86400
    view = view_of(source, at, settings)
    found = failure_rate(view, given_)
    groups = spares_by_group(view, found, repair_days, target, level)
    if output in ("table", "wide"):
        _print(groups, found, wide=output == "wide")
    else:
        _emit(groups, found, output)
    if any(group.missing for group in groups):
        raise click.exceptions.Exit(1)


def _given(rate: float | None, mtbf: str | None) -> float | None:
    """Failures of a node in a day, as the options say."""
    if rate is not None and mtbf is not None:
        raise click.UsageError("Give --rate or --mtbf: they say the same.")
    if mtbf is not None:
        mean_s = seconds(mtbf, "--mtbf")
        if mean_s <= 0:
            raise InputError("is 0", field="--mtbf", hint="such as 200d")
        return 86400 / mean_s
    if rate is not None and not 0 <= rate <= 1e6:
        raise InputError(f"is {rate:g}", field="--rate", hint="failures of each 1,000 nodes in a day, such as 6.5")
    return None if rate is None else rate / 1000


def _emit(groups: tuple[Group, ...], rate: Rate, output: str) -> None:
    records: list[dict[str, Any]] = []
    for group in groups:
        need = group.need
        records.append({
            "flavor": group.flavor, "domain": group.domain, "nodes": need.nodes, "spares": need.spares,
            "present": group.present, "missing": group.missing, "by_poisson": need.by_poisson,
            "mean_away": need.mean_away, "away": need.away,
            "steps": [{"spares": each.spares, "covered": each.covered, "short_nodes": each.short_nodes,
                       "gpu_hours_a_day": each.short_nodes * group.gpus_per_node * 24} for each in group.steps],
        })  # fmt: skip
    extra = {
        "per_1000_node_days": rate.per_node_day * 1000, "rate_origin": rate.origin, "rate_source": rate.source,
        "repair_days": groups[0].need.repair_days, "target": groups[0].need.target,
    }  # fmt: skip
    if output in ("json", "yaml"):
        emit_document({"schema": SCHEMA, **extra, "groups": records}, output)
        return
    keys = ("flavor", "domain", "nodes", "spares", "present", "missing", "by_poisson", "mean_away")
    emit(records, [Column(key, key) for key in keys], output=output, schema=SCHEMA, list_key="groups")


def _print(groups: tuple[Group, ...], rate: Rate, *, wide: bool) -> None:
    from muster.answers.words import plural

    first = groups[0].need
    tell(f"Failures: {rate.per_node_day * 1000:.3g} of each 1,000 nodes in a day; {rate.source}.")
    away = f"{100 * first.away:.2g} % of the time"
    tell(
        f"Repair: {plural(round(first.repair_days, 2), 'day')}. So one node is away for {away}: "
        f"q = rT / (1 + rT), rT = {first.per_node_day:.3g} x {first.repair_days:.3g}."
    )
    click.echo()
    rows = [
        [group.flavor, group.domain, f"{group.need.nodes:,}", f"{group.need.mean_away:.1f}", f"{group.need.spares:,}",
         f"{group.present:,}", f"{group.missing:,}" if group.missing else "none", f"{group.need.by_poisson:,}"]
        for group in groups
    ]  # fmt: skip
    titles = ("Nodes", "away, mean", "spares needed", "there", "missing", "by Poisson")
    columns = [Column("", "Flavor"), Column("", "domain"), *(Column("", title, right=True) for title in titles)]
    if not any(group.domain for group in groups):
        columns, rows = [columns[0], *columns[2:]], [[row[0], *row[2:]] for row in rows]
    print_table(columns, rows)
    shown = groups if wide else groups[:MOST_TABLES]
    for group in shown:
        _print_steps(group)
    if len(shown) < len(groups):
        click.echo()
        tell(f"What each spare buys is told of the first {MOST_TABLES}; -o wide has all.")
    click.echo()
    tell(
        f"Needed: the least s for which at most s of all nodes and spares are away for {100 * first.target:g} % of the "
        "time (binomial; spares fail, too). By Poisson: the quantile of the nodes' failures within the repair time."
    )
    if any(group.missing for group in groups):
        tell('Next: muster whatif ... "spare NODES" tells who waits longer if nodes become spares.')


def _print_steps(group: Group) -> None:
    click.echo()
    rows: list[list[str]] = []
    for step in group.steps:
        buys = (step.short_nodes - group.need.step(step.spares + 1).short_nodes) * group.gpus_per_node * 24
        mark = " there" if step.spares == group.present else " needed" if step.spares == group.need.spares else ""
        lost = step.short_nodes * group.gpus_per_node * 24
        rows.append([
            f"{step.spares:,}{mark}", f"{100 * step.covered:.2f} %", f"{step.short_nodes:.3g}", f"{lost:,.3g}",
            f"{buys:,.3g}",
        ])  # fmt: skip
    name = f"{group.flavor} {group.domain}".strip()
    titles = ("all replaced", "nodes short, mean", "GPU-hours lost a day", "one more buys")
    print_table([Column("", f"Spares of {name}"), *(Column("", title, right=True) for title in titles)], rows)
