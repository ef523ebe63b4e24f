"""Nodes and their rate of failures, from a snapshot or a live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.answers.sources import open_view
from muster.answers.spares import failure_rate
from muster.errors import InputError
from muster.planning.question import FromData


def read_nodes(source: str, given: Mapping[str, Any]) -> FromData:
    """Nodes with GPUs (spares left out), and how often they failed of late; raises `InputError`."""
    view, _ = open_view(source)
    nodes = [node for node in view.snapshot.fleet if node.devices and not node.spare]
    if not nodes:
        raise InputError("has no nodes with GPUs", file=source)
    values: dict[str, Any] = {"nodes": len(nodes), "gpus": max(len(node.devices) for node in nodes)}
    sources = {"nodes": source, "gpus": f"{source}: the largest node"}
    rate = failure_rate(view)
    if rate.origin == "measured":
        values["rate"] = rate.per_node_day * 1000
        sources["rate"] = f"{source}: {rate.source}"
        return FromData(values, sources)
    return FromData(values, sources, (f"{source}: the rate of failures is not known from it; say --rate",))
