"""What of a cluster's objects is not understood, or counts otherwise than it may be meant."""

from __future__ import annotations

from msgspec import Struct


class Note(Struct, frozen=True):
    """One such thing: of which object (the first of several), in which field, and what was made of it.

    ``count`` objects of the kind are alike in it.
    """

    kind: str
    name: str
    field: str
    text: str
    count: int = 1

    def __str__(self) -> str:
        more = f" and {self.count - 1:,} more" if self.count > 1 else ""
        return f"{self.kind} {self.name}{more}: {self.field}: {self.text}"


class Notes:
    """Collects notes; those that say the same of the same field are one, with a count of their objects."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[str, set[str]]] = {}

    def add(self, kind: str, name: str, field: str, text: str) -> None:
        """Note something of an object; ``text`` does not name the object."""
        _, names = self._found.setdefault((kind, field, text), (name, set()))
        names.add(name)

    def all(self) -> tuple[Note, ...]:
        """The notes, in the order in which they were first made."""
        return tuple(
            Note(kind, first, field, text, len(names)) for (kind, field, text), (first, names) in self._found.items()
        )

    def clear(self) -> None:
        """Forget them."""
        self._found.clear()
