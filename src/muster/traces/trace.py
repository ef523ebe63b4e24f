"""What every reader returns: the workloads of one trace and the rows that it left out."""

from __future__ import annotations

from msgspec import Struct

from muster.model import Workload


class Skipped(Struct, frozen=True):
    """One row that was understood but cannot be used.

    Attributes:
        file: the file as the user gave it.
        line: 1-based line number; 0 where the format has none (then ``field`` is a path into the document).
        field: the column or dotted path that decided it.
        why: the reason in a few words.
    """

    file: str
    line: int
    field: str
    why: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: field '{self.field}': {self.why}"


class Trace(Struct, frozen=True):
    """Workloads of one source, in the order in which the source lists them.

    Attributes:
        name: short, for headings.
        source: the spec from which it was read.
        workloads: names are unique; times are seconds since ``epoch``.
        skipped: rows left out, in the order of the source.
        epoch: date and time of second 0 in ISO 8601, where it is known.
        meta: further facts from the source, such as its header lines.
    """

    name: str
    source: str
    workloads: tuple[Workload, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    epoch: str | None = None
    meta: tuple[tuple[str, str], ...] = ()
