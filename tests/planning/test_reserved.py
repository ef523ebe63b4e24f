"""Commitments: the newsvendor's golden values, the optimum by trying all, and years of demand drawn at random."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.answers.plan_data.hours import hours_of
from muster.answers.plan_data.reserved import read_terms
from muster.errors import InputError
from muster.planning.demand import (
    best_commitment,
    block_cost,
    hourly_cost,
    long_commitment,
    quantile,
    used_share,
)
from muster.planning.plans.reserved import Reserved, usual_week
from muster.planning.question import derive

HUNDRED = [float(at) for at in range(1, 101)]


def test_golden_quantiles() -> None:
    """40 % off: the 40th percentile of demand; 60 % off: the 60th."""
    assert best_commitment(HUNDRED, 0.6, 1.0) == 40
    assert best_commitment(HUNDRED, 0.4, 1.0) == 60
    assert best_commitment(HUNDRED, 1.0, 1.0) == 0


demands = st.lists(st.integers(0, 50).map(float), min_size=1, max_size=40).map(sorted)


@given(demands, st.floats(0.05, 0.95))
def test_no_other_commitment_costs_less(demand: list[float], price: float) -> None:
    best = best_commitment(demand, price, 1.0)
    cost = hourly_cost(demand, best, price, 1.0)
    assert all(cost <= hourly_cost(demand, float(other), price, 1.0) + 1e-9 for other in range(52))


@given(demands, st.floats(0, 1))
def test_a_quantile_is_what_it_says(demand: list[float], share: float) -> None:
    height = quantile(demand, share)
    assert sum(each <= height for each in demand) >= share * len(demand) - 1e-9 or not height


def waiting_costs(height: float, years: int, short: float, sigma: float, rng: random.Random) -> float:
    """What the slice at a height costs when it is bought year by year, demand moving as it likes."""
    total = 0.0
    runs = 4000
    for _ in range(runs):
        for year in range(years):
            factor = math.exp(rng.gauss(0, sigma * math.sqrt(year))) if year else 1.0
            total += min(short, used_share(HUNDRED, height / factor))
    return total / runs


def test_a_long_commitment_ends_where_waiting_costs_as_much() -> None:
    rng, years, long, short, sigma = random.Random(4), 3, 0.4, 0.6, 0.4
    height = long_commitment(HUNDRED, long, years, short, 1.0, 0.0, sigma)
    assert waiting_costs(height, years, short, sigma, rng) == pytest.approx(years * long, rel=0.03)


def test_without_uncertainty_it_is_the_quantile_of_its_own_price() -> None:
    assert long_commitment(HUNDRED, 0.4, 3, 0.9, 1.0, 0.0, 0.0) == pytest.approx(60, abs=1)


def test_uncertainty_lowers_it_and_growth_raises_it() -> None:
    sure, unsure = (long_commitment(HUNDRED, 0.45, 3, 0.6, 1.0, 0.0, sigma) for sigma in (0.0, 0.8))
    assert unsure < sure
    assert long_commitment(HUNDRED, 0.45, 3, 0.6, 1.0, 0.3, 0.2) > long_commitment(HUNDRED, 0.45, 3, 0.6, 1.0, 0.0, 0.2)


def test_where_the_form_fails_demand_that_falls_for_good() -> None:
    """The quantile of this year's demand is dear if demand halves: the regret table says by how much."""
    found = derive(Reserved(sigma=0.0, long=None), sensitivity=False)
    rows = {row[0]: row for row in found.tables[1].rows}
    assert float(rows["x 0.5"][1]) > 1.15 * float(rows["x 0.5"][2])
    assert rows["x 1"][1] == pytest.approx(rows["x 1"][2])


@given(st.lists(st.floats(0, 100), min_size=24, max_size=96).map(lambda some: [round(each) * 1.0 for each in some]))
def test_regret_is_never_negative(hours: list[float]) -> None:
    if not any(hours):
        return
    for row in derive(Reserved(demand=tuple(hours)), sensitivity=False).tables[1].rows:
        assert float(row[1]) >= float(row[2]) - 1e-9


def test_blocks_by_hand() -> None:
    """A day of 12 hours at 10 and 12 at 0: a block at half price breaks even, a cheaper one wins."""
    day = [10.0] * 12 + [0.0] * 12
    assert block_cost(day, 0.0, 0.25, 1.0, 1.0) == pytest.approx(2.5)
    assert block_cost(day, 0.0, 0.6, 1.0, 1.0) == pytest.approx(5.0)


@given(st.lists(st.integers(0, 9).map(float), min_size=24, max_size=24), st.floats(0.1, 0.9))
def test_no_block_costs_more_than_the_best(day: list[float], price: float) -> None:
    best = block_cost(day, 0.0, price, 1.0, 1.0)
    others = [price * size + sum(max(0.0, each - size) for each in day) / 24 for size in range(10)]
    assert best <= min(others) + 1e-9


def test_hours_of_jobs_are_counted_minute_by_minute(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [(rng.randrange(0, 36_000), rng.randrange(60, 20_000), rng.choice((1, 2, 8))) for _ in range(40)]
    file = tmp_path / "philly.csv"
    lines = "".join(
        f"2017-10-01 {s // 3600:02d}:{s % 3600 // 60:02d}:{s % 60:02d},{d},{g},{d * g / 3600},a\n" for s, d, g in rows
    )
    file.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + lines)
    hours, source = hours_of(str(file))
    assert "40 jobs" in source
    assert sum(hours) == pytest.approx(sum(d * g for _, d, g in rows) / 3600, rel=1e-3)


def test_a_table_of_hours(tmp_path: Path) -> None:
    file = tmp_path / "hours.csv"
    file.write_text("hour,gpus\n0,5\n1,7.5\n")
    assert hours_of(str(file))[0] == (5.0, 7.5)
    file.write_text("hour,gpus\n0,-5\n")
    with pytest.raises(InputError, match=":2:"):
        hours_of(str(file))


ROOT = Path(__file__).resolve().parents[2]


def test_the_example_of_prices() -> None:
    found = read_terms(str(ROOT / "examples/prices.yaml"), {"sku": "aws-p5"}).values
    assert found["short"] == pytest.approx(4.30 / 6.88)
    assert found["long"] == pytest.approx(3.03 / 6.88)
    assert (found["years"], found["price"]) == (3, 6.88)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prices: []", "no prices"),
        ("prices: 5", "Expected"),
        ("a: [", "YAML"),
        ("prices: [{sku: a, term: spot, per_gpu_hour: 1, as_of: 2026-01-01, source: x}]", "no on-demand price"),
        (
            "prices: [{sku: a, term: on-demand, per_gpu_hour: -1, as_of: 2026-01-01, source: x}]",
            "a price of one GPU-hour",
        ),
        ("prices: [{sku: a, term: on-demand, per_gpu_hour: 1, as_of: 2026-01-01, source: ''}]", "no source"),
    ],
)
def test_a_wrong_price_file(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=told):
        read_terms(str(file), {})


def test_an_offer_that_is_not_there_has_near_names() -> None:
    with pytest.raises(InputError, match="aws-p5"):
        read_terms(str(ROOT / "examples/prices.yaml"), {"sku": "aws-p6"})


def test_the_usual_week_has_nights() -> None:
    assert len(usual_week()) == 168
    assert min(usual_week()) == 300
