"""A configuration as a fleet."""

from __future__ import annotations

from muster.catalog.gpu import Gpu
from muster.catalog.names import find_gpu
from muster.errors import InputError
from muster.model.fleet import MOST_GPUS_PER_NODE, Device, Fleet, Node, Topology
from muster.slurm.conf import ConfNode
from muster.slurm.conf_topology import BLOCK
from muster.slurm.config.files import Config

_MIB = 1 << 20
_AWAY = ("DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE")


def fleet_of(config: Config) -> Fleet:
    """The nodes of a configuration with their GPUs, features as labels, and the topology.

    GPU types are models of the catalog where it knows them. Nodes that are DOWN, DRAIN, FAIL or FUTURE there take no
    work. Of a tree the levels are named block, rack from the leaves up, as far as the tree is even; of blocks it is
    block.

    Raises:
        InputError: there is no node, or one has more GPUs than can be counted.
    """
    if not config.conf.nodes:
        raise InputError("has no NodeName line", file=config.conf.path)
    topology = config.topology
    none: dict[str, tuple[str, ...]] = {}
    paths = topology.paths() if topology is not None else none
    names = [name for line in config.conf.nodes for name in line.names]
    depths = {len(paths.get(name, ())) for name in names}
    even = len(depths) == 1 and depths != {0}
    depth = depths.pop() if even else 0
    if even and topology is not None and topology.kind != BLOCK and len({paths[name][0] for name in names}) == 1:
        depth -= 1  # the one switch above all tells nothing
    levels = ("block",) if topology is not None and topology.kind == BLOCK else ("zone", "block", "rack")
    levels = levels[-depth:] if depth <= len(levels) else tuple(f"level{at + 1}" for at in range(depth))
    nodes: list[Node] = []
    for line in config.conf.nodes:
        devices = _devices(line)
        labels = tuple(sorted((feature, "true") for feature in dict.fromkeys(line.features)))
        state = line.settings.text("State", "UNKNOWN").upper().partition("+")[0]
        away = state.startswith(_AWAY)
        reason = line.settings.text("Reason", state) if away else ""
        for name in line.names:
            path = paths[name][-depth:] if depth > 0 else ()
            nodes.append(
                Node(name, line.cpus * 1000, line.memory_mib * _MIB, devices, labels=labels, topology=path,
                     schedulable=not away, reason=reason)
            )  # fmt: skip
    fleet_levels = levels if depth > 0 else ()
    return Fleet(tuple(nodes), Topology(fleet_levels), name=config.conf.settings.text("ClusterName"))


def _devices(line: ConfNode) -> tuple[Device, ...]:
    devices: list[Device] = []
    for gres in line.gres:
        if gres.name != "gpu":
            continue
        if len(devices) + gres.count > MOST_GPUS_PER_NODE:
            setting = line.settings.get("Gres")
            assert setting is not None
            raise setting.error(f"{gres.count} GPUs on a node", f"at most {MOST_GPUS_PER_NODE}")
        known = _model(gres.type)
        model = known.name if known is not None else gres.type.upper() or "GPU"
        memory = known.memory_bytes or 0 if known is not None else 0
        devices += [Device(len(devices) + at, model, memory) for at in range(gres.count)]
    return tuple(devices)


def _model(kind: str) -> Gpu | None:
    try:
        return find_gpu(kind.replace("_", "-")) if kind else None
    except InputError:
        return None
