"""What of a snapshot is free now and of no use to its pods; beside the bounds of `muster plan stranded`."""

from __future__ import annotations

from muster.engine.frag import assign_running, fleet_fragment
from muster.engine.state import FleetState
from muster.errors import MusterError
from muster.model.snapshot import Snapshot
from muster.model.workload import ShapeMix
from muster.planning.derivation import Table


def _name(cause: str) -> str:
    """As `muster fleet frag` calls it: `muster.report.causes`, a room above this one."""
    return (
        "closed nodes"
        if cause == "wrong_model"
        else cause.replace("_gpu", "_GPU").replace("_cpu", "_CPU").replace("_", " ")
    )


def free_now(snapshot: Snapshot) -> Table:
    """Free GPUs by why a typical pod of the snapshot could not take them."""
    state = FleetState(snapshot.fleet)
    title = "Free now and of no use to a typical pod, by cause (muster fleet frag)"
    try:
        assign_running(state, snapshot)
    except MusterError as error:
        return Table(title, ("cause", "GPUs"), ((str(error), ""),))
    mix = ShapeMix.of([*(run.workload for run in snapshot.running), *snapshot.pending])
    schedulable = [row for row, node in enumerate(state.node_list) if node.schedulable]
    free = sum(float(state.nodes.gpu_free[row].sum()) for row in schedulable) / 1000
    causes = {cause: milli / 1000 for cause, milli in fleet_fragment(state, mix).items()} if mix.shapes else {}
    rows = [
        (_name(cause), round(gpus, 1))
        for cause, gpus in sorted(causes.items(), key=lambda each: -each[1])
        if gpus > 0.05
    ]
    rows.append(("of use", round(free - sum(causes.values()), 1)))
    return Table(title, ("cause", "GPUs"), tuple(rows))
