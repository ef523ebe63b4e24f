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
from muster.kube.groups import KubeJob, KubePluginGroup, KubePodGroup, KubePriorityClass
from muster.kube.objects import KubeClaim, KubeNode, KubePod, KubeVolume
from muster.kube.queue_objects import KubeQueue
from muster.kube.world import Kind, KubeObject

NODES = Kind("nodes", "", "Node", ("v1",), needed=True)
PODS = Kind("pods", "", "Pod", ("v1",), needed=True)
VOLUME_CLAIMS = Kind("persistentvolumeclaims", "", "PersistentVolumeClaim", ("v1",))
VOLUMES = Kind("persistentvolumes", "", "PersistentVolume", ("v1",))
PRIORITY_CLASSES = Kind("priorityclasses", "scheduling.k8s.io", "PriorityClass", ("v1",))
POD_GROUPS = Kind("podgroups", "scheduling.k8s.io", "PodGroup", ("v1beta1", "v1alpha3", "v1alpha2"))
PLUGIN_GROUPS = Kind("podgroups", "scheduling.x-k8s.io", "PodGroup", ("v1alpha1",))
JOBS = Kind("jobs", "batch", "Job", ("v1",))
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
    VOLUME_CLAIMS: KubeClaim,
    VOLUMES: KubeVolume,
    PRIORITY_CLASSES: KubePriorityClass,
    POD_GROUPS: KubePodGroup,
    PLUGIN_GROUPS: KubePluginGroup,
    JOBS: KubeJob,
    MUSTER_QUEUES: KubeQueue,
    SLICES: KubeSlice,
    CLASSES: KubeClass,
    CLAIMS: KubeDraClaim,
    CLAIM_TEMPLATES: KubeClaimTemplate,
    TAINT_RULES: KubeTaintRule,
    COMPUTE_DOMAINS: KubeComputeDomain,
}
"""All kinds that are read, in the order in which they are, and the type of their objects. A kind is entered here."""
