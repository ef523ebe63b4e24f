"""The communication model: golden values, limits that formulas must have, and slow-downs of known placements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.engine.topology import GangPlacement, TopologyIndex, place_gang
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.workload import PodShape, TopologyRequest
from muster.planning.communication import (
    Fabric,
    Spot,
    TrainingJob,
    all_to_all_s,
    fabric_for,
    gather_s,
    hierarchical_all_reduce_s,
    megabytes,
    packed,
    ring_all_reduce_s,
    seconds,
    slowdown,
    spots_of,
    step_time,
    tree_all_reduce_s,
    wire_bytes,
)
from muster.policy.registry import find_policy

H200 = Fabric(367.0, 36.5, inside_latency_s=0.0, outside_latency_s=0.0)
LAYER = TrainingJob(parameters=70e9, layers=80, hidden=8192, sequence=8192, achieved_tflops=400, tensor=8)
ACTIVATION = 8192 * 8192 * 2


def split(*parts: int, leaves: int = 1) -> tuple[Spot, ...]:
    """GPUs in domains of these sizes, in order, over so many leaves."""
    return tuple(Spot(f"n{at}", f"leaf{at % leaves}") for at, count in enumerate(parts) for _ in range(count))


def test_golden_tensor_parallel_all_reduce() -> None:
    assert LAYER.activation_bytes == ACTIVATION
    assert LAYER.activation_bytes / 1e6 == pytest.approx(134, abs=0.5)
    assert wire_bytes(ACTIVATION, 8) / 1e6 == pytest.approx(235, abs=0.5)
    assert 1000 * ring_all_reduce_s(ACTIVATION, 8, 367) == pytest.approx(0.64, abs=0.005)
    assert 1000 * ring_all_reduce_s(ACTIVATION, 8, 36.5) == pytest.approx(6.4, abs=0.05)


def test_rates_are_the_catalogs() -> None:
    h200 = fabric_for("H200")
    assert (h200.inside_gb_per_s, h200.outside_gb_per_s) == (367, 36.5)
    assert "all-reduce 8 H200, measured" in h200.origin
    assert fabric_for("H100", "ConnectX-8").outside_gb_per_s == 73
    # No all-reduce measured: the link's rate times the lowest part that was reached anywhere.
    assert fabric_for("MI325X").inside_gb_per_s == pytest.approx(448 * 312.9 / 448)
    assert fabric_for("T4").inside_gb_per_s == pytest.approx(15.75 * 55 / 63)
    with pytest.raises(InputError, match="unknown NIC 'avian'"):
        fabric_for("H200", "avian")
    with pytest.raises(InputError):
        fabric_for("H2OO")


def test_zero_3_of_80_billion_parameters() -> None:
    """Many nodes of 8 A100 with 340 Gb/s together: about 11 s of transfers (S. Bekman)."""
    job = TrainingJob(80e9, 80, 8192, 4096, 150, data=8 * 512, zero3=True)
    fabric = Fabric(1e9, 340 / 8 / 8, 0.0, 0.0)
    assert step_time(job, packed(job.gpus, 8), fabric).data_s == pytest.approx(3 * 2 * 80e9 / 42.5e9, rel=0.01)


def test_bus_bandwidth_of_four_nodes() -> None:
    """4 nodes x 8 B200: a bus bandwidth of 377 GB/s is 36.5 GB/s on each NIC, if NVLink costs nothing."""
    size = 4 * 2**30
    took = hierarchical_all_reduce_s(size, [8] * 4, Fabric(1e12, 36.5, 0.0, 0.0))
    assert wire_bytes(size, 32) / took / 1e9 == pytest.approx(377, abs=0.5)


def test_four_and_four_against_eight() -> None:
    result = slowdown(LAYER, split(4, 4), split(8), H200)
    one, best = (time.tensor_s / (4 * 80) for time in (result.placed, result.best))
    assert 1000 * best == pytest.approx(0.640, abs=0.001)
    # 2 x 3/4 x 134.2 MB / 367 GB/s + 2 x 1/2 x 33.6 MB / 36.5 GB/s
    assert 1000 * one == pytest.approx(0.5486 + 0.9193, abs=0.001)
    assert result.factor == pytest.approx((result.best.compute_s + 320 * one) / (result.best.compute_s + 320 * best))
    text = "\n".join(line.text() for line in result.lines)
    assert "one all-reduce of a tensor group (4+4; S = 134 MB), as placed: 2(g-1)a1 + 2(g-1)/g S/B1 + " in text
    assert "0 + 201 MB / 367 GB/s + 0 + 33.6 MB / 36.5 GB/s = 1.47 ms" in text
    assert "(8; S = 134 MB), at best: 2(g-1)a1 + 2(g-1)/g S/B1 = 0 + 235 MB / 367 GB/s = 0.64 ms" in text
    assert text.splitlines()[-1].startswith("slow-down: step as placed / step at best = 1.")


def test_only_data_parallel_between_nodes_may_cost_nothing() -> None:
    job = replace(LAYER, parameters=8e9, data=4, microbatches=16)
    assert slowdown(job, split(8, 8, 8, 8), packed(32, 32), H200).factor == 1.0
    tight = replace(job, microbatches=1, achieved_tflops=2000, overlap=0.0)
    assert slowdown(tight, split(8, 8, 8, 8), packed(32, 32), H200).factor > 1.01


def test_leaves_and_oversubscription() -> None:
    job = replace(LAYER, tensor=4, data=4, overlap=0.0)
    one, two = split(4, 4, 4, 4), split(4, 4, 4, 4, leaves=2)
    fabric = replace(H200, oversubscription=4.0)
    assert step_time(job, one, fabric).data_s == step_time(job, two, H200).data_s
    assert step_time(job, two, fabric).data_s == pytest.approx(4 * step_time(job, one, fabric).data_s)


def test_pipeline_neighbours_and_bubble() -> None:
    job = replace(LAYER, tensor=4, pipeline=2, microbatches=8, overlap=0.0)
    inside, outside = step_time(job, packed(8, 8), H200), step_time(job, packed(8, 4), H200)
    assert inside.bubble == outside.bubble == 1 / 8
    assert inside.pipeline_s == pytest.approx(16 * ACTIVATION / 367e9)
    assert outside.pipeline_s == pytest.approx(16 * ACTIVATION / 36.5e9)
    assert step_time(replace(job, interleave=2), packed(8, 8), H200).bubble == 1 / 16


def test_experts() -> None:
    job = replace(LAYER, tensor=1, data=8, expert=8, expert_layers=60, top_k=2)
    inside, outside = step_time(job, split(8), H200), step_time(job, split(4, 4), H200)
    assert inside.expert_s == pytest.approx(4 * 60 * 2 * ACTIVATION * 7 / 8 / 367e9)
    assert outside.expert_s == pytest.approx(240 * 2 * ACTIVATION * (3 / 8 / 367e9 + 4 / 8 / 36.5e9))


def test_uneven_parts_wait_for_the_smallest() -> None:
    even, uneven = (hierarchical_all_reduce_s(1e9, parts, H200) for parts in ([4, 4], [7, 1]))
    assert uneven > 2.5 * even


@given(st.integers(1, 64), st.floats(1, 1e10), st.floats(1, 1000))
def test_limits(gpus: int, size: float, rate: float) -> None:
    fabric = Fabric(rate, rate / 10, 0.0, 0.0)
    ring = ring_all_reduce_s(size, gpus, rate)
    assert ring == pytest.approx(2 * gather_s(size, gpus, rate))
    assert hierarchical_all_reduce_s(size, [gpus], fabric) == ring
    assert hierarchical_all_reduce_s(size, [1] * gpus, fabric) == pytest.approx(10 * ring)
    assert all_to_all_s(size, [gpus], fabric) == pytest.approx(gather_s(size, gpus, rate))
    assert (tree_all_reduce_s(size, gpus, rate) >= ring * 0.999) == (gpus > 0)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8))
def test_leaving_the_domain_never_helps(parts: list[int]) -> None:
    apart = hierarchical_all_reduce_s(1e9, parts, H200)
    together = hierarchical_all_reduce_s(1e9, [sum(parts)], H200)
    assert apart >= together * 0.999
    assert all_to_all_s(1e9, parts, H200) >= all_to_all_s(1e9, [sum(parts)], H200) * 0.999


@pytest.mark.parametrize(
    ("change", "field"),
    [({"layers": 0}, "job.layers"), ({"parameters": -1.0}, "job.parameters"), ({"expert": 3}, "job.expert"),
     ({"overlap": 1.5}, "job.overlap"), ({"tensor": 4}, "placement"), ({"top_k": 0}, "job.top_k")],
)  # fmt: skip
def test_bad_numbers_are_named(change: dict[str, float], field: str) -> None:
    with pytest.raises(InputError) as caught:
        step_time(replace(LAYER, **change), split(8), H200)
    assert caught.value.field == field


def test_words() -> None:
    assert [seconds(value) for value in (0, 3e-8, 28e-6, 6.4e-4, 1.234, 2345.6)] == [
        "0", "0.03 us", "28 us", "0.64 ms", "1.23 s", "2,346 s",
    ]  # fmt: skip
    assert (megabytes(134.2e6), megabytes(3.5e9)) == ("134 MB", "3.5 GB")


def test_spots_of_a_placed_gang() -> None:
    """Two trays of one NVLink domain against two of different ones, as the engine placed them."""
    devices = tuple(Device(at, "B200") for at in range(4))
    nodes = tuple(Node(f"n{at}", 9000, 9, devices, topology=(f"leaf{at // 4}", f"nvl{at // 2}")) for at in range(8))
    state = FleetState(Fleet(nodes, Topology(("leaf", "nvlink_domain"))))
    index = TopologyIndex(state)
    placer = Placer(state, find_policy("best-fit").load_score())
    gang = [(state.shape_id(PodShape(gpus=4)), 2)]
    placed = place_gang(placer, index, gang, TopologyRequest("nvlink_domain"))
    assert isinstance(placed, GangPlacement)
    together = spots_of(state, index, placed.allocations, "nvlink_domain", "leaf")
    assert together == (Spot("nvl0", "leaf0"),) * 8
    spread = place_gang(placer, index, gang, TopologyRequest(spread="leaf"))
    assert isinstance(spread, GangPlacement)
    apart = spots_of(state, index, spread.allocations, "nvlink_domain", "leaf")
    assert apart == (Spot("nvl1", "leaf0"),) * 4 + (Spot("nvl2", "leaf1"),) * 4
    assert len({spot.nvlink for spot in spots_of(state, index, placed.allocations)}) == 2
    assert slowdown(LAYER, apart, together, H200).factor > 1
