"""The parts of Kubernetes' Node and Pod objects that matter for scheduling, and its quantities."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from muster.model.workload import PodShape, Toleration

_QUANTITY = re.compile(r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})")
_SUFFIX = {
    "": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip

Quantity = str | int | float

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@lru_cache(maxsize=65536)
def parse_quantity(quantity: Quantity, scale: int = 1) -> int:
    """A Kubernetes quantity such as ``1500m``, ``512Gi`` or ``4``, times ``scale``, rounded up, else `ValueError`."""
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if not match:
        raise ValueError(quantity)
    number, suffix = Fraction(match[1]), match[2]
    if len(suffix) > 1 and suffix[0] in "eE" and suffix[1:] != "i":
        number *= Fraction(10) ** int(suffix[1:])
    elif suffix in _SUFFIX:
        number *= _SUFFIX[suffix]
    else:
        raise ValueError(quantity)
    return -int((-number * scale) // 1)


def parse_time(text: str | None) -> float | None:
    """Seconds since 1970 of an RFC 3339 time; None if it is absent or no time."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.timestamp() if moment is not None and moment.tzinfo is not None else None


def first_of(values: Mapping[str, str] | None, keys: Sequence[str]) -> str:
    """The value of the first of some keys that is there and not empty; else empty."""
    if values:
        for key in keys:
            found = values.get(key)
            if found:
                return found
    return ""


class Owner(Struct):
    """An entry of metadata.ownerReferences."""

    kind: str
    name: str
    uid: str = ""
    controller: bool | None = None


class Meta(Struct, rename="camel"):
    """metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[Owner] | None = None

    def label(self, *keys: str) -> str:
        """The first of some labels that is there and not empty; else empty."""
        return first_of(self.labels, keys)

    def annotation(self, *keys: str) -> str:
        """The first of some annotations that is there and not empty; else empty."""
        return first_of(self.annotations, keys)

    @property
    def owner(self) -> Owner | None:
        """Who controls the object."""
        return next((each for each in self.owner_references or () if each.controller), None)


class KubeNamespace(Struct):
    """A Namespace object, of which the labels count."""

    metadata: Meta


class KubeTaint(Struct):
    """An entry of a node's spec.taints."""

    key: str
    effect: str = "NoSchedule"
    value: str | None = None


class Condition(Struct, rename="camel"):
    """An entry of status.conditions."""

    type: str
    status: str
    reason: str | None = None
    last_heartbeat_time: str | None = None


class NodeSpec(Struct):
    """A node's spec."""

    unschedulable: bool | None = None
    taints: list[KubeTaint] | None = None


class NodeInfo(Struct, rename="camel"):
    """A node's status.nodeInfo."""

    kubelet_version: str = ""


class NodeStatus(Struct, rename="camel"):
    """A node's status."""

    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None
    node_info: NodeInfo | None = None


class KubeNode(Struct):
    """A Node object."""

    metadata: Meta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class Resources(Struct):
    """A container's resources."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Port(Struct, rename="camel"):
    """A container's port."""

    host_port: int | None = None


class Container(Struct, rename="camel"):
    """A container; ``restart_policy`` Always on an init container makes it a sidecar."""

    name: str = ""
    resources: Resources | None = None
    ports: list[Port] | None = None
    restart_policy: str | None = None


class KubeToleration(Struct):
    """An entry of a pod's spec.tolerations."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Claim(Struct, rename="camel"):
    """A volume's claim."""

    claim_name: str


class Volume(Struct, rename="camel"):
    """A pod's volume, of which only a claim may tie it to a place; ``ephemeral``: the claim is made with the pod."""

    name: str = ""
    persistent_volume_claim: Claim | None = None
    ephemeral: dict[str, Any] | None = None


class Named(Struct):
    """A thing of which only the name counts, such as a scheduling gate."""

    name: str = ""


class Expression(Struct, omit_defaults=True):
    """An entry of matchExpressions."""

    key: str
    operator: str
    values: list[str] | None = None


class Term(Struct, rename="camel", omit_defaults=True):
    """An entry of nodeSelectorTerms."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class Terms(Struct, rename="camel"):
    """A node selector."""

    node_selector_terms: list[Term] | None = None


class NodeAffinity(Struct, rename="camel"):
    """nodeAffinity."""

    required_during_scheduling_ignored_during_execution: Terms | None = None
    preferred_during_scheduling_ignored_during_execution: list[Any] | None = None


class Selector(Struct, rename="camel"):
    """labelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class PodTerm(Struct, rename="camel"):
    """An entry of a pod affinity that is required."""

    topology_key: str
    label_selector: Selector | None = None
    namespaces: list[str] | None = None
    namespace_selector: Selector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodTerm(Struct, rename="camel"):
    """An entry of a pod affinity that is preferred."""

    pod_affinity_term: PodTerm | None = None


class PodAffinity(Struct, rename="camel"):
    """podAffinity, or podAntiAffinity."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodTerm] | None = None


class Affinity(Struct, rename="camel"):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Struct, rename="camel"):
    """An entry of topologySpreadConstraints."""

    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: Selector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class WorkloadRef(Struct, rename="camel"):
    """A pod's spec.workloadRef, as of Kubernetes 1.35."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class SchedulingGroup(Struct, rename="camel"):
    """A pod's spec.schedulingGroup."""

    pod_group_name: str = ""


class PodClaim(Struct, rename="camel"):
    """An entry of a pod's spec.resourceClaims: a claim by name, or a template of which it gets one of its own."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Struct, rename="camel"):
    """A pod's spec."""

    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[Spread] | None = None
    tolerations: list[KubeToleration] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[PodClaim] | None = None
    scheduling_gates: list[Named] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None
    scheduler_name: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    runtime_class_name: str | None = None


class PodClaimStatus(Struct, rename="camel"):
    """An entry of status.resourceClaimStatuses: the claim that was made for one of spec.resourceClaims."""

    name: str
    resource_claim_name: str | None = None


class ExtendedClaimStatus(Struct, rename="camel"):
    """status.extendedResourceClaimStatus: the claim that was made for what the pod asks for as extended resources."""

    resource_claim_name: str = ""


class PodStatus(Struct, rename="camel"):
    """A pod's status."""

    phase: str = "Pending"
    start_time: str | None = None
    qos_class: str | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: list[PodClaimStatus] | None = None
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class KubePod(Struct):
    """A Pod object."""

    metadata: Meta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


Amount = Callable[[Mapping[str, Quantity], str, int, str], int]
"""``amount(resources, name, scale, where)`` reads one quantity, 0 where it is not there; raises where it is none."""


def pod_request(spec: PodSpec, name: str, scale: int, amount: Amount) -> int:
    """How much of a resource a pod asks for, times ``scale``.

    The larger of its containers' sum and its init containers, sidecars among them, plus overhead.
    """

    def of(container: Container) -> int:
        resources = container.resources
        both = {**((resources and resources.limits) or {}), **((resources and resources.requests) or {})}
        return amount(both, name, scale, "containers.resources")

    running = sum(of(container) for container in spec.containers or ())
    peak = sidecars = 0
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecars += of(container)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + of(container))
    return max(running + sidecars, peak) + amount(spec.overhead or {}, name, scale, "overhead")


def _of_the_pod(spec: PodSpec, name: str, scale: int, amount: Amount) -> int:
    """As `pod_request`; what the pod as a whole asks for goes before its containers."""
    whole = {**(spec.resources.limits or {}), **(spec.resources.requests or {})} if spec.resources else {}
    if name not in whole:
        return pod_request(spec, name, scale, amount)
    return amount(whole, name, scale, "resources") + amount(spec.overhead or {}, name, scale, "overhead")


def pod_shape(spec: PodSpec, amount: Amount) -> PodShape:
    """What a pod asks for in all."""
    tolerations = {
        Toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "")
        for one in spec.tolerations or ()
        if not (one.key or "").startswith("node.kubernetes.io/")
    }
    return PodShape(
        cpu_milli=_of_the_pod(spec, "cpu", 1000, amount),
        memory_bytes=_of_the_pod(spec, "memory", 1, amount),
        gpus=sum(pod_request(spec, name, 1, amount) for name in GPU_RESOURCES),
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        tolerations=tuple(sorted(tolerations)),
    )
