"""The next cycles of a snapshot: they are the engine's, and the same each time."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.answers.anonymize import anonymize
from muster.answers.decisions import record_of, text_of
from muster.answers.replay import Cycle, fingerprint, replay, verify
from muster.engine.config import Config, config_of
from muster.engine.decide import decide
from muster.engine.scheduler import Scheduler
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node
from muster.model.plan import Evict, Migrate, Place, PodPlacement, Quarantine, Reserve, Resize, Wait
from muster.model.reasons import Reason
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, Workload

Make = Callable[[int], Snapshot]
DEVICES = tuple(Device(index, "H100") for index in range(8))


def job(
    name: str, gpus: int, limit_s: float | None = None, submitted_s: float = 0.0, pods: int = 1, **more: object
) -> Workload:
    return Workload(name, (PodSet(PodShape(gpus=gpus), pods),), submitted_s, None, limit_s, **more)  # pyright: ignore[reportArgumentType]


def runs(work: Workload, node: str, started_s: float, first: int = 0) -> Running:
    shape = work.pod_sets[0].shape
    return Running(work, started_s, (PodPlacement(node, tuple(range(first, first + shape.gpus)), 1000),))


def cluster(
    nodes: int, running: tuple[Running, ...], pending: tuple[Workload, ...], now_s: float, **more: object
) -> Snapshot:
    fleet = Fleet(tuple(Node(f"n{number}", 96_000, 1 << 40, DEVICES) for number in range(nodes)))
    return Snapshot(fleet, (), pending, running, taken_s=now_s, **more)  # pyright: ignore[reportArgumentType]


def lines(found: list[Cycle]) -> list[str]:
    return [
        f"{each.time_s:g} {record['decision']} {record['workload']}: {text_of(record, each.time_s)}"
        for each in found for record in each.records()
    ]  # fmt: skip


def test_a_gang_starts_when_what_runs_is_taken_to_end() -> None:
    snapshot = cluster(
        2, (runs(job("a", 8, 1000.0), "n0", 0.0), runs(job("b", 8, 3000.0), "n1", 0.0)),
        (job("gang", 8, 500.0, 10.0, 2), job("late", 8, 5000.0, 20.0), job("short", 8, 900.0, 30.0)), 600.0,
    )  # fmt: skip
    assert lines(replay(snapshot, Config(), cycles=5)) == [
        "600 reserve gang: will start in 40 min on n[0-1]",
        "600 wait : waits: its pods do not all fit at once",
        "1000 place short: starts on n0 (8 GPUs), runs past others that have a reserved start",
        "1000 wait : waits: its pods do not all fit at once",
        "1900 wait gang: waits: its pods do not all fit at once",
        "1900 wait late: waits: it would delay work that is ahead of it and has a reserved start",
        "3000 place gang: starts on n[0-1] (16 GPUs)",
        "3000 reserve late: will start in 8 min on n0",
        "3000 wait late: waits: its pods do not all fit at once",
        "3500 place late: starts on n0 (8 GPUs)",
    ]  # fmt: skip


def test_the_time_of_a_replay_and_its_end() -> None:
    snapshot = cluster(1, (runs(job("a", 8, 1000.0), "n0", 0.0),), (job("b", 8, 500.0),), 600.0)
    assert [each.time_s for each in replay(snapshot, Config(), for_s=400.0)] == [600.0, 1000.0]
    assert [each.time_s for each in replay(snapshot, Config(), for_s=399.0)] == [600.0]
    assert [each.time_s for each in replay(snapshot, Config(), cycles=50)] == [600.0, 1000.0, 1500.0]
    assert replay(cluster(1, (), (), 5.0), Config(), cycles=3) == []
    with pytest.raises(InputError, match="no end"):
        replay(snapshot, Config())


def test_a_replay_begins_at_its_instant() -> None:
    """Not at a reservation that began before, and with a cycle also where only running work is there."""
    kept = AdvanceReservation("r", 100.0, 900.0, ("n0",))
    snapshot = cluster(1, (runs(job("a", 4, 1000.0), "n0", 0.0),), (), 600.0, reservations=(kept,))
    assert [each.time_s for each in replay(snapshot, Config(), cycles=9)] == [600.0, 900.0, 1000.0]


def test_what_outlived_its_limit_runs_on_for_a_while() -> None:
    snapshot = cluster(1, (runs(job("a", 8, 1000.0), "n0", 0.0),), (job("b", 8, 500.0),), 2000.0)
    found = replay(snapshot, Config(), cycles=9)
    assert found[0].time_s == 2000.0
    assert found[0].plan.decisions[0] == Reserve("b", 2200.0, ("n0",), sure=False)
    assert found[1].time_s == 2200.0, "a tenth of its time so far"


def test_the_last_checkpoint_is_that_of_the_snapshot() -> None:
    """Who is stopped depends on it, and it is not told by the interval alone."""
    saves = Checkpointing(1000.0, 60.0)
    low = runs(job("low", 8, None, checkpointing=saves), "n0", 0.0)
    low = msgspec.structs.replace(low, checkpointed_s=1700.0)
    snapshot = cluster(1, (low,), (job("high", 8, 100.0, 5.0, priority=5),), 2000.0)
    first = replay(snapshot, Config(), cycles=1)[0].plan.decisions[0]
    assert first == Evict("low", "high", "priority", (300.0 + 60.0) * 8)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_first_cycle_is_what_is_decided_now_and_all_are_the_same_again(seed: int, random_snapshot: Make) -> None:
    snapshot = random_snapshot(seed)
    config = config_of(dict(snapshot.settings))
    found = replay(snapshot, config, cycles=8)
    assert fingerprint(found) == fingerprint(replay(snapshot, config, cycles=8))
    if not found:
        assert not snapshot.pending or not decide(snapshot, snapshot.taken_s, config).decisions
        return
    scheduler = Scheduler(snapshot, config)
    assert found[0].time_s == snapshot.taken_s
    assert found[0].plan == scheduler.cycle(snapshot.taken_s)
    assert sum(each["workloads"] for each in found[0].waits) == len(scheduler.pending)
    assert [each.time_s for each in found] == sorted(each.time_s for each in found)
    anonymous = anonymize(snapshot)
    times = [each.time_s - anonymous.earlier_s for each in found]
    assert [each.time_s for each in replay(anonymous.snapshot, config, cycles=8)] == pytest.approx(times)


def test_another_process_makes_the_same_plans(random_snapshot: Make) -> None:
    snapshot = random_snapshot(11)
    assert verify(snapshot, config_of(dict(snapshot.settings)), cycles=10)
    assert verify(snapshot, config_of(dict(snapshot.settings)), for_s=7200.0)


PODS = (PodPlacement("n1", (0, 1), 1000), PodPlacement("n2", (0, 1), 1000))
TEXTS = [
    (Place("w", PODS, "H100", 2000, True), "starts on n[1-2] (4 GPUs), 2 GPUs of it borrowed, runs past others that"),
    (Place("w", PODS, counts=(2,)), "starts on n[1-2] (4 GPUs), 2 pods for a start"),
    (Place("w", (PodPlacement("n1"),)), "starts on n1"),
    (Wait("w", Reason.QUOTA), "waits: its queue's quota is used and no more can be borrowed now"),
    (Evict("w", "v", "priority", 7200.0), "stopped for v (a higher priority); 2 GPU-hours of its work are lost"),
    (Evict("w", "", "failure", 0.0), "stopped (a node was lost); 0 GPU-hours of its work are lost"),
    (Reserve("w", 3700.0, ("n1", "n2"), sure=False), "will start in 1 h on n[1-2], by predictions"),
    (Migrate("w", PODS, "room", 3600.0, "v"), "moves to n[1-2] (4 GPUs) for v (room); that costs 1 GPU-hours"),
    (Resize("w", PODS, (2,), "yield", "v", 0.0), "goes on with 2 pods on n[1-2] (4 GPUs) for v (pods above its least"),
    (Quarantine("n1", ("a", "b")), "nothing more starts on n1: 2 workloads failed there"),
]


@pytest.mark.parametrize(("decision", "text"), TEXTS, ids=lambda each: type(each).__name__)
def test_each_decision_in_words_and_as_plain_values(decision: object, text: str) -> None:
    record = record_of(decision)  # pyright: ignore[reportArgumentType]
    assert text_of(record, 100.0).startswith(text)
    assert msgspec.json.decode(msgspec.json.encode(record)) == record
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in record.values())
