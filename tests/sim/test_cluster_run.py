"""The simulated cluster: life cycles of jobs, the deadlock of gangs that start pod by pod, and invariants."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.engine.config import Config
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import PodPlacement
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload
from muster.sim.cluster_run import ClusterRun, RunOptions
from muster.sim.metrics import measure, size_of

HOUR = 3600.0
CHECKED = RunOptions(check_every=1, keep_places=True, keep_plans=True)


def fleet(nodes: int = 8) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(Node(f"n{i:02}", 64_000, 1 << 40, devices, topology=(f"r{i // 4}",)) for i in range(nodes)),
        Topology(("rack",)),
    )


def gang(name: str, pods: int, run_s: float | None = HOUR, gpus: int = 8, **more: Any) -> Workload:
    return Workload(name, (PodSet(PodShape(1000, 0, gpus), pods),), duration_s=run_s, **more)


def two_queues(nominal_gpus: int) -> tuple[Queue, ...]:
    quota = (Quota("H100", nominal_gpus * 1000),)
    return Queue("org"), Queue("a", parent="org", quotas=quota), Queue("b", parent="org", quotas=quota)


def told(run: ClusterRun) -> str:
    """All that a run did, to compare runs by."""
    parts = (run.stories, run.spells, run.holdings, run.plans, measure(run, gantt=True))
    return "\n".join(map(str, parts))


INTERLEAVED = [gang("first", 8, 2 * HOUR, time_limit_s=3 * HOUR), gang("second", 8, 2 * HOUR, time_limit_s=3 * HOUR)]


def test_gangs_that_start_pod_by_pod_deadlock_and_hold_gpus_that_do_no_work() -> None:
    run = ClusterRun(Snapshot(fleet()), INTERLEAVED, Config(gangs="one-by-one"), CHECKED)
    run.run(24 * HOUR)
    assert [run.state_of(job) for job in (0, 1)] == ["waiting", "waiting"]
    assert len(run.holdings) == 8
    figures = measure(run)
    assert figures.idle_hours == figures.allocated_hours == pytest.approx(24 * 64, abs=0.1)
    assert figures.useful_hours == figures.goodput == 0
    assert figures.utilisation == pytest.approx(1, abs=0.001), "the GPUs look busy all the time"


def test_all_or_nothing_ends_with_one_running_and_one_waiting_with_a_start() -> None:
    run = ClusterRun(Snapshot(fleet()), INTERLEAVED, Config(), CHECKED)
    run.run(HOUR)
    assert [run.state_of(job) for job in (0, 1)] == ["running", "waiting"]
    assert run.reserved_s(1) == 3 * HOUR
    assert run.reasons()[1] is Reason.CAPACITY
    run.run()
    assert [story.started_s for story in run.stories] == [0.0, 2 * HOUR], "earlier than promised: the first one ended"
    figures = measure(run)
    assert (figures.useful_hours, figures.idle_hours, figures.goodput) == (4 * 64, 0.0, 1.0)
    assert (figures.promised, figures.promises_broken) == (1, 0)


def test_one_by_one_without_a_rival_works() -> None:
    other = gang("next", 2, HOUR, submitted_s=1.0, depends_on=("first",))
    run = ClusterRun(Snapshot(fleet()), [INTERLEAVED[0], other], Config(gangs="one-by-one"), CHECKED)
    run.run()
    start_s = 7 * CHECKED.pod_every_s
    assert run.stories[0].started_s == pytest.approx(start_s)
    assert [run.state_of(job) for job in (0, 1)] == ["finished", "finished"]
    assert run.stories[1].started_s == pytest.approx(start_s + 2 * HOUR)
    assert not run.scheduler.running
    assert sum(row.end_s - row.start_s for row in measure(run, gantt=True).gantt) > 2 * HOUR * 64


def test_an_eviction_keeps_the_work_up_to_the_last_checkpoint() -> None:
    saved = gang("saved", 8, 3 * HOUR, checkpointing=Checkpointing(1000.0, 60.0))
    high = gang("high", 8, HOUR, submitted_s=2500.0, priority=1)
    run = ClusterRun(Snapshot(fleet()), [saved, high], Config(), CHECKED)
    run.run(2500.0)
    story = run.stories[0]
    assert (story.done_s, story.lost_s, story.evictions) == (2000.0, 500.0, 1)
    run.run()
    assert story.finished_s == 2500 + HOUR + 60 + (3 * HOUR - 2000)
    assert (story.done_s, story.restart_s, story.starts) == (3 * HOUR, 60.0, 2)
    figures = measure(run)
    assert figures.lost_hours == pytest.approx(500 * 64 / 3600)
    assert figures.allocated_hours == pytest.approx(
        figures.useful_hours + figures.lost_hours + figures.restart_hours + figures.idle_hours
    )


def test_work_that_saves_nothing_starts_anew() -> None:
    run = ClusterRun(
        Snapshot(fleet()), [gang("low", 8), gang("high", 8, submitted_s=1800.0, priority=1)], Config(), CHECKED
    )
    run.run()
    assert (run.stories[0].lost_s, run.stories[0].finished_s) == (1800.0, 1800 + 2 * HOUR)


def test_victims_are_chosen_by_their_last_checkpoint() -> None:
    work = [
        gang("old", 4, 10 * HOUR, queue="a", checkpointing=Checkpointing(1700.0)),
        gang("fresh", 4, 10 * HOUR, queue="a", submitted_s=1.0, checkpointing=Checkpointing(900.0)),
        gang("b", 4, HOUR, queue="b", submitted_s=1850.0),
    ]
    run = ClusterRun(Snapshot(fleet(), two_queues(32)), work, Config(), CHECKED)
    run.run(1850.0)
    assert [story.evictions for story in run.stories] == [0, 1, 0], "49 s lost, not 150 s"


@pytest.mark.parametrize(("at_limit", "state", "end_s"), [("kill", "killed", 1800.0), ("run-on", "finished", HOUR)])
def test_work_that_outlives_its_limit(at_limit: str, state: str, end_s: float) -> None:
    options = msgspec.convert({"at_limit": at_limit, "check_every": 1}, RunOptions)
    work = [gang("late", 1, time_limit_s=1800.0), gang("after", 1, depends_on=("late",))]
    run = ClusterRun(Snapshot(fleet()), work, Config(), options)
    run.run()
    assert (run.state_of(0), run.stories[0].finished_s) == (state, end_s)
    assert run.state_of(1) == ("waiting" if at_limit == "kill" else "finished"), "what failed starts nothing after it"


def test_held_work_starts_at_its_time_and_late_work_is_given_up() -> None:
    work = [
        gang("busy", 8, 2 * HOUR),
        gang("late", 8, submitted_s=1.0, start_deadline_s=HOUR),
        gang("held", 1, submitted_s=2.0, not_before_s=3 * HOUR),
    ]
    run = ClusterRun(Snapshot(fleet()), work, Config(), CHECKED)
    run.run()
    assert [run.state_of(job) for job in range(3)] == ["finished", "given-up", "finished"]
    assert run.stories[2].started_s == 3 * HOUR
    assert measure(run).series[-1] == (4 * HOUR, 0.0, 0)


def test_maintenance_ends_without_another_event() -> None:
    window = AdvanceReservation("fabric", 0.0, 500.0, tuple(f"n{i:02}" for i in range(8)))
    run = ClusterRun(Snapshot(fleet(), reservations=(window,)), [gang("a", 1, submitted_s=10.0)], Config(), CHECKED)
    run.run()
    assert run.stories[0].started_s == 500.0


def test_what_runs_and_waits_in_the_snapshot_goes_on() -> None:
    places = tuple(PodPlacement(f"n{i:02}", tuple(range(8)), 1000) for i in range(8))
    running = Running(gang("old", 8, HOUR), 100.0, places)
    run = ClusterRun(
        Snapshot(fleet(), pending=(gang("next", 8, 60.0, submitted_s=150.0),), running=(running,), taken_s=200.0),
        [gang("new", 8, 60.0, submitted_s=300.0)],
        Config(),
        CHECKED,
    )
    run.run()
    starts = {each.name: story.started_s for each, story in zip(run.workloads, run.stories, strict=True)}
    assert starts == {"new": 3760.0, "next": 3700.0, "old": 100.0}


@pytest.mark.parametrize("gangs", ["all-or-nothing", "one-by-one"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_is_the_same_when_repeated_in_parts_copied_or_pickled(gangs: str, seed: int) -> None:
    config = msgspec.convert({"gangs": gangs, "reservations": 2}, Config)
    whole, parts = (ClusterRun(Snapshot(fleet(), two_queues(32)), history(seed), config, CHECKED) for _ in range(2))
    whole.run(40 * HOUR)
    parts.run(4 * HOUR)
    fork, sent = copy.deepcopy(parts), pickle.loads(pickle.dumps(parts))
    before = told(parts)
    for each in (fork, sent):
        each.run(40 * HOUR)
        assert told(each) == told(whole)
    assert told(parts) == before, "a fork changes nothing in the run that it came from"
    assert fork.workloads is parts.workloads


def history(seed: int, jobs: int = 40) -> list[Workload]:
    import random

    rng = random.Random(seed)
    now_s, work = 0.0, list[Workload]()
    for number in range(jobs):
        now_s += rng.choice((0.0, 60.0, 900.0))
        run_s = rng.choice((0.0, 300.0, 1800.0, 7200.0))
        work.append(
            gang(
                f"j{number}", rng.choice((1, 1, 2, 4)), run_s, rng.choice((1, 2, 4, 8)), submitted_s=now_s,
                time_limit_s=rng.choice((None, 2 * run_s, run_s / 2)), queue=rng.choice("ab"),
                user=rng.choice(("u", "v")), priority=rng.choice((0, 0, 1)), preemptible=rng.random() < 0.8,
                checkpointing=rng.choice((None, Checkpointing(600.0, 30.0))),
                topology=rng.choice((None, None, TopologyRequest(required="rack"))),
                start_deadline_s=rng.choice((None, None, now_s + 3600)),
            )
        )  # fmt: skip
    return work


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    queueing=st.sampled_from(["backfill", "strict", "best-effort"]),
    gangs=st.sampled_from(["all-or-nothing", "one-by-one"]),
    at_limit=st.sampled_from(["kill", "run-on"]),
    with_queues=st.booleans(),
)
@example(seed=1, queueing="backfill", gangs="all-or-nothing", at_limit="kill", with_queues=False)
def test_invariants_over_random_histories(
    seed: int, queueing: str, gangs: str, at_limit: str, with_queues: bool
) -> None:
    config = msgspec.convert({"queueing": queueing, "gangs": gangs, "min_runtime_s": seed % 2 * 300}, Config)
    options = msgspec.convert({"at_limit": at_limit, "check_every": 1}, RunOptions)
    snapshot = Snapshot(fleet(4), two_queues(16) if with_queues else ())
    run = ClusterRun(snapshot, history(seed), config, options)
    run.run(30 * HOUR)
    run.check()
    figures = measure(run)
    assert sum(figures.jobs.values()) == 40
    assert 0 <= figures.utilisation <= 1
    parts = figures.useful_hours + figures.lost_hours + figures.restart_hours + figures.idle_hours
    assert parts == pytest.approx(figures.allocated_hours, rel=1e-9, abs=1e-9)
    if gangs == "all-or-nothing":
        assert figures.idle_hours == pytest.approx(0, abs=1e-9)
    assert sum(queue.gpu_hours for queue in figures.queues) == pytest.approx(figures.allocated_hours, abs=1e-6)
    assert sum(each.jobs for each in figures.by_size) == sum(each.jobs for each in figures.by_queue) == 40
    assert all(0 <= held <= figures.gpus and waiting >= 0 for _, held, waiting in figures.series)
    for story, workload in zip(run.stories, run.workloads, strict=True):
        if not math.isnan(story.finished_s) and story.end != "killed":
            assert story.done_s == pytest.approx(workload.duration_s)


def test_figures_of_a_small_run() -> None:
    work = [gang("a", 8, HOUR, queue="x"), gang("b", 8, HOUR, queue="y"), gang("c", 1, None, gpus=0, submitted_s=9.0)]
    run = ClusterRun(Snapshot(fleet()), work, Config(), CHECKED)
    run.run(2 * HOUR)
    figures = measure(run, gantt=True)
    assert figures.jobs == {"finished": 2, "running": 1}
    assert figures.series[:2] == ((0.0, 64.0, 1), (9.0, 64.0, 1))
    assert figures.series[-1] == (2 * HOUR, 0.0, 0)
    assert [(each.name, each.mean_s) for each in figures.by_size] == [("cpu", 0.0), ("9-64", 1800.0)]
    assert [(each.queue, each.share) for each in figures.queues][1:] == [("x", 0.5), ("y", 0.5)]
    x, y = figures.queues[1].gpus, figures.queues[2].gpus
    assert x == pytest.approx((64.0,) * 50 + (0.0,) * 50)
    assert y == pytest.approx((0.0,) * 50 + (64.0,) * 50)
    assert len(figures.gantt) == 2 * 64 + 1
    assert figures.waits.slowdown_mean == 1.5


def test_size_classes() -> None:
    sizes = {0: "cpu", 1: "1", 2: "2-4", 4: "2-4", 5: "5-8", 8: "5-8", 16: "9-64", 64: "9-64", 72: "65-512"}
    assert {gpus: size_of(gang("a", max(1, gpus // 8), gpus=min(gpus, 8))) for gpus in sizes} == sizes
    assert size_of(gang("a", 65)) == "513+"


@pytest.mark.parametrize(
    ("work", "field"),
    [
        ([gang("a", 1), gang("a", 1)], "workloads[1].name"),
        ([gang("a", 1, submitted_s=math.nan)], "workloads[0].submitted_s"),
        ([gang("a", 1, -1.0)], "workloads[0].duration_s"),
        ([gang("a", 1, topology=TopologyRequest(required="aisle"))], "workloads[0].topology.required"),
        ([Workload("a", (PodSet(PodShape(gpus=1), 2, 3),))], "workloads[0].pod_sets"),
    ],
)
def test_work_that_makes_no_sense_is_refused_before_anything_runs(work: list[Workload], field: str) -> None:
    with pytest.raises(InputError) as refused:
        ClusterRun(Snapshot(fleet()), work, Config())
    assert refused.value.field == field


def test_a_snapshot_tells_when_work_was_saved_last_also_where_nothing_waited() -> None:
    work = [Workload("a", (PodSet(PodShape(1, 0, 1)),), duration_s=9000.0, checkpointing=Checkpointing(600.0))]
    run = ClusterRun(Snapshot(fleet(1)), work, Config())
    run.run(2000.0)
    assert run.snapshot().running[0].checkpointed_s == 1800.0
