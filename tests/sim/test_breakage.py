"""What becomes of jobs in a simulated cluster whose nodes fail, and of elastic jobs: times worked out by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.config import Config
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload
from muster.sim.cluster_run import ClusterRun, RunOptions
from muster.sim.failures import BlackHole, FailureModel, Outage, SpotShocks
from muster.sim.metrics import measure

HOUR = 3600.0
SAVED = Checkpointing(600.0, 60.0)


def fleet(nodes: int, *, spares: int = 0, purchase: str = "") -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(
            Node(f"n{at}", 64_000, 1 << 40, devices, topology=(f"r{at // 4}",), spare=at >= nodes - spares,
                 purchase=purchase)
            for at in range(nodes)
        ),
        Topology(("rack",)),
    )  # fmt: skip


def job(name: str, pods: int, duration_s: float | None = HOUR, least: int | None = None, **more: Any) -> Workload:
    sets = (PodSet(PodShape(1000, 0, 8), pods, least),)
    return Workload(name, sets, duration_s=duration_s, **{"checkpointing": SAVED, **more})


def run_of(nodes: Fleet, work: list[Workload], config: Config | None = None, **options: Any) -> ClusterRun:
    return ClusterRun(Snapshot(nodes), work, config or Config(), RunOptions(check_every=1, **options))


def breaks(*outages: Outage, **more: Any) -> FailureModel:
    return FailureModel(outages=outages, **more)


def test_a_lost_node_is_replaced_by_a_spare_and_the_job_goes_on_from_its_last_checkpoint() -> None:
    run = run_of(fleet(3, spares=1), [job("a", 2)], failures=breaks(Outage("n0", 1500.0, 9e9)))
    run.run(1e6)
    # 1,200 s are saved, 300 s lost; a restart of 60 s, then the rest
    assert run.stories[0].finished_s == 1500 + 60 + (3600 - 1200)
    assert (run.stories[0].lost_s, run.stories[0].restart_s, run.stories[0].node_losses) == (300, 60, 1)
    figures = measure(run)
    assert (figures.breakage.nodes_lost, figures.breakage.interruptions) == (1, 1)
    assert figures.breakage.ettr == pytest.approx(3600 / (1500 + 60 + 2400))


def test_without_a_replacement_it_waits_for_one_in_its_queue() -> None:
    run = run_of(fleet(2), [job("a", 2)], failures=breaks(Outage("n0", 1500.0, 1000.0)))
    run.run(1e6)
    assert run.stories[0].finished_s == 2500 + 60 + 2400
    assert (run.stories[0].starts, run.stories[0].evictions) == (2, 0)


def test_while_nobody_has_seen_that_a_node_is_gone_the_job_hangs() -> None:
    failures = FailureModel(per_1000_node_days=2e4, detect_s=300.0, repair_s=1.0)
    run = run_of(fleet(1), [job("a", 1, 1e4, checkpointing=None)], failures=failures, seed=5)
    run.run(30 * HOUR)
    story = run.stories[0]
    assert story.node_losses > 1
    ended = [spell for spell in run.spells if spell.hangs_s < math.inf]
    assert ended
    assert all(spell.end_s - spell.hangs_s == pytest.approx(300) for spell in ended)
    assert story.stall_s == pytest.approx(300.0 * len(ended))
    figures = measure(run)
    parts = figures.useful_hours + figures.lost_hours + figures.restart_hours + figures.stall_hours
    assert parts == pytest.approx(figures.allocated_hours)


def test_an_elastic_job_goes_on_smaller_and_grows_back() -> None:
    config = Config(grow_every_s=600.0)
    run = run_of(fleet(4), [job("a", 4, 2 * HOUR, 2)], config, failures=breaks(Outage("n3", 1500.0, 1800.0)))
    run.run(1e6)
    # 1,200 s saved; from 1,560 on at three quarters; from 3,360 (back at 3,300, restart 60) on whole
    at_three_quarters = 3300 - 1560
    rest = 2 * HOUR - 1200 - 0.75 * at_three_quarters
    assert run.stories[0].finished_s == pytest.approx(3360 + rest)
    assert run.stories[0].resizes == 2
    assert run.stories[0].lost_s == 300


def test_elastic_work_yields_to_what_waits_and_loses_only_its_restart() -> None:
    work = [job("wide", 4, 2 * HOUR, 1), job("late", 2, HOUR, submitted_s=1000.0, time_limit_s=HOUR)]
    run = run_of(fleet(4), work, Config(grow_every_s=0.0))
    run.run(1e6)
    wide, late = run.stories
    assert (late.started_s, late.finished_s) == (1000.0, 1000 + HOUR)
    halved = 1000 + HOUR - 1060  # at half its size until the other ends
    assert wide.finished_s == pytest.approx(1000 + HOUR + 60 + 2 * HOUR - 1000 - halved / 2)
    assert (wide.lost_s, wide.resizes, wide.evictions) == (0, 2, 0)
    assert wide.restart_s == pytest.approx(60 * 0.5 + 60)


def test_a_black_hole_is_quarantined_and_everybody_finishes() -> None:
    failures = FailureModel(black_holes=(BlackHole("n0", after_s=30.0),), repair_s=HOUR)
    work = [job(f"j{index}", 1, 600.0, submitted_s=60.0 * index) for index in range(8)]
    run = run_of(fleet(2), work, failures=failures)
    run.run(1e6)
    figures = measure(run)
    assert figures.jobs == {"finished": 8}
    assert figures.breakage.quarantined == 1
    assert figures.breakage.failures == 3, "three different jobs, and no more"


def test_a_black_hole_fails_gangs_that_start_pod_by_pod_too() -> None:
    failures = FailureModel(black_holes=(BlackHole("n0"), BlackHole("n1")))
    config = Config(gangs="one-by-one", retries=1, quarantine_failures=0)
    run = run_of(fleet(2), [job("a", 2)], config, failures=failures)
    run.run(1e6)
    assert run.state_of(0) == "failed"
    assert run.stories[0].done_s == 0


def test_without_quarantine_it_eats_job_after_job() -> None:
    failures = FailureModel(black_holes=(BlackHole("n0", after_s=30.0),))
    work = [job(f"j{index}", 1, 600.0, submitted_s=60.0 * index) for index in range(8)]
    config = Config(quarantine_failures=0, quarantine_window_s=0.0, backoff_s=0.0, retries=1000)
    run = run_of(fleet(2), work, config, failures=failures)
    run.run(2400.0)
    assert measure(run).breakage.failures > 70


def test_who_fails_too_often_is_given_up() -> None:
    failures = FailureModel(black_holes=(BlackHole("n0"),))
    config = Config(quarantine_failures=0, retries=2, backoff_s=60.0)
    run = run_of(fleet(1), [job("a", 1), job("b", 1, depends_on=("a",))], config, failures=failures)
    run.run(1e6)
    assert (run.state_of(0), run.state_of(1)) == ("failed", "waiting")
    # 30 s each, with 60 and 120 s of back-off between
    assert run.stories[0].finished_s == 30 + 60 + 30 + 120 + 30


def test_larger_jobs_fail_by_themselves_more_often() -> None:
    failures = FailureModel(per_1000_node_days=500.0, size_exponent=0.5, repair_s=60.0, detect_s=0.0)
    work = [job("large", 16, 40 * HOUR), *(job(f"s{index}", 1, 40 * HOUR) for index in range(16))]
    run = run_of(fleet(40), work, failures=failures, seed=1)
    run.run(60 * HOUR)
    assert run.stories[0].failures > sum(story.failures for story in run.stories[1:]) == 0


def test_a_time_out_breaks_the_deadlock_of_gangs_that_start_pod_by_pod() -> None:
    work = [job(name, 8, HOUR, checkpointing=None, submitted_s=at) for at, name in enumerate("ab")]
    config = Config(gangs="one-by-one", backoff_s=120.0, retries=50)
    stuck = run_of(fleet(8), work, config, pod_every_s=1.0)
    stuck.run(10 * HOUR)
    assert [stuck.state_of(0), stuck.state_of(1)] == ["waiting", "waiting"]
    assert measure(stuck).idle_hours == pytest.approx(64 * 10, rel=0.01)
    freed = run_of(fleet(8), work, config, pod_every_s=1.0, ready_timeout_s=300.0)
    freed.run(100 * HOUR)
    assert {freed.state_of(0), freed.state_of(1)} == {"finished"}
    assert 0 < measure(freed).idle_hours < 64 * 2


def test_spot_work_goes_on_when_its_nodes_are_back() -> None:
    spot = SpotShocks(per_h=1.0, back_s=600.0)
    run = run_of(fleet(4, purchase="spot"), [job("a", 4, 10 * HOUR)], failures=FailureModel(spot=spot), seed=2)
    run.run(60 * HOUR)
    figures = measure(run)
    assert figures.jobs == {"finished": 1}
    assert figures.breakage.interruptions > 3
    assert 0.3 < figures.breakage.ettr < 0.95


def test_a_run_ends_with_its_last_job_and_not_when_one_might_have_grown() -> None:
    run = run_of(fleet(4), [job("wide", 8, HOUR, 2)], Config(grow_every_s=10 * HOUR))
    run.run()
    assert run.now_s == run.stories[0].finished_s == 2 * HOUR


def test_work_that_uses_no_gpu_gives_way_after_half_an_hour() -> None:
    work = [job("sleeps", 2, None, user="ann"), job("waits", 2, HOUR, user="bob", submitted_s=60.0)]
    busy = {"sleeps": ((0.0, 16.0), (600.0, 0.0))}
    run = run_of(fleet(2), work, busy=busy)
    run.run(1e6)
    assert run.stories[1].started_s == 600 + 1800
    assert run.stories[0].evictions == 1


def test_failures_for_ever_need_an_end() -> None:
    run = run_of(fleet(1), [job("a", 1)], failures=FailureModel(per_1000_node_days=1.0))
    with pytest.raises(InputError, match="for ever"):
        run.run()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), one_by_one=st.booleans())
def test_invariants_while_everything_breaks(seed: int, one_by_one: bool) -> None:
    rng = random.Random(seed)
    racks = (None, TopologyRequest(required="rack"))
    work: list[Workload] = []
    for index in range(25):
        pods = rng.choice((1, 2, 4))
        each = job(
            f"j{index}", pods, rng.choice((900.0, 7200.0)), rng.randint(1, pods), submitted_s=rng.uniform(0, 4 * HOUR),
            priority=rng.choice((0, 0, 1)), topology=rng.choice(racks), checkpointing=rng.choice((None, SAVED)),
            time_limit_s=rng.choice((None, 5000.0)),
        )  # fmt: skip
        work.append(each)
    nodes = fleet(8, spares=rng.choice((0, 2)), purchase=rng.choice(("", "spot")))
    spot = SpotShocks(per_h=0.5, back_s=600.0) if nodes.nodes[0].purchase else None
    holes = (BlackHole("n1", from_s=HOUR),) if rng.random() < 0.5 else ()
    failures = FailureModel(2000.0, 0.3, 60.0, 1800.0, spot=spot, black_holes=holes)
    config = Config(gangs="one-by-one" if one_by_one else "all-or-nothing", grow_every_s=rng.choice((0.0, 600.0)))
    timeout_s = rng.choice((None, 300.0)) if one_by_one else None
    run = run_of(nodes, work, config, failures=failures, seed=seed, ready_timeout_s=timeout_s)
    run.run(24 * HOUR)
    run.check()
    figures = measure(run)
    parts = figures.useful_hours + figures.lost_hours + figures.restart_hours + figures.stall_hours + figures.slow_hours
    assert parts + figures.idle_hours == pytest.approx(figures.allocated_hours, rel=1e-6)
    if not one_by_one:
        assert figures.idle_hours == pytest.approx(0, abs=1e-6)
    for story, workload in zip(run.stories, run.workloads, strict=True):
        if story.end == "finished":
            assert story.done_s == pytest.approx(workload.duration_s)
    again = run_of(nodes, work, config, failures=failures, seed=seed, ready_timeout_s=timeout_s)
    again.run(24 * HOUR)
    assert str(again.stories) == str(run.stories), "the same seed gives the same run"
