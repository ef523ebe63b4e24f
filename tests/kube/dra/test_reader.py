"""A cluster whose GPUs are published by drivers, as the engine has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import convert
from tests.kube.dra.building import CLASSES, DRIVER, asks, claim, device_class, gpu, slice_of, taint
from tests.kube.dra.test_allocate import MIG_SLICES

from muster.engine.config import Config
from muster.engine.decide import decide
from muster.kube.dra.objects import KubeClaimTemplate, KubeComputeDomain, KubeDraClaim, KubeSlice, KubeTaintRule
from muster.kube.groups import KubePodGroup
from muster.kube.kinds import (
    CLAIM_TEMPLATES,
    CLAIMS,
    COMPUTE_DOMAINS,
    NODES,
    POD_GROUPS,
    PODS,
    SLICES,
    TAINT_RULES,
)
from muster.kube.kinds import (
    CLASSES as CLASS_KIND,
)
from muster.kube.marks import label_words
from muster.kube.objects import KubeNode, KubePod, SchedulingGroup, Terms
from muster.kube.translate import Translation, Translator
from muster.kube.world import World
from muster.model.plan import Place, PodPlacement
from muster.model.workload import PodShape

SIZES = {"cpu": "64", "memory": "512Gi", "pods": "110"}
A100 = {"productName": "NVIDIA A100-SXM4-80GB"}


def node(name: str = "n1", labels: dict[str, str] | None = None, *, gpus: int = 0) -> KubeNode:
    """A node; ``gpus`` are those of its device plugin."""
    everything = {**SIZES, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    status = {"allocatable": everything, "capacity": everything}
    return convert({"metadata": {"name": name, "labels": labels or {}}, "status": status}, KubeNode)


def pod(name: str, *claims: str, node: str = "", asks_for: dict[str, str] | None = None, template: str = "") -> KubePod:
    entries = [{"name": f"c{at}", "resourceClaimName": each} for at, each in enumerate(claims)]
    entries += [{"name": "t", "resourceClaimTemplateName": template}] if template else []
    spec: dict[str, Any] = {
        "containers": [{"resources": {"requests": {"cpu": "1", **(asks_for or {})}}}], "resourceClaims": entries
    }  # fmt: skip
    if node:
        spec["nodeName"] = node
    status = {"phase": "Running" if node else "Pending"}
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return convert({"metadata": meta, "spec": spec, "status": status}, KubePod)


def template(name: str, *requests: dict[str, Any]) -> KubeClaimTemplate:
    spec = {"spec": {"devices": {"requests": list(requests)}}}
    return convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, KubeClaimTemplate)


def reserved(one: KubeDraClaim, *pods: str) -> KubeDraClaim:
    one.metadata.uid = f"uid-{one.metadata.name}"
    status = {"reservedFor": [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in pods]}
    one.status.reserved_for = convert(status, type(one.status)).reserved_for
    if one.status.allocation is not None:
        nodes = {one.pool for one in one.status.allocation.devices.results}
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": sorted(nodes)}]}]
        one.status.allocation.node_selector = convert({"nodeSelectorTerms": terms}, Terms)
    return one


def world(nodes: Sequence[KubeNode], slices: Sequence[KubeSlice], *objects: Any, classes: Any = CLASSES) -> World:
    found = World()
    found.put_all(NODES, nodes)
    found.put_all(SLICES, slices)
    found.put_all(CLASS_KIND, classes)
    kinds = {
        KubePod: PODS, KubeDraClaim: CLAIMS, KubeClaimTemplate: CLAIM_TEMPLATES, KubeComputeDomain: COMPUTE_DOMAINS,
        KubeTaintRule: TAINT_RULES, KubePodGroup: POD_GROUPS,
    }  # fmt: skip
    for each in objects:
        found.put(kinds[type(each)], each)
    return found


def translated(*args: Any, **more: Any) -> Translation:
    return Translator(world(*args, **more)).translate(0.0)


def devices(found: Translation) -> list[str]:
    """Each device of the first node: ``index model GiB``, with its instances and whether it is ill."""
    return [
        f"{each.index} {each.model} {each.memory_bytes >> 30}"
        + "".join(f" {profile}@{start}" for profile, start in each.mig_profiles)
        + ("" if each.healthy else " ill")
        for each in found.snapshot.fleet.nodes[0].devices
    ]


H100 = "NVIDIA-H100-80GB-HBM3"


@pytest.mark.parametrize(
    ("slices", "expected", "sharing"),
    [
        ([slice_of("s", [gpu("gpu-1"), gpu("gpu-0"), gpu("gpu-10")])], [f"{at} {H100} 80" for at in range(3)], "none"),
        ([slice_of("s", [gpu("gpu-0"), gpu("gpu-1", taints=["sick:NoSchedule"])])],
         [f"0 {H100} 80", f"1 {H100} 80 ill"], "none"),
        ([slice_of("s", [gpu("gpu-0"), gpu("gpu-1", taints=["seen:None"])])], [f"0 {H100} 80", f"1 {H100} 80"], "none"),
        ([slice_of("s", [gpu("gpu-0")], resourceSliceCount=2)], [], ""),
        ([slice_of("s", [gpu("gpu-0"), gpu("gpu-vfio-0", type="vfio")])], [f"0 {H100} 80"], "none"),
        ([slice_of("s", [gpu("gpu-0") | {"allowMultipleAllocations": True}])], [f"0 {H100} 80"], "soft"),
        ([slice_of("s", [gpu("gpu-0", **A100)])], ["0 NVIDIA-A100-SXM4-80GB 80"], "none"),
        ([slice_of("s", [{"name": "nic-0"}], driver="dra.nic.example.com")], [], ""),
        (
            [slice_of("s", [
                gpu("gpu-0-mig-9-0-4", type="mig", profile="3g.40gb", parentUUID="GPU-a"),
                gpu("gpu-0-mig-19-4-1", type="mig", profile="1g.10gb", parentUUID="GPU-a"),
                gpu("gpu-1", uuid="GPU-b"),
            ])],
            [f"0 {H100} 0 3g.40gb@0 1g.10gb@4", f"1 {H100} 80"], "",
        ),
        (
            [slice_of("s", [
                gpu("x", type="mig", profile="3g.40gb", parentUUID="GPU-a"),
                gpu("y", type="mig", profile="4g.40gb", parentUUID="GPU-a"),
            ])],
            [f"0 {H100} 0 4g.40gb@0 3g.40gb@4"], "",
        ),
        ([slice_of("s", [gpu("x", type="mig", profile="9g.1gb", parentUUID="GPU-a")])], [f"0 {H100} 0 ill"], ""),
    ],
    ids=["in order", "tainted", "noted only", "incomplete", "passthrough", "shared", "A100", "no GPUs", "carved",
         "starts are not told", "unknown instances"],
)  # fmt: skip
def test_devices_of_a_node(slices: list[KubeSlice], expected: list[str], sharing: str) -> None:
    found = translated([node()], slices)
    assert devices(found) == expected
    if not expected or "9g" not in str(slices):
        assert found.snapshot.fleet.nodes[0].sharing == sharing


def test_a_taint_rule_takes_devices_out() -> None:
    spec = {"taint": taint("repair:NoExecute"), "deviceSelector": {"pool": "n1", "device": "gpu-1"}}
    rule = convert({"metadata": {"name": "r"}, "spec": spec}, KubeTaintRule)
    found = translated([node()], [slice_of("s", [gpu("gpu-0"), gpu("gpu-1")])], rule)
    assert devices(found) == [f"0 {H100} 80", f"1 {H100} 80 ill"]


def test_a_gpu_that_is_advertised_twice_counts_once() -> None:
    """Eight by the device plugin, eight by the driver: eight; with sixteen on the node they are others."""
    eight = slice_of("s", [gpu(f"gpu-{at}") for at in range(8)])
    both = node(labels={"nvidia.com/gpu.count": "8"}, gpus=8)
    found = translated([both], [eight])
    assert len(devices(found)) == 8
    assert [str(note) for note in found.notes] == [
        "Node n1: status.allocatable: and a driver's ResourceSlice tell of the same GPUs: they count once here, and "
        "kube-scheduler gives each of them out twice"
    ]
    sixteen = node(labels={"nvidia.com/gpu.count": "16"}, gpus=8)
    found = translated([sixteen], [eight])
    assert len(devices(found)) == 16
    assert not found.notes


FLEET = [node("n1"), node("n2"), node("n3", gpus=8)]
SLICES_2 = [
    slice_of("s1", [gpu(f"gpu-{at}") for at in range(2)]),
    slice_of("s2", [gpu(f"gpu-{at}", **A100) for at in range(2)], node="n2"),
]
IS_A100 = f"device.attributes['{DRIVER}'].productName.contains('A100')"
BIG = {"capacity": {"requests": {"memory": "20Gi"}}}


def shape_of(found: Translation, name: str) -> PodShape:
    return found.seen[f"ns/{name}"].workload.pod_sets[0].shape


@pytest.mark.parametrize(
    ("request_", "gpus", "models", "nodes"),
    [
        (asks(count=2), 2, (), ["n1", "n2"]),
        (asks("g", 1, "gpu.nvidia.com", IS_A100), 1, ("NVIDIA-A100-SXM4-80GB",), ["n2"]),
        (asks(count=3), 3, (), []),
        (asks(allocationMode="All"), 2, (), ["n1", "n2"]),
        (asks(alternatives=[asks("a", 1, "gpu.nvidia.com", IS_A100), asks("b")]), 1, (), ["n1", "n2"]),
        (asks(adminAccess=True), 0, (), ["n1", "n2"]),
        (asks(klass="absent"), 0, (), []),
    ],
    ids=["whole", "one model", "more than a node has", "all", "a list", "an administrator", "no class"],
)
def test_what_a_pod_asks_for(request_: dict[str, Any], gpus: int, models: tuple[str, ...], nodes: list[str]) -> None:
    found = translated(FLEET, SLICES_2, template("t", request_), pod("p", template="t"))
    shape = shape_of(found, "p")
    assert (shape.gpus, shape.gpu_models) == (gpus, models)
    wanted = dict(shape.node_selector)
    good = [each.name for each in found.snapshot.fleet if wanted.items() <= dict(each.labels).items()]
    assert good == nodes


def test_what_a_mig_pod_and_a_share_ask_for() -> None:
    mig = translated([node()], MIG_TRUE, template("t", asks("m", 1, "mig.nvidia.com", ONE_G)), pod("p", template="t"))
    shape = shape_of(mig, "p")
    assert (shape.gpus, shape.mig_profile, shape.gpu_milli) == (1, "1g.10gb", 125)
    shared = gpu("gpu-0") | {"allowMultipleAllocations": True}
    shares = translated([node()], [slice_of("s", [shared])], template("t", asks(**BIG)), pod("p", template="t"))
    shape = shape_of(shares, "p")
    assert (shape.gpus, shape.gpu_milli, shape.sharing) == (1, 250, "soft")


ONE_G = f"device.attributes['{DRIVER}'].profile == '1g.10gb'"
MIG_TRUE = [
    MIG_SLICES[0],
    slice_of(
        "devices",
        [
            gpu("gpu-0") | {"consumesCounters": [
                {"counterSet": "gpu-0", "counters": {f"memory-slice-{at}": {"value": "1"} for at in range(8)}}]},
            *(gpu(f"gpu-0-mig-1g10gb-19-{at}", memory="10Gi", type="mig", profile="1g.10gb")
              | {"consumesCounters": [{"counterSet": "gpu-0", "counters": {f"memory-slice-{at}": {"value": "1"}}}]}
              for at in range(7)),
        ],
        resourceSliceCount=2,
    ),
]  # fmt: skip


def test_what_runs_has_the_devices_of_its_claims() -> None:
    one = reserved(claim("one", asks(), given=["n1/gpu-1"]), "p")
    found = translated(FLEET, SLICES_2, one, pod("p", "one", node="n1"), pod("q", template="t"), template("t", asks()))
    (running,) = found.snapshot.running
    assert running.pods == (PodPlacement("n1", (1,), 1000),)
    slot = reserved(claim("mig", asks(klass="mig.nvidia.com"), given=["n1/gpu-0-mig-1g10gb-19-3"]), "p")
    found = translated([node()], MIG_TRUE, slot, pod("p", "mig", node="n1"))
    assert found.snapshot.running[0].pods == (PodPlacement("n1", (0,), 125, "1g.10gb", 3),)


def test_a_claim_with_devices_ties_the_pod_that_waits() -> None:
    """Its GPU is nobody else's, and it asks for none besides: it has one."""
    one = reserved(claim("one", asks(), given=["n2/gpu-0"]))
    found = translated(FLEET, SLICES_2, one, pod("p", "one"))
    assert devices(translated([FLEET[1]], [SLICES_2[1]], one)) == [
        "0 NVIDIA-A100-SXM4-80GB 80 ill", "1 NVIDIA-A100-SXM4-80GB 80"
    ]  # fmt: skip
    shape = shape_of(found, "p")
    assert shape.gpus == 0
    wanted = dict(shape.node_selector).items()
    assert [each.name for each in found.snapshot.fleet if wanted <= dict(each.labels).items()] == ["n2"]


def test_a_claim_of_several_pods_counts_once() -> None:
    shared = reserved(claim("shared", asks(count=2), given=["n1/gpu-0", "n1/gpu-1"]), "p", "q")
    found = translated(FLEET, SLICES_2, shared, pod("p", "shared", node="n1"), pod("q", "shared", node="n1"))
    assert {run.workload.name: run.pods[0].devices for run in found.snapshot.running} == {"ns/p": (0, 1), "ns/q": ()}


@pytest.mark.parametrize("made", [True, False])
def test_a_claim_of_a_pod_group_counts_once(made: bool) -> None:
    """The group's template is made into one claim for all its pods; before that, too, one pod asks for its GPUs."""
    entry = {"name": "t", "resourceClaimTemplateName": "t"}
    statuses = [{"name": "t", "resourceClaimName": "made"}] if made else []
    group = convert(
        {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"resourceClaims": [entry]},
         "status": {"resourceClaimStatuses": statuses}},
        KubePodGroup,
    )  # fmt: skip
    pods = [pod(f"p{at}", template="t") for at in range(3)]
    for each in pods:
        each.spec.scheduling_group = SchedulingGroup("g")
    one = reserved(claim("made", asks(count=2)))
    found = translated(FLEET, SLICES_2, template("t", asks(count=2)), group, *pods, *([one] if made else []))
    gang = found.seen["ns/g"].workload
    assert [(each.count, each.shape.gpus) for each in gang.pod_sets] == [(1, 2), (2, 0)]
    assert gang.topology is not None
    assert gang.topology.required == "host"  # where its devices are


@pytest.mark.parametrize(
    ("resource", "gpus", "nodes"),
    [
        ("nvidia.com/gpu", 1, ["n1", "n2", "n3"]),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", 1, ["n1", "n2", "n3"]),
        ("example.com/unknown", 0, ["n1", "n2", "n3"]),
    ],
)
def test_extended_resources(resource: str, gpus: int, nodes: list[str]) -> None:
    """A class that stands for the device plugin's resource makes its pods run on either kind of node."""
    classes = (device_class("gpu.nvidia.com", f"device.driver == '{DRIVER}'", extendedResourceName="nvidia.com/gpu"),)
    found = translated(FLEET, SLICES_2, pod("p", asks_for={resource: "1"}), classes=classes)
    shape = shape_of(found, "p")
    assert shape.gpus == gpus
    wanted = dict(shape.node_selector).items()
    assert [each.name for each in found.snapshot.fleet if wanted <= dict(each.labels).items()] == nodes


def test_the_pods_of_a_compute_domain_stand_in_one_clique() -> None:
    spec = {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "channel"}}}
    domain = convert({"metadata": {"name": "d", "namespace": "ns"}, "spec": spec}, KubeComputeDomain)
    nodes = [node("n1", {"nvidia.com/gpu.clique": "a.1"}), node("n2", {"nvidia.com/gpu.clique": "a.2"})]
    found = translated(nodes, SLICES_2, domain, template("channel", asks()), pod("p", template="channel"))
    topology = found.seen["ns/p"].workload.topology
    assert topology is not None
    assert topology.required == "nvlink_domain"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (asks("m", 2, "mig.nvidia.com", ONE_G), "the engine plans with one MIG instance 1g.10gb"),
        (asks("g", 1, "any"), "the engine plans with whole GPUs, though MIG instances would do"),
    ],
)
def test_what_the_model_cannot_say_is_noted(request_: dict[str, Any], text: str) -> None:
    found = translated([node()], MIG_TRUE, template("t", request_), pod("p", template="t"))
    notes = [note.text for note in found.notes if note.kind == "Pod"]
    assert notes == [f"{text}; which devices it gets is decided when it is placed"]


def test_a_claim_that_is_not_there_is_noted() -> None:
    found = translated(FLEET, SLICES_2, pod("p", "gone"))
    assert [str(note) for note in found.notes] == [
        "Pod ns/p: spec.resourceClaims: claim gone is not there: it counts as none"
    ]


def test_what_no_node_could_serve_is_told_in_words() -> None:
    found = translated(FLEET, SLICES_2, template("t", asks("g", 3)), pod("p", template="t"))
    assert [note.text for note in found.notes] == [
        "no node could ever serve it: n1: claim t: g needs 3, 2 match, 2 free"
    ]
    (label,) = shape_of(found, "p").node_selector
    assert label_words(*label) == "nodes whose devices could serve claim t: 3 x gpu.nvidia.com"


def test_the_engine_places_what_claims_ask_for_where_its_devices_are() -> None:
    found = translated(
        FLEET, SLICES_2, template("t", asks("g", 2, "gpu.nvidia.com", IS_A100)), pod("p", template="t"),
        template("u", asks()), pod("q", template="u"), pod("r", template="u"), pod("s", template="u"),
    )  # fmt: skip
    plan = decide(found.snapshot, 0.0, Config())
    placed = {each.workload: each.pods for each in plan.decisions if isinstance(each, Place)}
    assert placed["ns/p"] == (PodPlacement("n2", (0, 1), 1000),)
    assert {placed[name][0].node for name in ("ns/q", "ns/r")} == {"n1"}
    assert "ns/s" not in placed  # n3 has eight GPUs, but of a device plugin
