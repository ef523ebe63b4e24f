"""Services whose replicas follow demand, beside batch work in one pool: what is wanted, and how long it was missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from muster.model.workload import PodSet, PodShape, Workload

DAY_S = 86400.0

_Seconds = Annotated[float, Meta(ge=0, le=1e12)]
_Replicas = Annotated[int, Meta(ge=0, le=1_000_000)]


class Daily(Struct, frozen=True, forbid_unknown_fields=True):
    """Replicas that follow a cosine over the day: ``high`` at ``peak_s`` after midnight, ``low`` twelve hours from it.

    The number is set anew each ``step_s``, rounded up.
    """

    low: _Replicas
    high: _Replicas
    peak_s: _Seconds = 14 * 3600.0
    step_s: Annotated[float, Meta(gt=0, le=86400)] = 300.0

    def wanted(self, until_s: float) -> Iterator[tuple[float, int]]:
        """From when on how many replicas are wanted."""
        before = -1
        for step in range(math.ceil(until_s / self.step_s)):
            time_s = step * self.step_s
            phase = math.cos(2 * math.pi * (time_s - self.peak_s) / DAY_S)
            count = math.ceil(self.low + (self.high - self.low) * (1 + phase) / 2 - 1e-9)
            if count != before:
                yield time_s, count
                before = count


class Service(Struct, frozen=True):
    """A service: ``wanted`` holds from when on how many replicas are wanted, each of them a gang of ``pods`` pods.

    A replica serves ``start_s`` after its pods have started (image, weights, warm-up).
    """

    name: str
    shape: PodShape
    pods: int
    wanted: tuple[tuple[float, int], ...]
    queue: str = ""
    priority: int = 0
    start_s: float = 0.0


class Replica(Struct, frozen=True):
    """A replica that is wanted until ``until_s``; the workload that stands for it is submitted when it first is."""

    service: int
    workload: Workload
    until_s: float


def replicas_of(services: Sequence[Service], end_s: float) -> list[Replica]:
    """Each stretch of time in which a replica is wanted, as a workload; when fewer are wanted the newest goes first."""
    found: list[Replica] = []
    for number, service in enumerate(services):
        since: list[float] = []
        for time_s, count in (*service.wanted, (end_s, 0)):
            if time_s > end_s:
                continue
            while len(since) > count:
                begun_s = since.pop()
                if time_s > begun_s:
                    found.append(_replica(number, service, len(since), begun_s, time_s))
            since += [time_s] * (count - len(since))
    return sorted(found, key=lambda each: (each.workload.submitted_s, each.workload.name))


def _replica(number: int, service: Service, index: int, begun_s: float, until_s: float) -> Replica:
    at = f"{begun_s:g}" if float(f"{begun_s:g}") == begun_s else repr(begun_s)  # short, but never that of another time
    name = f"{service.name}-{index + 1}@{at}"
    workload = Workload(
        name, (PodSet(service.shape, service.pods),), submitted_s=begun_s, queue=service.queue,
        priority=service.priority, preemptible=False,
    )  # fmt: skip
    return Replica(number, workload, until_s)


class ServiceFigures(Struct, frozen=True):
    """How a service fared.

    Attributes:
        name: of the service.
        replicas: how many were started or should have been.
        wanted_hours: GPU-hours that were wanted.
        short_hours: of these, those in which a replica had no place, or not yet: starting takes no part in it.
        cold_hours: those in which a replica had its place and did not serve yet.
        wait_p50_s, wait_p99_s, wait_max_s: from wanted to a place; those that never had one wait to their end.
        late: replicas that waited longer than their queue's ``reclaim_s`` less the start; 0 where it states none.
    """

    name: str
    replicas: int
    wanted_hours: float
    short_hours: float
    cold_hours: float
    wait_p50_s: float
    wait_p99_s: float
    wait_max_s: float
    late: int


def figures_of(
    services: Sequence[Service],
    replicas: Sequence[tuple[Replica, float]],
    reclaim_s: Sequence[float],
    end_s: float,
) -> tuple[ServiceFigures, ...]:
    """Figures of each service up to ``end_s``; ``replicas`` come with the time at which each had its place (or NaN)."""
    told: list[ServiceFigures] = []
    for number, service in enumerate(services):
        gpus = service.shape.gpu_milli_total * service.pods / 1000
        mine = [(each, at) for each, at in replicas if each.service == number and each.workload.submitted_s < end_s]
        waits: list[float] = []
        wanted = short = cold = 0.0
        for each, started_s in mine:
            begun_s, until_s = each.workload.submitted_s, min(each.until_s, end_s)
            placed_s = until_s if math.isnan(started_s) else min(started_s, until_s)
            serves_s = min(placed_s + service.start_s, until_s)
            waits.append(placed_s - begun_s)
            wanted += until_s - begun_s
            short += placed_s - begun_s
            cold += serves_s - placed_s
        promise_s = reclaim_s[number] - service.start_s
        p50, p99 = np.quantile(waits, (0.5, 0.99)).tolist() if waits else (math.nan, math.nan)
        told.append(
            ServiceFigures(
                service.name, len(mine), gpus * wanted / 3600, gpus * short / 3600, gpus * cold / 3600, p50, p99,
                max(waits, default=math.nan),
                sum(wait_s > promise_s + 1e-6 for wait_s in waits) if reclaim_s[number] else 0,
            )
        )  # fmt: skip
    return tuple(told)


def steepest(service: Service, within_s: float) -> tuple[float, int]:
    """When the number of replicas grows most within so many seconds, and by how many."""
    best, at = 0, 0.0
    for index, (time_s, count) in enumerate(service.wanted):
        for later_s, more in service.wanted[index + 1 :]:
            if later_s - time_s > within_s:
                break
            if more - count > best:
                best, at = more - count, time_s
    return at, best
