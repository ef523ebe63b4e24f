"""How often to save: golden values, the optimum by search, and a simulation that knows nothing of the forms."""

from __future__ import annotations

import random

import pytest
import scipy.special  # noqa: F401  (its first import takes longer than a test may)
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.planning.checkpoints import (
    background_efficiency,
    background_interval_s,
    best_interval_s,
    daly_s,
    efficiency,
    young_s,
)
from muster.planning.plans.checkpoint import Checkpoint
from muster.planning.question import derive

# mean between failures (h), save (s): Young, Daly (s), efficiency at Daly's with 300 s of restart
GOLDEN = [
    (1.8, 300, 1972, 1777, 0.693),
    (1.8, 60, 882, 842, 0.831),
    (3.09, 60, 1155, 1116, 0.876),
    (7.9, 300, 4131, 3933, 0.853),
    (0.23, 60, 315, 276, 0.464),
]


@pytest.mark.parametrize(("hours", "save", "young", "daly", "share"), GOLDEN)
def test_golden_values(hours: float, save: float, young: float, daly: float, share: float) -> None:
    mttf = 3600 * hours
    assert young_s(save, mttf) == pytest.approx(young, abs=0.6)
    assert daly_s(save, mttf) == pytest.approx(daly, abs=0.6)
    assert efficiency(daly_s(save, mttf), save, mttf, 300) == pytest.approx(share, abs=6e-4)


@given(st.floats(1, 600), st.floats(600, 1e6))
def test_the_exact_interval_is_the_best_of_all(save: float, mttf: float) -> None:
    best = best_interval_s(save, mttf)
    at_best = efficiency(best, save, mttf, 0)
    assert all(efficiency(best * factor, save, mttf, 0) <= at_best + 1e-12 for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2))


@given(st.floats(0.1, 60), st.floats(60, 600), st.floats(3600, 1e6))
def test_so_is_the_one_of_saving_in_the_background(stall: float, save: float, mttf: float) -> None:
    best = background_interval_s(stall, save, mttf)
    at_best = background_efficiency(best, stall, save, mttf, 0)
    others = [best * factor for factor in (0.7, 0.99, 1.01, 1.5) if best * factor >= save - stall]
    assert all(background_efficiency(each, stall, save, mttf, 0) <= at_best + 1e-12 for each in others)


def run(interval: float, save: float, mttf: float, restart: float, rng: random.Random, work: float) -> float:
    """Share of the time that lasts: work is done in pieces, each lost if a failure comes before it is saved."""
    done = clock = 0.0
    fails = rng.expovariate(1 / mttf)
    while done < work:
        if clock + interval + save <= fails:
            clock += interval + save
            done += interval
            continue
        clock = fails
        while True:  # a failure while it restarts begins the restart anew
            again = rng.expovariate(1 / mttf)
            if again > restart:
                fails = clock + again
                clock += restart
                break
            clock += again
    return done / clock


@pytest.mark.parametrize(("hours", "save"), [(1.8, 300), (3.09, 60), (0.23, 60)])
def test_a_simulation_agrees(hours: float, save: float) -> None:
    rng, mttf = random.Random(7), 3600 * hours
    interval = best_interval_s(save, mttf)
    seen = run(interval, save, mttf, 300, rng, 4000 * mttf)
    assert seen == pytest.approx(efficiency(interval, save, mttf, 300), abs=0.01)


def test_failures_in_bursts_break_the_form() -> None:
    """Half of all failures follow another within minutes: the same mean, and the form tells too little."""
    rng, mttf, save, restart = random.Random(3), 3.09 * 3600, 60.0, 300.0
    interval = best_interval_s(save, mttf)
    done = clock = 0.0
    burst = False
    while clock < 3000 * mttf:
        burst = not burst
        gap = rng.expovariate(1 / 600) if burst else rng.expovariate(1 / (2 * mttf - 600))
        pieces = max(0, int((gap - restart) // (interval + save)))
        done += pieces * interval
        clock += gap
    assert done / clock > efficiency(interval, save, mttf, restart) + 0.01


def test_llama_3_and_meta_are_told_again() -> None:
    """2,048 nodes at 3.79 fail every 3.09 h; 128 nodes at 6.5 every 28.8 h, where Meta saw 7.9 h: 3.6 times worse."""
    llama = derive(Checkpoint(nodes=2048, rate=3.79), sensitivity=False)
    assert llama.steps[0].value / 3600 == pytest.approx(3.09, abs=0.01)
    alone = derive(Checkpoint(nodes=128, rate=6.5), sensitivity=False).steps[0].value / 3600
    assert alone == pytest.approx(28.8, abs=0.1)
    assert derive(Checkpoint(nodes=128, rate=6.5, worse=alone / 7.9)).steps[0].value / 3600 == pytest.approx(7.9)


def test_llama_3_trained_for_more_than_nine_tenths_of_the_time() -> None:
    """Published: more than 90 % effective training time at 3.09 h; here saved in the background, 3 min to restart."""
    found = derive(Checkpoint(mttf_s=3.09 * 3600, save_s=60, stall_s=5, restart_s=180), sensitivity=False)
    assert found.results[1].value == pytest.approx(0.94, abs=0.02)


def test_what_is_measured_stands_before_what_is_computed() -> None:
    found = derive(Checkpoint(mttf_s=3600, save_s=60), sensitivity=False)
    assert found.steps[0].text == "Young's interval"
    origins = {each.symbol: each.origin for each in found.inputs}
    assert (origins["M"], origins["C"], origins["R"]) == ("given", "given", "default")


def test_a_stall_longer_than_the_save_is_refused() -> None:
    with pytest.raises(InputError, match="a save takes 1 min"):
        derive(Checkpoint(save_s=60, stall_s=61))


def test_todays_interval_is_compared() -> None:
    found = derive(Checkpoint(mttf_s=7200, save_s=60, interval_s=7200), sensitivity=False)
    best, now = found.results[1].value, found.results[-1].value
    assert isinstance(best, float)
    assert isinstance(now, float)
    assert now < best - 0.25


def test_a_forgotten_unit_is_doubted() -> None:
    assert "plain number is seconds" in derive(Checkpoint(mttf_s=7.9), sensitivity=False).answer
    assert "plain number is seconds" not in derive(Checkpoint(mttf_s=7.9 * 3600), sensitivity=False).answer
