"""What was found in a heap of pasted text: pieces, facts and sighted lines, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

MOST_QUOTES = 3
"""Quotes kept of a signal or fact: the first ones and the last."""


class Quote(Struct, frozen=True):
    """A line where something stands; ``line`` is 1-based, ``time_s`` seconds since 1970 where the line is dated."""

    file: str
    line: int
    text: str
    time_s: float | None = None


class Fact(Struct, frozen=True):
    """Something that a structured piece says, such as ``gpus.allocatable`` is 0; ``node`` is empty: none is named."""

    key: str
    value: Any
    quote: Quote
    node: str = ""


class Piece(Struct):
    """A part of a file that was recognised; ``kind`` names the command that shows it (see rules/commands.yaml)."""

    kind: str
    file: str
    line: int
    node: str = ""


class Sighting(Struct):
    """Lines that show a signal: how many, and some of them."""

    count: int = 0
    quotes: list[Quote] = field(default_factory=list[Quote])

    def add(self, quote: Quote) -> None:
        """Another one; a line that two readers read is one."""
        if any(each.line == quote.line and each.file == quote.file and each.text == quote.text for each in self.quotes):
            return
        self.count += 1
        if len(self.quotes) < MOST_QUOTES:
            self.quotes.append(quote)
        else:
            self.quotes[-1] = quote


class Evidence(Struct):
    """All of it.

    Attributes:
        pieces: what was recognised.
        facts: by key, in the order in which they were found.
        lines: sightings by signal.
        unread: files, or parts of them, that could not be read, with the reason.
        total_lines: of all files.
    """

    pieces: list[Piece] = field(default_factory=list[Piece])
    facts: dict[str, list[Fact]] = field(default_factory=dict[str, list[Fact]])
    lines: dict[str, Sighting] = field(default_factory=dict[str, Sighting])
    unread: list[str] = field(default_factory=list[str])
    total_lines: int = 0

    def add(self, fact: Fact) -> None:
        """Another fact."""
        self.facts.setdefault(fact.key, []).append(fact)

    @property
    def kinds(self) -> set[str]:
        """Kinds of pieces that are there."""
        return {piece.kind for piece in self.pieces}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that pieces speak of, in order of appearance."""
        named = [fact.node for facts in self.facts.values() for fact in facts if fact.node]
        return tuple(dict.fromkeys([piece.node for piece in self.pieces if piece.node] + named))

    def of_node(self, node: str) -> Evidence:
        """What is about one node, or about none that is named."""
        facts = {
            key: kept
            for key, some in self.facts.items()
            if (kept := [each for each in some if each.node in ("", node)])
        }
        pieces = [piece for piece in self.pieces if piece.node in ("", node)]
        return Evidence(pieces, facts, self.lines, self.unread, self.total_lines)

    def values(self) -> Iterator[tuple[str, Any]]:
        """Each fact's key and its latest value."""
        for key, facts in self.facts.items():
            yield key, facts[-1].value
