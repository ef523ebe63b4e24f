"""Kernels are compiled or loaded before a run is timed: the one place that does it, for simulations and replays."""

from __future__ import annotations

from functools import cache

import numpy as np

from muster.engine.kernels import gang
from muster.engine.placement import Placer, empty_knowledge
from muster.engine.state import FleetState
from muster.model.fleet import Device, Fleet, Node
from muster.model.workload import PodShape
from muster.policy.registry import find_policy


@cache
def warm_up(policy: str, *, replay: bool = False) -> None:
    """Have all kernels of runs under a policy ready in this process; a second call does nothing.

    They are called for no pods, or for one that the only node refuses, so that no score is asked for: that would need
    fitted knowledge.
    """
    entry = find_policy(policy)
    scores = entry.load_score()
    if entry.needs_tuning:
        find_policy("fgd").load_score()  # what is fitted may turn out to be fgd
    state = FleetState(Fleet((Node("warm", 1000, 2**30, (Device(0, "T4"),)),)))
    shape = state.shape_id(PodShape(gpus=2))
    placer = Placer(state, scores, None, entry.selection)
    if not replay:
        placer.place_stream(np.zeros(0, np.int64), empty_knowledge())
        return
    from muster.sim.replay import place_gang, release_pods

    out = np.zeros((3, 0), np.int64)
    place_gang(np.zeros((2, 0), np.int64), placer.scene(), out)
    release_pods(out, state.nodes, state.shapes)
    gang.count_room(shape, 0, state.nodes, state.shapes)
    placer.place_pods(shape, 0)
    placer.verdict(shape)
