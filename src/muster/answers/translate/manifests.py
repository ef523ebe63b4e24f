"""Objects of Kubernetes as plain values: pod templates, Jobs, JobSets, PyTorchJobs, and what they need beside them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from muster.answers.translate.base import Mount
from muster.kube.claims import PREFERRED, REQUIRED, SLICE_LEVEL, SLICE_SIZE
from muster.kube.declared import MIN_PARALLELISM
from muster.kube.objects import QUEUE_LABEL
from muster.model.workload import PodSet, TopologyRequest

SCRIPTS = "/muster"
NO_IMAGE = "IMAGE-IS-NOT-SAID"
JOB_NAME = "batch.kubernetes.io/job-name"
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
_DISRUPTED = [{"type": "DisruptionTarget"}]


class Gang(Struct, frozen=True):
    """How the pods of a job are brought to start together: ``by`` kueue, podgroup, muster or none, and the queue."""

    by: str
    queue: str = ""


class Part(Struct, frozen=True):
    """One pod set on its way to a pod template.

    Attributes:
        name: of the set, as object names are written.
        pods: the set.
        spec: what the pods have of their own: selectors, working directory, environment.
        annotations: of the pods.
    """

    name: str
    pods: PodSet
    spec: dict[str, Any]
    annotations: dict[str, str]


class Whole(Struct, frozen=True):
    """What holds for the job as one.

    Attributes:
        limit_s: its time limit; ``limit_of_pods`` says that each pod has it for itself.
        requeue: it starts anew if a node fails or it is preempted.
        least: pods with which it may start; None: all.
        tasks: of an array that is one Job; 0: it is none.
        tasks_at_once: how many of them run at a time.
    """

    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    gang: Gang
    limit_s: int | None = None
    limit_of_pods: bool = False
    requeue: bool = True
    suspend: bool = False
    least: int | None = None
    tasks: int = 0
    tasks_at_once: int = 0


def meta(whole: Whole, name: str = "") -> dict[str, Any]:
    """The metadata of an object."""
    found: dict[str, Any] = {"name": name or whole.name}
    if whole.namespace:
        found["namespace"] = whole.namespace
    return found


def owner_meta(whole: Whole) -> dict[str, Any]:
    """The metadata of the object that makes the pods: it has the queue."""
    labels = dict(whole.labels)
    if whole.gang.queue:
        labels["muster.dev/queue" if whole.gang.by == "muster" else QUEUE_LABEL] = whole.gang.queue
    found = meta(whole)
    if labels:
        found["labels"] = labels
    if whole.annotations:
        found["annotations"] = dict(whole.annotations)
    return found


def topology_of(request: TopologyRequest | None, pods: int, label: Any) -> dict[str, str]:
    """Kueue's annotations for a request; ``label(level)`` is the node label of a level."""
    if request is None:
        return {}
    found: dict[str, str] = {}
    if request.required and request.segment and request.segment < pods:
        found[SLICE_LEVEL] = label(request.required)
        found[SLICE_SIZE] = str(request.segment)
    elif request.required:
        found[REQUIRED] = label(request.required)
    if request.preferred:
        found[PREFERRED] = label(request.preferred)
    return found


def quantity(memory_bytes: int) -> str:
    """Memory as Kubernetes writes it, exactly."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if memory_bytes % 1024**power == 0 and memory_bytes:
            return f"{memory_bytes // 1024**power}{unit}"
    return str(memory_bytes)


def resources(pods: PodSet, resource: str, disk_bytes: int = 0) -> dict[str, Any]:
    """Requests and limits: GPUs and memory are limited to what is asked for, CPUs are not, as idle ones may be used."""
    shape = pods.shape
    requests: dict[str, Any] = {"cpu": str(shape.cpu_milli // 1000)} if shape.cpu_milli % 1000 == 0 else {
        "cpu": f"{shape.cpu_milli}m"
    }  # fmt: skip
    limits: dict[str, Any] = {}
    if shape.memory_bytes:
        requests["memory"] = limits["memory"] = quantity(shape.memory_bytes)
    if disk_bytes:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = quantity(disk_bytes)
    if shape.gpus and not shape.shares_gpu:
        requests[resource] = limits[resource] = shape.gpus
    return {"requests": requests, **({"limits": limits} if limits else {})}


def template(whole: Whole, part: Part, mounts: tuple[Mount, ...], image: str, subdomain: str = "") -> dict[str, Any]:
    """The pod template of a part. ``part.spec`` may hold ``container``, whose fields go into the container."""
    own = dict(part.spec)
    container: dict[str, Any] = {
        "name": "job", "image": image or NO_IMAGE, "command": ["/bin/bash", f"{SCRIPTS}/launch"],
        **own.pop("container"),
    }  # fmt: skip
    volumes: list[dict[str, Any]] = [{"name": "script", "configMap": {"name": f"{whole.name}-script"}}]
    seen = [{"name": "script", "mountPath": SCRIPTS, "readOnly": True}]
    if part.pods.shape.gpus:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        seen.append({"name": "shm", "mountPath": "/dev/shm"})
    for number, mount in enumerate(mounts):
        source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": mount.claim}}
        if not mount.claim:
            source = {"hostPath": {"path": mount.host}}
        volumes.append({"name": f"volume-{number}", **source})
        seen.append({"name": f"volume-{number}", "mountPath": mount.path})
    spec: dict[str, Any] = {"restartPolicy": "Never"}
    if whole.gang.by == "muster":
        spec["schedulerName"] = "muster"
    elif whole.gang.by == "podgroup":
        spec["schedulingGroup"] = {"podGroupName": whole.name}
    if subdomain:
        spec["subdomain"] = subdomain
    if whole.limit_s is not None and whole.limit_of_pods:
        spec["activeDeadlineSeconds"] = whole.limit_s
    spec |= own
    spec["containers"] = [{**container, "volumeMounts": seen}]
    spec["volumes"] = volumes
    found: dict[str, Any] = {"metadata": {"annotations": part.annotations}} if part.annotations else {}
    return {**found, "spec": spec}


def job_spec(whole: Whole, part: Part, pods: dict[str, Any], *, in_set: bool) -> dict[str, Any]:
    """The spec of a Job, or of one in a JobSet, which starts anew as a whole."""
    count = whole.tasks or part.pods.count
    spec: dict[str, Any] = {"completionMode": "Indexed", "completions": count}
    spec["parallelism"] = whole.tasks_at_once or count
    if whole.limit_s is not None and not whole.limit_of_pods:
        spec["activeDeadlineSeconds"] = whole.limit_s
    if whole.tasks_at_once:
        spec["backoffLimitPerIndex"] = 0
    else:
        spec["backoffLimit"] = 0
    action = "Ignore" if whole.requeue and not in_set else "FailJob"
    spec["podFailurePolicy"] = {"rules": [{"action": action, "onPodConditions": _DISRUPTED}]}
    spec["template"] = pods
    return spec


def job(whole: Whole, part: Part, pods: dict[str, Any]) -> dict[str, Any]:
    """A Job."""
    head = owner_meta(whole)
    least = 1 if whole.tasks_at_once else whole.least
    if least is not None:
        head.setdefault("annotations", {})[MIN_PARALLELISM] = str(least)
    spec = job_spec(whole, part, pods, in_set=False)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": head, "spec": {**_suspended(whole), **spec}}


def job_set(whole: Whole, parts: list[tuple[Part, dict[str, Any]]]) -> dict[str, Any]:
    """A JobSet: a replicated job a part."""
    policy: dict[str, Any] = {"maxRestarts": 0}
    if whole.requeue:
        rule = {"name": "requeue", "action": "RestartJobSetAndIgnoreMaxRestarts"}
        policy["rules"] = [{**rule, "onJobFailureReasons": ["PodFailurePolicy"]}]
    jobs = [
        {"name": part.name, "replicas": 1, "template": {"spec": job_spec(whole, part, pods, in_set=True)}}
        for part, pods in parts
    ]
    spec = {"network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True}, "failurePolicy": policy}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": owner_meta(whole),
        "spec": {**_suspended(whole), **spec, "replicatedJobs": jobs},
    }  # fmt: skip


def pytorch_job(whole: Whole, parts: list[tuple[str, int, dict[str, Any]]]) -> dict[str, Any]:
    """A PyTorchJob: roles with how many pods each has."""
    roles: dict[str, Any] = {
        role: {"replicas": count, "restartPolicy": "Never", "template": pods} for role, count, pods in parts
    }
    run: dict[str, Any] = {"backoffLimit": 0, "cleanPodPolicy": "Running", **_suspended(whole)}
    if whole.limit_s is not None and not whole.limit_of_pods:
        run["activeDeadlineSeconds"] = whole.limit_s
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": owner_meta(whole),
        "spec": {"runPolicy": run, "pytorchReplicaSpecs": roles},
    }  # fmt: skip


def _suspended(whole: Whole) -> dict[str, Any]:
    return {"suspend": True} if whole.suspend or (whole.gang.by == "kueue" and whole.gang.queue) else {}


def pod_group(whole: Whole, pods: int, key: str) -> dict[str, Any]:
    """A PodGroup of Kubernetes' own scheduler: all pods, or as many as are needed, start together."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": whole.least or pods}}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta(whole), "spec": spec}


def service(whole: Whole) -> dict[str, Any]:
    """The headless Service by which pods of a Job find each other."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB_NAME: whole.name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(whole), "spec": spec}


def scripts(whole: Whole, files: dict[str, str]) -> dict[str, Any]:
    """The ConfigMap with what the pods run."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(whole, f"{whole.name}-script"), "data": files}
