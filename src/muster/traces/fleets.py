"""Fleets that need no file of nodes with all details: uniform ones, the bundled example, Alibaba's 2026 node list."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.catalog.mig_layouts import check_layout
from muster.errors import InputError
from muster.model import Device, Fleet, Node, Topology
from muster.model.fleet import NODE_SHARING
from muster.traces.spec import Options
from muster.traces.tables import MAX_CPU_MILLI, MAX_GPUS, read_table, refuse_duplicate

GIB = 2**30
UNIFORM_OPTIONS = (
    "nodes",
    "gpus",
    "model",
    "cpu",
    "memory_gib",
    "gpu_memory_gib",
    "prefix",
    "block",
    "rack",
    "nvlink_domain",
    "sharing",
    "mig",
)
UNIFORM_LEVELS = ("block", "rack", "nvlink_domain")
ALIBABA2026_COLUMNS = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
ALIBABA2026_OPTIONS = ("memory_gib_per_cpu",)


class NodeType(Struct, frozen=True):
    """Nodes that are alike."""

    prefix: str
    count: int
    model: str
    gpus: int
    gpu_memory_gib: int
    cpu: int
    memory_gib: int


EXAMPLE_TYPES = (
    NodeType("a100", 68, "A100-SXM4-80GB", 8, 80, 96, 512),
    NodeType("t4", 50, "T4", 2, 16, 104, 512),
    NodeType("a10", 16, "A10", 2, 24, 48, 256),
    NodeType("h100", 5, "H100-SXM5-80GB", 8, 80, 128, 1024),
    NodeType("v100", 8, "V100-SXM2-32GB", 4, 32, 48, 384),
    NodeType("l40s", 3, "L40S", 1, 48, 32, 256),
)
"""Synthetic. The shares of node types, GPUs a node and cores a GPU follow what was published on Alibaba's 2023 fleet
(45 % 8-GPU nodes with 12 cores a GPU, 32 % 2-GPU nodes with 52, 11 % 2-GPU nodes, 3 % 8-GPU nodes with 16, then small
groups); models, memory, names and topology are ours."""

_RACK = 10
_BLOCK = 50


def example_fleet() -> Fleet:
    """The bundled fleet: 150 nodes of six types, 751 GPUs, in racks of 10 and blocks of 50 nodes."""
    nodes: list[Node] = []
    for kind in EXAMPLE_TYPES:
        devices = _devices(kind.model, kind.gpus, kind.gpu_memory_gib)
        for number in range(1, kind.count + 1):
            place = (f"block-{len(nodes) // _BLOCK + 1}", f"rack-{len(nodes) // _RACK + 1:02d}")
            name = f"{kind.prefix}-{number:03d}"
            labels = (("node-type", kind.prefix),)
            nodes.append(Node(name, kind.cpu * 1000, kind.memory_gib * GIB, devices, labels=labels, topology=place))
    return Fleet(tuple(nodes), Topology(("block", "rack")), name="example")


def uniform_fleet(options: Options) -> Fleet:
    """``nodes`` alike, named PREFIX-1 ...; 8 GPUs, 96 cores and 512 GiB each unless the options say otherwise.

    ``block``, ``rack`` and ``nvlink_domain`` say how many nodes in a row each such domain has.
    """
    count = options.integer("nodes", None, 1, 1_000_000)
    gpus = options.integer("gpus", 8, 0, MAX_GPUS)
    model = options.text("model", "GPU")
    devices = _devices(model, gpus, options.integer("gpu_memory_gib", 0, 0, 4096))
    sharing = options.text("sharing", "any", ("any", *NODE_SHARING))
    if "mig" in options:
        layout = _layout(options.text("mig", ""), model)
        devices = tuple(replace(device, mig_profiles=layout) for device in devices)
    sharing = "" if sharing == "any" else sharing
    if "mig" in options and sharing not in ("", "mig"):
        raise InputError(f"mig={options.text('mig', '')} with sharing={sharing}", field="uniform", hint="sharing=mig")
    cpu_milli = round(options.number("cpu", 96, 0, MAX_CPU_MILLI / 1000) * 1000)
    memory_bytes = round(options.number("memory_gib", 512, 0, 2**20) * GIB)
    prefix, width = options.text("prefix", "node"), len(str(count))
    names = [f"{prefix}-{number:0{width}d}" for number in range(1, count + 1)]
    sizes = {level: options.integer(level, None, 1, count) for level in UNIFORM_LEVELS if level in options}
    for wider, narrower in pairwise(sizes):
        if sizes[wider] % sizes[narrower]:
            what = f"{sizes[wider]} nodes of a {wider} are no multiple of the {sizes[narrower]} of a {narrower}"
            raise InputError(what, field=wider)
    nodes = (
        Node(
            name,
            cpu_milli,
            memory_bytes,
            devices,
            topology=tuple(f"{level.replace('_', '-')}-{at // size + 1}" for level, size in sizes.items()),
            sharing=sharing,
        )
        for at, name in enumerate(names)
    )
    return Fleet(tuple(nodes), Topology(tuple(sizes)), name="uniform")


def _layout(text: str, model: str) -> tuple[tuple[str, int], ...]:
    """MIG instances written ``PROFILE@START/PROFILE@START``, starts in memory slices."""
    hint = "such as mig=3g.40gb@0/2g.20gb@4/1g.10gb@6; 'muster catalog mig MODEL' lists profiles and layouts"
    layout: list[tuple[str, int]] = []
    for part in text.split("/"):
        profile, _, start = part.strip().partition("@")
        if not (start.isascii() and start.isdigit() and len(start) < 3):
            raise InputError(f"{part[:40]!r} is no MIG instance", field="mig", hint=hint)
        layout.append((profile, int(start)))
    try:
        return check_layout(model, layout)
    except InputError as error:
        raise InputError(error.what, field="mig", hint=error.hint or hint) from None


def read_alibaba2026(path: str, options: Options) -> Fleet:
    """Alibaba's cluster-trace-v2026-spot-gpu node list. It has no memory: 4 GiB a core unless the option says else."""
    memory_gib_per_cpu = options.number("memory_gib_per_cpu", 4, 0, 4096)
    shared: dict[tuple[str, int], tuple[Device, ...]] = {}
    seen: dict[str, int] = {}
    nodes: list[Node] = []
    for row in read_table(path, ALIBABA2026_COLUMNS):
        name = row.name("node_name")
        refuse_duplicate(seen, name, path, row.line, "node_name")
        gpus, model = row.integer("gpu_capacity_num", 0, MAX_GPUS), row.text("gpu_model")
        if gpus and not model:
            raise row.error("gpu_model", f"is empty on a node with {gpus} GPUs")
        if (model, gpus) not in shared:
            shared[model, gpus] = _devices(model, gpus, 0)
        cores = row.integer("cpu_num", 0, MAX_CPU_MILLI // 1000)
        nodes.append(Node(name, cores * 1000, round(cores * memory_gib_per_cpu * GIB), shared[model, gpus]))
    return Fleet(tuple(nodes), name=Path(path).stem)


def _devices(model: str, gpus: int, memory_gib: int) -> tuple[Device, ...]:
    return tuple(Device(index, model, memory_gib * GIB) for index in range(gpus))
