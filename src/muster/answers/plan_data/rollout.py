"""The nodes to upgrade and the work on them, from a snapshot or a live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.answers.sources import open_view
from muster.answers.words import plural
from muster.errors import InputError
from muster.planning.question import FromData


def read_rollout(source: str, given: Mapping[str, Any]) -> FromData:
    """Nodes with GPUs, and of what runs on them the sizes and the times that are left; raises `InputError`."""
    view, _ = open_view(source)
    nodes = [node for node in view.snapshot.fleet if node.devices]
    if len(nodes) < 2:
        raise InputError("has fewer than two nodes with GPUs", file=source)
    values: dict[str, Any] = {"nodes": len(nodes), "gpus": max(len(node.devices) for node in nodes)}
    sources = {"nodes": source, "gpus": f"{source}: the largest node"}
    runs = [run for run in view.snapshot.running if run.workload.gpu_milli]
    if runs:
        spans = [len({pod.node for pod in run.pods}) for run in runs]
        held = sum(spans)
        values["gang_nodes"] = max(1, round(sum(span * span for span in spans) / held)) if held else 1
        sources["gang_nodes"] = f"{source}: {plural(len(runs), 'gang')} that run, by the nodes that they hold"
    left = [
        max(0.0, run.started_s + run.workload.time_limit_s - view.now_s)
        for run in runs
        if run.workload.time_limit_s is not None
    ]
    told: tuple[str, ...] = ()
    if left:
        values["remaining_s"] = sum(left) / len(left)
        sources["remaining_s"] = f"{source}: {plural(len(left), 'time limit')}; they end earlier as a rule"
    elif runs:
        told = (f"{source}: nothing that runs has a time limit: say --remaining yourself",)
    return FromData(values, sources, told)
