"""Gangs under topology requests: scenarios in text, and properties on random small fleets."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muster.engine.kernels.gang import count_room
from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.engine.topology import GangPlacement, Refused, TopologyIndex, place_gang
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.reasons import Reason
from muster.model.workload import PodShape, TopologyRequest
from muster.policy.registry import find_policy

GPUS = 8


class Scene(NamedTuple):
    """A fleet in which some GPUs are taken."""

    state: FleetState
    index: TopologyIndex
    placer: Placer
    running: list[Allocation]


def scene(text: str, levels: tuple[str, ...] = ("block", "rack"), policy: str = "best-fit", gpus: int = GPUS) -> Scene:
    """One line a domain path, then the free GPUs of each of its nodes: ``a r1: 8 8 4``; ``-`` is no domain."""
    nodes: list[Node] = []
    free: list[int] = []
    for line in text.strip().splitlines():
        path, _, numbers = line.partition(":")
        place = tuple("" if word == "-" else word for word in path.split())
        for number in numbers.split():
            devices = tuple(Device(at, "H100") for at in range(gpus))
            name = f"{'-'.join(place)}-{len(nodes)}"
            nodes.append(Node(name, 100_000, 100, devices, topology=place))
            free.append(int(number))
    state = FleetState(Fleet(tuple(nodes), Topology(levels)))
    running: list[Allocation] = []
    for at, left in enumerate(free):
        if left < gpus:
            taken = Allocation(at, state.shape_id(PodShape(gpus=gpus - left)), (1 << gpus) - (1 << left))
            state.assign(taken)
            running.append(taken)
    entry = find_policy(policy)
    return Scene(state, TopologyIndex(state), Placer(state, entry.load_score(), None, entry.selection), running)


def ask(what: str) -> tuple[list[tuple[int, PodShape]], TopologyRequest | None]:
    """``4x8 + 1x2, required=rack, preferred=block``: pods x GPUs a pod, then the request."""
    gang, *options = what.split(", ")
    pods = [
        (int(count), PodShape(cpu_milli=1, gpus=int(gpus)))
        for count, gpus in (each.split("x") for each in gang.split(" + "))
    ]
    words = dict(option.split("=") for option in options)
    segment = int(words.pop("segment", 0))
    return pods, TopologyRequest(segment=segment, **words) if words or segment else None


def place(on: Scene, what: str) -> GangPlacement | Refused:
    pods, request = ask(what)
    return place_gang(on.placer, on.index, [(on.state.shape_id(shape), count) for count, shape in pods], request)


def told(on: Scene, result: GangPlacement | Refused) -> str:
    """The nodes in rank order by their number, runs of the same as ``3*2``, sets apart; or the refusal."""
    if isinstance(result, Refused):
        return f"{result.reason.name}: {result.text()}"
    words: list[str] = []
    for pod in result.allocations:
        number = on.state.node_names[pod.node].rsplit("-", 1)[1]
        if words and words[-1].split("*")[0] == number:
            words[-1] = f"{number}*{int((words[-1] + '*1').split('*')[1]) + 1}"
        else:
            words.append(number)
    return " ".join(words)


TWO_BLOCKS = """
a r1: 8 8 8 8
a r2: 8 8 4 0
b r3: 8 8 2 0
b r4: 8 8 8 8
"""
TIGHT = """
a r1: 8 8 8 8 8
a r2: 8 8 8
b r3: 8 8
b r4: 8 8 8 8
"""

# What it shows; the fleet; the gang and its request; the nodes in rank order, or the refusal.
SCENARIOS = [
    ("required: the tightest rack", TWO_BLOCKS, "2x8, required=rack", "4 5"),
    ("required: the first of equal racks", TWO_BLOCKS, "4x8, required=rack", "0 1 2 3"),
    ("required: the tightest block, within it the fullest racks", TWO_BLOCKS, "5x8, required=block", "0 1 2 3 4"),
    ("small pods fill the tightest nodes", TWO_BLOCKS, "2x2, required=block", "8 10"),
    (
        "required: no rack holds it",
        TWO_BLOCKS,
        "5x8, required=rack",
        "ONE_DOMAIN: 5 pods must stand in one rack; of 4, r1 has most room, for 4",
    ),
    ("no room at all", TWO_BLOCKS, "13x8, required=rack", "CAPACITY: 13 pods are to fit at once; there is room for 12"),
    ("preferred: one rack where one holds it", TIGHT, "2x8, preferred=rack", "8 9"),
    ("preferred: the fewest racks, in one block", TIGHT, "6x8, preferred=rack", "8 9 10 11 12 13"),
    ("preferred: fewest racks over blocks, if none holds it", TIGHT, "9x8, preferred=rack", "0 1 2 3 4 10 11 12 13"),
    ("preferred within required: (a) before (b)", TIGHT, "5x8, required=block, preferred=rack", "0 1 2 3 4"),
    ("required alone takes the tightest block", TIGHT, "5x8, required=block", "8 10 11 12 13"),
    ("nothing asked: the policy, ranks along the topology", TIGHT, "3x8", "0 1 2"),
    ("segments may stand in different racks", TIGHT, "6x8, required=rack, segment=2", "8 9 10 11 12 13"),
    (
        "segments keep to one block where it holds all",
        TIGHT,
        "8x8, required=rack, segment=2, preferred=block",
        "0 1 2 3 5 6 8 9",
    ),
    ("the last segment may be shorter", TIGHT, "5x8, required=rack, segment=2", "10 11 12 13 8"),
    (
        "segments: one does not fit",
        TIGHT,
        "12x8, required=rack, segment=4",
        "ONE_DOMAIN: 4 pods must stand in one rack; of 4, r1 has most room, for 5; 2 of 3 segments fit",
    ),
    ("spread: even over racks", TWO_BLOCKS, "8x8, spread=rack", "0 1 4 5 8 9 12 13"),
    ("spread: what does not fit goes elsewhere", TWO_BLOCKS, "10x8, spread=rack", "0 1 2 4 5 8 9 12 13 14"),
    ("spread within the required block", TIGHT, "4x8, required=block, spread=rack", "8 9 10 11"),
    ("leader and workers share the rack", TWO_BLOCKS, "1x2 + 3x8, required=rack", "3 0 1 2"),
    ("leader and workers share the tightest rack that holds both", TWO_BLOCKS, "1x2 + 2x8, required=rack", "6 4 5"),
    ("nodes without a rack do not count", "a -: 8 8 8\na r1: 8 8", "2x8, required=rack", "3 4"),
    (
        "nodes without a rack: refused",
        "a -: 8 8 8\na r1: 8 8",
        "3x8, required=rack",
        "ONE_DOMAIN: 3 pods must stand in one rack; of 1, r1 has most room, for 2",
    ),
    ("nodes without a rack come last", "a -: 8 8 8\na r1: 8 8", "3x8, preferred=rack", "3 4 0"),
    (
        "racks of one name in two blocks are two racks",
        "a r1: 8 8\nb r1: 8 8",
        "3x8, required=rack",
        "ONE_DOMAIN: 3 pods must stand in one rack; of 2, a/r1 has most room, for 2",
    ),
]


@pytest.mark.parametrize(
    ("fleet", "gang", "expected"), [row[1:] for row in SCENARIOS], ids=[row[0] for row in SCENARIOS]
)
def test_scenarios(fleet: str, gang: str, expected: str) -> None:
    on = scene(fleet)
    result = place(on, gang)
    assert told(on, result) == expected
    on.state.validate([*on.running, *(result.allocations if isinstance(result, GangPlacement) else ())])


def nvl72(free_trays: list[int]) -> Scene:
    """NVLink domains of 18 trays of 4 GPUs, of which so many are free."""
    rows = [f"b{at // 4} nvl{at}: {' '.join(['4'] * free + ['0'] * (18 - free))}" for at, free in enumerate(free_trays)]
    return scene("\n".join(rows), ("block", "nvlink_domain"), gpus=4)


# Free trays of each domain (four a block); the gang; pods in each domain, or the refusal.
NVL72 = [
    ([18] * 4, "32x4, required=nvlink_domain, segment=16", "nvl0:16 nvl1:16"),
    ([18, 16, 17, 15], "32x4, required=nvlink_domain, segment=16", "nvl1:16 nvl2:16"),
    ([18, 15, 18, 18, 16, 16, 16, 16], "64x4, required=nvlink_domain, segment=16", "nvl4:16 nvl5:16 nvl6:16 nvl7:16"),
    ([18, 18, 18, 18], "16x4, required=nvlink_domain, segment=4", "nvl0:16"),
    ([18, 2, 4, 9], "12x4, required=nvlink_domain, segment=4", "nvl0:12"),
    ([6, 2, 4, 9], "12x4, required=nvlink_domain, segment=4", "nvl2:4 nvl3:8"),
    ([18, 15, 15, 15], "32x4, required=nvlink_domain, segment=16", "1 of 2"),
]


@pytest.mark.parametrize(("free", "gang", "expected"), NVL72)
def test_nvl72(free: list[int], gang: str, expected: str) -> None:
    result = place(nvl72(free), gang)
    if isinstance(result, Refused):
        assert f"{result.units_fit} of {result.units}" == expected
        assert (result.best_domain, result.best_room) == ("nvl0", 18)
    else:
        assert " ".join(f"{name}:{pods}" for name, pods in result.domains) == expected


@pytest.mark.parametrize(
    ("request_", "field", "text"),
    [
        (TopologyRequest(required="shelf"), "work[3].topology.required", "level 'shelf'; known: block, rack"),
        (TopologyRequest(preferred="shelf"), "work[3].topology.preferred", "unknown"),
        (TopologyRequest(spread="shelf"), "work[3].topology.spread", "unknown"),
        (TopologyRequest(segment=4), "work[3].topology.segment", "needs the level"),
        (TopologyRequest(required="rack", segment=-1), "work[3].topology.segment", "negative"),
        (TopologyRequest(required="rack", spread="block"), "work[3].topology.spread", "cannot be spread"),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_with_their_field(request_: TopologyRequest, field: str, text: str) -> None:
    on = scene(TWO_BLOCKS)
    pods = [(on.state.shape_id(PodShape(gpus=1)), 1)]
    with pytest.raises(InputError, match=re.escape(text)) as caught:
        place_gang(on.placer, on.index, pods, request_, field="work[3].topology")
    assert caught.value.field == field
    on.state.validate(on.running)


def test_an_empty_fleet_and_an_empty_gang() -> None:
    on = scene("", levels=("rack",))
    assert isinstance(place(on, "1x1"), Refused)
    assert isinstance(place(on, "1x1, required=rack"), Refused)
    assert place(scene(TWO_BLOCKS), "0x1, required=rack") == GangPlacement((), "", (), (("block", 0), ("rack", 0)))


# Random small fleets


@st.composite
def fleets(draw: st.DrawFn) -> Scene:
    """Up to 2 blocks of up to 3 racks of up to 3 nodes of 4 GPUs, some taken, some nodes without a rack or block."""
    rows: list[str] = []
    for block in range(draw(st.integers(1, 2))):
        for rack in range(draw(st.integers(1, 3))):
            free = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
            path = draw(st.sampled_from([f"b{block} r{rack}"] * 6 + [f"b{block} -", "- -"]))
            rows.append(f"{path}: {' '.join(map(str, free))}")
    return scene("\n".join(rows), policy=draw(st.sampled_from(["best-fit", "gpu-packing", "random"])), gpus=4)


SHAPES = [PodShape(gpus=4), PodShape(gpus=2), PodShape(gpus=1), PodShape(0, 0, 1, 500), PodShape(0, 0, 2, 300)]
SHAPES.append(PodShape(30_000))
NAMES = ("block", "rack", "host")
LEVELS = st.sampled_from(["", *NAMES])


@st.composite
def requests(draw: st.DrawFn) -> TopologyRequest:
    required = draw(LEVELS)
    segment = draw(st.integers(0, 4)) if required else 0
    narrower = NAMES[NAMES.index(required) + 1 :] if required and not segment else NAMES
    spread = draw(st.sampled_from(["", *narrower]))
    at_most = draw(st.integers(0, 5)) if spread else 0
    if segment and NAMES.index(spread or "host") <= NAMES.index(required):
        at_most = max(at_most, segment) if at_most else 0
    return TopologyRequest(required, draw(LEVELS), segment, spread, at_most)


gangs = st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 7)), min_size=1, max_size=2)


def room_by_placing(on: Scene, shape: int, node: int) -> int:
    """Pods of a shape on one node, placed one by one on the roomiest devices: the slow way to count."""
    asked = on.state.shape_list[shape]
    with on.state.trial():
        count = 0
        while count < 100:
            free = on.state.nodes.gpu_free[node]
            slots = sorted(range(len(free)), key=lambda device: -int(free[device]))[: asked.gpus]
            enough = all(free[device] >= asked.gpu_milli for device in slots) and len(slots) == asked.gpus
            if not enough or on.state.nodes.cpu_free[node] < asked.cpu_milli:
                break
            on.state.assign(Allocation(node, shape, sum(1 << device for device in slots)))
            count += 1
    return count


def snapshot(state: FleetState) -> tuple[bytes, ...]:
    nodes = state.nodes
    return tuple(array.tobytes() for array in (nodes.cpu_free, nodes.memory_free, nodes.gpu_free, nodes.pods))


def units_of(sets: list[tuple[int, int]], segment: int) -> list[Counter[int]]:
    """Pods of each shape in each unit."""
    shapes = [shape for shape, count in sets for _ in range(count)]
    size = segment or len(shapes)
    return [Counter(shapes[at : at + size]) for at in range(0, len(shapes), size)]


def check_placed(on: Scene, placed: GangPlacement, sets: list[tuple[int, int]], request: TopologyRequest) -> None:
    index = on.index
    pods = placed.allocations
    assert [pod.shape for pod in pods] == [shape for shape, count in sets for _ in range(count)]
    size = request.segment or len(pods)
    if request.required:
        domain = index.of_node[index.depth_of(request.required) - 1]
        for first in range(0, len(pods), size):
            assert len({int(domain[pod.node]) for pod in pods[first : first + size]} - {-1}) == 1
            assert all(domain[pod.node] >= 0 for pod in pods[first : first + size])
    if request.at_most:
        domain = index.of_node[index.depth_of(request.spread) - 1]
        stands = Counter(int(domain[pod.node]) for pod in pods)
        assert -1 not in stands
        assert max(stands.values()) <= request.at_most
    if len(sets) == 1 and (len(pods) % size == 0 or not request.segment):  # a shorter last segment stays last
        ranks = [int(index.rank[pod.node]) for pod in pods]
        assert ranks == sorted(ranks)
    counted = dict(placed.counts)
    assert counted == {level: len({int(group[pod.node]) for pod in pods}) for level, group in
                       zip(index.levels, index.groups[1:], strict=False)}  # fmt: skip


def check_refused(on: Scene, refused: Refused, sets: list[tuple[int, int]], request: TopologyRequest) -> None:
    """By brute force, for one shape: in all there is room or not, and no choice of domains holds all units."""
    index = on.index
    if len({shape for shape, _ in sets}) > 1:
        return
    shape, count = sets[0][0], sum(count for _, count in sets)
    rooms = [room_by_placing(on, shape, node) for node in range(len(on.state.node_list))]
    assert (refused.reason is Reason.CAPACITY) == (sum(rooms) < count)
    if refused.reason is Reason.CAPACITY:
        assert refused.room == sum(rooms)
        return
    units = [unit.total() for unit in units_of(sets, request.segment)]
    domains = index.groups[index.depth_of(request.required)].tolist()
    real = index.real[index.depth_of(request.required)]
    apart = index.groups[index.depth_of(request.spread)].tolist()
    most = [
        request.at_most * bool(real) if request.at_most else 1000 for real in index.real[index.depth_of(request.spread)]
    ]
    pieces: dict[tuple[int, int], int] = {}
    for node, room in enumerate(rooms):
        if real[domains[node]]:
            key = domains[node], apart[node]
            pieces[key] = pieces.get(key, 0) + room
    assert not can_hold(pieces, most, units)
    if refused.reason is Reason.APART:
        assert refused.room < count or can_hold(pieces, [1000] * len(most), units)
    else:
        assert not can_hold(pieces, [1000] * len(most), units)
        by_domain = [
            sum(room for (one, _), room in pieces.items() if one == each) for each in range(len(real)) if real[each]
        ]
        assert refused.best_room == max(by_domain, default=0)


MOST_CHOICES = 200_000
"""Choices that are tried of one example: a few drawn ones have so many that they would take minutes."""


def can_hold(rooms: dict[tuple[int, int], int], most: list[int], units: list[int]) -> bool:
    """Whether units of pods fit, each within one required domain: every choice of domains is tried.

    ``rooms`` are of the parts of the fleet by (required domain, domain of spread), ``most`` what the latter may take.
    An example with more than MOST_CHOICES is drawn anew.
    """
    tried = itertools.count()
    hopeless: set[tuple[object, ...]] = set()

    def fits(rooms: dict[tuple[int, int], int], most: list[int], units: list[int]) -> bool:
        if not units:
            return True
        if min(units) * len(units) > min(sum(rooms.values()), sum(most)):
            return False
        state = (tuple(sorted(rooms.items())), tuple(most), tuple(units))
        if state in hopeless:
            return False
        for one in sorted({domain for domain, _ in rooms}):
            parts = sorted(key for key in rooms if key[0] == one)
            for shares in dealt(units[0], [min(rooms[part], most[part[1]]) for part in parts]):
                assume(next(tried) < MOST_CHOICES)
                left, may = dict(rooms), list(most)
                for part, share in zip(parts, shares, strict=True):
                    left[part] -= share
                    may[part[1]] -= share
                if fits(left, may, units[1:]):
                    return True
        hopeless.add(state)
        return False

    return fits(rooms, most, units)


def dealt(amount: int, rooms: list[int]) -> Iterator[tuple[int, ...]]:
    """Every way to deal an amount over rooms."""
    if not rooms:
        if not amount:
            yield ()
        return
    for share in range(min(amount, rooms[0]), -1, -1):
        for rest in dealt(amount - share, rooms[1:]):
            yield share, *rest


@settings(max_examples=300, deadline=None)
@given(fleets(), gangs, requests())
def test_all_or_nothing_in_the_right_place(
    on: Scene, gang: list[tuple[PodShape, int]], request_: TopologyRequest
) -> None:
    sets = [(on.state.shape_id(shape), count) for shape, count in gang]
    before = snapshot(on.state)
    result = place_gang(on.placer, on.index, sets, request_)
    if isinstance(result, Refused):
        assert snapshot(on.state) == before
        on.state.validate(on.running)
        check_refused(on, result, sets, request_)
    else:
        on.state.validate([*on.running, *result.allocations])
        check_placed(on, result, sets, request_)


@settings(max_examples=100, deadline=None)
@given(fleets(), st.sampled_from([shape for shape in SHAPES if shape.gpus < 2 or shape.gpu_milli == 1000]),
       st.integers(1, 20), LEVELS)  # fmt: skip
def test_without_a_requirement_it_fits_if_there_is_room(on: Scene, shape: PodShape, count: int, preferred: str) -> None:
    number = on.state.shape_id(shape)
    room = count_room(number, count, on.state.nodes, on.state.shapes)
    result = place_gang(on.placer, on.index, [(number, count)], TopologyRequest(preferred=preferred))
    assert isinstance(result, GangPlacement) == (room == count)


@settings(max_examples=100, deadline=None)
@given(fleets(), st.sampled_from(SHAPES), st.integers(1, 8))
def test_preferred_takes_the_fewest_domains(on: Scene, shape: PodShape, count: int) -> None:
    number = on.state.shape_id(shape)
    group = on.index.of_node[1]
    rooms = [room_by_placing(on, number, node) for node in range(len(group))]
    by_rack = [sum(rooms[node] for node in np.flatnonzero(group == one)) for one in set(group.tolist()) - {-1}]
    result = place_gang(on.placer, on.index, [(number, count)], TopologyRequest(preferred="rack"))
    if isinstance(result, GangPlacement) and sum(by_rack) >= count:
        least = next(n for n in range(1, len(by_rack) + 1) if sum(sorted(by_rack, reverse=True)[:n]) >= count)
        assert dict(result.counts)["rack"] == least


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 3),
       st.integers(2, 5), st.sampled_from(["", "block"]))  # fmt: skip
def test_segments_take_the_fewest_blocks(rooms: list[list[int]], size: int, segments: int, preferred: str) -> None:
    """Racks with so many free nodes, by block; segments of whole nodes in one rack each; against the best choice."""
    lines = [f"b{at} r{rack}: {'8 ' * free}0" for at, racks in enumerate(rooms) for rack, free in enumerate(racks)]
    on = scene("\n".join(lines))
    result = place(
        on, f"{size * segments}x8, required=rack, segment={size}" + (preferred and f", preferred={preferred}")
    )
    units = sorted((sum(free // size for free in racks) for racks in rooms), reverse=True)
    if sum(units) < segments:
        assert isinstance(result, Refused)
        assert result.units_fit == (sum(units) if result.reason is Reason.ONE_DOMAIN else result.units_fit)
        return
    assert isinstance(result, GangPlacement)
    assert dict(result.counts)["block"] == next(n for n in range(1, 5) if sum(units[:n]) >= segments)
    racks = Counter(int(on.index.of_node[1][pod.node]) for pod in result.allocations)
    assert all(pods % size == 0 for pods in racks.values())


THREE_LEVELS = """
z1 b1 r1: 8 8 0 0
z1 b1 r2: 8 8 8 8
z1 b2 r3: 8 8 8 8
z2 b3 r4: 8 8 8 8
z2 b3 r5: 8 0 0 0
z2 b4 r6: 8 8 8 8
z2 b4 r7: 8 8 8 8
"""


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        ("4x8, required=zone", "8 9 10 11"),  # the tighter zone; in it a block that is no larger than needed
        ("4x8, required=zone, preferred=rack", "8 9 10 11"),
        ("6x8, required=zone, preferred=block", "0 1 4 5 6 7"),
        ("8x8, required=zone, preferred=rack", "4 5 6 7 8 9 10 11"),  # two racks, though that is two blocks
        ("8x8, required=zone, preferred=block", "20 21 22 23 24 25 26 27"),  # (a) one block, in the wider zone
        ("8x8, required=rack, segment=4", "20 21 22 23 24 25 26 27"),  # the narrowest that holds both is a block
        ("8x8, required=rack, segment=4, spread=zone", "4 5 6 7 12 13 14 15"),
        ("6x8, required=zone, spread=block", "4 5 6 8 9 10"),
        ("1x1 + 4x8, required=zone, preferred=block", "0 4 5 6 7"),
    ],
)
def test_nested_levels(gang: str, expected: str) -> None:
    on = scene(THREE_LEVELS, ("zone", "block", "rack"))
    assert told(on, place(on, gang)) == expected


@settings(max_examples=100, deadline=None)
@given(fleets(), st.sampled_from(SHAPES), st.integers(1, 8))
def test_spread_differs_by_one_where_there_is_room(on: Scene, shape: PodShape, count: int) -> None:
    number = on.state.shape_id(shape)
    group = on.index.of_node[1]
    rooms = [room_by_placing(on, number, node) for node in range(len(group))]
    by_rack = {one: sum(rooms[node] for node in np.flatnonzero(group == one)) for one in set(group.tolist()) - {-1}}
    result = place_gang(on.placer, on.index, [(number, count)], TopologyRequest(spread="rack"))
    if isinstance(result, GangPlacement) and sum(by_rack.values()) >= count:
        used = Counter(int(group[pod.node]) for pod in result.allocations)
        assert used[-1] == 0
        assert all(max(used.values()) - used[one] <= 1 for one, room in by_rack.items() if used[one] < room)


@settings(max_examples=50, deadline=None)
@given(fleets(), gangs, requests())
def test_same_input_same_places(on: Scene, gang: list[tuple[PodShape, int]], request_: TopologyRequest) -> None:
    sets = [(on.state.shape_id(shape), count) for shape, count in gang]
    policy = find_policy("best-fit").load_score()
    results = []
    for _ in range(2):
        with on.state.trial():
            results.append(place_gang(Placer(on.state, policy), on.index, sets, request_))
    assert results[0] == results[1]


def test_ranks_follow_the_topology_whatever_the_order_of_ties() -> None:
    fleet = scene(TIGHT).state.fleet
    state = FleetState(fleet, np.random.default_rng(3).permutation(len(fleet)).tolist())
    index = TopologyIndex(state)
    placer = Placer(state, find_policy("best-fit").load_score())
    gang = [(state.shape_id(PodShape(gpus=8)), 7)]
    for request_ in (None, TopologyRequest("block"), TopologyRequest(spread="rack")):
        with state.trial():
            placed = place_gang(placer, index, gang, request_)
        assert isinstance(placed, GangPlacement)
        numbers = [int(state.node_names[pod.node].rsplit("-", 1)[1]) for pod in placed.allocations]
        assert numbers == sorted(numbers)


def test_a_fleet_without_levels() -> None:
    on = scene("x: 8 8 4", levels=())
    assert told(on, place(on, "2x8")) == "0 1"
    with pytest.raises(InputError, match="unknown topology level 'rack'; known: host"):
        place(on, "1x1, required=rack")
