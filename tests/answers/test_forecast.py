"""When waiting work will start: exact where run times are sure, wider with more confidence, and the same each time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.forecast import Budget, Forecast, forecast, forecast_all
from muster.answers.sources import without_run_times
from muster.answers.view import View
from muster.engine.config import Config
from muster.errors import InputError
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason
from muster.model.snapshot import PastRuns, Snapshot
from muster.model.workload import PodSet, PodShape, Workload
from muster.sim.cluster_run import ClusterRun
from muster.traces import read_fleet

HOUR_S = 3600.0
SMALL = Budget(samples=8, events=600, least_samples=6)


def job(name: str, gpus: int = 8, pods: int = 1, **given: object) -> Workload:
    return Workload(name, (PodSet(PodShape(gpus=gpus), pods),), **given)  # type: ignore[arg-type]


def stopped(jobs: Sequence[Workload], now_s: float, nodes: int = 4, config: Config | None = None) -> ClusterRun:
    """A history on nodes of 8 GPUs, stopped at an instant."""
    fleet = read_fleet(f"uniform:nodes={nodes},gpus=8")[0]
    run = ClusterRun(Snapshot(fleet), jobs, config or Config())
    run.run(now_s)
    return run


def seen(run: ClusterRun) -> View:
    """What an answer may know of a history."""
    return View(without_run_times(run.scheduler.snapshot(run.now_s)), run.scheduler.config)


def exact_work(count: int, every_s: float = 300.0) -> list[Workload]:
    """Whole-node jobs of one and two hours that run exactly as long as their owners say."""
    return [
        job(
            f"job-{number}", pods=1 + number % 3, user=f"user-{number % 2}", submitted_s=number * every_s,
            duration_s=HOUR_S * (1 + number % 2), time_limit_s=HOUR_S * (1 + number % 2),
        )
        for number in range(count)
    ]  # fmt: skip


def test_certain_run_times_give_the_exact_start() -> None:
    """All work ended at its limit so far, and nothing more comes: the interval has no width, and the start is right."""
    run = stopped(exact_work(40), 40 * 300.0)
    told = forecast_all(seen(run), Budget(samples=3, events=4000, least_samples=3, arrivals=False))
    run.run()
    real = {each.name: story.started_s for each, story in zip(run.workloads, run.stories, strict=True)}
    assert len(told) >= 10
    for name, each in told.items():
        assert each.low_s == each.expected_s == each.high_s == pytest.approx(real[name]), name


def mixed_work(seed: int, count: int = 80) -> list[Workload]:
    """Work of several users, sizes and lengths, more than four nodes can do."""
    return [
        job(
            f"{'abc'[(number * seed) % 3]}-{number}", gpus=(1, 2, 4, 8)[(number + seed) % 4],
            pods=1 + (number * 7 + seed) % 3 if (number + seed) % 4 == 3 else 1, user=f"user-{number % 3}",
            submitted_s=number * 120.0, duration_s=60.0 + (number * 7919 * seed) % 9000,
        )
        for number in range(count)
    ]  # fmt: skip


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 1000))
def test_intervals_are_ordered_and_wider_with_more_confidence(seed: int) -> None:
    """Never before now, the expected start inside, and more confidence never narrower."""
    view = seen(stopped(mixed_work(seed), 5000.0))
    for name in [each.name for each in view.snapshot.pending][:1]:
        half, most = (forecast(view, name, budget=SMALL, confidence=part) for part in (0.5, 0.9))
        for each in (half, most):
            assert view.now_s <= each.low_s <= each.expected_s <= each.high_s
        assert most.low_s <= half.low_s
        assert half.high_s <= most.high_s


def test_the_same_snapshot_gives_the_same_answer() -> None:
    """To the last bit, also from another view of it."""
    run = stopped(mixed_work(5), 5000.0)
    name = seen(run).snapshot.pending[-1].name
    assert forecast(seen(run), name, budget=SMALL) == forecast(seen(run), name, budget=SMALL)


def test_what_starts_now_starts_now() -> None:
    """Work that the cycle of this instant starts."""
    run = stopped([], 0.0)
    view = View(replace(run.scheduler.snapshot(0.0), pending=(job("a"),)))
    told = forecast(view, "a")
    assert (told.method, told.low_s, told.high_s) == ("now", 0.0, 0.0)


NEVER = (
    (job("big", pods=5), Reason.NEVER_FITS),
    (job("lost", queue="nowhere"), Reason.UNKNOWN_QUEUE),
    (job("orphan", queue="team", depends_on=("gone",)), Reason.DEPENDENCY),
    (job("greedy", pods=3, queue="team"), Reason.OVER_QUOTA),
)


@pytest.mark.parametrize(("work", "why"), NEVER, ids=[str(why) for _, why in NEVER])
def test_what_never_starts_says_so(work: Workload, why: Reason) -> None:
    """Hopeless work has no date, and the reason."""
    fleet = read_fleet("uniform:nodes=4,gpus=8")[0]
    limited = (Queue("team", quotas=(Quota(fleet.nodes[0].flavor, 16_000, 0),)),)
    queues = () if why is Reason.NEVER_FITS else limited
    told = forecast(View(Snapshot(fleet, queues, (work,))), work.name)
    assert (told.method, told.low_s, told.why) == ("never", math.inf, why)


def test_held_work_starts_when_it_is_let_go() -> None:
    """Nothing else is in its way."""
    run = stopped([], 0.0)
    view = View(replace(run.scheduler.snapshot(0.0), pending=(job("a", not_before_s=5000.0),)))
    told = forecast(view, "a", budget=Budget(arrivals=False))
    assert (told.low_s, told.high_s, told.why) == (5000.0, 5000.0, Reason.HELD)


def test_it_names_what_it_waits_for_and_what_is_ahead() -> None:
    """Two running jobs hold all; the first in line waits for the one that ends first."""
    run = stopped(
        [
            job("short", pods=2, duration_s=HOUR_S, time_limit_s=HOUR_S),
            job("long", pods=2, duration_s=9 * HOUR_S, time_limit_s=9 * HOUR_S),
            job("first", pods=2, submitted_s=10.0, duration_s=HOUR_S, time_limit_s=HOUR_S),
            job("second", pods=2, submitted_s=20.0, duration_s=HOUR_S, time_limit_s=HOUR_S),
        ],
        600.0,
    )
    view = seen(run)
    first, second = (forecast(view, name, budget=SMALL) for name in ("first", "second"))
    assert [(each.job, each.nodes) for each in first.waits_for] == [("short", 2)]
    assert (first.ahead, second.ahead) == ((), ("first",))
    assert first.expected_s <= HOUR_S
    assert first.sure_s == HOUR_S


def test_running_work_has_no_start_to_tell() -> None:
    """And an unknown name is an error, too."""
    view = seen(stopped([job("a", duration_s=HOUR_S)], 60.0))
    for name in ("a", "b"):
        with pytest.raises(InputError):
            forecast(view, name)


def test_a_long_queue_is_counted_not_run_forward() -> None:
    """A budget too small for one future still gives an answer, near the one by turnover of a plain queue."""
    run = stopped(exact_work(200, every_s=60.0), 200 * 60.0)
    view = seen(run)
    name = view.snapshot.pending[-1].name
    told: Forecast = forecast(view, name, budget=Budget(samples=20, events=400))
    run.run()
    real_s = next(s.started_s for w, s in zip(run.workloads, run.stories, strict=True) if w.name == name)
    assert told.method == "queue ahead"
    assert told.ahead_count > 50
    assert 0.5 < (told.expected_s - view.now_s) / (real_s - view.now_s) < 2.0


def test_history_of_another_source_is_used() -> None:
    """A snapshot with only wide kinds of past run times."""
    run = stopped([job("a", pods=4, duration_s=9 * HOUR_S), job("b", pods=4, submitted_s=5.0)], 60.0)
    bare = replace(without_run_times(run.scheduler.snapshot(60.0)), run_times=(PastRuns("all", (), (HOUR_S,) * 9),))
    told = forecast(View(bare), "b", budget=Budget(arrivals=False))
    assert told.expected_s == HOUR_S


def test_what_others_have_borrowed_comes_back() -> None:
    """A gang larger than all that its queue holds waits for the whole pool, and not for ever."""
    fleet = read_fleet("uniform:nodes=4,gpus=8")[0]
    flavor = fleet.nodes[0].flavor
    queues = (Queue("org"), *(Queue(name, "org", quotas=(Quota(flavor, 16_000),)) for name in ("red", "blue")))
    jobs = [
        job("own", queue="blue", duration_s=9 * HOUR_S, time_limit_s=9 * HOUR_S),
        job("lent", pods=3, queue="red", submitted_s=1.0, duration_s=HOUR_S, time_limit_s=HOUR_S),
        job("large", pods=3, queue="blue", submitted_s=10.0, duration_s=HOUR_S, time_limit_s=HOUR_S),
    ]
    run = ClusterRun(Snapshot(fleet, queues), jobs, Config(reclaim=False))
    run.run(600.0)
    told = forecast(seen(run), "large", budget=Budget(samples=8, events=8, arrivals=False))
    assert told.method == "queue ahead"
    assert told.why is Reason.QUOTA
    assert told.expected_s == pytest.approx(HOUR_S + 1.0, abs=2.0)
