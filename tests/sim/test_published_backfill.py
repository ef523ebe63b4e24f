"""EASY and conservative backfill against published starts, job by job."""

from __future__ import annotations

import csv
import heapq
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Fleet, Node
from muster.model.plan import Place
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, Workload

HOSTS = 32


def published(path: Path) -> list[dict[str, float]]:
    with path.open() as file:
        return [
            {
                key: float(row[key])
                for key in (
                    "job_id", "submission_time", "requested_number_of_resources", "requested_time", "execution_time",
                    "starting_time",
                )
            }
            for row in csv.DictReader(file)
        ]  # fmt: skip


def starts(jobs: list[dict[str, float]], config: Config) -> dict[str, float]:
    """When each job starts: one core a host, jobs end after their execution time."""
    fleet = Fleet(tuple(Node(f"h{index:02}", 1000, 0) for index in range(HOSTS)))
    scheduler = Scheduler(Snapshot(fleet), config)
    events: list[tuple[float, int, int]] = []
    for index, job in enumerate(jobs):
        heapq.heappush(events, (job["submission_time"], 1, index))
    begun: dict[str, float] = {}
    while events:
        now_s = events[0][0]
        while events and events[0][0] == now_s:
            _, kind, index = heapq.heappop(events)
            name = f"{index:04}"
            if kind == 1:
                job = jobs[index]
                pods = PodSet(PodShape(1000), int(job["requested_number_of_resources"]))
                scheduler.submit(
                    Workload(name, (pods,), submitted_s=job["submission_time"], time_limit_s=job["requested_time"])
                )
            else:
                scheduler.finish(name, now_s)
        for each in scheduler.cycle(now_s).decisions:
            if isinstance(each, Place):
                begun[each.workload] = now_s
                index = int(each.workload)
                heapq.heappush(events, (now_s + jobs[index]["execution_time"], 0, index))
    return begun


def waits(jobs: list[dict[str, float]], begun: dict[str, float]) -> list[float]:
    return [begun[f"{index:04}"] - job["submission_time"] for index, job in enumerate(jobs)]


@pytest.mark.parametrize(("name", "reservations"), [("easy", 1), ("conservative", 1000)])
def test_every_job_starts_when_it_was_published(
    name: str, reservations: int, shared_data: Callable[[str], Path]
) -> None:
    jobs = published(shared_data(f"jobs/batsim_medium_late_{name}.csv"))
    begun = starts(jobs, Config(reservations=reservations))
    late = [job["starting_time"] - job["submission_time"] for job in jobs]
    assert waits(jobs, begun) == pytest.approx(late, abs=0.01)
