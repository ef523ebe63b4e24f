"""Waves of a roll-out: canaries against trying, drains against a simulation, and where the mean misleads."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.planning.plans.rollout import Rollout
from muster.planning.question import derive
from muster.planning.waves import canaries, harmonic, last_end_s, seen_by_then


def test_the_rule_of_three() -> None:
    """With 95 % confidence, n nodes without a fault say that fewer than 3/n have it."""
    assert canaries(0.01, 0.95) == 299
    assert canaries(0.1, 0.95) == 29
    assert canaries(0.5, 0.95) == 5


@given(st.floats(0.001, 0.9), st.floats(0.5, 0.999))
def test_canaries_are_enough_and_not_one_too_many(fault: float, confidence: float) -> None:
    count = canaries(fault, confidence)
    assert seen_by_then(fault, count) >= confidence - 1e-9
    assert count == 1 or seen_by_then(fault, count - 1) < confidence + 1e-9


def test_canaries_by_trying() -> None:
    rng = random.Random(5)
    count = canaries(0.1, 0.9)
    seen = sum(any(rng.random() < 0.1 for _ in range(count)) for _ in range(20_000)) / 20_000
    assert seen == pytest.approx(seen_by_then(0.1, count), abs=0.01)


@pytest.mark.parametrize("gangs", [1, 2, 7, 40])
def test_the_last_gang_of_a_wave_by_simulation(gangs: int) -> None:
    rng, runs = random.Random(gangs), 20_000
    ends = [max(rng.expovariate(1 / 3600) for _ in range(gangs)) for _ in range(runs)]
    assert sum(ends) / runs == pytest.approx(last_end_s(gangs, 3600), rel=0.03)


def test_a_heavy_tail_breaks_the_mean() -> None:
    """The same mean, most of it in few long gangs: the wave waits far longer than told."""
    rng, mean, gangs = random.Random(1), 3600.0, 20
    sigma = 2.0
    shift = math.log(mean) - sigma**2 / 2
    ends = [max(rng.lognormvariate(shift, sigma) for _ in range(gangs)) for _ in range(5000)]
    assert sum(ends) / 5000 > 2 * last_end_s(gangs, mean)


@given(st.floats(0.1, 3000))
def test_harmonic_numbers(count: float) -> None:
    low, high = math.floor(count), math.ceil(count)
    assert sum(1 / each for each in range(1, low + 1)) <= harmonic(count) + 1e-9
    assert harmonic(count) <= sum(1 / each for each in range(1, high + 1)) + 1e-9


def simulated_s(nodes: int, wave: int, gang: int, mean_s: float, change_s: float, rng: random.Random) -> float:
    """Waves one after the other; each waits for its gangs to end."""
    clock = 0.0
    for start in range(0, nodes, wave):
        size = min(wave, nodes - start)
        clock += max(rng.expovariate(1 / mean_s) for _ in range(max(1, size // gang))) + change_s
    return clock


def test_the_whole_roll_out_by_simulation() -> None:
    rng = random.Random(11)
    asked = Rollout(nodes=220, floor=0.9, fault=0.5, gang_nodes=2, remaining_s=7200, change_s=600, soak_s=0)
    first, wave = 5, 22
    told = asked.headline()
    runs = [
        simulated_s(first, first, 2, 7200, 600, rng) + simulated_s(220 - first, wave, 2, 7200, 600, rng)
        for _ in range(4000)
    ]
    assert sum(runs) / len(runs) == pytest.approx(told, rel=0.05)


def test_stopping_at_checkpoints_ends_sooner_and_costs_what_it_says() -> None:
    wait, stop = Rollout(), Rollout(drain="checkpoint")
    assert stop.headline() < wait.headline() / 2
    found = {each.name: each.value for each in derive(stop, sensitivity=False).results}
    assert found["GPU-hours lost"] == pytest.approx(250 * 8 * (600 + 1800 + 300) / 3600)


def test_images_that_break_are_named() -> None:
    asked = Rollout(to="570.26", image=("old:cuda=12.4", "new:cuda=13.2,gpus=64", "fwd:cuda=13.0,compat"))
    found = derive(asked, sensitivity=False)
    assert "1 of 3 images would not run" in found.answer
    assert {row[0]: row[3] for row in found.tables[1].rows} == {
        "old": "runs", "new": "BREAKS", "fwd": "runs (compat)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Rollout(nodes=4, floor=0.9), "lets no node of 4 go"),
        (Rollout(parallel=100), "more than the floor allows"),
        (Rollout(to="five"), "no driver version"),
        (Rollout(to="580", image=("x",)), "not understood"),
        (Rollout(to="580", image=("x:cuda=banana",)), "no CUDA version"),
    ],
)
def test_what_cannot_be_is_told(asked: Rollout, told: str) -> None:
    with pytest.raises(InputError, match=told):
        derive(asked)
