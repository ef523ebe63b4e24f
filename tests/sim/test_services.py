"""Services and batch work in one pool: demand, headroom, and what calling a loan back costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.config import Config
from muster.engine.loans import loan_warnings
from muster.engine.quota import QuotaTree
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, Workload
from muster.sim.cluster_run import ClusterRun, RunOptions
from muster.sim.metrics import measure
from muster.sim.run_file import prepare_run
from muster.sim.services import DAY_S, Daily, Service, replicas_of, steepest

GPU = PodShape(0, 0, 1)


def fleet(nodes: int) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(tuple(Node(f"n{at}", 64_000, 1 << 40, devices) for at in range(nodes)))


def queues(reclaim_s: float, ramp: float) -> tuple[Queue, ...]:
    quota = (Quota("H100", 32_000),)
    serve = Queue("serve", "org", quotas=quota, reclaim_s=reclaim_s, ramp_milli_per_s=ramp * 1000)
    return Queue("org"), serve, Queue("train", "org", quotas=quota)


def run_of(wanted: tuple[tuple[float, int], ...], reclaim_s: float, ramp: float, stop_s: float) -> ClusterRun:
    service = Service("chat", PodShape(0, 0, 8), 1, wanted, "serve", start_s=30.0)
    work = [
        Workload(f"t{at}", (PodSet(PodShape(0, 0, 8)),), submitted_s=1.0, duration_s=1e5, queue="train",
                 checkpointing=Checkpointing(600.0, 60.0))
        for at in range(8)
    ]  # fmt: skip
    options = RunOptions(check_every=1, services=(service,), services_until_s=7200.0)
    run = ClusterRun(Snapshot(fleet(8), queues(reclaim_s, ramp)), work, Config(stop_s=stop_s), options)
    run.run(7200.0)
    run.check()
    return run


def test_demand_over_a_day() -> None:
    wanted = list(Daily(4, 16, peak_s=0.0, step_s=3600.0).wanted(DAY_S))
    assert wanted[0] == (0.0, 16)
    assert min(count for _, count in wanted) == 4
    assert dict(wanted)[6 * 3600.0] == 10
    assert steepest(Service("s", GPU, 1, tuple(wanted)), 3600.0)[1] == 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 6)), max_size=12))
def test_replicas_are_wanted_as_long_as_demand_says(steps: list[tuple[int, int]]) -> None:
    times = [float(sum(gap for gap, _ in steps[: at + 1])) for at in range(len(steps))]
    wanted = tuple(zip(times, (count for _, count in steps), strict=True))
    end_s = (times[-1] if times else 0.0) + 10.0
    replicas = replicas_of([Service("s", GPU, 1, wanted)], end_s)
    for probe in [0.5, *(time_s + 0.5 for time_s in times)]:
        asked = next((count for time_s, count in reversed(wanted) if time_s <= probe), 0)
        assert sum(each.workload.submitted_s <= probe < each.until_s for each in replicas) == asked
    assert len({each.workload.name for each in replicas}) == len(replicas)


def test_without_headroom_a_replica_waits_until_others_have_left() -> None:
    run = run_of(((0.0, 1), (3600.0, 3)), 0.0, 0.0, stop_s=60.0)
    (chat,) = measure(run).services
    assert (chat.wait_max_s, chat.late) == (60.0, 0)
    assert chat.short_hours == pytest.approx(2 * 8 * 60 / 3600)
    assert chat.cold_hours == pytest.approx(3 * 8 * 30 / 3600)
    assert sum(story.evictions for story in run.stories) == 2


def test_with_headroom_nobody_waits_and_less_is_lent() -> None:
    kept = run_of(((0.0, 1), (3600.0, 3)), 100.0, 0.16, stop_s=60.0)
    (chat,) = measure(kept).services
    assert (chat.wait_max_s, chat.short_hours) == (0.0, 0.0)
    lent, all_lent = (
        measure(run).lent_hours for run in (kept, run_of(((0.0, 1), (3600.0, 3)), 100.0, 1e-6, stop_s=60.0))
    )
    # 16 GPUs of headroom beside the 8 in use: 8 of 32 are lent for an hour, and then none
    assert lent == pytest.approx(8 * 3599 / 3600)
    assert all_lent == pytest.approx(16 * 3599 / 3600)


def test_who_is_not_wanted_any_more_leaves_whether_it_runs_or_waits() -> None:
    run = run_of(((0.0, 9), (600.0, 2)), 0.0, 0.0, stop_s=0.0)
    figures = measure(run)
    assert figures.jobs["running"] == 8
    (chat,) = figures.services
    assert chat.replicas == 9
    states = [run.state_of(index) for index in range(8, 17)]
    assert states.count("finished") == 9 - states.count("withdrawn")
    assert len(run.scheduler.running) == 8


def test_headroom_is_kept_of_what_is_not_used_and_given_to_its_own_queue() -> None:
    tree = QuotaTree(queues(100.0, 0.1))  # 10 GPUs
    assert tree.available("train", "H100") == 54_000
    assert tree.available("serve", "H100") == 64_000
    tree.charge("serve", "H100", 28_000)
    assert (tree.used("serve", "H100"), tree.available("train", "H100")) == (28_000, 32_000)
    tree.charge("train", "H100", 32_000)
    tree.refund("serve", "H100", 20_000)
    tree.charge("train", "H100", 14_000)
    assert tree.available("train", "H100") == 0
    assert tree.available("serve", "H100") == 10_000
    tree.charge("serve", "H100", 8_000)
    assert tree.short_of_headroom("serve", "H100") == 8_000
    tree.refund("train", "H100", 8_000)
    assert tree.short_of_headroom("serve", "H100") == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda: QuotaTree((Queue("a", reclaim_s=1.0),)), "queues[0].ramp_milli_per_s"),
        (lambda: QuotaTree((Queue("a", ramp_milli_per_s=1.0),)), "queues[0].reclaim_s"),
        (lambda: QuotaTree((Queue("a", reclaim_s=math.nan),)), "queues[0].reclaim_s"),
        (
            lambda: QuotaTree((Queue("a", reclaim_s=1.0, ramp_milli_per_s=1.0), Queue("b", "a"))),
            "queues[0].ramp_milli_per_s",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(change: Callable[[], QuotaTree], field: str) -> None:
    with pytest.raises(InputError) as caught:
        change()
    assert caught.value.field == field


def test_a_reclaim_time_that_cannot_be_is_told() -> None:
    told = loan_warnings(queues(100.0, 0.1), stop_s=60.0, start_s=90.0)
    takes = "stopping takes 60 s and a start 90 s"
    assert told == (f"serve counts on loans back within 100 s, but {takes}: set reclaim_s to 150 or more",)
    assert loan_warnings(queues(150.0, 0.1), stop_s=60.0, start_s=90.0) == ()
    assert "never lends" in loan_warnings(queues(400.0, 0.1), stop_s=60.0, start_s=90.0)[0]


def test_replicas_of_times_that_look_alike_have_names_of_their_own() -> None:
    wanted = ((1_000_000.0, 1), (1_000_001.0, 0), (1_000_002.0, 1), (1_000_002.25, 2))
    names = [each.workload.name for each in replicas_of([Service("a", GPU, 1, wanted)], 2e6)]
    assert names == ["a-1@1e+06", "a-1@1000002.0", "a-2@1000002.25"]


def test_a_replica_that_is_withdrawn_while_its_pods_are_created_gets_no_more() -> None:
    service = Service("a", GPU, 16, ((0.0, 1), (0.2, 0)))
    work = [Workload(name, (PodSet(PodShape(0, 0, 8)),), submitted_s=100.0, duration_s=10.0) for name in ("v", "w")]
    options = RunOptions(check_every=1, services=(service,), services_until_s=2000.0)
    run = ClusterRun(Snapshot(fleet(2)), work, Config(gangs="one-by-one"), options)
    run.run(2000.0)
    assert [run.state_of(job) for job in range(3)] == ["finished", "finished", "withdrawn"]


def test_a_workload_with_the_name_of_another_ones_pod() -> None:
    work = [Workload(name, (PodSet(GPU, pods),), duration_s=1.0) for name, pods in (("w/0", 1), ("w", 2))]
    with pytest.raises(InputError, match="is the name of a pod of 'w'"):
        ClusterRun(Snapshot(fleet(1)), work, Config(gangs="one-by-one"))
    ClusterRun(Snapshot(fleet(1)), work, Config())


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("services: [{name: a, replicas: [[0, 1]]}]", "services"),
        ("services: [{name: b, daily: {low: 1, high: 2, step_s: 0.000001}}]", "services[0].daily.step_s"),
        ("services: [{name: b, replicas: [[0, 1000000], [1, 0], [2, 1000000], [3, 0], [4, 1000000], [5, 0],"
         " [6, 1000000], [7, 0], [8, 1000000], [9, 0], [10, 1000000]]}]", "services[0]"),
    ],
)  # fmt: skip
def test_services_that_are_refused(tmp_path: Path, lines: str, field: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"fleet: uniform:nodes=1\nworkload: [{{name: a-1@0, duration_s: 1}}]\nuntil_s: 100\n{lines}\n")
    with pytest.raises(InputError) as caught:
        prepare_run(str(path))
    assert (caught.value.field, caught.value.line) == (field, 4)
