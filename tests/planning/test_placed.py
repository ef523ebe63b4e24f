"""Slow-downs on real fleets: how jobs are filled in, what the best placement is, and placements as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.parallelism import Parallelism
from muster.model.plan import PodPlacement
from muster.model.workload import PodSet, PodShape, Workload
from muster.planning.communication import Spot
from muster.planning.placed import Network, Placements, best_spots, spots_from, text_of, training_job

EXACT = Parallelism(8, parameters=70e9, layers=80, hidden=8192, achieved_tflops=400)
NETWORK = Network(inside_gb_per_s=367.0, outside_gb_per_s=36.5)


def fleet(nodes: int, gpus: int, model: str = "H200", rack: int = 2, domain: int = 0) -> Fleet:
    devices = tuple(Device(at, model) for at in range(gpus))
    levels = ("rack", "nvlink_domain") if domain else ("rack",)
    return Fleet(
        tuple(
            Node(f"n{at}", 1000, 1, devices, topology=(f"r{at // rack}", f"v{at // (domain or 1)}")[: len(levels)])
            for at in range(nodes)
        ),
        Topology(levels),
    )


def job(asked: Parallelism, pods: int, gpus: int) -> Workload:
    return Workload("a", (PodSet(PodShape(gpus=gpus), pods),), parallelism=asked)


def on(*places: tuple[int, int]) -> tuple[PodPlacement, ...]:
    """Pods as (node, GPUs)."""
    return tuple(PodPlacement(f"n{node}", tuple(range(gpus)), 1000) for node, gpus in places)


def test_golden_four_and_four_against_eight() -> None:
    """By hand, with 1.9 us a hop over NVLink and 4 us over the network, S = 134.2 MB:

    8:    14 x 1.9 us + 234.9 MB / 367 GB/s = 0.6666 ms; 320 of them 0.2133 s
    4+4:  6 x 1.9 us + 201.3 MB / 367 GB/s + 2 x 4 us + 33.55 MB / 36.5 GB/s = 1.4873 ms; 320 of them 0.4759 s
    step: 3 x 2 x 70e9 x 8192 / (8 x 400e12) = 1.0752 s of compute on both; 1.5511 s / 1.2885 s = 1.2038
    """
    told = Placements(fleet(4, 8), NETWORK).slowdown(job(EXACT, 2, 4), on((0, 4), (1, 4)))
    assert told is not None
    assert told.best.tensor_s == pytest.approx(0.2133, abs=5e-5)
    assert told.placed.tensor_s == pytest.approx(0.4759, abs=5e-5)
    assert told.placed.compute_s == pytest.approx(1.0752)
    assert told.factor == pytest.approx(1.2038, abs=5e-5)
    whole = Placements(fleet(4, 8), NETWORK).slowdown(job(EXACT, 2, 4), on((0, 4), (0, 4)))
    assert whole is not None
    assert whole.factor == 1.0


def test_trays_of_one_nvlink_domain_are_one() -> None:
    placements = Placements(fleet(8, 4, domain=2), NETWORK)
    together = placements.slowdown(job(EXACT, 2, 4), on((0, 4), (1, 4)))
    apart = placements.slowdown(job(EXACT, 2, 4), on((1, 4), (2, 4)))
    assert together is not None
    assert apart is not None
    assert (together.factor, round(apart.factor, 4)) == (1.0, 1.2038)
    assert text_of(placements.spots(on((0, 4), (1, 4)))) == "8"
    assert text_of(placements.spots(on((1, 4), (2, 4)))) == "4/4"


def test_what_is_left_out_is_filled_in() -> None:
    filled = training_job(Parallelism(8, 4, parameters=70e9), 64, "H100")
    assert (filled.layers, filled.hidden, filled.achieved_tflops, filled.data) == (71, 9088, 397, 2)
    assert (filled.microbatches, filled.passes) == (16, 3)
    assert training_job(Parallelism(parameters=70e9, layers=80), 8, "H100").hidden == 8539
    assert training_job(Parallelism(parameters=70e9, hidden=8192), 8, "H100").layers == 87
    with pytest.raises(InputError, match="what training reaches on T4 is not known") as caught:
        training_job(Parallelism(parameters=70e9), 8, "T4")
    assert caught.value.field == "achieved_tflops"
    with pytest.raises(InputError, match="no step time can be told"):
        training_job(Parallelism(8), 8, "H100")


def test_the_best_placement_cuts_no_group() -> None:
    """Tensor groups of 16 in NVLink domains of 72: four of them in each, not four and a half."""
    placed = training_job(Parallelism(16, parameters=70e9, achieved_tflops=800), 144, "GB200")
    best = best_spots(placed, 72, NETWORK.fabric("GB200"))
    assert text_of(best) == "64+64+16"
    small = training_job(Parallelism(16, parameters=70e9, achieved_tflops=800), 16, "H200")
    assert text_of(best_spots(small, 8, NETWORK.fabric("H200"))) == "8+8"


def test_a_fleet_for_which_nothing_can_be_told_is_refused() -> None:
    with pytest.raises(InputError, match="reaches on T4 is not known") as caught:
        Placements(fleet(1, 8, "T4")).check(job(Parallelism(8, parameters=1e9), 1, 8), "w.parallelism")
    assert caught.value.field == "w.parallelism.achieved_tflops"
    with pytest.raises(InputError, match="unknown GPU model 'GPU'"):
        Placements(fleet(1, 8, "GPU")).check(job(EXACT, 1, 8))
    Placements(fleet(1, 8, "GPU"), NETWORK).check(job(EXACT, 1, 8))
    with pytest.raises(InputError, match="unknown topology level 'shelf'; known: rack"):
        Placements(fleet(1, 8), Network(leaf="shelf"))
    assert Placements(fleet(1, 8)).slowdown(job(Parallelism(8), 1, 8), on((0, 8))) is None
    assert Placements(fleet(2, 8)).slowdown(job(EXACT, 1, 8), on((0, 4))) is None


def test_an_oversubscribed_spine_costs_what_crosses_it() -> None:
    asked = replace(EXACT, overlap=0.0)
    flat = Placements(fleet(4, 8), NETWORK)
    spine = Placements(fleet(4, 8), replace(NETWORK, oversubscription=4.0))
    inside, across = on((0, 8), (1, 8)), on((1, 8), (2, 8))
    factors = [each.slowdown(job(asked, 2, 8), pods) for each in (flat, spine) for pods in (inside, across)]
    assert [round(each.factor, 3) for each in factors if each][:3] == [1.0, 1.0, 1.0]
    assert factors[3] is not None
    assert factors[3].placed.data_s == pytest.approx(4 * factors[3].best.data_s, rel=0.001)


@pytest.mark.parametrize("text", ["8", "4+4", "4x8", "3x8+4", "8+8/8+8", "4x8/4x8", "7+1"])
def test_text_there_and_back(text: str) -> None:
    assert text_of(spots_from(text)) == text


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=3))
def test_any_placement_as_text(leaves: list[list[int]]) -> None:
    spots = [
        Spot(f"v{leaf}.{at}", f"l{leaf}")
        for leaf, sizes in enumerate(leaves)
        for at, size in enumerate(sizes)
        for _ in range(size)
    ]
    again = spots_from(text_of(spots))
    names: dict[Spot, Spot] = {}
    assert [names.setdefault(one, other) for one, other in zip(spots, again, strict=True)] == list(again)


@pytest.mark.parametrize("text", ["", "4y4", "4+", "0", "4x0", "x4", "-4", "4x4x4", "2000000", "8//8"])
def test_what_is_no_placement_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        spots_from(text)
