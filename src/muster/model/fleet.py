"""The fleet: nodes, their devices, and the topology that they stand in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

WHOLE_GPU_MILLI = 1000
"""One whole GPU, in the unit ``gpu_milli``."""

MOST_GPUS_PER_NODE = 62
"""The engine keeps the devices of a node as a bit mask in a signed 64-bit integer."""

TOPOLOGY_LEVELS = ("region", "zone", "block", "rack", "nvlink_domain", "host")
"""The usual levels, widest first. A `Topology` may use any number of levels with any names."""


HOST = "host"
"""The level of the node itself, narrower than all others: every fleet has it, whether its topology names it or not."""

NODE_SHARING = ("none", "mig", "mps", "time-slicing", "soft")
"""How the GPUs of a node are shared, where that is fixed: only whole ones, only MIG instances, only shares by MPS or
time-slicing (which all GPUs of a node are then given out by), or whole ones and shares that the scheduler counts."""


class Taint(Struct, frozen=True, order=True):
    """A node's taint; ``effect`` is ``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Device(Struct, frozen=True):
    """One GPU of a node.

    Attributes:
        index: position on the node, 0-based, as ``nvidia-smi`` numbers it.
        model: the GPU model by its catalog name, such as ``H100-SXM5-80GB`` or a fleet's own name.
        memory_bytes: device memory; 0 where the source does not say.
        mig_profiles: MIG instances that are carved and stay so, as ``(profile, start)`` in memory slices: only these
            may be given out. Empty: none; they are carved as asked for, where the node's ``sharing`` lets them.
        healthy: False takes the device out of every placement.
    """

    index: int
    model: str
    memory_bytes: int = 0
    mig_profiles: tuple[tuple[str, int], ...] = ()
    healthy: bool = True


class Node(Struct, frozen=True):
    """One machine and what may be allocated on it.

    Attributes:
        name: unique in its fleet.
        cpu_milli: allocatable CPU, in thousandths of a core.
        memory_bytes: allocatable memory.
        devices: the GPUs in the order of their index.
        labels: sorted ``(key, value)`` pairs.
        taints: sorted taints.
        topology: the names of the domains that the node is in, one a level of `Fleet.topology`, widest first;
            empty where the fleet has none. The last level is not the node itself unless the topology says so.
        schedulable: False when cordoned, drained or not ready.
        reason: why not, in the source's words.
        spare: only replacements of lost pods may use it.
        purchase: how it is paid: ``reserved``, ``on-demand`` or ``spot``; empty where nobody said.
        sharing: how its GPUs may be shared: one of NODE_SHARING; empty: in any way, each GPU in one at a time.
        max_pods: how many pods it may have at once, as its kubelet counts them; 0: nobody limits that.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    devices: tuple[Device, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    topology: tuple[str, ...] = ()
    schedulable: bool = True
    reason: str = ""
    purchase: str = ""
    spare: bool = False
    sharing: str = ""
    max_pods: int = 0

    @property
    def flavor(self) -> str:
        """GPU model and purchase option, such as ``H100/reserved``; only the model where no option is known.

        Nodes without GPUs are of flavor ``cpu``. A node of several models is of the flavor of all, joined by ``+``.
        """
        models = "+".join(self.gpu_models) or "cpu"
        return f"{models}/{self.purchase}" if self.purchase else models

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """The distinct GPU models of the node, sorted."""
        return tuple(sorted({device.model for device in self.devices}))

    @property
    def healthy_gpus(self) -> int:
        """How many GPUs may be used."""
        return sum(device.healthy for device in self.devices)


def hardware(nodes: Sequence[Node]) -> list[tuple[str, int]]:
    """The flavor and the healthy GPUs of each node; those whose devices are one object are looked at once."""
    known: dict[tuple[int, str], tuple[str, int]] = {}
    found: list[tuple[str, int]] = []
    for node in nodes:
        key = id(node.devices), node.purchase
        if key not in known:
            known[key] = node.flavor, node.healthy_gpus
        found.append(known[key])
    return found


class Topology(Struct, frozen=True):
    """The names of a fleet's levels, widest first; any number, none is fine."""

    levels: tuple[str, ...] = ()

    @property
    def with_hosts(self) -> tuple[str, ...]:
        """All levels that a request may name: these, and `HOST`."""
        return self.levels if HOST in self.levels else (*self.levels, HOST)

    def index(self, level: str) -> int:
        """Position of ``level``; raises `KeyError` with the known names."""
        try:
            return self.levels.index(level)
        except ValueError:
            raise KeyError(f"unknown topology level {level!r}; known: {', '.join(self.levels) or 'none'}") from None


class Fleet(Struct, frozen=True):
    """All nodes, in a fixed order, with their topology."""

    nodes: tuple[Node, ...] = ()
    topology: Topology = field(default_factory=Topology)
    name: str = ""

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @property
    def gpus(self) -> int:
        """All GPUs, healthy or not."""
        return sum(len(node.devices) for node in self.nodes)

    @property
    def capacity_milli(self) -> Mapping[str, int]:
        """Flavor to what may be used of it now: healthy GPUs of schedulable nodes that are no spares, in milli GPU."""
        counted: dict[str, int] = {}
        for node, (flavor, gpus) in zip(self.nodes, hardware(self.nodes), strict=True):
            if gpus and node.schedulable and not node.spare:
                counted[flavor] = counted.get(flavor, 0) + gpus * WHOLE_GPU_MILLI
        return counted

    @property
    def gpus_by_model(self) -> Mapping[str, int]:
        """GPU model to number of GPUs, the most numerous first."""
        counted = Counter(device.model for node in self.nodes for device in node.devices)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))

    @property
    def cpu_milli(self) -> int:
        """Allocatable CPU of all nodes, in thousandths of a core."""
        return sum(node.cpu_milli for node in self.nodes)

    @property
    def memory_bytes(self) -> int:
        """Allocatable memory of all nodes."""
        return sum(node.memory_bytes for node in self.nodes)

    def domains(self, level: str) -> Mapping[str, tuple[Node, ...]]:
        """Domain name to its nodes at ``level``, in the fleet's order."""
        position = self.topology.index(level)
        grouped: dict[str, list[Node]] = {}
        for node in self.nodes:
            if position < len(node.topology):
                grouped.setdefault(node.topology[position], []).append(node)
        return {name: tuple(members) for name, members in grouped.items()}
