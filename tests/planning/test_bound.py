"""The allocation bound: cases worked by hand, the figures of the public traces, and never below any placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.fleet import Device, Fleet, Node
from muster.model.workload import PodShape, ShapeMix, single_pod
from muster.planning.bound import allocation_bound
from muster.policy.registry import find_policy
from muster.sim.inflate import run_inflation
from muster.traces import read_fleet, read_workload

GIB = 2**30


def node(name: str, gpus: int, cpu: int = 96, model: str = "A", schedulable: bool = True, broken: int = 0) -> Node:
    devices = tuple(Device(index, model, healthy=index >= broken) for index in range(gpus))
    return Node(name, cpu * 1000, 512 * GIB, devices, schedulable=schedulable)


def fleet(*nodes: Node) -> Fleet:
    return Fleet(nodes)


def mix(*shapes: tuple[PodShape, int]) -> ShapeMix:
    return ShapeMix(tuple(shape for shape, _ in shapes), tuple(count for _, count in shapes))


def pod(gpus: int, milli: int = 1000, cpu: int = 1, memory: int = 1, models: tuple[str, ...] = ()) -> PodShape:
    return PodShape(cpu * 1000, memory * GIB, gpus, milli, models)


EIGHTS = fleet(*(node(f"n{number}", 8) for number in range(5)))
HALF_OTHER = fleet(node("a", 4, model="A"), node("b", 4, model="B"))

# Name; fleet; mix; arrived; bound in percent, and why.
BY_HAND = [
    ("whole nodes fill the fleet", EIGHTS, mix((pod(8), 1)), 1.0, 100),
    ("no more than what arrived", EIGHTS, mix((pod(8), 1)), 0.4, 40),
    ("one 600 fits a GPU, 400 stay free", EIGHTS, mix((pod(1, 600), 1)), 1.0, 60),
    # One GPU holds 600 + 400: as many of both fill it; as many of both arrive (200 of 8,000 milli a piece).
    ("600 and 400 fill a GPU together", EIGHTS, mix((pod(1, 600), 1), (pod(1, 400), 1)), 1.0, 100),
    # Per 5 pods 3 x 600 + 2 x 400 = 2,600 milli; 40 GPUs arrived are 46.2 of the 600 and 30.8 of the 400. 40 of the 600
    # with 30.8 of the 400 beside them are 24 + 12.3 = 36.3 GPUs; another GPU for two 400 would cost a 600.
    ("too many 600", EIGHTS, mix((pod(1, 600), 3), (pod(1, 400), 2)), 1.0, 100 * (24 + 0.4 * 2 * 40 / 2.6) / 40),
    # 96 CPUs on 8 GPUs: pods of 1 GPU and 24 CPUs use 4 GPUs of 8.
    ("CPU binds", EIGHTS, mix((pod(1, cpu=24), 1)), 1.0, 50),
    ("memory binds", EIGHTS, mix((pod(1, memory=256), 1)), 1.0, 25),
    ("a pod larger than any node", EIGHTS, mix((pod(1, cpu=97), 1)), 1.0, 0),
    ("more GPUs than any node has", EIGHTS, mix((pod(9), 1)), 1.0, 0),
    ("half of the pods are larger than any node", EIGHTS, mix((pod(1), 9), (pod(9), 1)), 1.0, 50),
    ("CPU pods only", EIGHTS, mix((pod(0), 1)), 1.0, 0),
    ("CPU pods may be refused", EIGHTS, mix((pod(0, cpu=96), 9), (pod(8), 1)), 1.0, 100),
    ("a model that nobody has", EIGHTS, mix((pod(1, models=("X",)), 1)), 1.0, 0),
    ("a model that half of the fleet has", HALF_OTHER, mix((pod(1, models=("A",)), 1)), 1.0, 50),
    ("cordoned GPUs count and take nothing", fleet(node("a", 4), node("b", 4, schedulable=False)), mix((pod(1), 1)),
     1.0, 50),
    ("broken GPUs do not count", fleet(node("a", 4, broken=2)), mix((pod(1), 1)), 1.0, 100),
    ("no GPUs", fleet(node("a", 0)), mix((pod(1), 1)), 1.0, 0),
    ("no nodes", fleet(), mix((pod(1), 1)), 1.0, 0),
    ("no pods", EIGHTS, mix(), 1.0, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "pods", "arrived", "percent"), [row[1:] for row in BY_HAND], ids=[r[0] for r in BY_HAND]
)
def test_by_hand(nodes: Fleet, pods: ShapeMix, arrived: float, percent: float) -> None:
    bound = allocation_bound(nodes, pods, arrived)
    assert bound.percent == pytest.approx(percent, abs=0.01)
    assert bound.converged


def test_counts_are_taken_as_they_are_without_arrived() -> None:
    bound = allocation_bound(EIGHTS, mix((pod(8), 3)))
    assert (bound.gpus, bound.arrived_percent, bound.percent) == (40, 60, pytest.approx(60))


@pytest.mark.parametrize(
    ("workload", "percent"),
    [
        ("default", 96.90),
        ("cpu250", 96.90),
        ("gpushare40", 95.65),
        ("gpushare100", 89.16),
        ("gpuspec33", 96.40),
        ("multigpu50", 98.34),
    ],
)
def test_public_traces(shared_data: Callable[[str], Path], workload: str, percent: float) -> None:
    nodes, _ = read_fleet(f"openb:{shared_data('openb/nodes.csv')}")
    pods = read_workload(f"openb:{shared_data(f'openb/pods_{workload}.csv')}").workloads
    assert allocation_bound(nodes, ShapeMix.of(pods), 1.0).percent == pytest.approx(percent, abs=0.02)


nodes = st.builds(
    node,
    name=st.just("n"),
    gpus=st.integers(0, 4),
    cpu=st.integers(0, 12),
    model=st.sampled_from("AB"),
    schedulable=st.sampled_from([True, True, True, False]),
    broken=st.integers(0, 1),
)
gpu_pods = st.builds(
    pod,
    gpus=st.integers(1, 4),
    milli=st.just(1000),
    cpu=st.integers(0, 6),
    memory=st.integers(0, 300),
    models=st.sampled_from([(), (), ("A",), ("A", "B")]),
)
fractions = st.builds(
    pod, gpus=st.just(1), milli=st.sampled_from([100, 300, 450, 600, 810, 999]), cpu=st.integers(0, 6)
)
cpu_pods = st.builds(pod, gpus=st.just(0), cpu=st.integers(0, 9))


@settings(max_examples=60, deadline=None)
@given(
    made=st.lists(nodes, min_size=1, max_size=5),
    shapes=st.lists(st.one_of(gpu_pods, fractions, fractions, cpu_pods), min_size=1, max_size=8),
    policy=st.sampled_from(["random", "best-fit", "gpu-packing", "fgd"]),
    seed=st.integers(0, 3),
)
def test_no_policy_places_more(made: list[Node], shapes: list[PodShape], policy: str, seed: int) -> None:
    made = [Node(f"n{at}", one.cpu_milli, one.memory_bytes, one.devices, schedulable=one.schedulable)
            for at, one in enumerate(made)]  # fmt: skip
    gpus = sum(one.healthy_gpus for one in made)
    if not gpus or not any(shape.gpus for shape in shapes):
        return
    work = tuple(single_pod(f"p{at}", shape) for at, shape in enumerate(shapes))
    _, data = run_inflation(fleet(*made), work, find_policy(policy), seed, 1.3)
    arrived = Counter(data.state.shape_list[shape] for shape in data.stream.tolist())
    bound = allocation_bound(fleet(*made), ShapeMix(tuple(arrived), tuple(arrived.values())))
    placed = data.allocated_percent[-1] if len(data.stream) else 0.0
    assert placed <= bound.percent + 1e-6
    assert bound.percent <= min(100.0, bound.arrived_percent)
