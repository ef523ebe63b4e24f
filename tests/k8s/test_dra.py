"""Which devices claims get, beside what kube-scheduler itself gives them: both find devices, or neither does.

Each round gives every node devices of its own, and each node two pods in turn, with claims at random.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from controlplane import Cluster, Shape
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.kube.dra.building import CLASSES
from tests.kube.dra.test_allocate_exact import matching, nodes, plain, pods, right

from muster.kube.dra.allocate import Devices
from muster.kube.dra.amounts import Allocated
from muster.kube.dra.objects import DraAllocation, KubeDraClaim, KubeSlice
from muster.kube.dra.pools import Inventory, Place

DRA = "/apis/resource.k8s.io/v1"
NODES = 20
Device = dict[str, Any]


@pytest.fixture(scope="module")
def dra(kubernetes: str) -> Iterator[Cluster]:
    """A cluster with kube-scheduler whose nodes publish what the tests say."""
    from controlplane import Settings

    cluster = Cluster("test-dra", Settings((Shape(NODES, 0),), True, kubernetes))
    cluster.up(tied=True)
    for klass in CLASSES:
        body = {"metadata": {"name": klass.metadata.name}, "spec": stripped(msgspec.to_builtins(klass.spec))}
        cluster.api.post(f"{DRA}/deviceclasses", body)
    yield cluster
    cluster.down()


def publish(cluster: Cluster, node: str, devices: Sequence[Device]) -> None:
    """One pool of two slices, as the drivers do it: counters, and devices."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    common = {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": node}
    counters = [{"name": "c", "counters": {"m": {"value": "4"}}}]
    for name, more in (("counters", {"sharedCounters": counters}), ("devices", {"devices": list(devices)})):
        cluster.api.post(f"{DRA}/resourceslices", {"metadata": {"name": f"{node}-{name}"}, "spec": common | more})


def create(cluster: Cluster, namespace: str, node: str, number: int, claims: Sequence[KubeDraClaim]) -> str:
    """A pod with claims that may run on one node only; its name."""
    pod, entries = f"{node}-{number}", list[dict[str, str]]()
    for claim in claims:
        name = f"{pod}-{claim.metadata.name}"
        spec = stripped(msgspec.to_builtins(claim.spec))
        cluster.api.post(f"{DRA}/namespaces/{namespace}/resourceclaims", {"metadata": {"name": name}, "spec": spec})
        entries.append({"name": claim.metadata.name, "resourceClaimName": name})
    spec = {
        "containers": [{"name": "main", "image": "example.org/work:1"}],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "resourceClaims": entries,
    }
    cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": pod}, "spec": spec})
    return pod


def stripped(value: Any) -> Any:
    """An object as it is written: what is not set is not there, and requests have one form."""
    if isinstance(value, dict):
        kept = {key: stripped(one) for key, one in value.items() if one is not None}
        if "firstAvailable" in kept or "exactly" in kept:
            kept = {key: one for key, one in kept.items() if key in ("name", "firstAvailable", "exactly")}
        if kept.get("allocationMode") == "All":
            kept.pop("count", None)
        return kept
    return [stripped(one) for one in value] if isinstance(value, list) else value


def scheduled(cluster: Cluster, namespace: str, names: Sequence[str]) -> dict[str, bool]:
    """Whether each pod was placed; waits until kube-scheduler has said so of all."""
    deadline = time.monotonic() + 60
    while True:
        found = {each["metadata"]["name"]: each for each in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")}
        said = {
            name: condition["status"] == "True"
            for name in names
            for condition in found[name]["status"].get("conditions", [])
            if condition["type"] == "PodScheduled"
        }
        if len(said) == len(names):
            return said
        assert time.monotonic() < deadline, sorted(set(names) - set(said))
        time.sleep(0.1)


def listed(cluster: Cluster, namespace: str) -> tuple[list[KubeSlice], dict[str, KubeDraClaim]]:
    slices = [msgspec.convert(each, KubeSlice) for each in cluster.api.items(f"{DRA}/resourceslices")]
    claims = cluster.api.items(f"{DRA}/namespaces/{namespace}/resourceclaims")
    return slices, {each["metadata"]["name"]: msgspec.convert(each, KubeDraClaim) for each in claims}


def given_out(claims: Sequence[KubeDraClaim], found: Sequence[DraAllocation | None], devices: Sequence[Device]) -> Any:
    """(claim, request, what was asked, device) of all that was given, for `right`."""
    by_name = {device["name"]: device for device in devices}
    taken: list[Any] = []
    for number, (claim, allocation) in enumerate(zip(claims, found, strict=True)):
        asked = {name: one for request in claim.spec.devices.requests or () for name, one in plain(request)}
        assert allocation is not None
        for one in allocation.devices.results:
            assert by_name[one.device] in matching(asked[one.request], devices)
            taken.append((number, one.request.partition("/")[0], asked[one.request], by_name[one.device]))
    return taken


class Round:
    """Devices and two pods of each node; it shows itself in a word, as hypothesis would show all of it."""

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes

    def __repr__(self) -> str:
        return "a round"


ROUND = st.lists(st.tuples(nodes(), pods(), pods()), min_size=NODES, max_size=NODES).map(Round)


@settings(
    max_examples=6, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large,
                           HealthCheck.large_base_example],
)  # fmt: skip
@given(turn=ROUND)
def test_kube_scheduler_finds_devices_exactly_where_we_do(dra: Cluster, turn: Round) -> None:
    each = turn.nodes
    names = [f"gpu-{number:03d}" for number in range(1, NODES + 1)]
    for one in dra.api.items(f"{DRA}/resourceslices"):
        dra.api.delete(f"{DRA}/resourceslices/{one['metadata']['name']}")
    for name, (devices, _, _) in zip(names, each, strict=True):
        publish(dra, name, devices)
    with dra.namespace(f"dra-{time.monotonic_ns()}") as namespace:
        held: dict[str, set[str]] = {name: set() for name in names}
        for number in (1, 2):
            asked = {name: one[number] for name, one in zip(names, each, strict=True)}
            slices, before = listed(dra, namespace)
            ours = Devices(
                Inventory(slices), {one.metadata.name: one for one in CLASSES}, Allocated(before.values())
            )
            created = {name: create(dra, namespace, name, number, asked[name]) for name in names}
            said = scheduled(dra, namespace, list(created.values()))
            _, after = listed(dra, namespace)
            for at, name in enumerate(names):
                pod = created[name]
                ask = [after[f"{pod}-{claim.metadata.name}"] for claim in asked[name]]
                found = [claim.status.allocation for claim in ask]
                for claim in ask:
                    claim.status.allocation = None
                why = ours.refusal(Place(name, {}), ask)
                assert said[pod] == (not why), (name, each[at], why)
                if not said[pod]:
                    continue
                taken = given_out(ask, found, each[at][0])
                alone = [one for *_, one in taken if not one.get("allowMultipleAllocations")]
                if number == 1:
                    assert right(ask, each[at][0], held[name], taken)
                    shared = {one["name"] for *_, one in taken if one.get("allowMultipleAllocations")}
                    held[name] = {one["name"] for one in alone} | shared
