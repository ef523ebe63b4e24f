"""Pods on one node, on few, on many and on one each: Ray's PACK, SPREAD and their strict forms, against brute force."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.apart import one_each
from muster.engine.domains import TopologyIndex
from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.engine.topology import GangPlacement, Refused, place_gang
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.reasons import Reason
from muster.model.workload import PodShape, TopologyRequest
from muster.policy.registry import find_policy

STRICT_PACK = TopologyRequest(required="host")
PACK = TopologyRequest(preferred="host")
SPREAD = TopologyRequest(spread="host")
STRICT_SPREAD = TopologyRequest(spread="host", at_most=1)

Sets = list[tuple[PodShape, int]]


def fleet(text: str, levels: tuple[str, ...] = ()) -> Fleet:
    """``8 8 | 4``: the GPUs of each node; ``|`` begins the next rack; ``c`` is a node without GPUs."""
    nodes: list[Node] = []
    for rack, words in enumerate(text.split("|")):
        for word in words.split():
            devices = tuple(Device(at, "H100") for at in range(0 if word == "c" else int(word)))
            nodes.append(Node(f"n{len(nodes)}", 10_000, 100, devices, topology=(f"r{rack}",)[: len(levels)]))
    return Fleet(tuple(nodes), Topology(levels))


def place(on: Fleet, sets: Sets, request: TopologyRequest) -> GangPlacement | Refused:
    state = FleetState(on)
    entry = find_policy("best-fit")
    placer = Placer(state, entry.load_score(), None, entry.selection)
    pods = [(state.shape_id(shape), count) for shape, count in sets]
    result = place_gang(placer, TopologyIndex(state), pods, request)
    if isinstance(result, GangPlacement):
        state.validate(result.allocations)
    return result


def stands(on: Fleet, sets: Sets, request: TopologyRequest) -> str:
    """The nodes of the pods in order, or the refusal."""
    result = place(on, sets, request)
    if isinstance(result, Refused):
        return f"{result.reason.name}: {result.text()}"
    state = FleetState(on)
    return " ".join(state.node_names[pod.node] for pod in result.allocations)


GPU, TWO, CPU = PodShape(1000, 0, 1), PodShape(1000, 0, 2), PodShape(1000)


@pytest.mark.parametrize(
    ("nodes", "sets", "request_", "expected"),
    [
        ("8 4 8", [(GPU, 4)], STRICT_PACK, "n1 n1 n1 n1"),
        ("8 4 8", [(GPU, 9)], STRICT_PACK, "ONE_DOMAIN: 9 pods must stand in one host; of 3, n0 has most room, for 8"),
        ("4 8 2", [(GPU, 9)], PACK, "n1 n1 n1 n1 n1 n1 n1 n1 n2"),
        ("4 8 2", [(GPU, 3)], SPREAD, "n0 n1 n2"),
        ("4 8 2", [(GPU, 8)], SPREAD, "n0 n0 n0 n1 n1 n1 n2 n2"),
        ("4 8 2", [(GPU, 3)], STRICT_SPREAD, "n0 n1 n2"),
        ("8 8 4", [(GPU, 1)], STRICT_SPREAD, "n2"),  # the fullest, so that others stay whole
        ("4 8 2", [(GPU, 4)], STRICT_SPREAD,
         "APART: 4 pods are to stand with at most 1 on one host; there is room for 3"),
        ("4 8 2", [(GPU, 15)], STRICT_SPREAD, "CAPACITY: 15 pods are to fit at once; there is room for 14"),
        # the leader fits everywhere and takes the node that nobody else can use
        ("4 c 2", [(CPU, 1), (TWO, 2)], STRICT_SPREAD, "n1 n0 n2"),
        ("4 1 2", [(GPU, 1), (TWO, 2)], STRICT_SPREAD, "n1 n0 n2"),
        ("4 1 2", [(GPU, 2), (TWO, 2)], STRICT_SPREAD, "APART: 4 pods are to stand with at most 1 on one host; "
         "there is room for 4".partition(";")[0]),
    ],
)  # fmt: skip
def test_strategies(nodes: str, sets: Sets, request_: TopologyRequest, expected: str) -> None:
    assert stands(fleet(nodes), sets, request_) == expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (TopologyRequest("rack", spread="host", at_most=1), "n2 n3 n4"),
        (TopologyRequest(spread="rack", at_most=2), "n0 n0 n2"),
        (TopologyRequest(spread="rack", at_most=1), "APART: 3 pods are to stand with at most 1 on one rack; "
         "there is room for 2"),
        (TopologyRequest("host", segment=2, spread="rack", at_most=2), "n0 n0 n2"),
        (TopologyRequest(preferred="rack", spread="host", at_most=1), "n2 n3 n4"),
    ],
)  # fmt: skip
def test_with_racks(request_: TopologyRequest, expected: str) -> None:
    assert stands(fleet("2 2 | 2 2 2", ("rack",)), [(GPU, 3)], request_) == expected


@pytest.mark.parametrize(
    ("request_", "field", "text"),
    [
        (TopologyRequest(at_most=1), "topology.at_most", "a limit needs the level in whose domains it holds"),
        (TopologyRequest(spread="host", at_most=-1), "topology.at_most", "is negative"),
        (TopologyRequest("host", spread="host", at_most=1), "topology.spread", "cannot be spread over hosts"),
        (TopologyRequest("host", segment=4, spread="rack", at_most=3), "topology.at_most",
         "is 3, but a segment of 4 pods stands in one host, and so in one rack; 4 or more"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(request_: TopologyRequest, field: str, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        place(fleet("4", ("rack",)), [(GPU, 4)], request_)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "request_", [TopologyRequest(spread="rack", at_most=3), TopologyRequest("host", "", 1, "rack", 3)]
)
def test_a_node_without_a_rack_is_in_no_failure_domain(request_: TopologyRequest) -> None:
    nodes = tuple(Node(f"n{at}", 1000, 0, (Device(0, "H100"),), topology=(rack,)) for at, rack in enumerate(["", "r"]))
    assert stands(Fleet(nodes, Topology(("rack",))), [(GPU, 1)], request_) == "n1"
    assert stands(Fleet(nodes[:1], Topology(("rack",))), [(GPU, 1)], request_).startswith("APART")


def test_a_fleet_may_name_the_level_host_itself() -> None:
    nodes = tuple(Node(f"n{at}", 1000, 0, (Device(0, "H100"),), topology=(f"h{at // 2}",)) for at in range(4))
    assert stands(Fleet(nodes, Topology(("host",))), [(GPU, 2)], STRICT_SPREAD) == "n0 n2"


# -- against brute force ----------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_one_each_is_a_matching_and_misses_none(data: st.DataObject) -> None:
    shapes, domains = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 8))
    row = st.lists(st.booleans(), min_size=domains, max_size=domains)
    takes = np.array(data.draw(st.lists(row, min_size=shapes, max_size=shapes)), np.bool_).reshape(shapes, domains)
    counts = data.draw(st.lists(st.integers(0, 4), min_size=shapes, max_size=shapes))
    found = one_each(takes, counts)
    if found is not None:
        assert found.sum(axis=1).tolist() == counts
        assert (found.sum(axis=0) <= 1).all()
        assert not (found & ~takes).any()
        return
    # Hall: some shapes together have fewer domains than pods
    chosen = [each for size in range(1, shapes + 1) for each in combinations(range(shapes), size)]
    assert any(takes[list(each)].any(axis=0).sum() < sum(counts[at] for at in each) for each in chosen)


SHAPES = [PodShape(1000, 0, 4), TWO, GPU, PodShape(6000, 0, 1), CPU, PodShape(7000)]
small = st.lists(st.sampled_from(["c", "1", "2", "4"]), min_size=1, max_size=5).map(" ".join)
mixed = st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 3)), min_size=1, max_size=3)


def pods_of(sets: Sets) -> list[PodShape]:
    return [shape for shape, count in sets for _ in range(count)]


def fits(node: Node, pods: list[PodShape]) -> bool:
    gpus, cpu = sum(pod.gpus for pod in pods), sum(pod.cpu_milli for pod in pods)
    return gpus <= len(node.devices) and cpu <= node.cpu_milli


@settings(max_examples=200, deadline=None)
@given(small, mixed)
def test_strict_pack_is_exact(nodes: str, sets: Sets) -> None:
    on = fleet(nodes)
    result = place(on, sets, STRICT_PACK)
    if isinstance(result, GangPlacement):
        assert len({pod.node for pod in result.allocations}) == 1
    else:
        assert not any(fits(node, pods_of(sets)) for node in on)


@settings(max_examples=200, deadline=None)
@given(small, mixed)
def test_strict_spread_is_exact(nodes: str, sets: Sets) -> None:
    on = fleet(nodes)
    result = place(on, sets, STRICT_SPREAD)
    if isinstance(result, GangPlacement):
        assert max(Counter(pod.node for pod in result.allocations).values()) == 1
        return
    pods = pods_of(sets)
    choices = [[at for at, node in enumerate(on) if fits(node, [pod])] for pod in pods]
    if len(pods) <= len(on):
        assert not any(len(set(each)) == len(pods) for each in product(*choices))
    if result.reason is Reason.CAPACITY:
        assert isinstance(place(on, sets, TopologyRequest()), Refused)


@settings(max_examples=100, deadline=None)
@given(small, st.sampled_from(SHAPES), st.integers(1, 8), st.integers(1, 3))
def test_one_shape_packs_and_spreads_best(nodes: str, shape: PodShape, count: int, most: int) -> None:
    on = fleet(nodes)
    rooms = sorted(next(n - 1 for n in range(1, 20) if not fits(node, [shape] * n)) for node in on)[::-1]
    for request in (PACK, SPREAD, TopologyRequest(spread="host", at_most=most)):
        result = place(on, [(shape, count)], request)
        may = [min(room, most) for room in rooms] if request.at_most else rooms
        if isinstance(result, Refused):
            assert sum(may) < count
            continue
        assert sum(may) >= count
        used = sorted(Counter(pod.node for pod in result.allocations).values())[::-1]
        if request is PACK:
            assert len(used) == next(n for n in range(1, 9) if sum(rooms[:n]) >= count)
        else:
            assert len(used) == min(count, sum(room > 0 for room in rooms))
            assert used[0] == next(top for top in range(1, 9) if sum(min(room, top) for room in may) >= count)
