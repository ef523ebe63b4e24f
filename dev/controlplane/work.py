"""Work for `muster scheduler` on a test's cluster: pods, Jobs that are gangs, and what became of them."""

from __future__ import annotations

from typing import Any

from controlplane.cluster import Cluster
from controlplane.components import native_gangs

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def pod_spec(gpus: int, **more: Any) -> dict[str, Any]:
    """Of one container with so many GPUs, for Muster."""
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}
    containers = [{"name": "main", "image": "registry.example/train", "resources": {"limits": limits}}]
    return {"schedulerName": "muster", "containers": containers, "terminationGracePeriodSeconds": 0, **more}


def pod(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    """One pod; ``more`` of its spec."""
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": pod_spec(gpus, **more)}


def job(name: str, pods: int, gpus: int, runs_for: str = "1h") -> dict[str, Any]:
    """An Indexed Job: a gang."""
    template = {
        "metadata": {"annotations": {"dev.muster/runs-for": runs_for}},
        "spec": pod_spec(gpus, restartPolicy="Never"),
    }
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimit": 1000}
    return {"metadata": {"name": name}, "spec": spec | {"template": template}}


def clear(cluster: Cluster, *paths: str) -> None:
    """Delete all objects of some kinds; PodGroups where the server has them."""
    for path in paths:
        if path != GROUPS or native_gangs(cluster.kubernetes):
            cluster.api.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


def nodes_of(cluster: Cluster, prefix: str) -> list[str]:
    """Where the pods with names that begin so are bound; '' for those that wait."""
    found = [each for each in cluster.api.items(PODS) if each["metadata"]["name"].startswith(prefix)]
    return [each["spec"].get("nodeName", "") for each in found if each["status"]["phase"] in ("Pending", "Running")]


def bound(cluster: Cluster, prefix: str) -> int:
    """How many pods with names that begin so are bound."""
    return sum(map(bool, nodes_of(cluster, prefix)))


def condition(cluster: Cluster, name: str) -> str:
    """What a pod was told."""
    found = cluster.api.get(f"{PODS}/{name}")["status"].get("conditions", [])
    return next((each.get("message", "") for each in found if each["type"] == "PodScheduled"), "")
