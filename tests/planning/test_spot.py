"""Gangs on spot: published tables, real traces, and a simulation of instances that are lost one by one and together."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.answers.plan_data.spot import read_ratio
from muster.errors import InputError
from muster.planning.checkpoints import best_interval_s, efficiency
from muster.planning.plans.spot import Spot
from muster.planning.question import derive
from muster.planning.shocks import Shocks, fitted
from muster.traces.spot import SpotTrace, figures_of, read_spot

# breaks an hour: work that lasts with (save, restart) of (30, 300), (120, 600), (300, 900) s
GOODPUT = {
    0.1: (0.95, 0.91, 0.86), 0.25: (0.92, 0.84, 0.76), 0.5: (0.87, 0.76, 0.65), 0.6: (0.86, 0.74, 0.62),
    1.0: (0.81, 0.65, 0.50),
}  # fmt: skip


@pytest.mark.parametrize("breaks", list(GOODPUT))
def test_the_published_table_of_goodput(breaks: float) -> None:
    for (save, restart), share in zip([(30, 300), (120, 600), (300, 900)], GOODPUT[breaks], strict=True):
        mttf = 3600 / breaks
        assert efficiency(best_interval_s(save, mttf), save, mttf, restart) == pytest.approx(share, abs=0.006)


# trace: instances, losses an hour of one, breaks of the gang an hour, too many by if lost alone
REAL = [
    ("availability_16-node_aws-08-27-2023_us-east-2b_v100_1.json", 16, 0.38, 0.60, (10, 11)),
    ("availability_16-node_aws-08-27-2023_us-west-2a_v100_1.json", 16, 0.54, 0.55, (15, 16.5)),
    ("preemption_4-node_aws-08-03-2023_us-east-1f_v100_1.json", 4, 0.46, 0.57, (3, 3.5)),
    ("preemption_4-node_aws-08-03-2023_us-east-2a_v100_1.json", 4, 0.06, 0.12, (1.9, 2.2)),
]


@pytest.mark.parametrize(("name", "nodes", "losses", "breaks", "over"), REAL)
def test_real_gangs_break_far_less_often_than_one_by_one(
    name: str, nodes: int, losses: float, breaks: float, over: tuple[float, float], shared_data: Callable[[str], Path]
) -> None:
    found = figures_of(read_spot(str(shared_data(f"spot/{name}"))))
    assert found.nodes == nodes
    assert found.losses == pytest.approx(losses, abs=0.005)
    assert found.breaks == pytest.approx(breaks, abs=0.005)
    assert over[0] < nodes * found.losses / found.breaks < over[1]
    fit = fitted(found.losses, found.together, found.breaks, nodes)
    assert fit.breaks(nodes) == pytest.approx(found.breaks, rel=0.01)
    assert fit.breaks(1) == pytest.approx(found.losses, rel=0.01)


def test_bamboo_is_read(shared_data: Callable[[str], Path]) -> None:
    found = figures_of(read_spot(str(shared_data("spot/bamboo_p3.csv"))))
    assert found.nodes == 32
    assert found.losses == pytest.approx(0.61, abs=0.01)


def simulated_breaks(shocks: Shocks, nodes: int, rng: random.Random) -> float:
    """Shock after shock, instance after instance: breaks an hour of a gang that is whole again at once."""
    clock, breaks = 0.0, 0
    for _ in range(40_000):
        clock += rng.expovariate(shocks.rate)
        if math.isinf(shocks.spread):
            chance = shocks.mean
        else:
            chance = rng.betavariate(shocks.mean * shocks.spread, (1 - shocks.mean) * shocks.spread)
        breaks += any(rng.random() < chance for _ in range(nodes))
    return breaks / clock


@pytest.mark.parametrize(("losses", "together", "seen"), [(0.4, 0.7, 0.6), (0.5, 0.3, 1.8), (0.2, 0.9, 0.25)])
def test_shocks_agree_with_a_simulation(losses: float, together: float, seen: float) -> None:
    shocks = fitted(losses, together, seen, 16)
    for nodes in (2, 4, 16):
        assert simulated_breaks(shocks, nodes, random.Random(nodes)) == pytest.approx(shocks.breaks(nodes), rel=0.05)


@given(st.floats(0.01, 2), st.floats(0, 1), st.floats(0.01, 40), st.integers(1, 64))
def test_breaks_lie_between_one_fate_and_independence(losses: float, together: float, seen: float, nodes: int) -> None:
    breaks = fitted(losses, together, seen, nodes).breaks(nodes)
    assert losses * (1 - 1e-3) <= breaks <= nodes * losses * (1 + 1e-3)


@pytest.mark.parametrize("together", [0.0, 1e-9, 2e-9, 1e-8, 1e-7, 1.01e-7, 3e-7, 1 - 2e-9])
def test_a_fit_where_hardly_anything_or_nearly_all_is_shared(together: float) -> None:
    for seen in (0.41, 3.0, 6.4):
        assert 0.4 * (1 - 1e-3) <= fitted(0.4, together, seen, 16).breaks(16) <= 6.4 * (1 + 1e-3)


def test_where_the_fit_fails_another_zone(shared_data: Callable[[str], Path]) -> None:
    """What is fitted in one zone is off by several times in another."""
    one, other = (
        figures_of(read_spot(str(shared_data(f"spot/preemption_4-node_aws-08-03-2023_{zone}_v100_1.json"))))
        for zone in ("us-east-1f", "us-east-2a")
    )
    assert fitted(one.losses, one.together, one.breaks, 4).breaks(4) > 4 * other.breaks


def restarted(work: float, mttf: float, restart: float, rng: random.Random) -> float:
    """Time of work that begins anew at each break."""
    clock = 0.0
    while True:
        gap = rng.expovariate(1 / mttf)
        if gap >= work:
            return clock + work
        clock += gap + restart


def test_work_without_checkpoints_by_simulation() -> None:
    rng, asked = random.Random(4), Spot()
    breaks = asked.work().results[1].value
    assert not isinstance(breaks, str)
    took = [restarted(3600, 3600 / breaks, 600, rng) for _ in range(20_000)]
    row = next(row for row in asked.work().tables[2].rows if row[0] == "no checkpoint, 1 h of work")
    assert float(str(row[1]).rstrip(" %")) / 100 == pytest.approx(3600 / (sum(took) / len(took)), rel=0.03)


def test_a_deadline_needs_on_demand_as_it_comes_nearer() -> None:
    parts: list[float] = []
    for days in (2.2, 3, 4, 8):
        found = {each.name: each.value for each in derive(Spot(deadline_s=days * 86400), sensitivity=False).results}
        parts.append(float(found["part of the time on on-demand, for the deadline"]))
    assert parts == sorted(parts, reverse=True)
    assert parts[-1] == 0
    late = derive(Spot(deadline_s=40 * 3600.0), sensitivity=False).results
    assert any(each.value == "cannot be met" for each in late)


def uniform_progress(
    asked: Spot, share: float, steady: float, gap_s: float, switch_s: float, rng: random.Random
) -> tuple[float, float]:
    """On-demand's part of the time, and the cost: minute by minute, spot comes and goes, the line is held."""
    up_s = gap_s * asked.available / (1 - asked.available)
    clock = done = on_demand = spot = lost = 0.0
    there, left, last = True, rng.expovariate(1 / up_s), ""
    while done < asked.work_s:
        behind = done < asked.work_s * clock / asked.deadline_s
        place = "spot" if there else "on-demand" if behind else ""
        if place and place != last:
            lost = switch_s
        last = place or last
        work = max(0.0, 60 - lost) if place else 0.0
        lost = max(0.0, lost - 60) if place else lost
        done += work * {"spot": share, "on-demand": steady, "": 0.0}[place]
        on_demand += 60 * (place == "on-demand")
        spot += 60 * (place == "spot")
        clock, left = clock + 60, left - 60
        if left <= 0:
            there = not there
            left = rng.expovariate(1 / (up_s if there else gap_s))
    return on_demand / asked.deadline_s, on_demand + asked.ratio * spot


def deadline(asked: Spot) -> tuple[float, float, float, float]:
    """Told: on-demand's part, cost of on-demand alone's, goodput on spot and on on-demand."""
    found = {each.name: each.value for each in derive(asked, sensitivity=False).results}
    share = float(found["work that lasts, of the time on spot"])
    price = float(found["price of a useful hour, of on-demand's"])
    return (
        float(found["part of the time on on-demand, for the deadline"]),
        float(found["cost of that, of on-demand alone"]), share, price / asked.ratio * share,
    )  # fmt: skip


def test_uniform_progress_by_simulation() -> None:
    """Gaps far shorter than the job: the parts and the cost are those that are told."""
    asked = Spot(work_s=1440 * 3600.0, deadline_s=2880 * 3600.0)
    part, cost, share, steady = deadline(asked)
    seen = uniform_progress(asked, share, steady, 1800, 0, random.Random(5))
    assert seen[0] == pytest.approx(part, abs=0.01)
    assert seen[1] / (asked.work_s / steady) == pytest.approx(cost, rel=0.03)


def test_where_uniform_progress_costs_more_switches_in_short_gaps() -> None:
    """A restart at each switch, and gaps hardly longer than it: far more on-demand than told."""
    asked = Spot(work_s=720 * 3600.0, deadline_s=1440 * 3600.0)
    part, _, share, steady = deadline(asked)
    assert uniform_progress(asked, share, steady, 1800, 600, random.Random(6))[0] > 1.3 * part


def test_a_far_deadline_costs_no_more_than_spot_alone() -> None:
    for days in (6.0, 8.0, 40.0):
        asked = Spot(deadline_s=days * 86400)
        part, cost, share, steady = deadline(asked)
        assert (part, cost) == (0, pytest.approx(asked.ratio / share * steady))


def test_where_spot_is_dearer_the_deadline_is_met_on_on_demand() -> None:
    asked = Spot(ratio=0.9)
    part, cost, _, steady = deadline(asked)
    assert (part, cost) == (pytest.approx(0.5 / steady), pytest.approx(1))
    assert "it is at 90 %, dearer" in derive(asked, sensitivity=False).answer


def test_prices_of_the_example() -> None:
    root = Path(__file__).resolve().parents[2]
    found = read_ratio(str(root / "examples/prices.yaml"), {"sku": "nebius-h100"})
    assert found.values["ratio"] == pytest.approx(1.25 / 2.95)
    with pytest.raises(InputError, match="no spot price"):
        read_ratio(str(root / "examples/prices.yaml"), {"sku": "aws-p5"})


@pytest.mark.parametrize(
    "text", ["", "{}", '{"metadata": {"gap_seconds": 0}, "data": [1, 0]}', "a,b,c\nx,add,n\n", "hello"]
)
def test_what_is_no_trace(text: str, tmp_path: Path) -> None:
    file = tmp_path / "it"
    file.write_text(text)
    with pytest.raises(InputError):
        figures_of(read_spot(str(file)), str(file))


def test_a_trace_by_hand() -> None:
    """4, 4, 1, 4 in steps of an hour: three lost of one gang, once; each lost instance shares it with two of three."""
    found = figures_of(SpotTrace(3600, (4, 4, 1, 4)))
    assert (found.nodes, found.full, found.breaks, found.whole_at_once) == (4, pytest.approx(2 / 3), 0.5, 0)
    assert found.losses == pytest.approx(3 / 9)
    assert found.together == pytest.approx((6 / 24) / (3 / 9))
