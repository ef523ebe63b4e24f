"""Pods whose ranks belong together stand together: tensor parallel groups always, replicas where they can."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.grains import nvlink_depth
from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.engine.topology import GangPlacement, Refused, TopologyIndex, place_gang
from muster.engine.whole import place_in_fullest
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.parallelism import RankGroups
from muster.model.reasons import Reason
from muster.model.workload import PodShape, TopologyRequest
from muster.policy.registry import find_policy

Scene = tuple[FleetState, TopologyIndex, Placer]


def scene(text: str, levels: tuple[str, ...], gpus: int = 4) -> Scene:
    """One line a domain path, then the free GPUs of each of its nodes: ``rack1 nvl1: 4 4 0``; ``-`` is no domain."""
    nodes: list[Node] = []
    free: list[int] = []
    for line in text.strip().splitlines():
        path, _, numbers = line.partition(":")
        place = tuple("" if word == "-" else word for word in path.split())
        for number in numbers.split():
            devices = tuple(Device(at, "GB200") for at in range(gpus))
            nodes.append(Node(f"n{len(nodes):02}", 100_000, 100, devices, topology=place))
            free.append(int(number))
    state = FleetState(Fleet(tuple(nodes), Topology(levels)))
    for at, left in enumerate(free):
        if left < gpus:
            state.assign(Allocation(at, state.shape_id(PodShape(gpus=gpus - left)), (1 << gpus) - (1 << left)))
    return state, TopologyIndex(state), Placer(state, find_policy("best-fit").load_score())


def place(
    on: Scene, pods: int, gpus: int, groups: RankGroups, request: TopologyRequest | None = None
) -> GangPlacement | Refused:
    state, index, placer = on
    return place_gang(placer, index, [(state.shape_id(PodShape(gpus=gpus)), pods)], request, groups=groups)


def nodes_of(on: Scene, placed: GangPlacement | Refused) -> str:
    if isinstance(placed, Refused):
        return f"{placed.reason.name}: {placed.text()}"
    return " ".join(on[0].node_names[pod.node][1:] for pod in placed.allocations)


TRAYS = """
rack1 nvl1: 4 4 4 0
rack1 nvl2: 4 0 0 4
rack2 nvl3: 4 4 4 4
rack2 nvl4: 4 0 4 4
"""
SMALL = "rack1: 4 1 3\nrack2: 2 2 4"

# What it shows; the fleet and its levels; pods, GPUs of a pod, together, near; request; nodes in rank order.
SCENARIOS = [
    ("groups of two trays each in one NVLink domain, in the tightest rack", TRAYS, ("rack", "nvlink_domain"),
     (4, 4, 2, 2), None, "00 01 04 07"),
    ("a lone tray is of no use to a group of two", TRAYS, ("rack", "nvlink_domain"), (8, 4, 2, 2), None,
     "00 01 08 09 10 11 12 14"),
    ("an odd tray of each domain stays free; it refuses when whole groups do not fit", TRAYS,
     ("rack", "nvlink_domain"), (12, 4, 2, 2), None,
     "ONE_DOMAIN: 2 pods must stand in one nvlink_domain; of 4, nvl3 has most room, for 4; 5 of 6 groups of ranks fit"),
    ("all in one rack, groups in one NVLink domain", TRAYS, ("rack", "nvlink_domain"), (6, 4, 2, 2),
     TopologyRequest(required="rack"), "08 09 10 11 12 14"),
    ("a replica of four trays in one NVLink domain, though two domains of two are tighter", TRAYS,
     ("rack", "nvlink_domain"), (4, 4, 2, 4), None, "08 09 10 11"),
    ("replicas give way to the rack where no NVLink domain holds one", TRAYS, ("rack", "nvlink_domain"),
     (6, 4, 2, 6), None, "08 09 10 11 12 14"),
    ("and to the fleet where no rack does", TRAYS, ("rack", "nvlink_domain"), (10, 4, 2, 10), None,
     "00 01 04 07 08 09 10 11 12 14"),
    ("without NVLink domains a group of one-GPU pods stands on one node", SMALL, ("rack",), (6, 1, 2, 2), None,
     "00 00 00 00 02 02"),
    ("four of them", SMALL, ("rack",), (8, 1, 4, 4), None, "00 00 00 00 05 05 05 05"),
    ("a replica in one rack, its groups on one node each", SMALL, ("rack",), (8, 1, 2, 8), None,
     "03 03 04 04 05 05 05 05"),
    ("too many groups for the nodes", SMALL, ("rack",), (12, 1, 4, 4), None,
     "ONE_DOMAIN: 4 pods must stand in one host; of 6, n00 has most room, for 4; 2 of 3 groups of ranks fit"),
    ("no levels at all", ": 4 1 3 4", (), (4, 1, 4, 4), None, "00 00 00 00"),
    ("segments hold whole groups", TRAYS, ("rack", "nvlink_domain"), (8, 4, 2, 2),
     TopologyRequest(required="rack", segment=4), "00 01 04 07 08 09 10 11"),
    ("spread over racks, group by group", TRAYS, ("rack", "nvlink_domain"), (8, 4, 2, 2),
     TopologyRequest(spread="rack"), "00 01 04 07 08 09 10 11"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fleet", "levels", "gang", "request_", "expected"), [row[1:] for row in SCENARIOS], ids=[r[0] for r in SCENARIOS]
)
def test_scenarios(
    fleet: str, levels: tuple[str, ...], gang: tuple[int, int, int, int], request_: TopologyRequest | None,
    expected: str,
) -> None:  # fmt: skip
    on = scene(fleet, levels)
    pods, gpus, together, near = gang
    assert nodes_of(on, place(on, pods, gpus, RankGroups(together, near), request_)) == expected


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[str, str, int]], tuple[int, int, int], str]:
    """Nodes (rack, NVLink domain, free GPUs); groups, pods a group, groups a replica; what is required."""
    nodes: list[tuple[str, str, int]] = []
    for rack in range(draw(st.integers(1, 2))):
        for domain in range(draw(st.integers(1, 3))):
            for _ in range(draw(st.integers(1, 3))):
                nodes.append((f"r{rack}", f"v{rack}{domain}", draw(st.integers(0, 4))))
    together, per_replica = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    groups = per_replica * draw(st.integers(1, 3))
    return nodes, (groups, together, per_replica), draw(st.sampled_from(["", "rack", "nvlink_domain"]))


@settings(max_examples=300, deadline=None)
@given(cases(), st.booleans())
def test_groups_are_never_torn_and_a_refusal_is_exact(
    case: tuple[list[tuple[str, str, int]], tuple[int, int, int], str], with_domains: bool
) -> None:
    """By brute force, with pods of one GPU: whole groups in each NVLink domain, all in one required domain."""
    nodes, (groups, together, per_replica), required = case
    levels = ("rack", "nvlink_domain") if with_domains else ("rack",)
    required = required if required in levels else ""
    text = "\n".join(f"{rack} {domain if with_domains else ''}: {free}" for rack, domain, free in nodes)
    request = TopologyRequest(required=required) if required else None
    asked = RankGroups(together, together * per_replica)
    on = scene(text, levels)
    before = on[0].nodes.gpu_free.copy()
    placed = place(on, groups * together, 1, asked, request)
    room: dict[tuple[str, str], int] = {}
    for at, (rack, domain, free) in enumerate(nodes):
        key = (rack, domain if with_domains else str(at))
        room[key] = room.get(key, 0) + free
    # the domain in which all must stand: a rack, an NVLink domain (whose room then need not be cut), or the fleet
    choices = {"": [""], "rack": sorted({rack for rack, _ in room}), "nvlink_domain": sorted(d for _, d in room)}[
        required
    ]
    best = max(
        sum(
            free if required == "nvlink_domain" else free // together * together
            for (rack, domain), free in room.items()
            if choice in ("", rack, domain)
        )
        for choice in choices
    )
    if isinstance(placed, Refused):
        assert best < groups * together
        assert (placed.reason is Reason.CAPACITY) == (sum(room.values()) < groups * together)
        assert np.array_equal(on[0].nodes.gpu_free, before)
        return
    assert best >= groups * together
    index = on[1]
    domain_of = index.groups[nvlink_depth(index)]
    pods = [pod.node for pod in placed.allocations]
    assert len(pods) == groups * together
    for first in range(0, len(pods), together):
        assert len({int(domain_of[node]) for node in pods[first : first + together]}) == 1
    ranks = [int(index.rank[node]) for node in pods]
    assert ranks == sorted(ranks)
    assert nodes_of(scene(text, levels), placed) == nodes_of(
        on, place(scene(text, levels), len(pods), 1, asked, request)
    )


def test_a_domain_without_a_name_holds_no_group() -> None:
    on = scene("r -: 4 4\nr v: 4 4 4", ("rack", "nvlink_domain"))
    assert nodes_of(on, place(on, 2, 4, RankGroups(2, 2))) == "02 03"
    assert isinstance(place(on, 2, 4, RankGroups(2, 2)), Refused)
    assert nodes_of(on, place(on, 2, 4, RankGroups(1, 2))) == "04 00"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=4), min_size=2, max_size=4),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_small_work_breaks_up_no_domain_while_one_that_is_broken_has_room(
    rooms: list[list[int]], gpus: int, count: int
) -> None:
    """Trays with so many free GPUs, a list a domain: pods that ask for no place go to the fullest that takes them."""
    rows = "\n".join(f"v{at}: {' '.join(map(str, free))}" for at, free in enumerate(rooms))
    takes = [sum(free // gpus for free in trays) for trays in rooms]
    on = scene(rows, ("nvlink_domain",))
    shape = on[0].shape_id(PodShape(gpus=gpus))
    found = place_in_fullest(on[2], on[1], shape, count, 1)
    asked = TopologyRequest(preferred="nvlink_domain")
    longer = place(scene(rows, ("nvlink_domain",)), count, gpus, RankGroups(), asked)
    if found is None:
        assert max(takes) < count
        return
    domain = set(on[1].groups[1][found[0]].tolist())
    assert [takes[at] for at in domain] == [min(room for room in takes if room >= count)]
    assert found[1].tolist() == [shape] * count
    assert isinstance(longer, GangPlacement)
    assert [pod.node for pod in longer.allocations] == found[0].tolist()
    assert [pod.devices for pod in longer.allocations] == found[2].tolist()
