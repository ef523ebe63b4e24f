"""Nodes of Slurm as nodes of a fleet: state and reason, GPUs, features and partitions as labels, switches as levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from muster.model.fleet import MOST_GPUS_PER_NODE, Device, Fleet, Node, Topology
from muster.model.notes import Notes
from muster.slurm.records import SlurmNode, SlurmSwitch, gpus_asked
from muster.slurm.world import SlurmWorld

PARTITION = "partition.slurm/"
"""Begins the label of a node's partition; its value is ``yes``."""
FEATURE = "feature.slurm/"
"""Begins the label of a node's feature; its value is the feature."""

LEVELS = ("zone", "core", "block", "rack")
"""What the levels of a tree of switches are called, the leaf switches last; deeper trees count on: ``level-5``."""

CLOSED = {
    "DOWN": "down", "DRAIN": "drained", "DRAINED": "drained", "DRAINING": "draining", "FAIL": "failing",
    "FAILING": "failing", "FUTURE": "is not there yet (FUTURE)", "INVAL": "registered with less than slurm.conf says",
    "INVALID_REG": "registered with less than slurm.conf says", "NOT_RESPONDING": "does not respond",
    "NO_RESPOND": "does not respond", "REBOOT_ISSUED": "reboots", "POWERING_DOWN": "is being powered off",
    "UNKNOWN": "has not registered", "MAINT": "", "ERROR": "is in error", "PERFCTRS": "is used for counters",
}  # fmt: skip
"""States and flags in which a node takes no jobs, in plain words; of several the first in this order is told."""


class NodeReader:
    """Reads nodes; GPUs that are alike are one object, however many nodes have them."""

    def __init__(self, world: SlurmWorld, notes: Notes) -> None:
        self._world, self._notes = world, notes
        self._gpus: dict[str, tuple[Device, ...]] = {}
        self._types: dict[str, str] = {}
        self.levels, self._paths = levels_of(world.switches, [node.name for node in world.nodes])
        self._partitions: dict[str, list[str]] = {}
        for partition in world.partitions:
            for name in partition.nodes:
                self._partitions.setdefault(name, []).append(partition.name)

    def model(self, kind: str) -> str:
        """The GPU model that a type of GRES means: the type itself, as Slurm's own commands take it."""
        return self._types.setdefault(kind.casefold(), kind or "gpu")

    def nodes(self) -> list[Node]:
        """All nodes, in the order in which they were read."""
        found = [self._node(each) for each in self._world.nodes]
        weights = {each.weight for each in self._world.nodes}
        if len(weights) > 1:
            many = f"nodes have {len(weights)} different weights: Slurm takes the lightest first, here they count alike"
            self._notes.add("node", found[0].name, "Weight", many)
        return found

    def _node(self, found: SlurmNode) -> Node:
        partitions = dict.fromkeys((*found.partitions, *self._partitions.get(found.name, ())))
        labels = [(f"{PARTITION}{name}", "yes") for name in partitions]
        labels += [(f"{FEATURE}{name}", name) for name in found.features]
        reason = self._closed(found)
        if not partitions and self._world.partitions:
            reason = reason or "is in no partition"
        return Node(
            found.name,
            1000 * max(0, found.cpus - found.reserved_cpus),
            max(0, found.memory_mib - found.reserved_memory_mib) << 20,
            self._devices(found),
            labels=tuple(sorted(dict(labels).items())),
            topology=self._paths.get(found.name, ("",) * len(self.levels)),
            schedulable=not reason,
            reason=reason,
        )

    @staticmethod
    def _closed(found: SlurmNode) -> str:
        why = next((text for state, text in CLOSED.items() if text and state in found.state), "")
        return f"{why}: {found.reason}" if why and found.reason else why

    def _devices(self, found: SlurmNode) -> tuple[Device, ...]:
        if found.gres not in self._gpus:
            self._gpus[found.gres] = tuple(self._read_gpus(found))
        return self._gpus[found.gres]

    def _read_gpus(self, found: SlurmNode) -> Iterable[Device]:
        index = 0
        for part in _without_sockets(found.gres).split(","):
            count, types, others = gpus_asked(part)
            if others and others[0].partition(":")[0] in ("shard", "mps"):
                what = f"{others[0]}: shares of GPUs are not counted, only whole ones"
                self._notes.add("node", found.name, "Gres", what)
            for _ in range(count):
                if index == MOST_GPUS_PER_NODE:
                    what = f"has more than {MOST_GPUS_PER_NODE} GPUs: the others are left out"
                    self._notes.add("node", found.name, "Gres", what)
                    return
                yield Device(index, self.model(types[0] if types else ""))
                index += 1


def _without_sockets(gres: str) -> str:
    """``gpu:h100:8(S:0-1)`` without what stands in brackets."""
    found, depth = "", 0
    for sign in gres:
        depth += (sign == "(") - (sign == ")")
        found += sign if not depth and sign != ")" else ""
    return found


def levels_of(
    switches: Sequence[SlurmSwitch], names: Sequence[str]
) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """The levels of a fleet, widest first, and of each node its domain in each; a node on no switch is in none."""
    blocks = [each for each in switches if each.block]
    if blocks:
        # larger blocks are unions of smaller ones, which hold the node last
        least = min(len(each.nodes) for each in blocks)
        small = [each for each in blocks if len(each.nodes) < 2 * least or not each.below]
        return ("block",), {node: (each.name,) for each in small for node in each.nodes}
    parents = {below: each.name for each in switches for below in each.below}
    paths: dict[str, tuple[str, ...]] = {}
    for each in switches:
        if each.below:
            continue
        path, at = [each.name], each.name
        while at in parents and len(path) < 16:
            at = parents[at]
            path.append(at)
        paths.update(dict.fromkeys(each.nodes, tuple(reversed(path))))
    depth = max((len(path) for path in paths.values()), default=0)
    levels = (*(f"level-{depth - at}" for at in range(max(0, depth - len(LEVELS)))), *LEVELS[max(0, 4 - depth) :])
    whole = {node: ("",) * (depth - len(path)) + path for node, path in paths.items()}
    return levels[:depth] if depth else (), {name: whole[name] for name in names if name in whole}


def fleet_of(nodes: Sequence[Node], levels: tuple[str, ...], name: str) -> Fleet:
    """The fleet of these nodes."""
    return Fleet(tuple(nodes), Topology(levels), name)
