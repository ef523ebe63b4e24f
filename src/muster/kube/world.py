"""The objects of a cluster as they were read, by kind; what reads and watches fills it, what translates reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from muster.kube.objects import Meta


class KubeObject(Protocol):
    """Any object: it has its metadata."""

    metadata: Meta


class Kind(Struct, frozen=True):
    """A kind of object that is read.

    Attributes:
        resource: its plural name in lower case, as in a URL and in RBAC: ``pods``.
        group: its API group; empty is the core.
        kind: as in an object's ``kind``: ``Pod``.
        versions: those that are understood, the preferred one first.
        needed: whether nothing can be said without it.
    """

    resource: str
    group: str
    kind: str
    versions: tuple[str, ...]
    needed: bool = False

    @property
    def name(self) -> str:
        """``resourceslices.resource.k8s.io``; of the core only ``pods``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


_T = TypeVar("_T", bound=KubeObject)


def key_of(found: KubeObject) -> str:
    """``NAMESPACE/NAME``, or ``NAME`` of what stands in no namespace."""
    meta = found.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class World:
    """All objects of a cluster that were read.

    Attributes:
        missing: kinds that could not be read, by `Kind.name`, and why: not served, or not allowed.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, KubeObject]] = {}
        self._revisions: dict[str, int] = {}
        self.missing: dict[str, str] = {}

    def put(self, kind: Kind, found: KubeObject) -> None:
        """An object is there, new or changed."""
        self._kinds.setdefault(kind.name, {})[key_of(found)] = found
        self._revisions[kind.name] = self.revision(kind) + 1

    def put_all(self, kind: Kind, found: Iterable[KubeObject]) -> None:
        """These are all objects of a kind."""
        self._kinds[kind.name] = {key_of(each): each for each in found}
        self._revisions[kind.name] = self.revision(kind) + 1

    def drop(self, kind: Kind, key: str) -> None:
        """An object is there no more."""
        self._kinds.get(kind.name, {}).pop(key, None)
        self._revisions[kind.name] = self.revision(kind) + 1

    def revision(self, kind: Kind) -> int:
        """A number that is another after each change of a kind's objects."""
        return self._revisions.get(kind.name, 0)

    def of(self, kind: Kind, struct: type[_T]) -> Mapping[str, _T]:
        """The objects of a kind by their `key_of`; ``struct`` is what they were decoded to."""
        del struct  # it says the type only
        return self._kinds.get(kind.name, {})  # pyright: ignore[reportReturnType]

    def holds(self, kind: Kind) -> bool:
        """Whether a kind was read, even if there is nothing of it."""
        return kind.name in self._kinds

    def __iter__(self) -> Iterator[tuple[str, KubeObject]]:
        """Each object with the name of its kind, kinds in the order in which they came."""
        for name, objects in self._kinds.items():
            for each in objects.values():
                yield name, each
