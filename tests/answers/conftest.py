"""Random instants of random clusters, with everything in them that a snapshot can hold."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Taint, Topology
from muster.model.queue import Queue, Quota
from muster.model.snapshot import AdvanceReservation, Snapshot
from muster.model.workload import (
    Checkpointing,
    PodSet,
    PodShape,
    Toleration,
    TopologyRequest,
    Workload,
)

_LIMITS = (None, None, 600.0, 3600.0, 40_000.0)
_NAMES = ("train-llama", "eval.sweep", "finetune", "etl")
_USERS = ("ann", "bob", "carol", "")


def _fleet(rng: random.Random) -> Fleet:
    nodes = []
    for number in range(rng.choice((6, 8, 12))):
        model = "A100" if number % 4 == 3 else "H100-SXM5-80GB"
        devices = tuple(Device(at, model, 80 << 30, healthy=rng.random() > 0.03) for at in range(8))
        labels = (("kubernetes.io/arch", "amd64"), ("team.acme.example/pool", rng.choice(("gold", "iron"))))
        shut = rng.random() < 0.08
        nodes.append(Node(
            f"gpu{number:02}.acme.example", 96_000, 512 << 30, devices, labels,
            (Taint("acme.example/dedicated", "secret-lab"),) if rng.random() < 0.15 else (),
            (f"hall-{number // 6}", f"aisle-{number // 2}"), not shut, "drained by ann: bad NIC" if shut else "",
            rng.choice(("", "reserved", "spot")) if number % 3 == 2 else "", rng.random() < 0.08,
        ))  # fmt: skip
    return Fleet(tuple(nodes), Topology(("block", "rack")), "acme-east")


def _queues(rng: random.Random) -> tuple[Queue, ...]:
    if rng.random() < 0.3:
        return ()
    quota = [Quota("H100-SXM5-80GB", rng.choice((8000, 24_000)), rng.choice((None, 8000))) for _ in range(2)]
    return (
        Queue("acme"),
        Queue("acme/research", "acme", 2.0, (quota[0], Quota("A100", 8000)), tenant="tenant-red"),
        Queue("acme/serving", "acme", 1.0, (quota[1],), max_running_milli=rng.choice((None, 16_000)), max_priority=1),
    )


def _shape(rng: random.Random) -> PodShape:
    size = rng.random()
    selector = (("team.acme.example/pool", "gold"),) if rng.random() < 0.15 else ()
    bears = (Toleration("acme.example/dedicated", "Exists"),) if rng.random() < 0.5 else ()
    if size < 0.15:
        return PodShape(1000, 1 << 30, 1, rng.choice((250, 500)), node_selector=selector, tolerations=bears,
                        tenant=rng.choice(("", "tenant-blue")))  # fmt: skip
    if size < 0.2:
        return PodShape(4000, 1 << 30, 0)
    models = ("A100",) if rng.random() < 0.1 else ()
    return PodShape(8000, 32 << 30, rng.choice((1, 2, 4, 8, 8)), 1000, models, selector, bears)


def _work(rng: random.Random, number: int, now_s: float, queues: tuple[Queue, ...]) -> Workload:
    shape, pods = _shape(rng), rng.choice((1, 1, 1, 2, 3, 4))
    sets = (PodSet(shape, pods, rng.randint(1, pods) if rng.random() < 0.2 else None, "worker-of-ann"),)
    if rng.random() < 0.1:
        sets = (PodSet(PodShape(1000, 1 << 30), role="head"), *sets)
    places = (None, None, TopologyRequest(required="rack"), TopologyRequest(preferred="block"))
    return Workload(
        f"{rng.choice(_NAMES)}-{number:03}{rng.choice(('', '-x7f2k'))}", sets, now_s, None, rng.choice(_LIMITS),
        queue=rng.choice(queues[1:]).name if queues else "", user=rng.choice(_USERS), namespace="ns-acme",
        priority=rng.choice((0, 0, 0, 1)), quality=rng.choice(("", "", "spot")),
        topology=rng.choice(places) if len(sets) == 1 else None,
        checkpointing=rng.choice((None, Checkpointing(300.0, 60.0))), preemptible=rng.random() > 0.1,
        depends_on=(f"{_NAMES[0]}-000",) if rng.random() < 0.05 else (),
        start_deadline_s=now_s + 5000.0 if rng.random() < 0.05 else None,
    )  # fmt: skip


def make_snapshot(seed: int) -> Snapshot:
    """An instant of a random history: what the scheduler knows then, before its cycle."""
    rng = random.Random(seed)
    fleet, queues = _fleet(rng), _queues(rng)
    now_s = rng.choice((0.0, 1.7e9))
    kept = AdvanceReservation("upgrade by ann", now_s + 9000.0, now_s + 20_000.0, (fleet.nodes[0].name,))
    config = Config(
        reservations=rng.choice((1, 3)), quarantine_failures=2, predict=rng.choice(("always", "without-limit"))
    )
    first = Snapshot(fleet, queues, reservations=(kept,) if rng.random() < 0.3 else (), taken_s=now_s)
    scheduler = Scheduler(first, config)
    for number in range(rng.choice((10, 40))):
        now_s += rng.choice((0.0, 60.0, 900.0))
        for more in range(rng.randrange(3)):
            scheduler.submit(_work(rng, 10 * number + more, now_s, queues))
        names = sorted(run.workload.name for run in scheduler.running)
        node = rng.choice(scheduler.cluster.fleet.nodes)
        match rng.randrange(5):
            case 0 | 1 if names:
                scheduler.finish(rng.choice(names), now_s)
            case 2 if names:
                scheduler.fail(rng.choice(names), now_s, node.name)
            case 3:
                scheduler.set_node(replace(node, schedulable=False, reason="ann looks at it"), now_s)
            case _:
                back = next(each for each in fleet.nodes if each.name == node.name)
                scheduler.set_node(back, now_s)
        scheduler.cycle(now_s)
        for run in scheduler.running:
            if run.workload.checkpointing is not None and rng.random() < 0.3:
                run.checkpointed_s = now_s
    for more in range(rng.randrange(4)):
        scheduler.submit(_work(rng, 900 + more, now_s, queues))
    found = scheduler.snapshot(now_s)
    if found.running and found.pending and rng.random() < 0.3:
        gone = replace(found.running[-1], leaving_s=now_s + 500.0, leaving_for=found.pending[0].name, missing=())
        if not found.running[-1].missing:
            found = replace(found, running=(*found.running[:-1], gone))
    return replace(found, source="kubernetes:acme-east-admin")


@pytest.fixture(scope="session")
def random_snapshot() -> Callable[[int], Snapshot]:
    """``random_snapshot(seed)``: an instant of a random history."""
    return make_snapshot
