"""What a reader of specs hands back, and what it notes on the way."""

from __future__ import annotations

from msgspec import Struct

from muster.model.fleet import Fleet
from muster.model.workload import Workload


class Note(Struct, frozen=True):
    """What of a spec counts otherwise than its owner may think: where it stands, and what was made of it.

    ``unless`` is an option of `muster fit` that answers it: ``priority`` or ``time_limit_s`` of `Asked`.
    """

    field: str
    text: str
    line: int | None = None
    unless: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}, " if self.line is not None else ""
        return f"{where}{self.field}: {self.text}"


class Specs(Struct, frozen=True):
    """The gangs that a spec asks for.

    Attributes:
        source: the file, or how the gang was given.
        kind: such as ``Job``, ``RayCluster`` or ``sbatch``; of several objects ``a and b``.
        workloads: the gangs, in the order of the file; those of one object that start by themselves (groups of a
            LeaderWorkerSet, tasks of a job array) are several.
        fleet: the fleet that they are asked of; nodes that a node affinity, a feature or a host list allows bear a
            label of their own there, which the pods select.
        notes: what was counted otherwise than it may be meant.
        marks: those labels, as a selector writes them, and what they stand for.
    """

    source: str
    kind: str
    workloads: tuple[Workload, ...]
    fleet: Fleet
    notes: tuple[Note, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
