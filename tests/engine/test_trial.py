"""A twin of a scheduler decides as one from the snapshot, and leaves no trace on the one that it is of."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.engine.config import Config
from muster.engine.decide import decide
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Plan
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload

SHAPES = (PodShape(1000, 0, 1), PodShape(2000, 0, 2), PodShape(4000, 0, 4), PodShape(500, 0, 1, 400))


def busy(rng: random.Random, config: Config) -> Snapshot:
    """A small cluster with queues at a random instant: work has started, ended and been idle; much of it waits."""
    devices = tuple(Device(index, "A") for index in range(4))
    nodes = rng.randrange(3, 9)
    fleet = Fleet(
        tuple(Node(f"n{at}", 16_000, 1 << 40, devices, topology=(f"r{at // 3}",)) for at in range(nodes)),
        Topology(("rack",)),
    )
    queues: tuple[Queue, ...] = ()
    if rng.random() < 0.7:
        queues = (
            Queue("org"), Queue("a", "org", quotas=(Quota("A", nodes * 2000),)),
            Queue("b", "org", quotas=(Quota("A", nodes * 2000),)),
        )  # fmt: skip
    scheduler = Scheduler(Snapshot(fleet, queues), config)
    now_s = 0.0
    for number in range(rng.randrange(8, 40)):
        pods = rng.choice((1, 1, 2, 3, 6))
        scheduler.submit(
            Workload(
                f"w{number}",
                (PodSet(rng.choice(SHAPES), pods, rng.choice((None, 1)), "main"),),
                now_s,
                time_limit_s=rng.choice((None, 600.0, 5000.0)),
                queue=rng.choice(("a", "b")) if queues else "",
                user=rng.choice(("", "u")),
                priority=rng.choice((0, 0, 0, 5)),
                checkpointing=rng.choice((None, Checkpointing(300.0, 30.0))),
                topology=rng.choice((None, None, TopologyRequest(required="rack"))),
            )
        )
        if rng.random() < 0.5:
            now_s += 100.0
            scheduler.cycle(now_s)
            for run in list(scheduler.running):
                if rng.random() < 0.15:
                    scheduler.finish(run.workload.name, now_s)
                elif rng.random() < 0.1:
                    scheduler.note_idle(run.workload.name, now_s - 3600.0)
    if rng.random() < 0.7:
        scheduler.cycle(now_s)
    return scheduler.snapshot(now_s)


def seen(scheduler: Scheduler, now_s: float) -> list[Any]:
    """All that decisions depend on."""
    state = scheduler.cluster.state.nodes
    runs = [(run, run.kind, run.rows.tolist(), run.limit_s, run.missing, run.resized_s) for run in scheduler.running]
    waits = {name: (gang, gang.reason) for name, gang in scheduler.pending.gangs.items()}
    lists = {
        kind: {claim: list(gangs) for claim, gangs in each.items()} for kind, each in scheduler.pending.kinds.items()
    }
    known = [(kind, list(kind.pods), dict(kind.refused)) for kind in scheduler.cluster.kinds]
    free = [array.tolist() for array in (state.cpu_free, state.memory_free, state.gpu_free, state.pods, state.gpu_use)]
    rooms = [(queue, scheduler.quota.available(queue, "A")) for queue in scheduler.queues]
    return [runs, waits, lists, known, free, rooms, scheduler.snapshot(now_s), dict(scheduler.slots)]


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_twin_decides_as_the_snapshot_does_and_nothing_of_it_stays(seed: int) -> None:
    rng = random.Random(seed)
    config = Config(reservations=rng.choice((1, 3)), queueing=rng.choice(("backfill", "backfill", "strict")))
    snapshot = busy(rng, config)
    now_s = snapshot.taken_s
    scheduler = Scheduler(snapshot, config)
    plan = scheduler.cycle(now_s)
    settled = replace(scheduler.snapshot(now_s), searches=())
    before = seen(scheduler, now_s)
    waits = list(scheduler.pending.gangs)
    with scheduler.trial() as twin:
        assert twin.cycle(now_s) == Scheduler(settled, config).cycle(now_s)
        for run in list(twin.running)[: rng.randrange(4)]:
            twin.send_back(run.workload.name, now_s)
        for name in waits[: rng.randrange(3)]:
            if name in twin.pending.gangs:
                twin.cancel(name)
        node = rng.choice(twin.cluster.fleet.nodes)
        twin.set_node(replace(node, schedulable=False), now_s)
        changed = replace(twin.snapshot(now_s), searches=())
        with twin.trial() as inner:
            assert inner.cycle(now_s) == Scheduler(changed, config).cycle(now_s)
        twin.cycle(now_s + 500.0)
    for old, new in zip(before, seen(scheduler, now_s), strict=True):
        assert old == new
    again = Scheduler(snapshot, config)
    assert again.cycle(now_s) == plan
    later_s = now_s + 60.0
    assert scheduler.cycle(later_s) == again.cycle(later_s), "it goes on as if nothing had been tried"


def test_work_is_put_where_a_snapshot_says() -> None:
    config = Config()
    snapshot = busy(random.Random(3), config)
    scheduler = Scheduler(snapshot, config)
    free = scheduler.cluster.state.nodes.gpu_free.copy()
    scheduler.put(snapshot.running)
    assert (scheduler.cluster.state.nodes.gpu_free == free).all()
    assert {run.workload.name for run in scheduler.running} == {run.workload.name for run in snapshot.running}
    scheduler.take_out(snapshot.running[0].workload.name)
    assert np.count_nonzero(scheduler.cluster.state.nodes.gpu_free != free)
    assert snapshot.running[0].workload.name not in scheduler.pending.gangs
    assert decide(scheduler.snapshot(0.0), 0.0, config) != Plan(())
