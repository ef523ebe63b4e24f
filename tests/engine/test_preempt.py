"""Whom to stop: what the quick search chooses is what trying after each stop would choose."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine import preempt
from muster.engine.config import Config
from muster.engine.pending import Gang
from muster.engine.preempt import Part
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload


def plain_choice(scheduler: Scheduler, gang: Gang, flavor: str, candidates: list[Part]) -> list[Part] | None:
    """Stop one after the other until the gang fits; then put back the dearest that are not needed."""
    cluster, quota = scheduler.cluster, scheduler.quota
    kind, queue = gang.kind.least, gang.workload.queue

    def starts() -> bool:
        return quota.fits(queue, flavor, kind.milli) is None and cluster.fits(kind, flavor)

    stopped: list[Part] = []
    fits = False
    for part in candidates:
        of = part.run.workload.queue
        if of != queue and not quota.owes(of, queue, flavor):
            continue
        cluster.give_back(part.rows)
        quota.refund(of, flavor, part.milli)
        stopped.append(part)
        fits = starts()
        if fits:
            break
    needed: list[Part] = []
    for part in reversed(stopped):
        cluster.take(part.rows)
        quota.charge(part.run.workload.queue, flavor, part.milli)
        if fits and not starts():
            cluster.give_back(part.rows)
            quota.refund(part.run.workload.queue, flavor, part.milli)
            needed.insert(0, part)
    for part in needed:
        cluster.take(part.rows)
        quota.charge(part.run.workload.queue, flavor, part.milli)
    return needed if fits else None


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_same_are_stopped_as_by_trying_after_each(seed: int) -> None:
    rng = random.Random(seed)
    quotas = (Quota("H100", 16_000),)
    queues = (Queue("org"), *(Queue(name, parent="org", quotas=quotas) for name in "abc"))
    devices = tuple(Device(index, "H100") for index in range(8))
    nodes = tuple(Node(f"n{index}", 64_000, 1 << 40, devices, topology=(f"r{index // 3}",)) for index in range(6))
    scheduler = Scheduler(Snapshot(Fleet(nodes, Topology(("rack",))), queues), Config())
    choose = preempt._choose  # pyright: ignore[reportPrivateUsage]
    chosen = 0

    def compared(scheduler: Scheduler, gang: Gang, flavor: str, candidates: list[Part]) -> list[Part] | None:
        nonlocal chosen
        expected = plain_choice(scheduler, gang, flavor, candidates)
        found = choose(scheduler, gang, flavor, candidates)
        assert found == expected
        chosen += found is not None
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preempt, "_choose", compared)
        for number in range(50):
            now_s = 200.0 * number
            scheduler.submit(
                Workload(
                    f"j{number:02}",
                    (PodSet(PodShape(1000, 0, rng.choice((1, 2, 4, 8, 8))), rng.choice((1, 1, 2, 3))),),
                    submitted_s=now_s, time_limit_s=1e5, queue=rng.choice("abc"), priority=rng.choice((0, 0, 1, 2)),
                    checkpointing=rng.choice((None, Checkpointing(500.0, 30.0))),
                    topology=rng.choice((None, None, TopologyRequest(required="rack"))),
                )
            )  # fmt: skip
            if number % 9 == 8:
                scheduler.finish(rng.choice(sorted(run.workload.name for run in scheduler.running)), now_s)
            scheduler.cycle(now_s)
    assert chosen
