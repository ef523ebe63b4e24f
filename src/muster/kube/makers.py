"""The parts of objects that make pods: how many of which kind, and their templates.

Field names: kubernetes-sigs/jobset api/jobset/v1alpha2, kubernetes-sigs/lws api/leaderworkerset/v1,
kubeflow/training-operator pkg/apis/kubeflow.org/v1, kubeflow/mpi-operator v2beta1, ray-project/kuberay
ray-operator/apis/ray/v1, volcano-sh/apis batch/v1alpha1.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.kube.objects import Meta, PodSpec


class Template(Struct):
    """A pod template."""

    metadata: Meta | None = None
    spec: PodSpec = field(default_factory=PodSpec)


class JobSpec(Struct, rename="camel"):
    """A Job's spec; of JobSets and others with its template."""

    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    suspend: bool | None = None
    template: Template | None = None

    @property
    def pods(self) -> int:
        """How many of its pods run at a time."""
        count = 1 if self.parallelism is None else self.parallelism
        return count if self.completions is None else min(count, self.completions)


class JobStatus(Struct):
    """A Job's status."""

    succeeded: int | None = None


class KubeJob(Struct):
    """A Job."""

    metadata: Meta
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class JobTemplate(Struct):
    """The template of a job of a JobSet."""

    spec: JobSpec = field(default_factory=JobSpec)


class ReplicatedJob(Struct):
    """An entry of a JobSet's replicatedJobs."""

    name: str
    replicas: int = 1
    template: JobTemplate = field(default_factory=JobTemplate)


class JobSetSpec(Struct, rename="camel"):
    """A JobSet's spec."""

    replicated_jobs: list[ReplicatedJob] | None = None
    suspend: bool | None = None


class ReplicatedStatus(Struct):
    """An entry of a JobSet's replicatedJobsStatus."""

    name: str
    succeeded: int = 0


class JobSetStatus(Struct, rename="camel"):
    """A JobSet's status."""

    replicated_jobs_status: list[ReplicatedStatus] | None = None


class KubeJobSet(Struct):
    """A JobSet."""

    metadata: Meta
    spec: JobSetSpec = field(default_factory=JobSetSpec)
    status: JobSetStatus = field(default_factory=JobSetStatus)


class LeaderWorkerTemplate(Struct, rename="camel"):
    """leaderWorkerTemplate."""

    size: int | None = None
    leader_template: Template | None = None
    worker_template: Template = field(default_factory=Template)


class LeaderWorkerSpec(Struct, rename="camel"):
    """A LeaderWorkerSet's spec."""

    replicas: int | None = None
    leader_worker_template: LeaderWorkerTemplate = field(default_factory=LeaderWorkerTemplate)


class KubeLeaderWorkerSet(Struct):
    """A LeaderWorkerSet."""

    metadata: Meta
    spec: LeaderWorkerSpec = field(default_factory=LeaderWorkerSpec)


class ReplicaSpec(Struct):
    """A replica type of a training job."""

    replicas: int | None = None
    template: Template = field(default_factory=Template)


class SchedulingPolicy(Struct, rename="camel"):
    """runPolicy.schedulingPolicy."""

    min_available: int | None = None
    queue: str | None = None
    priority_class: str | None = None


class RunPolicy(Struct, rename="camel"):
    """runPolicy."""

    suspend: bool | None = None
    active_deadline_seconds: int | None = None
    scheduling_policy: SchedulingPolicy | None = None


class TrainingSpec(Struct, rename="camel"):
    """The spec of a job of kubeflow.org, whichever it is."""

    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    tf_replica_specs: dict[str, ReplicaSpec] | None = None
    xgb_replica_specs: dict[str, ReplicaSpec] | None = None
    paddle_replica_specs: dict[str, ReplicaSpec] | None = None
    jax_replica_specs: dict[str, ReplicaSpec] | None = None
    mpi_replica_specs: dict[str, ReplicaSpec] | None = None
    run_policy: RunPolicy | None = None

    @property
    def replicas(self) -> dict[str, ReplicaSpec]:
        """Those of its kind, by role in lower case, as its pods are labelled."""
        found = (
            self.pytorch_replica_specs or self.tf_replica_specs or self.xgb_replica_specs or self.paddle_replica_specs
            or self.jax_replica_specs or self.mpi_replica_specs or {}
        )  # fmt: skip
        return {role.lower(): spec for role, spec in found.items()}


class KubeTrainingJob(Struct):
    """A PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob or MPIJob."""

    metadata: Meta
    spec: TrainingSpec = field(default_factory=TrainingSpec)


class WorkerGroup(Struct, rename="camel"):
    """An entry of workerGroupSpecs."""

    group_name: str = "workers"
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: Template = field(default_factory=Template)


class HeadGroup(Struct):
    """headGroupSpec."""

    template: Template = field(default_factory=Template)


class RayClusterSpec(Struct, rename="camel"):
    """A RayCluster's spec."""

    head_group_spec: HeadGroup = field(default_factory=HeadGroup)
    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None
    suspend: bool | None = None


class KubeRayCluster(Struct):
    """A RayCluster."""

    metadata: Meta
    spec: RayClusterSpec = field(default_factory=RayClusterSpec)


class VolcanoTask(Struct, rename="camel"):
    """A task of a Volcano Job."""

    name: str = ""
    replicas: int | None = None
    min_available: int | None = None
    template: Template = field(default_factory=Template)


class VolcanoJobSpec(Struct, rename="camel"):
    """A Volcano Job's spec."""

    tasks: list[VolcanoTask] | None = None
    min_available: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None


class KubeVolcanoJob(Struct):
    """A Job of batch.volcano.sh."""

    metadata: Meta
    spec: VolcanoJobSpec = field(default_factory=VolcanoJobSpec)
