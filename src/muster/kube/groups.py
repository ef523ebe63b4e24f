"""What the object that makes a gang says of it: how many pods it has, how many must run, where, in which queue."""

from __future__ import annotations

from msgspec import Struct, field

from muster.kube.objects import Meta

MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


class TopologyKey(Struct):
    """An entry of schedulingConstraints.topology."""

    key: str = ""


class GroupConstraints(Struct):
    """schedulingConstraints."""

    topology: list[TopologyKey] | None = None


class GangPolicy(Struct, rename="camel"):
    """schedulingPolicy.gang."""

    min_count: int | None = None


class GroupPolicy(Struct):
    """schedulingPolicy; without ``gang`` it is basic."""

    gang: GangPolicy | None = None


class PodGroupSpec(Struct, rename="camel"):
    """A native PodGroup's spec, of all versions."""

    scheduling_policy: GroupPolicy | None = None
    scheduling_constraints: GroupConstraints | None = None
    priority: int | None = None
    priority_class_name: str | None = None


class KubePodGroup(Struct):
    """A PodGroup of scheduling.k8s.io."""

    metadata: Meta
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)


class PluginGroupSpec(Struct, rename="camel"):
    """The spec of a PodGroup of scheduler-plugins."""

    min_member: int | None = None


class KubePluginGroup(Struct):
    """A PodGroup of scheduling.x-k8s.io."""

    metadata: Meta
    spec: PluginGroupSpec = field(default_factory=PluginGroupSpec)


class JobSpec(Struct, rename="camel"):
    """A Job's spec."""

    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    suspend: bool | None = None


class JobStatus(Struct):
    """A Job's status."""

    succeeded: int | None = None


class KubeJob(Struct):
    """A Job."""

    metadata: Meta
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class KubePriorityClass(Struct, rename="camel"):
    """A PriorityClass."""

    metadata: Meta
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None
