"""What a node gives to claims: a table of situations, as Kubernetes' documentation of each feature has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from tests.kube.dra.building import (
    CLASSES,
    DRIVER,
    N1,
    asks,
    attributes,
    claim,
    device_class,
    devices,
    gpu,
    names,
    slice_of,
)

from muster.kube.dra.objects import DraAllocation, KubeClass, KubeDraClaim, KubeSlice
from muster.kube.dra.pools import Place

H200 = f"device.attributes['{DRIVER}'].productName.contains('H200')"
BIG = f"device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('100Gi'))"
ROOT = "resource.kubernetes.io/pcieRoot"


def roots(name: str, root: str, **more: Any) -> dict[str, Any]:
    return gpu(name, resource_dot_kubernetes_dot_io__pcieRoot=root, **more)


def nic(name: str, root: str) -> dict[str, Any]:
    return {"name": name, "attributes": attributes(resource_dot_kubernetes_dot_io__pcieRoot=root)}


def mig(name: str, *memory: int) -> dict[str, Any]:
    """A MIG device that takes some memory slices of GPU 0."""
    counters = {f"memory-slice-{at}": {"value": "1"} for at in memory}
    return {
        "name": name,
        "attributes": attributes(type="mig" if len(memory) < 8 else "gpu", profile=name.rpartition("-")[0]),
        "consumesCounters": [{"counterSet": "gpu-0", "counters": counters}],
    }


MIG_SLICES = [
    slice_of(
        "counters", [], resourceSliceCount=2, pool="n1",
        sharedCounters=[{"name": "gpu-0", "counters": {f"memory-slice-{at}": {"value": "1"} for at in range(8)}}],
    ),
    slice_of(
        "devices",
        [mig("gpu-0", *range(8)), mig("3g-0", 0, 1, 2, 3), mig("3g-4", 4, 5, 6, 7),
         *(mig(f"1g-{at}", at) for at in range(7))],
        resourceSliceCount=2,
    ),
]  # fmt: skip


def shared(name: str, memory: str = "80Gi", **policy: Any) -> dict[str, Any]:
    """A GPU that several claims may have a share of."""
    found = gpu(name, memory=memory) | {"allowMultipleAllocations": True}
    if policy:
        found["capacity"]["memory"]["requestPolicy"] = policy
    return found


def wants(memory: str) -> dict[str, Any]:
    return {"capacity": {"requests": {"memory": memory}}}


FOUR = [
    gpu("g0"),
    gpu("g1"),
    gpu("g2", productName="NVIDIA H200", memory="141Gi"),
    gpu("g3", taints=["sick:NoExecute"]),
]
FITS: list[tuple[str, Iterable[KubeSlice], Sequence[KubeDraClaim], Sequence[KubeDraClaim], list[str]]] = [
    ("the first free ones", [slice_of("s", FOUR)], [claim("a", given=["n1/g0"])], [claim("c", asks(count=2))],
     ["gpus:g1", "gpus:g2"]),
    ("by a selector", [slice_of("s", FOUR)], [], [claim("c", asks("gpus", 1, "gpu.nvidia.com", H200, BIG))],
     ["gpus:g2"]),
    ("a taint is borne", [slice_of("s", FOUR)], [],
     [claim("c", asks(count=4, tolerations=[{"key": "sick", "operator": "Exists"}]))],
     ["gpus:g0", "gpus:g1", "gpus:g2", "gpus:g3"]),
    ("two claims of one pod", [slice_of("s", FOUR)], [],
     [claim("c", asks("one")), claim("d", asks("other", 1, "any", H200))], ["one:g0", "other:g2"]),
    ("a later request needs what an earlier one could have", [slice_of("s", [gpu("g0", memory="141Gi"), gpu("g1")])],
     [], [claim("c", asks("any"), asks("big", 1, "gpu.nvidia.com", BIG))], ["any:g1", "big:g0"]),
    ("all that match", [slice_of("s", FOUR[:3])], [], [claim("c", asks(allocationMode="All"))],
     ["gpus:g0", "gpus:g1", "gpus:g2"]),
    ("the best of a list", [slice_of("s", FOUR)], [claim("a", given=["n1/g2"])],
     [claim("c", asks(alternatives=[asks("h200", 1, "gpu.nvidia.com", H200), asks("two", 2)]))],
     ["gpus/two:g0", "gpus/two:g1"]),
    ("the best of a list is not there for both",
     [slice_of("s", [gpu("g0", memory="141Gi"), gpu("g1"), gpu("g2")])], [],
     [claim("c", asks("x", alternatives=[asks("big", 1, "gpu.nvidia.com", BIG), asks("two", 2)]),
            asks("y", 1, "gpu.nvidia.com", BIG))],
     ["x/two:g1", "x/two:g2", "y:g0"]),
    ("an administrator sees a device in use", [slice_of("s", FOUR[:1])], [claim("a", given=["n1/g0"])],
     [claim("c", asks(adminAccess=True))], ["gpus:g0"]),
    ("GPU and NIC below one PCIe root",
     [slice_of("s", [roots("g0", "pci0"), roots("g1", "pci1")]),
      slice_of("t", [nic("n0", "pci1"), nic("n1", "pci2")], driver="nic.example.com")], [],
     [claim("c", asks("gpu"), asks("nic", 1, "any", "device.driver == 'nic.example.com'"),
            constraints=[{"matchAttribute": ROOT}])],
     ["gpu:g1", "nic:n0"]),
    ("two GPUs below two PCIe roots",
     [slice_of("s", [roots("g0", "pci0"), roots("g1", "pci0"), roots("g2", "pci1")])], [],
     [claim("c", asks(count=2), constraints=[{"distinctAttribute": ROOT, "requests": ["gpus"]}])],
     ["gpus:g0", "gpus:g2"]),
    ("a constraint that is for other requests",
     [slice_of("s", [roots("g0", "pci0"), gpu("g1")])], [],
     [claim("c", asks("x"), asks("y"), constraints=[{"matchAttribute": ROOT, "requests": ["x"]}])], ["x:g0", "y:g1"]),
    ("MIG devices beside each other", MIG_SLICES, [claim("a", given=["n1/3g-0"])],
     [claim("c", asks("mig", 3, "mig.nvidia.com"))], ["mig:1g-4", "mig:1g-5", "mig:1g-6"]),
    ("a MIG device by profile", MIG_SLICES, [claim("a", given=["n1/1g-2"])],
     [claim("c", asks("mig", 1, "mig.nvidia.com", f"device.attributes['{DRIVER}'].profile == '3g'"))], ["mig:3g-4"]),
    ("two shares of one GPU", [slice_of("s", [shared("g0", default="10Gi", validRange={"min": "10Gi"})])], [],
     [claim("c", asks("x", **wants("40Gi"))), claim("d", asks("y", **wants("30Gi")))], ["x:g0", "y:g0"]),
    ("a share that the policy rounds up",
     [slice_of("s", [shared("g0", default="1Gi", validValues=["10Gi", "50Gi"]), shared("g1")])], [],
     [claim("c", asks("x", **wants("20Gi"))), claim("d", asks("y", **wants("20Gi")))], ["x:g0", "y:g1"]),
    ("a whole GPU has as much memory as is asked for", [slice_of("s", FOUR[:3])], [],
     [claim("c", asks(**wants("100Gi")))], ["gpus:g2"]),
    ("nothing is asked for", [slice_of("s", FOUR)], [], [claim("c")], []),
]  # fmt: skip


@pytest.mark.parametrize(("slices", "held", "claims", "expected"), [row[1:] for row in FITS], ids=[r[0] for r in FITS])
def test_which_devices(
    slices: Iterable[KubeSlice], held: Sequence[KubeDraClaim], claims: Sequence[KubeDraClaim], expected: list[str]
) -> None:
    known = devices(slices, held)
    found = known.allocate(N1, claims)
    assert [each for one in found for each in names(one)] == expected
    assert found == known.allocate(N1, claims)


REFUSED: list[tuple[str, Iterable[KubeSlice], Sequence[KubeDraClaim], KubeDraClaim, str]] = [
    ("too few", [slice_of("s", FOUR)], [claim("a", given=["n1/g0"])], claim("c", asks(count=3)),
     "claim c: gpus needs 3, 4 match, 3 free, 1 of them tainted"),
    ("none of a list", [slice_of("s", FOUR)], [],
     claim("c", asks(alternatives=[asks("b", 2, "gpu.nvidia.com", H200), asks("f", 5)])),
     "claim c: gpus/b needs 2, 1 match, 1 free; gpus/f needs 5, 4 match, 4 free, 1 of them tainted"),
    ("all, and one is taken", [slice_of("s", FOUR[:2])], [claim("a", given=["n1/g1"])],
     claim("c", asks(allocationMode="All")), "claim c: gpus needs 2, 2 match, 1 free"),
    ("all, and one is tainted", [slice_of("s", FOUR)], [], claim("c", asks(allocationMode="All")),
     "claim c: gpus needs 4, 4 match, 4 free, 1 of them tainted"),
    ("all of nothing", [slice_of("s", FOUR)], [], claim("c", asks("mig", klass="mig.nvidia.com", allocationMode="All")),
     "claim c: mig needs 1, 0 match, 0 free"),
    ("all, of a pool that is not there yet", [slice_of("s", FOUR, resourceSliceCount=2)], [],
     claim("c", asks(allocationMode="All")),
     "claim c, request gpus: asks for all devices, and pool gpu.nvidia.com/n1 is being published"),
    ("no class", [slice_of("s", FOUR)], [], claim("c", asks(klass="tpu")),
     "claim c, request gpus: there is no device class tpu"),
    ("a pool that is not there yet", [slice_of("s", FOUR, resourceSliceCount=2)], [], claim("c", asks()),
     "claim c: gpus needs 1, 0 match, 0 free"),
    ("roots that do not match", [slice_of("s", [roots("g0", "pci0"), roots("g1", "pci1"), gpu("g2")])], [],
     claim("c", asks(count=2), constraints=[{"matchAttribute": ROOT}]),
     "no choice of its devices satisfies all requests and constraints at once"),
    ("MIG devices that overlap", MIG_SLICES, [claim("a", given=["n1/3g-0"])],
     claim("c", asks("mig", 4, "mig.nvidia.com")),
     "no choice of its devices satisfies all requests and constraints at once"),
    ("more than a claim may have", [slice_of("s", [gpu(f"g{at}") for at in range(33)])], [], claim("c", asks(count=33)),
     "no choice of its devices satisfies all requests and constraints at once"),
    ("no share is left", [slice_of("s", [shared("g0")])], [], claim("c", asks("x"), asks("y")),
     "no choice of its devices satisfies all requests and constraints at once"),
    ("a capacity that no device has", [slice_of("s", FOUR)], [],
     claim("c", asks(capacity={"requests": {"bandwidth": "1"}})), "claim c: gpus needs 1, 0 match, 0 free"),
    ("a constraint of a new kind", [slice_of("s", FOUR)], [], claim("c", asks(), constraints=[{"nearAttribute": "x"}]),
     "claim c: a constraint is of a kind that is not known"),
]  # fmt: skip


@pytest.mark.parametrize(("slices", "held", "asked", "why"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED])
def test_why_not(slices: Iterable[KubeSlice], held: Sequence[KubeDraClaim], asked: KubeDraClaim, why: str) -> None:
    assert devices(slices, held).refusal(N1, [asked]) == why


def test_a_selector_that_cannot_be_evaluated_matches_nothing_and_is_noted() -> None:
    picky = f"device.attributes['{DRIVER}'].generation > 3"
    known = devices([slice_of("s", [gpu("g0"), gpu("g1", generation=4)])])
    (found,) = known.allocate(N1, [claim("c", asks("gpus", 1, "gpu.nvidia.com", picky))])
    assert names(found) == ["gpus:g1"]
    assert known.notes == {"claim c, request gpus, selector 0": "cannot be evaluated: the device has no generation"}


def test_a_claim_with_devices_ties_its_pod_to_their_node() -> None:
    known = devices([slice_of("s", FOUR)])
    has = claim("c", asks())
    (has.status.allocation,) = known.allocate(N1, [has])
    assert known.refusal(N1, [has]) == ""
    assert known.refusal(Place("n2", {}), [has]) == "claim c has devices that n2 does not reach"


def test_hinted_devices_are_taken_where_that_is_possible() -> None:
    known = devices([slice_of("s", FOUR)], [claim("a", given=["n1/g1"])])
    for hint, expected in (("g2", "g2"), ("g1", "g0"), ("g3", "g0")):
        (found,) = known.allocate(N1, [claim("c", asks())], hint={(DRIVER, "n1", hint)})
        assert names(found) == [f"gpus:{expected}"], hint


CONFIGURED: KubeClass = device_class(
    "gpu.nvidia.com", f"device.driver == '{DRIVER}'", config=[{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]
)


def test_what_is_written() -> None:
    known = devices([slice_of("s", [shared("g0", default="8Gi", validRange={"min": "8Gi", "step": "4Gi"})])],
                    classes=[CONFIGURED, *CLASSES[1:]])  # fmt: skip
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"sharing": "MPS"}}}
    asked = claim("c", asks("x", **wants("9Gi")), asks("y", 1, "any"),
                  config=[{"requests": ["x"], **opaque}, {"requests": ["z"], **opaque}])  # fmt: skip
    (found,) = known.allocate(N1, [asked], timestamp="2026-11-30T17:00:00Z")
    x, y = (str(one.share_id) for one in found.devices.results)
    assert x != y
    assert msgspec.to_builtins(found) == {
        "devices": {
            "results": [
                {"request": "x", "driver": DRIVER, "pool": "n1", "device": "g0", "shareID": x,
                 "consumedCapacity": {"memory": "12Gi"}},
                {"request": "y", "driver": DRIVER, "pool": "n1", "device": "g0", "shareID": y,
                 "consumedCapacity": {"memory": "8Gi"}},
            ],
            "config": [
                {"source": "FromClass", "requests": ["x"], "opaque": {"driver": DRIVER, "parameters": {"a": 1}}},
                {"source": "FromClaim", "requests": ["x"], **opaque},
            ],
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
        "allocationTimestamp": "2026-11-30T17:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"allNodes": True}, None),
        ({"allNodes": True, "bindsToNode": True}, {"metadata.name": ["n1"]}),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a"]}]}]}}, {"zone": ["a"]}),
    ],
)  # fmt: skip
def test_which_nodes_reach_what_was_given(device: dict[str, Any], expected: dict[str, list[str]] | None) -> None:
    known = devices([slice_of("s", [gpu("g0") | device], node=None, perDeviceNodeSelection=True)])
    (found,) = known.allocate(N1, [claim("c", asks())])
    assert selected(found) == expected


def selected(found: DraAllocation) -> dict[str, list[str]] | None:
    if found.node_selector is None:
        return None
    (term,) = found.node_selector.node_selector_terms or ()
    return {one.key: one.values or [] for one in (*(term.match_expressions or ()), *(term.match_fields or ()))}


def test_a_node_with_many_equal_devices_is_decided_soon() -> None:
    """Without knowing that they are alike, choosing 8 of 64 that never have a root in common would take for ever."""
    many = [roots(f"g{at:02}", f"pci{at % 16}") for at in range(64)]
    known = devices([slice_of("s", many)])
    why = known.refusal(N1, [claim("c", asks(count=8), constraints=[{"matchAttribute": ROOT}])])
    assert why == "no choice of its devices satisfies all requests and constraints at once"
    assert not known.refusal(N1, [claim("c", asks(count=4), constraints=[{"matchAttribute": ROOT}])])
