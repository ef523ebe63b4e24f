"""`muster fleet`: what a fleet has, what is free, and in which pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, say, tell, thousands
from muster.cli.source import fleet_options

if TYPE_CHECKING:
    from muster.cli.source import FleetSource
    from muster.engine.state import FleetState
    from muster.model.fleet import Node
    from muster.model.snapshot import Snapshot
    from muster.model.workload import ShapeMix

STATES = ("whole free", "partly used", "full", "unhealthy devices", "tainted", "cordoned")
"""States of a node, in the order of the listing; of those that hold, the last one counts."""

GENERATED = "generate:mix=default,pods=2000"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show a fleet: nodes by state, free GPUs that are of no use by cause.

    SPEC is a fleet, as `muster trace --help` lists them, such as kubectl:DUMP.json, openb:NODES.csv or example; or
    what the other commands take: a live cluster by --context, a snapshot, a run file or a history by --from.
    """


@command.command(
    "show",
    epilog="\b\nExamples:\n  muster fleet show example\n  kubectl get nodes,pods -A -o json > now.json\n"
    "  muster fleet show kubectl:now.json -o wide\n  muster fleet show --context prod",
)
@fleet_options
@output_option
def show(fleet: FleetSource, output: str) -> None:
    """Count nodes and GPUs by hardware kind and state.

    A node is in the last of these states that holds: whole free, partly used, full, unhealthy devices, tainted,
    cordoned (drained, not ready). Free GPUs of cordoned nodes are not counted as free.
    """
    state, _ = _read_state(fleet)
    groups: dict[tuple[int, int], dict[str, Any]] = {}
    for row, node in enumerate(state.node_list):
        kind, status = int(state.nodes.kind[row]), STATES.index(_status(state, row))
        if (kind, status) not in groups:
            groups[kind, status] = {
                "kind": _kind_name(node), "state": STATES[status], "nodes": 0, "gpus": 0, "gpus_free": 0.0,
                "gpus_whole_free": 0, "gpus_unhealthy": 0, "first_nodes": "",
            }  # fmt: skip
        group = groups[kind, status]
        group["nodes"] += 1
        group["gpus"] += node.healthy_gpus
        group["gpus_unhealthy"] += len(node.devices) - node.healthy_gpus
        if group["nodes"] <= 3:
            group["first_nodes"] = f"{group['first_nodes']} {node.name}".strip()
        if node.schedulable:
            free = state.nodes.gpu_free[row].tolist()
            group["gpus_free"] += sum(free) / 1000
            group["gpus_whole_free"] += free.count(1000)
    columns = [
        Column("kind", "Kind"), Column("state", "State"), Column("nodes", "Nodes", right=True, show=thousands),
        Column("gpus", "GPUs", right=True, show=thousands), Column("gpus_free", "Free", right=True, show=thousands),
        Column("gpus_whole_free", "Whole free", right=True, show=thousands),
        Column("gpus_unhealthy", "Unhealthy", right=True, wide=True, show=thousands),
        Column("first_nodes", "First nodes", wide=True),
    ]  # fmt: skip
    records = [groups[key] for key in sorted(groups)]
    emit(records, columns, output=output, schema="muster.fleet.show/v1", list_key="groups")


@command.command(
    "frag",
    epilog="\b\nExamples:\n  muster fleet frag example\n  muster fleet frag kubectl:now.json\n"
    "  muster fleet frag openb:nodes.csv --workload openb:pods.csv -o json\n  muster fleet frag --context prod",
)
@fleet_options
@click.option(
    "--workload", metavar="SPEC", help=f"Its mix is typical. Default: the fleet's own GPU pods, or {GENERATED}."
)
@output_option
def frag(fleet: FleetSource, workload: str | None, output: str) -> None:
    """Tell how much free GPU is of no use, why, which gangs still fit, and in which pieces it lies.

    A GPU is of no use to a typical pod that could not take it; of typical pods, the mean is told.

    A gang of up to 8 GPUs is one pod; a larger one is made of pods of 8, on GPUs of one model. A pod of a gang asks
    for the mean CPU and memory of the mix's pods of its size; cordoned and tainted nodes take none.
    """
    state, snapshot = _read_state(fleet)
    mix, source = _mix(state, snapshot, workload)
    free = sum(float(state.nodes.gpu_free[row].sum()) for row in _schedulable(state)) / 1000
    causes = _causes(state, mix, free)
    gangs, pieces = _gangs(state, mix), _pieces(state)
    advice = _advice(causes, empty=not state.nodes.pods.any()) if free else "No GPU is free."
    if output in ("json", "yaml"):
        document = {
            "schema": "muster.fleet.frag/v1", "gpus_free": round(free, 3), "typical_pods": source, "causes": causes,
            "gangs": gangs, "pieces": pieces, "advice": advice,
        }  # fmt: skip
        emit_document(document, output)
    elif output in ("csv", "name"):
        records = [{"item": one["cause"], **one} for one in causes]
        records += [{"item": one["piece"], **one} for one in pieces]
        records += [{"item": f"gangs of {one['gpus']}", **one, "gpus": None} for one in gangs]
        keys = ("item", "gpus", "percent", "gangs", "pods", "cpu_milli", "memory_bytes")
        columns = [Column(key, key) for key in keys]
        emit(records, columns, output=output, schema="muster.fleet.frag/v1", list_key="items")
    else:
        _print_frag(free, source, causes, gangs, advice)
        click.echo()
        rows = [[one["name"], f"{one['gpus']:,.1f}", f"{one['percent']:.1f}", one["meaning"]] for one in pieces]
        columns = [
            Column("name", "Free GPUs lie in"), Column("gpus", "GPUs", right=True), Column("percent", "%", right=True),
            Column("meaning", "What it is"),
        ]  # fmt: skip
        print_table(columns, [row for row, one in zip(rows, pieces, strict=True) if one["gpus"]])


def _print_frag(
    free: float, source: str, causes: list[dict[str, Any]], gangs: list[dict[str, Any]], advice: str
) -> None:
    columns = [
        Column("name", f"Of {thousands(round(free, 1))} free GPUs"), Column("gpus", "GPUs", right=True),
        Column("percent", "%", right=True), Column("meaning", "What it is"),
    ]  # fmt: skip
    shown = [one for one in causes if one["gpus"] or one["cause"] == "useful"]
    rows = [[one["name"], f"{one['gpus']:,.1f}", f"{one['percent']:.1f}", one["meaning"]] for one in shown]
    click.echo(f"Typical pods: {source}.\n")
    print_table(columns, rows)
    click.echo()
    tell(advice)
    click.echo()
    columns = [
        Column("gpus", "Gang of", right=True), Column("gangs", "Fit", right=True), Column("pod", "Each pod asks for"),
    ]  # fmt: skip
    rows = [
        [f"{one['gpus']:,}", f"{one['gangs']:,}", (f"{one['pods']} x " if one["pods"] > 1 else "") + one["pod"]]
        for one in gangs
    ]
    print_table(columns, rows)


def _causes(state: FleetState, mix: ShapeMix, free: float) -> list[dict[str, Any]]:
    """Fragments by cause, the largest first, and what is of use to the typical pods."""
    from muster.engine.frag import fleet_fragment
    from muster.report.causes import CAUSE_WORDS

    fragment = {cause: milli / 1000 for cause, milli in fleet_fragment(state, mix).items()}
    ordered = sorted(fragment.items(), key=lambda one: -one[1])
    rows = [(cause, gpus, CAUSE_WORDS[cause].name, CAUSE_WORDS[cause].meaning) for cause, gpus in ordered]
    useful = max(0.0, free - sum(fragment.values()))
    rows.append(("useful", useful, "useful", "no fragment: a typical pod could take it"))
    return [
        {"cause": cause, "name": name, "gpus": round(gpus, 3), "percent": round(100 * gpus / free, 2) if free else 0.0,
         "meaning": meaning}
        for cause, gpus, name, meaning in rows
    ]  # fmt: skip


def _pieces(state: FleetState) -> list[dict[str, Any]]:
    """Where free GPU lies, by what it is a part of; sums up to all that is free."""
    from muster.engine.pieces import free_pieces
    from muster.report.causes import PIECE_WORDS

    milli = free_pieces(state)
    free = max(sum(milli.values()), 1)
    return [
        {"piece": piece, "name": PIECE_WORDS[piece].name, "gpus": amount / 1000,
         "percent": round(100 * amount / free, 2), "meaning": PIECE_WORDS[piece].meaning}
        for piece, amount in milli.items()
    ]  # fmt: skip


def _advice(causes: list[dict[str, Any]], *, empty: bool) -> str:
    """One sentence: the dominant cause among those about which something can be done, and what that is."""
    from muster.report.causes import CAUSE_WORDS

    for one in causes:
        words = CAUSE_WORDS.get(one["cause"])
        todo = "" if words is None else words.remedy_empty if empty else words.remedy
        if todo and one["gpus"]:
            return f"Most is lost to {one['name']}, {one['gpus']:,.1f} GPUs ({one['percent']:.1f} %): {todo}."
    return "Nothing is lost that could be won back."


def _gangs(state: FleetState, mix: ShapeMix) -> list[dict[str, Any]]:
    """Gangs of 1, 2, 4 ... GPUs: at least up to one node, at most up to all whole free GPUs."""
    from muster.engine.frag import MOST_GPUS_PER_POD, gangs_that_fit

    whole = sum(state.nodes.gpu_free[row].tolist().count(1000) for row in _schedulable(state))
    records: list[dict[str, Any]] = []
    size = 1
    while size <= max(whole, MOST_GPUS_PER_POD):
        fit = gangs_that_fit(state, mix, size)
        records.append({
            "gpus": fit.gpus, "gangs": fit.gangs, "pods": fit.pods, "pod": fit.pod.describe(),
            "cpu_milli": fit.pod.cpu_milli, "memory_bytes": fit.pod.memory_bytes,
        })  # fmt: skip
        size *= 2
    return records


def _mix(state: FleetState, snapshot: Snapshot, workload: str | None) -> tuple[ShapeMix, str]:
    """The typical pods, and where they are from."""
    from muster.model.workload import ShapeMix
    from muster.traces import read_workload

    own = [*(run.workload for run in snapshot.running), *snapshot.pending]
    if workload is None and any(one.gpu_milli for one in own):
        return ShapeMix.of(own), "those that run and wait on this fleet"
    spec = workload or GENERATED
    return ShapeMix.of(read_workload(spec, state.fleet).workloads), spec


def _schedulable(state: FleetState) -> list[int]:
    return [row for row, node in enumerate(state.node_list) if node.schedulable]


def _kind_name(node: Node) -> str:
    gpus = f"{node.healthy_gpus}x {'+'.join(node.gpu_models)}" if node.devices else "no GPU"
    return f"{gpus}, {node.cpu_milli / 1000:g} CPU, {node.memory_bytes / 2**30:.0f} GiB"


def _status(state: FleetState, row: int) -> str:
    node = state.node_list[row]
    if not node.schedulable:
        return "cordoned"
    if any(taint.effect != "PreferNoSchedule" for taint in node.taints):
        return "tainted"
    if node.healthy_gpus < len(node.devices):
        return "unhealthy devices"
    if not state.nodes.pods[row]:
        return "whole free"
    full = not state.nodes.gpu_free[row].any() if node.healthy_gpus else state.nodes.cpu_free[row] <= 0
    return "full" if full else "partly used"


def _read_state(fleet: FleetSource) -> tuple[FleetState, Snapshot]:
    """The fleet with what runs on it, where the source tells."""
    from muster.engine.frag import assign_running
    from muster.engine.state import FleetState

    if fleet.spec is None:
        from muster.answers.sources import read_source
        from muster.cli.source import at_of

        snapshot, skipped = read_source(fleet.source, at_of(fleet.source, fleet.at), warn=say)
    else:
        from muster.traces import read_fleet_as_it_is

        snapshot, skipped = read_fleet_as_it_is(fleet.spec)
    for one in skipped[:3]:
        say(f"skipped {one}")
    if len(skipped) > 3:
        say(f"skipped {len(skipped) - 3:,} more")
    state = FleetState(snapshot.fleet)
    assign_running(state, snapshot)
    return state, snapshot
