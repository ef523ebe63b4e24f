"""Kubernetes objects of a YAML or JSON file as gangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from muster.answers.specs.base import Specs
from muster.answers.specs.batch import read_cron_job, read_job, read_job_set, read_volcano
from muster.answers.specs.kubeflow import REPLICA_SPECS, RUNTIMES, read_train_job, read_training
from muster.answers.specs.objects import Context, ObjectReader
from muster.answers.specs.places import Places
from muster.answers.specs.pods import inside
from muster.answers.specs.rays import read_ray_object
from muster.answers.specs.serving import read_leader_worker_set, read_pod, read_pod_group, read_replicas
from muster.errors import InputError, near
from muster.kube.owners import KUEUE_GROUP as POD_GROUP
from muster.model.fleet import Fleet
from muster.model.workload import Workload
from muster.traces.document import Document, documents_in

READERS: dict[str, Callable[[ObjectReader], list[Workload]]] = {
    "Pod": read_pod,
    "Job": read_job,
    "CronJob": read_cron_job,
    "JobSet": read_job_set,
    **dict.fromkeys(REPLICA_SPECS, read_training),
    "TrainJob": read_train_job,
    "RayCluster": read_ray_object,
    "RayJob": read_ray_object,
    "RayService": read_ray_object,
    "LeaderWorkerSet": read_leader_worker_set,
    "Deployment": read_replicas,
    "ReplicaSet": read_replicas,
    "StatefulSet": read_replicas,
}
"""How the objects of a kind are read; ``Job`` of Volcano is told apart by its apiVersion."""

PRIORITY_KINDS = ("PriorityClass", "WorkloadPriorityClass")
WITHOUT_PODS = frozenset((
    *PRIORITY_KINDS, *RUNTIMES, "PodGroup", "ConfigMap", "Secret", "Service", "ServiceAccount", "Namespace", "Role",
    "RoleBinding", "ClusterRole", "ClusterRoleBinding", "PersistentVolume", "PersistentVolumeClaim", "StorageClass",
    "Ingress", "NetworkPolicy", "PodDisruptionBudget", "HorizontalPodAutoscaler", "LimitRange", "ResourceQuota",
    "LocalQueue", "ClusterQueue", "ResourceFlavor", "Cohort", "Topology", "ScaledObject", "ServiceMonitor",
    "PodMonitor",
))  # fmt: skip
"""Kinds that make no pods: they may stand in the same file."""


def read_objects(
    text: str, path: str, fleet: Fleet, local_queues: Mapping[str, str] | None = None, namespace: str = ""
) -> Specs:  # fmt: skip
    """The gangs of all objects of a file; ``local_queues`` are the cluster's, those of the file go before them.

    ``namespace`` is that of objects that say none themselves.

    Raises:
        InputError: no YAML, an object of a kind that is not read, or a field that makes no sense or is not read and
            would change the answer; with file, line and path.
    """
    documents = [each for one in documents_in(text, path) for each in one.items()]
    context = Context(Places(fleet), _priorities(documents), _runtimes(documents))
    context.namespace = namespace
    context.group_levels = _group_levels(documents)
    context.local_queues = {**(local_queues or {}), **_local_queues(documents)}
    kinds: dict[str, None] = {}
    workloads: list[Workload] = []
    groups: dict[str, list[ObjectReader]] = {}
    for document in documents:
        kind = _kind(document)
        if kind in WITHOUT_PODS:
            continue
        kinds[kind] = None
        reader = ObjectReader(document, context)
        group = reader.texts("metadata.labels").get(POD_GROUP, "") if kind == "Pod" else ""
        if group:
            groups.setdefault(group, []).append(reader)
        elif kind == "Job" and str(document.data.get("apiVersion", "")).startswith("batch.volcano.sh/"):
            workloads += read_volcano(reader)
        else:
            workloads += READERS[kind](reader)
    for readers in groups.values():
        workloads += read_pod_group(readers)
    if not workloads:
        hint = f"it reads {', '.join(READERS)}, and sbatch scripts, which begin with #!"
        raise InputError("holds nothing that makes pods", file=path, hint=hint)
    _refuse_twice(workloads, path)
    return Specs(
        path, " and ".join(kinds), tuple(workloads), context.places.fleet, tuple(context.notes), context.places.words
    )


def _kind(document: Document) -> str:
    kind = document.data.get("kind")
    if not isinstance(kind, str) or not kind:
        hint = "a Kubernetes object has apiVersion, kind, metadata and spec"
        raise document.error("kind", "is missing: this is no Kubernetes object", hint)
    if kind not in READERS and kind not in WITHOUT_PODS:
        hint = near(kind, list(READERS)) or f"it reads {', '.join(READERS)}"
        raise document.error("kind", f"{kind[:60]!r} is not read, so its pods would not be counted", hint)
    return kind


def _refuse_twice(workloads: Sequence[Workload], path: str) -> None:
    seen: set[str] = set()
    for each in workloads:
        if each.name in seen:
            raise InputError(f"{each.name!r} is there twice", file=path, field="metadata.name", hint="names are unique")
        seen.add(each.name)


def _priorities(documents: Sequence[Document]) -> dict[str, int]:
    found: dict[str, int] = {}
    for document in documents:
        value = document.data.get("value")
        if document.data.get("kind") in PRIORITY_KINDS and isinstance(value, int):
            found[str(inside(document.data, "metadata.name"))] = value
    return found


def _local_queues(documents: Sequence[Document]) -> dict[str, str]:
    found = (each.data for each in documents if each.data.get("kind") == "LocalQueue")
    return {
        f"{inside(data, 'metadata.namespace') or 'default'}/{inside(data, 'metadata.name')}": str(
            inside(data, "spec.clusterQueue") or ""
        )
        for data in found
    }


def _group_levels(documents: Sequence[Document]) -> dict[str, str]:
    """The node label in one value of which the pods of a PodGroup must stand, by its name."""
    found: dict[str, str] = {}
    for document in documents:
        keys = inside(document.data, "spec.schedulingConstraints.topology[0].key")
        if document.data.get("kind") == "PodGroup" and keys:
            found[str(inside(document.data, "metadata.name"))] = str(keys)
    return found


def _runtimes(documents: Sequence[Document]) -> dict[tuple[str, str], Document]:
    named = ((str(each.data.get("kind")), str(inside(each.data, "metadata.name")), each) for each in documents)
    return {(kind, name): document for kind, name, document in named if kind in RUNTIMES}
