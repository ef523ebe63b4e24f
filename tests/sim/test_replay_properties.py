"""Random small histories: first come first served, nothing over-committed, exact durations, forks that agree."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.errors import InputError
from muster.model.fleet import Fleet
from muster.model.workload import PodSet, PodShape, Workload
from muster.policy.registry import find_policy
from muster.sim.replay import GANG_SIZE, Replay, ReplayResult
from muster.sim.replay_runs import PlacerMaker
from muster.traces import read_fleet

SHAPES = (
    PodShape(gpus=1),
    PodShape(gpus=1, gpu_milli=300),
    PodShape(gpus=2, gpu_milli=500),
    PodShape(gpus=4),
    PodShape(cpu_milli=3000),
    PodShape(cpu_milli=1000, gpus=2),
)


def fleet_of(nodes: int, gpus: int = 4) -> Fleet:
    return read_fleet(f"uniform:nodes={nodes},gpus={gpus},cpu=8" + (",model=T4" if gpus else ""))[0]


SMALL, HUGE = fleet_of(3), fleet_of(40)


def best_fit(state: FleetState) -> Placer:
    return Placer(state, find_policy("best-fit").load_score())


pod_sets = st.lists(st.builds(PodSet, st.sampled_from(SHAPES), st.integers(1, 4)), min_size=1, max_size=2).map(tuple)
times = st.integers(0, 12).map(float)
histories = st.lists(st.tuples(times, st.none() | times, pod_sets), max_size=14).map(
    lambda rows: [
        Workload(f"job-{row}", sets, submitted_s=at, duration_s=lasts) for row, (at, lasts, sets) in enumerate(rows)
    ]
)


def same(one: ReplayResult, other: ReplayResult) -> None:
    for name in ReplayResult.__struct_fields__:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@settings(max_examples=150, deadline=None)
@given(histories)
def test_first_come_first_served_and_exact_durations(jobs: list[Workload]) -> None:
    # the state is held against what runs after every event
    result = Replay(SMALL, jobs, best_fit, check_every=1).run()
    rejected = {name for name, _ in result.rejected}
    queue = sorted(range(len(jobs)), key=lambda index: (jobs[index].submitted_s, index))
    starts = [result.start_s[index] for index in queue if jobs[index].name not in rejected]
    waits_on = next((place for place, start in enumerate(starts) if np.isnan(start)), len(starts))
    assert np.isnan(starts[waits_on:]).all()
    assert (np.diff(starts[:waits_on]) >= 0).all()
    for index, job in enumerate(jobs):
        start, finish = result.start_s[index], result.finish_s[index]
        assert not start < job.submitted_s
        if job.duration_s is None or np.isnan(start):
            assert np.isnan(finish)
        else:
            assert finish - start == job.duration_s
    assert result.arrived == len(jobs)
    assert result.started + len(rejected) + len(starts) - waits_on == len(jobs)
    assert sum(each.jobs for each in result.rejections) == len(rejected)
    assert 0 <= result.gpu_utilisation <= 1
    assert 0 <= result.cpu_utilisation <= 1
    if result.started:
        assert result.wait_max_s >= result.wait_p99_s >= result.wait_p50_s >= 0


@settings(max_examples=60, deadline=None)
@given(histories, times, st.sampled_from(["best-fit", "random", "fgd"]))
def test_a_fork_ends_as_the_original(jobs: list[Workload], until: float, policy: str) -> None:
    def fresh() -> Replay:
        return Replay(SMALL, jobs, PlacerMaker(find_policy(policy), SMALL, jobs, 7))

    whole = fresh().run()
    part = fresh()
    before = part.run(until)
    for fork in (copy.deepcopy(part), pickle.loads(pickle.dumps(part))):
        same(fork.run(), whole)
    same(part.result(), before)
    same(part.run(), whole)


@settings(max_examples=60, deadline=None)
@given(histories)
def test_nobody_waits_on_a_fleet_without_end(jobs: list[Workload]) -> None:
    result = Replay(HUGE, jobs, best_fit).run()
    assert result.started == len(jobs)
    assert result.wait_max_s == 0
    assert result.slowdown_mean in (0, 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(times, times, st.integers(1, 14)), max_size=20))
def test_single_gpu_pods_start_as_in_a_plain_count(rows: list[tuple[float, float, int]]) -> None:
    """Pods of one GPU fit wherever one is free: starts are those of a counter of free GPUs."""
    jobs = [
        Workload(f"job-{row}", (PodSet(PodShape(gpus=1), pods),), submitted_s=at, duration_s=lasts)
        for row, (at, lasts, pods) in enumerate(rows)
    ]
    result = Replay(SMALL, jobs, best_fit).run()
    ends: list[tuple[float, int]] = []
    now = 0.0
    for row in sorted(range(len(rows)), key=lambda row: (rows[row][0], row)):
        at, lasts, pods = rows[row]
        if pods > 12:
            assert np.isnan(result.start_s[row])
            continue
        now = max(now, at)
        while sum(held for end, held in ends if end > now) + pods > 12:
            now = min(end for end, _ in ends if end > now)
        ends.append((now + lasts, pods))
        assert result.start_s[row] == now


def job(name: str, at: float, lasts: float | None, shape: PodShape, pods: int = 1) -> Workload:
    return Workload(name, (PodSet(shape, pods),), submitted_s=at, duration_s=lasts)


def test_departures_go_first_at_equal_times_and_zero_durations_hold_nothing() -> None:
    four = PodShape(gpus=4)
    jobs = [job("a", 0, 5, four, 3), job("b", 5, 0, four, 3), job("c", 5, 0, four, 3), job("d", 5, 1, four, 3)]
    result = Replay(SMALL, jobs, best_fit, check_every=1).run()
    np.testing.assert_array_equal(result.start_s, [0, 5, 5, 5])
    np.testing.assert_array_equal(result.finish_s, [5, 5, 5, 6])


def test_a_job_without_end_blocks_for_good() -> None:
    four = PodShape(gpus=4)
    jobs = [job("stays", 0, None, four, 3), job("waits", 1, 1, four), job("for-ever", 0, float("inf"), four)]
    result = Replay(SMALL, jobs, best_fit).run()
    np.testing.assert_array_equal(result.start_s, [0, np.nan, np.nan])
    assert (result.started, result.finished, result.arrived) == (1, 0, 3)


def test_huge_times_stay_exact() -> None:
    four = PodShape(gpus=4)
    jobs = [job("a", 1e12, 1e12, four, 3), job("b", 1e12 + 1, 7, four, 3)]
    result = Replay(SMALL, jobs, best_fit).run()
    np.testing.assert_array_equal(result.start_s, [1e12, 2e12])
    np.testing.assert_array_equal(result.finish_s, [2e12, 2e12 + 7])
    assert result.gpu_utilisation == 1


def test_no_jobs_at_all() -> None:
    result = Replay(SMALL, [], best_fit).run()
    assert (result.arrived, result.makespan_s, result.wait_max_s, result.slowdown_mean) == (0, 0, 0, 0)


@pytest.mark.parametrize("times", [(float("nan"), 1.0), (0.0, -1.0), (0.0, float("nan")), (float("inf"), 1.0)])
def test_times_that_are_none_are_refused(times: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="job bad"):
        Replay(SMALL, [job("bad", *times, PodShape())], best_fit)


def test_times_before_zero_are_times() -> None:
    result = Replay(SMALL, [job("a", -5, 2, PodShape(gpus=4), 3), job("b", -4, 1, PodShape(gpus=1))], best_fit).run()
    np.testing.assert_array_equal(result.start_s, [-5, -3])


def test_why_jobs_can_never_start() -> None:
    jobs = [
        job("wide", 0, 1, PodShape(gpus=16)),
        job("wider", 0, 1, PodShape(gpus=17)),
        job("many", 0, 1, PodShape(gpus=4), 5),
        job("fine", 0, 1, PodShape(gpus=1)),
        Workload("both", (PodSet(PodShape(gpus=4), 2), PodSet(PodShape(gpus=3), 2)), 0.0, 1.0),
        job("model", 0, 1, PodShape(gpus=1, gpu_models=("H100",))),
    ]
    result = Replay(SMALL, jobs, best_fit).run()
    found = {each.reason: (each.jobs, each.example, each.text) for each in result.rejections}
    assert found["gpu_count"][:2] == (2, "wide")
    assert "asks for 16 GPUs, 0 CPU in one pod; the largest node has 4 GPUs (3 of 3 nodes: " in found["gpu_count"][2]
    assert found[GANG_SIZE][:2] == (2, "many")
    assert "5 pods of 4 GPUs, 0 CPU at once: the empty fleet takes 3" in found[GANG_SIZE][2]
    assert found["gpu_model"][0] == 1
    assert result.started == 1


def test_bounded_slowdown() -> None:
    four = PodShape(gpus=4)
    jobs = [job("a", 0, 20, four, 3), job("b", 0, 5, four, 3), job("c", 0, 100, four, 3)]
    # b waits 20 s and runs 5 s, which count as 10: 25 / 10; c waits 25 s: 125 / 100
    assert Replay(SMALL, jobs, best_fit).run().slowdown_mean == pytest.approx((1 + 2.5 + 1.25) / 3)


@pytest.mark.parametrize("policy", ["fgd", "default", "random"])
def test_cpu_only_fleets_run_under_every_policy(policy: str, tmp_path, monkeypatch) -> None:  # pyright: ignore
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path))
    fleet = fleet_of(4, gpus=0)
    jobs = [job(f"job-{row}", row, 3, PodShape(cpu_milli=1000), 1 + row % 9) for row in range(30)]
    result = Replay(fleet, jobs, PlacerMaker(find_policy(policy), fleet, jobs, 1), check_every=1).run()
    assert result.started == 30
    reference = Replay(fleet, jobs, best_fit).run()
    np.testing.assert_array_equal(result.start_s, reference.start_s)
