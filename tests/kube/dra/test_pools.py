"""Which devices of which pools a node reaches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kube.dra.building import N1, gpu, slice_of, taint

from muster.kube.dra.objects import KubeSlice, KubeTaintRule
from muster.kube.dra.pools import Inventory, Place

ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
ZONE_B = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}


def reached(slices: list[KubeSlice], place: Place = N1) -> list[str]:
    """``POOL/DEVICE`` of usable pools; ``POOL: why`` of others."""
    found: list[str] = []
    for pool in Inventory(slices).at(place):
        if pool.incomplete:
            found.append(f"{pool.name}: {pool.incomplete[0]} of {pool.incomplete[1]} slices")
        elif pool.invalid:
            found.append(f"{pool.name}: {pool.invalid}")
        else:
            found += [f"{pool.name}/{device.device.name}" for device in pool.devices]
    return found


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([slice_of("s", [gpu("g0"), gpu("g1")])], ["n1/g0", "n1/g1"], id="of the node"),
        pytest.param([slice_of("s", [gpu("g0")], node="n2")], [], id="of another node"),
        pytest.param([slice_of("s", [gpu("g0")], resourceSliceCount=2)], ["n1: 1 of 2 slices"], id="incomplete"),
        pytest.param(
            [slice_of("s", [gpu("g0")], resourceSliceCount=2), slice_of("t", [gpu("g1")], resourceSliceCount=2)],
            ["n1/g0", "n1/g1"],
            id="two slices",
        ),
        pytest.param(
            [slice_of("s", [gpu("g0")]), slice_of("t", [gpu("g1")], generation=2)], ["n1/g1"], id="newest generation"
        ),
        pytest.param(
            [slice_of("s", [gpu("g0")], pool="p"), slice_of("t", [gpu("g1")], pool="p", node="n2", generation=2)],
            [],
            id="newest generation is elsewhere",
        ),
        pytest.param([slice_of("s", [gpu("g0"), gpu("g0")])], ["n1: device g0 is there twice"], id="twice"),
        pytest.param([slice_of("s", [gpu("g0")], node=None, allNodes=True)], ["s/g0"], id="all nodes"),
        pytest.param([slice_of("s", [gpu("g0")], node=None, nodeSelector=ZONE_A)], ["s/g0"], id="selected"),
        pytest.param([slice_of("s", [gpu("g0")], node=None, nodeSelector=ZONE_B)], [], id="not selected"),
        pytest.param([slice_of("s", [gpu("g0")], node=None)], [], id="tied to nothing that is known"),
        pytest.param(
            [
                slice_of(
                    "s",
                    [gpu("g0") | {"nodeName": "n1"}, gpu("g1") | {"nodeName": "n2"}, gpu("g2") | {"allNodes": True},
                     gpu("g3") | {"nodeSelector": ZONE_B}],
                    node=None, perDeviceNodeSelection=True,
                )
            ],
            ["s/g0", "s/g2"],
            id="device by device",
        ),
        pytest.param(
            [slice_of("s", [gpu("g0") | {"consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": 1}}}]}])],
            ["n1: there is no counter m in a counter set c"],
            id="unknown counter",
        ),
        pytest.param(
            [slice_of("s", [{"name": "g0", "basic": {"attributes": {"type": {"string": "gpu"}}}}])], ["n1/g0"],
            id="as v1beta1 has it",
        ),
    ],
)  # fmt: skip
def test_what_a_node_reaches(slices: list[KubeSlice], expected: list[str]) -> None:
    assert reached(slices) == expected


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ["a", "c"], True), ("NotIn", ["a"], False), ("Exists", [], True), ("DoesNotExist", [], False),
        ("Gt", ["1"], False), ("Near", ["a"], False),
    ],
)  # fmt: skip
def test_selectors_of_nodes(operator: str, values: list[str], selected: bool) -> None:
    term: dict[str, Any] = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    slices = [slice_of("s", [gpu("g0")], node=None, nodeSelector={"nodeSelectorTerms": [term]})]
    assert (reached(slices) == ["s/g0"]) is selected


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({"driver": "gpu.nvidia.com"}, ["g0", "g1"]),
        ({"pool": "n1", "device": "g1"}, ["g1"]),
        ({"pool": "n2"}, []),
        ({}, ["g0", "g1"]),
        (None, []),
    ],
)
def test_taint_rules(selector: dict[str, str] | None, tainted: list[str]) -> None:
    from msgspec import convert

    spec = {"taint": taint("repair=now:NoSchedule"), "deviceSelector": selector}
    rule = convert({"metadata": {"name": "r"}, "spec": spec}, KubeTaintRule)
    (pool,) = Inventory([slice_of("s", [gpu("g0"), gpu("g1")])], [rule]).at(N1)
    assert [device.device.name for device in pool.devices if device.taints] == tainted
