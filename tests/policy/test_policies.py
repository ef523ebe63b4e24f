"""Each policy on one example of two nodes: its scores worked by hand, and what it chooses.

Node a has 96 CPUs and 8 GPUs; half of GPU 0 (with 4 CPUs) and GPU 1 (with 8 CPUs) are taken: 84 CPUs and 6,500 milli
are free. Node b has 64 CPUs and 2 GPUs, all free. The pods are: part, 0.4 GPU and 6 CPUs; two, 2 GPUs and 16 CPUs; cpu,
8 CPUs. Typical are part and two, half of the pods each.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.model.fleet import Device, Fleet, Node
from muster.model.workload import PodShape, ShapeMix
from muster.planning.tune import knowledge_from, tune
from muster.policy.registry import POLICIES, SELECT_RANDOM, find_policy
from muster.sim.inflate import typical_knowledge

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30
PODS = {
    "part": PodShape(6000, 8 * GIB, 1, 400),
    "two": PodShape(16000, 16 * GIB, 2),
    "cpu": PodShape(8000, 8 * GIB),
}
MIX = ShapeMix((PODS["part"], PODS["two"]), (10, 10))

# Policy, pod: the scores of a and b.
SCORES = {
    ("random", "part"): (0, 0),
    ("random", "two"): (0, 0),
    ("random", "cpu"): (0, 0),
    # c/C p/C + g/G q/G with C = 128 CPUs, G = 8 GPUs.
    # a: 84/128 6/128 + 6.5/8 0.4/8 = 0.0714, b: 64/128 6/128 + 2/8 0.4/8 = 0.0359; 100 (1 - half of it) = 96.4, 98.2
    ("dot-product", "part"): (96, 98),
    # a: 84/128 16/128 + 6.5/8 2/8 = 0.2852, b: 64/128 16/128 + 2/8 2/8 = 0.125; 85.7, 93.75
    ("dot-product", "two"): (85, 93),
    # a: 84/128 8/128 = 0.0410, b: 64/128 8/128 = 0.0313; 97.9, 98.4
    ("dot-product", "cpu"): (97, 98),
    # a runs fractions and whole GPUs: 50; b nothing yet: 25. 25 (8 - 6.5) / 8 = 4.7 and 25 (8 - 2) / 8 = 18.75 on top.
    ("gpu-clustering", "part"): (54, 43),
    # a runs no pod of 2 GPUs, only others: 0; b nothing yet: 25.
    ("gpu-clustering", "two"): (4, 43),
    ("gpu-clustering", "cpu"): (0, 0),
    # a: GPU 0 is shared and has 500 left: 100 - 50 // 10; b is empty with 2 GPUs: max(33 - 2, 2).
    ("gpu-packing", "part"): (95, 31),
    # a is in use: max(50 - 2, 33).
    ("gpu-packing", "two"): (48, 31),
    ("gpu-packing", "cpu"): (0, 0),
    # Left on a: 78/128 + 6.1/8 = 1.3719, on b: 58/128 + 1.6/8 = 0.6531; 100 (1 - half of it) = 31.4, 67.3
    ("best-fit", "part"): (31, 67),
    # a: 68/128 + 4.5/8 = 1.0938, b: 48/128 + 0 = 0.375; 45.3, 81.25
    ("best-fit", "two"): (45, 81),
    # a: 76/128 + 6.5/8 = 1.4063, b: 56/128 + 2/8 = 0.6875; 29.7, 65.6
    ("best-fit", "cpu"): (29, 65),
    # Fragment of a before: part fits, no GPU is too full for it: 0; two fits, GPU 0 is too full: 500; mean 250.
    # part on GPU 0 leaves 100 milli to neither: mean 100, 150 less: 100 / (1 + exp(-0.15)) = 53.7; on GPU 2 (500 and
    # 600 are lost to two: mean 550) only 42.6. On b before: 0; after it two no longer fits: 1,600, mean 800:
    # 100 / (1 + exp(0.8)) = 31.0
    ("fgd", "part"): (53, 31),
    # a: 250 before and after. b: 0 before, nothing free after.
    ("fgd", "two"): (50, 50),
    ("fgd", "cpu"): (50, 50),
}

# Policy: where part goes (node, devices as a mask), and where two goes; None: anywhere.
CHOICES: dict[str, tuple[tuple[str, int] | None, ...]] = {
    "dot-product": (("b", 0b1), ("b", 0b11)),
    "gpu-clustering": (("a", 0b1), ("b", 0b11)),
    "gpu-packing": (("a", 0b1), ("a", 0b1100)),
    "best-fit": (("b", 0b1), ("b", 0b11)),
    "fgd": (("a", 0b1), ("a", 0b1100)),
    "default": (("a", 0b1), None),
}


def example() -> FleetState:
    sizes = [("a", 96, 8), ("b", 64, 2)]
    nodes = (
        Node(name, cpu * 1000, 512 * GIB, tuple(Device(index, "A") for index in range(gpus)))
        for name, cpu, gpus in sizes
    )
    state = FleetState(Fleet(tuple(nodes)))
    state.assign(Allocation(0, state.shape_id(PodShape(4000, 0, 1, 500)), 0b01))
    state.assign(Allocation(0, state.shape_id(PodShape(8000, 0, 1)), 0b10))
    return state


def placer(name: str, state: FleetState) -> Placer:
    entry = find_policy(name)
    knowledge = typical_knowledge(state, MIX) if entry.needs_typical else None
    if entry.needs_tuning:
        knowledge = knowledge_from(tune(state.fleet, MIX))
    return Placer(state, entry.load_score(), knowledge, entry.selection)


@pytest.mark.parametrize(("name", "pod"), SCORES, ids=map(" ".join, SCORES))
def test_scores(name: str, pod: str) -> None:
    state = example()
    shape = state.shape_id(PODS[pod])
    one = placer(name, state)
    assert tuple(one.scores(shape)) == SCORES[name, pod]


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name: str) -> None:
    state = example()
    one = placer(name, state)
    for pod, expected in zip(("part", "two"), CHOICES[name], strict=True):
        with state.trial():
            placed = one.place(state.shape_id(PODS[pod]))
            assert placed
            assert expected in (None, (state.node_names[placed.node], placed.devices))


def test_random_chooses_every_device() -> None:
    state, seen = example(), set()
    one = placer("random", state)
    shape = state.shape_id(PODS["part"])
    for _ in range(200):
        with state.trial():
            placed = one.place(shape)
            assert placed
            seen.add((placed.node, *placed.device_indexes))
    assert seen == {(0, 0), *((0, device) for device in range(2, 8)), (1, 0), (1, 1)}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_are_complete(name: str) -> None:
    """One file, its formula and source, a section in the docs, a scenario here."""
    entry = POLICIES[name]
    assert entry.module == f"muster.policy.{name.replace('-', '_')}"
    text = importlib.import_module(entry.module).__doc__ or ""
    assert text.startswith(f"{name}: ")
    assert "Source: " in text or "Muster's own" in text
    assert entry.selection == SELECT_RANDOM or re.search(r"^    .*\d", text, re.MULTILINE)
    page = (ROOT / "docs/reference/policies.md").read_text()
    assert re.search(rf"^## {name}$", page, re.MULTILINE)
    assert f"[{name}](#{name})" in page
    assert name in CHOICES or entry.selection == SELECT_RANDOM


def test_no_policy_file_is_left_out() -> None:
    files = {path.stem for path in (ROOT / "src/muster/policy").glob("*.py")}
    shared = {"__init__", "registry", "gpus", "fragmentation", "sharing"}
    assert files - shared == {entry.module.rpartition(".")[2] for entry in POLICIES.values()}
