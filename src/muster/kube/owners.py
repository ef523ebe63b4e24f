"""To which gang a pod belongs, as which of its pods: told from the pod alone, so that it never changes.

Labels and annotations: kubernetes/api batch/v1 and core/v1, kubernetes-sigs/scheduler-plugins, volcano-sh/apis,
kai-scheduler pkg/common/constants, kubernetes-sigs/kueue pkg/controller/constants, kubernetes-sigs/jobset
api/jobset/v1alpha2, kubernetes-sigs/lws api/leaderworkerset/v1, kubeflow/training-operator pkg/apis/kubeflow.org/v1,
ray-project/kuberay ray-operator utils.
"""

from __future__ import annotations

import re

from msgspec import Struct

from muster.kube.objects import KubePod

JOB_NAME, COMPLETION_INDEX = ("batch.kubernetes.io/job-name", "job-name"), "batch.kubernetes.io/job-completion-index"
PLUGIN_GROUP = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
VOLCANO_GROUP = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_JOB, VOLCANO_TASK, VOLCANO_INDEX = "volcano.sh/job-name", "volcano.sh/task-spec", "volcano.sh/task-index"
KAI_GROUP, KAI_SUBGROUP = "pod-group-name", "kai.scheduler/subgroup-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
JOB_SET, REPLICATED_JOB, JOB_INDEX = (
    "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index",
)  # fmt: skip
LWS, LWS_GROUP, LWS_WORKER = (
    "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
)  # fmt: skip
TRAINING_JOB, TRAINING_TYPE, TRAINING_ROLE, TRAINING_INDEX = (
    "training.kubeflow.org/job-name", "training.kubeflow.org/replica-type", "training.kubeflow.org/job-role",
    "training.kubeflow.org/replica-index",
)  # fmt: skip
RAY_CLUSTER, RAY_GROUP, RAY_TYPE = "ray.io/cluster", "ray.io/group", "ray.io/node-type"
RAY_INDEX = ("ray.io/worker-group-replica-index", "ray.io/replica-host-index")

FIRST_ROLES = ("launcher", "master", "chief", "ps", "leader", "head", "coordinator", "driver")
"""Roles that come first in a gang, in this order."""
_NUMBER = re.compile(r"\d+")

Rank = tuple[tuple[int, ...], tuple[tuple[str, int], ...]]


class Gang(Struct, frozen=True, order=True):
    """What makes a gang of pods: an object of ``kind``, in ``namespace``, called ``name``."""

    kind: str
    namespace: str
    name: str


class Member(Struct, frozen=True):
    """A pod's part in its gang.

    Attributes:
        gang: which.
        role: of its pod set.
        index: its number there, where it has one; -1: none.
        rank: by which the pods of a role are in order.
    """

    gang: Gang
    role: str
    index: int
    rank: Rank


def member(pod: KubePod) -> Member:
    """The gang of a pod and its part in it; a pod that belongs to none is a gang by itself."""
    gang = gang_of(pod)
    role, numbers = _part(pod)
    if gang.kind == "PodGroup.scheduling.run.ai" and (group := pod.metadata.label(KAI_SUBGROUP)):
        role = group
    return Member(gang, role, numbers[-1] if numbers else -1, (numbers, natural(pod.metadata.name)))


def gang_of(pod: KubePod) -> Gang:
    """The gang of a pod. A group that its scheduler is to take as a whole goes before what made the pod."""
    meta, group = pod.metadata, pod.spec.scheduling_group
    space = meta.namespace
    if group is not None and group.pod_group_name:
        return Gang("PodGroup", space, group.pod_group_name)
    if pod.spec.workload_ref is not None:
        reference = pod.spec.workload_ref
        parts = (reference.name, reference.pod_group, reference.pod_group_replica_key)
        return Gang("Workload", space, "-".join(part for part in parts if part))
    if meta.labels and (name := meta.label(*PLUGIN_GROUP)):
        return Gang("PodGroup.scheduling.x-k8s.io", space, name)
    made = _made_by(pod)
    if made.kind == "Pod":
        if name := meta.label(KUEUE_GROUP):
            return Gang("PodGroup.kueue.x-k8s.io", space, name)
        if name := meta.annotation(*VOLCANO_GROUP):
            return Gang("PodGroup.scheduling.volcano.sh", space, name)
        if name := meta.annotation(KAI_GROUP):
            return Gang("PodGroup.scheduling.run.ai", space, name)
    return made


def _made_by(pod: KubePod) -> Gang:
    meta = pod.metadata
    space = meta.namespace
    if meta.labels:
        if name := meta.label(JOB_SET):
            return Gang("JobSet", space, name)
        if name := meta.label(LWS):
            return Gang("LeaderWorkerSet", space, f"{name}-{meta.label(LWS_GROUP) or '0'}")
        if name := meta.label(TRAINING_JOB):
            return Gang(meta.owner.kind if meta.owner else "TrainingJob", space, name)
        if name := meta.label(RAY_CLUSTER):
            return Gang("RayCluster", space, name)
        if name := meta.label(VOLCANO_JOB):
            return Gang("Job.batch.volcano.sh", space, name)
    owner = meta.owner
    if owner is not None and owner.kind == "Job":
        return Gang("Job", space, owner.name)
    if owner is None and (name := meta.label(*JOB_NAME)):
        return Gang("Job", space, name)
    return Gang("Pod", space, meta.name)


def _part(pod: KubePod) -> tuple[str, tuple[int, ...]]:
    """A pod's role and its numbers within it, as those that made it label it."""
    meta = pod.metadata
    if not meta.labels:
        return "main", ()
    index = meta.label(COMPLETION_INDEX) or meta.annotation(COMPLETION_INDEX)
    if role := meta.label(REPLICATED_JOB):
        return role, _numbers(meta.label(JOB_INDEX), index)
    if meta.label(LWS):
        worker = meta.label(LWS_WORKER)
        return ("leader" if worker == "0" else "workers"), _numbers(worker)
    if role := meta.label(TRAINING_TYPE, TRAINING_ROLE):
        return role.lower(), _numbers(meta.label(TRAINING_INDEX))
    if meta.label(RAY_CLUSTER):
        role = "head" if meta.label(RAY_TYPE) == "head" else meta.label(RAY_GROUP) or "workers"
        return role, _numbers(*(meta.label(key) for key in RAY_INDEX))
    if role := meta.annotation(VOLCANO_TASK) or meta.label(VOLCANO_TASK):
        return role, _numbers(meta.annotation(VOLCANO_INDEX) or meta.label(VOLCANO_INDEX))
    return "main", _numbers(index)


def _numbers(*texts: str) -> tuple[int, ...]:
    """Those that are there."""
    return tuple(int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10)


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key by which ``a-2`` comes before ``a-10``."""
    found: list[tuple[str, int]] = []
    at = 0
    for match in _NUMBER.finditer(name):
        found.append((name[at : match.start()], int(match[0][:18])))
        at = match.end()
    return (*found, (name[at:], -1))


def role_order(role: str) -> tuple[int, str]:
    """A key by which roles are in order: those that lead, then by name."""
    lower = role.lower()
    return (FIRST_ROLES.index(lower) if lower in FIRST_ROLES else len(FIRST_ROLES)), role
