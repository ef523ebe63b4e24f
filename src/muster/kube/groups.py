"""The parts of objects that say which pods are to be scheduled together, and who may be stopped.

Field names: kubernetes/api scheduling v1alpha1 to v1beta1 and policy/v1, kubernetes-sigs/scheduler-plugins,
volcano-sh/apis scheduling/v1beta1, kai-scheduler scheduling.run.ai/v2alpha2.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.kube.objects import Meta, PodClaim, PodClaimStatus, Selector


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
    parent_composite_pod_group_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    resource_claims: list[PodClaim] | None = None


class PodGroupStatus(Struct, rename="camel"):
    """A native PodGroup's status: the claims that were made for it."""

    resource_claim_statuses: list[PodClaimStatus] | None = None


class KubePodGroup(Struct):
    """A PodGroup of scheduling.k8s.io."""

    metadata: Meta
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class OldGroup(Struct):
    """An entry of a Workload's spec.podGroups, as of v1alpha1 (Kubernetes 1.35)."""

    name: str
    policy: GroupPolicy | None = None


class GroupWorkloadSpec(Struct, rename="camel"):
    """The spec of a Workload of scheduling.k8s.io."""

    pod_groups: list[OldGroup] | None = None


class KubeGroupWorkload(Struct):
    """A Workload of scheduling.k8s.io."""

    metadata: Meta
    spec: GroupWorkloadSpec = field(default_factory=GroupWorkloadSpec)


class KaiTopology(Struct, rename="camel"):
    """topologyConstraint of a PodGroup of KAI."""

    required_topology_level: str | None = None
    preferred_topology_level: str | None = None


class KaiSubGroup(Struct, rename="camel"):
    """An entry of subGroups of a PodGroup of KAI."""

    name: str = ""
    min_member: int | None = None
    topology_constraint: KaiTopology | None = None


class MemberGroupSpec(Struct, rename="camel"):
    """The spec of a PodGroup of scheduler-plugins, Volcano or KAI: they share their names."""

    min_member: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    topology_constraint: KaiTopology | None = None
    sub_groups: list[KaiSubGroup] | None = None
    network_topology: dict[str, object] | None = None


class KubeMemberGroup(Struct):
    """A PodGroup of scheduling.x-k8s.io, scheduling.volcano.sh or scheduling.run.ai."""

    metadata: Meta
    spec: MemberGroupSpec = field(default_factory=MemberGroupSpec)


class KubePriorityClass(Struct, rename="camel"):
    """A PriorityClass, or a WorkloadPriorityClass of Kueue."""

    metadata: Meta
    value: int = 0


class BudgetSpec(Struct):
    """A PodDisruptionBudget's spec."""

    selector: Selector | None = None


class BudgetStatus(Struct, rename="camel"):
    """A PodDisruptionBudget's status."""

    disruptions_allowed: int = 0


class KubeBudget(Struct):
    """A PodDisruptionBudget."""

    metadata: Meta
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)
