"""Labels that stand for what a node selector cannot say, such as a node affinity of several terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zlib import crc32

Takes = Callable[[Mapping[str, str], str], bool]
"""``takes(labels, name)``: whether a node of these labels and this name is meant."""

PREFIX = "muster.dev/asked-"


class Marks:
    """The conditions that pods were met with; a node bears the label of each that takes it.

    A condition is known by its words: the same words always mean the same nodes.
    """

    def __init__(self) -> None:
        self._takes: dict[str, Takes] = {}
        self._words: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._takes)

    def label(self, words: str, takes: Takes) -> tuple[str, str]:
        """The label, as a selector has it, of the nodes that ``takes`` takes."""
        key = f"{PREFIX}{crc32(words.encode()):08x}"
        self._takes.setdefault(key, takes)
        self._words.setdefault(key, words)
        return key, "yes"

    def of(self, labels: Mapping[str, str], name: str) -> dict[str, str]:
        """The labels of all conditions that take a node."""
        return {key: "yes" for key, takes in self._takes.items() if takes(labels, name)}

    @property
    def words(self) -> dict[str, str]:
        """Each label's key, and what it stands for."""
        return dict(self._words)
