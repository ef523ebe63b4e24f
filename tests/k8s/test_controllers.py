"""Controllers of others that run for real: Kueue, JobSet and LeaderWorkerSet, and Muster with what they make.

They are optional (`make controlplane WITH="kueue jobset lws"`): where one is not built, its tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import ApiError, Cluster, ClusterError, Shape, Starter
from controlplane.build import CONTROLLERS, built
from controlplane.muster import SOURCE, Replica

KUEUE, KUEUE_OLD = "/apis/kueue.x-k8s.io/v1beta2", "/apis/kueue.x-k8s.io/v1beta1"
JOB_SET, LEADER_SET = "/apis/jobset.x-k8s.io/v1alpha2", "/apis/leaderworkerset.x-k8s.io/v1"
DEFAULT = "/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB_SETS = f"{JOB_SET}{DEFAULT}/jobsets"
LEADER_SETS = f"{LEADER_SET}{DEFAULT}/leaderworkersets"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
WORKLOADS = f"{KUEUE}{DEFAULT}/workloads"


def _missing() -> str:
    try:
        for name in CONTROLLERS:
            built(name)
    except ClusterError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def controlled(kubernetes: str) -> Iterator[Cluster]:
    """8 nodes of 8 GPUs, kube-scheduler, all three controllers, and a queue of Kueue with a quota of 64 GPUs."""
    if missing := _missing():
        pytest.skip(missing)
    starter = Starter(kubernetes)
    try:
        cluster = starter(Shape(8, per_rack=4), scheduler=True, controllers=CONTROLLERS)
        quota = {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 64}]}
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}]
        post(cluster, KUEUE, "ResourceFlavor", "h100", {})
        post(cluster, KUEUE, "ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": groups})
        post(cluster, KUEUE, "LocalQueue", "team", {"clusterQueue": "all"}, DEFAULT)
        yield cluster
    finally:
        starter.end()


def post(cluster: Cluster, api: str, kind: str, name: str, spec: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Make an object of a CRD."""
    body = {"apiVersion": api.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}, "spec": spec}
    return cluster.api.post(f"{api}{where}/{kind.lower()}s", body)


def pods(gpus: int, runs_for: str = "", **more: Any) -> dict[str, Any]:
    """A template of pods."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    notes = {"annotations": {"dev.muster/runs-for": runs_for}} if runs_for else {}
    containers = [{"name": "main", "image": "registry.example/train", "resources": limits}]
    return {"metadata": notes, "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **more}}


def job(name: str, count: int, gpus: int, runs_for: str, **labels: str) -> dict[str, Any]:
    """An Indexed Job of so many pods at a time."""
    spec = {"completionMode": "Indexed", "completions": count, "parallelism": count}
    template = pods(gpus, runs_for, restartPolicy="Never")
    return {"metadata": {"name": name, "labels": labels}, "spec": spec | {"template": template}}


def states(cluster: Cluster) -> dict[str, set[str]]:
    """The conditions that are true of the Workload of each Job in Kueue."""
    return {
        each["metadata"]["ownerReferences"][0]["name"]: {
            one["type"] for one in each.get("status", {}).get("conditions", []) if one["status"] == "True"
        }
        for each in cluster.api.items(WORKLOADS)
    }


def placed(cluster: Cluster, label: str, value: str) -> list[str]:
    """The nodes of the pods with a label; '' for those that wait."""
    found = cluster.api.items(PODS, labelSelector=f"{label}={value}")
    return [each["spec"].get("nodeName", "") for each in found]


def test_kueue_admits_a_job_of_64_pods_and_lets_the_next_wait(controlled: Cluster) -> None:
    queue = {"kueue.x-k8s.io/queue-name": "team"}
    assert controlled.api.post(JOBS, job("first", 64, 1, "20s", **queue))["spec"]["suspend"] is True
    controlled.wait("the first was admitted", lambda: "Admitted" in states(controlled).get("first", ()))
    controlled.api.post(JOBS, job("second", 64, 1, "1s", **queue))
    name = "batch.kubernetes.io/job-name"
    controlled.wait("its pods were bound", lambda: all(placed(controlled, name, "first") or [""]))
    assert len(placed(controlled, name, "first")) == 64
    assert controlled.api.get(f"{JOBS}/second")["spec"]["suspend"] is True
    assert "Admitted" not in states(controlled)["second"]
    controlled.wait("both were done", lambda: all("Finished" in states(controlled)[of] for of in ("first", "second")))


def test_what_kueue_does_not_understand_its_webhook_refuses(controlled: Cluster) -> None:
    quota = {"name": "h100", "resources": [{"name": "cpu", "nominalQuota": 1}]}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}]
    with pytest.raises(ApiError) as refused:
        post(controlled, KUEUE, "ClusterQueue", "bad", {"namespaceSelector": {}, "resourceGroups": groups})
    assert refused.value.status in (403, 422)


def test_kueue_converts_the_versions_of_its_objects(controlled: Cluster) -> None:
    post(controlled, KUEUE_OLD, "ClusterQueue", "old", {"namespaceSelector": {}, "cohort": "everybody"})
    assert controlled.api.get(f"{KUEUE}/clusterqueues/old")["spec"]["cohortName"] == "everybody"
    controlled.api.delete(f"{KUEUE}/clusterqueues/old")


def job_set(count: int, **spec: Any) -> dict[str, Any]:
    """Two Jobs of pods of 8 GPUs."""
    template = {"spec": job("", count, 8, "1h")["spec"]}
    template["spec"]["template"]["spec"] |= spec
    return {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]}


def test_jobset_makes_its_jobs(controlled: Cluster) -> None:
    post(controlled, JOB_SET, "JobSet", "train", job_set(2), DEFAULT)
    label = "jobset.sigs.k8s.io/jobset-name"
    controlled.wait("its pods were bound", lambda: placed(controlled, label, "train").count("") == 0
                    and len(placed(controlled, label, "train")) == 4)  # fmt: skip
    made = controlled.api.items(JOBS, labelSelector=f"{label}=train")
    assert sorted(each["metadata"]["name"] for each in made) == ["train-workers-0", "train-workers-1"]
    controlled.api.delete(f"{JOB_SETS}/train", {"propagationPolicy": "Foreground"})
    controlled.wait("it was gone", lambda: not placed(controlled, label, "train"))


def leader_set(**spec: Any) -> dict[str, Any]:
    """Two groups of a leader and two workers, 8 GPUs each."""
    template = {"size": 3, "workerTemplate": pods(8, **spec)}
    return {"replicas": 2, "leaderWorkerTemplate": template}


def test_leaderworkerset_makes_its_stateful_sets(controlled: Cluster) -> None:
    label = "leaderworkerset.sigs.k8s.io/name"
    post(controlled, LEADER_SET, "LeaderWorkerSet", "serve", leader_set(), DEFAULT)
    controlled.wait("its pods were bound", lambda: placed(controlled, label, "serve").count("") == 0
                    and len(placed(controlled, label, "serve")) == 6)  # fmt: skip
    assert sorted(each["metadata"]["name"] for each in controlled.api.items(SETS)) == ["serve", "serve-0", "serve-1"]
    controlled.api.delete(f"{LEADER_SETS}/serve", {"propagationPolicy": "Foreground"})
    controlled.wait("it was gone", lambda: not placed(controlled, label, "serve"))


def test_muster_reads_what_kueue_admitted_and_what_it_has_not(controlled: Cluster) -> None:
    label, queue = "batch.kubernetes.io/job-name", {"kueue.x-k8s.io/queue-name": "team"}
    command = [sys.executable, "-c", "from muster.cli.main import run; run()", "queue", "-o", "json"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    try:
        controlled.api.post(JOBS, job("runs", 8, 8, "1h", **queue))
        controlled.wait("the first was bound", lambda: len(list(filter(None, placed(controlled, label, "runs")))) == 8)
        controlled.api.post(JOBS, job("waits", 8, 8, "1h", **queue))
        controlled.wait("the second was known to Kueue", lambda: "waits" in states(controlled))
        done = subprocess.run(
            [*command, "--kubeconfig", str(controlled.kubeconfig)],
            capture_output=True, text=True, env=environment, check=True,
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert [(each["job"], each["queue"], each["pods"]) for each in found["running"]] == [("default/runs", "all", 8)]
        assert [(each["job"], each["queue"], each["pods"]) for each in found["waiting"]] == [
            ("default/waits", "all", 8)
        ]
    finally:
        for name in ("runs", "waits"):
            controlled.api.raw("DELETE", f"{JOBS}/{name}", b'{"propagationPolicy": "Foreground"}')
    controlled.wait("they were gone", lambda: not placed(controlled, label, "runs"))


def test_muster_schedules_what_jobset_and_leaderworkerset_make_as_gangs(controlled: Cluster) -> None:
    replica = Replica(controlled, leaderElection={"enabled": False}).start()
    try:
        replica.wait_for("synced")
        post(controlled, JOB_SET, "JobSet", "set", job_set(2, schedulerName="muster"), DEFAULT)
        post(controlled, LEADER_SET, "LeaderWorkerSet", "groups", leader_set(schedulerName="muster"), DEFAULT)
        # 4 + 3 pods of a node each; the second group of three finds one node, and none of it is bound
        labels = ("jobset.sigs.k8s.io/jobset-name", "set"), ("leaderworkerset.sigs.k8s.io/name", "groups")

        def there() -> bool:
            waits = [place == "" for label, value in labels for place in placed(controlled, label, value)]
            return Counter(waits) == {False: 7, True: 3}

        controlled.wait("two gangs ran and one waited", there)
        group = "leaderworkerset.sigs.k8s.io/group-index"
        kept = {index: placed(controlled, f"{labels[1][0]}=groups,{group}", index) for index in "01"}
        assert sorted(len([place for place in places if place]) for places in kept.values()) == [0, 3]
        controlled.api.delete(f"{JOB_SETS}/set", {"propagationPolicy": "Foreground"})
        controlled.wait("the last gang ran", lambda: all(placed(controlled, *labels[1])))
    finally:
        replica.end()
        for path in (f"{JOB_SETS}/set", f"{LEADER_SETS}/groups"):
            controlled.api.raw("DELETE", path)
