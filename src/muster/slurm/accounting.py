"""What sacct prints, as jobs: what each asked for, had and used; earlier runs of a job that was requeued are counted.

The text is that of ``sacct --parsable2`` (or ``--parsable``, with any ``--delimiter``) with a header, as Slurm 22.05
and newer print it; any of FIELDS may be missing. With ``--duplicates`` the runs before a requeue are there. Steps count
for CPU time, memory and processes.

Source of the arithmetic: seff and jobstats (CPU time over cores x time, the most memory of any step over the memory
that was allocated); sacct(1) for fields.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from muster.errors import InputError, near
from muster.slurm.records import moment_s

FIELDS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Eligible", "Start",
    "End", "ElapsedRaw", "TimelimitRaw", "AllocTRES", "ReqTRES", "NNodes", "NTasks", "AllocCPUS", "TotalCPU", "MaxRSS",
    "TRESUsageInTot", "TRESUsageInAve", "ReqMem", "AdminComment", "ExitCode",
)  # fmt: skip
"""What is asked of sacct."""
NEEDED = ("JobID", "State")
FAILED = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL", "DEADLINE")
"""States in which the work of a run is lost."""
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.(\d+))?")
_UNIT = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


class Run(Struct, frozen=True):
    """One time that a job ran: from start to end, a failure or a requeue. ``lost``: its work counts for nothing."""

    state: str
    elapsed_s: float
    gpus: int
    lost: bool = False

    @property
    def gpu_hours(self) -> float:
        """GPUs x time."""
        return self.gpus * self.elapsed_s / 3600


class JobUse(Struct, frozen=True):
    """A job, or a task of an array, with what it asked for and used; None: sacct does not tell.

    Attributes:
        runs: in order. Empty: it has never run.
        requeues: how often it was put back into the queue.
        wait_s: from when it could start until its first start.
        limit_s: the time limit; None: it has none.
        gpus, cpus, nodes, memory_bytes: allocated, in its last run; before it runs, what it asked for.
        cpu_s: CPU time that its steps used in the last run.
        used_bytes: the most memory of a step, all its tasks together.
        tasks: of the step with the most.
        gpu_percent: mean utilisation of its GPUs; ``gpu_from`` says who measured it.
        gpu_percents: of each GPU, ``NODE:INDEX``, where jobstats has it.
    """

    id: str
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    state: str = ""
    runs: tuple[Run, ...] = ()
    requeues: int = 0
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    wait_s: float | None = None
    limit_s: float | None = None
    gpus: int = 0
    gpu_type: str = ""
    cpus: int = 0
    nodes: int = 0
    memory_bytes: int = 0
    cpu_s: float | None = None
    used_bytes: int | None = None
    tasks: int = 0
    gpu_percent: float | None = None
    gpu_from: str = ""
    gpu_percents: tuple[tuple[str, float], ...] = ()

    @property
    def elapsed_s(self) -> float:
        """How long its last run was, or is."""
        return self.runs[-1].elapsed_s if self.runs else 0.0

    @property
    def gpu_hours(self) -> float:
        """Of all its runs."""
        return sum(run.gpu_hours for run in self.runs)

    @property
    def lost_gpu_hours(self) -> float:
        """Of runs that were requeued, and of the last one if it failed."""
        return sum(run.gpu_hours for run in self.runs if run.lost)

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self.state in ("RUNNING", "COMPLETING", "SUSPENDED")


def read_sacct(text: str, path: str) -> tuple[JobUse, ...]:
    """The jobs of what sacct printed, in its order.

    Raises:
        InputError: it has no header that names ``JobID`` and ``State``, or a line with another number of fields.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError("is empty", file=path, hint="sacct --parsable2 -D -a -o $(muster slurm efficiency --fields)")
    delimiter = next((each for each in ("\x1f", "|", "\t", ";") if each in lines[0]), "|")
    header = [name.strip() for name in lines[0].rstrip(delimiter).split(delimiter)]
    for name in NEEDED:
        if name not in header:
            hint = near(name, header) or "sacct --parsable2 prints one; leave out --noheader"
            raise InputError(f"has no column {name}", file=path, line=1, hint=hint)
    if "ElapsedRaw" not in header and "Elapsed" not in header:
        raise InputError("has no column ElapsedRaw", file=path, line=1, hint="add it to sacct -o")
    rows: list[dict[str, str]] = []
    for number, line in enumerate(lines[1:], 2):
        values = line.split(delimiter)
        if len(values) == len(header) + 1 and not values[-1]:
            values.pop()  # --parsable ends lines with the delimiter
        if len(values) != len(header):
            what = f"has {len(values)} fields, and the header {len(header)}"
            raise InputError(what, file=path, line=number, hint="a name may hold the delimiter: sacct --delimiter")
        rows.append(dict(zip(header, (value.strip() for value in values), strict=True)))
    return tuple(_jobs(rows))


def _jobs(rows: Sequence[Mapping[str, str]]) -> Iterator[JobUse]:
    """Rows of one job and its steps, run after run."""
    jobs: dict[str, list[tuple[Mapping[str, str], list[Mapping[str, str]]]]] = {}
    for row in rows:
        name, dot, _ = row["JobID"].partition(".")
        if not dot:
            jobs.setdefault(name, []).append((row, []))
        elif jobs.get(name):
            jobs[name][-1][1].append(row)
    for name, runs in jobs.items():
        yield _job(name, runs)


def _job(name: str, found: Sequence[tuple[Mapping[str, str], list[Mapping[str, str]]]]) -> JobUse:
    last = len(found) - 1
    runs = tuple(
        Run(_state(row), _elapsed(row), _gpus(row), lost=at < last or _state(row) in FAILED)
        for at, (row, _) in enumerate(found)
        if _elapsed(row) > 0
    )
    row, steps = found[-1]
    first = found[0][0]
    allocated = tres(row.get("AllocTRES", "")) or tres(row.get("ReqTRES", ""))
    typed = next((key.rpartition(":")[2] for key in allocated if key.startswith("gres/gpu:")), "")
    eligible, started = moment_s(first.get("Eligible", "")), moment_s(first.get("Start", ""))
    submitted = moment_s(first.get("Submit", ""))
    begin = eligible if eligible is not None else submitted
    percent, by, percents = _gpu_use(row, steps)
    return JobUse(
        name, row.get("JobName", ""), row.get("User", ""), row.get("Account", ""), row.get("Partition", ""),
        _state(row), runs, last, submitted, moment_s(row.get("Start", "")), moment_s(row.get("End", "")),
        None if begin is None or started is None else max(0.0, started - begin),
        _limit(row.get("TimelimitRaw", ""), row.get("Timelimit", "")),
        allocated.get("gres/gpu", 0), typed, allocated.get("cpu", 0) or _whole(row.get("AllocCPUS", "")),
        allocated.get("node", 0) or _whole(row.get("NNodes", "")),
        allocated.get("mem", 0) or amount(row.get("ReqMem", "")),
        _cpu_s(row, steps), _used(steps), max((_whole(step.get("NTasks", "")) for step in steps), default=0),
        percent, by, percents,
    )  # fmt: skip


def _state(row: Mapping[str, str]) -> str:
    """``CANCELLED by 0`` is CANCELLED."""
    return row["State"].partition(" ")[0].rstrip("+")


def _gpus(row: Mapping[str, str]) -> int:
    return tres(row.get("AllocTRES", "")).get("gres/gpu", 0)


def _elapsed(row: Mapping[str, str]) -> float:
    raw = row.get("ElapsedRaw", "")
    return float(raw) if raw.isdigit() else seconds(row.get("Elapsed", "")) or 0.0


def _limit(raw: str, text: str) -> float | None:
    if raw.isdigit():
        return float(raw) * 60
    return seconds(text)


def _cpu_s(row: Mapping[str, str], steps: Sequence[Mapping[str, str]]) -> float | None:
    """CPU time; that of a job that runs is counted when its steps end."""
    if _state(row) in ("RUNNING", "PENDING"):
        return None
    own = seconds(row.get("TotalCPU", ""))
    if own is not None:
        return own
    found = [each for each in (seconds(step.get("TotalCPU", "")) for step in steps) if each is not None]
    return sum(found) if found else None


def _used(steps: Sequence[Mapping[str, str]]) -> int | None:
    """The most memory of a step: of all its tasks together, else that of the largest times their number."""
    found: list[int] = []
    for step in steps:
        total = tres(step.get("TRESUsageInTot", "")).get("mem", 0)
        largest = amount(step.get("MaxRSS", "")) * max(1, _whole(step.get("NTasks", "")))
        if total or largest:
            found.append(total or largest)
    return max(found, default=None)


def _gpu_use(
    row: Mapping[str, str], steps: Sequence[Mapping[str, str]]
) -> tuple[float | None, str, tuple[tuple[str, float], ...]]:  # fmt: skip
    """Mean utilisation of the GPUs, who measured it, and that of each."""
    percents = jobstats(row.get("AdminComment", ""))
    if percents:
        return sum(value for _, value in percents) / len(percents), "jobstats", percents
    found = [tres(step.get("TRESUsageInAve", "")).get("gres/gpuutil") for step in steps]
    known = [each for each in found if each is not None]
    return (float(max(known)), "gres/gpuutil", ()) if known else (None, "", ())


def jobstats(comment: str) -> tuple[tuple[str, float], ...]:
    """Utilisation of each GPU, ``NODE:INDEX``, from the summary that jobstats keeps in AdminComment; empty: none.

    Source: PrincetonUniversity/jobstats: ``JS1:`` and base64 of gzip of JSON, or the JSON itself.
    """
    text = comment.strip()
    try:
        if text.startswith("JS1:"):
            text = gzip.decompress(base64.b64decode(text[4:], validate=True)).decode()
        data: Any = json.loads(text) if text.startswith("{") else {}
    except (ValueError, OSError, EOFError, binascii.Error):
        return ()
    found: list[tuple[str, float]] = []
    nodes = cast("dict[str, Any]", data).get("nodes") if isinstance(data, dict) else None
    for node, told in cast("dict[str, Any]", nodes).items() if isinstance(nodes, dict) else ():
        use = cast("dict[str, Any]", told).get("gpu_utilization") if isinstance(told, dict) else None
        for index, value in cast("dict[str, Any]", use).items() if isinstance(use, dict) else ():
            if isinstance(value, (int, float)):
                found.append((f"{node}:{index}", float(value)))
    return tuple(found)


# -- values


def tres(text: str) -> dict[str, int]:
    """``cpu=8,mem=64G,gres/gpu:h100=8`` by name; memory in bytes. What is no number is left out."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            number = amount(value)
            if number or value.strip() in ("0", "0M"):
                found[name.strip()] = number
    if "gres/gpu" not in found:
        typed = [value for name, value in found.items() if name.startswith("gres/gpu:")]
        if typed:
            found["gres/gpu"] = sum(typed)
    return found


def amount(text: str) -> int:
    """A number with K, M, G or T, in bytes where it is memory; 0 where it is none. ``4000Mc`` is old Slurm's."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)[nc]?", text.strip())
    return round(float(match[1]) * _UNIT[match[2]]) if match else 0


def seconds(text: str) -> float | None:
    """``[D-][HH:]MM:SS[.mmm]`` in seconds; None where it is none."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, whole = (int(each or 0) for each in match.groups()[:4])
    return days * 86400 + hours * 3600 + minutes * 60 + whole + float(f"0.{match[5] or 0}")


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
