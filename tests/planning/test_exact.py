"""The exact solver: known optima, legal places, never dearer than the engine, and what happens without it."""

from __future__ import annotations

import importlib.util
import random

import pytest

from muster.engine.config import Config
from muster.engine.defrag import Moves, plan_moves, relocate
from muster.engine.scheduler import Scheduler
from muster.engine.state import Allocation
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import PodPlacement
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload
from muster.planning import exact
from muster.planning.exact import plan_exactly

NOW_S = 7200.0
SHAPES = (
    PodShape(1000, 0, 1), PodShape(1000, 0, 2), PodShape(2000, 0, 4), PodShape(500, 0, 1, 300), PodShape(500, 0, 2, 400)
)  # fmt: skip

needs_solver = pytest.mark.skipif(
    importlib.util.find_spec("ortools") is None, reason="the solver is not installed: pip install '.[solver]'"
)


def make_fleet(nodes: int) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(Node(f"n{i}", 16_000, 1 << 40, devices, topology=(f"r{i // 2}",)) for i in range(nodes)),
        Topology(("rack",)),
    )


def running(name: str, node: str, devices: tuple[int, ...], saved_s: float, **more: bool) -> Running:
    work = Workload(
        name, (PodSet(PodShape(1000, 0, len(devices))),), time_limit_s=50_000.0,
        checkpointing=Checkpointing(600.0, 60.0), **more,
    )  # fmt: skip
    return Running(work, 0.0, (PodPlacement(node, devices, 1000),), saved_s)


def waiting(scheduler: Scheduler, shape: PodShape, pods: int, topology: TopologyRequest | None = None) -> None:
    scheduler.submit(Workload("gang", (PodSet(shape, pods),), NOW_S, 900.0, 900.0, topology=topology))


def fragmented(rng: random.Random, nodes: int) -> Snapshot:
    scheduler = Scheduler(Snapshot(make_fleet(nodes)), Config(placement="random", queueing="best-effort"))
    for number in range(nodes * 5):
        pods = rng.choice((1, 1, 2, 3))
        request = TopologyRequest(required="rack", segment=rng.choice((0, 2))) if pods > 1 else None
        scheduler.submit(
            Workload(
                f"w{number:03}", (PodSet(rng.choice(SHAPES), pods),), time_limit_s=50_000.0, topology=request,
                checkpointing=Checkpointing(600.0, 60.0), preemptible=rng.random() < 0.9,
            )
        )  # fmt: skip
    scheduler.cycle(0.0)
    for run in list(scheduler.running):
        if rng.random() < 0.4:
            scheduler.finish(run.workload.name, 1.0)
        else:
            run.checkpointed_s = rng.uniform(1.0, NOW_S)
    for name in list(scheduler.pending.gangs):
        scheduler.cancel(name)
    return scheduler.snapshot(NOW_S)


def carry_out(scheduler: Scheduler, moves: Moves) -> None:
    """The moves are legal: nothing is over-committed, gangs are whole, and racks are kept."""
    gang = scheduler.pending.gangs["gang"]
    relocate(scheduler, gang, moves, NOW_S)
    places = [(run.kind, run.rows) for run in scheduler.running] + [(gang.kind, moves.rows)]
    scheduler.cluster.state.validate(
        Allocation(node, shape, devices) for _, rows in places for node, shape, devices in rows.T.tolist()
    )
    for kind, rows in places:
        asked = [shape for shape, count in scheduler.cluster.pods_of(kind, "").T.tolist() for _ in range(count)]
        assert rows[1].tolist() == asked
        request = kind.topology
        if request is not None and request.required:
            racks = scheduler.cluster.index.of_node[0][rows[0]].tolist()
            size = request.segment or len(racks)
            assert all(len(set(racks[at : at + size])) == 1 for at in range(0, len(racks), size))


@needs_solver
def test_the_cheapest_of_equal_jobs_are_moved() -> None:
    jobs = tuple(running(f"s{i}", f"n{i}", (0, 1, 2, 3), NOW_S - 100.0 * (i + 1)) for i in range(6))
    scheduler = Scheduler(Snapshot(make_fleet(6), running=jobs), Config())
    waiting(scheduler, PodShape(1000, 0, 8), 3)
    found = plan_exactly(scheduler, "gang", NOW_S)
    assert found.exact
    assert found.moves is not None
    assert [run.workload.name for run, _ in found.moves.moved] == ["s0", "s1", "s2"]
    assert found.moves.cost_gpu_s == found.bound_gpu_s == 4 * (160.0 + 260.0 + 360.0)
    again = plan_exactly(scheduler, "gang", NOW_S)
    assert again.moves is not None
    assert [rows.tolist() for _, rows in again.moves.moved] == [rows.tolist() for _, rows in found.moves.moved]
    carry_out(scheduler, found.moves)


@needs_solver
def test_no_moves_where_none_help() -> None:
    jobs = tuple(running(f"s{i}", f"n{i}", (0, 1, 2, 3, 4), NOW_S) for i in range(4))
    scheduler = Scheduler(Snapshot(make_fleet(4), running=jobs), Config())
    waiting(scheduler, PodShape(1000, 0, 8), 1)
    found = plan_exactly(scheduler, "gang", NOW_S)
    assert found.exact
    assert found.moves is None


@needs_solver
@pytest.mark.parametrize("seed", range(6))
def test_moves_are_legal_and_never_dearer_than_the_engines(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = fragmented(rng, rng.randint(3, 6))
    free = len(snapshot.fleet) * 8 - sum(each.workload.gpu_milli for each in snapshot.running) // 1000
    shape = rng.choice((PodShape(1000, 0, 4), PodShape(1000, 0, 8), PodShape(1000, 0, 8)))
    request = rng.choice((None, TopologyRequest(required="rack", segment=rng.choice((0, 2)))))
    scheduler = Scheduler(snapshot, Config())
    waiting(scheduler, shape, max(1, free // shape.gpus // 2), request)
    engine = plan_moves(scheduler, scheduler.pending.gangs["gang"], NOW_S, float("inf"))
    found = plan_exactly(scheduler, "gang", NOW_S)
    assert found.exact
    if found.moves is None:
        assert engine is None, "the engine found what cannot be"
        return
    assert engine is None or found.moves.cost_gpu_s <= engine.cost_gpu_s + 1e-6
    assert found.bound_gpu_s <= found.moves.cost_gpu_s
    carry_out(scheduler, found.moves)


def test_without_the_solver_the_engines_plan_is_given_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact.importlib.util, "find_spec", lambda name: None)
    jobs = tuple(running(f"s{i}", f"n{i}", (0, 1, 2, 3), NOW_S) for i in range(4))
    scheduler = Scheduler(Snapshot(make_fleet(4), running=jobs), Config())
    waiting(scheduler, PodShape(1000, 0, 8), 2)
    found = plan_exactly(scheduler, "gang", NOW_S)
    assert not found.exact
    assert found.note == "the engine's plan: the solver is not installed (pip install '.[solver]')"
    assert found.moves is not None
    carry_out(scheduler, found.moves)


@needs_solver
def test_when_the_time_is_up_the_engines_plan_is_given() -> None:
    jobs = tuple(running(f"s{i}", f"n{i}", (0, 1, 2, 3), NOW_S) for i in range(4))
    scheduler = Scheduler(Snapshot(make_fleet(4), running=jobs), Config())
    waiting(scheduler, PodShape(1000, 0, 8), 2)
    found = plan_exactly(scheduler, "gang", NOW_S, limit_s=0.0)
    assert not found.exact
    assert found.note == "the engine's plan: the solver found nothing in 0 s"
    assert found.moves is not None


def test_a_solver_that_fails_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(exact.sys, "executable", "/bin/false")
    scheduler = Scheduler(Snapshot(make_fleet(2)), Config())
    waiting(scheduler, PodShape(1000, 0, 8), 1)
    assert plan_exactly(scheduler, "gang", NOW_S).note == "the engine's plan: the solver failed (exit status 1)"


def test_what_is_kept_for_others_is_left_to_the_engine() -> None:
    kept = AdvanceReservation("m", NOW_S, NOW_S + 9000.0, ("n1",))
    scheduler = Scheduler(Snapshot(make_fleet(2), reservations=(kept,)), Config())
    waiting(scheduler, PodShape(1000, 0, 8), 1)
    assert plan_exactly(scheduler, "gang", NOW_S).note == "the engine's plan: what is kept for others is not modelled"


@pytest.mark.parametrize(
    ("shape", "topology", "what"),
    [
        (PodShape(1000, 0, 1, 500, sharing="mps"), None, "MIG slices and shared GPUs are not modelled"),
        (PodShape(1000, 0, 1, 500, tenant="a"), None, "tenants that share no GPU are not modelled"),
        (PodShape(1000, 0, 8), TopologyRequest(spread="host", at_most=1), "pods that are kept apart are not modelled"),
    ],
)
def test_what_the_model_does_not_know_is_left_to_the_engine(
    shape: PodShape, topology: TopologyRequest | None, what: str
) -> None:
    scheduler = Scheduler(Snapshot(make_fleet(2)), Config())
    waiting(scheduler, shape, 1, topology)
    assert plan_exactly(scheduler, "gang", NOW_S).note == f"the engine's plan: {what}"
