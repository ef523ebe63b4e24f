"""Nodes that a fleet does not have yet: copies of some that it has, with names and domains of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from muster.answers.changes.values import AddDomains, AddNodes
from muster.catalog import Gpu, find_gpu
from muster.errors import InputError, near
from muster.model.fleet import HOST, Device, Node, Topology
from muster.slurm.hostlist import following

NARROW = ("rack", "nvlink_domain", HOST)
"""Levels whose domains have their full number of nodes, so that new nodes stand in new ones."""

_HEALTH_TAINTS = "node.kubernetes.io/"


def new_nodes(nodes: Sequence[Node], topology: Topology, change: AddNodes) -> list[Node]:
    """The nodes that the change adds."""
    if change.count < 1:
        raise InputError(f"adds {change.count} nodes", hint="1 at least")
    like = model_node(nodes, change.like)
    shape = _fresh(with_flavor(like, change.of) if change.of else like)
    places = _places(nodes, topology, like, change)
    names = following((node.name for node in nodes), like.name, change.count)
    return [_copy(shape, name, place) for name, place in zip(names, places, strict=True)]


def new_domains(nodes: Sequence[Node], topology: Topology, change: AddDomains) -> list[Node]:
    """The nodes of the domains that the change adds."""
    level = level_index(topology, change.level)
    members = [node for node in nodes if domain_of(node, level) == change.like]
    if not members:
        raise unknown_domain(nodes, topology, change.level, change.like)
    names = _Names(nodes, topology)
    found: list[Node] = []
    for _ in range(change.count):
        renamed: dict[tuple[int, str], str] = {}
        for node in members:
            place = list(node.topology)
            for at in range(level, len(place)):
                key = at, place[at]
                if key not in renamed:
                    renamed[key] = names.domain(at, place[at])
                place[at] = renamed[key]
            found.append(_copy(_fresh(node), names.node(node.name), tuple(place)))
    return found


def model_node(nodes: Iterable[Node], like: str) -> Node:
    """The node of a name, or the first one of a flavor."""
    nodes = list(nodes)
    for node in nodes:
        if node.name == like:
            return node
    for node in nodes:
        if node.flavor == like:
            return node
    hint = near(like, [*(node.name for node in nodes), *dict.fromkeys(node.flavor for node in nodes)])
    raise InputError(f"there is no node or flavor {like[:80]!r}", hint=hint or "name a node that the new ones are like")


def nearest_shape(nodes: Sequence[Node], flavor: str) -> Node:
    """The node that new ones of a GPU model are shaped like.

    One of this model; else of those with as many GPUs as the model's usual node has, else of all with GPUs, the first
    of the most frequent kind.
    """
    model = flavor.partition("/")[0]
    known = _catalog(model)
    usual = known.gpus_per_node if known else None
    with_gpus = [node for node in nodes if node.devices]
    choice = [node for node in with_gpus if node.gpu_models == (model,)]
    choice = choice or [node for node in with_gpus if len(node.devices) == usual] or with_gpus
    if not choice:
        raise InputError("the fleet has no node with GPUs", hint="nothing tells how the new nodes are shaped")
    kinds = Counter((len(node.devices), node.cpu_milli, node.memory_bytes) for node in choice)
    most = max(kinds.values())
    return next(node for node in choice if kinds[len(node.devices), node.cpu_milli, node.memory_bytes] == most)


def _catalog(model: str) -> Gpu | None:
    try:
        return find_gpu(model)
    except InputError:
        return None


def known_flavor(nodes: Iterable[Node], text: str) -> str:
    """A flavor as the fleet or the catalog calls it; raises `InputError`."""
    model, slash, purchase = text.partition("/")
    models = dict.fromkeys(model for node in nodes for model in node.gpu_models)
    if slash and purchase not in ("reserved", "on-demand", "spot"):
        raise InputError(f"there is no purchase option {purchase[:40]!r}", hint="reserved, on-demand or spot")
    return (model if model in models else find_gpu(model).name) + slash + purchase


def with_flavor(node: Node, flavor: str) -> Node:
    """A node with as many GPUs of another model."""
    model, _, purchase = flavor.partition("/")
    known = _catalog(model)
    memory_bytes = (known.memory_bytes or 0) if known else 0
    if node.gpu_models != (model,):
        devices = tuple(Device(each.index, model, memory_bytes) for each in node.devices)
        node = replace(node, devices=devices, labels=tuple(pair for pair in node.labels if "gpu" not in pair[0]))
    return replace(node, purchase=purchase or node.purchase)


def level_index(topology: Topology, level: str) -> int:
    """The position of a level; raises `InputError` with the levels that there are."""
    if level not in topology.levels:
        hint = near(level, topology.levels) or f"there are {', '.join(topology.levels)}"
        raise InputError(f"there is no level {level[:40]!r}", hint=hint if topology.levels else "the fleet has none")
    return topology.index(level)


def domain_of(node: Node, level: int) -> str:
    """The domain of a level in which a node stands; empty if in none."""
    return node.topology[level] if level < len(node.topology) else ""


def unknown_domain(nodes: Iterable[Node], topology: Topology, level: str, name: str) -> InputError:
    """The error for a domain that there is not."""
    known = list(dict.fromkeys(domain_of(node, topology.index(level)) for node in nodes))
    hint = near(name, known) or f"there are {', '.join(known[:5])}" + (" ..." if len(known) > 5 else "")
    return InputError(f"there is no {level} {name[:60]!r}", hint=hint)


class _Names:
    """New names for nodes and domains, each once."""

    def __init__(self, nodes: Iterable[Node], topology: Topology) -> None:
        nodes = list(nodes)
        self._nodes = [node.name for node in nodes]
        self._domains = [
            list(dict.fromkeys(domain_of(node, at) for node in nodes)) for at in range(len(topology.levels))
        ]

    def node(self, like: str) -> str:
        return self._new(self._nodes, like)

    def domain(self, level: int, like: str) -> str:
        return self._new(self._domains[level], like)

    @staticmethod
    def _new(known: list[str], like: str) -> str:
        (name,) = following(known, like, 1)
        known.append(name)
        return name


def _places(nodes: Sequence[Node], topology: Topology, like: Node, change: AddNodes) -> list[tuple[str, ...]]:
    """Where the new nodes stand: by default in new racks and NVLink domains, which are as large as that of ``like``."""
    place, first_new = list(like.topology), len(like.topology)
    if change.level:
        level = level_index(topology, change.level)
        inside = next((node for node in nodes if domain_of(node, level) == change.domain), None)
        if inside is None:
            raise unknown_domain(nodes, topology, change.level, change.domain)
        place[: level + 1] = inside.topology[: level + 1]
        first_new = level + 1
    else:
        narrow = [at for at, level in enumerate(topology.levels) if level in NARROW and at < len(place)]
        if narrow:
            first_new = narrow[0]
    names, sizes = _Names(nodes, topology), [1] * len(place)
    for at in range(first_new, len(place)):
        sizes[at] = sum(domain_of(node, at) == like.topology[at] for node in nodes)
    places: list[tuple[str, ...]] = []
    for number in range(change.count):
        for at in range(first_new, len(place)):
            if number % sizes[at] == 0:
                place[at] = names.domain(at, like.topology[at])
        places.append(tuple(place))
    return places


def _fresh(node: Node) -> Node:
    """A node as one that has just been put up: healthy, and without what health checks hung on it."""
    devices = tuple(each if each.healthy else replace(each, healthy=True) for each in node.devices)
    taints = tuple(each for each in node.taints if not each.key.startswith(_HEALTH_TAINTS))
    return replace(node, devices=devices, taints=taints, schedulable=True, reason="", spare=False)


def _copy(node: Node, name: str, place: tuple[str, ...]) -> Node:
    labels = tuple((key, name if value == node.name else value) for key, value in node.labels)
    return replace(node, name=name, labels=labels, topology=place)
