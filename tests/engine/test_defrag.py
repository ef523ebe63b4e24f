"""Defragmentation: whatever is planned can be carried out, costs what it says, and nothing is moved for nobody."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.config import Config
from muster.engine.decide import decide
from muster.engine.defrag import plan_moves
from muster.engine.scheduler import Scheduler
from muster.engine.state import Allocation
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Evict, Migrate, Place, Plan, PodPlacement
from muster.model.reasons import Reason
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload

NOW_S = 7200.0
SHAPES = (
    PodShape(1000, 0, 1), PodShape(1000, 0, 2), PodShape(4000, 0, 4), PodShape(8000, 0, 8), PodShape(500, 0, 1, 300),
    PodShape(2000, 0, 0), PodShape(1000, 0, 2, 500),
)  # fmt: skip
REQUESTS = (None, None, None, TopologyRequest(required="rack"), TopologyRequest(preferred="rack"))


def make_fleet(nodes: int, rack: int = 3) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(Node(f"n{i:02}", 16_000, 1 << 40, devices, topology=(f"r{i // rack}",)) for i in range(nodes)),
        Topology(("rack",)),
    )


def fragmented(rng: random.Random, nodes: int) -> Snapshot:
    """A fleet on which much was started at random places and about half of it has ended."""
    scheduler = Scheduler(Snapshot(make_fleet(nodes)), Config(placement="random", defragment=False))
    for number in range(nodes * 6):
        pods = rng.choice((1, 1, 1, 2, 3))
        request = rng.choice(REQUESTS) if pods > 1 else None
        saved = Checkpointing(600.0, rng.choice((0.0, 60.0, 600.0))) if rng.random() < 0.9 else None
        scheduler.submit(
            Workload(
                f"w{number:03}", (PodSet(rng.choice(SHAPES), pods),), time_limit_s=rng.choice((10_000.0, 90_000.0)),
                checkpointing=saved, topology=request, preemptible=rng.random() < 0.9,
            )
        )  # fmt: skip
    scheduler.config = Config(placement="random", queueing="best-effort", defragment=False)
    scheduler.cycle(0.0)
    for run in list(scheduler.running):
        if rng.random() < 0.4:
            scheduler.finish(run.workload.name, 1.0)
        elif run.workload.checkpointing is not None and rng.random() < 0.7:
            run.checkpointed_s = rng.uniform(1.0, NOW_S)
    for name in list(scheduler.pending.gangs):
        scheduler.cancel(name)
    return scheduler.snapshot(NOW_S)


def random_gang(rng: random.Random, snapshot: Snapshot) -> Workload:
    """A gang that asks for some of what is free, in large pieces."""
    held = sum(each.workload.gpu_milli for each in snapshot.running)
    free = len(snapshot.fleet) * 8 - held // 1000
    shape = rng.choice((SHAPES[2], SHAPES[3], SHAPES[3], PodShape(1000, 0, 6)))
    pods = max(1, int(free * rng.uniform(0.4, 1.0)) // shape.gpus)
    request = rng.choice((*REQUESTS, TopologyRequest(required="rack", segment=2)))
    return Workload(
        "gang", (PodSet(shape, pods), PodSet(PodShape(1000, 0, 0), rng.choice((0, 1)))),
        submitted_s=NOW_S, time_limit_s=40_000.0, topology=request,
    )  # fmt: skip


def check_state(scheduler: Scheduler) -> None:
    index = scheduler.cluster.index
    scheduler.cluster.state.validate(
        Allocation(node, shape, devices) for run in scheduler.running for node, shape, devices in run.rows.T.tolist()
    )
    for run in scheduler.running:
        assert run.rows.shape[1] == run.kind.count
        assert all(run in scheduler.running.on_node(node) for node in run.rows[0].tolist())
        request = run.workload.topology
        if request is not None and request.required:
            racks = index.of_node[index.depth_of(request.required) - 1][run.rows[0]]
            size = request.segment or len(racks)
            assert all(len(set(racks[at : at + size].tolist())) == 1 for at in range(0, len(racks), size))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9), nodes=st.integers(3, 9), budget=st.sampled_from((0.0, 3600.0, 1e9)))
def test_plans_are_tried_in_memory_and_can_be_carried_out(seed: int, nodes: int, budget: float) -> None:
    rng = random.Random(seed)
    config = Config(move_limit=1e9)
    snapshot = fragmented(rng, nodes)
    scheduler = Scheduler(snapshot, config)
    scheduler.submit(random_gang(rng, snapshot))
    gang = scheduler.pending.gangs["gang"]
    arrays = scheduler.cluster.state.nodes
    before = [array.copy() for array in (arrays.cpu_free, arrays.memory_free, arrays.gpu_free, arrays.pods)]
    names = {run.workload.name: run.rows for run in scheduler.running}
    moves = plan_moves(scheduler, gang, NOW_S, budget)
    after = (arrays.cpu_free, arrays.memory_free, arrays.gpu_free, arrays.pods)
    assert all((old == new).all() for old, new in zip(before, after, strict=True)), "a plan changes nothing"
    if moves is None:
        return
    assert moves.cost_gpu_s <= budget
    assert moves.cost_gpu_s == sum(run.lost_gpu_s(NOW_S) for run, _ in moves.moved)
    for run, rows in moves.moved:
        assert run.workload.preemptible
        assert run.workload.checkpointing is not None
        assert (rows != names[run.workload.name]).any(), "what is moved has another place"
        assert (np.sort(rows[1]) == np.sort(run.rows[1])).all(), "all its pods are there, of the same shapes"


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9), nodes=st.integers(3, 9))
def test_after_a_cycle_with_moves_all_invariants_hold_and_the_plan_is_empty(seed: int, nodes: int) -> None:
    rng = random.Random(seed)
    config = Config(reservations=3, run_s=50_000.0)
    snapshot = fragmented(rng, nodes)
    scheduler = Scheduler(snapshot, config)
    running = {run.workload.name for run in scheduler.running}
    gang = random_gang(rng, snapshot)
    for number in range(2):
        pod_sets = (PodSet(gang.pod_sets[0].shape, max(1, gang.pod_sets[0].count // 2)),)
        scheduler.submit(Workload(f"g{number}", pod_sets, NOW_S + number, 40_000.0, 40_000.0, topology=gang.topology))
    before = scheduler.snapshot(NOW_S)
    plan = scheduler.cycle(NOW_S)
    check_state(scheduler)
    placed = [each.workload for each in plan.decisions if isinstance(each, Place)]
    moved = [each for each in plan.decisions if isinstance(each, Migrate)]
    assert not any(isinstance(each, Evict) for each in plan.decisions)
    assert running <= {run.workload.name for run in scheduler.running}, "who is moved goes on"
    assert {each.for_workload for each in moved} <= set(placed), "nobody is moved but for who then starts"
    assert len({each.workload for each in moved}) == len(moved), "and nobody twice"
    for each in moved:
        run = scheduler.running[each.workload]
        assert run.started_s == NOW_S
        assert run.workload.attempts == 1
        assert scheduler.cluster.places(run.rows) == each.pods
    assert scheduler.cycle(NOW_S) == Plan(()), "with nothing new nothing changes"
    rest = [each for each in decide(before, NOW_S, config).decisions if isinstance(each, Migrate | Place)]
    assert rest == [each for each in plan.decisions if isinstance(each, Migrate | Place)], "a snapshot says as much"


def one_job_a_node(count: int, **more: object) -> Snapshot:
    """A half used node each: GPUs 0 to 3."""
    running = tuple(
        Running(
            Workload(f"s{i}", (PodSet(SHAPES[2]),), time_limit_s=50_000.0, checkpointing=Checkpointing(600.0, 60.0)),
            0.0, (_places(f"n{i:02}"),), checkpointed_s=NOW_S - 100.0 * (i + 1),
        )
        for i in range(count)
    )  # fmt: skip
    return Snapshot(make_fleet(count), running=running, **more)  # type: ignore[arg-type]


def _places(node: str) -> PodPlacement:
    return PodPlacement(node, (0, 1, 2, 3), 1000)


def told(plan: Plan) -> list[str]:
    signs = {Migrate: ">", Place: "+", Evict: "-"}
    return [f"{signs[type(each)]}{each.workload}" for each in plan.decisions if type(each) in signs]  # type: ignore[union-attr]


def test_the_cheapest_moves_are_made_and_the_price_is_told() -> None:
    scheduler = Scheduler(one_job_a_node(6), Config())
    scheduler.submit(Workload("gang", (PodSet(SHAPES[3], 3),), NOW_S, 3600.0, 3600.0))
    plan = scheduler.cycle(NOW_S)
    assert told(plan) == [">s0", ">s1", ">s2", "+gang"]
    assert [each.cost_gpu_s for each in plan.decisions if isinstance(each, Migrate)] == [640.0, 1040.0, 1440.0]


def test_work_may_be_moved_so_that_other_work_may_be_moved() -> None:
    """4 GPUs must find a place, and only where a job of 1 GPU stands in the way."""
    fleet = make_fleet(3)
    sizes = {"a": (0, 0, 4), "b": (1, 0, 1), "c": (1, 4, 3), "d": (2, 0, 6)}

    def run(name: str) -> Running:
        node, first, gpus = sizes[name]
        shape = PodShape(1000, 0, gpus)
        work = Workload(
            name, (PodSet(shape),), time_limit_s=50_000.0, checkpointing=Checkpointing(600.0, 60.0),
            preemptible=name in ("a", "b"),
        )  # fmt: skip
        return Running(work, 0.0, (PodPlacement(f"n{node:02}", tuple(range(first, first + gpus)), 1000),), NOW_S)

    # free are 4 on n00, 3 on n01 and 2 on n02: a finds a place if b goes to n02
    running = tuple(run(name) for name in sizes)
    blocker = Workload("e", (PodSet(PodShape(1000, 0, 1)),), time_limit_s=50_000.0, preemptible=False)
    stands = Running(blocker, 0.0, (PodPlacement("n01", (7,), 1000),))
    scheduler = Scheduler(Snapshot(fleet, running=(*running, stands)), Config(move_limit=10.0))
    scheduler.submit(Workload("gang", (PodSet(SHAPES[3]),), NOW_S, 3600.0, 3600.0))
    assert told(scheduler.cycle(NOW_S)) == [">a", ">b", "+gang"]
    check_state(scheduler)


def test_moves_keep_off_nodes_that_are_kept_for_others_and_off_reserved_starts() -> None:
    maintenance = AdvanceReservation("m", NOW_S + 1000.0, NOW_S + 9000.0, ("n01", "n02"))
    scheduler = Scheduler(one_job_a_node(3, reservations=(maintenance,)), Config())
    scheduler.submit(Workload("gang", (PodSet(SHAPES[3]),), NOW_S, 900.0, 900.0))
    scheduler.cycle(NOW_S)
    # s0 would have to run on n01 or n02 into the maintenance; s1 and s2 can leave for n00 only
    assert {run.workload.name: run.started_s for run in scheduler.running}["s0"] == 0.0
    assert "gang" in scheduler.running
    check_state(scheduler)


def test_without_the_setting_nothing_is_moved() -> None:
    scheduler = Scheduler(one_job_a_node(6), Config(defragment=False))
    scheduler.submit(Workload("gang", (PodSet(SHAPES[3], 3),), NOW_S, 3600.0, 3600.0))
    assert told(scheduler.cycle(NOW_S)) == []
    assert dict(scheduler.waits(NOW_S)) == {"gang": Reason.CAPACITY}


@pytest.mark.parametrize("segment", [0, 2])
def test_a_domain_is_emptied_for_a_gang_that_must_stand_in_one(segment: int) -> None:
    scheduler = Scheduler(one_job_a_node(6), Config())
    request = TopologyRequest(required="rack", segment=segment)
    scheduler.submit(Workload("gang", (PodSet(SHAPES[3], 2),), NOW_S, 3600.0, 3600.0, topology=request))
    assert told(scheduler.cycle(NOW_S)) == [">s0", ">s1", "+gang"]
    check_state(scheduler)


def test_a_search_in_vain_is_not_repeated_at_once_also_not_from_a_snapshot() -> None:
    scheduler = Scheduler(one_job_a_node(2), Config(move_limit=0.001))
    scheduler.submit(Workload("gang", (PodSet(SHAPES[3]),), NOW_S, 3600.0, 3600.0))
    assert told(scheduler.cycle(NOW_S)) == []
    snapshot = scheduler.snapshot(NOW_S)
    assert [each.workload for each in snapshot.searches] == ["gang"]
    for after_s, expected in ((59.0, []), (60.0, [">s0", "+gang"])):
        for one in (scheduler, Scheduler(snapshot, scheduler.config)):
            later = one.snapshot(NOW_S + after_s)
            one.config = Config()
            assert told(one.cycle(NOW_S + after_s)) == expected
            if expected:
                assert not one.snapshot(NOW_S + after_s).searches
            assert bool(later.searches) == (after_s < 60.0)
