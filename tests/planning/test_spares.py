"""Spares from failure rates: golden values, limits, and the simulator as a witness."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InputError
from muster.model.fleet import Fleet, Node
from muster.planning.spares import spares_by_availability, spares_by_poisson, spares_needed
from muster.sim.failures import DAY_S, FailureModel, FailureProcess

POISSON = [
    (128, 6.5, 3, (5, 7, 9)),
    (128, 6.5, 14, (18, 20, 24)),
    (1250, 6.5, 3, (33, 37, 41)),
    (2048, 6.5, 3, (51, 55, 61)),
    (2048, 3.79, 3, (31, 35, 40)),
    (1000, 2.34, 7, (23, 26, 30)),
]


@pytest.mark.parametrize(("nodes", "rate", "days", "spares"), POISSON)
def test_the_common_rule(nodes: int, rate: float, days: float, spares: tuple[int, int, int]) -> None:
    mean = nodes * rate / 1000 * days
    assert tuple(spares_by_poisson(mean, target) for target in (0.95, 0.99, 0.999)) == spares
    need = spares_needed(nodes, rate / 1000, days, 0.99)
    assert need.by_poisson == spares[1]
    assert need.spares == pytest.approx(need.by_poisson, abs=1)


AVAILABILITY = [(0.995, 128, 3), (0.995, 1250, 13), (0.99, 128, 5), (0.99, 1250, 22), (0.98, 128, 7), (0.98, 1250, 38)]


@pytest.mark.parametrize(("availability", "nodes", "spares"), AVAILABILITY)
def test_by_availability(availability: float, nodes: int, spares: int) -> None:
    assert spares_by_availability(nodes, availability, 0.99) == spares


@settings(max_examples=100, deadline=None)
@given(nodes=st.integers(0, 3000), load=st.floats(0, 0.5), target=st.floats(0.5, 0.9999))
def test_it_is_the_least_that_meets_the_target(nodes: int, load: float, target: float) -> None:
    need = spares_needed(nodes, load, 1.0, target)
    assert need.step(need.spares).covered >= target
    assert need.spares == 0 or need.step(need.spares - 1).covered < target
    steps = [need.step(spares) for spares in range(max(0, need.spares - 3), need.spares + 3)]
    for one, more in itertools.pairwise(steps):
        assert more.covered >= one.covered - 1e-9
        assert more.short_nodes <= one.short_nodes + 1e-9
    assert need.step(0).short_nodes == pytest.approx(need.mean_away, abs=1e-6)


def test_by_hand() -> None:
    """Two nodes, each away for a fifth of the time: 0.64 both up; with a spare, at most one of three away: 0.896."""
    need = spares_needed(2, 0.25, 1.0, 0.8)
    assert (need.away, need.spares) == (pytest.approx(0.2), 1)
    assert need.step(0).covered == pytest.approx(0.64)
    assert need.step(1).covered == pytest.approx(0.512 + 3 * 0.2 * 0.64)
    assert need.step(1).short_nodes == pytest.approx(3 * 0.04 * 0.8 * 1 + 0.008 * 2)


def test_large_fleets_do_not_run_out_of_digits() -> None:
    need = spares_needed(100_000, 0.0065, 14.0, 0.99)
    mean = 100_000 * need.away
    assert need.spares == pytest.approx(mean / (1 - need.away) + 2.33 * math.sqrt(mean), rel=0.01), "a normal number"
    assert spares_by_poisson(9100.0, 0.5) == pytest.approx(9100, abs=1)


@pytest.mark.parametrize("spares", [0, 4, 8, 12])
def test_the_simulator_agrees(spares: int) -> None:
    """Of 60 nodes and their spares, how long are more away than there are spares?"""
    rate, repair_days, days = 50.0, 3.0, 6000.0
    fleet = Fleet(tuple(Node(f"n{number}", 1000, 1 << 30) for number in range(60 + spares)))
    model = FailureModel(per_1000_node_days=rate, detect_s=0.0, repair_s=repair_days * DAY_S)
    process = FailureProcess(model, fleet, seed=7)
    away, since_s, whole_s, short_s = 0, 0.0, 0.0, 0.0
    while process.next_s < days * DAY_S:
        now_s = process.next_s
        whole_s += (now_s - since_s) * (away <= spares)
        short_s += (now_s - since_s) * max(0, away - spares)
        since_s = now_s
        for change in process.advance(now_s):
            away += {"seen": 1, "back": -1, "fails": 0}[change.what]
    step = spares_needed(60, rate / 1000, repair_days, 0.99).step(spares)
    assert whole_s / since_s == pytest.approx(step.covered, abs=0.02)
    assert short_s / since_s == pytest.approx(step.short_nodes, rel=0.05, abs=0.05)


@pytest.mark.parametrize(
    ("given_", "field"),
    [((-1, 0.1, 1, 0.9), "nodes"), ((1, math.nan, 1, 0.9), "per_node_day"), ((1, 0.1, math.inf, 0.9), "repair_days"),
     ((1, 0.1, 1, 1.0), "target"), ((1, 0.1, 1, 0.0), "target")],
)  # fmt: skip
def test_numbers_out_of_their_range(given_: tuple[int, float, float, float], field: str) -> None:
    with pytest.raises(InputError, match=f"field '{field}'"):
        spares_needed(*given_)
