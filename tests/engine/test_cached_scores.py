"""A placer keeps scores and refreshes what changed: it chooses as one that has just looked at everything."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.model.fleet import Fleet
from muster.model.workload import ShapeMix
from muster.policy.registry import POLICIES, SELECT_RANDOM


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_choice_is_that_of_a_new_placer(
    name: str, seed: int, small_fleet: Fleet, small_mix: ShapeMix, placer_of: Callable[[str, FleetState], Placer]
) -> None:
    rng = np.random.default_rng(seed)
    state = FleetState(small_fleet, rng.permutation(len(small_fleet)).tolist())
    kept = placer_of(name, state)
    shapes = [state.shape_id(shape) for shape in small_mix.shapes]
    running: list[Allocation] = []
    for _ in range(100):
        action = rng.random()
        if action < 0.25 and running:
            state.release(running.pop(int(rng.integers(len(running)))))
        elif action < 0.45:  # many nodes change and change back
            with state.trial():
                kept.place_pods(shapes[int(rng.integers(len(shapes)))], 3)
        shape = shapes[int(rng.integers(len(shapes)))]
        fresh = placer_of(name, state)
        assert kept.verdict(shape) == fresh.verdict(shape)
        if POLICIES[name].selection == SELECT_RANDOM:
            placed = kept.place(shape)
        else:
            with state.trial():
                expected = fresh.place(shape)
            placed = kept.place(shape)
            assert placed == expected
        if placed:
            running.append(placed)
        state.validate(running)
    assert len(running) > 20


@pytest.mark.parametrize("name", [name for name in POLICIES if POLICIES[name].selection == SELECT_RANDOM])
def test_random_choices_are_those_of_the_seed_and_feasible(
    name: str, small_fleet: Fleet, small_mix: ShapeMix, placer_of: Callable[[str, FleetState], Placer]
) -> None:
    runs = []
    for _ in range(2):
        state = FleetState(small_fleet)
        placer = placer_of(name, state)
        runs.append([placer.place(state.shape_id(shape)) for shape in small_mix.shapes * 4])
        state.validate([one for one in runs[-1] if one])
    assert runs[0] == runs[1]
    assert len({one.node for one in runs[0] if one}) > 5
