"""A cluster's ordinary days, with `muster scheduler` on a real API server: nodes and work come, change and go."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import Cluster, Shape
from controlplane.muster import Replica
from controlplane.nodes import BLOCK, RACK
from controlplane.work import BUDGETS, GROUPS, JOBS, PODS, bound, clear, condition, job, nodes_of, pod

NODES = "/api/v1/nodes"


@pytest.fixture(scope="module")
def muster(cluster: Cluster) -> Iterator[Replica]:
    """One replica on the shared cluster of 20 nodes."""
    replica = Replica(cluster, leaderElection={"enabled": False}, partialTimeoutSeconds=8).start()
    replica.wait_for("synced")
    yield replica
    assert "Traceback" not in replica.log.read_text()
    replica.end()


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, emptied after the test, its nodes as they were."""
    before = {each["metadata"]["name"]: each for each in cluster.api.items(NODES)}
    yield cluster
    for each in cluster.api.items(PODS):
        if each["metadata"].get("finalizers"):
            cluster.api.patch(f"{PODS}/{each['metadata']['name']}", {"metadata": {"finalizers": None}})
    clear(cluster, JOBS, PODS, GROUPS, BUDGETS)
    cluster.wait("all pods were gone", lambda: not cluster.api.items(PODS))
    for name, node in before.items():
        fresh: dict[str, Any] = {
            "metadata": {"labels": node["metadata"]["labels"]},
            "spec": {"unschedulable": None, "taints": None},
        }
        cluster.api.patch(f"{NODES}/{name}", fresh)
        cluster.api.patch(f"{NODES}/{name}/status", {"status": {"allocatable": node["status"]["allocatable"]}})


def kubectl(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("kubectl")
    line = [str(program), "--kubeconfig", str(cluster.kubeconfig), *args]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def on(cluster: Cluster, prefix: str) -> set[str]:
    return {node for node in nodes_of(cluster, prefix) if node}


def test_a_drained_nodes_work_goes_elsewhere(muster: Replica, empty: Cluster) -> None:
    empty.api.post(JOBS, job("g", 4, 8))
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 4)
    drained = next(iter(on(empty, "g-")))
    told = kubectl(empty, "drain", drained, "--ignore-daemonsets", "--force", "--timeout=60s")
    assert told.returncode == 0, told.stderr
    empty.wait("it was whole again", lambda: bound(empty, "g-") == 4 and len(nodes_of(empty, "g-")) == 4)
    assert drained not in on(empty, "g-")
    kubectl(empty, "uncordon", drained)


@pytest.mark.slow  # the pods of a node that has gone are collected after 40 to 120 s
def test_a_node_that_is_deleted_loses_its_pods_and_no_others(muster: Replica, empty: Cluster) -> None:
    extra = empty.add_nodes(Shape(1, 8, prefix="gone"))[0]
    for each in empty.api.items(NODES):
        if each["metadata"]["name"] != extra:
            empty.api.patch(f"{NODES}/{each['metadata']['name']}", {"spec": {"unschedulable": True}})
    empty.api.post(JOBS, job("g", 2, 4))
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 2)
    assert on(empty, "g-") == {extra}
    for each in empty.api.items(NODES):
        empty.api.patch(f"{NODES}/{each['metadata']['name']}", {"spec": {"unschedulable": None}})
    empty.api.delete(f"{NODES}/{extra}")
    empty.wait("it stood elsewhere", lambda: bound(empty, "g-") == 2 and extra not in on(empty, "g-"), within_s=240)


def test_a_namespace_that_is_deleted_gives_its_room_back(muster: Replica, empty: Cluster) -> None:
    with empty.namespace("leaving") as name:
        for work in (job("runs", 20, 8), job("waits", 20, 8)):
            empty.api.post(JOBS.replace("default", name), work)
        there = PODS.replace("default", name)
        empty.wait("one ran", lambda: sum(bool(each["spec"].get("nodeName")) for each in empty.api.items(there)) == 20)
    empty.api.post(JOBS, job("next", 20, 8))
    empty.wait("the next had all", lambda: bound(empty, "next-") == 20, within_s=90)


@pytest.mark.usefixtures("native_groups")
def test_a_gate_that_is_removed_later_lets_the_gang_start(muster: Replica, empty: Cluster) -> None:
    empty.api.post(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    for rank in range(3):
        gates = [{"name": "example.com/quota"}] if rank == 1 else []
        more = {"schedulingGroup": {"podGroupName": "g"}, "schedulingGates": gates}
        empty.api.post(PODS, pod(f"g-{rank}", 8, **more))
    time.sleep(1.5)
    assert bound(empty, "g-") == 0
    empty.api.patch(f"{PODS}/g-1", {"spec": {"schedulingGates": None}})
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 3)


def test_a_pod_that_is_ending_keeps_its_room_until_it_has_gone(muster: Replica, empty: Cluster) -> None:
    for at in range(20):
        held = pod(f"old-{at}", 8)
        held["metadata"]["finalizers"] = ["example.com/keep"]
        empty.api.post(PODS, held)
    empty.wait("all nodes were full", lambda: bound(empty, "old-") == 20)
    before = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in empty.api.items(PODS)}
    empty.api.post(PODS, pod("new", 8))
    empty.api.delete(f"{PODS}/old-3", {"gracePeriodSeconds": 30})
    time.sleep(2.0)
    assert bound(empty, "new") == 0 or before["old-3"] in on(empty, "new")
    empty.api.patch(f"{PODS}/old-3", {"metadata": {"finalizers": None}})
    empty.wait("the next was bound", lambda: bound(empty, "new") == 1, within_s=90)
    assert on(empty, "new") == {before["old-3"]}


def test_nodes_that_move_are_seen_where_they_stand_now(muster: Replica, empty: Cluster) -> None:
    for at, node in enumerate(empty.api.items(NODES)):
        block = node["metadata"]["labels"][BLOCK]
        move = {"metadata": {"labels": {RACK: f"{block}-{at % 2}"}}}
        empty.api.patch(f"{NODES}/{node['metadata']['name']}", move)
    work = job("g", 5, 8)
    work["spec"]["template"]["metadata"]["annotations"] |= {"kueue.x-k8s.io/podset-required-topology": RACK}
    empty.api.post(JOBS, work)
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 5)
    racks = {each["metadata"]["name"]: each["metadata"]["labels"][RACK] for each in empty.api.items(NODES)}
    assert len({racks[node] for node in on(empty, "g-")}) == 1


def test_gpus_that_go_and_come_again(muster: Replica, empty: Cluster) -> None:
    names = [each["metadata"]["name"] for each in empty.api.items(NODES)]
    for name in names[1:]:
        empty.api.patch(f"{NODES}/{name}/status", {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})
    time.sleep(1.0)
    empty.api.post(JOBS, job("g", 2, 8))
    time.sleep(2.0)
    assert bound(empty, "g-") == 0
    empty.api.patch(f"{NODES}/{names[5]}/status", {"status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 2)
    assert on(empty, "g-") == {names[0], names[5]}


def test_a_node_that_says_nothing_of_itself_gets_nothing(muster: Replica, empty: Cluster) -> None:
    empty.api.post(NODES, {"metadata": {"name": "bare"}})
    empty.api.post(PODS, pod("p", 1))
    empty.wait("the pod was bound", lambda: bound(empty, "p") == 1)
    assert on(empty, "p") != {"bare"}
    empty.api.delete(f"{NODES}/bare")


def test_a_job_that_grows_and_shrinks(muster: Replica, empty: Cluster) -> None:
    work = job("e", 2, 8)
    work["spec"] |= {"completions": 2, "parallelism": 2}
    empty.api.post(JOBS, work)
    empty.wait("the gang was bound", lambda: bound(empty, "e-") == 2)
    empty.api.patch(f"{JOBS}/e", {"spec": {"parallelism": 4, "completions": 4}})
    empty.wait("it had grown", lambda: bound(empty, "e-") == 4)
    empty.api.patch(f"{JOBS}/e", {"spec": {"parallelism": 1, "completions": 1}})
    empty.wait("it had shrunk", lambda: bound(empty, "e-") == 1)
    empty.api.post(JOBS, job("rest", 19, 8))
    empty.wait("the rest was free", lambda: bound(empty, "rest-") == 19)


def test_a_pod_that_somebody_else_binds_counts_where_it_stands(muster: Replica, empty: Cluster) -> None:
    names = [each["metadata"]["name"] for each in empty.api.items(NODES)]
    for at, name in enumerate(names[:10]):
        by_hand = pod(f"by-hand-{at}", 8, schedulerName="nobody")
        empty.api.post(PODS, by_hand)
        target = {"apiVersion": "v1", "kind": "Node", "name": name}
        empty.api.post(f"{PODS}/by-hand-{at}/binding", {"metadata": {"name": f"by-hand-{at}"}, "target": target})
    empty.api.post(JOBS, job("g", 10, 8))
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 10)
    used = Counter([*nodes_of(empty, "g-"), *nodes_of(empty, "by-hand-")])
    assert max(used.values()) == 1


def test_what_is_changed_of_a_waiting_pod_counts(muster: Replica, empty: Cluster) -> None:
    empty.api.post(PODS, pod("p", 8, nodeSelector={"zone": "none"}, schedulingGates=[{"name": "example.com/x"}]))
    empty.api.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"zone": "none", "kubernetes.io/os": "linux"}}})
    empty.api.patch(f"{PODS}/p", {"spec": {"schedulingGates": None}})
    empty.wait("it was told", lambda: condition(empty, "p"))
    assert bound(empty, "p") == 0
    name = empty.api.items(NODES)[7]["metadata"]["name"]
    empty.api.patch(f"{NODES}/{name}", {"metadata": {"labels": {"zone": "none", "kubernetes.io/os": "linux"}}})
    empty.wait("it was bound", lambda: on(empty, "p") == {name})
    empty.api.patch(f"{NODES}/{name}", {"metadata": {"labels": {"zone": None}}})
