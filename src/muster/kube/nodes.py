"""Node objects as nodes of a fleet: sizes, GPUs and their health, place, taints.

- A node's size is its allocatable (its capacity where allocatable is absent). GPUs that are in the capacity but not in
  the allocatable are kept as unhealthy devices: the device plugin has withdrawn them.
- A node that its kubelet says nothing of yet, or that is cordoned or not ready, takes no pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.kube.dra.reader import DraReader, merged
from muster.kube.marks import Marks
from muster.kube.notes import Notes
from muster.kube.objects import GPU_RESOURCES, KubeNode, Quantity, first_of, parse_quantity
from muster.model.fleet import Device, Node, Taint, Topology

MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
COUNT_LABEL = "nvidia.com/gpu.count"
MEMORY_LABELS = ("nvidia.com/gpu.memory",)
LEVEL_LABELS = (
    ("region", ("topology.kubernetes.io/region",)),
    ("zone", ("topology.kubernetes.io/zone",)),
    ("block", ("cloud.provider.com/topology-block", "cloud.google.com/gce-topology-block")),
    ("rack", ("cloud.provider.com/topology-rack", "cloud.google.com/gce-topology-subblock")),
    ("nvlink_domain", ("nvidia.com/gpu.clique",)),
)
"""The levels that node labels tell of, widest first, with the labels that do, the first that a node has counts."""

MOST_GPUS = 1024
_MOST = {"cpu": 10**9, "memory": 2**50, "pods": 10**6}


class Level(Struct, frozen=True):
    """A level of the fleet's topology and the labels that name a node's domain in it."""

    name: str
    labels: tuple[str, ...]


def levels_of(nodes: Sequence[KubeNode]) -> tuple[Level, ...]:
    """The levels that some node with GPUs has a label for (some node, where there are no GPUs)."""
    with_gpus = [node for node in nodes if any(name in (node.status.capacity or {}) for name in GPU_RESOURCES)]
    known = {key for node in with_gpus or nodes for key in node.metadata.labels or ()}
    return tuple(Level(name, labels) for name, labels in LEVEL_LABELS if not known.isdisjoint(labels))


class NodeReader:
    """Reads nodes; GPUs that are alike are one object, however many nodes have them."""

    def __init__(self, levels: Sequence[Level], marks: Marks, notes: Notes, dra: DraReader) -> None:
        self.levels = tuple(levels)
        self._marks, self._notes, self._dra = marks, notes, dra
        self._devices: dict[tuple[tuple[str, int, int, int], ...], tuple[Device, ...]] = {}

    @property
    def topology(self) -> Topology:
        """The fleet's."""
        return Topology(tuple(level.name for level in self.levels))

    def node(self, found: KubeNode) -> Node:
        """One node."""
        meta, spec, status = found.metadata, found.spec, found.status
        sizes = status.allocatable or status.capacity or {}
        labels = meta.labels or {}
        reason = "cordoned" if spec.unschedulable else ""
        ready = next((one for one in status.conditions or () if one.type == "Ready"), None)
        if ready is not None and ready.status != "True":
            reason = f"not ready ({ready.reason or ready.status})"
        if "cpu" not in sizes or "memory" not in sizes:
            lacks = "cpu" if "cpu" not in sizes else "memory"
            self._notes.add("Node", meta.name, "status.allocatable", f"states no {lacks}: it takes no pods")
            reason = reason or f"states no {lacks}"
        marked = self._marks.of(labels, meta.name) if len(self._marks) else {}
        published = self._dra.gpus(found)
        gpus, twice = merged(self._gpus(found, sizes, labels), published, self._count(labels))
        if twice:
            text = "and a driver's ResourceSlice tell of the same GPUs: they count once here, and kube-scheduler gives"
            self._notes.add("Node", meta.name, "status.allocatable", f"{text} each of them out twice")
        return Node(
            meta.name,
            self._amount(meta.name, sizes, "cpu", 1000),
            self._amount(meta.name, sizes, "memory"),
            gpus,
            labels=tuple(sorted({**labels, **marked}.items())),
            taints=tuple(sorted({Taint(one.key, one.value or "", one.effect) for one in spec.taints or ()})),
            topology=tuple(first_of(labels, level.labels) for level in self.levels),
            schedulable=not reason,
            reason=reason,
            sharing=self._dra.sharing(published) if published and len(gpus) == len(published) else "",
            max_pods=self._amount(meta.name, sizes, "pods"),
        )

    @staticmethod
    def _count(labels: Mapping[str, str]) -> int:
        """How many GPUs GPU Feature Discovery found on the node; 0: it does not say."""
        told = labels.get(COUNT_LABEL, "")
        return int(told) if told.isascii() and told.isdigit() and len(told) < 5 else 0

    def _gpus(self, found: KubeNode, sizes: Mapping[str, Quantity], labels: Mapping[str, str]) -> tuple[Device, ...]:
        name, capacity = found.metadata.name, found.status.capacity or sizes
        memory = first_of(labels, MEMORY_LABELS)
        device_bytes = int(memory) * 2**20 if memory.isascii() and memory.isdigit() and len(memory) < 9 else 0
        parts: list[tuple[str, int, int, int]] = []
        for resource in GPU_RESOURCES:
            healthy = self._amount(name, sizes, resource)
            total = max(healthy, self._amount(name, capacity, resource))
            if total:
                parts.append(
                    (first_of(labels, MODEL_LABELS) or resource.partition(".")[0], device_bytes, total, healthy)
                )
        key = tuple(parts)
        if key not in self._devices:
            devices: list[Device] = []
            for model, size, total, healthy in parts:
                devices += [Device(len(devices) + at, model, size, healthy=at < healthy) for at in range(total)]
            self._devices[key] = tuple(devices)
        return self._devices[key]

    def _amount(self, node: str, sizes: Mapping[str, Quantity], name: str, scale: int = 1) -> int:
        if name not in sizes:
            return 0
        try:
            amount = parse_quantity(sizes[name], scale)
        except (ValueError, OverflowError):
            amount = -1
        if 0 <= amount <= _MOST.get(name, MOST_GPUS):
            return amount
        self._notes.add("Node", node, f"status.allocatable['{name}']", "is no amount that makes sense: it counts as 0")
        return 0
