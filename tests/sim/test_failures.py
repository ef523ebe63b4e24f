"""Failures come as often as they are said to, by shocks that pools share, and the same whatever else happens."""

from __future__ import annotations

import math
import pickle

import pytest

from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.sim.failures import (
    DAY_S,
    BlackHole,
    Change,
    FailureModel,
    FailureProcess,
    Outage,
    SpotShocks,
    check_failures,
)


def fleet(nodes: int, purchase: str = "", zone: int = 8) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(Node(f"n{at}", 1, 1, devices, topology=(f"z{at // zone}",), purchase=purchase) for at in range(nodes)),
        Topology(("zone",)),
    )


def changes(process: FailureProcess, until_s: float) -> list[tuple[float, Change]]:
    found: list[tuple[float, Change]] = []
    while process.next_s <= until_s:
        now_s = process.next_s
        found += [(now_s, each) for each in process.advance(now_s)]
    return found


def test_nodes_fail_as_often_as_it_is_said_and_are_away_for_as_long() -> None:
    process = FailureProcess(FailureModel(per_1000_node_days=6.5, repair_s=DAY_S), fleet(500), seed=1)
    told = changes(process, 400 * DAY_S)
    fails = [change for _, change in told if change.what == "fails"]
    expected = 6.5 / 1000 * 500 * 400
    assert abs(len(fails) - expected) < 4 * math.sqrt(expected)
    seen: dict[int, float] = {}
    away: list[float] = []
    for time_s, change in told:
        if change.what == "seen":
            assert change.node not in seen
            seen[change.node] = time_s
        elif change.what == "back":
            away.append(time_s - seen.pop(change.node))
    assert abs(sum(away) / len(away) / DAY_S - 1) < 0.15


def test_a_failure_is_seen_when_it_is_detected() -> None:
    process = FailureProcess(FailureModel(per_1000_node_days=100.0, detect_s=300.0), fleet(4), seed=2)
    told = changes(process, 50 * DAY_S)
    failed = {change.node: time_s for time_s, change in told[:1]}
    node = told[0][1].node
    assert [change.what for _, change in told if change.node == node][:3] == ["fails", "seen", "back"]
    assert next(time_s for time_s, change in told if change == (node, "seen")) == failed[node] + 300.0


def test_shocks_take_gangs_far_less_often_than_independent_losses_would() -> None:
    """Figures of 16-node gangs on AWS: 0.5 to 0.6 breaks and 0.38 to 0.54 losses an instance-hour (facts F1)."""
    spot = SpotShocks(per_h=0.55, whole=0.5, share=0.7, back_s=60.0)
    process = FailureProcess(FailureModel(spot=spot), fleet(16, "spot", zone=16), seed=3)
    hours = 2000
    lost = [time_s for time_s, change in changes(process, hours * 3600.0) if change.what == "seen"]
    breaks_per_h, losses = len(set(lost)) / hours, len(lost) / 16 / hours
    assert 0.50 < breaks_per_h < 0.60
    assert 0.38 < losses < 0.54
    independent_per_h = 1 - (1 - losses) ** 16
    assert independent_per_h > 0.99
    assert 16 * losses > 10 * breaks_per_h, "as single losses they would be ten times as many breaks"
    whole = sum(lost.count(time_s) == 16 for time_s in set(lost)) / len(set(lost))
    assert 0.23 < whole < 0.69


def test_pools_have_shocks_of_their_own() -> None:
    spot = SpotShocks(per_h=1.0, whole=1.0, back_s=60.0, level="zone")
    process = FailureProcess(FailureModel(spot=spot), fleet(16, "spot"), seed=4)
    assert [len(pool) for pool in process.pools] == [8, 8]
    for time_s, _ in changes(process, 100 * 3600.0):
        assert time_s > 0
    again = FailureProcess(FailureModel(spot=spot), fleet(16, "spot"), seed=4)
    first = [change.node // 8 for _, change in changes(again, 100 * 3600.0) if change.what == "seen"]
    assert {0, 1} == set(first)


def test_outages_are_as_told_and_overlap() -> None:
    model = FailureModel(outages=(Outage("n1", 100.0, 50.0), Outage("n1", 120.0, 100.0), Outage("n0", 10.0, 5.0)))
    assert changes(FailureProcess(model, fleet(2), seed=0), 1e9) == [
        (10.0, Change(0, "seen")), (15.0, Change(0, "back")),
        (100.0, Change(1, "seen")), (220.0, Change(1, "back")),
    ]  # fmt: skip


def test_larger_gangs_fail_more_often_than_their_nodes() -> None:
    """1,024 GPUs at 6.5 failures a 1,000 node-days: 7.9 h observed, 28.8 h by nodes alone (facts E: 3.6 times)."""
    exponent = math.log(3.6) / math.log(128)
    means: list[float] = []
    for gpus in (8, 1024):
        process = FailureProcess(FailureModel(per_1000_node_days=6.5, size_exponent=exponent), fleet(1), seed=5)
        times = [process.fails_after_s(job, gpus // 8, gpus) for job in range(4000)]
        means.append(sum(times) / len(times))
    assert means[0] == math.inf, "one node fails as often as the node does"
    nodes_alone_per_h = 6.5 / 1000 * 128 / 24
    total_per_h = nodes_alone_per_h + 3600 / means[1]
    assert abs(1 / total_per_h - 7.9) < 0.4


def test_what_a_gang_has_run_counts() -> None:
    process = FailureProcess(FailureModel(per_1000_node_days=50.0, size_exponent=0.3), fleet(1), seed=6)
    before_s = process.fails_after_s(7, 16, 128)
    process.ran(7, 16, 128, before_s / 4, failed=False)
    assert process.fails_after_s(7, 16, 128) == pytest.approx(before_s * 3 / 4)
    process.ran(7, 16, 128, before_s * 3 / 4, failed=True)
    assert process.fails_after_s(7, 16, 128) != pytest.approx(before_s)


def test_the_same_seed_gives_the_same_failures_also_after_a_copy() -> None:
    spot = SpotShocks(per_h=0.1)
    model = FailureModel(per_1000_node_days=20.0, spot=spot)
    one, other = (FailureProcess(model, fleet(20, "spot"), seed=9) for _ in range(2))
    assert changes(one, 10 * DAY_S) == changes(other, 10 * DAY_S)
    copy: FailureProcess = pickle.loads(pickle.dumps(one))
    assert changes(one, 40 * DAY_S) == changes(copy, 40 * DAY_S)


def test_a_repaired_node_is_no_black_hole_any_more() -> None:
    process = FailureProcess(FailureModel(black_holes=(BlackHole("n1"),)), fleet(2), seed=0)
    assert list(process.black_holes) == [1]
    process.repair(1, 100.0)
    ((_, change),) = changes(process, 1e9)
    assert change == Change(1, "back")
    assert not process.black_holes


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (FailureModel(outages=(Outage("n0", 0, 1), Outage("x", 0, 1))), "failures.outages[1].node"),
        (FailureModel(black_holes=(BlackHole("x"),)), "failures.black_holes[0].node"),
        (FailureModel(spot=SpotShocks(1.0, level="aisle")), "failures.spot.level"),
        (FailureModel(spot=SpotShocks(1.0)), "failures.spot"),
    ],
)
def test_what_the_fleet_has_not_is_refused(model: FailureModel, field: str) -> None:
    with pytest.raises(InputError) as caught:
        check_failures(model, fleet(2))
    assert caught.value.field == field
