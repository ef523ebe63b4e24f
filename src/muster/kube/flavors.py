"""ResourceFlavors of Kueue as flavors of Muster: a GPU model, and behind it how it is paid for or the flavor's name.

A node is of the ResourceFlavor with most labels that it bears. Where nodes of one GPU model are of several, the name
of theirs is behind the model, so that each has its own quota; else the model is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from muster.kube.kinds import FLAVORS
from muster.kube.nodes import purchase_of
from muster.kube.objects import KubeNode
from muster.kube.queue_objects import KubeFlavor
from muster.kube.world import World
from muster.model.fleet import Node

Labels = tuple[tuple[str, str], ...]


class Flavors:
    """The ResourceFlavors at the time of its making."""

    def __init__(self, world: World) -> None:
        self._labels: dict[str, Labels] = {
            name: tuple(sorted((each.spec.node_labels or {}).items()))
            for name, each in world.of(FLAVORS, KubeFlavor).items()
        }
        self._names: dict[Labels, str] = {}
        for name in sorted(self._labels):
            self._names.setdefault(self._labels[name], name)
        self._order = sorted(self._names, key=lambda labels: (-len(labels), labels))
        self._split: frozenset[str] = frozenset()

    def of_labels(self, labels: Mapping[str, str]) -> str:
        """The ResourceFlavor of a node; empty: none. Of those with the same labels, the first by name."""
        for wanted in self._order:
            if all(labels.get(key) == value for key, value in wanted):
                return self._names[wanted]
        return ""

    def split(self, nodes: Iterable[tuple[KubeNode, Sequence[str]]]) -> None:
        """Find the flavors whose names must tell nodes of one GPU model apart; of each node, its models."""
        of: dict[tuple[Sequence[str], str], set[str]] = {}
        for node, models in nodes:
            labels = node.metadata.labels or {}
            name = self.of_labels(labels)
            if models and name:
                of.setdefault((models, purchase_of(labels)), set()).add(name)
        self._split = frozenset(name for names in of.values() if len(names) > 1 for name in names)

    def purchase(self, labels: Mapping[str, str]) -> str:
        """What stands behind the GPU model in a node's flavor, because of its ResourceFlavor; empty: nothing."""
        name = self.of_labels(labels) if self._split else ""
        return name if name in self._split else ""

    def mapped(self, nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
        """Of each ResourceFlavor, the flavors of its nodes."""
        found: dict[str, dict[str, None]] = {}
        seen: dict[tuple[Labels, str], None] = {}
        for node in nodes:
            if node.devices:
                seen[node.labels, node.flavor] = None
        for labels, flavor in seen:
            name = self.of_labels(dict(labels))
            if name:
                found.setdefault(name, {})[flavor] = None
        return {name: tuple(found.get(self._names[labels], {name: None})) for name, labels in self._labels.items()}
