"""Muster's own format for traces and fleets (docs/reference/traces.md): compact, exact, same data same bytes.

A trace file has a header, then its distinct pod shapes, its distinct tuples of pod sets (which name shapes by their
number), its workloads (which name a tuple) and its skipped rows. A fleet file has a header, then its distinct hardware,
and its nodes (which name a hardware).
"""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct, field

from muster.model import Device, Fleet, Node, PodSet, PodShape, Taint, Toleration, Topology, Workload
from muster.traces.checks import check_node, check_pod_set, check_workload
from muster.traces.lines import Lines, write_lines
from muster.traces.tables import refuse_duplicate
from muster.traces.trace import Skipped, Trace

TRACE_SCHEMA, TRACE_VERSION = "muster.trace", 1
FLEET_SCHEMA, FLEET_VERSION = "muster.fleet", 1


class _TraceHeader(Struct, forbid_unknown_fields=True):
    schema: str
    name: str
    source: str
    epoch: str | None
    meta: tuple[tuple[str, str], ...]
    shapes: int
    pod_sets: int
    workloads: int
    skipped: int


class _Shape(Struct, forbid_unknown_fields=True, omit_defaults=True):
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    gpu_milli: int = 1000
    gpu_models: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    mig_profile: str = ""
    sharing: str = ""
    tenant: str = ""


class _PodSet(Struct, forbid_unknown_fields=True, omit_defaults=True):
    shape: int
    count: int = 1
    min_count: int | None = None
    role: str = "main"


class _Workload(Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    pod_sets: int
    submitted_s: float = 0.0
    duration_s: float | None = None
    time_limit_s: float | None = None
    recorded_wait_s: float | None = None
    queue: str = ""
    user: str = ""
    namespace: str = ""
    priority: int = 0
    quality: str = ""


class _Skipped(Struct, forbid_unknown_fields=True):
    file: str
    line: int
    field: str
    why: str


class _FleetHeader(Struct, forbid_unknown_fields=True):
    schema: str
    name: str
    levels: tuple[str, ...]
    hardware: int
    nodes: int


class _Hardware(Struct, forbid_unknown_fields=True, omit_defaults=True):
    cpu_milli: int
    memory_bytes: int
    devices: tuple[Device, ...] = ()


class _Node(Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    hardware: int
    labels: tuple[tuple[str, str], ...] = field(default_factory=tuple)
    taints: tuple[Taint, ...] = ()
    topology: tuple[str, ...] = ()
    schedulable: bool = True
    reason: str = ""
    purchase: str = ""
    spare: bool = False
    sharing: str = ""
    max_pods: int = 0


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace; gzip if the name ends in .gz. Raises `InputError` for values that no reader would take back."""
    target = os.fspath(path)
    shapes: dict[PodShape, int] = {}
    gangs: dict[tuple[PodSet, ...], int] = {}
    seen: dict[str, int] = {}
    rows: list[Any] = []
    for number, workload in enumerate(trace.workloads, start=1):
        check_workload(workload, target)
        refuse_duplicate(seen, workload.name, target, number, "name")
        gang = gangs.get(workload.pod_sets)
        if gang is None:
            gang = gangs[workload.pod_sets] = len(gangs)
            for pod_set in workload.pod_sets:
                check_pod_set(pod_set, target)
                shapes.setdefault(pod_set.shape, len(shapes))
        rows.append(
            _Workload(
                workload.name,
                gang,
                workload.submitted_s,
                workload.duration_s,
                workload.time_limit_s,
                workload.recorded_wait_s,
                workload.queue,
                workload.user,
                workload.namespace,
                workload.priority,
                workload.quality,
            )
        )
    header = _TraceHeader(
        f"{TRACE_SCHEMA}/v{TRACE_VERSION}",
        trace.name,
        trace.source,
        trace.epoch,
        trace.meta,
        shapes=len(shapes),
        pod_sets=len(gangs),
        workloads=len(rows),
        skipped=len(trace.skipped),
    )
    sets = [[_PodSet(shapes[one.shape], one.count, one.min_count, one.role) for one in gang] for gang in gangs]
    stored_shapes = [
        _Shape(
            one.cpu_milli,
            one.memory_bytes,
            one.gpus,
            one.gpu_milli,
            one.gpu_models,
            one.node_selector,
            one.tolerations,
            one.mig_profile,
            one.sharing,
            one.tenant,
        )
        for one in shapes
    ]
    write_lines([header, *stored_shapes, *sets, *rows, *trace.skipped], target)


def read_trace(path: str) -> Trace:
    """Read what `write_trace` wrote: equal to it, with shapes and pod sets shared."""
    lines = Lines(path)
    header = lines.header(TRACE_SCHEMA, TRACE_VERSION, _TraceHeader)
    shapes = [
        PodShape(
            row.cpu_milli,
            row.memory_bytes,
            row.gpus,
            row.gpu_milli,
            tuple(row.gpu_models),
            row.node_selector,
            row.tolerations,
            row.mig_profile,
            row.sharing,
            row.tenant,
        )
        for row in lines.section(header.shapes, _Shape, "shapes")
    ]
    gangs: list[tuple[PodSet, ...]] = []
    for sets in lines.section(header.pod_sets, tuple[_PodSet, ...], "pod_sets"):
        gangs.append(
            tuple(PodSet(lines.item(shapes, one.shape, "shape"), one.count, one.min_count, one.role) for one in sets)
        )
        for pod_set in gangs[-1]:
            check_pod_set(pod_set, path, lines.number)
    workloads = _read_workloads(lines, header.workloads, gangs)
    skipped = [
        Skipped(row.file, row.line, row.field, row.why) for row in lines.section(header.skipped, _Skipped, "skipped")
    ]
    lines.end()
    return Trace(header.name, header.source, workloads, tuple(skipped), header.epoch, header.meta)


def _read_workloads(lines: Lines, count: int, gangs: list[tuple[PodSet, ...]]) -> tuple[Workload, ...]:
    words: dict[str, str] = {"": ""}
    seen: dict[str, int] = {}
    workloads: list[Workload] = []
    for row in lines.section(count, _Workload, "workloads"):
        refuse_duplicate(seen, row.name, lines.path, lines.number, "name")
        workload = Workload(
            row.name,
            lines.item(gangs, row.pod_sets, "pod_sets"),
            row.submitted_s,
            row.duration_s,
            row.time_limit_s,
            row.recorded_wait_s,
            words.setdefault(row.queue, row.queue),
            words.setdefault(row.user, row.user),
            words.setdefault(row.namespace, row.namespace),
            row.priority,
            words.setdefault(row.quality, row.quality),
        )
        check_workload(workload, lines.path, lines.number)
        workloads.append(workload)
    return tuple(workloads)


def write_fleet(fleet: Fleet, path: str | os.PathLike[str]) -> None:
    """Write a fleet; gzip if the name ends in .gz. Raises `InputError` for values that no reader would take back."""
    target = os.fspath(path)
    kinds: dict[tuple[int, int, tuple[Device, ...]], int] = {}
    seen: dict[str, int] = {}
    rows: list[_Node] = []
    for number, node in enumerate(fleet.nodes, start=1):
        check_node(node, fleet, target)
        refuse_duplicate(seen, node.name, target, number, "name")
        kind = kinds.setdefault((node.cpu_milli, node.memory_bytes, node.devices), len(kinds))
        rows.append(
            _Node(
                node.name, kind, node.labels, node.taints, node.topology, node.schedulable, node.reason, node.purchase,
                node.spare, node.sharing, node.max_pods,
            )
        )  # fmt: skip
    header = _FleetHeader(
        f"{FLEET_SCHEMA}/v{FLEET_VERSION}", fleet.name, fleet.topology.levels, hardware=len(kinds), nodes=len(rows)
    )
    write_lines([header, *(_Hardware(*kind) for kind in kinds), *rows], target)


def read_stored_fleet(path: str) -> Fleet:
    """Read what `write_fleet` wrote: equal to it, with devices shared."""
    lines = Lines(path)
    header = lines.header(FLEET_SCHEMA, FLEET_VERSION, _FleetHeader)
    kinds = list(lines.section(header.hardware, _Hardware, "hardware"))
    fleet = Fleet(topology=Topology(header.levels), name=header.name)
    seen: dict[str, int] = {}
    nodes: list[Node] = []
    for row in lines.section(header.nodes, _Node, "nodes"):
        refuse_duplicate(seen, row.name, path, lines.number, "name")
        kind: _Hardware = lines.item(kinds, row.hardware, "hardware")
        node = Node(
            row.name,
            kind.cpu_milli,
            kind.memory_bytes,
            kind.devices,
            row.labels,
            row.taints,
            row.topology,
            row.schedulable,
            row.reason,
            row.purchase,
            row.spare,
            row.sharing,
            row.max_pods,
        )
        check_node(node, fleet, path, lines.number)
        nodes.append(node)
    lines.end()
    return Fleet(tuple(nodes), fleet.topology, header.name)
