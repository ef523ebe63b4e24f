from __future__ import annotations

import pytest

from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.errors import CapacityError
from muster.model.fleet import Device, Fleet, Node
from muster.model.workload import PodShape
from muster.policy.registry import find_policy


def fleet_state() -> FleetState:
    return FleetState(Fleet(tuple(Node(f"n{i}", 8000, 8, (Device(0, "A"), Device(1, "A"))) for i in range(2))))


def test_trials_undo_unless_kept() -> None:
    state = fleet_state()
    pod = Allocation(0, state.shape_id(PodShape(1000, 1, 1)), 1)
    with state.trial():
        with state.trial() as inner:
            state.assign(pod)
            inner.keep()
        state.validate([pod])
    state.validate([])
    with state.trial() as outer:
        state.assign(pod)
        outer.keep()
    state.validate([pod])
    state.release(pod)
    state.validate([])


def test_over_commit_is_refused() -> None:
    state = fleet_state()
    pod = Allocation(0, state.shape_id(PodShape(1000, 1, 1)), 1)
    state.assign(pod)
    with pytest.raises(CapacityError):
        state.assign(pod)
    with pytest.raises(CapacityError):
        state.validate([])


def test_gang_is_all_or_nothing_and_verdict_sums() -> None:
    state = fleet_state()
    placer = Placer(state, find_policy("best-fit").load_score())
    small, large = state.shape_id(PodShape(1000, 1, 1)), state.shape_id(PodShape(1000, 1, 2))
    assert placer.place_gang([(small, 1), (large, 2)]) == ()
    state.validate([])
    placed = placer.place_gang([(small, 1), (large, 1)])
    state.validate(placed)
    verdict = placer.verdict(large)
    assert verdict.feasible + sum(one.nodes for one in verdict.refusals) == verdict.nodes == 2
