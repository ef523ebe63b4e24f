"""Cold starts: published sizes, the warm pool against a simulated one, bursts, and traces of real arrivals."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.answers.plan_data.coldstart import read_arrivals
from muster.errors import InputError
from muster.planning.plans.coldstart import Coldstart
from muster.planning.question import derive
from muster.planning.warm_pool import safe_utilisation, slots_by_price, slots_for_misses

# burst, cold start, wait: how full (published to three digits)
FULL = [(2.0, 300, 10, 0.517), (2.0, 45, 10, 0.611), (1.5, 300, 10, 0.689), (1.5, 45, 10, 0.815)]


@pytest.mark.parametrize(("burst", "cold", "wait", "full"), FULL)
def test_how_full_serving_may_be_run(burst: float, cold: float, wait: float, full: float) -> None:
    assert safe_utilisation(cold, wait, burst) == pytest.approx(full, abs=6e-4)


def test_how_full_by_a_fluid_that_is_followed_second_by_second() -> None:
    """Demand jumps b times; capacity follows after T. The wait just before it comes is the wait that was allowed."""
    burst, cold, wait = 1.5, 300, 10.0
    capacity = 1.0 / safe_utilisation(cold, wait, burst)
    queue = 0.0
    for _ in range(cold * 100):
        queue = max(0.0, queue + (burst - capacity) / 100)
    assert queue / capacity == pytest.approx(wait * 1.0, rel=0.03)


def misses(times: Iterator[float], slots: int, cold: float, count: int) -> float:
    """A pool refilled one for one: each claim takes a warm one, if there is one, and begins a refill."""
    refills: list[float] = []
    warm, missed = slots, 0
    for _ in range(count):
        now = next(times)
        while refills and refills[0] <= now:
            heapq.heappop(refills)
            warm += 1
        if warm:
            warm -= 1
            heapq.heappush(refills, now + cold)
        else:
            missed += 1  # a cold start of its own: the pool is not touched
    return missed / count


def random_times(rate: float, rng: random.Random) -> Iterator[float]:
    clock = 0.0
    while True:
        clock += rng.expovariate(rate)
        yield clock


def burst_times(rate: float, size: int, rng: random.Random) -> Iterator[float]:
    clock = 0.0
    while True:
        clock += rng.expovariate(rate / size)
        yield from [clock] * size


@pytest.mark.parametrize("load", [3.0, 15.0, 100.0])
def test_a_simulated_pool_misses_what_was_allowed(load: float) -> None:
    cold = 300.0
    slots = slots_for_misses(load, 0.01)
    seen = misses(random_times(load / cold, random.Random(3)), slots, cold, 60_000)
    assert seen <= 0.013
    assert misses(random_times(load / cold, random.Random(3)), slots - 2, cold, 60_000) > 0.01


def test_bursts_empty_a_pool_that_is_sized_for_random_claims() -> None:
    cold, load, size = 300.0, 15.0, 10
    plain, wide = slots_for_misses(load, 0.01), slots_for_misses(load, 0.01, dispersion=size)
    few = misses(burst_times(load / cold, size, random.Random(5)), plain, cold, 60_000)
    more = misses(burst_times(load / cold, size, random.Random(5)), wide, cold, 60_000)
    assert few > 0.1
    assert more < few / 4


@given(st.floats(0.1, 300), st.floats(0.01, 100), st.floats(0.01, 100))
def test_slots_by_price_are_where_one_more_pays_no_longer(load: float, miss: float, idle: float) -> None:
    assert slots_by_price(load, miss, idle) <= slots_by_price(load, 2 * miss, idle)
    assert slots_by_price(load, miss, 2 * idle) <= slots_by_price(load, miss, idle)


def cost(slots: int, refills: list[int], miss: float, idle: float) -> float:
    return sum(miss * max(0, each - slots) + idle * max(0, slots - each) for each in refills) / len(refills)


def test_no_other_number_of_slots_is_cheaper() -> None:
    rng, load = random.Random(2), 12.0
    refills = []
    for _ in range(20_000):  # a Poisson number, by counting
        clock, count = rng.expovariate(1.0), 0
        while clock < load:
            clock, count = clock + rng.expovariate(1.0), count + 1
        refills.append(count)
    best = slots_by_price(load, 5.0, 1.0)
    assert cost(best, refills, 5.0, 1.0) <= min(cost(best + step, refills, 5.0, 1.0) for step in (-2, -1, 1, 2)) * 1.005


def test_parts_of_published_starts() -> None:
    """15 GB at 1 GiB/s: 14 s (Run:ai streamer, gp3); the 70B FP8 chain without node and image: about 5 minutes."""
    read = derive(Coldstart(weight_bytes=15e9, link=2**30), sensitivity=False)
    assert next(each.value for each in read.steps if each.text == "weights") == pytest.approx(14.3, abs=0.5)
    chain = Coldstart(boot_s=0, image_bytes=0, unpacked_bytes=0, link=7e9, warmup_s=0, ready_s=0)
    assert chain.headline() == pytest.approx(60 + 10 + 15 + 70 + 60, rel=0.15)


def test_remedies_never_make_it_longer() -> None:
    asked = Coldstart(boot_s=0, compile_s=0, graphs_s=0, imports_s=1, link=50e9)
    rows = derive(asked, sensitivity=False).tables[0].rows
    assert all(not str(row[1]).startswith("-") for row in rows)


DATA = [
    ("azure_llm_2023_code.csv", 2.57, 60), ("azure_llm_2023_conv.csv", 5.53, 1),
    ("mooncake_conversation.jsonl", 3.4, 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "per_second", "least"), DATA)
def test_real_arrivals(name: str, per_second: float, least: float, shared_data: Callable[[str], Path]) -> None:
    found = read_arrivals(str(shared_data(f"serving/{name}")), {}).values
    assert found["claims"] / 3600 == pytest.approx(per_second, rel=0.05)
    assert found["dispersion"] >= 1
    if name.endswith("code.csv"):
        assert found["dispersion"] > least


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "time\n1\n2\n", '{"x": 1}\n{"y": 2}\n'])
def test_what_tells_no_arrivals(text: str, tmp_path: Path) -> None:
    file = tmp_path / "it"
    file.write_text(text)
    with pytest.raises(InputError):
        read_arrivals(str(file), {})


def test_a_chain_of_nothing_is_refused() -> None:
    nothing = Coldstart(
        boot_s=0, schedule_s=0, image_bytes=0, unpacked_bytes=0, container_s=0, imports_s=0, weight_bytes=0,
        compile_s=0, graphs_s=0, warmup_s=0, ready_s=0,
    )  # fmt: skip
    with pytest.raises(InputError, match="no time"):
        derive(nothing)
