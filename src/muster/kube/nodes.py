"""Node objects as nodes of a fleet: sizes, GPUs and their health, place, taints.

- A node's size is its allocatable (its capacity where allocatable is absent). GPUs that are in the capacity but not in
  the allocatable are kept as unhealthy devices: the device plugin has withdrawn them.
- A node that its kubelet says nothing of yet, or that is cordoned or not ready, takes no pods.
- The levels of the topology are those of Kueue's or KAI's Topology object if there is one, else those that node labels
  tell of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from muster.kube.dra.reader import DraReader, merged
from muster.kube.gpus import (
    HAMI_REGISTER,
    MODEL_LABELS,
    SHARED,
    WHOLE,
    GpuMode,
    NodeGpus,
    count_of,
    node_gpus,
    share_milli,
)
from muster.kube.kinds import KAI_TOPOLOGIES, TOPOLOGIES
from muster.kube.marks import Marks
from muster.kube.objects import GPU_RESOURCES, KubeNode, Quantity, first_of, parse_quantity
from muster.kube.queue_objects import KubeTopology
from muster.kube.world import World
from muster.model.fleet import HOST, MOST_GPUS_PER_NODE, Device, Node, Taint, Topology
from muster.model.notes import Notes

__all__ = ["LEVEL_LABELS", "MODEL_LABELS", "Level", "NodeReader", "level_name", "levels_of"]

LEVEL_LABELS = (
    ("region", ("topology.kubernetes.io/region",)),
    ("zone", ("topology.kubernetes.io/zone",)),
    ("core", (
        "network.topology.nvidia.com/core", "topology.k8s.aws/network-node-layer-1", "fabric.topograph.run/tier-2",
    )),
    ("block", (
        "cloud.provider.com/topology-block", "cloud.google.com/gce-topology-block", "network.topology.nvidia.com/spine",
        "topology.k8s.aws/network-node-layer-2", "fabric.topograph.run/tier-1",
    )),
    ("rack", (
        "cloud.provider.com/topology-rack", "cloud.google.com/gce-topology-subblock",
        "network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3", "fabric.topograph.run/tier-0",
    )),
    ("nvlink_domain", (
        "nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator", "accelerator.topograph.run/domain",
        "ds.coreweave.com/nvlink.domain",
    )),
)  # fmt: skip
"""The levels that node labels tell of, widest first, with the labels that do; the first that a node has counts."""

HOST_LABEL = "kubernetes.io/hostname"
PURCHASE_LABELS = (
    ("cloud.google.com/gke-spot", {"true": "spot"}),
    ("cloud.google.com/gke-preemptible", {"true": "spot"}),
    ("eks.amazonaws.com/capacityType", {"SPOT": "spot", "ON_DEMAND": "on-demand", "CAPACITY_BLOCK": "reserved"}),
    ("karpenter.sh/capacity-type", {"spot": "spot", "on-demand": "on-demand", "reserved": "reserved"}),
    ("kubernetes.azure.com/scalesetpriority", {"spot": "spot"}),
)
"""Labels that tell how a node is paid for."""
SPARE_LABEL = "muster.dev/spare"

_LEVEL_OF = {label: level for level, labels in LEVEL_LABELS for label in labels} | {HOST_LABEL: HOST}
_MOST = {"cpu": 10**9, "memory": 2**50, "pods": 10**6}
_MOST_GPUS = 4096


class Level(Struct, frozen=True):
    """A level of the fleet's topology and the labels that name a node's domain in it."""

    name: str
    labels: tuple[str, ...]


def level_name(label: str) -> str:
    """The level that a node label is taken to tell of: a known one, or what stands behind its slash."""
    return _LEVEL_OF.get(label) or label.rpartition("/")[2]


def levels_of(nodes: Sequence[KubeNode], topologies: Sequence[KubeTopology] = (), notes: Notes | None = None) -> tuple[
    Level, ...
]:  # fmt: skip
    """The levels of a cluster.

    Those of the Topology object with most of them; else those that some node with GPUs has a label for (some node,
    where there are no GPUs).
    """
    with_gpus = [node for node in nodes if any(name in (node.status.capacity or {}) for name in GPU_RESOURCES)]
    known = {key for node in with_gpus or nodes for key in node.metadata.labels or ()}
    seen = tuple(Level(name, labels) for name, labels in LEVEL_LABELS if not known.isdisjoint(labels))
    told = sorted(topologies, key=lambda each: (-len(each.spec.levels or ()), each.metadata.name))
    if not told or not told[0].spec.levels:
        return seen
    for other in told[1:]:
        if notes is not None:
            what = f"levels are those of {told[0].metadata.name}: a fleet has one tree"
            notes.add("Topology", other.metadata.name, "spec.levels", what)
    labels = [each.node_label for each in told[0].spec.levels if level_name(each.node_label) != HOST]
    names = [level_name(label) for label in labels]
    levels = [
        Level(name if names.count(name) == 1 else label, (label,)) for name, label in zip(names, labels, strict=True)
    ]
    if seen and seen[-1].name == "nvlink_domain" and "nvlink_domain" not in names:
        levels.append(seen[-1])  # tensor parallel groups need it, whatever else the tree is made of
    return tuple(levels)


def topologies_in(world: World) -> list[KubeTopology]:
    """The Topology objects of Kueue; those of KAI where it has none."""
    found = world.of(TOPOLOGIES, KubeTopology) or world.of(KAI_TOPOLOGIES, KubeTopology)
    return list(found.values())


CLOSING_TAINTS = frozenset(f"node.kubernetes.io/{why}" for why in ("unschedulable", "not-ready", "unreachable"))
"""Set by the node lifecycle controller on nodes that are cordoned or not ready."""


class NodeReader:
    """Reads nodes; GPUs that are alike are one object, however many nodes have them.

    Attributes:
        purchase: tells of a node, by its labels, what its flavor is called behind the GPU model; empty: by the labels
            of clouds.
        modes: of the nodes by name, where one ``nvidia.com/gpu`` is no whole GPU, what it is.
        models: the GPU models that were met, with the least memory of one; 0: not known.
        shares: sizes and ways of the shares that ``nvidia.com/gpu.shared`` is of.
        version: another one when ``models`` or ``shares`` have changed.
    """

    def __init__(self, levels: Sequence[Level], marks: Marks, notes: Notes, dra: DraReader) -> None:
        self.levels = tuple(levels)
        self.purchase: Callable[[Mapping[str, str]], str] | None = None
        self._marks, self._notes, self._dra = marks, notes, dra
        self._gpus: dict[tuple[object, ...], tuple[NodeGpus, tuple[tuple[str, str], ...]]] = {}
        self.version = 0
        self._alike: dict[NodeGpus, NodeGpus] = {}
        self.modes: dict[str, GpuMode] = {}
        self.models: dict[str, int] = {}
        self.shares: dict[tuple[int, str], None] = {}

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
        if meta.deletion_timestamp is not None:
            reason = "is being deleted"
        if ready is not None and ready.status != "True":
            reason = f"not ready ({ready.reason or ready.status})"
        if "cpu" not in sizes or "memory" not in sizes:
            lacks = "cpu" if "cpu" not in sizes else "memory"
            self._notes.add("Node", meta.name, "status.allocatable", f"states no {lacks}: it takes no pods")
            reason = reason or f"states no {lacks}"
        # a node that is closed anyway has a taint that says so, which goes by itself when it is opened
        taints = [one for one in spec.taints or () if not (reason and one.key in CLOSING_TAINTS)]
        marked = self._marks.of(labels, meta.name) if len(self._marks) else {}
        gpus = self._with_dra(found, self._read_gpus(found, sizes, labels), labels)
        if gpus.mode is WHOLE:
            self.modes.pop(meta.name, None)
        else:
            self.modes[meta.name] = gpus.mode
        return Node(
            meta.name,
            self._amount(meta.name, sizes, "cpu", 1000),
            self._amount(meta.name, sizes, "memory"),
            gpus.devices,
            labels=tuple(sorted({**labels, **marked}.items())),
            taints=tuple(sorted({Taint(one.key, one.value or "", one.effect) for one in taints})),
            topology=tuple(first_of(labels, level.labels) for level in self.levels),
            schedulable=not reason,
            reason=reason,
            purchase=(self.purchase(labels) if self.purchase is not None else "") or purchase_of(labels),
            spare=labels.get(SPARE_LABEL) == "true",
            sharing=gpus.sharing,
            max_pods=self._amount(meta.name, sizes, "pods"),
        )

    def _with_dra(self, found: KubeNode, gpus: NodeGpus, labels: Mapping[str, str]) -> NodeGpus:
        """The GPUs of a node with those that DRA drivers publish."""
        published = self._dra.gpus(found)
        if not published:
            return gpus
        devices, twice = merged(gpus.devices, published, count_of(labels))
        if twice:
            text = "and a driver's ResourceSlice tell of the same GPUs: they count once here, and kube-scheduler gives"
            self._notes.add("Node", found.metadata.name, "status.allocatable", f"{text} each of them out twice")
        sharing = self._dra.sharing(published) if len(devices) == len(published) else ""
        self._met(devices)
        return NodeGpus(devices, sharing, gpus.mode)

    def _read_gpus(self, found: KubeNode, sizes: Mapping[str, Quantity], labels: Mapping[str, str]) -> NodeGpus:
        capacity = found.status.capacity or sizes
        gpu_labels = {key: value for key, value in labels.items() if "gpu" in key or "accelerator" in key}
        key = (
            tuple(each for each in sizes.items() if "." in each[0]),
            tuple(each for each in capacity.items() if "." in each[0]),
            tuple(gpu_labels.items()),
            found.metadata.annotation(HAMI_REGISTER),
        )
        name = found.metadata.name
        known = self._gpus.get(key)
        if known is None:
            said: list[tuple[str, str]] = []

            def amount(resource: str, allocatable: bool) -> int:
                return self._amount(name, sizes if allocatable else capacity, resource)

            gpus = node_gpus(found, sizes, amount, lambda field, text: said.append((field, text)))
            if len(gpus.devices) > MOST_GPUS_PER_NODE:
                said.append(("status.capacity", f"has more than {MOST_GPUS_PER_NODE} GPUs: the others are left out"))
                gpus = msgspec.structs.replace(gpus, devices=gpus.devices[:MOST_GPUS_PER_NODE])
            known = self._gpus[key] = self._alike.setdefault(gpus, gpus), tuple(said)
            self._met(known[0].devices)
            if amount(SHARED, False) and gpus.sharing:
                self.shares[share_milli(labels), gpus.sharing] = None
                self.version += 1
        for field, text in known[1]:
            self._notes.add("Node", name, field, text)
        return known[0]

    def _met(self, devices: Sequence[Device]) -> None:
        """GPU models are in the cluster: what pods ask for by memory or profile is told by them."""
        for device in devices:
            least = min(self.models.get(device.model, device.memory_bytes), device.memory_bytes)
            if self.models.get(device.model) != least:
                self.models[device.model] = least
                self.version += 1

    def _amount(self, node: str, sizes: Mapping[str, Quantity], name: str, scale: int = 1) -> int:
        if name not in sizes:
            return 0
        try:
            amount = parse_quantity(sizes[name], scale)
        except (ValueError, OverflowError):
            amount = -1
        if 0 <= amount <= _MOST.get(name, _MOST_GPUS):
            return amount
        self._notes.add("Node", node, f"status.allocatable['{name}']", "is no amount that makes sense: it counts as 0")
        return 0


def purchase_of(labels: Mapping[str, str]) -> str:
    """How a node is paid for by the labels of its cloud; empty where they do not say."""
    return next((known[labels[key]] for key, known in PURCHASE_LABELS if labels.get(key, "") in known), "")
