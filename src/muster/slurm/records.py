"""What Slurm's commands print, as records: nodes, jobs, partitions, reservations, associations, QOS, switches.

The text is that of ``scontrol -o show ...`` as Slurm 22.05 and newer print it; fields that are not known are passed
over; tables are read in `records_tables`. GPUs are read from the allocation (``JOB_GRES``, the lines of each node,
``AllocTRES``), never from what ``squeue %b`` prints.

Times are seconds since 1970 where the text is in UTC, or was written where the offset that is given holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone

from msgspec import Struct

from muster.slurm.hostlist import expand

_NOTHING = frozenset(("", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "UNKNOWN"))
_KEY = re.compile(r"(?:^|(?<=[ \n]))((?:[A-Z][A-Za-z]*|[A-Za-z]+)(?:[A-Za-z_/:]*))=")
_ALLOCATION = re.compile(r"(?:^|\s)Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")
_IDS = re.compile(r"gpu(?::([^:,()]+))?:(\d+)\(IDX:([^)]*)\)")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")


class SlurmNode(Struct, frozen=True):
    """A node, as ``scontrol show node`` has it. ``gres`` is what is configured, ``gres_used`` what is taken."""

    name: str
    state: tuple[str, ...]
    cpus: int = 0
    memory_mib: int = 0
    gres: str = ""
    gres_used: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    reason: str = ""
    weight: int = 1
    reserved_cpus: int = 0
    reserved_memory_mib: int = 0
    alloc_tres: str = ""


class Held(Struct, frozen=True):
    """What a job has on one node: CPUs, memory, GPUs by index, and their type; ``gpus`` without indexes: not told."""

    node: str
    cpus: int
    memory_mib: int
    gpus: int = 0
    indexes: tuple[int, ...] = ()
    gpu_type: str = ""


class SlurmJob(Struct, frozen=True):
    """A job, a task of an array, the tasks of an array that wait, or a component of a heterogeneous job.

    Attributes:
        array_job, array_tasks, array_limit: of an array: its id, the tasks of this record as Slurm writes them (``4``
            or ``4-20``), and how many may run at a time (0: all).
        het_job, het_offset: of a heterogeneous job.
        nodes: the least and the most; the most is 0 where it is not limited.
        memory_node_mib, memory_cpu_mib: asked for by node or by CPU; 0: neither.
        tres: all that it is counted with.
        held: of what runs, node by node.
        limit_s: its time limit; None: it has none.
        preempt_s: when it is to be ended for another; None: it is not.
    """

    id: str
    name: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    partition: str = ""
    state: str = ""
    reason: str = ""
    priority: int = 0
    submitted_s: float = 0.0
    eligible_s: float | None = None
    started_s: float | None = None
    end_s: float | None = None
    limit_s: float | None = None
    ran_s: float = 0.0
    dependency: str = ""
    requeue: bool = True
    restarts: int = 0
    array_job: str = ""
    array_tasks: str = ""
    array_limit: int = 0
    het_job: str = ""
    het_offset: int = 0
    nodes: tuple[int, int] = (1, 0)
    cpus: int = 1
    tasks: int = 1
    tasks_per_node: int = 0
    cpus_per_task: int = 1
    memory_node_mib: int = 0
    memory_cpu_mib: int = 0
    tres: Mapping[str, int] = {}
    tres_per_node: str = ""
    tres_per_job: str = ""
    tres_per_task: str = ""
    tres_per_socket: str = ""
    cpus_per_tres: str = ""
    memory_per_tres: str = ""
    exclusive: bool = False
    features: str = ""
    req_nodes: str = ""
    exc_nodes: str = ""
    node_list: str = ""
    held: tuple[Held, ...] = ()
    licenses: str = ""
    reservation: str = ""
    switches: int = 0
    preempt_s: float | None = None
    nice: int = 0
    comment: str = ""
    admin_comment: str = ""


class SlurmPartition(Struct, frozen=True):
    """A partition. ``max_time_s`` and ``max_nodes`` are None where there is no limit."""

    name: str
    nodes: tuple[str, ...] = ()
    state: str = "UP"
    default: bool = False
    max_time_s: float | None = None
    max_nodes: int | None = None
    tier: int = 1
    preempt_mode: str = ""
    qos: str = ""


class SlurmReservation(Struct, frozen=True):
    """An advance reservation; ``accounts`` and ``users`` may use it, if their jobs name it."""

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    partial: bool = False


class SlurmAssoc(Struct, frozen=True):
    """An account's association (``user`` is empty) or a user's: shares, and limits as Slurm names them."""

    account: str
    user: str = ""
    parent: str = ""
    partition: str = ""
    shares: float = 1.0
    limits: Mapping[str, str] = {}


class SlurmQos(Struct, frozen=True):
    """A QOS: its priority, which others it preempts, and its limits as Slurm names them."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    limits: Mapping[str, str] = {}


class SlurmSwitch(Struct, frozen=True):
    """A switch or block; a leaf has no ``below``."""

    name: str
    nodes: tuple[str, ...]
    below: tuple[str, ...] = ()
    level: int = 0
    block: bool = False


# -- one line -------------------------------------------------------------------------------------------------------


def fields_of(line: str) -> dict[str, str]:
    """A line of ``scontrol -o`` as its fields. Values may hold blanks; a key begins with a letter and ends with ``=``.

    Of a key that is there twice the first counts.
    """
    found: dict[str, str] = {}
    marks = list(_KEY.finditer(line))
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(line)
        found.setdefault(mark[1], line[mark.end() : end].strip())
    return found


MOST = 10**12
"""Counts and MiB beyond this are taken as not told: a file is broken there, and the engine counts in 64 bits."""


def told(value: str | None) -> str:
    """A value without the words by which Slurm says that there is none."""
    return "" if value is None or value in _NOTHING else value


def number(text: str | None, default: int = 0) -> int:
    """The whole number at the beginning of a text such as ``96`` or ``4-8``."""
    match = re.match(r"-?\d+", text or "")
    return int(match[0]) if match and len(match[0]) < 19 and abs(int(match[0])) <= MOST else default


def words(text: str | None) -> tuple[str, ...]:
    """A list with commas."""
    return tuple(part.strip() for part in told(text).split(",") if part.strip())


def span_s(text: str | None) -> float | None:
    """``D-HH:MM:SS``, ``MM:SS`` or minutes alone, in seconds; None: there is no limit, or it is not told."""
    text = told(text)
    if match := _TIME.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return 60.0 * int(text) if text.isdecimal() else None


def moment_s(text: str | None, offset_s: int = 0) -> float | None:
    """``2026-11-30T21:12:50`` in seconds since 1970, written in a zone so far east of UTC; None: it is not told."""
    text = told(text)
    if text.isdecimal() and len(text) > 8:
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    zone = moment.tzinfo or timezone(timedelta(seconds=offset_s))
    return moment.replace(tzinfo=zone).timestamp()


def mebibytes(text: str | None) -> int:
    """``500G``, ``1562.50G``, ``200000M`` or a number of MiB, in MiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)[A-Za-z]?", told(text))
    if match is None:
        return 0
    scale = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}[match[2]]
    return round(min(float(match[1]) * scale, MOST))


def tres_of(text: str | None) -> dict[str, int]:
    """``cpu=320,mem=6250G,node=4,gres/gpu=32,gres/gpu:h100=32`` by name; memory in MiB."""
    found: dict[str, int] = {}
    for part in told(text).split(","):
        name, _, value = part.partition("=")
        if name:
            found[name] = mebibytes(value) if name == "mem" else number(value)
    return found


def gpus_asked(text: str) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """GPUs, their types and other resources of ``gres:gpu:h100:4,gres/shard:2`` or ``gres/gpu:h100=4``."""
    count, types, others = 0, dict[str, None](), list[str]()
    for part in told(text).split(","):
        part = re.sub(r"^gres[:/]", "", part.strip())
        if not part:
            continue
        name, *rest = re.split(r"[:=]", part)
        amount = number(rest.pop()) if rest and rest[-1].isdecimal() else 1
        if name != "gpu":
            others.append(part)
            continue
        count += amount
        types.update(dict.fromkeys(rest))
    return count, tuple(types), tuple(others)


def per_gpu(text: str) -> int:
    """The amount a GPU of ``gpu:10`` or ``gres/gpu:200000``, the default of CPUs or of MiB; 0: it is not told."""
    for part in told(text).split(","):
        name, _, amount = re.sub(r"^gres[:/]", "", part.strip()).rpartition(":")
        if name.split(":")[0] == "gpu":
            return number(amount)
    return 0


def ids_of(text: str) -> tuple[int, ...]:
    """``0-3,6`` as numbers; at most a million."""
    found: list[int] = []
    for part in told(text).split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal() and (last.isdigit() or not dash):
            found += range(int(first), min(int(last or first), int(first) + 1_000_000) + 1)
    return tuple(found)


# -- scontrol ---------------------------------------------------------------------------------------------------------


def lines_of(text: str, key: str) -> Iterator[dict[str, str]]:
    """The records of ``scontrol show``, on a line each (``-o``) or as paragraphs; those that begin with a key."""
    begin = f"{key}="
    if any(line.startswith("   ") for line in text.splitlines()):
        paragraphs = re.split(rf"\n(?={re.escape(begin)})", "\n" + text)
        lines = [" ".join(part.split("\n")) for part in paragraphs]
    else:
        lines = text.splitlines()
    for line in lines:
        line = line.strip()
        if line.startswith(begin):
            yield fields_of(line) | {"": line}


def node_of(fields: Mapping[str, str]) -> SlurmNode:
    """A node of ``scontrol show node``."""
    reason = re.sub(r"\s*\[[^\]]*@[^\]]*\]\s*$", "", told(fields.get("Reason")))
    return SlurmNode(
        fields["NodeName"],
        states_of(fields.get("State", "")),
        cpus=number(fields.get("CPUEfctv") or fields.get("CPUTot")),
        memory_mib=number(fields.get("RealMemory")),
        gres=told(fields.get("Gres")),
        gres_used=told(fields.get("GresUsed")),
        features=words(fields.get("ActiveFeatures") or fields.get("AvailableFeatures")),
        partitions=words(fields.get("Partitions")),
        reason=reason,
        weight=number(fields.get("Weight"), 1),
        reserved_memory_mib=number(fields.get("MemSpecLimit")),
        alloc_tres=told(fields.get("AllocTRES")),
    )


def states_of(text: str) -> tuple[str, ...]:
    """``IDLE+CLOUD+POWERED_DOWN`` as its parts; the marks that shorten them (``*``, ``~``, ``#`` ...) as words."""
    marks = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "%": "POWERING_DOWN", "!": "POWER_DOWN",
             "$": "MAINTENANCE", "@": "REBOOT_ISSUED", "^": "REBOOT_REQUESTED", "-": "PLANNED"}  # fmt: skip
    found: list[str] = []
    for part in text.upper().split("+"):
        bare = part.rstrip("".join(marks))
        found += [bare, *(marks[mark] for mark in part[len(bare) :])]
    return tuple(dict.fromkeys(part for part in found if part))


def job_of(fields: Mapping[str, str], offset_s: int = 0) -> SlurmJob:
    """A job of ``scontrol -d show job``."""
    get = fields.get
    tasks_node = number((get("NtasksPerN:B:S:C") or "0").partition(":")[0])
    least, _, most = (get("NumNodes") or "1").partition("-")
    tasks = told(get("ArrayTaskId"))
    return SlurmJob(
        fields["JobId"].split()[0],
        name=get("JobName") or "",
        user=re.sub(r"\(\d+\)$", "", told(get("UserId"))),
        account=told(get("Account")),
        qos=told(get("QOS")),
        partition=told(get("Partition")),
        state=(get("JobState") or "").split(" ")[0],
        reason=told(get("Reason")).replace("_", " "),
        priority=number(get("Priority")),
        submitted_s=moment_s(get("SubmitTime"), offset_s) or 0.0,
        eligible_s=moment_s(get("EligibleTime"), offset_s),
        started_s=moment_s(get("StartTime"), offset_s),
        end_s=moment_s(get("EndTime"), offset_s),
        limit_s=span_s(get("TimeLimit")),
        ran_s=span_s(get("RunTime")) or 0.0,
        dependency=told(get("Dependency")),
        requeue=get("Requeue") == "1",
        restarts=number(get("Restarts")),
        array_job=told(get("ArrayJobId")),
        array_tasks=tasks.partition("%")[0],
        array_limit=number(get("ArrayTaskThrottle")) or number(tasks.partition("%")[2]),
        het_job=told(get("HetJobId")),
        het_offset=number(get("HetJobOffset")),
        nodes=(max(1, number(least, 1)), number(most)),
        cpus=number(get("NumCPUs"), 1),
        tasks=number(get("NumTasks"), 1),
        tasks_per_node=tasks_node,
        cpus_per_task=max(1, number(get("CPUs/Task"), 1)),
        memory_node_mib=mebibytes(get("MinMemoryNode")),
        memory_cpu_mib=mebibytes(get("MinMemoryCPU")),
        tres=tres_of(get("TRES") or get("ReqTRES")),
        tres_per_node=told(get("TresPerNode")),
        tres_per_job=told(get("TresPerJob")),
        tres_per_task=told(get("TresPerTask")),
        tres_per_socket=told(get("TresPerSocket")),
        cpus_per_tres=told(get("CpusPerTres")),
        memory_per_tres=told(get("MemPerTres")),
        exclusive=get("OverSubscribe") in ("NO", "EXCLUSIVE"),
        features=told(get("Features")),
        req_nodes=told(get("ReqNodeList")),
        exc_nodes=told(get("ExcNodeList")),
        node_list=told(get("NodeList")),
        held=tuple(_held(get("") or "")),
        licenses=told(get("Licenses")),
        reservation=told(get("Reservation")),
        switches=number(get("Switches")),
        preempt_s=moment_s(get("PreemptEligibleTime"), offset_s) if get("PreemptTime") not in (None, "None") else None,
        nice=number(get("Nice")),
        comment=told(get("Comment")),
        admin_comment=told(get("AdminComment")),
    )


def _held(line: str) -> Iterator[Held]:
    """The lines ``Nodes=... CPU_IDs=... Mem=... GRES=...`` of a job's record (``-d``)."""
    for match in _ALLOCATION.finditer(line):
        gpus, indexes, kind = gpus_held(match[4])
        for name in expand(match[1]):
            yield Held(name, len(ids_of(match[2])), number(match[3]), gpus, indexes, kind)


def gpus_held(text: str) -> tuple[int, tuple[int, ...], str]:
    """GPUs of ``gpu:h100:4(IDX:0-3)``, their indexes and their type."""
    gpus, indexes, kind = 0, list[int](), ""
    for typed, count, ids in _IDS.findall(text):
        gpus += number(count)
        indexes += ids_of(ids)
        kind = kind or typed
    return gpus, tuple(indexes), kind


def partition_of(fields: Mapping[str, str]) -> SlurmPartition:
    """A partition of ``scontrol show partition``."""
    most = fields.get("MaxNodes")
    return SlurmPartition(
        fields["PartitionName"],
        expand(told(fields.get("Nodes"))) if told(fields.get("Nodes")) else (),
        state=fields.get("State", "UP"),
        default=fields.get("Default") == "YES",
        max_time_s=span_s(fields.get("MaxTime")),
        max_nodes=number(most) if most and most.isdecimal() else None,
        tier=number(fields.get("PriorityTier"), 1),
        preempt_mode=told(fields.get("PreemptMode")),
        qos=told(fields.get("QoS")),
    )


def reservation_of(fields: Mapping[str, str], offset_s: int = 0) -> SlurmReservation:
    """A reservation of ``scontrol show reservation``."""
    flags = words(fields.get("Flags"))
    return SlurmReservation(
        fields["ReservationName"],
        moment_s(fields.get("StartTime"), offset_s) or 0.0,
        moment_s(fields.get("EndTime"), offset_s) or float("inf"),
        expand(told(fields.get("Nodes"))) if told(fields.get("Nodes")) else (),
        words(fields.get("Users")),
        words(fields.get("Accounts")),
        flags,
        partial="PARTIAL_NODES" in flags or "FLEX" in flags,
    )


def switch_of(fields: Mapping[str, str]) -> SlurmSwitch:
    """A switch or block of ``scontrol show topology``."""
    block = "BlockName" in fields
    nodes = expand(told(fields.get("Nodes"))) if told(fields.get("Nodes")) else ()
    below = expand(told(fields.get("Switches"))) if told(fields.get("Switches")) else ()
    return SlurmSwitch(
        fields["BlockName"] if block else fields["SwitchName"], nodes, below, number(fields.get("Level")), block
    )


def config_of(text: str) -> dict[str, str]:
    """``scontrol show config``: name to value."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(" "):
            found[name.strip()] = told(value.strip())
    return found
