"""Sharing of GPUs: MIG instances at legal starts, shares of one owner a GPU, and what each refusal is called."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.catalog.mig import mig_table
from muster.catalog.mig_layouts import can_add, check_layout
from muster.engine.pieces import free_pieces
from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.errors import CapacityError, InputError, StateError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.reasons import Reason
from muster.model.workload import PodShape
from muster.policy.registry import find_policy

MODELS = ("H100", "A100-SXM4-40GB", "A30")


def share(milli: int, tenant: str = "", sharing: str = "") -> PodShape:
    return PodShape(1, 1, 1, milli, sharing=sharing, tenant=tenant)


def mig(profile: str) -> PodShape:
    return PodShape(1, 1, 1, 125, mig_profile=profile)


def fleet(*devices: tuple[Device, ...], sharing: str = "", model: str = "H100", gpus: int = 2, nodes: int = 1) -> Fleet:
    rows = devices or tuple(tuple(Device(at, model) for at in range(gpus)) for _ in range(nodes))
    return Fleet(
        tuple(
            Node(f"n{at}", 1000, 1000, each, sharing=sharing, topology=(f"r{at // 2}",)) for at, each in enumerate(rows)
        ),
        Topology(("rack",)),
    )


def placer(state: FleetState, policy: str = "best-fit") -> Placer:
    entry = find_policy(policy)
    return Placer(state, entry.load_score(), None, entry.selection, seed=3)


def start(state: FleetState, placed: Allocation | None) -> int | None:
    return None if placed is None else state.instances[placed.shape].start


def refusals(state: FleetState, shape: PodShape) -> set[Reason]:
    verdict = placer(state).verdict(state.shape_id(shape))
    return {reason for each in verdict.refusals for reason in each.reasons}


# -- MIG --------------------------------------------------------------------------------------------------------------


def test_starts_leave_most_open() -> None:
    """An H100 in order of arrival; each instance goes where the largest others can still stand."""
    state = FleetState(fleet(gpus=1))
    one = placer(state)
    starts = [
        start(state, one.place(state.shape_id(mig(each)))) for each in ("1g.10gb", "1g.10gb", "2g.20gb", "1g.10gb")
    ]
    assert starts == [6, 4, 0, 5]  # 4g.40gb fits beside the first two
    assert start(state, one.place(state.shape_id(mig("2g.20gb")))) == 2
    assert one.place(state.shape_id(mig("1g.10gb"))) is None  # slice 7 is no start
    assert state.nodes.gpu_free.tolist() == [[125]]
    assert refusals(state, mig("1g.10gb")) == {Reason.MIG_START}
    assert refusals(state, mig("3g.40gb")) == {Reason.GPU_FREE}
    assert refusals(state, share(100)) == {Reason.GPU_SHARED}


@pytest.mark.parametrize(("first", "room"), [(0, 3), (4, 4)])
def test_after_one_3g_the_room_for_1g_depends_on_its_start(first: int, room: int) -> None:
    state = FleetState(fleet(gpus=1))
    row = state.row_on(state.shape_id(mig("3g.40gb")), 0, 1, first)
    state.assign(Allocation(0, row, 1))
    small = state.shape_id(mig("1g.10gb"))
    assert len(placer(state).place_pods(small, room)) == room
    assert placer(state).place(small) is None


def test_3g_twice_leaves_nothing_and_4g_beside_3g_is_full() -> None:
    for profiles in (["3g.40gb", "3g.40gb"], ["3g.40gb", "4g.40gb"], ["3g.40gb", "2g.20gb", "2g.20gb"], ["7g.80gb"]):
        state = FleetState(fleet(gpus=1))
        one = placer(state)
        assert all(one.place(state.shape_id(mig(each))) for each in profiles), profiles
        assert one.place(state.shape_id(mig("1g.10gb"))) is None, profiles
        assert state.nodes.gpu_free.sum() == 0


def test_a_name_that_means_other_slices_on_another_model() -> None:
    """1g.10gb is one slice of an H100 and two of an A100 with 40 GB."""
    state = FleetState(fleet((Device(0, "A100-SXM4-40GB"),), (Device(0, "H100"),)))
    shape = state.shape_id(mig("1g.10gb"))
    assert [len(placer(state).place_pods(shape, count)) for count in (11, 12)] == [11, 0]


def test_a_carved_gpu_gives_out_its_instances_only() -> None:
    layout = (("3g.40gb", 0), ("2g.20gb", 4), ("1g.10gb", 6))
    state = FleetState(fleet((Device(0, "H100", mig_profiles=layout), Device(1, "H100"))))
    one = placer(state)
    assert one.place(state.shape_id(PodShape(1, 1, 2))) is None
    assert one.place(state.shape_id(PodShape(1, 1, 1))) == Allocation(0, state.shape_id(PodShape(1, 1, 1)), 0b10)
    found = [
        start(state, one.place(state.shape_id(mig(each)))) for each in ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")
    ]
    assert found == [6, None, 4, 0]
    assert state.nodes.gpu_free.tolist() == [[0, 0]]


def test_a_gpu_that_is_fully_carved_is_never_whole() -> None:
    state = FleetState(fleet((Device(0, "H100", mig_profiles=(("4g.40gb", 0), ("3g.40gb", 4))), Device(1, "H100"))))
    assert state.nodes.gpu_free.tolist() == [[1000, 1000]]
    assert placer(state).place(state.shape_id(PodShape(1, 1, 2))) is None
    assert refusals(state, PodShape(1, 1, 2)) == {Reason.GPU_SHARED}
    assert placer(state).place(state.shape_id(share(300))) == Allocation(0, state.shape_id(share(300)), 0b10)


@pytest.mark.parametrize(
    ("device", "sharing", "says"),
    [
        (Device(0, "T4", mig_profiles=(("1g.5gb", 0),)), "", "cannot be split by MIG"),
        (Device(0, "H100", mig_profiles=(("1g.10gb", 0),)), "mps", "is shared by mps"),
        (Device(0, "H100", mig_profiles=(("3g.40gb", 0), ("4g.40gb", 0))), "", "overlaps"),
        (Device(0, "H100", mig_profiles=(("1g.5gb", 0),)), "", "no MIG profile"),
    ],
)
def test_a_carving_that_cannot_be_is_refused(device: Device, sharing: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        FleetState(fleet((device,), sharing=sharing))


def test_two_instances_for_one_pod_are_refused() -> None:
    with pytest.raises(InputError, match="one MIG instance"):
        FleetState(fleet()).shape_id(PodShape(gpus=2, mig_profile="1g.10gb"))


# -- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["best-fit", "gpu-packing", "gpu-clustering", "dot-product", "random"])
def test_tenants_never_meet_on_a_gpu(policy: str) -> None:
    state = FleetState(fleet(gpus=2))
    one = placer(state, policy)
    a, b, nobody = (state.shape_id(share(300, tenant)) for tenant in ("a", "b", ""))
    placed = [one.place(shape) for shape in (a, b, a, b)]
    assert all(placed)
    assert one.place(nobody) is None
    assert refusals(state, share(300)) == {Reason.GPU_SHARED}
    by_device = {each.devices: each.shape for each in placed if each}
    assert len(by_device) == 2
    assert all(by_device[each.devices] == each.shape for each in placed if each)


def test_a_gpu_is_free_for_others_after_its_last_share() -> None:
    state = FleetState(fleet(gpus=1))
    one = placer(state)
    a, b = state.shape_id(share(300, "a")), state.shape_id(share(300, "b"))
    first, second = one.place(a), one.place(a)
    assert first
    assert second
    state.release(first)
    assert one.place(b) is None
    state.release(second)
    assert one.place(b)


def test_modes_do_not_mix_on_a_gpu() -> None:
    state = FleetState(fleet(gpus=1))
    one = placer(state)
    assert one.place(state.shape_id(share(300, sharing="mps")))
    assert one.place(state.shape_id(share(300, sharing="time-slicing"))) is None
    assert one.place(state.shape_id(mig("1g.10gb"))) is None
    assert one.place(state.shape_id(share(300, sharing="mps")))


@pytest.mark.parametrize(
    ("sharing", "whole", "mps", "soft", "either", "slice_"),
    [
        ("", True, True, True, True, True),
        ("none", True, False, False, False, False),
        ("mig", False, False, False, False, True),
        ("mps", False, True, False, True, False),
        ("time-slicing", False, False, False, True, False),
        ("soft", True, False, True, True, False),
    ],
)
def test_how_a_node_is_shared(sharing: str, whole: bool, mps: bool, soft: bool, either: bool, slice_: bool) -> None:
    pods = (PodShape(1, 1, 1), share(300, sharing="mps"), share(300, sharing="soft"), share(300), mig("1g.10gb"))
    for pod, fits in zip(pods, (whole, mps, soft, either, slice_), strict=True):
        state = FleetState(fleet(sharing=sharing))
        assert bool(placer(state).place(state.shape_id(pod))) is fits, pod
        if not fits:
            assert refusals(state, pod) == {Reason.SHARING_MODE}


def test_a_profile_that_no_gpu_has_is_a_matter_of_the_mode() -> None:
    assert refusals(FleetState(fleet()), mig("1g.5gb")) == {Reason.SHARING_MODE}
    assert refusals(FleetState(fleet(model="T4")), mig("1g.5gb")) == {Reason.SHARING_MODE}


def test_validate_finds_shares_of_two_owners_and_overlaps() -> None:
    state = FleetState(fleet(gpus=1))
    a, b = (Allocation(0, state.shape_id(share(300, tenant)), 1) for tenant in "ab")
    with pytest.raises(CapacityError, match="shared by others"):
        state.validate([a, b])
    big = state.shape_id(mig("3g.40gb"))
    rows = [Allocation(0, state.row_on(big, 0, 1, 4), 1)] * 2
    with pytest.raises(CapacityError, match=r"has no MIG 3g\.40gb at slice 4 left"):
        state.validate(rows)
    state.assign(rows[0])
    with pytest.raises(CapacityError, match="at slice 4 left"):
        state.assign(rows[0])
    with pytest.raises(CapacityError, match="shared by others"):
        state.assign(a)
    with pytest.raises(CapacityError, match=r"no MIG 3g\.40gb at slice 2"):
        state.row_on(big, 0, 1, 2)


def test_a_node_that_is_carved_anew() -> None:
    """What runs stays; a GPU that is carved is kept from all but MIG pods, until it is carved no more."""
    state = FleetState(fleet(gpus=2))
    one, big = placer(state), state.shape_id(mig("3g.40gb"))
    placed = one.place(big)
    assert placed
    plain = state.node_list[0]
    carved = replace(plain, devices=tuple(replace(each, mig_profiles=(("3g.40gb", 4),)) for each in plain.devices))
    state.set_node(0, carved)
    state.validate([placed])
    second = one.place(big)
    assert second
    assert one.place(big) is None
    assert one.place(state.shape_id(share(100))) is None
    state.validate([placed, second])
    state.set_node(0, plain)
    state.validate([placed, second])
    state.release(placed)
    state.release(second)
    state.validate([])
    assert one.place(state.shape_id(share(100)))
    with pytest.raises(StateError, match="cannot be carved while pods share it"):
        state.set_node(0, carved)


# -- at random --------------------------------------------------------------------------------------------------------

PODS = (
    PodShape(1, 1, 1), PodShape(1, 1, 2), PodShape(2, 2), share(300), share(700, "a"), share(250, "a", "mps"),
    share(250, "b", "mps"), share(500, "b", "soft"), PodShape(1, 1, 2, 400, tenant="a"), mig("1g.10gb"), mig("2g.20gb"),
    mig("3g.40gb"), mig("4g.40gb"), mig("7g.80gb"), mig("1g.20gb"), mig("1g.10gb+me"), mig("1g.5gb"), mig("2g.12gb"),
)  # fmt: skip
CARVED = (("3g.40gb", 0), ("1g.10gb", 6))


def mixed() -> Fleet:
    """Nodes of three models, one with a carved GPU, one with a broken one, and one that gives out no MIG."""
    devices = [
        tuple(Device(at, "H100") for at in range(3)),
        (Device(0, "H100", mig_profiles=CARVED), Device(1, "H100")),
        (Device(0, "A100-SXM4-40GB"), Device(1, "A100-SXM4-40GB", healthy=False)),
        tuple(Device(at, "A30") for at in range(2)),
    ]
    nodes = [Node(f"n{at}", 40, 40, each, topology=(f"r{at // 2}",)) for at, each in enumerate(devices)]
    nodes.append(Node("n4", 40, 40, devices[0], topology=("r2",), sharing="mps"))
    return Fleet(tuple(nodes), Topology(("rack",)))


def check(state: FleetState, running: list[Allocation]) -> None:
    """The state is the sum of its pods, by a model of its own."""
    state.validate(running)
    for node, each in enumerate(state.node_list):
        for device in each.devices:
            here = [pod for pod in running if pod.node == node and pod.devices >> device.index & 1]
            shapes = [state.shape_list[pod.shape] for pod in here]
            wholes = [shape for shape in shapes if shape.gpu_milli == 1000]
            slices = [state.instances[pod.shape] for pod in here if pod.shape in state.instances]
            owners = {(shape.tenant, shape.sharing) for shape in shapes if shape.shares_gpu}
            assert bool(wholes) + bool(slices) + len(owners) <= 1
            assert len(wholes) <= 1
            if slices:
                layout = [(place.profile, place.start) for place in slices]
                check_layout(device.model, layout)
                assert not device.mig_profiles or set(layout) <= set(device.mig_profiles)
                assert each.sharing in ("", "mig")
            assert sum(shape.gpu_milli for shape in shapes if shape.shares_gpu) <= 1000


def exact_room(state: FleetState, shape: PodShape) -> bool:
    """Whether any GPU can take one more MIG instance, by the catalog's own rules."""
    for node, each in enumerate(state.node_list):
        for device in each.devices:
            if not device.healthy or each.sharing not in ("", "mig") or state.nodes.cpu_free[node] < shape.cpu_milli:
                continue
            use = int(state.nodes.gpu_use[node, device.index])
            mine = use >> 32 == 1 or (use == 0 and state.nodes.gpu_free[node, device.index] == 1000)
            used = use >> 16 & 0xFF
            names = [profile.name for profile in mig_table(device.model).profiles]
            if not mine or shape.mig_profile not in names:
                continue
            profile = mig_table(device.model).profile(shape.mig_profile)
            for at in can_add(device.model, [], shape.mig_profile):
                free = (1 << profile.memory_slices) - 1 << at & used == 0
                if free and (not device.mig_profiles or (profile.name, at) in device.mig_profiles):
                    return True
    return False


@settings(max_examples=150, deadline=None)
@given(
    policy=st.sampled_from(["best-fit", "gpu-packing", "random"]),
    steps=st.lists(st.tuples(st.integers(0, len(PODS) - 1), st.integers(0, 99), st.integers(1, 3)), max_size=60),
)
def test_random_histories(policy: str, steps: list[tuple[int, int, int]]) -> None:
    state = FleetState(mixed())
    kept = placer(state, policy)
    running: list[Allocation] = []
    for number, draw, count in steps:
        shape = state.shape_id(PODS[number])
        if draw < 30 and running:
            state.release(running.pop(draw % len(running)))
        elif draw < 45:
            with state.trial():
                kept.place_pods(shape, count)
        else:
            fresh = placer(state, "best-fit")
            fits = fresh.verdict(shape).feasible > 0
            if PODS[number].mig_profile and not PODS[number].mig_profile.endswith("+me"):
                assert fits == exact_room(state, PODS[number])
            assert kept.verdict(shape) == fresh.verdict(shape)
            placed = kept.place_pods(shape, count)
            assert placed or count > 1 or not fits
            assert not placed or fits
            running += placed
        check(state, running)
    for pod in running:
        state.release(pod)
    check(state, [])
    assert np.array_equal(state.nodes.gpu_use, FleetState(mixed()).nodes.gpu_use)


# -- what is left -----------------------------------------------------------------------------------------------------


def test_where_free_gpu_lies() -> None:
    """Node 0: seven slices of a GPU (the eighth is no start), half a GPU of a tenant, and one whole. Node 1: idle."""
    state = FleetState(fleet(gpus=3, nodes=2))
    small = state.shape_id(mig("1g.10gb"))
    for start_ in range(7):
        state.assign(Allocation(0, state.row_on(small, 0, 1, start_), 1))
    state.assign(Allocation(0, state.shape_id(share(500, "a")), 0b10))
    pieces = {"whole_nodes": 3000, "whole_gpus": 1000, "shares": 500, "slices": 0, "no_start": 125}
    assert free_pieces(state) == pieces
    row_of = {place.start: row for row, place in state.instances.items()}
    state.release(Allocation(0, row_of[5], 1))
    assert free_pieces(state) == {**pieces, "slices": 125}
    state.release(Allocation(0, row_of[6], 1))
    assert free_pieces(state) == {**pieces, "slices": 375, "no_start": 0}, "two slices end in the last"


@settings(max_examples=50, deadline=None)
@given(numbers=st.lists(st.integers(0, len(PODS) - 1), max_size=40))
def test_pieces_sum_up_to_what_is_free(numbers: list[int]) -> None:
    state = FleetState(mixed())
    one = placer(state)
    for number in numbers:
        one.place(state.shape_id(PODS[number]))
        pieces = free_pieces(state)
        assert sum(pieces.values()) == state.nodes.gpu_free.sum()
        assert min(pieces.values()) >= 0
