"""Training jobs of Kubeflow as gangs: PyTorchJob and its sisters (kubeflow.org/v1), and TrainJob.

Field names: kubeflow/training-operator pkg/apis/kubeflow.org/v1, kubeflow/trainer pkg/apis/trainer/v1alpha1.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from muster.answers.specs.batch import read_job_set
from muster.answers.specs.objects import ObjectReader, objects_at
from muster.answers.specs.pods import inside
from muster.kube.objects import QUEUE_LABEL
from muster.model.workload import Workload
from muster.traces.document import Document

REPLICA_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
FIRST = ("Launcher", "Master", "Chief", "PS")
STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")


def read_training(reader: ObjectReader) -> list[Workload]:
    """A job of kubeflow.org: a pod set a replica type, the one that leads first."""
    specs = f"spec.{REPLICA_SPECS[reader.kind]}"
    types = reader.mapping(specs)
    roles = [role for role in FIRST if role in types] + [role for role in types if role not in FIRST]
    counts = {role: reader.count(f"{specs}.{role}.replicas", 1) for role in roles}
    total = sum(counts.values())
    policy = "spec.runPolicy.schedulingPolicy"
    least = reader.count(f"{policy}.minAvailable", total)
    if least > total:
        raise reader.document.error(f"{policy}.minAvailable", f"is {least} of {total} pods", "at most all")
    workers = roles[-1] if roles else ""
    elastic = reader.at("spec.elasticPolicy.minReplicas")
    fewest = max(0, counts.get(workers, 0) - (total - least))
    if elastic is not None:
        fewest = min(fewest, reader.count("spec.elasticPolicy.minReplicas", None, 1))
    sets = [
        reader.pod_set(f"{specs}.{role}.template", counts[role], role, fewest if role == workers else None)
        for role in roles
        if counts[role]
    ]
    if reader.at(f"{policy}.priorityClass"):
        reader.named_priority(str(reader.at(f"{policy}.priorityClass")), f"{policy}.priorityClass")
    queue = "" if reader.at(f"{policy}.queue") is None else str(reader.at(f"{policy}.queue"))
    limit_s = reader.seconds("spec.runPolicy.activeDeadlineSeconds")
    labelled = reader.texts("metadata.labels").get(QUEUE_LABEL, "")
    return [reader.gang(sets, queue=labelled or queue, limit_s=limit_s)]


def read_train_job(reader: ObjectReader) -> list[Workload]:
    """A TrainJob: the JobSet that its runtime makes, if that is in the file; else so many pods as it says itself."""
    reader.mapping("spec.runtimeRef")
    kind = str(reader.at("spec.runtimeRef.kind") or RUNTIMES[0])
    name = str(reader.at("spec.runtimeRef.name") or "")
    _refuse_patches(reader)
    runtime = reader.context.runtimes.get((kind, name))
    if runtime is None:
        return _alone(reader, kind, name)
    data = copy.deepcopy(runtime.data)
    made = ObjectReader(Document(runtime.file, data, runtime.lines), reader.context)
    nodes = reader.count("spec.trainer.numNodes", made.count("spec.mlPolicy.numNodes", 1, 1), 1)
    jobs = "spec.template.spec.replicatedJobs"
    for at, job in enumerate(objects_at(made, jobs)):
        made.mapping(f"{jobs}[{at}].template.spec")
        _override(reader, job, made.texts(f"{jobs}[{at}].template.metadata.labels"), nodes)
    # the fields are told of by their path in the JobSet; lines are those of the runtime
    lines = {path.removeprefix("spec.template."): line for path, line in runtime.lines.items()}
    job_set = {"kind": "TrainJob", "metadata": reader.mapping("metadata"), "spec": inside(data, "spec.template.spec")}
    found = read_job_set(ObjectReader(Document(runtime.file, job_set, lines), reader.context))
    limit_s = reader.seconds("spec.activeDeadlineSeconds")
    return found if limit_s is None else [replace(each, time_limit_s=limit_s) for each in found]


def _override(reader: ObjectReader, job: dict[str, Any], labels: Mapping[str, str], nodes: int) -> None:
    """What a TrainJob says of the job that trains goes before its runtime: nodes, and what each asks for."""
    if job.get("name") != "node" and labels.get(STEP_LABEL) != "trainer":
        return
    inside(job, "template.spec").update(parallelism=nodes, completions=nodes)
    resources = reader.at("spec.trainer.resourcesPerNode")
    where = "template.spec.template.spec.containers"
    containers: list[Any] = inside(job, where) if isinstance(inside(job, where), list) else []
    if resources is not None:
        named = [each for each in containers if inside(each, "name") == "node"]
        for each in named or containers[:1]:
            if isinstance(each, dict):
                cast("dict[str, Any]", each)["resources"] = resources


def _refuse_patches(reader: ObjectReader) -> None:
    for field in ("podTemplateOverrides", "runtimePatches"):
        if reader.at(f"spec.{field}"):
            what = "is not read: it may change which nodes its pods may use"
            raise reader.document.error(f"spec.{field}", what, "write it into the runtime, in the same file")


def _alone(reader: ObjectReader, kind: str, name: str) -> list[Workload]:
    """Without its runtime: ``numNodes`` pods that ask for ``resourcesPerNode``."""
    hint = f"add it to the file: kubectl get {kind.lower()} {name or 'NAME'} -o yaml"
    resources = reader.at("spec.trainer.resourcesPerNode")
    if not isinstance(resources, dict):
        what = f"{kind} {name} is not in the file, and spec.trainer.resourcesPerNode does not say what a node asks for"
        raise reader.document.error("spec.runtimeRef", what, hint)
    pod: dict[str, Any] = {"containers": [{"name": "node", "resources": resources}]}
    reader.document.data.setdefault("spec", {})["template"] = {"spec": pod}
    reader.note("spec.runtimeRef", f"{kind} {name} is not in the file: its selectors and other containers do not count")
    nodes = reader.count("spec.trainer.numNodes", 1, 1)
    return [
        reader.gang(
            [reader.pod_set("spec.template", nodes, "node")], limit_s=reader.seconds("spec.activeDeadlineSeconds")
        )
    ]
