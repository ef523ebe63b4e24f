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
from pathlib import Path

from muster.errors import InputError
from muster.slurm.records import (
    assocs_of,
    config_of,
    job_of,
    lines_of,
    moment_s,
    node_of,
    partition_of,
    qos_of,
    reservation_of,
    switch_of,
)
from muster.slurm.restful import fill, holds_json
from muster.slurm.world import SlurmWorld
from muster.traces.files import is_dir, is_there, read_bytes

_NODES = re.compile(r"^NodeName=\S+ .*\b(?:CPUTot|CPUAlloc)=|^NodeName=\S+ .*\n\s+CPUAlloc=", re.M)
_JOBS = re.compile(r"^JobId=\d+ ", re.M)
_PARTITIONS = re.compile(r"^PartitionName=\S+\s+AllowGroups=", re.M)
_RESERVATIONS = re.compile(r"^ReservationName=\S+ StartTime=", re.M)
_CONFIG = re.compile(r"^Configuration data as of (\S+)", re.M)
_SWITCHES = re.compile(r"^(?:SwitchName|BlockName)=", re.M)
_ASSOCIATIONS = re.compile(r"^Cluster\|Account\|User\|.*$", re.M)
_SHARES = re.compile(r"^Account\|User\|RawShares\|.*$", re.M)
_QOS = re.compile(r"^Name\|Priority\|GraceTime\|.*$", re.M)
_SDIAG = re.compile(r"^sdiag output at .*\((\d+)\)", re.M)
_ALL = (_NODES, _JOBS, _PARTITIONS, _RESERVATIONS, _CONFIG, _ASSOCIATIONS, _SHARES, _QOS, _SDIAG)
_MOST_BYTES = 1 << 30


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
    """All records in some files. Raises `InputError` where they cannot be read, or hold no nodes."""
    world = SlurmWorld()
    documents: dict[str, str] = {}
    for file in slurm_files(path):
        text = read_bytes(file)[:_MOST_BYTES].decode(errors="replace").replace("\r\n", "\n")
        if holds_json(text):
            documents[file] = text
            continue
        try:
            _read(world, text)
        except InputError as error:
            raise InputError(error.what, file=file, hint=error.hint) from None
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
        raise InputError("holds no nodes as scontrol shows them", file=path, hint=hint)
    for what in ("jobs", "partitions"):
        if not getattr(world, what):
            world.missing[what] = f"no file has them; scontrol -o -d show {what}"
    return world


def _read(world: SlurmWorld, text: str) -> None:
    offset_s = time.localtime().tm_gmtoff
    if _NODES.search(text):
        world.nodes += [node_of(fields) for fields in lines_of(text, "NodeName")]
    if _JOBS.search(text):
        world.jobs += [job_of(fields, offset_s) for fields in lines_of(text, "JobId")]
    if _PARTITIONS.search(text):
        world.partitions += [partition_of(fields) for fields in lines_of(text, "PartitionName")]
    if _RESERVATIONS.search(text):
        world.reservations += [reservation_of(fields, offset_s) for fields in lines_of(text, "ReservationName")]
    if _SWITCHES.search(text):
        for key in ("SwitchName", "BlockName"):
            world.switches += [switch_of(fields) for fields in lines_of(text, key)]
    if found := _CONFIG.search(text):
        world.config = config_of(text[found.start() :])
        world.cluster = world.config.get("ClusterName", "")
        world.version = world.config.get("SLURM_VERSION", "")
        world.now_s = max(world.now_s, moment_s(found[1], offset_s) or 0.0)
    if found := _SDIAG.search(text):
        world.now_s = max(world.now_s, float(found[1]))
    if found := _ASSOCIATIONS.search(text):
        world.associations = assocs_of(_table(text, found))
    if (found := _SHARES.search(text)) and not world.associations:
        world.associations = assocs_of(_table(text, found))
    if found := _QOS.search(text):
        world.qos = qos_of(_table(text, found))


def _table(text: str, head: re.Match[str]) -> str:
    """The rows below a head, as far as they have its columns."""
    columns = head[0].count("|")
    rows = [head[0]]
    for line in text[head.end() :].lstrip("\n").splitlines():
        if line.count("|") < columns:
            break
        rows.append(line)
    return "\n".join(rows)
