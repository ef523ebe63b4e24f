from __future__ import annotations

from collections.abc import Callable

import pytest

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.model.fleet import Device, Fleet, Node
from muster.model.workload import PodShape, ShapeMix
from muster.planning.tune import Tuning, knowledge_from, tune
from muster.policy.registry import find_policy
from muster.sim.inflate import typical_knowledge

GIB = 2**30


@pytest.fixture(scope="session")
def small_fleet() -> Fleet:
    """Eleven nodes of four kinds: 8, 4, 2 and no GPUs; one is cordoned, one has a broken GPU."""
    rows = [("a", 4, 8, 96, 512), ("b", 3, 4, 40, 300), ("c", 3, 2, 64, 200), ("d", 1, 0, 64, 256)]
    nodes: list[Node] = []
    for model, count, gpus, cpu, memory in rows:
        for at in range(count):
            devices = tuple(Device(index, model, healthy=(model, at, index) != ("a", 3, 2)) for index in range(gpus))
            nodes.append(Node(f"{model}{at}", cpu * 1000, memory * GIB, devices, schedulable=(model, at) != ("c", 2)))
    return Fleet(tuple(nodes))


@pytest.fixture(scope="session")
def small_mix() -> ShapeMix:
    """Fractions, whole GPUs, gangs of one node, CPU pods, and pods that only some models may run."""
    return ShapeMix(
        (
            PodShape(6000, 20 * GIB, 1, 500), PodShape(4000, 10 * GIB, 1, 300), PodShape(9000, 30 * GIB, 1, 810),
            PodShape(8000, 40 * GIB, 1), PodShape(16000, 64 * GIB, 2), PodShape(64000, 300 * GIB, 8),
            PodShape(30000, 100 * GIB, 4, gpu_models=("a", "b")), PodShape(8000, 16 * GIB),
            PodShape(12000, 8 * GIB, 1, 900, ("c",)),
        ),
        (30, 20, 15, 15, 6, 2, 4, 20, 5),
    )  # fmt: skip


@pytest.fixture(scope="session")
def placer_of(small_mix: ShapeMix) -> Callable[[str, FleetState], Placer]:
    """``placer_of(policy, state)``: a new placer that knows the small mix; what must be fitted is fitted once."""
    fitted: dict[Fleet, Tuning] = {}

    def make(name: str, state: FleetState) -> Placer:
        entry = find_policy(name)
        knowledge = typical_knowledge(state, small_mix) if entry.needs_typical else None
        if entry.needs_tuning:
            if state.fleet not in fitted:
                fitted[state.fleet] = tune(state.fleet, small_mix)
            knowledge = knowledge_from(fitted[state.fleet])
        return Placer(state, entry.load_score(), knowledge, entry.selection, seed=5)

    return make
