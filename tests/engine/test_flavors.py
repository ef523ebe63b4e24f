"""In which order flavors are tried, and when a queue borrows or stops others rather than to go on to the next."""

from __future__ import annotations

from typing import Literal

import pytest

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node
from muster.model.plan import Evict, Place
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, Workload

BOTH = ("H100/reserved", "H100/on-demand")

Borrow = Literal["borrow", "try-next-flavor"]
Preempt = Literal["preempt", "try-next-flavor"]


def fleet() -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(
            Node(f"{purchase}-{at}", 64_000, 1 << 40, devices, purchase=purchase)
            for purchase in ("reserved", "on-demand")
            for at in range(4)
        )
    )


def queues(borrow: Borrow, preempt: Preempt) -> tuple[Queue, ...]:
    quotas = tuple(Quota(flavor, 16_000) for flavor in BOTH)
    return (
        Queue("org"),
        Queue("a", "org", quotas=quotas, when_can_borrow=borrow, when_can_preempt=preempt),
        Queue("b", "org", quotas=quotas),
    )


def job(name: str, queue: str, pods: int, at: float, flavors: tuple[str, ...] = BOTH) -> Workload:
    return Workload(name, (PodSet(PodShape(1000, 0, 8), pods),), submitted_s=at, queue=queue, flavors=flavors)


def told(scheduler: Scheduler, now_s: float) -> list[str]:
    words: list[str] = []
    for each in scheduler.cycle(now_s).decisions:
        if isinstance(each, Place):
            words.append(f"+{each.workload} {each.flavor} {each.borrowed_milli // 1000}")
        elif isinstance(each, Evict):
            words.append(f"-{each.workload}")
    return words


@pytest.mark.parametrize(
    ("borrow", "expected"),
    [("borrow", "+more H100/reserved 8"), ("try-next-flavor", "+more H100/on-demand 0")],
)
def test_a_loan_or_the_next_flavor(borrow: Borrow, expected: str) -> None:
    scheduler = Scheduler(Snapshot(fleet(), queues(borrow, "try-next-flavor")), Config())
    scheduler.submit(job("own", "a", 2, 0.0))
    assert told(scheduler, 0.0) == ["+own H100/reserved 0"]
    scheduler.submit(job("more", "a", 1, 1.0))
    assert told(scheduler, 1.0) == [expected]


def test_where_nothing_is_left_without_a_loan_it_borrows() -> None:
    scheduler = Scheduler(Snapshot(fleet(), queues("try-next-flavor", "try-next-flavor")), Config())
    scheduler.submit(job("one", "a", 2, 0.0))
    scheduler.submit(job("two", "a", 2, 1.0))
    scheduler.submit(job("more", "a", 1, 2.0))
    assert told(scheduler, 2.0) == ["+one H100/reserved 0", "+two H100/on-demand 0", "+more H100/reserved 8"]


@pytest.mark.parametrize(
    ("preempt", "expected"),
    [
        ("preempt", ["-lent", "+own H100/reserved 0", "+lent H100/on-demand 16"]),
        ("try-next-flavor", ["+own H100/on-demand 0"]),
    ],
)
def test_others_are_stopped_or_the_next_flavor_is_taken(preempt: Preempt, expected: list[str]) -> None:
    scheduler = Scheduler(Snapshot(fleet(), queues("borrow", preempt)), Config(defragment=False))
    scheduler.submit(job("lent", "b", 4, 0.0))
    assert told(scheduler, 0.0) == ["+lent H100/reserved 16"]
    scheduler.submit(job("own", "a", 1, 1.0))
    now = told(scheduler, 1.0)
    assert now + (told(scheduler, 2.0) if len(now) == 2 else []) == expected


def test_a_workload_names_its_flavors_in_its_own_order() -> None:
    scheduler = Scheduler(Snapshot(fleet(), queues("borrow", "try-next-flavor")), Config())
    scheduler.submit(job("own", "a", 1, 0.0, BOTH[::-1]))
    assert told(scheduler, 0.0) == ["+own H100/on-demand 0"]
