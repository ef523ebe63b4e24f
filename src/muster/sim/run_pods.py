"""The pods of a job of a run file: alike, in roles, as a Ray placement group, or a whole Ray cluster.

The fields are explained in docs/reference/run-file.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from muster.catalog.ray import (
    AUTOSCALER_CPU_MILLI,
    AUTOSCALER_MEMORY_BYTES,
    SUBMITTER_CPU_MILLI,
    SUBMITTER_MEMORY_BYTES,
)
from muster.kube.objects import parse_quantity
from muster.model.fleet import HOST, WHOLE_GPU_MILLI
from muster.model.workload import PodSet, PodShape, TopologyRequest
from muster.traces.document import Document
from muster.traces.ray import Group, cluster_pod_sets, with_more

if TYPE_CHECKING:
    from muster.sim.run_file import JobItem

Pods = Annotated[int, Meta(ge=1, le=1_000_000)]
Gpus = Annotated[float, Meta(ge=0, le=1024)]
Least = Annotated[int, Meta(ge=0, le=1_000_000)]
Strategy = Literal["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"]

STRATEGIES = {
    "PACK": TopologyRequest(preferred=HOST),
    "STRICT_PACK": TopologyRequest(required=HOST),
    "SPREAD": TopologyRequest(spread=HOST),
    "STRICT_SPREAD": TopologyRequest(spread=HOST, at_most=1),
}
"""Ray's placement strategies as requests: a bundle is a pod, and a node is a host."""


class TopologyItem(Struct, frozen=True, forbid_unknown_fields=True):
    """Where pods must or should stand: levels of the fleet's topology, or ``host``."""

    required: str = ""
    preferred: str = ""
    segment: Annotated[int, Meta(ge=0, le=10**6)] = 0
    spread: str = ""
    at_most: Annotated[int, Meta(ge=0, le=10**6)] = 0


class BusyItem(Struct, frozen=True, forbid_unknown_fields=True):
    """From ``from_s`` after its first start on a job uses ``gpus`` of the GPUs that it holds."""

    from_s: Annotated[float, Meta(ge=0, le=1e12)]
    gpus: Annotated[float, Meta(ge=0, le=1e9)]


class RoleItem(Struct, frozen=True, forbid_unknown_fields=True):
    """Pods of one role of a gang. What is left out is 0."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    pods: Pods = 1
    min_pods: Least | None = None
    gpus: Gpus = 0.0
    cpu: str | float = 0.0
    memory: str | float = 0.0
    gpu_models: list[str] = field(default_factory=list[str])


class BundleItem(Struct, frozen=True, forbid_unknown_fields=True, rename={"cpu": "CPU", "gpu": "GPU"}):
    """A bundle of a Ray placement group, ``count`` times; memory is in bytes, or a quantity."""

    cpu: float = 0.0
    gpu: Gpus = 0.0
    memory: str | float = 0.0
    count: Pods = 1


class RayPodItem(Struct, frozen=True, forbid_unknown_fields=True):
    """The head of a Ray cluster."""

    gpus: Gpus = 0.0
    cpu: str | float = 0.0
    memory: str | float = 0.0


class RayGroupItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker group: ``replicas`` of ``hosts`` pods each."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    replicas: Pods
    min_replicas: Least = 0
    hosts: Pods = 1
    gpus: Gpus = 0.0
    cpu: str | float = 0.0
    memory: str | float = 0.0
    gpu_models: list[str] = field(default_factory=list[str])


class RayItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A Ray cluster as KubeRay makes it.

    ``autoscaler`` adds its sidecar to the head, and lets groups start with ``min_replicas``; ``submitter`` adds the pod
    that submits a RayJob.
    """

    head: RayPodItem
    workers: list[RayGroupItem] = field(default_factory=list[RayGroupItem])
    autoscaler: bool = False
    submitter: bool = False


def pods_of(document: Document, where: str, item: JobItem) -> tuple[tuple[PodSet, ...], TopologyRequest | None]:
    """The pod sets of a job, and where its pods must or should stand; raises `InputError` where that makes no sense."""
    forms = [key for key in ("roles", "bundles", "ray") if getattr(item, key) is not None]
    if len(forms) > 1:
        raise document.error(f"{where}.{forms[1]}", f"cannot be given beside {forms[0]}", "a job has one form")
    if forms:
        for key in ("pods", "min_pods", "gpus", "cpu", "memory", "gpu_models"):
            if f"{where}.{key}" in document.lines:
                raise document.error(f"{where}.{key}", f"cannot be given beside {forms[0]}", "it is said there")
    if item.strategy is not None and item.bundles is None:
        raise document.error(f"{where}.strategy", "is for bundles", "or give topology instead")
    topology = item.topology and TopologyRequest(
        item.topology.required, item.topology.preferred, item.topology.segment, item.topology.spread,
        item.topology.at_most,
    )  # fmt: skip
    if item.roles is not None:
        return _roles(document, f"{where}.roles", item.roles), topology
    if item.bundles is not None:
        return _bundles(document, f"{where}.bundles", item), _with_strategy(document, where, item, topology)
    if item.ray is not None:
        return _cluster(document, f"{where}.ray", item.ray), topology
    if item.min_pods is not None and item.min_pods > item.pods:
        raise document.error(f"{where}.min_pods", f"is {item.min_pods} of {item.pods} pods", "at most pods")
    shape = pod_shape(document, where, item.gpus, item.cpu, item.memory, item.gpu_models)
    return (PodSet(shape, item.pods, item.min_pods),), topology


def busy_of(document: Document, where: str, item: JobItem) -> tuple[tuple[float, float], ...]:
    """The steps of a job's use; raises `InputError` where time does not go on."""
    steps = [(each.from_s, each.gpus) for each in item.busy]
    for at in range(1, len(steps)):
        if steps[at][0] <= steps[at - 1][0]:
            raise document.error(f"{where}.busy[{at}].from_s", f"is {steps[at][0]:g}", "later than the step before")
    return tuple(steps)


def _roles(document: Document, where: str, roles: list[RoleItem]) -> tuple[PodSet, ...]:
    sets: list[PodSet] = []
    for at, role in enumerate(roles):
        path = f"{where}[{at}]"
        if any(each.role == role.name for each in sets):
            raise document.error(f"{path}.name", f"there is a role {role.name!r} before")
        if role.min_pods is not None and role.min_pods > role.pods:
            raise document.error(f"{path}.min_pods", f"is {role.min_pods} of {role.pods} pods", "at most pods")
        shape = pod_shape(document, path, role.gpus, role.cpu, role.memory, role.gpu_models)
        sets.append(PodSet(_not_nothing(document, path, shape), role.pods, role.min_pods, role.name))
    if not any(each.required for each in sets):
        what = "may run without any pod" if sets else "is empty"
        raise document.error(where, what, "one role needs a pod")
    return tuple(sets)


def _bundles(document: Document, where: str, item: JobItem) -> tuple[PodSet, ...]:
    """Bundles that are alike are one pod set, in the order of the first of each."""
    counts: dict[PodShape, int] = {}
    for at, bundle in enumerate(item.bundles or ()):
        path = f"{where}[{at}]"
        shape = pod_shape(document, path, bundle.gpu, bundle.cpu, bundle.memory, [], gpus_key="GPU", cpu_key="CPU")
        shape = _not_nothing(document, path, shape)
        counts[shape] = counts.get(shape, 0) + bundle.count
    if not counts:
        raise document.error(where, "is empty", "such as [{CPU: 1, GPU: 1}]")
    return tuple(PodSet(shape, count, role=f"bundle-{at}") for at, (shape, count) in enumerate(counts.items()))


def _with_strategy(document: Document, where: str, item: JobItem, topology: TopologyRequest | None) -> TopologyRequest:
    """What the strategy asks for, with what ``topology`` asks for beside it."""
    strategy = item.strategy or "PACK"
    asked, given = STRATEGIES[strategy], topology or TopologyRequest()
    for key in ("required", "preferred", "spread", "at_most"):
        if getattr(asked, key) and getattr(given, key):
            raise document.error(f"{where}.topology.{key}", f"is said by strategy {strategy} already")
    return replace(
        given, required=given.required or asked.required, preferred=given.preferred or asked.preferred,
        spread=given.spread or asked.spread, at_most=given.at_most or asked.at_most,
    )  # fmt: skip


def _cluster(document: Document, where: str, ray: RayItem) -> tuple[PodSet, ...]:
    head = pod_shape(document, f"{where}.head", ray.head.gpus, ray.head.cpu, ray.head.memory, [])
    if ray.autoscaler:
        head = with_more(head, AUTOSCALER_CPU_MILLI, AUTOSCALER_MEMORY_BYTES)
    groups: list[Group] = []
    for at, group in enumerate(ray.workers):
        path = f"{where}.workers[{at}]"
        if group.name in ("head", "submitter") or any(each.name == group.name for each in groups):
            raise document.error(f"{path}.name", f"{group.name!r} is the name of another role")
        if group.min_replicas > group.replicas:
            raise document.error(f"{path}.min_replicas", f"is {group.min_replicas} of {group.replicas}")
        shape = pod_shape(document, path, group.gpus, group.cpu, group.memory, group.gpu_models)
        least = group.min_replicas if ray.autoscaler else None
        groups.append(Group(group.name, _not_nothing(document, path, shape), group.replicas, least, group.hosts))
    return cluster_pod_sets(
        head, groups, PodShape(SUBMITTER_CPU_MILLI, SUBMITTER_MEMORY_BYTES) if ray.submitter else None
    )


def pod_shape(
    document: Document, where: str, asked: float, cpu: str | float, memory: str | float, models: list[str],
    *, gpus_key: str = "gpus", cpu_key: str = "cpu",
) -> PodShape:  # fmt: skip
    """What a pod asks for; ``asked`` are GPUs, below 1 a share of one. Raises `InputError` at the field."""
    gpus, gpu_milli = int(asked), WHOLE_GPU_MILLI
    if 0 < asked < 1:
        gpus, gpu_milli = 1, round(asked * WHOLE_GPU_MILLI)
    if (gpus != asked and gpu_milli == WHOLE_GPU_MILLI) or not gpu_milli:
        hint = "a whole number, or a share from 0.001 to 0.999"
        raise document.error(f"{where}.{gpus_key}", f"is {asked:g}", hint)
    return PodShape(
        _quantity(document, f"{where}.{cpu_key}", cpu, 1000),
        _quantity(document, f"{where}.memory", memory, 1),
        gpus,
        gpu_milli,
        tuple(models),
    )


def _not_nothing(document: Document, where: str, shape: PodShape) -> PodShape:
    if not (shape.gpus or shape.cpu_milli or shape.memory_bytes):
        raise document.error(where, "asks for nothing", "GPUs, CPU or memory")
    return shape


def _quantity(document: Document, path: str, value: str | float, scale: int) -> int:
    try:
        amount = parse_quantity(value if isinstance(value, str) else repr(value), scale)
    except (ValueError, OverflowError):
        raise document.error(path, f"{str(value)[:40]!r} is no quantity", "such as 8, 500m or 64Gi") from None
    if not 0 <= amount < 2**53:
        raise document.error(path, f"is {value}", "0 or more, and not absurdly large")
    return amount
