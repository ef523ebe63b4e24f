"""The parts of queue objects that matter.

Field names: kubernetes-sigs/kueue apis/kueue/v1beta1 and v1beta2, volcano-sh/apis scheduling/v1beta1, kai-scheduler
scheduling.run.ai/v2.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.kube.makers import Template
from muster.kube.objects import Condition, Meta, Quantity


class QuotaSpec(Struct, rename="camel"):
    """A quota of a Queue of muster.dev, in GPUs."""

    flavor: str
    nominal: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class QueueSpec(Struct, rename="camel"):
    """The spec of a Queue of muster.dev."""

    parent: str = ""
    weight: Quantity = 1
    tenant: str = ""
    quotas: list[QuotaSpec] | None = None
    min_runtime: str = ""
    max_running_per_user: Quantity | None = None


class QueueUsage(Struct, rename="camel"):
    """An entry of status.usage: GPU-seconds that a user of the queue has used, decayed to ``asOf``."""

    user: str = ""
    gpu_seconds: float = 0.0


class QueueStatus(Struct, rename="camel"):
    """The status of Muster's own Queue."""

    usage: list[QueueUsage] | None = None
    as_of: str | None = None


class KubeQueue(Struct):
    """A Queue of muster.dev."""

    metadata: Meta
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus = field(default_factory=QueueStatus)


# -- Kueue


class FlavorResource(Struct, rename="camel"):
    """The quota of one resource of a flavor."""

    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Struct):
    """The quotas of a flavor."""

    name: str
    resources: list[FlavorResource] | None = None


class ResourceGroup(Struct):
    """An entry of resourceGroups."""

    flavors: list[FlavorQuotas] | None = None


class FairSharing(Struct):
    """fairSharing."""

    weight: Quantity | None = None


class Fungibility(Struct, rename="camel"):
    """flavorFungibility."""

    when_can_borrow: str | None = None
    when_can_preempt: str | None = None


class ClusterQueueSpec(Struct, rename="camel"):
    """A ClusterQueue's spec; ``cohort`` is the name of ``cohortName`` before v1beta2."""

    resource_groups: list[ResourceGroup] | None = None
    cohort_name: str | None = None
    cohort: str | None = None
    fair_sharing: FairSharing | None = None
    flavor_fungibility: Fungibility | None = None
    stop_policy: str | None = None


class KubeClusterQueue(Struct):
    """A ClusterQueue."""

    metadata: Meta
    spec: ClusterQueueSpec = field(default_factory=ClusterQueueSpec)


class CohortSpec(Struct, rename="camel"):
    """A Cohort's spec; ``parent`` is the name of ``parentName`` in v1alpha1."""

    parent_name: str | None = None
    parent: str | None = None
    resource_groups: list[ResourceGroup] | None = None
    fair_sharing: FairSharing | None = None


class KubeCohort(Struct):
    """A Cohort."""

    metadata: Meta
    spec: CohortSpec = field(default_factory=CohortSpec)


class LocalQueueSpec(Struct, rename="camel"):
    """A LocalQueue's spec."""

    cluster_queue: str = ""
    stop_policy: str | None = None


class KubeLocalQueue(Struct):
    """A LocalQueue."""

    metadata: Meta
    spec: LocalQueueSpec = field(default_factory=LocalQueueSpec)


class FlavorSpec(Struct, rename="camel"):
    """A ResourceFlavor's spec."""

    node_labels: dict[str, str] | None = None


class KubeFlavor(Struct):
    """A ResourceFlavor."""

    metadata: Meta
    spec: FlavorSpec = field(default_factory=FlavorSpec)


class TopologyLevel(Struct, rename="camel"):
    """A level of a Topology."""

    node_label: str = ""


class TopologySpec(Struct):
    """A Topology's spec."""

    levels: list[TopologyLevel] | None = None


class KubeTopology(Struct):
    """A Topology of Kueue, or of KAI."""

    metadata: Meta
    spec: TopologySpec = field(default_factory=TopologySpec)


class PodSetTopology(Struct, rename="camel"):
    """topologyRequest of a pod set."""

    required: str | None = None
    preferred: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None


class KueuePodSet(Struct, rename="camel"):
    """A pod set of a Workload of Kueue."""

    name: str = "main"
    count: int = 0
    min_count: int | None = None
    template: Template = field(default_factory=Template)
    topology_request: PodSetTopology | None = None


class KueueWorkloadSpec(Struct, rename="camel"):
    """The spec of a Workload of Kueue."""

    pod_sets: list[KueuePodSet] | None = None
    queue_name: str = ""
    priority: int | None = None
    active: bool | None = None
    maximum_execution_time_seconds: int | None = None


class KueueWorkloadStatus(Struct):
    """The status of a Workload of Kueue."""

    conditions: list[Condition] | None = None


class KueueWorkload(Struct):
    """A Workload of kueue.x-k8s.io."""

    metadata: Meta
    spec: KueueWorkloadSpec = field(default_factory=KueueWorkloadSpec)
    status: KueueWorkloadStatus = field(default_factory=KueueWorkloadStatus)

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return any(each.type == "Finished" and each.status == "True" for each in self.status.conditions or ())


# -- Volcano and KAI


class Guarantee(Struct):
    """guarantee of a Queue of Volcano."""

    resource: dict[str, Quantity] | None = None


class VolcanoQueueSpec(Struct):
    """The spec of a Queue of Volcano."""

    weight: int | None = None
    capability: dict[str, Quantity] | None = None
    deserved: dict[str, Quantity] | None = None
    guarantee: Guarantee | None = None
    parent: str | None = None
    reclaimable: bool | None = None


class KubeVolcanoQueue(Struct):
    """A Queue of scheduling.volcano.sh."""

    metadata: Meta
    spec: VolcanoQueueSpec = field(default_factory=VolcanoQueueSpec)


class KaiResource(Struct, rename="camel"):
    """The quota of a resource of a Queue of KAI; -1: no limit."""

    quota: float = 0.0
    over_quota_weight: float = 1.0
    limit: float = -1.0


class KaiResources(Struct):
    """resources of a Queue of KAI."""

    gpu: KaiResource | None = None


class KaiQueueSpec(Struct, rename="camel"):
    """The spec of a Queue of KAI."""

    parent_queue: str | None = None
    resources: KaiResources | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class KubeKaiQueue(Struct):
    """A Queue of scheduling.run.ai."""

    metadata: Meta
    spec: KaiQueueSpec = field(default_factory=KaiQueueSpec)


class ResourceQuotaSpec(Struct):
    """A ResourceQuota's spec."""

    hard: dict[str, Quantity] | None = None


class ResourceQuotaStatus(Struct):
    """A ResourceQuota's status."""

    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class KubeResourceQuota(Struct):
    """A ResourceQuota of a namespace."""

    metadata: Meta
    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)
