"""What a spec says of nodes and topology, in the words of the fleet that it is asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from msgspec.structs import replace

from muster.catalog import find_gpu
from muster.errors import InputError
from muster.kube.marks import PREFIX
from muster.kube.nodes import HOST_LABEL, LEVEL_LABELS, MODEL_LABELS
from muster.model.fleet import HOST, Fleet, Node

MARK = PREFIX
"""Begin of the labels that stand for what a selector cannot say; a checksum of that and of its nodes follows, so that
labels of several specs on one fleet do not meet."""

_LEVEL_OF = {label: level for level, labels in LEVEL_LABELS for label in labels} | {HOST_LABEL: HOST}
_LEVEL_LABELS = dict(LEVEL_LABELS) | {HOST: (HOST_LABEL,)}


class Places:
    """Translates labels to levels, and conditions on nodes to selectors, for one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._keys = frozenset(key for labels in {node.labels for node in fleet} for key, _ in labels)
        self._marks: dict[str, tuple[str, frozenset[str]]] = {}

    @property
    def fleet(self) -> Fleet:
        """The fleet; nodes that meet a condition bear its mark as a label."""
        if not self._marks:
            return self._fleet
        nodes = list(self._fleet.nodes)
        for label, (_, names) in self._marks.items():
            for at, node in enumerate(nodes):
                if node.name in names:
                    nodes[at] = replace(node, labels=tuple(sorted({*node.labels, (label, "yes")})))
        return replace(self._fleet, nodes=tuple(nodes))

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """Each mark as a selector writes it, and what it stands for."""
        return tuple((f"{label}=yes", words) for label, (words, _) in self._marks.items())

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return self._fleet.nodes

    @property
    def models(self) -> tuple[str, ...]:
        """The GPU models of the fleet, the most numerous first."""
        return tuple(self._fleet.gpus_by_model)

    def level(self, label: str) -> str:
        """The level of the fleet that a node label, or a level's name, means.

        Raises:
            InputError: the label means no level, or one that the fleet has not; without file and field.
        """
        levels = self._fleet.topology.with_hosts
        level = label if label in levels else _LEVEL_OF.get(label, "")
        if level not in levels and label.rpartition("/")[2] in levels:
            level = label.rpartition("/")[2]  # a level of a Topology object is called as its label ends
        if level in levels:
            return level
        known = ", ".join(next(iter(_LEVEL_LABELS.get(each, (each,)))) for each in levels)
        what = f"the fleet has no level {level}" if level else f"{label[:80]!r} is no topology label that is known"
        raise InputError(what, hint=f"the fleet has {known}")

    def domains(self, level: str) -> int:
        """How many domains of a level the fleet has."""
        return len(self.nodes) if level == HOST else len(self._fleet.domains(level))

    def labels(self, node: Node) -> Mapping[str, str]:
        """A node's labels, with those that follow from what it is where it bears none of that kind."""
        labels = dict(node.labels)
        labels.setdefault(HOST_LABEL, node.name)
        for level, name in zip(self._fleet.topology.levels, node.topology, strict=False):
            for label in _LEVEL_LABELS.get(level, ()):
                labels.setdefault(label, name)
        return labels

    def selector(self, asked: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Labels that a pod may select by, for those that it asks for, and the keys that no node has.

        Where nodes do not bear a label but are known to be what it says (host name, domain, GPU model), a mark stands
        for it.
        """
        found: dict[str, str] = {}
        unknown: list[str] = []
        derived = {*_LEVEL_OF, *MODEL_LABELS} - self._keys
        for key, value in asked.items():
            if key not in derived:
                found[key] = value
                if key not in self._keys:
                    unknown.append(key)
            elif key in MODEL_LABELS:
                found.update(self.mark(f"{key}={value}", lambda node, value=value: is_model(node, value)))
            else:
                has = {node.name for node in self.nodes if self.labels(node).get(key) == value}
                found.update(self.mark(f"{key}={value}", lambda node, has=has: node.name in has))
        return found, unknown

    def mark(self, words: str, allows: Callable[[Node], bool]) -> dict[str, str]:
        """The label that the nodes bear which ``allows`` takes; ``words`` say what that is, the same each time."""
        names = [node.name for node in self.nodes if allows(node)]
        label = f"{MARK}{crc32(chr(0).join([words, *names]).encode()):08x}"
        self._marks.setdefault(label, (words, frozenset(names)))
        return {label: "yes"}

    def models_like(self, name: str) -> tuple[str, ...]:
        """The fleet's GPU models that a short name such as ``h100`` or ``NVIDIA-H100-80GB-HBM3`` means."""
        return tuple(model for model in self.models if same_model(model, name))


def same_model(model: str, name: str) -> bool:
    """Whether a name means a GPU model: the same in the catalog, or a part of it between dashes."""
    if _catalog_name(model) == _catalog_name(name):
        return True
    words, asked = _words(_catalog_name(model)) + _words(model), _words(name)
    return bool(asked) and all(word in words for word in asked)


def is_model(node: Node, name: str) -> bool:
    """Whether all GPUs of a node are of the model that a name means."""
    return bool(node.devices) and all(same_model(model, name) for model in node.gpu_models)


def smallest(values: Iterable[int]) -> int:
    """The least of some numbers; 0 of none."""
    return min(values, default=0)


def _words(name: str) -> list[str]:
    return name.casefold().replace("_", "-").replace(" ", "-").split("-")


def _catalog_name(name: str) -> str:
    try:
        return find_gpu(name).name
    except InputError:
        return name
