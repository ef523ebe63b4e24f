"""Affinity to other pods and topology spread on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import Cluster
from controlplane.muster import Replica

PODS = "/api/v1/namespaces/default/pods"
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(name: str, app: str, **more: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "registry.example/web", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    spec = {"schedulerName": "muster", "containers": containers, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec | more}


def term(key: str, app: str, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def rack_key(cluster: Cluster) -> str:
    """The label of the fake nodes that has the fewest values, more than one of them."""
    labels = [each["metadata"]["labels"] for each in cluster.api.items("/api/v1/nodes")]
    counts = {key: len({each.get(key) for each in labels}) for key in labels[0]}
    return min((key for key, count in counts.items() if 1 < count < len(labels)), key=lambda key: (counts[key], key))


def domains(cluster: Cluster, key: str, prefix: str) -> list[str]:
    nodes = {each["metadata"]["name"]: each["metadata"]["labels"] for each in cluster.api.items("/api/v1/nodes")}
    found = [each for each in cluster.api.items(PODS) if each["metadata"]["name"].startswith(prefix)]
    return [nodes[each["spec"]["nodeName"]][key] for each in found if each["spec"].get("nodeName")]


@pytest.fixture(scope="module")
def muster(cluster: Cluster) -> Iterator[Replica]:
    replica = Replica(cluster, "others", leaderElection={"enabled": False}, messageSeconds=1).start()
    replica.wait_for("synced")
    yield replica
    replica.end()


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.api.delete(PODS, {"gracePeriodSeconds": 0})
    cluster.wait("all pods were gone", lambda: not cluster.api.items(PODS))


def test_replicas_stand_apart_and_the_one_too_many_is_told(muster: Replica, empty: Cluster) -> None:
    for index in range(21):
        apart = {"affinity": {"podAntiAffinity": {REQUIRED: [term(HOST, "web")]}}}
        empty.api.post(PODS, pod(f"w-{index}", "web", **apart))
    empty.wait("twenty were bound", lambda: len(domains(empty, HOST, "w-")) == 20)
    assert len(set(domains(empty, HOST, "w-"))) == 20

    def told() -> str:
        waits = [each for each in empty.api.items(PODS) if not each["spec"].get("nodeName")]
        return str(waits[0]["status"].get("conditions"))

    empty.wait("the last was told", lambda: "nodes with no pod of app web (0 nodes)" in told())


def test_they_are_spread_evenly_and_stay_away_from_who_wants_no_company(muster: Replica, empty: Cluster) -> None:
    key = rack_key(empty)
    alone = {"affinity": {"podAntiAffinity": {REQUIRED: [term(key, "web", namespaceSelector={})]}}}
    empty.api.post(PODS, pod("alone", "alone", **alone))
    empty.wait("it was bound", lambda: domains(empty, key, "alone"))
    (kept,) = domains(empty, key, "alone")
    for index in range(6):
        empty.api.post(PODS, pod(f"w-{index}", "web"))
    for index in range(6):
        even = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "even"}}}  # fmt: skip
        empty.api.post(PODS, pod(f"e-{index}", "even", topologySpreadConstraints=[even]))
    empty.wait("all were bound", lambda: len(domains(empty, key, "w-")) == 6 and len(domains(empty, key, "e-")) == 6)
    assert kept not in domains(empty, key, "w-")
    racks = {each["metadata"]["labels"][key] for each in empty.api.items("/api/v1/nodes")}
    counts = [domains(empty, key, "e-").count(rack) for rack in racks]
    assert max(counts) - min(counts) <= 1
