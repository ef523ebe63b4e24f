"""The pod templates of objects by their role, as `muster fit` names roles, and what becomes of each kind's fields."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from muster.answers.specs.kubeflow import REPLICA_SPECS, RUNTIMES
from muster.answers.specs.pods import inside
from muster.answers.translate.base import dict_at, dicts_at
from muster.traces.document import Document

RAY = ("RayCluster", "RayJob", "RayService")
SERVICES = ("Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet", "RayService")


class Template(Struct, frozen=True):
    """A pod template: its role and the path of its spec."""

    role: str
    path: str


def templates(data: dict[str, Any]) -> Iterator[Template]:
    """The templates of an object."""
    kind = str(data.get("kind"))
    if kind == "Pod":
        yield Template("main", "spec")
    elif kind == "CronJob":
        yield Template("main", "spec.jobTemplate.spec.template.spec")
    elif kind == "JobSet":
        for at, job in enumerate(dicts_at(data, "spec.replicatedJobs")):
            path = f"spec.replicatedJobs[{at}].template.spec.template.spec"
            yield Template(str(job.get("name") or f"job-{at}"), path)
    elif kind in REPLICA_SPECS:
        specs = f"spec.{REPLICA_SPECS[kind]}"
        for role in dict_at(data, specs):
            yield Template(role, f"{specs}.{role}.template.spec")
    elif kind == "LeaderWorkerSet":
        where = "spec.leaderWorkerTemplate"
        if inside(data, f"{where}.leaderTemplate") is not None:
            yield Template("leader", f"{where}.leaderTemplate.spec")
        yield Template("workers", f"{where}.workerTemplate.spec")
    elif kind in RAY:
        where = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}[kind]
        yield Template("head", f"{where}.headGroupSpec.template.spec")
        for at, group in enumerate(dicts_at(data, f"{where}.workerGroupSpecs")):
            yield Template(str(group.get("groupName") or "workers"), f"{where}.workerGroupSpecs[{at}].template.spec")
    elif inside(data, "spec.tasks") is not None:  # a Job of Volcano
        for at, task in enumerate(dicts_at(data, "spec.tasks")):
            yield Template(str(task.get("name") or f"task-{at}"), f"spec.tasks[{at}].template.spec")
    else:
        yield Template("main", "spec.template.spec")


def train_job_pods(data: dict[str, Any], beside: Sequence[Document]) -> dict[str, Any]:
    """A TrainJob's pods as a JobSet: those of its runtime, if that stands beside it, with its own trainer."""
    trainer = dict_at(data, "spec.trainer")
    own = {key: trainer[key] for key in ("image", "command", "args", "env") if trainer.get(key)}
    name = inside(data, "spec.runtimeRef.name")
    runtime = next((each.data for each in beside if str(each.data.get("kind")) in RUNTIMES
                    and inside(each.data, "metadata.name") == name), None)  # fmt: skip
    jobs = copy.deepcopy(dicts_at(runtime, "spec.template.spec.replicatedJobs"))
    if not jobs:
        pod = {"containers": [{"name": "node", **own}]}
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    for job in jobs:
        containers = dicts_at(job, "template.spec.template.spec.containers")
        for each in containers:
            if job.get("name") == "node" and (each.get("name") == "node" or len(containers) == 1):
                each.update(own)
    return {"kind": "JobSet", "spec": {"replicatedJobs": jobs}}


_JOB = (
    "parallelism", "completions", "completionMode", "activeDeadlineSeconds", "suspend", "template", "selector",
    "podFailurePolicy", "manualSelector", "podReplacementPolicy",
)  # fmt: skip
ANSWERED: dict[str, tuple[str, ...]] = {
    "Job": (*_JOB, "tasks", "minAvailable", "queue", "schedulerName", "priorityClassName"),
    "JobSet": ("replicatedJobs", "suspend", "network", "failurePolicy"),
    **dict.fromkeys(
        REPLICA_SPECS, (*REPLICA_SPECS.values(), "runPolicy", "nprocPerNode", "slotsPerWorker", "elasticPolicy")
    ),
    "TrainJob": ("runtimeRef", "trainer", "suspend", "activeDeadlineSeconds"),
    "CronJob": ("jobTemplate",),
    "LeaderWorkerSet": ("replicas", "leaderWorkerTemplate"),
    "RayCluster": ("headGroupSpec", "workerGroupSpecs", "rayVersion", "suspend", "enableInTreeAutoscaling",
                   "autoscalerOptions"),
    "RayJob": ("rayClusterSpec", "entrypoint", "activeDeadlineSeconds", "suspend", "submissionMode",
               "submitterPodTemplate", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"),
    "Deployment": ("replicas", "template", "selector"),
    "ReplicaSet": ("replicas", "template", "selector"),
    "StatefulSet": ("replicas", "template", "selector", "serviceName"),
}  # fmt: skip
"""Fields of the spec that become something, or that Slurm needs not; others are told of."""
LOST = {
    "backoffLimit": "a job that fails is not run again by Slurm; the script may end by scontrol requeue $SLURM_JOB_ID",
    "backoffLimitPerIndex": "a task that fails is not run again by Slurm",
    "ttlSecondsAfterFinished": "jobs that ended are forgotten by Slurm itself (MinJobAge)",
    "schedule": "times are scrontab's: put the script there",
    "successPolicy": "the job has ended when its script has",
    "startupPolicy": "all nodes start at once",
    "coordinator": "the first node is the coordinator",
    "runtimeEnvYAML": "give it to ray job submit in the script",
    "strategy": "nothing is rolled out",
    "rolloutStrategy": "nothing is rolled out",
    "mpiImplementation": "mpirun of the image must know Slurm, or srun --mpi=pmix be used",
    "serveConfigV2": "a service needs a load balancer, which Slurm is not",
}
"""Fields without counterpart, with what to do."""
