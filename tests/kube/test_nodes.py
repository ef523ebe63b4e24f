"""What a node's labels, resources and annotations say of its GPUs and its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.kube.gpus import carve
from muster.kube.translate import Translation
from muster.model.fleet import Node
from muster.model.plan import Place

from .objects import NOW_S, node, pod, thing, translated

H100 = "NVIDIA-H100-80GB-HBM3"


def gpu_node(name: str, resources: dict[str, Any], labels: dict[str, str], **more: Any) -> dict[str, Any]:
    made = node(name, 0, {"nvidia.com/gpu.product": H100, "nvidia.com/gpu.memory": "81559"} | labels)
    made["status"]["capacity"] = made["status"]["allocatable"] | {key: str(value) for key, value in resources.items()}
    made["status"]["allocatable"] = made["status"]["capacity"] | {
        key: str(value) for key, value in more.get("allocatable", {}).items()
    }
    made["metadata"]["annotations"] = more.get("annotations", {})
    return made


def asking(name: str, limits: dict[str, Any], on: str | None = None, **more: Any) -> dict[str, Any]:
    resources = {"limits": {"cpu": "1", "memory": "1Gi"} | {key: str(value) for key, value in limits.items()}}
    return pod(
        name,
        0,
        on,
        **more
        | {"spec": {"containers": [{"resources": resources}]} | more.get("spec", {})}
        | ({"spec": {"containers": [{"resources": resources}], "nodeName": on} | more.get("spec", {})} if on else {}),
    )


def only(found: Translation) -> Node:
    (one,) = found.snapshot.fleet.nodes
    return one


def starts(found: Translation) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """What a cycle of the engine starts, and where: the snapshot is one that it can work on."""
    plan = Scheduler(found.snapshot, Config()).cycle(NOW_S)
    started = [each for each in plan.decisions if isinstance(each, Place)]
    return {each.workload: [(place.node, place.devices) for place in each.pods] for each in started}


def test_whole_gpus_of_which_some_are_withdrawn() -> None:
    found = only(translated(gpu_node("n", {"nvidia.com/gpu": 8}, {}, allocatable={"nvidia.com/gpu": 7})))
    assert (len(found.devices), found.healthy_gpus, found.sharing) == (8, 7, "soft")
    assert (found.devices[0].model, found.devices[0].memory_bytes) == (H100, 81559 * 2**20)


def test_mig_of_strategy_mixed_is_carved_alike_on_all_gpus_of_which_the_labels_tell() -> None:
    resources = {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8}
    made = gpu_node("n", resources, {"nvidia.com/gpu.count": "8"})
    found = translated(
        made, asking("a", {"nvidia.com/mig-3g.40gb": 1}), asking("b", {"nvidia.com/mig-1g.10gb": 1}, "n")
    )
    one = only(found)
    assert (len(one.devices), one.sharing) == (8, "mig")
    assert {tuple(sorted(profile for profile, _ in device.mig_profiles)) for device in one.devices} == {
        ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")
    }
    assert found.snapshot.running[0].pods[0].mig == "1g.10gb"
    assert list(starts(found)) == ["ns/a"]
    assert found.notes == ()


def test_mig_of_strategy_single_is_what_a_gpu_is_on_that_node() -> None:
    made = gpu_node("n", {"nvidia.com/gpu": 14}, {"nvidia.com/gpu.product": f"{H100}-MIG-1g.10gb"})
    found = translated(made, *(asking(f"p{at}", {"nvidia.com/gpu": 1}, "n") for at in range(13)),
                       *(asking(f"w{at}", {"nvidia.com/gpu": 1}) for at in range(2)))  # fmt: skip
    one = only(found)
    assert (len(one.devices), one.devices[0].model, one.sharing) == (2, H100, "mig")
    assert len(found.snapshot.running) == 13
    assert len(starts(found)) == 1


def test_replicas_by_time_slicing_without_another_name() -> None:
    labels = {"nvidia.com/gpu.product": f"{H100}-SHARED", "nvidia.com/gpu.replicas": "4"}
    found = translated(gpu_node("n", {"nvidia.com/gpu": 32}, labels), asking("a", {"nvidia.com/gpu": 1}))
    one = only(found)
    assert (len(one.devices), one.sharing) == (8, "time-slicing")
    shape = found.snapshot.pending[0].pod_sets[0].shape
    assert (shape.gpus, shape.gpu_milli, shape.sharing) == (1, 250, "time-slicing")
    assert starts(found) == {"ns/a": [("n", (0,))]}


def test_replicas_by_mps_of_a_resource_of_its_own() -> None:
    labels = {"nvidia.com/gpu.replicas": "2", "nvidia.com/gpu.sharing-strategy": "mps"}
    pods = [asking(f"p{at}", {"nvidia.com/gpu.shared": 1}, "n") for at in range(3)]
    found = translated(gpu_node("n", {"nvidia.com/gpu.shared": 4}, labels), *pods)
    assert (len(only(found).devices), only(found).sharing) == (2, "mps")
    assert [run.pods[0].devices for run in found.snapshot.running] == [(0,), (0,), (1,)]


def test_a_pod_that_may_land_on_whole_gpus_and_on_parts_counts_as_whole_and_is_noted() -> None:
    labels = {"nvidia.com/gpu.product": f"{H100}-SHARED", "nvidia.com/gpu.replicas": "4"}
    nodes = [gpu_node("shared", {"nvidia.com/gpu": 32}, labels), node("whole")]
    asked = {"nvidia.com/gpu.product": f"{H100}-SHARED"}
    found = translated(*nodes, asking("any", {"nvidia.com/gpu": 1}),
                       asking("picks", {"nvidia.com/gpu": 1}, spec={"nodeSelector": asked}))  # fmt: skip
    milli = {name: seen.workload.pod_sets[0].shape.gpu_milli for name, seen in found.seen.items()}
    assert milli == {"ns/any": 1000, "ns/picks": 250}
    assert [(each.name, each.field) for each in found.notes] == [("ns/any", "spec.nodeSelector")]


def test_shares_by_hami() -> None:
    register = [{"id": f"GPU-{at}", "count": 10, "devmem": 80000, "devcore": 100, "type": f"NVIDIA-{H100}",
                 "health": at > 0} for at in range(2)]  # fmt: skip
    made = gpu_node("n", {"nvidia.com/gpu": 20}, {}, annotations={"hami.io/node-nvidia-register": json.dumps(register)})
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 20000, "nvidia.com/gpucores": 30}
    found = translated(made, asking("a", limits, "n"), asking("b", limits))
    one = only(found)
    assert ([device.healthy for device in one.devices], one.sharing) == ([False, True], "soft")
    assert found.snapshot.pending[0].pod_sets[0].shape.gpu_milli == 300
    assert found.snapshot.running[0].pods[0].devices == (1,)
    assert starts(found) == {"ns/b": [("n", (1,))]}


@pytest.mark.parametrize(
    ("annotations", "gpus", "milli"),
    [
        ({"gpu-fraction": "0.5"}, 1, 500),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, 2, 250),
        ({"gpu-memory": "40779"}, 1, 500),
        ({"gpu-fraction": "lots"}, 0, 1000),
    ],
)
def test_shares_by_kai(annotations: dict[str, str], gpus: int, milli: int) -> None:
    found = translated(node("n"), pod("a", 0, annotations=annotations))
    shape = found.snapshot.pending[0].pod_sets[0].shape
    assert (shape.gpus, shape.gpu_milli) == (gpus, milli)
    assert bool(found.notes) == (gpus == 0)


def test_a_pod_by_which_kai_keeps_a_gpu_for_shares_holds_none_itself() -> None:
    keeper = pod("gpu-reservation-x", 1, "n", metadata={"namespace": "kai-resource-reservation"})
    found = translated(node("n"), keeper, pod("a", 0, "n", annotations={"gpu-fraction": "0.5"}))
    assert [run.pods[0].devices for run in found.snapshot.running] == [(), (0,)]


def test_devices_that_are_not_understood_are_noted_once() -> None:
    pods = [asking(f"p{at}", {"habana.ai/gaudi": 1, "rdma/hca": 1}) for at in range(1000)]
    assert [(each.name, each.count, each.text) for each in translated(node("n"), *pods).notes] == [
        ("ns/p0", 1000, f"{name} is not counted: nodes without it would refuse the pod")
        for name in ("habana.ai/gaudi", "rdma/hca")
    ]


def test_levels_are_those_of_the_topology_object_and_the_nvlink_domain() -> None:
    levels = [{"nodeLabel": "example.com/hall"}, {"nodeLabel": "cloud.provider.com/topology-rack"},
              {"nodeLabel": "kubernetes.io/hostname"}]  # fmt: skip
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "t"},
                "spec": {"levels": levels}}  # fmt: skip
    labels = {"example.com/hall": "h1", "cloud.provider.com/topology-rack": "r1", "nvidia.com/gpu.clique": "c.1",
              "topology.kubernetes.io/zone": "z"}  # fmt: skip
    ask = pod("a", 8, annotations={"kueue.x-k8s.io/podset-required-topology": "example.com/hall"})
    found = translated(topology, node("n", labels=labels), ask)
    assert found.snapshot.fleet.topology.levels == ("hall", "rack", "nvlink_domain")
    assert only(found).topology == ("h1", "r1", "c.1")
    assert (request := found.snapshot.pending[0].topology) is not None
    assert request.required == "hall"


@pytest.mark.parametrize(
    ("labels", "levels"),
    [
        (
            {"topology.k8s.aws/network-node-layer-1": "a", "topology.k8s.aws/network-node-layer-3": "b"},
            ("core", "rack"),
        ),
        ({"fabric.topograph.run/tier-0": "leaf", "accelerator.topograph.run/domain": "d"}, ("rack", "nvlink_domain")),
        ({"network.topology.nvidia.com/spine": "s", "topology.kubernetes.io/region": "r"}, ("region", "block")),
    ],
)
def test_levels_by_the_labels_of_clouds_and_topograph(labels: dict[str, str], levels: tuple[str, ...]) -> None:
    assert translated(node("n", labels=labels), node("cpu", 0)).snapshot.fleet.topology.levels == levels


def test_how_a_node_is_paid_for_and_what_shuts_it() -> None:
    cordoned = node("b", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}])
    found = translated(node("a", labels={"karpenter.sh/capacity-type": "spot"}), cordoned)
    one, other = found.snapshot.fleet.nodes
    assert (one.purchase, one.flavor) == ("spot", f"{H100}/spot")
    assert (other.schedulable, other.reason, other.taints[0].key) == (False, "cordoned", "k")


CLOSED = "node.kubernetes.io/"


@pytest.mark.parametrize(
    ("unschedulable", "ready", "keys", "kept"),
    [
        (True, "True", ("unschedulable",), ()),
        (None, "False", ("not-ready",), ()),
        (None, "Unknown", ("unreachable",), ()),
        (True, "True", ("unschedulable", "disk-pressure"), ("disk-pressure",)),
        (None, "True", ("not-ready",), ("not-ready",)),  # the controller has not caught up: the taint still counts
    ],
)
def test_a_taint_that_only_says_that_a_node_is_closed_is_no_obstacle_of_its_own(
    unschedulable: bool | None, ready: str, keys: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    found = node(
        "n", unschedulable=unschedulable, taints=[{"key": CLOSED + key, "effect": "NoSchedule"} for key in keys]
    )
    found["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    (one,) = translated(found).snapshot.fleet.nodes
    assert [taint.key for taint in one.taints] == [CLOSED + key for key in kept]


def test_instances_that_are_not_alike_on_all_gpus() -> None:
    layouts = carve("H100-SXM5-80GB", (("1g.10gb", 3), ("3g.40gb", 3)))
    assert layouts is not None
    assert sorted(profile for layout in layouts for profile, _ in layout) == ["1g.10gb"] * 3 + ["3g.40gb"] * 3
    assert carve("H100-SXM5-80GB", (("9g.10gb", 1),)) is None
    assert carve("MI300X", (("1g.10gb", 1),)) is None


def test_an_affinity_that_no_selector_says_is_a_mark_on_the_nodes_that_it_takes() -> None:
    terms = thing("""
      nodeSelectorTerms:
      - matchExpressions: [{key: tier, operator: In, values: [a, b]}, {key: old, operator: DoesNotExist}]
      - matchFields: [{key: metadata.name, operator: In, values: [n4]}]
    """)
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    nodes = [node("n1", labels={"tier": "a"}), node("n2", labels={"tier": "b", "old": "x"}), node("n3"), node("n4")]
    found = translated(*nodes, pod("p", 8, spec=spec))
    (mark,) = found.snapshot.pending[0].pod_sets[0].shape.node_selector
    assert [each.name for each in found.snapshot.fleet if mark in each.labels] == ["n1", "n4"]
    assert starts(found) == {"ns/p": [("n1", tuple(range(8)))]}


def test_pods_of_a_daemon_set_are_alike_on_all_nodes() -> None:
    def of_set(name: str, node: str, on: str | None) -> dict[str, Any]:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        return pod(name, 0, on, owner="DaemonSet/agent", spec={"affinity": required} | ({"nodeName": on} if on else {}))

    nodes = [node(f"n{at}") for at in range(3)]
    found = translated(*nodes, of_set("a", "n0", "n0"), of_set("b", "n1", "n1"), of_set("c", "n2", None))
    assert len({run.workload.pod_sets for run in found.snapshot.running}) == 1
    assert found.snapshot.pending[0].pod_sets[0].shape.node_selector == (("kubernetes.io/hostname", "n2"),)
    assert not any("muster.dev" in key for each in found.snapshot.fleet for key, _ in each.labels)
