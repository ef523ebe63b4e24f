"""The control plane of the tests is a real one: what a hand-written fake would get wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane import ApiError, Cluster, ClusterError, Settings, Shape
from controlplane.processes import running

_KIND = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
DEV = Path(__file__).resolve().parents[2] / "dev"


def pod(name: str, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    container = {"name": "main", "image": "example.org/work:1", "resources": {"limits": amounts, "requests": amounts}}
    return {"metadata": {"name": name, "labels": {"app": "test"}}, "spec": {"containers": [container], **spec}}


def until(is_so: Callable[[], object], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.05)


def bind(cluster: Cluster, namespace: str, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    cluster.api.post(
        f"/api/v1/namespaces/{namespace}/pods/{name}/binding", {"metadata": {"name": name}, "target": target}
    )


def phase(cluster: Cluster, namespace: str, name: str) -> str:
    return str(cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]["phase"])


def run_pod(cluster: Cluster, namespace: str, body: dict[str, Any], node: str = "gpu-001") -> None:
    cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", body)
    bind(cluster, namespace, body["metadata"]["name"], node)
    until(lambda: phase(cluster, namespace, body["metadata"]["name"]) == "Running")


def test_the_server_is_the_version_that_was_asked_for(cluster: Cluster) -> None:
    version = cluster.api.get("/version")
    assert version["gitVersion"] == f"v{cluster.kubernetes}"
    assert f"{version['major']}.{version['minor']}" == ".".join(cluster.kubernetes.split(".")[:2])


def test_nodes_look_like_gpu_nodes(cluster: Cluster) -> None:
    nodes = cluster.api.items("/api/v1/nodes")
    assert len(nodes) == 20
    first = nodes[0]
    labels = first["metadata"]["labels"]
    assert first["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert first["status"]["allocatable"]["pods"] == "110"
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/gpu.memory"] == "81559"
    racks = [node["metadata"]["labels"]["cloud.provider.com/topology-rack"] for node in nodes]
    blocks = [node["metadata"]["labels"]["cloud.provider.com/topology-block"] for node in nodes]
    assert {rack: racks.count(rack) for rack in racks} == {f"rack-{n}": 4 for n in range(1, 6)}
    assert set(blocks) == {"block-1", "block-2"}


def test_a_user_without_a_role_is_refused_until_it_has_one(cluster: Cluster) -> None:
    api = cluster.as_user("reader", ("readers",))
    with pytest.raises(ApiError, match='User "reader" cannot list resource "nodes"') as refused:
        api.get("/api/v1/nodes")
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    cluster.api.post(f"{rbac}/clusterroles", {"metadata": {"name": "reads-nodes"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-nodes"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}
    binding = {"metadata": {"name": "reads-nodes"}, "roleRef": role, "subjects": [subject]}
    cluster.api.post(f"{rbac}/clusterrolebindings", binding)
    until(lambda: api.raw("GET", "/api/v1/nodes?limit=1")[0] == 200)
    assert api.raw("DELETE", "/api/v1/nodes/gpu-001")[0] == 403


def test_an_expired_certificate_is_refused(cluster: Cluster) -> None:
    with pytest.raises((ApiError, OSError)) as refused:
        cluster.as_user("late", valid_hours=-1).get("/api/v1/nodes")
    assert not isinstance(refused.value, ApiError) or refused.value.status == 401


def test_a_service_account_has_a_token(cluster: Cluster, namespace: str) -> None:
    path = cluster.service_account(namespace, "robot")
    done = kubectl(path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert done.stdout == f"system:serviceaccount:{namespace}:robot"


def kubectl(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.prefix) / "bin" / "kubectl"
    command = [str(program if program.exists() else "kubectl"), "--kubeconfig", str(kubeconfig), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_kubectl_works_and_readers_of_its_output_too(cluster: Cluster) -> None:
    done = kubectl(cluster.kubeconfig, "get", "nodes", "-l", "nvidia.com/gpu.family=hopper", "-o", "name")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"node/gpu-{n:03d}" for n in range(1, 21)]


def test_a_pod_waits_without_a_scheduler_and_runs_once_bound(cluster: Cluster, namespace: str) -> None:
    cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("one"))
    time.sleep(1)
    assert phase(cluster, namespace, "one") == "Pending"
    bind(cluster, namespace, "one", "gpu-007")
    until(lambda: phase(cluster, namespace, "one") == "Running")
    found = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/one")
    assert found["spec"]["nodeName"] == "gpu-007"
    scheduled = [c for c in found["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert scheduled[0]["status"] == "True"


def test_a_pod_is_bound_once(cluster: Cluster, namespace: str) -> None:
    run_pod(cluster, namespace, pod("one"))
    with pytest.raises(ApiError) as refused:
        bind(cluster, namespace, "one", "gpu-002")
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")


def test_pods_end_as_their_annotations_say(cluster: Cluster, namespace: str) -> None:
    for name, code in (("good", "0"), ("bad", "3")):
        body = pod(name, restartPolicy="Never")
        body["metadata"]["annotations"] = {"dev.muster/runs-for": "1s", "dev.muster/exit-code": code}
        run_pod(cluster, namespace, body)
    until(lambda: phase(cluster, namespace, "good") == "Succeeded")
    until(lambda: phase(cluster, namespace, "bad") == "Failed")
    ended = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/bad")["status"]["containerStatuses"][0]
    assert ended["state"]["terminated"]["exitCode"] == 3


def test_a_pod_takes_its_time_to_stop(cluster: Cluster, namespace: str) -> None:
    body = pod("slow")
    body["metadata"]["annotations"] = {"dev.muster/stops-for": "2s"}
    run_pod(cluster, namespace, body)
    path = f"/api/v1/namespaces/{namespace}/pods/slow"
    cluster.api.delete(path)
    assert cluster.api.get(path)["metadata"]["deletionTimestamp"]
    until(lambda: cluster.api.raw("GET", path)[0] == 404, 10)


def test_eviction_honours_a_disruption_budget(cluster: Cluster, namespace: str) -> None:
    budget = {"metadata": {"name": "both"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "test"}}}}
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    cluster.api.post(budgets, budget)
    for name in ("a", "b"):
        run_pod(cluster, namespace, pod(name))
    until(lambda: cluster.api.get(f"{budgets}/both")["status"].get("disruptionsAllowed") == 1)

    def evict(name: str) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        cluster.api.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)

    evict("a")
    until(lambda: cluster.api.raw("GET", f"/api/v1/namespaces/{namespace}/pods/a")[0] == 404)
    with pytest.raises(ApiError, match="disruption budget") as refused:
        evict("b")
    assert refused.value.status == 429
    assert phase(cluster, namespace, "b") == "Running"


def test_a_watch_sends_bookmarks(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    events = cluster.api.watch(path, timeout_s=20, sendInitialEvents="true", allowWatchBookmarks="true",
                               resourceVersionMatch="NotOlderThan")  # fmt: skip
    mark = next(event for event in events if event["type"] == "BOOKMARK")
    assert mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
    cluster.api.post(path, pod("later"))
    assert next(events)["object"]["metadata"]["name"] == "later"
    events.close()


def test_server_side_apply_knows_owners_of_fields(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/shared"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"a": "1"}}
    cluster.api.patch(path, body, "apply", fieldManager="first")
    with pytest.raises(ApiError, match='conflict with "first"') as refused:
        cluster.api.patch(path, body | {"data": {"a": "2"}}, "apply", fieldManager="second")
    assert refused.value.status == 409


def test_an_old_resource_version_is_gone(start_cluster: Callable[..., Cluster]) -> None:
    """Once etcd has forgotten and the server, started again, has no cache of then, list and watch of then are 410."""
    cluster = start_cluster(Shape(1, per_rack=1))
    path = "/api/v1/namespaces/default/configmaps"
    old = cluster.api.get(path)["metadata"]["resourceVersion"]
    for number in range(3):
        cluster.api.post(path, {"metadata": {"name": f"new-{number}"}})
    cluster.compact()
    cluster.restart("kube-apiserver")
    with pytest.raises(ApiError) as refused:
        cluster.api.get(path, resourceVersion=old, resourceVersionMatch="Exact")
    assert (refused.value.status, refused.value.reason) == (410, "Expired")
    try:
        event = next(cluster.api.watch(path, timeout_s=10, resourceVersion=old))
        status = event["object"]
        assert event["type"] == "ERROR"
    except ApiError as error:
        status = {"code": error.status}
    assert status["code"] == 410
    assert {"new-0", "new-1", "new-2"} <= {item["metadata"]["name"] for item in cluster.api.items(path)}


def test_native_gangs_start_whole(scheduled: Cluster, scheduled_namespace: str) -> None:
    groups = {group["name"]: group for group in scheduled.api.get("/apis")["groups"]}
    versions = [version["version"] for version in groups["scheduling.k8s.io"]["versions"]]
    if int(scheduled.kubernetes.split(".")[1]) < 37:
        assert versions == ["v1"]
        return
    assert "v1beta1" in versions
    path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{scheduled_namespace}/podgroups"
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    pods = f"/api/v1/namespaces/{scheduled_namespace}/pods"
    scheduled.api.post(path, {"metadata": {"name": "gang"}, "spec": policy})
    for number in range(2):
        scheduled.api.post(pods, pod(f"gang-{number}", 8, schedulingGroup={"podGroupName": "gang"}))
    time.sleep(2)
    assert [p for p in scheduled.api.items(pods) if p["spec"].get("nodeName")] == []
    scheduled.api.post(pods, pod("gang-2", 8, schedulingGroup={"podGroupName": "gang"}))
    until(lambda: sum(p["status"]["phase"] == "Running" for p in scheduled.api.items(pods)) == 3)


def test_a_job_runs_and_completes(scheduled: Cluster, scheduled_namespace: str) -> None:
    template = pod("worker", 8, restartPolicy="Never")
    template["metadata"] = {"annotations": {"dev.muster/runs-for": "1s"}}
    body = {"metadata": {"name": "job"}, "spec": {"parallelism": 4, "completions": 4, "template": template}}
    path = f"/apis/batch/v1/namespaces/{scheduled_namespace}/jobs"
    scheduled.api.post(path, body)
    until(lambda: scheduled.api.get(f"{path}/job")["status"].get("succeeded") == 4)


def test_devices_by_dra_are_allocated(start_cluster: Callable[..., Cluster]) -> None:
    """Two GPUs, three claims: two pods run, the third waits."""
    cluster = start_cluster(Shape(1, 2, per_rack=1, advertise="dra"), scheduler=True)
    assert "nvidia.com/gpu" not in cluster.api.get("/api/v1/nodes/gpu-001")["status"]["allocatable"]
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    template = {"metadata": {"name": "one-gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    cluster.api.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", template)
    pods = "/api/v1/namespaces/default/pods"
    for number in range(3):
        body = pod(f"p{number}", 0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}])
        body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        cluster.api.post(pods, body)
    until(lambda: sum(p["status"]["phase"] == "Running" for p in cluster.api.items(pods)) == 2)
    claims = cluster.api.items("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")
    devices = [
        c["status"]["allocation"]["devices"]["results"][0]["device"] for c in claims if c["status"].get("allocation")
    ]
    assert sorted(devices) == ["gpu-0", "gpu-1"]
    time.sleep(1)
    assert sum(p["status"]["phase"] == "Pending" for p in cluster.api.items(pods)) == 1


def test_the_server_comes_back_with_its_data(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(Shape(2, per_rack=1))
    uid = cluster.api.get("/api/v1/nodes/gpu-001")["metadata"]["uid"]
    for component in ("kube-apiserver", "etcd"):
        cluster.kill(component)
        with pytest.raises((OSError, ApiError)):
            cluster.api.get("/api/v1/nodes/gpu-001", timeout="2s")
        cluster.restart(component)
        cluster.wait("the server was back", lambda: cluster.healthy("kube-apiserver"))
        assert cluster.api.get("/api/v1/nodes/gpu-001")["metadata"]["uid"] == uid


def test_down_leaves_no_process_whatever_happened(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(Shape(1, per_rack=1))
    assert set(cluster.processes()) == set(cluster.wanted())
    cluster.kill("etcd")
    cluster.pause("kube-controller-manager")
    cluster.down()
    assert running(cluster.folder) == {}
    assert not cluster.folder.exists()
    cluster.down()


@pytest.mark.slow
def test_an_interrupted_start_leaves_no_process(kubernetes: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "controlplane", "up", "--name=cut", "--nodes=3000", f"--k8s={kubernetes}"]
    environment = os.environ | {"PYTHONPATH": str(DEV), "MUSTER_CLUSTERS_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as up:
        assert up.stderr
        for line in up.stderr:
            if "adding" in line:
                break
        assert len(running(tmp_path / "cut")) >= 2
        up.send_signal(signal.SIGTERM)
        _, said = up.communicate(timeout=60)
    assert up.returncode == 130, said
    assert "what was started is ended" in said
    assert running(tmp_path / "cut") == {}


@pytest.mark.slow
def test_a_killed_test_run_is_swept_up(kubernetes: str, tmp_path: Path) -> None:
    code = (
        "from controlplane import *\n"
        f"Cluster('orphan', Settings((Shape(1, per_rack=1),), False, {kubernetes!r})).up(tied=True)\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(DEV), "MUSTER_CLUSTERS_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=120, check=False)
    assert set(running(tmp_path / "orphan")) == {"etcd", "kube-apiserver", "kube-controller-manager", "kwok"}
    done = subprocess.run([sys.executable, "-m", "controlplane", "ls"], env=environment, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert "'orphan' belonged to a process that is gone" in done.stderr
    assert running(tmp_path / "orphan") == {}


def test_a_broken_etcd_is_named(kubernetes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane import build

    cache = tmp_path / "cache"
    for program in ("etcd", "kubernetes", "kwok"):
        real = build.built(program, kubernetes if program == "kubernetes" else "")
        (cache / program).mkdir(parents=True)
        (cache / program / real.name).symlink_to(real)
    broken = cache / "etcd" / build.version_of("etcd")
    broken.unlink()
    broken.mkdir()
    (broken / build.STAMP).touch()
    (broken / "etcd").write_text("#!/bin/sh\necho 'panic: no room left' >&2\nexit 7\n")
    (broken / "etcd").chmod(0o755)
    monkeypatch.setenv("MUSTER_CONTROLPLANE_DIR", str(cache))
    monkeypatch.setenv("MUSTER_CLUSTERS_DIR", str(tmp_path / "clusters"))
    cluster = Cluster("broken", Settings((Shape(1, per_rack=1),), False, kubernetes))
    with pytest.raises(ClusterError, match=r"etcd ended \(exit 7\) before etcd was healthy.*\n.*panic: no room left"):
        cluster.up()
    assert running(cluster.folder) == {}


def test_crds_of_others_are_served_and_validate(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(Shape(1, per_rack=1), crds=("jobset",))
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    template = {"spec": {"parallelism": 2, "template": pod("worker", restartPolicy="Never")}}
    group = {"name": "workers", "replicas": 2, "template": template}
    made = cluster.api.post(path, {**_KIND, "metadata": {"name": "set"}, "spec": {"replicatedJobs": [group]}})
    assert made["spec"]["replicatedJobs"][0]["replicas"] == 2
    with pytest.raises(ApiError) as refused:
        cluster.api.post(path, {**_KIND, "metadata": {"name": "bad"}, "spec": {"replicatedJobs": [{"name": "w"}]}})
    assert refused.value.status == 422


def test_an_evicted_pod_of_a_job_with_a_failure_policy_goes(scheduled: Cluster, scheduled_namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{scheduled_namespace}/jobs"
    pods = f"/api/v1/namespaces/{scheduled_namespace}/pods"
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    containers = [{"name": "main", "image": "registry.example/train"}]
    template = {
        "metadata": {"annotations": {"dev.muster/runs-for": "1h"}},
        "spec": {"containers": containers, "restartPolicy": "Never", "terminationGracePeriodSeconds": 30},
    }
    spec = {"podFailurePolicy": {"rules": rules}, "template": template}
    scheduled.api.post(jobs, {"metadata": {"name": "kept"}, "spec": spec})

    def alive() -> list[str]:
        return [each["metadata"]["name"] for each in scheduled.api.items(pods) if each["status"]["phase"] == "Running"]

    scheduled.wait("it ran", lambda: len(alive()) == 1)
    (name,) = alive()
    scheduled.api.post(f"{pods}/{name}/eviction", {"metadata": {"name": name}})
    scheduled.wait("another ran in its place", lambda: alive() and name not in str(scheduled.api.items(pods)))
