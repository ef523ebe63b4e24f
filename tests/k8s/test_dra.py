"""Which devices claims get, beside what kube-scheduler itself gives them: both find devices, or neither does.

Each round gives every node devices of its own, and each node two pods in turn, with claims at random.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.kube.dra.building import CLASSES, asks, claim, gpu
from tests.kube.dra.test_allocate_exact import matching, nodes, plain, pods, right
from tests.kube.dra.test_cel import EXPRESSIONS, PUBLISHED

from controlplane import Cluster, Settings, Shape
from muster.answers.dra.check import TEMPLATE, Asking
from muster.answers.dra.template import class_object, template_objects
from muster.answers.dra.ways import FEATURE_LABELS, INSTANCE, WHOLE, Way
from muster.kube.dra.allocate import Devices
from muster.kube.dra.amounts import Allocated
from muster.kube.dra.objects import DraAllocation, KubeDraClaim, KubeSlice
from muster.kube.dra.pools import Inventory, Place

pytestmark = pytest.mark.slow
DRA = "/apis/resource.k8s.io/v1"
NODES = 20
Device = dict[str, Any]


@pytest.fixture(scope="module")
def dra(kubernetes: str) -> Iterator[Cluster]:
    """A cluster with kube-scheduler whose nodes publish what the tests say."""
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
    for each in claims:
        name = f"{pod}-{each.metadata.name}"
        spec = stripped(msgspec.to_builtins(each.spec))
        cluster.api.post(f"{DRA}/namespaces/{namespace}/resourceclaims", {"metadata": {"name": name}, "spec": spec})
        entries.append({"name": each.metadata.name, "resourceClaimName": name})
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
    for number, (each, allocation) in enumerate(zip(claims, found, strict=True)):
        asked = {name: one for request in each.spec.devices.requests or () for name, one in plain(request)}
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
NAMES = [f"gpu-{number:03d}" for number in range(1, NODES + 1)]


def withdraw(cluster: Cluster) -> None:
    """No devices are published any more."""
    for one in cluster.api.items(f"{DRA}/resourceslices"):
        cluster.api.delete(f"{DRA}/resourceslices/{one['metadata']['name']}")


def compare(dra: Cluster, namespace: str, each: list[Any], number: int, held: dict[str, set[str]]) -> Counter[bool]:
    """The pods of one turn, on all nodes: how many kube-scheduler placed, and how many not, as we say ourselves."""
    asked = {name: one[number] for name, one in zip(NAMES, each, strict=True)}
    slices, before = listed(dra, namespace)
    ours = Devices(Inventory(slices), {one.metadata.name: one for one in CLASSES}, Allocated(before.values()))
    created = {name: create(dra, namespace, name, number, asked[name]) for name in NAMES}
    said = scheduled(dra, namespace, list(created.values()))
    _, after = listed(dra, namespace)
    for at, name in enumerate(NAMES):
        ask = [after[f"{created[name]}-{one.metadata.name}"] for one in asked[name]]
        found = [one.status.allocation for one in ask]
        for one in ask:
            one.status.allocation = None
        why = ours.refusal(Place(name, {}), ask)
        assert said[created[name]] == (not why), (name, each[at], why)
        if said[created[name]] and number == 1:
            taken = given_out(ask, found, each[at][0])
            assert right(ask, each[at][0], held[name], taken)
            held[name] = {one["name"] for *_, one in taken}
    return Counter(said.values())


def test_kube_scheduler_finds_devices_exactly_where_we_do(dra: Cluster) -> None:
    counted: Counter[bool] = Counter()

    @settings(
        max_examples=6, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )  # fmt: skip
    @given(turn=ROUND)
    def rounds(turn: Round) -> None:
        withdraw(dra)
        for name, (devices, _, _) in zip(NAMES, turn.nodes, strict=True):
            publish(dra, name, devices)
        with dra.namespace(f"dra-{time.monotonic_ns()}") as namespace:
            held: dict[str, set[str]] = {name: set() for name in NAMES}
            for number in (1, 2):
                counted.update(compare(dra, namespace, turn.nodes, number, held))

    rounds()
    assert min(counted[True], counted[False]) > NODES, counted


def test_kube_scheduler_says_the_same_of_selectors(dra: Cluster) -> None:
    """Each expression of the table in a claim of its own, with a device like the table's for each."""
    withdraw(dra)
    node = NAMES[0]
    publish(dra, node, [PUBLISHED | {"name": f"gpu-{at}"} for at in range(len(EXPRESSIONS))])
    with dra.namespace("selectors") as namespace:
        asked = [claim("c", asks("gpus", 1, "any", expression)) for expression, _ in EXPRESSIONS]
        pods = [create(dra, namespace, node, at, [one]) for at, one in enumerate(asked)]
        said = scheduled(dra, namespace, pods)
    wrong = {expression: said[pod] for (expression, answer), pod in zip(EXPRESSIONS, pods, strict=True)
             if said[pod] is not answer}  # fmt: skip
    assert wrong == {}


def test_the_server_takes_what_we_write(dra: Cluster) -> None:
    """Shares, constraints, prioritized lists, tolerations and administrators' access, as status.allocation."""
    withdraw(dra)
    node = NAMES[1]
    shared = gpu("gpu-2", memory="80Gi") | {"allowMultipleAllocations": True}
    shared["capacity"]["memory"]["requestPolicy"] = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "5Gi"}}
    publish(dra, node, [gpu("gpu-0", side=1, taints=["sick:NoSchedule"]), gpu("gpu-1", side=1), shared])
    bears = {"tolerations": [{"key": "sick", "operator": "Exists"}]}
    side = [{"matchAttribute": "gpu.nvidia.com/side"}]
    opaque = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}}
    claims = [
        claim("pair", asks(count=2, **bears), constraints=side, config=[{"requests": ["gpus"], **opaque}]),
        claim("share", asks(capacity={"requests": {"memory": "12Gi"}})),
        claim("list", asks("x", alternatives=[asks("many", 9), asks("one")])),
    ]
    with dra.namespace("written") as namespace:
        slices, _ = listed(dra, namespace)
        held = Allocated()
        for one in claims:
            one.metadata.namespace = namespace
            spec = stripped(msgspec.to_builtins(one.spec))
            path = f"{DRA}/namespaces/{namespace}/resourceclaims"
            made = dra.api.post(path, {"metadata": {"name": one.metadata.name}, "spec": spec})
            known = Devices(Inventory(slices), {each.metadata.name: each for each in CLASSES}, held)
            (one.status.allocation,) = known.allocate(Place(node, {}), [one], timestamp="2026-11-30T17:00:00Z")
            held.add(one)
            made["status"] = {"allocation": msgspec.to_builtins(one.status.allocation)}
            dra.api.put(f"{path}/{one.metadata.name}/status", made)
            back = dra.api.get(f"{path}/{one.metadata.name}")["status"]["allocation"]
            assert msgspec.convert(back, DraAllocation) == one.status.allocation


def test_the_server_takes_the_templates_of_the_check(dra: Cluster) -> None:
    ways = [
        Way(WHOLE, "", 8, "nvidia.com/gpu", labels=tuple((key, ("9",)) for key in FEATURE_LABELS)),
        Way(INSTANCE, "", 1, "nvidia.com/mig-1g.10gb", "1g.10gb"),
        Way(WHOLE, "", 1, "amd.com/gpu"),
    ]
    for at, way in enumerate(ways):
        asking = Asking(f"default/work-{at}", 1, "", "", TEMPLATE, "", way)
        (template,), _ = template_objects(asking)
        dra.api.post(f"{DRA}/namespaces/default/resourceclaimtemplates", template, dryRun="All")
        dra.api.post(f"{DRA}/deviceclasses", class_object(asking), dryRun="All")
