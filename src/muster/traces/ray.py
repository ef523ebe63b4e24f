"""Ray clusters on Kubernetes as gangs: RayCluster, RayJob and RayService, KubeRay's custom resources.

The whole cluster is one gang: the head with its autoscaler's sidecar, the workers of each group, and the pod that
submits a RayJob. What runs inside, tasks and placement groups, only divides what the gang holds.

With the autoscaler a group may run with ``minReplicas`` and asks for ``replicas``; without it with all or none. A group
of several hosts a replica is not elastic: part of a replica is of no use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from muster.catalog.ray import (
    AUTOSCALER_CPU_MILLI,
    AUTOSCALER_MEMORY_BYTES,
    OPERATOR,
    SUBMITTER_CPU_MILLI,
    SUBMITTER_MEMORY_BYTES,
)
from muster.errors import InputError
from muster.kube.objects import QUEUE_LABEL, PodSpec, Quantity, Resources, parse_quantity, parse_time, pod_shape
from muster.model.workload import PodSet, PodShape, Workload
from muster.traces.checks import check_pod_set, check_workload
from muster.traces.document import Document, read_documents
from muster.traces.trace import Skipped, Trace

KINDS = ("RayCluster", "RayJob", "RayService")


class Template(Struct):
    """A pod template."""

    spec: PodSpec


class HeadGroup(Struct, rename="camel"):
    """headGroupSpec."""

    template: Template


class WorkerGroup(Struct, rename="camel"):
    """An entry of workerGroupSpecs."""

    template: Template
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None


class AutoscalerOptions(Struct, rename="camel"):
    """autoscalerOptions."""

    resources: Resources | None = None


class ClusterSpec(Struct, rename="camel"):
    """The spec of a RayCluster."""

    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: AutoscalerOptions | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class JobSpec(Struct, rename="camel"):
    """The spec of a RayJob."""

    ray_cluster_spec: ClusterSpec | None = None
    cluster_selector: dict[str, str] | None = None
    submission_mode: str | None = None
    submitter_pod_template: Template | None = None
    active_deadline_seconds: int | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class ServiceSpec(Struct, rename="camel"):
    """The spec of a RayService."""

    ray_cluster_config: ClusterSpec
    suspend: bool | None = None
    managed_by: str | None = None


class Owner(Struct):
    """An entry of metadata.ownerReferences."""

    kind: str = ""
    name: str = ""


class RayMeta(Struct, rename="camel"):
    """metadata."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: str | None = None
    owner_references: list[Owner] | None = None


class RayObject(Struct, rename="camel"):
    """Any of KINDS; ``spec`` is read by its kind."""

    kind: str = ""
    metadata: RayMeta = field(default_factory=RayMeta)


class Group(Struct, frozen=True):
    """Workers of one shape: ``replicas`` of ``hosts`` pods each are asked for, ``least`` of them needed."""

    name: str
    shape: PodShape
    replicas: int
    least: int | None = None
    hosts: int = 1


def cluster_pod_sets(head: PodShape, groups: Sequence[Group], submitter: PodShape | None = None) -> tuple[PodSet, ...]:
    """The pod sets of a Ray cluster: head, worker groups that have pods, and what submits the job."""
    sets = [PodSet(head, 1, role="head")]
    for group in groups:
        if group.replicas:
            elastic = group.least is not None and group.least < group.replicas and group.hosts == 1
            sets.append(PodSet(group.shape, group.replicas * group.hosts, group.least if elastic else None, group.name))
    if submitter is not None:
        sets.append(PodSet(submitter, 1, role="submitter"))
    return tuple(sets)


def with_more(shape: PodShape, cpu_milli: int, memory_bytes: int) -> PodShape:
    """A pod with one more container."""
    return replace(shape, cpu_milli=shape.cpu_milli + cpu_milli, memory_bytes=shape.memory_bytes + memory_bytes)


def read_ray(path: str, spec: str) -> Trace:
    """Read the Ray objects of a YAML file; other objects, and what is not for Muster to admit, are skipped.

    Raises:
        InputError: the file is no YAML, or an object makes no sense; with its line and the field's path.
    """
    workloads: list[Workload] = []
    skipped: list[Skipped] = []
    seen: set[str] = set()
    documents = [each for one in read_documents(path) for each in one.items()]
    found = [(each, each.convert(RayObject)) for each in documents]
    owners = {(each.kind, each.metadata.name) for _, each in found}
    for document, item in found:
        if item.kind not in KINDS:
            why = f"is a {item.kind[:40]}, not one of {', '.join(KINDS)}" if item.kind else "is no Kubernetes object"
            skipped.append(Skipped(path, document.line, "kind", why))
            continue
        name = item.metadata.name
        if not name:
            raise document.error("metadata.name", "is missing or empty")
        owner = next((each for each in item.metadata.owner_references or () if (each.kind, each.name) in owners), None)
        if owner is not None:
            why = f"{name} belongs to {owner.kind} {owner.name}, which is admitted with all that it makes"
            skipped.append(Skipped(path, document.line, "metadata.ownerReferences", why))
            continue
        workload, why = RayReader(document, item).workload()
        if workload is None:
            skipped.append(Skipped(path, document.line, "spec", f"{name} {why}"))
            continue
        if workload.name in seen:
            raise document.error(
                "metadata.name", f"{workload.name!r} is the name of another object", "names are unique"
            )
        seen.add(workload.name)
        workloads.append(workload)
    if not workloads and not skipped:
        raise InputError("holds no object", file=path, hint=f"one of {', '.join(KINDS)}")
    return Trace(path.rpartition("/")[2].partition(".")[0] or path, spec, tuple(workloads), tuple(skipped))


class RayReader:
    """One object on its way to a workload."""

    def __init__(self, document: Document, item: RayObject) -> None:
        self.document = document
        self.item = item

    def workload(self) -> tuple[Workload | None, str]:
        """The gang, or why there is none."""
        document, item = self.document, self.item
        found = document.data.get("spec")
        if not isinstance(found, dict):
            raise document.error("spec", "is missing" if found is None else "must be a mapping")
        data = cast("dict[str, Any]", found)
        job: JobSpec | None = None
        owner: JobSpec | ServiceSpec | ClusterSpec
        if item.kind == "RayCluster":
            owner = cluster = document.convert(ClusterSpec, data, "spec")
            where = "spec"
        elif item.kind == "RayService":
            owner = document.convert(ServiceSpec, data, "spec")
            cluster, where = owner.ray_cluster_config, "spec.rayClusterConfig"
        else:
            owner = job = document.convert(JobSpec, data, "spec")
            if job.cluster_selector:
                return None, "runs in a cluster that is there already and is admitted with that"
            if job.ray_cluster_spec is None:
                raise document.error("spec.rayClusterSpec", "is missing")
            cluster, where = job.ray_cluster_spec, "spec.rayClusterSpec"
        labels = item.metadata.labels or {}
        queue = labels.get(QUEUE_LABEL, "")
        if owner.managed_by not in (None, OPERATOR):
            return None, f"is managed by {owner.managed_by}, which admits it"
        if owner.suspend and not queue:
            return None, f"is suspended, and no label {QUEUE_LABEL} says for which queue it waits"
        sets = self._pod_sets(cluster, where, job)
        for each in sets:
            check_pod_set(each, document.file, document.line)
        meta = item.metadata
        workload = Workload(
            f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name,
            sets,
            submitted_s=parse_time(meta.creation_timestamp) or 0.0,
            time_limit_s=None if job is None else job.active_deadline_seconds,
            queue=queue,
            namespace=meta.namespace,
            priority=cluster.head_group_spec.template.spec.priority or 0,
        )
        check_workload(workload, document.file, document.line)
        return workload, ""

    def _pod_sets(self, cluster: ClusterSpec, where: str, job: JobSpec | None) -> tuple[PodSet, ...]:
        head = self.shape(cluster.head_group_spec.template, f"{where}.headGroupSpec.template.spec")
        scaled = bool(cluster.enable_in_tree_autoscaling)
        if scaled:
            asked: dict[str, Quantity] = {"cpu": f"{AUTOSCALER_CPU_MILLI}m", "memory": AUTOSCALER_MEMORY_BYTES}
            given = cluster.autoscaler_options and cluster.autoscaler_options.resources
            if given is not None:
                asked = {**(given.limits or {}), **(given.requests or {})}
            at = f"{where}.autoscalerOptions.resources"
            head = with_more(head, self._amount(asked, "cpu", 1000, at), self._amount(asked, "memory", 1, at))
        groups = [
            self._group(each, f"{where}.workerGroupSpecs[{at}]", scaled=scaled)
            for at, each in enumerate(cluster.worker_group_specs or ())
        ]
        submitter = None
        if job is not None and job.submission_mode in (None, "", "K8sJobMode"):
            submitter = PodShape(SUBMITTER_CPU_MILLI, SUBMITTER_MEMORY_BYTES)
            if job.submitter_pod_template is not None:
                submitter = self.shape(job.submitter_pod_template, "spec.submitterPodTemplate.spec")
        elif job is not None and job.submission_mode == "SidecarMode":
            head = with_more(head, SUBMITTER_CPU_MILLI, SUBMITTER_MEMORY_BYTES)
        return cluster_pod_sets(head, groups, submitter)

    def _group(self, group: WorkerGroup, where: str, *, scaled: bool) -> Group:
        least = group.min_replicas or 0
        most = 2**31 - 1 if group.max_replicas is None else group.max_replicas
        replicas = least if group.replicas is None else group.replicas
        hosts = 1 if group.num_of_hosts is None else group.num_of_hosts
        for key, value, low in (("minReplicas", least, 0), ("replicas", replicas, 0), ("numOfHosts", hosts, 1)):
            if not low <= value < 2**31:
                raise self.document.error(f"{where}.{key}", f"is {value}", f"{low} or more")
        if least > most:
            raise self.document.error(f"{where}.minReplicas", f"is {least}, and maxReplicas {most}")
        replicas = 0 if group.suspend else min(max(replicas, least), most)
        shape = self.shape(group.template, f"{where}.template.spec")
        return Group(group.group_name or "workers", shape, replicas, least if scaled else None, hosts)

    def shape(self, template: Template, where: str) -> PodShape:
        """What a pod of a template asks for; ``where`` is the path of the template's spec."""

        def amount(resources: Mapping[str, Quantity], name: str, scale: int, at: str) -> int:
            return self._amount(resources, name, scale, f"{where}.{at}")

        return pod_shape(template.spec, amount)

    def _amount(self, resources: Mapping[str, Quantity], name: str, scale: int, where: str) -> int:
        try:
            amount = parse_quantity(resources.get(name, 0), scale)
        except (ValueError, OverflowError):
            amount = -1
        if not 0 <= amount < 2**53:
            shown = str(resources[name])[:40]
            raise self.document.error(where, f"{name} {shown!r} is no amount", "such as 8, 500m or 64Gi")
        return amount
