"""`muster fleet`: what a fleet has, what is free, and in which pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, output_option, thousands

if TYPE_CHECKING:
    from muster.engine.state import FleetState


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show a fleet from a file: nodes by state, fragmentation by cause."""


@command.command(
    "show", epilog="\b\nExamples:\n  muster fleet show example\n  muster fleet show openb:nodes.csv -o json"
)
@click.argument("spec")
@output_option
def show(spec: str, output: str) -> None:
    """Count nodes and GPUs by hardware kind and state."""
    state = _read_state(spec)
    grouped: dict[tuple[int, str], dict[str, Any]] = {}
    for row, node in enumerate(state.node_list):
        free = state.nodes.gpu_free[row].tolist()
        kind = int(state.nodes.kind[row])
        status = _status(state, row)
        models = "+".join(node.gpu_models) or "no GPU"
        name = f"{node.healthy_gpus}x {models}, {node.cpu_milli / 1000:g} CPU, {node.memory_bytes / 2**30:.0f} GiB"
        start: dict[str, Any] = {"kind": name, "state": status, "nodes": 0, "gpus": 0, "gpus_free": 0.0}
        group = grouped.setdefault((kind, status), {**start, "gpus_whole_free": 0})
        group["nodes"] += 1
        group["gpus"] += node.healthy_gpus
        if node.schedulable:
            group["gpus_free"] += sum(free) / 1000
            group["gpus_whole_free"] += free.count(1000)
    columns = [
        Column("kind", "Kind"), Column("state", "State"), Column("nodes", "Nodes", right=True, show=thousands),
        Column("gpus", "GPUs", right=True, show=thousands), Column("gpus_free", "Free", right=True, show=thousands),
        Column("gpus_whole_free", "Whole free", right=True, show=thousands),
    ]  # fmt: skip
    records = [grouped[key] for key in sorted(grouped)]
    emit(records, columns, output=output, schema="muster.fleet.show/v1", list_key="groups")


@command.command(
    "frag", epilog="\b\nExamples:\n  muster fleet frag example\n  muster fleet frag openb:nodes.csv -o json"
)
@click.argument("spec")
@click.option("--workload", default="generate:mix=default,pods=2000", show_default=True, help="Its mix is typical.")
@output_option
def frag(spec: str, workload: str, output: str) -> None:
    """Tell how much free GPU is a fragment to the pods of a mix, by cause, and which gangs still fit."""
    from muster.engine.frag import fleet_fragment, gangs_that_fit
    from muster.model.workload import ShapeMix
    from muster.traces import read_workload

    state = _read_state(spec)
    mix = ShapeMix.of(read_workload(workload, state.fleet).workloads)
    usable = [row for row, node in enumerate(state.node_list) if node.schedulable]
    free = sum(sum(state.nodes.gpu_free[row].tolist()) for row in usable) / 1000
    whole = [state.nodes.gpu_free[row].tolist().count(1000) for row in usable]
    records: list[dict[str, Any]] = [{"item": "free GPUs", "value": round(free, 3)}]
    causes = fleet_fragment(state, mix)
    records += [{"item": f"fragment: {cause}", "value": round(milli / 1000, 3)} for cause, milli in causes.items()]
    size = 1
    while size <= max(sum(whole), 1):
        records.append({"item": f"gangs of {size}", "value": gangs_that_fit(whole, size)})
        size *= 2
    columns = [Column("item", "What"), Column("value", "GPUs or gangs", right=True, show=thousands)]
    emit(records, columns, output=output, schema="muster.fleet.frag/v1", list_key="items")


def _status(state: FleetState, row: int) -> str:
    node = state.node_list[row]
    if not node.schedulable:
        return "cordoned"
    if not state.nodes.pods[row]:
        return "whole free"
    full = not state.nodes.gpu_free[row].any() if node.healthy_gpus else state.nodes.cpu_free[row] <= 0
    return "full" if full else "partly used"


def _read_state(spec: str) -> FleetState:
    from muster.engine.frag import assign_running
    from muster.engine.state import FleetState
    from muster.errors import InputError
    from muster.traces import read_fleet, read_snapshot

    fleet, _ = read_fleet(spec)
    try:
        snapshot = read_snapshot(spec)
    except InputError:
        return FleetState(fleet)
    state = FleetState(snapshot.fleet)
    assign_running(state, snapshot)
    return state
