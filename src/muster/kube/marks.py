"""Labels that stand for what a node selector cannot say, such as a node affinity of several terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from muster.model.workload import PASSING

Takes = Callable[[Mapping[str, str], str], bool]
"""``takes(labels, name)``: whether a node of these labels and this name is meant."""

PREFIX = "muster.dev/asked-"
_NO_LABEL = re.compile(r"[^A-Za-z0-9./:<>*-]+")


def is_mark(key: str) -> bool:
    """Whether a label stands for a condition: no node has it in the cluster, and no pod can be told to leave it out."""
    return key.startswith((PREFIX, PASSING))


def label_words(key: str, value: str) -> str:
    """A label as people read it: ``key=value``, or the words of the condition that it stands for."""
    return value.replace("_", " ") if is_mark(key) else f"{key}={value}"


def _always() -> int:
    return 0


class Marks:
    """The conditions that pods were met with; a node bears the label of each that takes it.

    A condition is known by its words: the same words always mean the same nodes.
    """

    def __init__(self) -> None:
        self._takes: dict[str, Takes] = {}
        self._words: dict[str, str] = {}
        self._version: dict[str, Callable[[], int]] = {}
        self._seen: dict[str, int] = {}
        self._takers: dict[str, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._takes)

    def label(
        self, words: str, takes: Takes, more: str = "", version: Callable[[], int] | None = None
    ) -> tuple[str, str]:
        """The label, as a selector has it, of the nodes that ``takes`` takes; its value has the words.

        ``more``: what tells conditions of the same words apart. ``version``, of what passes as pods come and go, is
        another number when ``takes`` may take other nodes than before.
        """
        prefix, version = (PREFIX, _always) if version is None else (PASSING, version)
        key = f"{prefix}{crc32((words + more).encode()):08x}"
        self._takes.setdefault(key, takes)
        self._words.setdefault(key, words)
        self._version.setdefault(key, version)
        return key, _NO_LABEL.sub("_", words).strip("_")

    def changed(self, nodes: Iterable[tuple[str, Mapping[str, str]]]) -> set[str]:
        """The names of the nodes, told with their labels, that bear another label than at the last call."""
        found: set[str] = set()
        nodes = list(nodes)
        for key, takes in self._takes.items():
            version = self._version[key]()
            if self._seen.get(key) == version:
                continue
            self._seen[key] = version
            takers = frozenset(name for name, labels in nodes if takes(labels, name))
            found |= takers ^ self._takers.get(key, frozenset())
            self._takers[key] = takers
        return found

    def of(self, labels: Mapping[str, str], name: str) -> dict[str, str]:
        """The labels of all conditions that take a node."""
        takers = (key for key, takes in self._takes.items() if takes(labels, name))
        return {key: _NO_LABEL.sub("_", self._words[key]).strip("_") for key in takers}

    @property
    def words(self) -> dict[str, str]:
        """Each label's key, and what it stands for."""
        return dict(self._words)
