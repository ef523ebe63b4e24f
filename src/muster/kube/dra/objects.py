"""The parts of the resource.k8s.io objects that matter for scheduling, and NVIDIA's ComputeDomain.

They are read as version v1 and v1beta2 have them. Version v1beta1 differs in two places, which are read as well: a
device's fields are below ``basic``, and a request that asks for one thing has its fields beside its name.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec import Struct, field

from muster.kube.objects import Meta, Quantity, Terms, parse_quantity

NANO = 10**9
EXACT_COUNT, ALL = "ExactCount", "All"
MOST_RESULTS = 32
"""A claim never gets more devices (resource/v1 AllocationResultsMaxSize)."""
NO_SCHEDULE = ("NoSchedule", "NoExecute")
"""Effects of a device's taint that keep a claim off it; others do not."""
IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/"
"""A pod that asks for this and a class's name, as an extended resource, gets a device of the class."""

GPU_DRIVER, DOMAIN_DRIVER = "gpu.nvidia.com", "compute-domain.nvidia.com"


def nanos(quantity: Quantity) -> int:
    """A quantity in billionths, the smallest step that Kubernetes keeps; raises `ValueError` where it is none."""
    return parse_quantity(quantity, NANO)


class Selector(Struct):
    """An entry of ``selectors``: a CEL expression about one device."""

    cel: Cel | None = None

    @property
    def expression(self) -> str | None:
        """Its expression; None for a kind of selector that is not known."""
        return self.cel.expression if self.cel else None


class Cel(Struct):
    """A CEL expression."""

    expression: str = ""


class DraToleration(Struct, rename="camel"):
    """What taints of devices a request bears."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def bears(self, taint: DraTaint) -> bool:
        """Whether it bears a taint."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class DraTaint(Struct, frozen=True):
    """A device's taint."""

    key: str
    effect: str = ""
    value: str = ""

    def describe(self) -> str:
        """``key=value:effect``."""
        return f"{self.key}{'=' + self.value if self.value else ''}:{self.effect}"


# -- what drivers publish ---------------------------------------------------------------------------------------------


class Attribute(Struct, rename={"integer": "int", "boolean": "bool", "text": "string"}):
    """A value of ``attributes``: one of these is set."""

    integer: int | None = None
    boolean: bool | None = None
    text: str | None = None
    version: str | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None

    @property
    def value(self) -> tuple[str, int | bool | str | tuple[int | bool | str, ...]] | None:
        """Its type and value, which may be compared with another's; None where nothing is set that is known."""
        for name in ("ints", "bools", "strings", "versions"):
            if (many := getattr(self, name)) is not None:
                return name, tuple(many)
        for name in ("integer", "boolean", "text", "version"):
            if (one := getattr(self, name)) is not None:
                return name, one
        return None


class ValidRange(Struct):
    """Amounts that a share of a device may have: from ``min`` to ``max`` in steps of ``step``."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicy(Struct, rename="camel"):
    """How much of a capacity a share takes: what it takes unasked, and what amounts there are."""

    default: Quantity | None = None
    valid_values: list[Quantity] | None = None
    valid_range: ValidRange | None = None


class Capacity(Struct, rename="camel"):
    """A value of ``capacity``."""

    value: Quantity
    request_policy: RequestPolicy | None = None


class Counter(Struct):
    """A value of ``counters``."""

    value: Quantity


class CounterSet(Struct):
    """An entry of ``sharedCounters``: what the devices of a pool divide among themselves."""

    name: str
    counters: dict[str, Counter] | None = None


class Consumption(Struct, rename="camel"):
    """An entry of ``consumesCounters``."""

    counter_set: str
    counters: dict[str, Counter] | None = None
    compatibility_groups: list[str] | None = None


class DraDevice(Struct, rename="camel", dict=True):
    """A device of a ResourceSlice."""

    name: str
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    consumes_counters: list[Consumption] | None = None
    node_name: str | None = None
    node_selector: Terms | None = None
    all_nodes: bool | None = None
    taints: list[DraTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None
    basic: dict[str, Any] | None = None

    @cached_property
    def full(self) -> DraDevice:
        """The device with its fields where v1 has them."""
        if self.basic is None:
            return self
        from msgspec import convert

        return convert({**self.basic, "name": self.name}, DraDevice)

    def attribute(self, name: str, driver: str) -> Attribute | None:
        """The attribute of a fully qualified name, ``DOMAIN/ID``; one without a domain is of its driver's."""
        attributes = self.attributes or {}
        domain, _, short = name.partition("/")
        return attributes.get(name) or (attributes.get(short) if domain == driver else None)


class DraPool(Struct, rename="camel"):
    """What a slice is a part of."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Struct, rename="camel"):
    """A ResourceSlice's spec."""

    driver: str
    pool: DraPool
    node_name: str | None = None
    node_selector: Terms | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[DraDevice] | None = None
    shared_counters: list[CounterSet] | None = None


class KubeSlice(Struct):
    """A ResourceSlice object."""

    metadata: Meta
    spec: SliceSpec


class ClassSpec(Struct, rename="camel"):
    """A DeviceClass's spec; ``config`` is handed on as it is."""

    selectors: list[Selector] | None = None
    config: list[dict[str, Any]] | None = None
    extended_resource_name: str | None = None


class KubeClass(Struct):
    """A DeviceClass object."""

    metadata: Meta
    spec: ClassSpec = field(default_factory=ClassSpec)


class TaintedDevices(Struct):
    """Which devices a rule taints: those that match all that is set."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Struct, rename="camel"):
    """A DeviceTaintRule's spec; without a selector it taints nothing."""

    taint: DraTaint
    device_selector: TaintedDevices | None = None


class KubeTaintRule(Struct):
    """A DeviceTaintRule object."""

    metadata: Meta
    spec: TaintRuleSpec


# -- what pods ask for ------------------------------------------------------------------------------------------------


class CapacityRequest(Struct):
    """How much of a device's capacities a request needs."""

    requests: dict[str, Quantity] | None = None


class Exactly(Struct, rename="camel"):
    """What a request, or one of its alternatives, asks for."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[Selector] | None = None
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[DraToleration] | None = None
    capacity: CapacityRequest | None = None
    derived_attributes: list[dict[str, Any]] | None = None


class DeviceRequest(Exactly, rename="camel"):
    """An entry of ``requests``; in v1beta1 what it asks for exactly stands beside its name."""

    exactly: Exactly | None = None
    first_available: list[Exactly] | None = None

    @property
    def alternatives(self) -> tuple[tuple[str, Exactly], ...]:
        """What would do, the best first, each with the name that a result has: ``REQUEST``, ``REQUEST/ALTERNATIVE``."""
        if self.first_available:
            return tuple((f"{self.name}/{one.name}", one) for one in self.first_available)
        return ((self.name, self.exactly or self),)


class Constraint(Struct, rename="camel"):
    """What the devices of some requests (none named: all) must have in common, or must not."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Struct):
    """What a claim asks for; ``config`` is handed on as it is."""

    requests: list[DeviceRequest] | None = None
    constraints: list[Constraint] | None = None
    config: list[dict[str, Any]] | None = None


class DraClaimSpec(Struct):
    """A ResourceClaim's spec."""

    devices: DeviceClaim = field(default_factory=DeviceClaim)


class Result(Struct, rename={
    "admin_access": "adminAccess", "share_id": "shareID", "consumed_capacity": "consumedCapacity",
    "binding_conditions": "bindingConditions", "binding_failure_conditions": "bindingFailureConditions",
}, omit_defaults=True):  # fmt: skip
    """A device that a claim was given."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: list[DraToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = None
    consumed_capacity: dict[str, Quantity] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Driver, pool and device."""
        return self.driver, self.pool, self.device


class Results(Struct, omit_defaults=True):
    """The devices that a claim was given, and the configuration that goes with them."""

    results: list[Result] = field(default_factory=list[Result])
    config: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class DraAllocation(Struct, rename="camel", omit_defaults=True):
    """``status.allocation``: as it is read, and as it is written."""

    devices: Results = field(default_factory=Results)
    node_selector: Terms | None = None
    allocation_timestamp: str | None = None


class Consumer(Struct, rename="camel"):
    """An entry of ``reservedFor``: a pod, or a pod group."""

    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""


class DraClaimStatus(Struct, rename="camel"):
    """A ResourceClaim's status."""

    allocation: DraAllocation | None = None
    reserved_for: list[Consumer] | None = None


class KubeDraClaim(Struct):
    """A ResourceClaim object."""

    metadata: Meta
    spec: DraClaimSpec = field(default_factory=DraClaimSpec)
    status: DraClaimStatus = field(default_factory=DraClaimStatus)


class TemplateSpec(Struct):
    """A ResourceClaimTemplate's spec."""

    spec: DraClaimSpec = field(default_factory=DraClaimSpec)


class KubeClaimTemplate(Struct):
    """A ResourceClaimTemplate object."""

    metadata: Meta
    spec: TemplateSpec = field(default_factory=TemplateSpec)


# -- NVIDIA's domains of multi-node NVLink ----------------------------------------------------------------------------


class ClaimTemplateName(Struct):
    """The name of a template that is made for a domain's pods."""

    name: str = ""


class Channel(Struct, rename="camel"):
    """How pods of a domain get its channel."""

    resource_claim_template: ClaimTemplateName = field(default_factory=ClaimTemplateName)
    allocation_mode: str = "Single"


class ComputeDomainSpec(Struct, rename="camel"):
    """A ComputeDomain's spec."""

    num_nodes: int = 0
    channel: Channel = field(default_factory=Channel)


class KubeComputeDomain(Struct):
    """A ComputeDomain object (resource.nvidia.com/v1beta1)."""

    metadata: Meta
    spec: ComputeDomainSpec = field(default_factory=ComputeDomainSpec)
