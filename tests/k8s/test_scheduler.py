"""`muster scheduler` on a real API server: gangs, others' pods, budgets, a killed leader, and chaos."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import Cluster, Shape
from controlplane.api import ApiError
from controlplane.muster import Replica
from controlplane.work import BUDGETS, EVENTS, GROUPS, JOBS, PODS, bound, clear, condition, job, nodes_of, pod

ROUNDS = int(os.environ.get("MUSTER_CHAOS_ROUNDS", "8"))
LEASE: dict[str, Any] = {"leaderElection": {"namespace": "default", "durationSeconds": 3}, "partialTimeoutSeconds": 8}


@pytest.fixture(scope="module")
def muster(cluster: Cluster) -> Iterator[Replica]:
    """One replica on the shared cluster of 20 nodes."""
    replica = Replica(cluster, leaderElection={"enabled": False}).start()
    replica.wait_for("synced")
    yield replica
    replica.end()


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, emptied after the test."""
    yield cluster
    clear(cluster, JOBS, PODS, GROUPS, BUDGETS)
    cluster.wait("all pods were gone", lambda: not cluster.api.items(PODS))


@pytest.mark.usefixtures("native_groups")
def test_a_gang_is_bound_whole_and_its_pods_are_told(muster: Replica, empty: Cluster) -> None:
    empty.api.post(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}})
    for rank in range(3):
        empty.api.post(PODS, pod(f"g-{rank}", 8, schedulingGroup={"podGroupName": "g"}))
    time.sleep(1.0)
    assert bound(empty, "g-") == 0
    empty.api.post(PODS, pod("g-3", 8, schedulingGroup={"podGroupName": "g"}))
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 4)
    empty.wait(
        "its pods had an event",
        lambda: (
            {each["reason"] for each in empty.api.items(EVENTS) if each["regarding"]["name"] == "g-0"} & {"Scheduled"}
        ),
    )


def test_a_job_is_a_gang_and_what_cannot_fit_says_so(muster: Replica, empty: Cluster) -> None:
    empty.api.post(JOBS, job("fits", 3, 8))
    empty.api.post(JOBS, job("large", 21, 8))
    empty.api.post(PODS, pod("wide", 16))
    empty.wait("the job was bound", lambda: bound(empty, "fits-") == 3)
    empty.wait("the pod was told", lambda: condition(empty, "wide"))
    assert condition(empty, "wide").startswith("NEVER_FITS: A pod asks for 16 GPUs; no node has more than 8.")
    assert bound(empty, "large-") == 0


def test_pods_of_other_schedulers_are_left_alone(muster: Replica, empty: Cluster) -> None:
    empty.api.post(PODS, pod("theirs", 1, schedulerName="default-scheduler"))
    empty.api.post(PODS, pod("ours", 1))
    empty.wait("ours was bound", lambda: bound(empty, "ours") == 1)
    assert bound(empty, "theirs") == 0


def test_the_lower_priority_leaves_before_the_higher_comes(muster: Replica, empty: Cluster) -> None:
    empty.api.post(JOBS, job("low", 20, 8))
    empty.wait("all nodes were full", lambda: bound(empty, "low-") == 20)
    empty.api.post(PODS, pod("high", 8, priorityClassName="high"))
    empty.wait("the higher was bound", lambda: bound(empty, "high") == 1)
    used = Counter(node for node in [*nodes_of(empty, "low-"), *nodes_of(empty, "high")] if node)
    assert max(used.values()) == 1


def test_a_budget_that_allows_nothing_is_honoured(muster: Replica, empty: Cluster) -> None:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}}
    empty.api.post(BUDGETS, {"metadata": {"name": "kept"}, "spec": spec})
    for rank in range(20):
        one = pod(f"kept-{rank}", 8)
        one["metadata"]["labels"] = {"app": "kept"}
        empty.api.post(PODS, one)
    empty.wait("all nodes were full", lambda: bound(empty, "kept-") == 20)
    empty.api.post(PODS, pod("high", 8, priorityClassName="high"))
    time.sleep(4.0)
    assert (bound(empty, "kept-"), bound(empty, "high")) == (20, 0)


def test_a_deleted_pod_of_a_gang_is_replaced(muster: Replica, empty: Cluster) -> None:
    empty.api.post(JOBS, job("g", 4, 8))
    empty.wait("the gang was bound", lambda: bound(empty, "g-") == 4)
    name = next(each["metadata"]["name"] for each in empty.api.items(PODS))
    empty.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    empty.wait("it was whole again", lambda: bound(empty, "g-") == 4 and name not in str(empty.api.items(PODS)))


def test_shadow_mode_writes_nothing_and_reports(scheduled: Cluster, tmp_path: Path) -> None:
    report = tmp_path / "shadow.json"
    before = {each["metadata"]["name"] for each in scheduled.api.items(EVENTS)}
    replica = Replica(scheduled, "shadow", ("--shadow", "--report", str(report))).start()
    replica.wait_for("synced")
    try:
        for at in range(4):
            scheduled.api.post(PODS, pod(f"s-{at}", 8, schedulerName="default-scheduler"))
        scheduled.api.post(PODS, pod("wide", 16, schedulerName="default-scheduler"))
        scheduled.wait("they were bound", lambda: bound(scheduled, "s-") == 4)
        # nobody binds this one: that it would start is said once, not at each look
        scheduled.api.post(PODS, pod("lone", 8, schedulerName="nobody"))
        replica.wait_for("gang=default/lone")
        time.sleep(2.0)
    finally:
        assert replica.end() == 0
    assert replica.log.read_text().count("gang=default/lone ") == 1
    told = json.loads(report.read_text())
    assert told["schema"] == "muster.shadow/v1"
    by_name = {each["name"]: each for each in told["records"]}
    assert by_name["default/wide"]["reason"] == "never_fits"
    assert by_name["default/wide"]["started_s"] is None
    after = [each for each in scheduled.api.items(EVENTS) if each["metadata"]["name"] not in before]
    assert not [each for each in after if "muster" in each.get("reportingController", "")]
    assert not condition(scheduled, "wide").startswith("NEVER_FITS")


@pytest.mark.slow
def test_chaos(start_cluster: Callable[..., Cluster]) -> None:
    """Two replicas; each round something breaks. Nothing is booked twice, and no gang stays partial."""
    shape = Shape(12, 8, per_rack=4, blocks=1)
    cluster = start_cluster(shape)
    rng = random.Random(int(os.environ.get("MUSTER_CHAOS_SEED", "1")))
    replicas = [Replica(cluster, f"muster-{at}", **LEASE).start() for at in range(2)]
    jobs: dict[str, tuple[int, int]] = {}
    try:
        for number in range(ROUNDS):
            for _ in range(rng.randint(1, 3)):
                name = f"j{len(jobs)}"
                jobs[name] = rng.randint(1, 6), rng.choice([1, 4, 8])
                _tried(lambda name=name: cluster.api.post(JOBS, job(name, *jobs[name], f"{rng.randint(3, 20)}s")))
            what = _break(cluster, replicas, rng, number)
            time.sleep(rng.random() * 2)
            _check(cluster, f"round {number}: {what}")
            _as_a_kubelet_would(replicas)
        _until_whole(cluster, jobs, replicas)
        _check(cluster, "at the end")
    finally:
        for replica in replicas:
            replica.resume()
            replica.end()


def _tried(work: Any) -> None:
    """What is asked of a server that may be away."""
    for _ in range(50):
        try:
            work()
        except ApiError as error:
            if error.status == 409:
                return
            if error.status not in (429, 500, 503, 504):
                raise
        except OSError:
            pass
        else:
            return
        time.sleep(0.2)


def _break(cluster: Cluster, replicas: list[Replica], rng: random.Random, number: int) -> str:
    what = rng.choice(["kill", "kill", "server", "watches", "node", "pods", "pause", "nothing"])
    leaders = [each for each in replicas if each.leads] or replicas
    match what:
        case "kill":
            rng.choice(leaders).kill()
        case "server":
            cluster.restart("kube-apiserver")
        case "watches":
            cluster.pause("kube-apiserver")
            time.sleep(rng.random() * 3)
            cluster.resume("kube-apiserver")
        case "node":
            name = rng.choice(cluster.api.items("/api/v1/nodes"))["metadata"]["name"]
            _tried(lambda: cluster.api.delete(f"/api/v1/nodes/{name}"))
            cluster.add_nodes(Shape(1, 8, prefix=f"new{number}"))
        case "pods":
            pods = cluster.api.items(PODS)
            for each in rng.sample(pods, min(len(pods), 3)):
                cluster.api.raw("DELETE", f"{PODS}/{each['metadata']['name']}")
        case "pause":
            paused = rng.choice(leaders)
            paused.pause()
            time.sleep(4.0)
            paused.resume()
        case _:
            pass
    return what


def _check(cluster: Cluster, when: str) -> None:
    """No node gives away more GPUs than it has."""
    room = {
        each["metadata"]["name"]: int(each["status"]["allocatable"].get("nvidia.com/gpu", 0))
        for each in cluster.api.items("/api/v1/nodes")
    }
    used: Counter[str] = Counter()
    for each in cluster.api.items(PODS):
        if each["spec"].get("nodeName") and each["status"]["phase"] in ("Pending", "Running"):
            limits = each["spec"]["containers"][0]["resources"]["limits"]
            used[each["spec"]["nodeName"]] += int(limits["nvidia.com/gpu"])
    over = {name: count for name, count in used.items() if name in room and count > room[name]}
    assert not over, f"{when}: booked twice: {over}"


def _as_a_kubelet_would(replicas: list[Replica]) -> None:
    """Starts what has ended: also who lost the lease on a busy machine."""
    for replica in replicas:
        if not replica.running:
            replica.start()


def _until_whole(cluster: Cluster, jobs: dict[str, tuple[int, int]], replicas: list[Replica]) -> None:
    """Every gang ends, or stands whole or not at all."""

    def partial() -> list[str]:
        _as_a_kubelet_would(replicas)
        found: list[str] = []
        for name in jobs:
            nodes = nodes_of(cluster, f"{name}-")
            if any(nodes) and not all(nodes):
                found.append(name)
        return found

    cluster.wait("no gang was partial", lambda: not partial(), within_s=90.0, every_s=1.0)

    def left() -> int:
        _as_a_kubelet_would(replicas)
        return sum(not each["status"].get("completionTime") for each in cluster.api.items(JOBS))

    cluster.wait("all jobs had ended", lambda: not left(), within_s=300.0 + 6 * ROUNDS, every_s=2.0)
