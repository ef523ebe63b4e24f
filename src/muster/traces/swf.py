"""The Standard Workload Format of the Parallel Workloads Archive: 18 columns of numbers, ``;`` begins a comment.

A job is one pod set of as many pods as it requested processors (allocated ones where the request is missing), each pod
of one core. -1 is "unknown" throughout. Extended files with more columns are read; the extra ones are ignored.
"""

from __future__ import annotations

import gc
import io
from datetime import UTC, datetime
from pathlib import Path

from muster.errors import InputError
from muster.model import PodSet, PodShape, Workload
from muster.traces.files import decode_text, read_bytes
from muster.traces.jobs import Words
from muster.traces.spec import Options
from muster.traces.tables import MAX_JOB_GPUS, MAX_SECONDS, parse_number
from muster.traces.trace import Skipped, Trace

OPTIONS = ("memory",)
FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu_time", "used_memory", "requested_processors", "requested_time",
    "requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding_job", "think_time",
)  # fmt: skip
"""The 18 columns, by the names that errors use."""

STATUS = {0: "failed", 1: "completed", 2: "partial", 3: "partial-completed", 4: "partial-failed", 5: "cancelled"}
"""Column 11 to the workload's quality; unknown is empty."""

_LIMITS = {"submit": MAX_SECONDS, "wait": MAX_SECONDS, "run": MAX_SECONDS, "requested_time": MAX_SECONDS,
           "processors": MAX_JOB_GPUS, "requested_processors": MAX_JOB_GPUS, "requested_memory": 10**11}  # fmt: skip
_META_LIMIT = 100


def read_swf(path: str, source: str, options: Options) -> Trace:
    """Jobs of an SWF file, plain or gzip. Jobs that did not run, or asked for nothing, are skipped."""
    with_memory = options.integer("memory", 0, 0, 1) == 1
    data = read_bytes(path)
    decode_text(data, path)  # told apart from other formats and broken files before any row is read
    reader = _Reader(path, with_memory)
    # Half a million values that stay: the cyclic collector would only walk them again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number, line in enumerate(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")), start=1):
            reader.line(number, line)
    finally:
        if collecting:
            gc.enable()
    return reader.trace(source)


class _Reader:
    """Collects the jobs of one file. Sizes, users and queues are made once and shared."""

    def __init__(self, path: str, with_memory: bool) -> None:
        self._path = path
        self._with_memory = with_memory
        self._workloads: list[Workload] = []
        self._skipped: list[Skipped] = []
        self._meta: list[tuple[str, str]] = []
        self._seen: dict[int, int] = {}
        self._pod_sets: dict[tuple[int, int], tuple[PodSet, ...]] = {}
        self._seconds: dict[float, float] = {}
        self._users, self._groups, self._queues = Words("user"), Words("group"), Words("queue")
        self._last = 0

    def line(self, number: int, line: bytes) -> None:
        """Take one line."""
        self._last = number
        parts = line.split()
        if not parts:
            return
        if parts[0].startswith(b";"):
            self._comment(line)
            return
        if len(parts) < len(FIELDS):
            what = f"has {len(parts)} columns, SWF has {len(FIELDS)}"
            raise InputError(what, file=self._path, line=number, hint="is the file SWF, and whole?")
        try:
            values: list[float] = list(map(int, parts[:18]))
            if (
                b"_" in line
                or min(values) < -1
                or max(values) > MAX_SECONDS
                or max(values[4], values[7]) > MAX_JOB_GPUS
            ):
                values = self._checked(number, parts)
        except ValueError:
            values = self._checked(number, parts)
        self._job(number, values)

    def trace(self, source: str) -> Trace:
        """What was read; raises `InputError` if there was no job at all."""
        if not self._workloads and not self._skipped:
            raise InputError("holds comments but no jobs", file=self._path, line=self._last)
        epoch = None
        start = dict(self._meta).get("UnixStartTime", "")
        if start.isascii() and start.isdigit() and int(start) < 2**33:
            epoch = datetime.fromtimestamp(int(start), tz=UTC).isoformat()
        name = Path(self._path.removesuffix(".gz")).stem
        return Trace(name, source, tuple(self._workloads), tuple(self._skipped), epoch, tuple(self._meta))

    def _comment(self, line: bytes) -> None:
        key, colon, value = line.decode().strip().lstrip("; \t").partition(":")
        if colon and key.replace(" ", "").isalnum() and value.strip() and len(self._meta) < _META_LIMIT:
            self._meta.append((key.strip(), value.strip()))

    def _checked(self, number: int, parts: list[bytes]) -> list[float]:
        """The slow way: numbers with decimals, and the exact column of what is wrong."""
        values: list[float] = []
        for name, part in zip(FIELDS, parts, strict=False):
            text = part.decode()
            try:
                value = parse_number(text)
            except (ValueError, OverflowError):
                raise self._error(number, name, f"{text[:40]!r} is not a number") from None
            if value < -1 and name in _LIMITS:
                raise self._error(number, name, f"{text[:40]!r} is negative", "only -1 may be, for unknown")
            if value > _LIMITS.get(name, 1e18):
                raise self._error(number, name, f"{text[:40]!r} is absurdly large", f"at most {_LIMITS.get(name)}")
            values.append(value)
        for position in (0, 4, 7, 10, 11, 12, 14):
            if not values[position].is_integer():
                raise self._error(number, FIELDS[position], f"{parts[position].decode()[:40]!r} is no whole number")
        return values

    def _job(self, number: int, values: list[float]) -> None:
        job, submitted, waited, ran = int(values[0]), values[1], values[2], values[3]
        first = self._seen.setdefault(job, number)
        if first != number:
            what = f"{job} is already the number of the job on line {first}"
            raise self._error(number, "job", what, "names must be unique")
        processors = int(values[7]) if values[7] > 0 else int(values[4])
        if submitted < 0:
            raise self._error(number, "submit", f"is {submitted:g}", "every job needs a submit time")
        if ran <= 0:
            self._skip(number, "run", f"run time is {ran:g}: never started or not recorded")
        elif processors <= 0:
            self._skip(number, "requested_processors", f"neither requested nor allocated processors ({processors})")
        else:
            memory_kib = int(values[9]) if self._with_memory and values[9] > 0 else 0
            limit = values[8]
            self._workloads.append(
                Workload(
                    f"job-{job}",
                    self._pod_sets.get((processors, memory_kib)) or self._make_pod_sets(processors, memory_kib),
                    submitted_s=self._shared(submitted),
                    duration_s=self._shared(ran),
                    time_limit_s=self._shared(limit) if limit > 0 else None,
                    recorded_wait_s=self._shared(waited) if waited >= 0 else None,
                    queue=self._queues.word(int(values[14])),
                    user=self._users.word(int(values[11])),
                    namespace=self._groups.word(int(values[12])),
                    quality=STATUS.get(int(values[10]), ""),
                )
            )

    def _make_pod_sets(self, processors: int, memory_kib: int) -> tuple[PodSet, ...]:
        shape = PodShape(cpu_milli=1000, memory_bytes=memory_kib * 1024)
        made = self._pod_sets[processors, memory_kib] = (PodSet(shape, processors),)
        return made

    def _shared(self, seconds: float) -> float:
        """The same float object for the same time: most run times and limits occur many times."""
        shared = self._seconds.get(seconds)
        if shared is None:
            shared = self._seconds[seconds] = float(seconds)
        return shared

    def _skip(self, number: int, field: str, why: str) -> None:
        self._skipped.append(Skipped(self._path, number, field, why))

    def _error(self, number: int, field: str, what: str, hint: str | None = None) -> InputError:
        return InputError(what, file=self._path, line=number, field=field, hint=hint)
