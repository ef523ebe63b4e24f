"""Each reason for which a node refuses a pod, alone and together, as `Placer.verdict` tells it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster.engine.placement import Placer
from muster.engine.state import REPLACEMENT, Allocation, FleetState
from muster.model.fleet import Device, Fleet, Node, Taint
from muster.model.reasons import WORKLOAD_BIT, Reason, Tier
from muster.model.workload import PodShape, Toleration
from muster.policy.registry import find_policy

GPUS = tuple(Device(index, "A") for index in range(4))
NODE = Node("n", 8000, 64, GPUS, labels=(("pool", "train"),))
POD = PodShape(4000, 32, 2, 1000)
PART = PodShape(0, 0, 1, 600)
SLICE = PodShape(0, 0, 1, 125, mig_profile="1g.10gb")
ONE = replace(NODE, devices=(Device(0, "H100"),))
SICK = tuple(replace(device, healthy=device.index > 2) for device in GPUS)
TAINT = Taint("gpu", "yes", "NoSchedule")


def toleration(**changes: str) -> PodShape:
    return replace(POD, tolerations=(Toleration(**{"key": "gpu", "value": "yes", **changes}),))


# What holds; the node; pods on it, with their devices as a mask; the pod that asks; the reasons of the refusal.
SCENARIOS: list[tuple[str, Node, list[tuple[PodShape, int]], PodShape, list[Reason]]] = [
    ("it fits", NODE, [], POD, []),
    ("it fits beside others", NODE, [(POD, 0b11)], POD, []),
    ("cordoned", replace(NODE, schedulable=False), [], POD, [Reason.UNSCHEDULABLE]),
    ("spare", replace(NODE, spare=True), [], toleration(operator="Exists", key="", value=""), [Reason.SPARE]),
    ("spare, for a replacement", replace(NODE, spare=True), [], replace(POD, tolerations=(REPLACEMENT,)), []),
    ("label missing", NODE, [], replace(POD, node_selector=(("zone", "a"),)), [Reason.SELECTOR]),
    ("label has another value", NODE, [], replace(POD, node_selector=(("pool", "serve"),)), [Reason.SELECTOR]),
    ("label is there", NODE, [], replace(POD, node_selector=(("pool", "train"),)), []),
    ("taint", replace(NODE, taints=(TAINT,)), [], POD, [Reason.TAINT]),
    ("taint that keeps nobody out", replace(NODE, taints=(Taint("gpu", "", "PreferNoSchedule"),)), [], POD, []),
    ("taint is tolerated", replace(NODE, taints=(TAINT,)), [], toleration(), []),
    ("taint is tolerated by its key", replace(NODE, taints=(TAINT,)), [], toleration(operator="Exists", value=""), []),
    ("all is tolerated", replace(NODE, taints=(TAINT,)), [], toleration(operator="Exists", key="", value=""), []),
    ("another value is tolerated", replace(NODE, taints=(TAINT,)), [], toleration(value="no"), [Reason.TAINT]),
    ("another effect is tolerated", replace(NODE, taints=(TAINT,)), [], toleration(effect="NoExecute"), [Reason.TAINT]),
    ("model", NODE, [], replace(POD, gpu_models=("B", "C")), [Reason.GPU_MODEL]),
    ("one of the models", NODE, [], replace(POD, gpu_models=("B", "A")), []),
    ("too few GPUs", NODE, [], replace(POD, gpus=5), [Reason.GPU_COUNT]),
    ("too few healthy GPUs", replace(NODE, devices=SICK), [], POD, [Reason.GPU_COUNT]),
    ("no GPUs", replace(NODE, devices=()), [], POD, [Reason.GPU_COUNT]),
    ("CPU of the empty node", NODE, [], replace(POD, cpu_milli=8001), [Reason.CPU_TOTAL]),
    ("memory of the empty node", NODE, [], replace(POD, memory_bytes=65), [Reason.MEMORY_TOTAL]),
    ("GPUs are taken", NODE, [(PodShape(0, 0, 3), 0b111)], POD, [Reason.GPU_FREE]),
    # 4 x 400 milli are free: enough for 1,000 milli in all and for no whole GPU.
    ("enough GPU in pieces", NODE, [(PART, 1 << at) for at in range(4)], PodShape(0, 0, 1), [Reason.GPU_SHAPE]),
    ("fractions are left", NODE, [(PART, 1 << at) for at in range(4)], PodShape(0, 0, 1, 400), []),
    ("CPU is taken", NODE, [(PodShape(4001), 0)], POD, [Reason.CPU_FREE]),
    ("memory is taken", NODE, [(PodShape(0, 33), 0)], POD, [Reason.MEMORY_FREE]),
    ("as many pods as it may have", replace(NODE, max_pods=2), [(PART, 1), (PART, 2)], POD, [Reason.POD_COUNT]),
    ("one pod more", replace(NODE, max_pods=2), [(PART, 1)], POD, []),
    ("another tenant shares it", ONE, [(replace(PART, tenant="a"), 1)], PodShape(0, 0, 1, 400), [Reason.GPU_SHARED]),
    ("another way of sharing it", ONE, [(PART, 1)], PodShape(0, 0, 1, 400, sharing="mps"), [Reason.GPU_SHARED]),
    ("a share of the same tenant", ONE, [(replace(PART, tenant="a"), 1)], PodShape(0, 0, 1, 400, tenant="a"), []),
    ("it is split", ONE, [(SLICE, 1)], PodShape(0, 0, 1, 400), [Reason.GPU_SHARED]),
    ("a slice beside others", ONE, [(SLICE, 1)], SLICE, []),
    ("no legal start", ONE, [(SLICE, 1)] * 7, SLICE, [Reason.MIG_START]),
    ("too few slices", ONE, [(SLICE, 1)] * 7, replace(SLICE, mig_profile="3g.40gb"), [Reason.GPU_FREE]),
    ("no such slices", ONE, [], replace(SLICE, mig_profile="1g.5gb"), [Reason.SHARING_MODE]),
    ("no slices at all", NODE, [], SLICE, [Reason.SHARING_MODE]),
    ("shared by another mode", replace(NODE, sharing="mps"), [], POD, [Reason.SHARING_MODE]),
    ("no GPU for a slice", replace(NODE, devices=()), [], SLICE, [Reason.GPU_COUNT]),
    ("a CPU pod minds no GPUs", NODE, [(PodShape(0, 0, 4), 0b1111)], PodShape(8000), []),
    (
        "several at once, in the order of their tiers",
        replace(NODE, schedulable=False, taints=(TAINT,)),
        [(PodShape(8000, 64, 4), 0b1111)],
        replace(POD, gpu_models=("B",), node_selector=(("zone", "a"),)),
        [Reason.UNSCHEDULABLE, Reason.SELECTOR, Reason.TAINT, Reason.GPU_MODEL, Reason.GPU_FREE, Reason.CPU_FREE,
         Reason.MEMORY_FREE],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("node", "running", "pod", "reasons"), [row[1:] for row in SCENARIOS], ids=[r[0] for r in SCENARIOS]
)
def test_one_node(node: Node, running: list[tuple[PodShape, int]], pod: PodShape, reasons: list[Reason]) -> None:
    state = FleetState(Fleet((node,)))
    for shape, devices in running:
        state.assign(Allocation(0, state.row_on(state.shape_id(shape), 0, devices), devices))
    placer = Placer(state, find_policy("best-fit").load_score())
    verdict = placer.verdict(state.shape_id(pod))
    assert (verdict.nodes, verdict.feasible) == (1, 0 if reasons else 1)
    assert [list(refusal.reasons) for refusal in verdict.refusals] == ([reasons] if reasons else [])
    assert (placer.place(state.shape_id(pod)) is None) == bool(reasons)


def test_every_reason_has_a_scenario() -> None:
    assert {reason for *_, reasons in SCENARIOS for reason in reasons} == {
        reason for reason in Reason if reason.bit < WORKLOAD_BIT
    }
    assert list(Reason) == sorted(Reason, key=lambda reason: reason.tier)
    assert {reason.tier for reason in Reason} <= set(Tier)


def test_nodes_are_counted_by_their_reasons_and_named() -> None:
    full, cordoned = replace(NODE, cpu_milli=1000), replace(NODE, schedulable=False)
    fleet = Fleet(tuple(replace(node, name=f"n{at}") for at, node in enumerate([full] * 5 + [cordoned] * 2 + [NODE])))
    state = FleetState(fleet)
    placer = Placer(state, find_policy("best-fit").load_score())
    verdict = placer.verdict(state.shape_id(POD))
    assert (verdict.nodes, verdict.feasible, verdict.dominant) == (8, 1, None)
    assert [(one.reasons, one.nodes, one.examples) for one in verdict.refusals] == [
        ((Reason.CPU_TOTAL,), 5, ("n0", "n1", "n2")),
        ((Reason.UNSCHEDULABLE,), 2, ("n5", "n6")),
    ]
    assert placer.place(state.shape_id(POD))
    assert placer.place(state.shape_id(POD))
    verdict = placer.verdict(state.shape_id(POD))
    assert (verdict.feasible, verdict.dominant) == (0, Reason.CPU_TOTAL)
    assert {one.reasons for one in verdict.refusals if one.nodes == 1} == {
        (Reason.GPU_FREE, Reason.CPU_FREE, Reason.MEMORY_FREE)
    }
