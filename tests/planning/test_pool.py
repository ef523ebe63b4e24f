"""One pool for serving and training: the slack by hand, by brute force, and where yesterday does not tell tomorrow."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.plan_data.pool import read_requests, read_serving
from muster.errors import InputError
from muster.planning.lending import growths, lend, slack_for
from muster.planning.plans.pool import Pool, usual_day
from muster.planning.question import derive

demands = st.lists(st.integers(0, 40).map(float), min_size=6, max_size=60)


def test_by_hand() -> None:
    """Demand 4, 4, 10, 10 with a reclaim of one step: growth is 0, 6, 0; a slack of 6 serves all."""
    demand = [4.0, 4.0, 10.0, 10.0]
    assert growths(demand, 1) == [0, 6, 0]
    assert slack_for(demand, 1, 0.0) == 6
    assert lend(demand, 1, 6.0, 0.0, 3600).short_share == 0
    without = lend(demand, 1, 0.0, 0.0, 3600)
    assert (without.short_share, without.short) == (pytest.approx(1 / 3), pytest.approx(2))
    assert without.held == pytest.approx((4 + 4 + 10) / 3)
    assert without.risen == pytest.approx(6 / 3)


@given(demands, st.integers(1, 5), st.floats(0, 0.4))
def test_the_slack_keeps_the_risk(demand: list[float], steps: int, risk: float) -> None:
    slack = slack_for(demand, steps, risk)
    assert lend(demand, steps, slack, 0.0, 60).short_share <= risk + 1e-9


def brute(demand: list[float], delay: int, slack: float, floor: float) -> tuple[float, int]:
    """GPU by GPU: serving asks each step for what it needs; what it asks for comes ``delay`` steps later."""
    orders = {at + delay: need + slack for at, need in enumerate(demand)}
    missing = lacking = 0.0
    for at in range(delay, len(demand)):
        has = max(floor, orders[at])
        if demand[at] > has:
            missing += demand[at] - has
            lacking += 1
    return missing / (len(demand) - delay), int(lacking)


@given(demands, st.integers(1, 5), st.floats(0, 20), st.floats(0, 20))
def test_what_is_short_agrees_with_brute_force(demand: list[float], steps: int, slack: float, floor: float) -> None:
    found = lend(demand, steps, slack, floor, 60)
    short, lacking = brute(demand, steps, slack, floor)
    assert found.short == pytest.approx(short, abs=1e-9)
    assert round(found.short_share * (len(demand) - steps)) == lacking


def test_a_slower_reclaim_gains_less() -> None:
    gains = [Pool(cold_s=cold).headline() for cold in (30, 600, 1800, 3600)]
    assert gains == sorted(gains, reverse=True)


def test_designs_add_up() -> None:
    rows = derive(Pool(), sensitivity=False).tables[0].rows
    alone, lent = rows[0], rows[1]
    assert float(alone[1]) + float(alone[2]) == pytest.approx(256)
    assert float(lent[2]) - float(alone[2]) == pytest.approx(Pool().headline())


def test_yesterday_does_not_tell_a_launch() -> None:
    """The slack of quiet days is far too small for a day with a launch: the page says that it would be."""
    rng = random.Random(1)
    quiet = [50 + 10 * math.sin(at / 46) + rng.uniform(-1, 1) for at in range(2000)]
    slack = slack_for(quiet, 1, 0.005)
    launch = [*quiet[:200], *(80 + 20 * rng.random() for _ in range(20)), *quiet[200:300]]
    assert lend(launch, 1, slack, 0.0, 300).short_share > 0.02


def test_the_usual_day_is_what_it_says() -> None:
    day = usual_day()
    assert len(day) == 288
    assert min(day) < max(day) / 2


def test_real_requests(shared_data: Callable[[str], Path]) -> None:
    """Azure's code trace: its worst minute has 4.2 times the mean. Lending costs more than it gives."""
    log = str(shared_data("serving/azure_llm_2023_code.csv"))
    found = read_requests(log, {"per_gpu": "0.2/s", "step_s": "60s"}).values
    demand = found["demand"]
    assert max(demand) / (sum(demand) / len(demand)) > 3
    asked = Pool(gpus=200, demand=demand, step_s=60.0, floor=0, risk=0.05)
    assert "Do not lend" in derive(asked, sensitivity=False).answer
    assert replace(asked, restart_s=0.0).headline() > 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Pool(gpus=8), "peak"),
        (Pool(demand=()), "no demand"),
        (Pool(demand=(1.0, 2.0), cold_s=3600), "shorter than the reclaim"),
    ],
)
def test_what_cannot_be_is_told(asked: Pool, told: str) -> None:
    with pytest.raises(InputError, match=told):
        derive(asked)


def test_a_table_of_steps(tmp_path: Path) -> None:
    file = tmp_path / "serving.csv"
    file.write_text("gpus\n" + "\n".join(str(10 + at % 5) for at in range(50)) + "\n")
    found = read_serving(str(file), {"step_s": "5m"})
    assert found.values["step_s"] == 300
    assert len(found.values["demand"]) == 50
    with pytest.raises(InputError, match="per-gpu"):
        read_requests(str(file), {})


def test_a_floor_above_the_peak_is_blamed_and_not_the_reclaim() -> None:
    found = derive(Pool(demand=(2.0, 5.0) * 20, floor=16.0), sensitivity=False)
    assert "16 GPUs" in found.answer
    assert found.todo == ("Lower --floor: the least that serving needs is 2 GPUs.",)


def test_a_log_of_a_small_service_is_not_held_to_the_floor_of_the_example(tmp_path: Path) -> None:
    log = tmp_path / "serving.csv"
    log.write_text("gpus\n" + "2\n5\n3\n" * 30)
    values = read_serving(str(log), {"step_s": "5m"}).values
    assert values["floor"] == 2
