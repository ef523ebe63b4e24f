"""What Slurm's commands printed into files, taken apart line by line: nothing in it is passed over without a word.

A text may hold the output of several commands. What is damaged (cut off, a value that cannot be, a hostlist with a
typo) or is no output of Slurm is told with its line, and reading goes on with what is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final

from msgspec import Struct

from muster.errors import InputError
from muster.slurm.hostlist import expand
from muster.slurm.records import fields_of, moment_s, span_s, told

CONFIG: Final = "config"
SDIAG: Final = "sdiag"
ASSOCIATIONS: Final = "associations"
SHARES: Final = "shares"
QOS: Final = "QOS"

WHAT: Final[Mapping[str, str]] = {
    "NodeName": "nodes",
    "JobId": "jobs",
    "PartitionName": "partitions",
    "ReservationName": "reservations",
    "SwitchName": "switches",
    "BlockName": "blocks",
}
"""What a record is of, by the key that it begins with."""

_BEGIN = re.compile(rf"({'|'.join(WHAT)})=(\S*)")
_HEADS = {
    ASSOCIATIONS: "Cluster|Account|User|",
    SHARES: "Account|User|RawShares|",
    QOS: "Name|Priority|GraceTime|",
}
_SECTIONS = {CONFIG: "Configuration data as of ", SDIAG: "sdiag output at "}
_NOTHING_THERE = re.compile(r"No (?:jobs|nodes|partitions|reservations) in the system|#|\*+$")
_OF_CONFIG = re.compile(r"\S.* = |\S+ *=|\S.*:$|Slurmctld\(|\s")
_SHORT = 60


class Unread(Struct, frozen=True):
    """What of a text is not read: its line (0: of the whole), and why."""

    line: int
    what: str


class Piece(Struct, frozen=True):
    """A record, or a table or listing with all its lines; ``kind`` is a key of `WHAT`, or one of the names above."""

    kind: str
    line: int
    text: str
    fields: Mapping[str, str] = {}


class Shown(Struct):
    """A text taken apart."""

    pieces: list[Piece]
    unread: list[Unread]


def pieces_of(text: str) -> Shown:
    """Take a text apart. Of a table the rows that lack columns are left out; of records those that are damaged."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return Shown([], [Unread(line, "is not text (it holds a zero byte)")])
    found, unread = list[Piece](), list[Unread]()
    strangers: list[Unread] = []
    for piece in _raw(text, strangers):
        if piece.kind not in WHAT:
            found.append(_table(piece, unread) if piece.kind in _HEADS else piece)
            continue
        fields = fields_of(piece.text) | {"": piece.text}
        found.append(Piece(piece.kind, piece.line, piece.text, fields))
    whole: list[Piece] = []
    seen: dict[tuple[str, str], int] = {}
    cut = _cut(text, found)
    for piece in found:
        wrong = ""
        if piece.kind in WHAT:
            name = piece.fields.get(piece.kind, "")
            key = (piece.kind, name.partition(" ")[0])
            wrong = (cut if piece is found[-1] else "") or wrong_with(piece.kind, piece.fields)
            if not wrong and key in seen:
                wrong = f"stands twice; that of line {seen[key]} counts"
            seen.setdefault(key, piece.line)
            wrong = wrong and f"{piece.kind}={name[:_SHORT]}: {wrong}"
        if wrong:
            unread.append(Unread(piece.line, wrong))
        else:
            whole.append(piece)
    if strangers:
        more = f", and {len(strangers) - 1:,} more such lines" if len(strangers) > 1 else ""
        unread.append(Unread(strangers[0].line, f"{strangers[0].what!r} is nothing that Slurm prints{more}"))
    return Shown(whole, sorted(unread, key=lambda each: each.line))


def _raw(text: str, strangers: list[Unread]) -> Iterator[Piece]:
    """Pieces as they stand, in order; lines that belong to none go to the strangers."""
    kind, first, lines = "", 0, list[str]()
    for number, line in enumerate(chain(text.split("\n"), ("",)), 1):
        begins = _kind_of(line)
        if begins or (kind in WHAT and not line[:1].isspace()):
            if kind:
                yield Piece(kind, first, (" " if kind in WHAT else "\n").join(lines).rstrip())
            kind, first, lines = begins, number, [line]
        elif kind:
            lines.append(line)
            if line.strip() and kind == CONFIG and not _OF_CONFIG.match(line):
                lines.pop()
                strangers.append(Unread(number, line.strip()[:_SHORT]))
            continue
        if not begins and line.strip() and not _NOTHING_THERE.match(line):
            strangers.append(Unread(number, line.strip()[:_SHORT]))
    if kind:
        yield Piece(kind, first, (" " if kind in WHAT else "\n").join(lines).rstrip())


def _kind_of(line: str) -> str:
    """What begins with a line; empty: nothing does."""
    if match := _BEGIN.match(line):
        return match[1]
    heads = chain(_HEADS.items(), _SECTIONS.items())
    return next((kind for kind, head in heads if line.startswith(head)), "")


def _table(piece: Piece, unread: list[Unread]) -> Piece:
    """A table without the rows that lack columns."""
    head, *rows = piece.text.split("\n")
    columns = head.count("|") + 1
    kept = [head]
    for number, row in enumerate(rows, piece.line + 1):
        if row.count("|") + 1 >= columns:
            kept.append(row)
        elif row.strip() and not _NOTHING_THERE.match(row):
            what = f"{row.strip()[:_SHORT]!r} has {row.count('|') + 1} of the {columns} columns of {piece.kind}"
            unread.append(Unread(number, what))
    return Piece(piece.kind, piece.line, "\n".join(kept))


def _cut(text: str, found: list[Piece]) -> str:
    """Why the last record is not whole: the text ends within its line, before a field that all others have."""
    if not found or text.endswith("\n") or found[-1].kind not in WHAT:
        return ""
    others = [set(each.fields) for each in found[:-1] if each.kind == found[-1].kind]
    common = others[0].intersection(*others[1:]) if others else set[str]()
    lacks = sorted(common - set(found[-1].fields))
    return f"is cut off: the text ends within it, without {lacks[0]}" if lacks else ""


# -- what a record must say -------------------------------------------------------------------------------------------


@lru_cache(4096)
def _hosts(text: str) -> str:
    if not told(text) or text == "ALL":
        return ""
    try:
        expand(text)
    except InputError as error:
        return error.what
    return ""


def _is(pattern: str) -> Callable[[str], str]:
    matches = re.compile(pattern).fullmatch
    return lambda text: "" if matches(text) else f"is {text[:_SHORT]!r}"


def _moment(text: str) -> str:
    return "" if not told(text) or moment_s(text) is not None else f"is {text[:_SHORT]!r}, no time"


def _span(text: str) -> str:
    known = not told(text) or text.upper() in ("UNLIMITED", "INFINITE", "PARTITION_LIMIT", "INVALID", "NOT_SET")
    return "" if known or span_s(text) is not None else f"is {text[:_SHORT]!r}, no length of time"


_NUMBER = _is(r"\d{1,12}")
_NEEDED: Final[Mapping[str, Mapping[str, Callable[[str], str]]]] = {
    "NodeName": {
        "State": _is(r"[A-Z_]+(?:\+[A-Z_]+)*[*~#!%$@^-]*(?:\+[A-Z_]+)*"), "CPUTot": _NUMBER, "RealMemory": _NUMBER,
    },
    "JobId": {
        "JobState": _is(r"[A-Z_]+.*"), "Partition": _is(r"\S+"), "TimeLimit": _span, "SubmitTime": _moment,
        "NumNodes": _is(r"\d{1,12}(?:-\d{1,12})?"), "NumCPUs": _is(r"\d{1,12}(?:-\d{1,12})?"),
    },
    "PartitionName": {"Nodes": _hosts, "MaxTime": _span, "State": _is(r"[A-Z]+")},
    "ReservationName": {"StartTime": _moment, "EndTime": _moment, "Nodes": _hosts},
    "SwitchName": {},
    "BlockName": {"Nodes": _hosts},
}  # fmt: skip
_GRES = _is(
    r"|\(null\)|N/A|[A-Za-z][\w.-]*(?::[\w.-]+)*(?:\([^()]*\))?(?:,[A-Za-z][\w.-]*(?::[\w.-]+)*(?:\([^()]*\))?)*"
)
_MAYBE: Final[Mapping[str, Mapping[str, Callable[[str], str]]]] = {
    "NodeName": {"Gres": _GRES, "GresUsed": _GRES},
    "JobId": {
        "StartTime": _moment, "EndTime": _moment, "EligibleTime": _moment, "NodeList": _hosts, "ReqNodeList": _hosts,
        "ExcNodeList": _hosts, "Priority": _is(r"-?\d{1,12}"),
    },
    "SwitchName": {"Nodes": _hosts, "Switches": _hosts},
}  # fmt: skip


def wrong_with(kind: str, fields: Mapping[str, str]) -> str:
    """What makes a record unfit to be read; empty: nothing."""
    if not re.fullmatch(r"\d{1,18}.*" if kind == "JobId" else r"[^\s,\[\]]+", fields.get(kind, "")):
        return "is no name of one"
    for key, wrong in _NEEDED[kind].items():
        if key not in fields:
            return f"has no {key}: it is cut off, or no output of scontrol show"
        if why := wrong(fields[key]):
            return f"{key} {why}" if why.startswith("is ") else f"{key}: {why}"
    for key, wrong in _MAYBE.get(kind, {}).items():
        if key in fields and (why := wrong(fields[key])):
            return f"{key} {why}" if why.startswith("is ") else f"{key}: {why}"
    if kind == "SwitchName" and not (told(fields.get("Nodes")) or told(fields.get("Switches"))):
        return "has neither Nodes nor Switches"
    return ""
