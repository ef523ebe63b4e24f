"""Run times from the past: what counts as the same work, which quantile is told, and what a promise then is worth."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine import predict
from muster.engine.config import Config
from muster.engine.decide import decide
from muster.engine.predict import KEPT, LEAST, RunTimes, name_stem
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node
from muster.model.plan import Evict, Place, Plan, Reserve
from muster.model.snapshot import PastRuns, Snapshot, decode_snapshot, diff_snapshots, encode_snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, Workload


def job(name: str, pods: int = 1, gpus: int = 8, limit_s: float | None = None, **more: Any) -> Workload:
    return Workload(name, (PodSet(PodShape(1000, 0, gpus), pods),), time_limit_s=limit_s, **more)


def fleet(nodes: int) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(tuple(Node(f"n{index}", 64_000, 1 << 40, devices) for index in range(nodes)))


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train", "train"), ("train-17", "train"), ("train_llama_0012", "train_llama"),
        ("job-532.batch", "job-532.batch"),
        ("llama-70b", "llama-70b"), ("llama-70b-2026-01-31", "llama-70b"), ("llama-70b-20260131T0910Z", "llama-70b"),
        ("eval[17]", "eval"), ("sweep-4/31", "sweep"), ("run.3f9c2ab", "run"), ("beaded-facade", "beaded-facade"),
        ("prep-550e8400-e29b-41d4-a716-446655440000", "prep"), ("rayjob-x7f2k", "rayjob"),
        ("web-5d4f8c7b9d-x2x4q", "web"), ("12345", ""), ("", ""), ("---", ""), ("a--b--", "a--b"),
    ],
)  # fmt: skip
def test_names_lose_what_counts_them(name: str, stem: str) -> None:
    assert name_stem(name) == stem


@given(st.text(max_size=20))
def test_a_stem_begins_the_name_and_has_no_stem_but_itself(name: str) -> None:
    stem = name_stem(name)
    assert name.startswith(stem)
    assert name_stem(stem) == stem


def ran(times: RunTimes, *seconds: float, **more: Any) -> None:
    for at, each in enumerate(seconds):
        times.record(
            job(f"{more.get('name', 'train')}-{at}", **{k: v for k, v in more.items() if k != "name"}), float(each)
        )


def test_the_narrowest_kind_of_which_enough_is_known_is_asked() -> None:
    times = RunTimes()
    assert times.predicted_s(job("train-9", user="ann"), 0.5) is None
    ran(times, 100, 200, user="ann", queue="a")
    assert times.predicted_s(job("train-9", user="ann"), 0.5) is None, "two say too little"
    ran(times, 300, user="ann", queue="a", limit_s=900.0)
    assert times.predicted_s(job("train-9", user="ann"), 0.5) == 200, "of this name"
    ran(times, 10, 20, 30, user="ann", queue="a", limit_s=900.0)
    assert times.predicted_s(job("train-9", user="ann", limit_s=900.0), 1.0) == 300, "of this name and limit"
    assert times.predicted_s(job("train-9", user="ann", limit_s=900.0), 0.5) == 20
    ran(times, 1, 2, 3, name="eval", user="ann", queue="a")
    assert times.predicted_s(job("new", user="ann"), 0.5) == 20, "of this user"
    assert times.predicted_s(job("new", user="bob", queue="a"), 1.0) == 300, "of this queue and size"
    assert times.predicted_s(job("new", 64, user="bob", queue="a"), 1.0) == 300, "of all"
    ran(times, 7, 7, 7, queue="b")
    assert times.predicted_s(job("train-1", queue="b"), 1.0) == 7, "work without a user is its queue's"


def test_what_is_left_is_told_from_those_that_ran_longer() -> None:
    times = RunTimes()
    ran(times, 600, 1200, 1800, 2400, 3000)
    work = job("train-9")
    assert times.predicted_s(work, 0.75) == 2400
    assert [times.remaining_s(work, 0.0, part) for part in (0.2, 0.5, 0.75, 1.0)] == [600, 1800, 2400, 3000]
    assert [times.remaining_s(work, 1200.0, part) for part in (0.1, 0.5, 0.75, 1.0)] == [600, 1200, 1800, 1800]
    assert times.remaining_s(work, 2999.0, 0.01) == 1
    assert times.remaining_s(work, 3000.0, 1.0) is None


def test_what_went_on_from_a_checkpoint_says_nothing() -> None:
    times = RunTimes()
    again = job("train-0", attempts=1, checkpointing=Checkpointing(60.0))
    for _ in range(5):
        times.record(again, 5.0)
    assert times.past() == ()
    ran(times, 50, 60, 70, attempts=1)
    assert times.predicted_s(job("train-9"), 0.5) == 60, "what began anew says as much as at first"


def test_what_was_not_seen_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "MOST_KINDS", 2)
    times = RunTimes()
    for user in ("ann", "bob", "ann", "cid"):
        ran(times, 1, user=user)
    assert {each.key for each in times.past() if each.level == "owner"} == {("ann", ""), ("cid", "")}


USERS = st.sampled_from(["ann", "bob", ""])
JOBS = st.builds(
    job,
    st.sampled_from(["train-1", "train-2", "eval-1", "other"]),
    st.integers(1, 3),
    limit_s=st.sampled_from([None, 600.0, 3600.0]),
    user=USERS,
    queue=st.sampled_from(["a", "b"]),
)
ENDED = st.lists(st.tuples(JOBS, st.integers(0, 5000).map(float)), max_size=120)


def likeness(work: Workload) -> list[tuple[object, ...]]:
    owner = ("user", work.user) if work.user else ("queue", work.queue)
    stem = work.name.split("-")[0]
    return [
        (owner, stem, work.pods, work.time_limit_s), (owner, stem), (owner,),
        (work.queue, (work.gpu_milli).bit_length()), (),
    ]  # fmt: skip


@given(ENDED, JOBS, st.floats(0.01, 1.0), st.integers(0, 5000))
def test_predictions_are_the_quantiles_of_what_was_kept(
    ended: list[tuple[Workload, float]], work: Workload, part: float, elapsed_s: int
) -> None:
    times = RunTimes()
    for each, seconds in ended:
        times.record(each, seconds)
    alike: list[float] = []
    for level in range(5):
        alike = [seconds for each, seconds in ended if likeness(each)[level] == likeness(work)[level]][-KEPT:]
        if len(alike) >= LEAST:
            break

    def quantile(of: list[float]) -> float | None:
        return min((x for x in of if sum(y <= x for y in of) >= part * len(of) - 1e-9), default=None)

    alike = alike if len(alike) >= LEAST else []
    assert times.predicted_s(work, part) == quantile(alike)
    longer = quantile([seconds for seconds in alike if seconds > elapsed_s])
    assert times.remaining_s(work, elapsed_s, part) == (None if longer is None else longer - elapsed_s)


@given(ENDED)
def test_the_history_goes_through_a_snapshot(ended: list[tuple[Workload, float]]) -> None:
    times = RunTimes()
    for each, seconds in ended:
        times.record(each, seconds)
    snapshot = Snapshot(fleet(1), run_times=times.past())
    again = decode_snapshot(encode_snapshot(snapshot))
    assert again == snapshot
    copy = RunTimes(again.run_times)
    assert copy.past() == times.past()
    for history in (copy, times):
        history.record(job("train-1", user="ann"), 5.0)
    assert copy.past() == times.past(), "and goes on the same"


def test_a_difference_names_the_kind_of_work() -> None:
    times = RunTimes()
    ran(times, 100, user="ann", queue="a", limit_s=600.0)
    before = Snapshot(fleet(1), run_times=times.past())
    ran(times, 200, user="ann", queue="a", limit_s=600.0)
    after = Snapshot(fleet(1), run_times=(*times.past(), PastRuns("unknown", ("x",), (1.0,))))
    told = [str(each) for each in diff_snapshots(before, after)]
    assert told[0] == "~ run_times.job/ann//train/1/8000/600: [100.0] -> [100.0,200.0]"
    assert len(told) == 6
    assert RunTimes(after.run_times).past() == times.past(), "kinds of a later Muster are passed over"


def started(plan: Plan) -> list[tuple[str, object]]:
    return [(each.workload, each.pods) if isinstance(each, Place) else (f"-{each.workload}", ())
            for each in plan.decisions if isinstance(each, Place | Evict)]  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    queueing=st.sampled_from(["strict", "best-effort"]),
    predicted=st.sampled_from(["never", "without-limit", "always"]),
)
def test_a_snapshot_decides_the_same_and_expects_the_same_ends(seed: int, queueing: Any, predicted: Any) -> None:
    rng = random.Random(seed)
    config = Config(queueing=queueing, predict=predicted, predict_quantile=rng.choice((0.5, 1.0)))
    scheduler = Scheduler(Snapshot(fleet(3)), config)
    now_s = 0.0
    for number in range(30):
        now_s += rng.choice((0.0, 60.0, 900.0, 4000.0))
        for _ in range(rng.randrange(3)):
            size = rng.choice((1, 2)), rng.choice((2, 8))
            scheduler.submit(
                job(f"{rng.choice('xy')}-{number}{rng.random()}", *size, rng.choice((300.0, None)), submitted_s=now_s)
            )
        for name in [run.workload.name for run in scheduler.running]:
            if rng.random() < 0.3:
                scheduler.finish(name, now_s)
        again = decode_snapshot(encode_snapshot(scheduler.snapshot(now_s)))
        restarted = Scheduler(again, config)
        plan = scheduler.cycle(now_s)
        assert started(decide(again, now_s, config)) == started(restarted.cycle(now_s)) == started(plan)
        ends = {run.workload.name: (run.limit_s, run.sure) for run in scheduler.running}
        assert ends == {run.workload.name: (run.limit_s, run.sure) for run in restarted.running}
        assert all(end_s >= now_s for end_s, _ in ends.values())


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    reservations=st.sampled_from([1, 2, 8]),
    predicted=st.sampled_from(["never", "without-limit", "always"]),
)
def test_a_sure_start_is_kept_whatever_becomes_of_predictions(seed: int, reservations: int, predicted: Any) -> None:
    """Work with a limit ends by it, other work ends at any time: only starts that are told as sure are kept."""
    rng = random.Random(seed)
    config = Config(reservations=reservations, predict=predicted, run_s=1800.0, ordering="fifo")
    scheduler = Scheduler(Snapshot(fleet(4)), config)
    ends: dict[str, float] = {}
    sure: dict[str, float] = {}
    work: list[Workload] = []
    submitted_s = 0.0
    for number in range(40):
        submitted_s += rng.choice((0.0, 30.0, 400.0))
        shape = rng.choice((1, 1, 2, 3, 4)), rng.choice((1, 2, 4, 8))
        limit_s = rng.choice((300.0, 3600.0, 3600.0, None))
        work.append(job(f"{rng.choice('xy')}-{number:02}", *shape, limit_s, submitted_s=submitted_s))
    now_s = 0.0
    while work or ends or len(scheduler.pending):
        due = [slot.start_s for slot in scheduler.slots.values() if slot.start_s > now_s]
        now_s = min([each.submitted_s for each in work[:1]] + list(ends.values()) + due)
        for name in [name for name, end_s in ends.items() if end_s == now_s]:
            scheduler.finish(name, now_s)
            del ends[name]
        while work and work[0].submitted_s == now_s:
            scheduler.submit(work.pop(0))
        for each in scheduler.cycle(now_s).decisions:
            if isinstance(each, Place):
                assert now_s <= sure.get(each.workload, math.inf), "it starts no later than it was surely told"
                limit_s = scheduler.running[each.workload].workload.time_limit_s
                most_s = rng.choice((100.0, 2000.0, 20_000.0)) if limit_s is None else limit_s
                ends[each.workload] = now_s + rng.choice((1.0, 0.5, 0.1)) * most_s
            elif isinstance(each, Reserve) and each.sure:
                assert each.start_s <= sure.get(each.workload, math.inf)
                sure[each.workload] = each.start_s
        for name, told_s in sure.items():
            assert name not in scheduler.pending.gangs or scheduler.slots[name].sure
            assert name not in scheduler.pending.gangs or scheduler.slots[name].start_s <= told_s
        assert len(scheduler.running) or not len(scheduler.pending) or now_s < submitted_s, "nobody waits for nothing"
