"""Microsoft Philly's jobs as Sia's authors published them: timestamp, duration, num_gpus, cluster.

Jobs have no names in the file; they are called job-1, job-2, ... by their row. The virtual cluster is the queue.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from muster.model import Workload
from muster.traces.jobs import GangSizes
from muster.traces.spec import Options
from muster.traces.tables import MAX_GPUS, MAX_JOB_GPUS, MAX_SECONDS, Record, read_table
from muster.traces.trace import Skipped, Trace

COLUMNS = ("timestamp", "duration", "num_gpus")
OPTIONAL = ("gpu_time", "cluster")
OPTIONS = ("gpus_per_pod", "cpu_per_gpu", "memory_gib_per_gpu")


def read_philly(path: str, source: str, options: Options) -> Trace:
    """Jobs of a Philly CSV; second 0 is the earliest submission. Jobs without run time or GPUs are skipped."""
    sizes = GangSizes(
        options.integer("gpus_per_pod", 8, 1, MAX_GPUS),
        round(options.number("cpu_per_gpu", 0, 0, 1024) * 1000),
        round(options.number("memory_gib_per_gpu", 0, 0, 65536) * 2**30),
    )
    clock = _Clock()
    rows: list[tuple[int, float, float, int, str]] = []
    skipped: list[Skipped] = []
    queues: dict[str, str] = {}
    for number, row in enumerate(read_table(path, COLUMNS, OPTIONAL), start=1):
        submitted_s = clock.seconds(row)
        duration_s = row.number("duration", 0, MAX_SECONDS)
        gpus = row.integer("num_gpus", 0, MAX_JOB_GPUS)
        queue = row.text("cluster")
        if duration_s == 0:
            skipped.append(Skipped(path, row.line, "duration", "ran for 0 seconds"))
        elif gpus == 0:
            skipped.append(Skipped(path, row.line, "num_gpus", "asks for no GPU"))
        else:
            rows.append((number, submitted_s, duration_s, gpus, queues.setdefault(queue, queue)))
    start_s = min((row[1] for row in rows), default=0.0) if clock.dated else 0.0
    workloads = tuple(
        Workload(
            f"job-{number}",
            sizes.pod_sets(gpus * 1000),
            submitted_s=submitted_s - start_s,
            duration_s=duration_s,
            queue=queue,
        )
        for number, submitted_s, duration_s, gpus, queue in rows
    )
    return Trace(Path(path).stem, source, workloads, tuple(skipped), epoch=clock.date(start_s) if clock.dated else None)


class _Clock:
    """Reads timestamps: all dates (without a time zone), or all numbers of seconds."""

    _ORIGIN = datetime(1970, 1, 1)

    def __init__(self) -> None:
        self.dated: bool | None = None

    def seconds(self, row: Record) -> float:
        """Seconds of a row's timestamp, since 1970 or since the file's own zero."""
        text = row.text("timestamp")
        dated = "-" in text[1:] and ":" in text
        if self.dated is None:
            self.dated = dated
        elif self.dated != dated:
            raise row.error(
                "timestamp", f"{text[:40]!r} is not written as in the rows above", "all dates or all seconds"
            )
        if not dated:
            return row.number("timestamp", 0, MAX_SECONDS)
        try:
            return (datetime.fromisoformat(text) - self._ORIGIN).total_seconds()
        except (ValueError, TypeError, OverflowError):
            hint = "write YYYY-MM-DD HH:MM:SS without a time zone"
            raise row.error("timestamp", f"{text[:40]!r} is no date and time", hint) from None

    def date(self, seconds: float) -> str:
        """ISO 8601 of what `seconds` returned."""
        return (self._ORIGIN + timedelta(seconds=seconds)).isoformat()
