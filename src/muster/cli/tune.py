"""`muster tune`: fit the default policy to a fleet and a mix of pod shapes, and show what was fitted."""

from __future__ import annotations

from typing import Any

import click

from muster.cli.output import Column, emit, output_option, say

EPILOG = """\b
Examples:
  muster tune --fleet example --workload generate:mix=default
  muster tune --fleet openb:nodes.csv --workload openb:pods_default.csv -o json
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--fleet", required=True, metavar="SPEC", help="The fleet, as for `muster simulate`.")
@click.option("--workload", required=True, metavar="SPEC", help="The work whose mix of shapes is fitted to.")
@output_option
def command(fleet: str, workload: str, output: str) -> None:
    """Fit the default policy to a fleet and a mix of pod shapes, and show what was fitted.

    `muster simulate --policy default` does this by itself; either keeps the result in the user's cache.
    """
    from muster.model.workload import ShapeMix
    from muster.planning.tune import WEIGHTS, tuned
    from muster.traces import read_fleet, read_workload

    nodes, _ = read_fleet(fleet)
    tuning = tuned(nodes, ShapeMix.of(read_workload(workload, nodes).workloads), say=say)
    records: list[dict[str, Any]] = [
        {"weight": name, "start": start, "fitted": round(tuning.named[name], 5), "meaning": meaning}
        for name, start, _, meaning in WEIGHTS
    ]
    columns = [
        Column("weight", "weight"),
        Column("start", "start", right=True),
        Column("fitted", "fitted", right=True),
        Column("meaning", "meaning"),
    ]
    extra = {"chosen": tuning.chosen, "gains": tuning.gains, "generations": tuning.generations}
    emit(records, columns, output=output, schema="muster.tune/v1", list_key="weights", extra=extra)
    gains = ", ".join(f"{name} {value:.2f}" for name, value in tuning.gains.items())
    say(f"Chosen: {tuning.chosen}" + (f" (worth on fresh streams: {gains})." if gains else "."))
