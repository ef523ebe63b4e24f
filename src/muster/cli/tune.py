"""`muster tune`: fit the default policy to a fleet and a mix of pod shapes, and show what was fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, output_option, say, tell

if TYPE_CHECKING:
    from muster.model.fleet import Fleet
    from muster.model.workload import ShapeMix

EPILOG = """\b
Examples:
  muster tune --fleet example --workload generate:mix=default
  muster tune --fleet example --workload generate:mix=default --bound
  muster tune --fleet openb:nodes.csv --workload openb:pods_default.csv -o json
"""
BOUND_MARKS = (100, 110, 130)
"""Arrived demand, in percent of the fleet's GPUs, at which the bound is told."""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--fleet", required=True, metavar="SPEC", help="The fleet; SPECs are explained by `muster trace --help`.")
@click.option("--workload", required=True, metavar="SPEC", help="The work whose mix of shapes is fitted to.")
@click.option("--bound", is_flag=True, help="Also tell what no placement of this mix on this fleet can exceed.")
@output_option
def command(fleet: str, workload: str, bound: bool, output: str) -> None:
    """Fit the default policy to a fleet and a mix of pod shapes, and show what was fitted.

    `muster simulate --policy default` does this by itself; either keeps the result in the user's cache.
    """
    from muster.model.workload import ShapeMix
    from muster.planning.tune import WEIGHTS, tuned
    from muster.traces import read_fleet, read_workload

    nodes, _ = read_fleet(fleet)
    mix = ShapeMix.of(read_workload(workload, nodes).workloads)
    tuning = tuned(nodes, mix, say=say)
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
    extra: dict[str, Any] = {"chosen": tuning.chosen, "gains": tuning.gains, "generations": tuning.generations}
    if bound:
        extra["bound_percent"] = _bounds(nodes, mix)
    emit(records, columns, output=output, schema="muster.tune/v1", list_key="weights", extra=extra)
    if output in ("json", "yaml"):
        return
    # A person reads these beside the table, and a machine in the document; csv and name have no place for them.
    told = tell if output in ("table", "wide") else say
    gains = ", ".join(f"{name} {value:.2f}" for name, value in tuning.gains.items())
    told(f"Chosen: {tuning.chosen}" + (f" (worth on fresh streams: {gains})." if gains else "."))
    if bound:
        figures = ", ".join(f"{value:.2f} % at {mark} %" for mark, value in extra["bound_percent"].items())
        told(f"No placement allocates more GPUs than {figures} of arrived demand.")


def _bounds(fleet: Fleet, mix: ShapeMix) -> dict[str, float]:
    """The bound at each of BOUND_MARKS, in percent of the fleet's GPUs."""
    from muster.planning.bound import allocation_bound

    return {str(mark): round(allocation_bound(fleet, mix, mark / 100).percent, 2) for mark in BOUND_MARKS}
