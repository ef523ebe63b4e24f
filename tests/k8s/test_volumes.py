"""Volumes that wait for their pod's node, on a real API server and its volume controller.

The test plays the external provisioner: it reads the node that a claim names and makes a volume there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import Cluster
from controlplane.api import ApiError
from controlplane.muster import Replica
from controlplane.work import GROUPS, clear

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED, MADE_BY = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/provisioned-by"
HOST = "kubernetes.io/hostname"


class Provisioner:
    """Makes volumes on the nodes that claims name; takes the name back where it makes none."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.refuses, self.asked = cluster, set[str](), list[str]()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.2):
            for claim in self.cluster.api.items(CLAIMS):
                node = claim["metadata"].get("annotations", {}).get(SELECTED)
                fast = claim["spec"].get("storageClassName") == "fast"
                if fast and node and not claim["spec"].get("volumeName"):
                    self._make(claim, node)

    def _make(self, claim: dict[str, Any], node: str) -> None:
        meta = claim["metadata"]
        if node not in self.asked:
            self.asked.append(node)
        try:
            if node in self.refuses:
                body = {"metadata": {"annotations": {SELECTED: None}}}
                self.cluster.api.patch(f"{CLAIMS}/{meta['name']}", body)
                return
            made = volume(f"pvc-{meta['uid']}", node, "fast")
            made["metadata"]["annotations"] = {MADE_BY: "csi.example.com"}
            made["spec"]["claimRef"] = {"namespace": "default", "name": meta["name"], "uid": meta["uid"]}
            self.cluster.api.post(VOLUMES, made)
        except ApiError as error:
            if error.status not in (404, 409):
                raise


def volume(name: str, node: str, of: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}]
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": of,
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }  # fmt: skip


def claim(name: str, of: str) -> dict[str, Any]:
    resources = {"requests": {"storage": "5Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": of, "resources": resources}
    return {"metadata": {"name": name}, "spec": spec}


def pod(name: str, *claims: str, **more: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "8", "cpu": "1", "memory": "1Gi"}
    containers = [{"name": "main", "image": "registry.example/train", "resources": {"limits": limits}}]
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    spec = {"schedulerName": "muster", "containers": containers, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name}, "spec": spec | {"volumes": volumes} | more}


def where(cluster: Cluster, name: str) -> str:
    return cluster.api.get(f"{PODS}/{name}")["spec"].get("nodeName", "")


def told(cluster: Cluster, name: str) -> str:
    found = cluster.api.get(f"{PODS}/{name}")["status"].get("conditions", [])
    return next((each.get("message", "") for each in found if each["type"] == "PodScheduled"), "")


@pytest.fixture(scope="module")
def muster(cluster: Cluster) -> Iterator[Replica]:
    for name, who in (("fast", "csi.example.com"), ("local", "kubernetes.io/no-provisioner")):
        body = {"metadata": {"name": name}, "provisioner": who, "volumeBindingMode": "WaitForFirstConsumer"}
        cluster.api.post(CLASSES, body)
    settings: dict[str, Any] = {"leaderElection": {"enabled": False}, "volumeTimeoutSeconds": 6, "messageSeconds": 1}
    replica = Replica(cluster, "volumes", **settings).start()
    replica.wait_for("synced")
    yield replica
    replica.end()
    cluster.api.delete(CLASSES)


@pytest.fixture
def made(cluster: Cluster) -> Iterator[Provisioner]:
    provisioner = Provisioner(cluster)
    yield provisioner
    provisioner.end()


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    clear(cluster, PODS, GROUPS, CLAIMS, VOLUMES)
    cluster.wait("all was gone", lambda: not any(cluster.api.items(path) for path in (PODS, CLAIMS, VOLUMES)))


@pytest.mark.usefixtures("native_groups")
def test_a_gang_waits_for_its_volumes_and_stands_where_they_are(
    muster: Replica, empty: Cluster, made: Provisioner
) -> None:
    empty.api.post(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    for rank in range(3):
        empty.api.post(CLAIMS, claim(f"data-{rank}", "fast"))
        empty.api.post(PODS, pod(f"g-{rank}", f"data-{rank}", schedulingGroup={"podGroupName": "g"}))
    empty.wait("the gang was bound", lambda: all(where(empty, f"g-{rank}") for rank in range(3)))
    for rank in range(3):
        found = empty.api.get(f"{CLAIMS}/data-{rank}")
        assert found["status"]["phase"] == "Bound"
        assert found["metadata"]["annotations"][SELECTED] == where(empty, f"g-{rank}")


def test_where_no_volume_comes_another_node_is_taken(muster: Replica, empty: Cluster, made: Provisioner) -> None:
    nodes = sorted(each["metadata"]["name"] for each in empty.api.items("/api/v1/nodes"))
    made.refuses.update(nodes[:-1])
    empty.api.post(CLAIMS, claim("data", "fast"))
    empty.api.post(PODS, pod("p", "data"))
    empty.wait("it was bound", lambda: where(empty, "p") == nodes[-1], within_s=60.0)
    assert len(made.asked) > 1


def test_without_a_provisioner_the_pod_is_told_and_the_next_node_tried(muster: Replica, empty: Cluster) -> None:
    empty.api.post(CLAIMS, claim("data", "fast"))
    empty.api.post(PODS, pod("p", "data"))
    empty.wait("it was told", lambda: told(empty, "p").startswith("VOLUMES: It has its nodes; volumes of data"))

    def named() -> str:
        return empty.api.get(f"{CLAIMS}/data")["metadata"].get("annotations", {}).get(SELECTED, "")

    empty.wait("a node was named", lambda: bool(named()))
    first = named()
    empty.wait("another was", lambda: named() not in ("", first), within_s=30.0)
    assert not where(empty, "p")


def test_a_volume_that_is_there_is_kept_for_the_claim(muster: Replica, empty: Cluster) -> None:
    nodes = sorted(each["metadata"]["name"] for each in empty.api.items("/api/v1/nodes"))
    empty.api.post(VOLUMES, volume("disk-7", nodes[7], "local"))
    empty.wait("it was free", lambda: empty.api.get(f"{VOLUMES}/disk-7")["status"]["phase"] == "Available")
    for name in ("x", "y"):
        empty.api.post(CLAIMS, claim(name, "local"))
        empty.api.post(PODS, pod(name, name))
    empty.wait("one was bound", lambda: any(where(empty, name) == nodes[7] for name in ("x", "y")))
    other = "y" if where(empty, "x") else "x"
    empty.wait("the other was told", lambda: "storage class local has a volume" in told(empty, other))
    empty.api.post(VOLUMES, volume("disk-3", nodes[3], "local"))
    empty.wait("the other was bound", lambda: where(empty, other) == nodes[3], within_s=40.0)


def test_a_claim_that_is_not_there_is_told(muster: Replica, empty: Cluster) -> None:
    empty.api.post(PODS, pod("p", "data"))
    empty.wait("it was told", lambda: "its claim data is not there" in told(empty, "p"))
    empty.api.post(CLAIMS, claim("data", "fast"))
    empty.wait("a node was named", lambda: SELECTED in str(empty.api.get(f"{CLAIMS}/data")))
