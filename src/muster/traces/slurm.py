"""Files that Slurm's commands wrote, in any mix, recognised by what is in them: ``slurm:DIR`` or files with commas.

What they may be: ``scontrol -o -d show nodes|jobs|partitions|reservations``, ``scontrol show topology|config``,
``sacctmgr -P show assoc tree|qos``, ``sshare -P -a``, ``sdiag``. A file may hold the output of several commands.
Or JSON, a document a file: ``scontrol show nodes|jobs|partitions|reservations --json``, ``squeue --json``,
``sinfo --json``, ``sacctmgr show assoc|qos --json``, and answers of slurmrestd. What text says goes before it.
Times are taken as of this machine's time zone, unless the commands ran with ``TZ=UTC`` here too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.errors import InputError
from muster.slurm.records import (
    config_of,
    job_of,
    moment_s,
    node_of,
    partition_of,
    reservation_of,
    switch_of,
)
from muster.slurm.records_tables import assocs_of, qos_of
from muster.slurm.restful import fill, holds_json
from muster.slurm.shown import ASSOCIATIONS, CONFIG, QOS, SDIAG, WHAT, Piece, pieces_of
from muster.slurm.world import SlurmWorld
from muster.traces.files import is_dir, is_there, read_bytes

_NODES = re.compile(r"^NodeName=\S+ .*\b(?:CPUTot|CPUAlloc)=|^NodeName=\S+ .*\n\s+CPUAlloc=", re.M)
_JOBS = re.compile(r"^JobId=\d+ ", re.M)
_PARTITIONS = re.compile(r"^PartitionName=\S+\s+AllowGroups=", re.M)
_RESERVATIONS = re.compile(r"^ReservationName=\S+ StartTime=", re.M)
_CONFIG = re.compile(r"^Configuration data as of (\S+)", re.M)
_ASSOCIATIONS = re.compile(r"^Cluster\|Account\|User\|.*$", re.M)
_SHARES = re.compile(r"^Account\|User\|RawShares\|.*$", re.M)
_QOS = re.compile(r"^Name\|Priority\|GraceTime\|.*$", re.M)
_SDIAG = re.compile(r"^sdiag output at .*\((\d+)\)", re.M)
_ALL = (_NODES, _JOBS, _PARTITIONS, _RESERVATIONS, _CONFIG, _ASSOCIATIONS, _SHARES, _QOS, _SDIAG)
MOST_BYTES = 1 << 30
"""What a command printed is no larger; 10,000 nodes and 100,000 jobs are a fifth of it."""

_RECORDS: Mapping[str, tuple[str, Callable[[Mapping[str, str], int], object]]] = {
    "NodeName": ("nodes", lambda fields, _: node_of(fields)),
    "JobId": ("jobs", job_of),
    "PartitionName": ("partitions", lambda fields, _: partition_of(fields)),
    "ReservationName": ("reservations", reservation_of),
    "SwitchName": ("switches", lambda fields, _: switch_of(fields)),
    "BlockName": ("switches", lambda fields, _: switch_of(fields)),
}
_NAMED = {
    "partition": "partitions", "reservation": "reservations", "node": "nodes", "job": "jobs", "config": "config",
    "assoc": "associations", "qos": "QOS",
}  # fmt: skip
"""What a file is meant to hold, by a word in its name."""


def slurm_files(path: str) -> list[str]:
    """The files of a folder, those that are named with commas between them, or the one."""
    if is_dir(path):
        return sorted(str(each) for each in Path(path).iterdir() if each.is_file() and not each.name.startswith("."))
    parts = path.split(",")
    return parts if len(parts) > 1 and not is_there(path) and all(map(is_there, parts)) else [path]


def holds_slurm(text: str) -> bool:
    """Whether a text, or its beginning, is what one of Slurm's commands prints."""
    return any(pattern.search(text) for pattern in _ALL) or holds_json(text)


def read_slurm_files(path: str) -> SlurmWorld:
    """All records in some files; what of them is not read is in `SlurmWorld.unread`, with file and line.

    Raises `InputError` where they cannot be read, or hold no nodes, and for JSON that is damaged.
    """
    world = SlurmWorld()
    documents: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    files = slurm_files(path)
    for file in files:
        text = _text(world, file, alone=len(files) == 1)
        if holds_json(text):
            documents[file] = text
        elif text:
            _read(world, file, text, seen)
    told_s = 0.0
    # sinfo's last: it tells nodes by groups, and less of each
    for file, text in sorted(documents.items(), key=lambda each: '"sinfo"' in each[1]):
        try:
            told_s = max(told_s, fill(world, text.encode()).now_s)
        except InputError as error:
            raise InputError(error.what, file=file, hint=error.hint) from None
    world.now_s = world.now_s or told_s
    if not world.nodes:
        hint = "scontrol -o -d show nodes > nodes.txt, and the same for jobs, partitions, reservations"
        more = f" ({world.unread[0]})" if world.unread else ""
        raise InputError(f"holds no nodes as scontrol shows them{more}", file=path, hint=hint)
    for what in ("jobs", "partitions"):
        if not getattr(world, what):
            world.missing[what] = f"no file has them; scontrol -o -d show {what}"
    _check(world, path)
    return world


def _text(world: SlurmWorld, file: str, *, alone: bool) -> str:
    """A file's text; empty, with a word of it, where one of several cannot be used."""
    try:
        data = read_bytes(file)
    except InputError as error:
        if alone:
            raise
        world.unread.append(f"{file}: {error.what}")
        return ""
    if len(data) > MOST_BYTES:
        raise InputError(f"holds more than {MOST_BYTES >> 20:,} MiB", file=file, hint="is this what a command printed?")
    return data.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")


def _read(world: SlurmWorld, file: str, text: str, seen: set[tuple[str, str]]) -> None:
    offset_s = time.localtime().tm_gmtoff
    shown = pieces_of(text)
    world.unread += [f"{file}:{each.line}: {each.what}" for each in shown.unread]
    for piece in shown.pieces:
        try:
            _add(world, piece, offset_s, seen)
        except InputError as error:
            name = f"{piece.kind}={piece.fields.get(piece.kind, '')[:60]}: " if piece.fields else ""
            world.unread.append(f"{file}:{piece.line}: {name}{error.what}")
    found = {WHAT.get(piece.kind, piece.kind) for piece in shown.pieces}
    meant = next((what for word, what in _NAMED.items() if word in Path(file).name.casefold()), "")
    nothing = f"No {meant} in the system"
    if meant and meant not in found and not shown.unread and nothing not in text:
        others = f", but {' and '.join(sorted(found))}" if found else ""
        world.unread.append(f"{file}: its name says {meant}, and it holds none{others}")


def _add(world: SlurmWorld, piece: Piece, offset_s: int, seen: set[tuple[str, str]]) -> None:
    """Add a piece to the world; raises `InputError` where it stands in another file, or cannot be understood."""
    if piece.kind in _RECORDS:
        name, read = _RECORDS[piece.kind]
        record = read(piece.fields, offset_s)
        if (key := (name, piece.fields[piece.kind].partition(" ")[0])) in seen:
            raise InputError("stands in another file, too; the first counts")
        seen.add(key)
        getattr(world, name).append(record)
    elif piece.kind == CONFIG:
        world.config = config_of(piece.text)
        world.cluster = world.config.get("ClusterName", "")
        world.version = world.config.get("SLURM_VERSION", "")
        as_of = re.match(r"Configuration data as of (\S+)", piece.text)
        world.now_s = max(world.now_s, moment_s(as_of[1] if as_of else "", offset_s) or 0.0)
    elif piece.kind == SDIAG:
        at = re.match(r"sdiag output at .*\((\d{1,11})\)", piece.text)
        world.now_s = max(world.now_s, float(at[1]) if at else 0.0)
    elif piece.kind == QOS:
        world.qos = qos_of(piece.text)
    elif piece.kind == ASSOCIATIONS or not world.associations:
        world.associations = assocs_of(piece.text)


def _check(world: SlurmWorld, path: str) -> None:
    """Say where the files do not fit each other: a partition's nodes of which none tells."""
    known = {node.name for node in world.nodes}
    lacking = dict.fromkeys(name for each in world.partitions for name in each.nodes if name not in known)
    if lacking:
        many = f"{len(lacking):,} node{'s' if len(lacking) > 1 else ''}"
        world.unread.append(f"{path}: partitions have {many} that no file shows, such as {next(iter(lacking))[:60]}")
