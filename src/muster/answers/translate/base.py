"""What a translation hands back: the other world's text, and what of it has no counterpart there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from muster.answers.specs.pods import inside
from muster.errors import InputError


def dict_at(data: Any, path: str) -> dict[str, Any]:
    """The mapping at a path such as ``spec.template``; empty where there is none."""
    found = inside(data, path)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def dicts_at(data: Any, path: str) -> list[dict[str, Any]]:
    """The mappings of the list at a path; empty where there is none."""
    found = inside(data, path)
    items = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", each) for each in items if isinstance(each, dict)]


def texts(data: Mapping[str, Any], key: str) -> list[str]:
    """The list that a mapping has under a key, as texts."""
    found = data.get(key)
    return [str(each) for each in cast("list[Any]", found)] if isinstance(found, list) else []


class Remark(Struct, frozen=True):
    """What a field became that is not simply the same.

    Attributes:
        field: as it was written, such as ``--mail-user`` or ``spec.restartPolicy``.
        text: what became of it, or why it has no counterpart and what to do instead.
        line: where it stands; None: it is not there, and that matters.
        lost: it has no counterpart: the other world will not do it.
    """

    field: str
    text: str
    line: int | None = None
    lost: bool = False

    def __str__(self) -> str:
        where = f"line {self.line}, " if self.line is not None else ""
        return " ".join(f"{where}{self.field}: {self.text}".split())  # names of a file may hold line ends


class Remarks:
    """Collects remarks, each once, in the order of their lines."""

    def __init__(self) -> None:
        self._found: dict[Remark, None] = {}

    def note(self, field: str, text: str, line: int | None = None) -> None:
        """Tell what became of a field."""
        self._found[Remark(field, text, line)] = None

    def lost(self, field: str, text: str, line: int | None = None) -> None:
        """Tell that a field has no counterpart."""
        self._found[Remark(field, text, line, lost=True)] = None

    @property
    def all(self) -> tuple[Remark, ...]:
        """All of them; those without a line first."""
        return tuple(sorted(self._found, key=lambda each: each.line or 0))


class Translation(Struct, frozen=True):
    """A translation.

    Attributes:
        source: the file that was translated.
        to: ``kubernetes`` or ``slurm``.
        kind: such as ``JobSet`` or ``sbatch``.
        objects: the objects of Kubernetes; none where ``to`` is slurm.
        scripts: names and texts of batch scripts; none where ``to`` is kubernetes.
        remarks: what is not simply the same.
    """

    source: str
    to: str
    kind: str
    objects: tuple[dict[str, Any], ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def lost(self) -> tuple[Remark, ...]:
        """Those without a counterpart."""
        return tuple(each for each in self.remarks if each.lost)


def header(source: str, remarks: tuple[Remark, ...]) -> list[str]:
    """Comment lines that go before a translation."""
    lines = [f"# Made from {' '.join(source.split())} by muster translate."]
    for title, lost in (("Without counterpart here", True), ("Not the same word for word", False)):
        found = [each for each in remarks if each.lost == lost]
        if found:
            lines += [f"# {title}:", *(f"#   {' '.join(str(each).split())}" for each in found)]
    return lines


class Mount(Struct, frozen=True):
    """A folder that pods see: a claim's (``claim``), or the node's own (``host``).

    Attributes:
        path: where they see it.
        claim: name of the PersistentVolumeClaim; empty: it is the node's.
        host: the path on the node.
    """

    path: str
    claim: str = ""
    host: str = ""


def mount_of(text: str) -> Mount:
    """``/home=pvc/home`` or ``/scratch=host/mnt/scratch``, as --volume takes them; raises `InputError`."""
    path, equals, what = text.partition("=")
    kind, _, name = what.partition("/")
    if not equals or not path.startswith("/") or kind not in ("pvc", "host") or (kind == "pvc" and not name):
        hint = "such as /home=pvc/home-claim or /scratch=host/mnt/scratch"
        raise InputError(f"is {text[:60]!r}", field="--volume", hint=hint)
    return Mount(path, claim=name) if kind == "pvc" else Mount(path, host=f"/{name}" if name else path)
