"""The chart on a real API server: it is taken as it is, and the rights that it gives are enough to schedule by."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane import Cluster, Shape
from rendered import CHART, NAMESPACE, ROOT, Helm, options

VALUES = sorted((ROOT / "tests" / "deploy" / "values").glob("*.yaml"))
PAGE = ROOT / "docs" / "how-to" / "install-the-scheduler.md"
KUBECTL = Path(sys.prefix) / "bin" / "kubectl"
OF_OTHERS = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which is not here."""


def until(is_so: Callable[[], object], what: str, within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_server_takes_every_object(cluster: Cluster, namespace: str, helm: Helm, values: Path) -> None:
    documents = [each for each in helm.render(values, namespace) if each["kind"] not in OF_OTHERS]
    line = [KUBECTL, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"]
    done = subprocess.run(
        line, input=yaml.safe_dump_all(documents), capture_output=True, text=True, check=False,
        env={"KUBECONFIG": str(cluster.kubeconfig), "PATH": os.environ["PATH"], "HOME": str(cluster.folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(documents)


class Running:
    """`muster scheduler` as the release would run it: its configuration and the rights of its ServiceAccount."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = folder / "scheduler.yaml"
        held = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/muster")
        config.write_text(held["data"]["scheduler.yaml"])
        self.log = folder / "log"
        line = [sys.executable, "-c", "from muster.cli.main import run; run()", "scheduler", "--config", str(config)]
        line += ["--kubeconfig", str(cluster.service_account(NAMESPACE, "muster")), "--http", self.address]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*line, "--log-format=json"], stderr=log)

    def asks(self, path: str) -> str:
        """The answer of its own server; empty if there is none."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def ready(self) -> bool:
        """Whether it has read everything; fails with its log when it has ended."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return self.asks("/readyz") == "ok\n"

    def end(self) -> int:
        """Tell it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def release(start_cluster: Callable[..., Cluster], helm: Helm) -> tuple[Cluster, Helm]:
    """A cluster of 4 nodes of 8 GPUs in which the chart is installed."""
    cluster = start_cluster(Shape(4, 8, "H100"))
    return cluster, install(cluster, helm)


def install(cluster: Cluster, helm: Helm) -> Helm:
    """Install the chart in a cluster."""
    on = helm.on(cluster.kubeconfig)
    values = {"image.repository": "registry.example/muster", "config.usageSeconds": 1, "config.messageSeconds": 1}
    done = on.run("install", "muster", CHART, "-n", NAMESPACE, "--create-namespace", *options(values))
    assert done.returncode == 0, done.stderr
    return on


def job(name: str, pods: int, priority: str) -> dict[str, Any]:
    """A gang of pods that take a node each."""
    amounts = {"nvidia.com/gpu": "8"}
    spec: dict[str, Any] = {
        "schedulerName": "muster", "priorityClassName": priority, "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "example.org/work:1", "resources": {"limits": amounts}}],
    }  # fmt: skip
    marks = {"labels": {"muster.dev/queue": "team"}, "annotations": {"dev.muster/runs-for": "600s"}}
    template = {"metadata": marks, "spec": spec}
    whole = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template}
    return {"metadata": {"name": name}, "spec": whole}


TEMPLATE = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
WHOLE_NODE = {
    "metadata": {"name": "eight"},
    "spec": {"spec": {"devices": {"requests": [
        {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}},
    ]}}},
}  # fmt: skip


def with_claims(job: dict[str, Any]) -> dict[str, Any]:
    """The same job, with its GPUs by a claim."""
    spec = job["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "eight"}]
    spec["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    return job


def pods_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    found = cluster.api.items("/api/v1/namespaces/default/pods", labelSelector=f"batch.kubernetes.io/job-name={name}")
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def bound(cluster: Cluster, name: str) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods_of(cluster, name))


def submit(cluster: Cluster, name: str, pods: int, priority: str, *, claims: bool = False) -> None:
    body = job(name, pods, priority)
    cluster.api.post("/apis/batch/v1/namespaces/default/jobs", with_claims(body) if claims else body)
    until(lambda: len(pods_of(cluster, name)) == pods, f"{name} has no pods")


def allowed(cluster: Cluster, verb: str, resource: str, group: str = "", namespace: str = "default") -> bool:
    """Whether the release's ServiceAccount may do something."""
    resource, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": part, "namespace": namespace}
    asked = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{NAMESPACE}:muster", "resourceAttributes": attributes},
    }
    return bool(cluster.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)["status"]["allowed"])


def test_its_account_schedules_gangs(release: tuple[Cluster, Helm], tmp_path: Path) -> None:
    """A gang starts whole, one waits and is told why, one of higher priority stops the first; all with these rights."""
    cluster, _ = release
    queues = "/apis/muster.dev/v1alpha1/queues"
    queue = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "team"}}
    queue |= {"spec": {"quotas": [{"flavor": "NVIDIA-H100-80GB-HBM3", "nominal": 32}]}}
    cluster.api.post(queues, queue)
    scheduler = Running(cluster, tmp_path)
    try:
        until(scheduler.ready, "it is not ready")
        submit(cluster, "first", 3, "low")
        until(lambda: bound(cluster, "first") == 3, "the first gang does not start")
        submit(cluster, "second", 3, "low")

        def told() -> bool:
            pods = pods_of(cluster, "second")
            waits = [c for pod in pods for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"]
            return len(waits) == 3 and all(c["reason"] == "Unschedulable" and c["message"] for c in waits)

        until(told, "what waits is not told why")
        assert bound(cluster, "second") == 0
        submit(cluster, "urgent", 3, "high")
        until(lambda: bound(cluster, "urgent") == 3, "the urgent gang does not start")
        assert bound(cluster, "second") == 0

        def reasons() -> set[str]:
            return {str(each["reason"]) for each in cluster.api.items("/apis/events.k8s.io/v1/events")}

        until(lambda: reasons() >= {"Scheduled", "FailedScheduling", "Evicted"}, "events are missing")
        until(lambda: cluster.api.get(f"{queues}/team").get("status", {}).get("asOf"), "the queue has no status")
        figures = scheduler.asks("/metrics")
        assert "muster_leader_election_master_status" in figures
        assert not re.findall(r'muster_api_errors_total\{status="40[13]"\} .*', figures), scheduler.log.read_text()
    finally:
        code = scheduler.end()
    assert code == 0
    lease = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/muster")
    assert not lease["spec"].get("holderIdentity"), "the lease was not given up"
    assert not [line for line in scheduler.log.read_text().splitlines() if json.loads(line)["level"] == "error"]


def test_its_account_gives_devices_to_claims(start_cluster: Callable[..., Cluster], helm: Helm, tmp_path: Path) -> None:
    """With the granular permissions of Kubernetes 1.36 and newer, too."""
    cluster = start_cluster(Shape(2, 8, "H100", advertise="dra"))
    install(cluster, helm)
    cluster.api.post(TEMPLATE, WHOLE_NODE)
    scheduler = Running(cluster, tmp_path)
    try:
        until(scheduler.ready, "it is not ready")
        submit(cluster, "claims", 2, "normal", claims=True)
        until(lambda: bound(cluster, "claims") == 2, "the gang with claims does not start")
    finally:
        scheduler.end()
    claims = cluster.api.items("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")
    assert [len(each["status"]["allocation"]["devices"]["results"]) for each in claims] == [8, 8]
    assert all(each["status"]["reservedFor"] for each in claims)


def test_it_is_switched_to_shadow_mode_and_removed(release: tuple[Cluster, Helm], tmp_path: Path) -> None:
    """Then it says what it would do, with rights to read only."""
    cluster, on = release
    writes = [("create", "pods/binding"), ("create", "pods/eviction"), ("patch", "pods/status")]
    writes += [("patch", "podgroups/status", "scheduling.k8s.io"), ("patch", "queues/status", "muster.dev")]
    assert [each for each in writes if not allowed(cluster, *each)] == []
    assert allowed(cluster, "create", "leases", "coordination.k8s.io", NAMESPACE)
    never = [("get", "secrets"), ("delete", "pods"), ("create", "pods"), ("patch", "nodes"), ("get", "configmaps")]
    assert not any(allowed(cluster, *each) for each in never)
    done = on.run("upgrade", "muster", CHART, "-n", NAMESPACE, "--reuse-values", "--set", "mode=shadow")
    assert done.returncode == 0, done.stderr
    until(lambda: not any(allowed(cluster, *each) for each in writes), "it may still write")
    assert allowed(cluster, "list", "pods")
    assert not allowed(cluster, "create", "leases", "coordination.k8s.io", NAMESPACE)
    looks_on = Running(cluster, tmp_path)
    try:
        until(looks_on.ready, "it is not ready")
        submit(cluster, "gang", 3, "normal")
        until(lambda: '"would start"' in looks_on.log.read_text(), "it does not say what it would do")
        assert "muster_api_errors_total{" not in looks_on.asks("/metrics")
    finally:
        assert looks_on.end() == 0
    assert bound(cluster, "gang") == 0
    done = on.run("uninstall", "muster", "-n", NAMESPACE)
    assert done.returncode == 0, done.stderr
    roles = cluster.api.items("/apis/rbac.authorization.k8s.io/v1/clusterroles")
    assert "muster" not in {role["metadata"]["name"] for role in roles}
    assert not cluster.api.items(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
    crds = cluster.api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert [each["metadata"]["name"] for each in crds] == ["queues.muster.dev"], "queues stay until they are deleted"


def test_a_namespace_is_given_to_it_as_the_docs_say(cluster: Cluster, namespace: str) -> None:
    """The policy on the page: GPU pods of a labelled namespace get the scheduler; all other pods keep theirs."""
    minor = int(cluster.kubernetes.split(".")[1])
    if minor < 36:
        pytest.skip(f"Kubernetes 1.{minor} has no MutatingAdmissionPolicy v1")
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "Mutating" in text]
    group = "/apis/admissionregistration.k8s.io/v1"
    plural = {
        "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
        "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    }
    numbers = iter(range(1000))

    def scheduler_of(resource: str, **spec: str) -> str:
        container = {"name": "main", "image": "example.org/work:1", "resources": {"limits": {resource: "1"}}}
        pod = {"metadata": {"name": f"p{next(numbers)}"}, "spec": {"containers": [container], **spec}}
        return str(cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", pod)["spec"]["schedulerName"])

    documents = list(yaml.safe_load_all(block))
    try:
        for each in documents:
            cluster.api.post(f"{group}/{plural[each['kind']]}", each)
        assert scheduler_of("nvidia.com/gpu") == "default-scheduler"
        cluster.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"muster.dev/schedules": "true"}}})
        until(lambda: scheduler_of("nvidia.com/gpu") == "muster", "the policy has no effect")
        assert scheduler_of("cpu") == "default-scheduler"
        assert scheduler_of("nvidia.com/gpu", schedulerName="other") == "other"
    finally:
        for each in reversed(documents):
            cluster.api.delete(f"{group}/{plural[each['kind']]}/{each['metadata']['name']}")
