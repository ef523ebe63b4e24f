"""The whole cycle on GPUs that are shared: tenants of queues, MIG instances in snapshots, reserved starts that hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.catalog.mig_placements import mig_milli
from muster.engine.config import Config
from muster.engine.decide import decide
from muster.engine.scheduler import Scheduler
from muster.engine.sharing import queue_tenants
from muster.engine.state import Allocation
from muster.errors import CapacityError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Evict, Place, Plan
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload, single_pod

SHAPES = (
    *(PodShape(1, 1, 1, 125 * slices, mig_profile=name)
      for name, slices in (("1g.10gb", 1), ("2g.20gb", 2), ("3g.40gb", 4), ("4g.40gb", 4), ("7g.80gb", 8))),
    PodShape(1, 1, 1, 500), PodShape(1, 1, 1, 300, tenant="a"), PodShape(1, 1, 1, 600, tenant="b"),
    PodShape(1, 1, 1, 250, sharing="mps", tenant="a"), PodShape(1, 1, 1), PodShape(1, 1, 2), PodShape(1, 1, 2, 400),
)  # fmt: skip


def fleet(nodes: int = 3, gpus: int = 2) -> Fleet:
    devices = tuple(Device(at, "H100") for at in range(gpus))
    rows = (Node(f"n{at}", 1000, 1000, devices, topology=(f"r{at // 2}",)) for at in range(nodes))
    return Fleet(tuple(rows), Topology(("rack",)))


def check(scheduler: Scheduler) -> None:
    scheduler.cluster.state.validate(
        Allocation(node, shape, devices) for run in scheduler.running for node, shape, devices in run.rows.T.tolist()
    )


def moves(plan: Plan) -> list[str]:
    return [each.workload for each in plan.decisions if isinstance(each, Place | Evict)]


def job(rng: random.Random, number: int, now_s: float, queue: str = "") -> Workload:
    sets = (PodSet(rng.choice(SHAPES), rng.choice((1, 1, 2, 5))),)
    if rng.random() < 0.3:
        sets = (*sets, PodSet(rng.choice(SHAPES), 1, role="other"))
    limit_s = rng.choice((300.0, 900.0, 3600.0))
    topology = rng.choice((None, None, TopologyRequest(required="rack")))
    return Workload(
        f"j{number:02}",
        sets,
        now_s,
        time_limit_s=limit_s,
        queue=queue,
        priority=rng.choice((0, 0, 1)),
        topology=topology,
    )


@settings(max_examples=20, deadline=None)
@example(seed=65234, queueing="best-effort", queued=True)  # other work placed, two pod sets then fit
@given(seed=st.integers(0, 10**6), queueing=st.sampled_from(["strict", "best-effort"]), queued=st.booleans())
def test_invariants_and_restarts_over_random_histories(seed: int, queueing: str, queued: bool) -> None:
    rng = random.Random(seed)
    quotas = (Quota("H100", 3000),)
    queues = (Queue("org"), *(Queue(name, "org", 1.0, quotas, tenant=f"t{name}") for name in "ab")) if queued else ()
    scheduler = Scheduler(Snapshot(fleet(), queues), Config(queueing=queueing))  # pyright: ignore[reportArgumentType]
    now_s, number = 0.0, 0
    for _ in range(30):
        now_s += rng.choice((0.0, 60.0, 900.0))
        for _ in range(rng.randrange(3)):
            number += 1
            scheduler.submit(job(rng, number, now_s, rng.choice("ab") if queued else ""))
        if rng.random() < 0.5 and len(scheduler.running):
            scheduler.finish(rng.choice(sorted(run.workload.name for run in scheduler.running)), now_s)
        scheduler.cycle(now_s)
        check(scheduler)
        assert [moves(scheduler.cycle(now_s)) for _ in range(4)][-1] == []
        snapshot = scheduler.snapshot(now_s)
        assert moves(decide(snapshot, now_s, scheduler.config)) == []
        again = Scheduler(snapshot, scheduler.config)
        assert again.snapshot(now_s).running == snapshot.running
        check(again)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), reservations=st.sampled_from([1, 2, 8]))
def test_a_reserved_start_never_slips(seed: int, reservations: int) -> None:
    """Also where the rest of a GPU is another tenant's, or others could take the start that a MIG instance needs."""
    rng = random.Random(seed)
    scheduler = Scheduler(Snapshot(fleet(2)), Config(reservations=reservations))
    ends: dict[str, float] = {}
    promised: dict[str, float] = {}
    work: list[Workload] = []
    submitted_s = 0.0
    for number in range(40):
        submitted_s += rng.choice((0.0, 30.0, 400.0))
        work.append(Workload(f"j{number:02}", (PodSet(rng.choice(SHAPES), rng.choice((1, 1, 2))),), submitted_s,
                             time_limit_s=rng.choice((300.0, 3600.0))))  # fmt: skip
    while work or ends:
        now_s = min([each.submitted_s for each in work[:1]] + list(ends.values()))
        for name in [name for name, end_s in ends.items() if end_s == now_s]:
            scheduler.finish(name, now_s)
            del ends[name]
        while work and work[0].submitted_s == now_s:
            scheduler.submit(work.pop(0))
        for each in scheduler.cycle(now_s).decisions:
            if isinstance(each, Place):
                assert now_s <= promised.get(each.workload, now_s), "it starts no later than it was told"
                limit_s = scheduler.running[each.workload].limit_s - now_s
                ends[each.workload] = now_s + rng.choice((1.0, 0.5, 0.1)) * limit_s
        for name, slot in scheduler.slots.items():
            assert slot.start_s <= promised.get(name, slot.start_s)
            promised[name] = slot.start_s
        check(scheduler)
    assert not len(scheduler.pending)


def test_queues_hand_their_tenant_down() -> None:
    org = Queue("org", quotas=(Quota("H100", 2000),))
    queues = (org, Queue("x", "org", tenant="x"), Queue("x1", "x"), Queue("x2", "x", tenant="y"), Queue("z", "org"))
    assert queue_tenants(queues) == {"x": "x", "x1": "x", "x2": "y"}
    half = PodShape(1, 1, 1, 500)
    scheduler = Scheduler(Snapshot(fleet(1, 1), queues), Config(queueing="best-effort"))
    for name, queue in (("one", "x"), ("two", "x2"), ("three", "x1")):
        scheduler.submit(Workload(name, (PodSet(half),), queue=queue, submitted_s=len(name)))
    assert moves(scheduler.cycle(0.0)) == ["one", "three"]
    scheduler.submit(Workload("own", (PodSet(PodShape(1, 1, 1, 500, tenant="y")),), queue="x", submitted_s=1))
    scheduler.finish("one", 1.0)
    scheduler.finish("three", 1.0)
    assert sorted(moves(scheduler.cycle(1.0))) == ["own", "two"], "what a workload says goes before its queue's"


def test_a_snapshot_without_a_start_gets_one_and_a_wrong_one_is_refused() -> None:
    pod = PodShape(1, 1, 1, 500, mig_profile="3g.40gb")
    scheduler = Scheduler(Snapshot(fleet(1, 1), pending=(single_pod("a", pod),)), Config())
    (place,) = scheduler.cycle(0.0).decisions
    assert isinstance(place, Place)
    (at,) = place.pods
    assert (at.mig, at.mig_start, at.gpu_milli) == ("3g.40gb", 4, 500)
    snapshot = scheduler.snapshot(0.0)
    (run,) = snapshot.running
    for start, found in ((-1, 4), (0, 0)):
        moved = replace(snapshot, running=(replace(run, pods=(replace(at, mig_start=start),)),))
        assert Scheduler(moved, Config()).snapshot(0.0).running[0].pods[0].mig_start == found
    wrong = replace(snapshot, running=(replace(run, pods=(replace(at, mig_start=2),)),))
    with pytest.raises(CapacityError, match=r"no MIG 3g\.40gb at slice 2"):
        Scheduler(wrong, Config())


def test_costs_are_memory_slices() -> None:
    assert [mig_milli(name, ["H100"]) for name in ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb", "x")] == [
        125, 250, 250, 500, 1000, 0,
    ]  # fmt: skip
    assert mig_milli("1g.10gb", ["H100", "A100-SXM4-40GB", "T4"]) == 250
