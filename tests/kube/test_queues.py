"""Queues of Kueue, Volcano, KAI and Muster, and what of them contradicts itself or is not counted."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.kube.translate import Translation
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason

from .objects import NOW_S, node, pod, thing, translated

H100 = "NVIDIA-H100-80GB-HBM3"


def kueue(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def quota(flavor: str, nominal: int, **limits: Any) -> dict[str, Any]:
    gpu = {"name": "nvidia.com/gpu", "nominalQuota": str(nominal)} | {key: str(each) for key, each in limits.items()}
    return {"name": flavor, "resources": [gpu, {"name": "cpu", "nominalQuota": "100"}]}


def cluster_queue(name: str, *flavors: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return kueue("ClusterQueue", name, resourceGroups=[{"flavors": list(flavors)}], **spec)


def queues(found: Translation) -> dict[str, Queue]:
    return {queue.name: queue for queue in found.snapshot.queues}


def notes(found: Translation) -> list[tuple[str, str, str]]:
    return [(each.kind, each.name, each.text) for each in found.notes]


def test_cluster_queues_and_cohorts_are_a_tree_with_quotas_of_the_flavors_of_the_nodes() -> None:
    h100 = kueue("ResourceFlavor", "h100", nodeLabels={"pool": "h100"})
    team = cluster_queue(
        "team", quota("h100", 16, borrowingLimit=8, lendingLimit=4), cohortName="all", fairSharing={"weight": "2"},
        flavorFungibility={"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
    )  # fmt: skip
    alone = cluster_queue("alone", quota("h100", 8, borrowingLimit=8))
    top = kueue("Cohort", "all", parentName="org", resourceGroups=[{"flavors": [quota("h100", 24)]}])
    found = translated(node("n1", labels={"pool": "h100"}), h100, team, alone, top)
    assert queues(found) == {
        "org": Queue("org"),
        "all": Queue("all", "org", quotas=(Quota(H100, 24000),)),
        "team": Queue("team", "all", 2.0, (Quota(H100, 16000, 8000, 4000),), when_can_borrow="try-next-flavor",
                      when_can_preempt="preempt"),
        "alone": Queue("alone", quotas=(Quota(H100, 8000),)),
    }  # fmt: skip
    assert {each.text for each in found.notes} == {"quota of cpu is not counted"}


def test_two_resource_flavors_of_one_gpu_model_are_two_flavors() -> None:
    flavors = [kueue("ResourceFlavor", name, nodeLabels={"pool": name}) for name in ("reserved", "spot")]
    both = cluster_queue("both", quota("reserved", 8), quota("spot", 16))
    found = translated(node("n1", labels={"pool": "reserved"}), node("n2", labels={"pool": "spot"}), *flavors, both)
    assert [each.flavor for each in found.snapshot.fleet] == [f"{H100}/reserved", f"{H100}/spot"]
    assert queues(found)["both"].quotas == (Quota(f"{H100}/reserved", 8000), Quota(f"{H100}/spot", 16000))


def test_a_resource_flavor_of_several_models_has_its_quota_of_each_and_says_so() -> None:
    a100 = node("n2", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    found = translated(node("n1"), a100, kueue("ResourceFlavor", "any"), cluster_queue("q", quota("any", 8)))
    assert queues(found)["q"].quotas == (Quota(H100, 8000), Quota("NVIDIA-A100-SXM4-80GB", 8000))
    assert any("its quota counts for each of them by itself" in each.text for each in found.notes)


def test_a_gang_waits_for_the_quota_of_the_cluster_queue_behind_its_local_queue() -> None:
    local = kueue("LocalQueue", "lq", clusterQueue="team")
    local["metadata"]["namespace"] = "ns"
    things = [kueue("ResourceFlavor", "any"), cluster_queue("team", quota("any", 8)), local]
    label = {"kueue.x-k8s.io/queue-name": "lq"}
    pods = [pod("a", 8, "n1", labels=label), pod("b", 8, labels=label), pod("free", 8)]
    found = translated(node("n1"), node("n2"), *things, *pods)
    assert {name: seen.workload.queue for name, seen in found.seen.items()} == {
        "ns/a": "team", "ns/b": "team", "ns/free": "no-queue",
    }  # fmt: skip
    assert found.snapshot.local_queues == (("ns/lq", "team"),)
    scheduler = Scheduler(found.snapshot, Config())
    scheduler.cycle(NOW_S)
    assert list(scheduler.waits(NOW_S)) == [("ns/b", Reason.QUOTA)]


def test_work_without_a_queue_counts_nowhere_while_all_name_one() -> None:
    label = {"kueue.x-k8s.io/queue-name": "lq"}
    things = [kueue("ResourceFlavor", "any"), cluster_queue("team", quota("any", 8))]
    assert list(queues(translated(node("n1"), *things, pod("a", 1, labels=label)))) == ["team"]


def test_queues_of_muster_go_by_a_default_and_may_be_told_by_label() -> None:
    own = thing("""
      apiVersion: muster.dev/v1alpha1
      kind: Queue
      metadata: {name: lab}
      spec:
        parent: default
        weight: 2.5
        tenant: blue
        minRuntime: 1h30m
        maxRunningPerUser: 4
        quotas: [{flavor: H100, nominal: 8, borrowingLimit: 4, lendingLimit: 2}]
    """)
    root = thing("{apiVersion: muster.dev/v1alpha1, kind: Queue, metadata: {name: default}, spec: {}}")
    found = translated(node("n1"), own, root, pod("a", 1, labels={"muster.dev/queue": "lab"}), pod("b", 1))
    assert queues(found)["lab"] == Queue(
        "lab", "default", 2.5, (Quota("H100", 8000, 4000, 2000),), 5400.0, 4000, tenant="blue"
    )
    assert {name: seen.workload.queue for name, seen in found.seen.items()} == {"ns/a": "lab", "ns/b": "default"}


def test_what_contradicts_itself_is_noted_and_the_rest_counts() -> None:
    own = [
        thing("{apiVersion: muster.dev/v1alpha1, kind: Queue, metadata: {name: a}, spec: {parent: b, weight: x}}"),
        thing("{apiVersion: muster.dev/v1alpha1, kind: Queue, metadata: {name: b}, spec: {parent: a}}"),
        thing("{apiVersion: muster.dev/v1alpha1, kind: Queue, metadata: {name: c}, spec: {parent: gone, quotas: ["
              "{flavor: H100, nominal: 1, lendingLimit: 2}, {flavor: H100, nominal: 1}]}}"),
    ]  # fmt: skip
    found = translated(node("n1"), *own)
    assert queues(found)["c"] == Queue("c", quotas=(Quota("H100", 1000),))
    assert {queues(found)[name].parent for name in "ab"} != {"a", "b"}
    assert {(each.name, each.field) for each in found.notes} == {
        ("a", "spec.weight"), ("a", "parent"), ("c", "spec.parent"), ("c", "flavor"), ("c", "lending_limit_milli"),
    }  # fmt: skip


def test_queues_of_two_systems_that_are_called_the_same_are_told_apart() -> None:
    volcano = thing("{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: default}, spec: {}}")
    kai = thing("{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: default}, spec: {}}")
    found = translated(node("n1"), volcano, kai, pod("k", 1, labels={"kai.scheduler/queue": "default"}))
    assert list(queues(found)) == ["volcano", "default", "kai", "kai/default"]
    assert found.seen["ns/k"].workload.queue == "kai/default"


@pytest.mark.parametrize(("used", "told"), [("6", False), ("8", True)])
def test_a_resource_quota_of_gpus_that_is_used_up_is_named(used: str, told: bool) -> None:
    limit = thing("""
      apiVersion: v1
      kind: ResourceQuota
      metadata: {name: q, namespace: ns}
      status: {hard: {requests.nvidia.com/gpu: "8", cpu: "9"}}
    """)
    limit["status"]["used"] = {"requests.nvidia.com/gpu": used}
    text = "its namespace holds all 8 GPUs that it may: no more pods are made there"
    assert notes(translated(node("n1"), limit)) == ([("ResourceQuota", "ns/q", text)] if told else [])
