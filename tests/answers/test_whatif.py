"""What if: whoever is promised an earlier start gets it, and nothing moves by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.changes import parse_change
from muster.answers.view import View
from muster.answers.whatif import AS_IT_IS, Comparison, Effect, Options, Variant, compare, most_events
from muster.engine.config import Config, settings_of
from muster.errors import InputError
from muster.model import Device, Fleet, Node, PodPlacement, PodSet, PodShape, Running, Snapshot, Topology, Workload
from muster.model.queue import Queue, Quota
from muster.model.snapshot import PastRuns
from muster.model.workload import Checkpointing

WHOLE = PodShape(gpus=8)
DEVICES = tuple(Device(index, "H100") for index in range(8))
FIFO = settings_of(
    Config(ordering="fifo", queueing="strict", defragment=False, predict="never", preempt_lower_priority=False)
)


def fleet(nodes: int) -> Fleet:
    made = (Node(f"n{at + 1:02d}", 96000, 2**40, DEVICES, topology=(f"rack-{at // 4 + 1}",)) for at in range(nodes))
    return Fleet(tuple(made), Topology(("rack",)))


def job(name: str, pods: int, hours: float, *, queue: str = "", at_s: float = 0.0) -> Workload:
    return Workload(name, (PodSet(WHOLE, pods),), submitted_s=at_s, time_limit_s=hours * 3600, queue=queue)


def runs(workload: Workload, nodes: Sequence[str], since_s: float) -> Running:
    return Running(workload, since_s, tuple(PodPlacement(node, tuple(range(8)), 1000) for node in nodes))


def busy() -> Snapshot:
    """4 nodes at 10,000 s: long (2 nodes, until 5 h from now) and short (2 nodes, until 1 h); a, b, c, d wait."""
    long, short = job("long", 2, 6), job("short", 2, 2)
    return Snapshot(
        fleet(4),
        pending=tuple(job(name, pods, 1, at_s=9000.0 + at) for at, (name, pods) in enumerate(
            [("a", 2), ("b", 2), ("c", 4), ("d", 1)]
        )),
        running=(runs(long, ["n01", "n02"], 6400.0), runs(short, ["n03", "n04"], 6400.0)),
        taken_s=10000.0,
        settings=FIFO,
    )  # fmt: skip


def what_if(snapshot: Snapshot, *texts: str, options: Options | None = None) -> Comparison:
    view = View(snapshot)
    return compare(view, [Variant(text, parse_change(text, snapshot)) for text in texts], options)


def hours(effects: Sequence[Effect]) -> dict[str, tuple[float, float]]:
    """Job to its starts before and after, in hours from now."""
    return {each.job: (round(each.before_s / 3600, 3), round(each.after_s / 3600, 3)) for each in effects}


INF = math.inf

SCENARIOS: tuple[tuple[str, dict[str, tuple[float, float]]], ...] = (
    ("add 2 nodes like n01", {"a": (1, 0), "b": (2, 1), "c": (5, 2), "d": (6, 3)}),
    ("add 4 nodes like n01", {"a": (1, 0), "b": (2, 0), "c": (5, 1), "d": (6, 1)}),
    ("add 1 rack", {"a": (1, 0), "b": (2, 0), "c": (5, 1), "d": (6, 1)}),
    ("drain n03", {"a": (1, 5), "b": (2, 6), "c": (5, INF), "d": (6, INF)}),
    ("drain all", {"a": (1, INF), "b": (2, INF), "c": (5, INF), "d": (6, INF)}),
    ("cancel c", {"a": (1, 1), "b": (2, 2), "c": (5, math.nan), "d": (6, 3)}),
    ("job c pods=2", {"a": (1, 1), "b": (2, 2), "c": (5, 3), "d": (6, 4)}),
    ("set queueing=best-effort", {"a": (1, 1), "b": (2, 2), "c": (5, 5), "d": (6, 3)}),
    ("job d priority=1", {"a": (1, 2), "b": (2, 3), "c": (5, 5), "d": (6, 1)}),
    ("remove n04", {"a": (1, 7), "b": (2, 8), "c": (5, INF), "d": (6, INF)}),
    ("reserve n03 to 5h", {"a": (1, 5), "b": (2, 5), "c": (5, 6), "d": (6, 7)}),
    ("set reservations=1", {"a": (1, 1), "b": (2, 2), "c": (5, 5), "d": (6, 6)}),
    ("uncordon n01", {"a": (1, 1), "b": (2, 2), "c": (5, 5), "d": (6, 6)}),
)  # fmt: skip
"""Strictly first come, first served, so that each start can be told by hand. What runs on a node that is removed was
submitted first, and starts anew before a."""


@pytest.mark.parametrize(("text", "expected"), SCENARIOS, ids=[text for text, _ in SCENARIOS])
def test_who_starts_when(text: str, expected: dict[str, tuple[float, float]]) -> None:
    found = hours(what_if(busy(), text).outcomes[1].effects)
    assert {name: str(found[name]) for name in found if name in expected} == {
        name: str(tuple(map(float, starts))) for name, starts in expected.items()
    }


def test_a_change_that_changes_nothing_says_so_and_one_that_does_not_matter_too() -> None:
    nothing, no_matter, matters = what_if(busy(), "uncordon n01", "set grow_every_s=1200", "cancel c").outcomes[1:]
    assert nothing.same
    assert nothing.notes == ("it changes nothing: the snapshot is as before.",)
    assert not no_matter.same
    assert no_matter.notes == ("it makes no difference to when work starts.",)
    assert not matters.notes
    assert no_matter.figures.use == nothing.figures.use
    assert not no_matter.movers


def test_nothing_starts_on_a_drained_fleet() -> None:
    base, drained = what_if(busy(), "drain all").outcomes
    assert (drained.figures.starts_now, drained.figures.waiting) == (0, 4)
    assert (base.figures.waiting, drained.figures.use.open_gpus) == (0, 0)


def test_more_quota_lets_exactly_those_start_that_it_is_enough_for() -> None:
    queues = (Queue("team", quotas=(Quota("H100", 16000),)), Queue("other", quotas=(Quota("H100", 64000),)))
    pending = tuple(job(f"w{number}", 1, 1, queue="team", at_s=float(number)) for number in range(20))
    snapshot = Snapshot(fleet(16), queues, pending=pending, taken_s=100.0, settings=FIFO)
    base, more = what_if(snapshot, "quota team +64").outcomes
    assert (base.figures.starts_now, more.figures.starts_now) == (2, 10)
    at_once = [each.job for each in more.effects if each.after_s == 0 and each.before_s > 0]
    assert at_once == [f"w{number}" for number in range(2, 10)]


def test_what_is_stopped_loses_its_work_and_starts_again_with_the_rest() -> None:
    """stop long: it ran 1 of 6 h; saved half an hour ago it has 5.5 h left, and a restart of 36 s."""
    snapshot = busy()
    long = replace(snapshot.running[0], checkpointed_s=8200.0)
    long = replace(long, workload=replace(long.workload, checkpointing=Checkpointing(1800.0, 36.0)))
    snapshot = replace(snapshot, running=(long, snapshot.running[1]))
    outcome = what_if(snapshot, "stop long", options=Options(pictures=True)).outcomes[1]
    assert (outcome.figures.stopped, round(outcome.figures.lost_gpu_s)) == (1, 16 * (1800 + 36))
    bars = {bar.job: bar for bar in outcome.bars}
    assert bars["long"].end_s - bars["long"].start_s == pytest.approx(5.5 * 3600 + 36)
    assert hours(outcome.effects)["long"][1] == 0, "it was submitted first: it starts again at once, and a waits"


def test_what_is_moved_ends_later_by_what_it_loses() -> None:
    """short has run for an hour of two and never saved: it ends an hour later, and c needs its nodes."""
    snapshot = replace(busy(), fleet=fleet(6))
    found = what_if(snapshot, "cancel b", "cancel b; move short to n05:0-7 n06:0-7")
    assert found.outcomes[2].figures.moved == 1
    assert found.outcomes[2].figures.lost_gpu_s == 3600 * 16
    assert [hours(each.effects)["c"][1] for each in found.outcomes] == [2, 1, 2]


def test_higher_priority_may_stop_others_and_that_is_counted() -> None:
    settings = dict(FIFO) | {"preempt_lower_priority": True}
    snapshot = replace(busy(), settings=tuple(sorted(settings.items())))
    outcome = what_if(snapshot, "job d priority=1").outcomes[1]
    assert hours(outcome.effects)["d"] == (6, 0)
    assert (outcome.figures.stopped, outcome.figures.lost_gpu_s) == (1, 3600 * 16)


def test_a_smaller_gang_does_the_same_work_in_more_time() -> None:
    found = what_if(busy(), "job a pods=1", options=Options(pictures=True))
    bars = {bar.job: bar for bar in found.outcomes[1].bars}
    assert bars["a"].end_s - bars["a"].start_s == 3600.0, "its limit ends it"
    free = replace(busy(), pending=tuple(replace(each, time_limit_s=None) for each in busy().pending))
    bars = {bar.job: bar for bar in what_if(free, "job a pods=1", options=Options(pictures=True)).outcomes[1].bars}
    assert bars["a"].end_s - bars["a"].start_s == pytest.approx(2 * Config().run_s)
    assert found.outcomes[1].notes[-1] == (
        "a does the same work on 8 GPUs: it is taken to run 2 times as long; its limit ends it before."
    )


def test_a_new_limit_ends_running_work_and_makes_none_longer() -> None:
    """3 h end long in 2 h and not in 5; b and c follow. short has an hour of work left, whatever its limit."""
    for text, expected in (("job long limit=3h", 3), ("job short limit=9h", 5), ("job long limit=none", 5)):
        assert hours(what_if(busy(), text).outcomes[1].effects)["c"] == (5, expected), text


def test_jobs_of_which_nothing_is_known_are_counted() -> None:
    assert what_if(busy(), "cancel c").unknown == 0
    free = replace(busy(), pending=tuple(replace(each, time_limit_s=None) for each in busy().pending))
    assert what_if(free, "cancel c").unknown == 4
    like = PastRuns("all", (), (60.0, 70.0, 80.0))
    predicted = dict(FIFO) | {"predict": "without-limit"}
    assert what_if(replace(free, run_times=(like,), settings=tuple(sorted(predicted.items()))), "cancel c").unknown == 0


def test_work_that_runs_into_a_wave_is_named() -> None:
    outcome = what_if(busy(), "driver-wave n[01-04] batch 2 every 2h").outcomes[1]
    assert outcome.notes == ("long still runs on nodes of driver-wave-1 when it begins: wait for it, or stop it.",)


def test_the_use_of_the_fleet_is_the_area_under_its_steps() -> None:
    """As it is: 2 + 2 nodes for 1 h, then long and a, long and b, long alone for 2 h, then c for 1 h, then d."""
    found = what_if(busy(), "uncordon n01")
    use = found.outcomes[0].figures.use
    assert found.use_s == 6 * 3600, "until the last one starts"
    assert use.gpu_hours == pytest.approx(8 * (3 * 4 + 2 * 2 + 4))
    assert use.utilisation == pytest.approx(20 / 24)
    assert use.whole_free_nodes == pytest.approx(4 / 6)
    assert use.stranded_gpus == 0
    halves = replace(busy(), pending=(Workload("half", (PodSet(PodShape(gpus=3)),), time_limit_s=7200.0),), running=())
    use = what_if(halves, "uncordon n01").outcomes[0].figures.use
    assert (use.gpu_hours, use.whole_free_nodes, use.stranded_gpus) == pytest.approx((3, 3, 5))


def test_costs_are_those_of_the_prices_that_are_given() -> None:
    options = Options(prices=(("H100", 2.5),))
    base, more = what_if(busy(), "add 2 nodes like n01", options=options).outcomes
    assert (base.figures.usd_per_hour, more.figures.usd_per_hour) == (32 * 2.5, 48 * 2.5)
    assert what_if(busy(), "cancel c").outcomes[0].figures.usd_per_hour is None, "no price is invented"
    with pytest.raises(InputError, match="there is no flavor 'H10'; did you mean H100"):
        what_if(busy(), "cancel c", options=Options(prices=(("H10", 1.0),)))


def test_it_looks_as_far_as_it_is_told() -> None:
    found = what_if(busy(), "cancel c", options=Options(for_s=3 * 3600.0))
    assert (found.end_s, found.use_s, found.cut) == (10800.0, 10800.0, False)
    assert str(hours(found.outcomes[1].effects)) == str(
        {"a": (1.0, 1.0), "b": (2.0, 2.0), "c": (INF, math.nan), "d": (INF, 3.0)}
    )
    cut = what_if(busy(), "cancel c", options=Options(events=2))
    assert cut.cut
    assert cut.outcomes[0].figures.waiting > 0


def test_the_more_waits_the_sooner_a_run_is_cut() -> None:
    assert [most_events(waiting) for waiting in (0, 5000, 10_000, 100_000, 10**7)] == [
        20_000,
        20_000,
        10_000,
        1000,
        1000,
    ]


def test_it_tells_how_far_it_is() -> None:
    told: list[float] = []
    view = View(busy())
    compare(view, [Variant("x", parse_change("cancel c", view.snapshot))], Options(samples=2), told.append)
    assert told == sorted(told)
    assert told[-1] == 4


def test_variants_need_names_of_their_own() -> None:
    view = View(busy())
    with pytest.raises(InputError, match="two variants are called 'x'"):
        compare(view, [Variant("x", ()), Variant("x", ())])
    with pytest.raises(InputError, match=f"two variants are called '{AS_IT_IS}'"):
        compare(view, [Variant(AS_IT_IS, ())])


def test_draws_are_the_same_in_all_variants_and_for_a_seed() -> None:
    """Run times are drawn from 20 of work like it; where snapshots do not differ, figures do not."""
    past = PastRuns("job", ("", "", "", 2, 16000, 3600.0), tuple(float(100 * number + 60) for number in range(20)))
    snapshot = replace(busy(), run_times=(past,))
    options = Options(samples=10, seed=3)
    one, other = (what_if(snapshot, "set grow_every_s=1200", "cancel d", options=options) for _ in range(2))
    assert one == other
    assert not one.outcomes[1].movers
    assert one.outcomes[1].figures.use == one.outcomes[0].figures.use
    assert all(each.before_s == each.after_s for each in one.outcomes[2].effects if each.job != "d")
    different = what_if(snapshot, "cancel d", options=replace(options, seed=4))
    assert different.outcomes[0].effects != one.outcomes[0].effects


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), min_size=1, max_size=12),
    st.lists(st.integers(1, 9), max_size=5),
    st.integers(1, 4),
)
@settings(max_examples=30, deadline=None)
def test_first_come_first_served_nobody_starts_later_for_more_nodes(
    waiting: list[tuple[int, int]], running: list[int], more: int
) -> None:
    """With strict order and nodes that are alike the free times of nodes are dominated (Kiefer and Wolfowitz 1955)."""
    snapshot = Snapshot(
        fleet(5),
        pending=tuple(job(f"w{at:02d}", pods, length, at_s=float(at)) for at, (pods, length) in enumerate(waiting)),
        running=tuple(runs(job(f"r{at}", 1, each), [f"n{at + 1:02d}"], 99.0) for at, each in enumerate(running)),
        taken_s=100.0,
        settings=FIFO,
    )
    outcome = what_if(snapshot, f"add {more} nodes like n01").outcomes[1]
    assert all(each.after_s <= each.before_s for each in outcome.effects)


@pytest.mark.parametrize("seed", range(12))
def test_any_snapshot_runs_forward_the_same_way_twice(seed: int, random_snapshot: Callable[[int], Snapshot]) -> None:
    snapshot = random_snapshot(seed)
    name = snapshot.fleet.nodes[0].name
    texts = (f"drain {name}", f"drain {name} evict", f"add 2 nodes like {name}", "policy kueue-like", f"fail {name}")
    options = Options(samples=1 + seed % 3, events=2000)
    one, other = (what_if(snapshot, *texts, options=options) for _ in range(2))
    assert one == other
    for outcome in one.outcomes:
        assert 0 <= outcome.figures.use.utilisation <= 1 + 1e-9
        assert outcome.figures.waits.jobs <= len(snapshot.pending)
        assert sum(each.jobs for each in outcome.figures.by_size) == outcome.figures.waits.jobs
        assert sum(each.jobs for each in outcome.figures.by_queue) == outcome.figures.waits.jobs
