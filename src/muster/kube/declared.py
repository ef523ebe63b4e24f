"""What is said of a gang beside its pods, by the object that makes it; where that was not read, by its pods alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from muster.kube import owners
from muster.kube.groups import KubeGroupWorkload, KubeMemberGroup, KubePodGroup
from muster.kube.kinds import (
    GROUP_WORKLOADS,
    JOB_SETS,
    JOBS,
    KAI_GROUPS,
    LEADER_WORKER_SETS,
    PLUGIN_GROUPS,
    POD_GROUPS,
    RAY_CLUSTERS,
    TRAINING_JOBS,
    VOLCANO_GROUPS,
    VOLCANO_JOBS,
)
from muster.kube.makers import (
    KubeJob,
    KubeJobSet,
    KubeLeaderWorkerSet,
    KubeRayCluster,
    KubeTrainingJob,
    KubeVolcanoJob,
    Template,
)
from muster.kube.objects import KubePod, Meta, parse_time
from muster.kube.owners import Gang
from muster.kube.world import Kind, World

MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
KUEUE_TOTAL, LWS_SIZE = "kueue.x-k8s.io/pod-group-total-count", "leaderworkerset.sigs.k8s.io/size"
JOB_SET_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
LWS_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
KAI_MIN_MEMBER = "kai.scheduler/batch-min-member"


class Declared(Struct):
    """What is known of a gang.

    Attributes:
        meta: of the object that makes it; None where it was not read.
        counts: pods of each role at a time; empty: as many as there are.
        templates: of the roles, by which pods are told that are not there.
        least: how many of all its pods must run together; None: all.
        least_of: of each role, where it is told for that.
        at_least: how many pods there are before it may start at all.
        required, preferred: the node label in one value of which all pods must or should stand.
        segment: pods a ``required`` domain; 0: all are in one.
        spread: the node label whose values each segment has for itself.
        queue, priority, priority_class: where the object says them itself; ``system`` says whose queue.
        time_limit_s: how long it may run.
        hold: why it is not to start; empty: it may.
        notes: fields that are not counted, and what is made of them.
    """

    meta: Meta | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])
    templates: dict[str, Template] = field(default_factory=dict[str, Template])
    least: int | None = None
    least_of: dict[str, int] = field(default_factory=dict[str, int])
    at_least: int = 0
    required: str = ""
    preferred: str = ""
    segment: int = 0
    spread: str = ""
    queue: str = ""
    system: str = ""
    priority: int | None = None
    priority_class: str = ""
    time_limit_s: float | None = None
    hold: str = ""
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def created_s(self) -> float | None:
        """When the object was made."""
        return parse_time(self.meta.creation_timestamp) if self.meta is not None else None


def declared(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """What is said of a gang by what makes it, then by the group that a scheduler was told of."""
    reader = _READERS.get(gang.kind)
    said = reader(gang, world, pods) if reader is not None else Declared()
    return _grouped(said, gang, world, pods[0].metadata) if pods else said


def _grouped(said: Declared, gang: Gang, world: World, meta: Meta) -> Declared:
    """With what the PodGroup of Volcano or KAI says, that the pods are annotated with."""
    if not meta.annotations or gang.kind.startswith("PodGroup"):
        return said
    for system, kind, keys in (
        ("volcano", VOLCANO_GROUPS, owners.VOLCANO_GROUP), ("kai", KAI_GROUPS, (owners.KAI_GROUP,)),
    ):  # fmt: skip
        name = meta.annotation(*keys)
        if name:
            found = _member_group(world, kind, system, f"{gang.namespace}/{name}")
            if found.meta is None:
                return said
            return replace(
                said,
                least=found.least if found.least is not None else said.least,
                required=found.required or said.required,
                preferred=found.preferred or said.preferred,
                queue=found.queue or said.queue,
                system=found.system if found.queue else said.system,
                priority_class=said.priority_class or found.priority_class,
                notes=[*said.notes, *found.notes],
            )
    return said


def _ended(pods: Sequence[KubePod]) -> Counter[str]:
    """How many pods of each role have ended well: they are part of the gang no more."""
    return Counter(owners.member(pod).role for pod in pods if pod.status.phase == "Succeeded")


def _job(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """As many pods as the Job runs at a time, all of them together.

    What its status says of pods that have ended may come later than that they did.
    """
    found = world.of(JOBS, KubeJob).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    spec = found.spec
    count = 1 if spec.parallelism is None else spec.parallelism
    ended = _ended(pods).total()
    if spec.completions is not None:
        count = min(count, max(0, spec.completions - max(found.status.succeeded or 0, ended)))
    elif ended:  # once one has ended well, no new ones are made
        count = max(0, count - ended)
    least = found.metadata.annotation(MIN_PARALLELISM)
    return Declared(
        found.metadata,
        {"main": count},
        least=int(least) if least.isdigit() and 0 < int(least) < count else None,
        time_limit_s=_seconds(spec.active_deadline_seconds),
        hold="suspended" if spec.suspend else "",
    )


def _job_set(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    found = world.of(JOB_SETS, KubeJobSet).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    said = Declared(found.metadata, hold="suspended" if found.spec.suspend else "")
    ended = {each.name: each.succeeded for each in found.status.replicated_jobs_status or ()}
    pods_ended = _ended(pods)
    limits: list[float | None] = []
    for job in found.spec.replicated_jobs or ():
        each, at_a_time = job.template.spec, job.template.spec.pods
        left = max(0, job.replicas - ended.get(job.name, 0)) * at_a_time
        if each.completions is None or each.completions <= at_a_time:  # no others come in place of those that ended
            left = min(left, max(0, job.replicas * at_a_time - pods_ended[job.name]))
        said.counts[job.name] = left
        limits.append(_seconds(job.template.spec.active_deadline_seconds))
        if job.template.spec.template is not None:
            said.templates[job.name] = job.template.spec.template
    if limits and None not in limits:
        said.time_limit_s = max(each for each in limits if each is not None)
    label = found.metadata.annotation(JOB_SET_EXCLUSIVE)
    sizes = {job.template.spec.pods for job in found.spec.replicated_jobs or ()}
    if label and len(sizes) == 1:  # each job has a domain of its own
        return replace(said, required=label, segment=sizes.pop(), spread=label)
    return said


def _leader_worker_set(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """One gang a group."""
    name = next((pod.metadata.label(owners.LWS) for pod in pods), gang.name.rpartition("-")[0])
    found = world.of(LEADER_WORKER_SETS, KubeLeaderWorkerSet).get(f"{gang.namespace}/{name}")
    if found is None:
        size = next((pod.metadata.annotation(LWS_SIZE) for pod in pods), "")
        return Declared(counts={"leader": 1, "workers": int(size) - 1} if size.isdigit() else {})
    spec = found.spec.leader_worker_template
    workers = spec.worker_template
    return Declared(
        found.metadata,
        {"leader": 1, "workers": max(0, (spec.size or 1) - 1)},
        {"leader": spec.leader_template or workers, "workers": workers},
        required=found.metadata.annotation(LWS_EXCLUSIVE),
    )


def _training(kind: Kind) -> Callable[[Gang, World, Sequence[KubePod]], Declared]:
    def read(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
        found = world.of(kind, KubeTrainingJob).get(f"{gang.namespace}/{gang.name}")
        if found is None:
            return Declared()
        replicas, policy = found.spec.replicas, found.spec.run_policy
        told = policy.scheduling_policy if policy is not None else None
        ended = _ended(pods)
        return Declared(
            found.metadata,
            {
                role: max(0, (1 if each.replicas is None else each.replicas) - ended[role])
                for role, each in replicas.items()
            },
            {role: each.template for role, each in replicas.items()},
            least=told.min_available if told is not None else None,
            queue=(told.queue if told is not None else None) or "",
            system="volcano",
            priority_class=(told.priority_class if told is not None else None) or "",
            time_limit_s=_seconds(policy.active_deadline_seconds) if policy is not None else None,
            hold="suspended" if policy is not None and policy.suspend else "",
        )

    return read


def _ray_cluster(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """The head and all workers; with the autoscaler only as many as it never goes below must run."""
    found = world.of(RAY_CLUSTERS, KubeRayCluster).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    spec = found.spec
    said = Declared(found.metadata, {"head": 1}, {"head": spec.head_group_spec.template})
    said.hold = "suspended" if spec.suspend else ""
    for group in spec.worker_group_specs or ():
        least, hosts = group.min_replicas or 0, group.num_of_hosts or 1
        replicas = max(least if group.replicas is None else group.replicas, least)
        said.counts[group.group_name] = 0 if group.suspend else replicas * hosts
        said.templates[group.group_name] = group.template
        if spec.enable_in_tree_autoscaling and hosts == 1:
            said.least_of[group.group_name] = least
    return said


def _volcano_job(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    found = world.of(VOLCANO_JOBS, KubeVolcanoJob).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    said = Declared(found.metadata, least=found.spec.min_available, queue=found.spec.queue or "", system="volcano")
    said.priority_class = found.spec.priority_class_name or ""
    ended = _ended(pods)
    for task in found.spec.tasks or ():
        said.counts[task.name] = max(0, (1 if task.replicas is None else task.replicas) - ended[task.name])
        said.templates[task.name] = task.template
        if task.min_available is not None:
            said.least_of[task.name] = task.min_available
    return said


def _pod_group(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    found = world.of(POD_GROUPS, KubePodGroup).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    spec = found.spec
    policy, constraints = spec.scheduling_policy, spec.scheduling_constraints
    least = policy.gang.min_count if policy is not None and policy.gang is not None else None
    keys = [each.key for each in (constraints.topology if constraints is not None else None) or () if each.key]
    parent = spec.parent_composite_pod_group_name
    return Declared(
        found.metadata,
        least=least or 1,
        at_least=least or 1,
        required=keys[0] if keys else "",
        priority=spec.priority,
        priority_class=spec.priority_class_name or "",
        notes=[("spec.parentCompositePodGroupName", f"{parent}: it starts by itself here")] if parent else [],
    )


def _old_group(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """A pod group of a Workload of Kubernetes 1.35."""
    reference = pods[0].spec.workload_ref if pods else None
    found = world.of(GROUP_WORKLOADS, KubeGroupWorkload).get(
        f"{gang.namespace}/{reference.name if reference is not None else ''}"
    )
    if found is None or reference is None:
        return Declared()
    group = next((each for each in found.spec.pod_groups or () if each.name == reference.pod_group), None)
    gang_policy = group.policy.gang if group is not None and group.policy is not None else None
    least = gang_policy.min_count if gang_policy is not None else None
    return Declared(found.metadata, least=least or 1, at_least=least or 1)


def _kueue_group(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """A group of plain pods of Kueue: as many as they say."""
    total = next((pod.metadata.annotation(KUEUE_TOTAL) for pod in pods), "")
    return Declared(at_least=int(total) if total.isdigit() else 0)


def _member_group(world: World, kind: Kind, system: str, key: str) -> Declared:
    """A PodGroup of scheduler-plugins, Volcano or KAI."""
    found = world.of(kind, KubeMemberGroup).get(key)
    if found is None:
        return Declared()
    spec = found.spec
    least = spec.min_member or 1
    place, network = spec.topology_constraint, spec.network_topology
    told = [("spec.networkTopology", "asks for a tier of HyperNodes, which are not read")] if network else []
    return Declared(
        found.metadata,
        least=least,
        at_least=least,
        least_of={each.name: each.min_member for each in spec.sub_groups or () if each.min_member is not None},
        required=(place.required_topology_level if place is not None else None) or "",
        preferred=(place.preferred_topology_level if place is not None else None) or "",
        queue=spec.queue or "",
        system=system,
        priority_class=spec.priority_class_name or "",
        notes=told,
    )


def _members(kind: Kind, system: str) -> Callable[[Gang, World, Sequence[KubePod]], Declared]:
    return lambda gang, world, pods: _member_group(world, kind, system, f"{gang.namespace}/{gang.name}")


def _seconds(value: int | None) -> float | None:
    return None if value is None else float(value)


_READERS: Mapping[str, Callable[[Gang, World, Sequence[KubePod]], Declared]] = {
    "Job": _job,
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
    **{kind.kind: _training(kind) for kind in TRAINING_JOBS},
    "RayCluster": _ray_cluster,
    "Job.batch.volcano.sh": _volcano_job,
    "PodGroup": _pod_group,
    "Workload": _old_group,
    "PodGroup.kueue.x-k8s.io": _kueue_group,
    "PodGroup.scheduling.x-k8s.io": _members(PLUGIN_GROUPS, ""),
    "PodGroup.scheduling.volcano.sh": _members(VOLCANO_GROUPS, "volcano"),
    "PodGroup.scheduling.run.ai": _members(KAI_GROUPS, "kai"),
}
