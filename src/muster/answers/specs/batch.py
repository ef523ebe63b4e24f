"""Jobs of Kubernetes, JobSets and jobs of Volcano as gangs.

Field names: kubernetes/api batch/v1, kubernetes-sigs/jobset api/jobset/v1alpha2, volcano-sh/apis batch/v1alpha1.
"""

from __future__ import annotations

from typing import Any

from muster.answers.specs.objects import ObjectReader, objects_at
from muster.errors import InputError
from muster.kube.declared import JOB_SET_EXCLUSIVE as EXCLUSIVE
from muster.kube.declared import MIN_PARALLELISM
from muster.model.workload import PodSet, TopologyRequest, Workload


def read_job(reader: ObjectReader, spec: str = "spec") -> list[Workload]:
    """A Job: ``parallelism`` pods at a time, at most ``completions`` of them; all start together."""
    pods = _parallel(reader, spec)
    least = reader.texts("metadata.annotations").get(MIN_PARALLELISM, "")
    if least and (not least.isdigit() or not 0 < int(least) <= pods):
        where = f"metadata.annotations.{MIN_PARALLELISM}"
        raise reader.document.error(where, f"is {least[:20]!r}", f"1 to {pods}, the parallelism")
    limit_s = reader.seconds(f"{spec}.activeDeadlineSeconds")
    found = reader.pod_set(f"{spec}.template", pods, "main", int(least) if least else None)
    return [reader.gang([found], limit_s=limit_s)]


def read_cron_job(reader: ObjectReader) -> list[Workload]:
    """One run of a CronJob, as if its time had come."""
    reader.note("spec.schedule", "is asked as if its time had come")
    return read_job(reader, "spec.jobTemplate.spec")


def _parallel(reader: ObjectReader, spec: str) -> int:
    """Pods of a Job that run at a time."""
    reader.mapping(spec)
    completions = reader.count(f"{spec}.completions", 2**31 - 1)
    pods = min(reader.count(f"{spec}.parallelism", 1), completions)
    if not pods:
        field = f"{spec}.{'completions' if completions == 0 else 'parallelism'}"
        raise reader.document.error(field, "is 0: it asks for no pods")
    if pods < completions < 2**31 - 1:
        reader.note(f"{spec}.completions", f"{pods} of its {completions:,} pods run at a time; these are asked for")
    return pods


def read_job_set(reader: ObjectReader) -> list[Workload]:
    """A JobSet: each of its ``replicatedJobs`` is a pod set of ``replicas`` x ``parallelism`` pods."""
    sets: list[PodSet] = []
    limits: list[float | None] = []
    exclusive = reader.texts("metadata.annotations").get(EXCLUSIVE, "")
    for at, job in enumerate(objects_at(reader, "spec.replicatedJobs")):
        where = f"spec.replicatedJobs[{at}]"
        replicas = reader.count(f"{where}.replicas", 1)
        pods = _parallel(reader, f"{where}.template.spec") if replicas else 0
        limits.append(reader.seconds(f"{where}.template.spec.activeDeadlineSeconds"))
        role = str(job.get("name") or f"job-{at}")
        if replicas:
            before = len(reader.topologies)
            sets.append(reader.pod_set(f"{where}.template.spec.template", replicas * pods, role))
            own = exclusive or reader.texts(f"{where}.template.metadata.annotations").get(EXCLUSIVE, "")
            if own:
                _exclusive(reader, own, replicas, pods, before)
        if job.get("dependsOn"):
            reader.note(f"{where}.dependsOn", "is left out: all its pods are asked for at once, as quota is")
    limit_s = max((each for each in limits if each is not None), default=None) if None not in limits else None
    return [reader.gang(sets, limit_s=limit_s)]


def _exclusive(reader: ObjectReader, label: str, replicas: int, pods: int, at: int) -> None:
    """Each job of a replicated job in a domain of its own."""
    where = f"metadata.annotations.{EXCLUSIVE}"
    found, asked = reader.topologies[at]
    if asked is not None:
        raise reader.document.error(where, "beside another topology request of the same pods", "one of them")
    try:
        level = reader.places.level(label)
    except InputError as error:
        raise reader.document.error(where, error.what, error.hint) from None
    reader.note(where, f"jobs of other JobSets are not kept out of its {level}s: the snapshot does not tell them apart")
    request = TopologyRequest(level, segment=pods, spread=level, at_most=pods)
    reader.topologies[at] = found, TopologyRequest(level) if replicas == 1 else request


def read_volcano(reader: ObjectReader) -> list[Workload]:
    """A Job of Volcano: a pod set a task; with ``minAvailable`` it may start with so many pods of the last task."""
    sets: list[PodSet] = []
    tasks = objects_at(reader, "spec.tasks")
    counts = [reader.count(f"spec.tasks[{at}].replicas", 1) for at in range(len(tasks))]
    total = sum(counts)
    least = reader.count("spec.minAvailable", total)
    if least > total:
        raise reader.document.error("spec.minAvailable", f"is {least} of {total} pods", "at most all")
    _network(reader)
    for at, task in enumerate(tasks):
        mine = _least_of(task, counts[at], total - least if at == len(tasks) - 1 else 0)
        if counts[at]:
            sets.append(
                reader.pod_set(f"spec.tasks[{at}].template", counts[at], str(task.get("name") or f"task-{at}"), mine)
            )
    if reader.at("spec.priorityClassName"):
        reader.named_priority(str(reader.at("spec.priorityClassName")), "spec.priorityClassName")
    return [reader.gang(sets, queue=str(reader.at("spec.queue") or ""))]


def _least_of(task: dict[str, Any], count: int, spare: int) -> int | None:
    least = task.get("minAvailable")
    if isinstance(least, int) and 0 <= least < count:
        return least
    return max(0, count - spare) if spare else None


def _network(reader: ObjectReader) -> None:
    if reader.at("spec.networkTopology") is None:
        return
    if reader.at("spec.networkTopology.mode") in (None, "hard"):
        what = "asks for a tier of HyperNodes, which are not in a snapshot"
        raise reader.document.error("spec.networkTopology", what, "mode soft leaves the answer as it is")
    reader.note("spec.networkTopology", "is left out: it does not decide whether it fits")
