"""The kinds of objects that are read, and what they are decoded to."""

from __future__ import annotations

from muster.kube.dra.objects import (
    KubeClaimTemplate,
    KubeClass,
    KubeComputeDomain,
    KubeDraClaim,
    KubeSlice,
    KubeTaintRule,
)
from muster.kube.groups import KubeBudget, KubeGroupWorkload, KubeMemberGroup, KubePodGroup, KubePriorityClass
from muster.kube.makers import (
    KubeJob,
    KubeJobSet,
    KubeLeaderWorkerSet,
    KubeRayCluster,
    KubeTrainingJob,
    KubeVolcanoJob,
)
from muster.kube.objects import KubeNamespace, KubeNode, KubePod
from muster.kube.queue_objects import (
    KubeClusterQueue,
    KubeCohort,
    KubeFlavor,
    KubeKaiQueue,
    KubeLocalQueue,
    KubeQueue,
    KubeResourceQuota,
    KubeTopology,
    KubeVolcanoQueue,
    KueueWorkload,
)
from muster.kube.storage import KubeCapacity, KubeClaim, KubeDriver, KubeStorageClass, KubeVolume
from muster.kube.world import Kind, KubeObject

NODES = Kind("nodes", "", "Node", ("v1",), needed=True)
PODS = Kind("pods", "", "Pod", ("v1",), needed=True)
NAMESPACES = Kind("namespaces", "", "Namespace", ("v1",))
VOLUME_CLAIMS = Kind("persistentvolumeclaims", "", "PersistentVolumeClaim", ("v1",))
VOLUMES = Kind("persistentvolumes", "", "PersistentVolume", ("v1",))
STORAGE_CLASSES = Kind("storageclasses", "storage.k8s.io", "StorageClass", ("v1",))
STORAGE_DRIVERS = Kind("csidrivers", "storage.k8s.io", "CSIDriver", ("v1",))
STORAGE_CAPACITIES = Kind("csistoragecapacities", "storage.k8s.io", "CSIStorageCapacity", ("v1",))
RESOURCE_QUOTAS = Kind("resourcequotas", "", "ResourceQuota", ("v1",))
PRIORITY_CLASSES = Kind("priorityclasses", "scheduling.k8s.io", "PriorityClass", ("v1",))
BUDGETS = Kind("poddisruptionbudgets", "policy", "PodDisruptionBudget", ("v1",))
POD_GROUPS = Kind("podgroups", "scheduling.k8s.io", "PodGroup", ("v1beta1", "v1alpha3", "v1alpha2"))
GROUP_WORKLOADS = Kind("workloads", "scheduling.k8s.io", "Workload", ("v1alpha1", "v1alpha2", "v1alpha3", "v1beta1"))
PLUGIN_GROUPS = Kind("podgroups", "scheduling.x-k8s.io", "PodGroup", ("v1alpha1",))
JOBS = Kind("jobs", "batch", "Job", ("v1",))
JOB_SETS = Kind("jobsets", "jobset.x-k8s.io", "JobSet", ("v1alpha2",))
LEADER_WORKER_SETS = Kind("leaderworkersets", "leaderworkerset.x-k8s.io", "LeaderWorkerSet", ("v1",))
TRAINING_JOBS = (
    Kind("pytorchjobs", "kubeflow.org", "PyTorchJob", ("v1",)),
    Kind("tfjobs", "kubeflow.org", "TFJob", ("v1",)),
    Kind("xgboostjobs", "kubeflow.org", "XGBoostJob", ("v1",)),
    Kind("paddlejobs", "kubeflow.org", "PaddleJob", ("v1",)),
    Kind("jaxjobs", "kubeflow.org", "JAXJob", ("v1",)),
    Kind("mpijobs", "kubeflow.org", "MPIJob", ("v2beta1", "v1")),
)
RAY_CLUSTERS = Kind("rayclusters", "ray.io", "RayCluster", ("v1",))
CLUSTER_QUEUES = Kind("clusterqueues", "kueue.x-k8s.io", "ClusterQueue", ("v1beta2", "v1beta1"))
COHORTS = Kind("cohorts", "kueue.x-k8s.io", "Cohort", ("v1beta2", "v1beta1", "v1alpha1"))
LOCAL_QUEUES = Kind("localqueues", "kueue.x-k8s.io", "LocalQueue", ("v1beta2", "v1beta1"))
FLAVORS = Kind("resourceflavors", "kueue.x-k8s.io", "ResourceFlavor", ("v1beta2", "v1beta1"))
TOPOLOGIES = Kind("topologies", "kueue.x-k8s.io", "Topology", ("v1beta2", "v1beta1", "v1alpha1"))
KUEUE_WORKLOADS = Kind("workloads", "kueue.x-k8s.io", "Workload", ("v1beta2", "v1beta1"))
KUEUE_PRIORITIES = Kind("workloadpriorityclasses", "kueue.x-k8s.io", "WorkloadPriorityClass", ("v1beta2", "v1beta1"))
VOLCANO_QUEUES = Kind("queues", "scheduling.volcano.sh", "Queue", ("v1beta1",))
VOLCANO_GROUPS = Kind("podgroups", "scheduling.volcano.sh", "PodGroup", ("v1beta1",))
VOLCANO_JOBS = Kind("jobs", "batch.volcano.sh", "Job", ("v1alpha1",))
KAI_QUEUES = Kind("queues", "scheduling.run.ai", "Queue", ("v2",))
KAI_GROUPS = Kind("podgroups", "scheduling.run.ai", "PodGroup", ("v2alpha2",))
KAI_TOPOLOGIES = Kind("topologies", "kai.scheduler", "Topology", ("v1alpha1",))
MUSTER_QUEUES = Kind("queues", "muster.dev", "Queue", ("v1alpha1",))

_DRA = "resource.k8s.io"
DRA_VERSIONS = ("v1", "v1beta2", "v1beta1")
SLICES = Kind("resourceslices", _DRA, "ResourceSlice", DRA_VERSIONS)
CLASSES = Kind("deviceclasses", _DRA, "DeviceClass", DRA_VERSIONS)
CLAIMS = Kind("resourceclaims", _DRA, "ResourceClaim", DRA_VERSIONS)
CLAIM_TEMPLATES = Kind("resourceclaimtemplates", _DRA, "ResourceClaimTemplate", DRA_VERSIONS)
TAINT_RULES = Kind("devicetaintrules", _DRA, "DeviceTaintRule", ("v1", "v1beta2", "v1alpha3"))
COMPUTE_DOMAINS = Kind("computedomains", "resource.nvidia.com", "ComputeDomain", ("v1beta1",))

STRUCTS: dict[Kind, type[KubeObject]] = {
    NODES: KubeNode,
    PODS: KubePod,
    NAMESPACES: KubeNamespace,
    VOLUME_CLAIMS: KubeClaim,
    VOLUMES: KubeVolume,
    STORAGE_CLASSES: KubeStorageClass,
    STORAGE_DRIVERS: KubeDriver,
    STORAGE_CAPACITIES: KubeCapacity,
    RESOURCE_QUOTAS: KubeResourceQuota,
    PRIORITY_CLASSES: KubePriorityClass,
    BUDGETS: KubeBudget,
    POD_GROUPS: KubePodGroup,
    GROUP_WORKLOADS: KubeGroupWorkload,
    PLUGIN_GROUPS: KubeMemberGroup,
    JOBS: KubeJob,
    JOB_SETS: KubeJobSet,
    LEADER_WORKER_SETS: KubeLeaderWorkerSet,
    **dict.fromkeys(TRAINING_JOBS, KubeTrainingJob),
    RAY_CLUSTERS: KubeRayCluster,
    CLUSTER_QUEUES: KubeClusterQueue,
    COHORTS: KubeCohort,
    LOCAL_QUEUES: KubeLocalQueue,
    FLAVORS: KubeFlavor,
    TOPOLOGIES: KubeTopology,
    KUEUE_WORKLOADS: KueueWorkload,
    KUEUE_PRIORITIES: KubePriorityClass,
    VOLCANO_QUEUES: KubeVolcanoQueue,
    VOLCANO_GROUPS: KubeMemberGroup,
    VOLCANO_JOBS: KubeVolcanoJob,
    KAI_QUEUES: KubeKaiQueue,
    KAI_GROUPS: KubeMemberGroup,
    KAI_TOPOLOGIES: KubeTopology,
    MUSTER_QUEUES: KubeQueue,
    SLICES: KubeSlice,
    CLASSES: KubeClass,
    CLAIMS: KubeDraClaim,
    CLAIM_TEMPLATES: KubeClaimTemplate,
    TAINT_RULES: KubeTaintRule,
    COMPUTE_DOMAINS: KubeComputeDomain,
}
"""All kinds that are read, in the order in which they are, and the type of their objects. A kind is entered here."""
