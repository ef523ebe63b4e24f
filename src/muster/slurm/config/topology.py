"""Rules about topology: plugin and file, nodes that are not in it, switches that do not meet, sizes of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from muster.slurm.conf_lines import Entry
from muster.slurm.conf_topology import BLOCK, TREE
from muster.slurm.config.findings import ERROR, NOTE, WARNING, Hit, Look, Rule
from muster.slurm.hostlist import compress


def plugin_and_file(look: Look) -> Iterator[Hit]:
    """The plugin reads the file, and of the file what is its own."""
    plugin, topology = look.settings.get("TopologyPlugin"), look.config.topology
    kind = plugin.value.lower().rpartition("/")[2] if plugin is not None else ""
    if topology is not None and not topology.name:
        if kind not in (TREE, BLOCK):
            told = f"TopologyPlugin={plugin.value}" if plugin is not None else "no TopologyPlugin"
            what = f"{told}: {topology.path} is not read, gangs are placed as if all nodes were alike"
            yield Hit(plugin or _first(look), what, f"TopologyPlugin=topology/{topology.kind}")
        elif kind != topology.kind:
            what = (
                f"topology/{kind} does not read the {'blocks' if topology.kind == BLOCK else 'switches'} of "
                f"{topology.path}"
            )
            yield Hit(plugin, what, f"TopologyPlugin=topology/{topology.kind}", ERROR)
    elif topology is None and kind in (TREE, BLOCK):
        yield Hit(plugin, f"topology/{kind} without a topology.conf: slurmctld does not start",
                  "muster slurm config generate writes one from a fleet", ERROR)  # fmt: skip
    elif topology is None and look.nodes > 32:
        what = f"no topology: a gang may lie on any of {look.nodes:,} nodes, across all switches"
        yield Hit(_first(look), what, "TopologyPlugin=topology/tree and topology.conf", NOTE)


def _first(look: Look) -> Entry | None:
    return look.conf.nodes[0].entry if look.conf.nodes else None


def nodes_in_it(look: Look) -> Iterator[Hit]:
    """Each node is in one leaf, and each leaf's nodes are there."""
    for topology in look.config.topologies:
        inside = {name for _, nodes in topology.leaves for name in nodes}
        if not inside:
            continue
        known = {name for line in look.conf.nodes for name in line.names}
        outside = [name for line in look.conf.nodes for name in line.names if name not in inside]
        place = next((each.entry for each in (*topology.switches, *topology.blocks) if each.entry is not None), None)
        if outside:
            what = (
                f"{compress(outside)} are in no switch or block of {topology.path}: no job has them together with "
                "others"
            )
            yield Hit(place or _first(look), what, "add them to one")
        gone = sorted(inside - known)
        if gone:
            what = f"{compress(gone)} of {topology.path} are in no NodeName line"
            yield Hit(place or _first(look), what, "take them out")


def tops(look: Look) -> Iterator[Hit]:
    """Without a common switch no job spans them."""
    for topology in look.config.topologies:
        below = {child for each in topology.switches for child in each.switches}
        roots = [each for each in topology.switches if each.name not in below]
        optional = "topooptional" in look.settings.text("TopologyParam").lower()
        if topology.kind == TREE and len(roots) > 1 and not optional:
            names = ", ".join(each.name for each in roots[:4])
            what = (
                f"{names}{' ...' if len(roots) > 4 else ''} have no switch in common: no job can have nodes of "
                "two of them"
            )
            yield Hit(roots[-1].entry, what, f"SwitchName=core Switches={','.join(each.name for each in roots[:4])}")


def blocks(look: Look) -> Iterator[Hit]:
    """Sizes are those of full blocks."""
    for topology in look.config.topologies:
        if topology.kind != BLOCK or not topology.blocks:
            continue
        smallest = min(topology.blocks, key=lambda each: len(each.nodes))
        sizes = topology.block_sizes
        place = smallest.entry or _first(look)
        if sizes and sizes[0] > len(smallest.nodes):
            what = f"block size {sizes[0]}, and {smallest.name} has {len(smallest.nodes)} nodes: slurmctld refuses it"
            yield Hit(place, what, f"BlockSizes={len(smallest.nodes)}", ERROR)
        for one, other in pairwise(sizes):
            times = other // one if one else 0
            if not times or other % one or times & (times - 1):
                what = f"block size {other} is no power of two times {one}"
                yield Hit(place, what, f"BlockSizes={one},{one * 2}", ERROR)
        counts = {len(each.nodes) for each in topology.blocks}
        if len(counts) > 1 and not sizes:
            what = f"blocks of {min(counts)} to {max(counts)} nodes: segments are planned for the smallest"
            yield Hit(place, what, f"BlockSizes={min(counts)}", NOTE)


_FAMILY = "topology"
RULES = (
    Rule("topology-file", _FAMILY, WARNING, "plugin and file do not fit",
         "slurm.conf(5): TopologyPlugin; topology.conf(5)", plugin_and_file),
    Rule("topology-nodes", _FAMILY, WARNING, "nodes that are not in the topology", "topology.conf(5): Nodes",
         nodes_in_it),
    Rule("topology-tops", _FAMILY, WARNING, "switches that do not meet", "Slurm, Topology Guide (topology.html)", tops),
    Rule("block-sizes", _FAMILY, WARNING, "sizes that blocks do not have", "topology.conf(5): BlockSizes", blocks),
)  # fmt: skip
