"""How pods ask for GPUs today, and what the same is with DRA.

Which feature needs what: kubernetes pkg/features/kube_features.go 1.37; k8s-dra-driver-gpu, whose gates DynamicMIG,
MPSSupport, TimeSlicingSettings and ConsumableShares are off by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.kube.objects import KubeNode, KubePod, Quantity, parse_quantity, pod_request

WHOLE, INSTANCE, SHARE, MEMORY, FRACTION, CLAIMS = "whole", "mig", "share", "hami", "fraction", "dra"
"""Ways to ask: whole GPUs, a MIG instance, a replica of a GPU, HAMi's memory and cores, KAI's fraction, claims."""

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
MIG_PREFIX = "nvidia.com/mig-"
HAMI = ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
KAI_FRACTION, KAI_MEMORY = "gpu-fraction", "gpu-memory"
REPLICAS, STRATEGY, MIG_STRATEGY = (
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.strategy",
)
PRODUCT = "nvidia.com/gpu.product"
FEATURE_LABELS = {
    PRODUCT: "device.attributes['gpu.nvidia.com'].productName",
    "nvidia.com/gpu.memory": "device.capacity['gpu.nvidia.com'].memory",
    "nvidia.com/gpu.family": "device.attributes['gpu.nvidia.com'].architecture",
    "nvidia.com/gpu.compute.major": "device.attributes['gpu.nvidia.com'].cudaComputeCapability.major()",
    "nvidia.com/gpu.compute.minor": "device.attributes['gpu.nvidia.com'].cudaComputeCapability.minor()",
    "nvidia.com/cuda.driver.major": "device.attributes['gpu.nvidia.com'].driverVersion.major()",
    "nvidia.com/cuda.driver-version.major": "device.attributes['gpu.nvidia.com'].driverVersion.major()",
}
"""Labels of GPU Feature Discovery, and where a selector of a claim finds the same."""
_MIG_PRODUCT = re.compile(r"-MIG-([0-9]g\.[0-9]+gb(?:\.me)?)", re.IGNORECASE)


class Way(Struct, frozen=True):
    """How a pod asks for GPUs.

    Attributes:
        kind: one of the ways above.
        text: in the pod's own words, such as ``nvidia.com/gpu: 8``.
        count: how many devices.
        resource: the extended resource, where it is one.
        profile: of a MIG instance.
        strategy: by which a GPU is shared: ``mps`` or ``time-slicing``; and with how many.
        labels: labels of GPU Feature Discovery that it selects by, with their values.
    """

    kind: str
    text: str
    count: int = 1
    resource: str = ""
    profile: str = ""
    strategy: str = ""
    replicas: int = 0
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()


def ways_of(pod: KubePod, nodes: Sequence[KubeNode]) -> tuple[Way, ...]:
    """How a pod asks for GPUs; ``nodes`` are those that it may be on, which tell whether a GPU is shared there."""
    annotations = pod.metadata.annotations or {}
    labels = feature_labels(pod)
    asked = {name: count for name in resources_of(pod) if (count := pod_request(pod.spec, name, 1, amount))}
    found: list[Way] = []
    if pod.spec.resource_claims:
        names = [each.resource_claim_name or each.resource_claim_template_name or each.name
                 for each in pod.spec.resource_claims]  # fmt: skip
        found.append(Way(CLAIMS, f"claims {', '.join(names)}", len(names), labels=labels))
    if any(name in asked for name in HAMI):
        text = ", ".join(f"{name}: {asked[name]}" for name in (GPU, *HAMI) if name in asked)
        found.append(Way(MEMORY, text, asked.get(GPU, 1), GPU, labels=labels))
        asked = {name: count for name, count in asked.items() if name not in (GPU, *HAMI)}
    for key in (KAI_FRACTION, KAI_MEMORY):
        if annotations.get(key):
            found.append(Way(FRACTION, f"{key}: {annotations[key][:16]}", 1, labels=labels))
    for name, count in asked.items():
        text = f"{name}: {count}"
        if name.startswith(MIG_PREFIX):
            found.append(Way(INSTANCE, text, count, name, name.removeprefix(MIG_PREFIX), labels=labels))
        elif name in (GPU, SHARED, "amd.com/gpu"):
            found.append(_plain(name, count, text, labels, nodes))
    return tuple(found)


def _plain(
    name: str, count: int, text: str, labels: tuple[tuple[str, tuple[str, ...]], ...], nodes: Sequence[KubeNode]
) -> Way:
    """``nvidia.com/gpu`` by what the nodes make of it: a GPU, a replica of one, or a MIG instance (strategy single)."""
    replicas = {int(told) for node in nodes if (told := node.metadata.label(REPLICAS)).isdigit() and int(told) > 1}
    if name == SHARED or replicas:
        strategy = next((node.metadata.label(STRATEGY) for node in nodes if node.metadata.label(STRATEGY)), "")
        strategy = strategy if strategy in ("mps", "time-slicing") else "time-slicing"
        return Way(SHARE, text, count, name, "", strategy, max(replicas, default=0), labels)
    single = {match[1].lower() for node in nodes if (match := _MIG_PRODUCT.search(node.metadata.label(PRODUCT)))}
    if len(single) == 1:
        return Way(INSTANCE, text, count, name, next(iter(single)), labels=labels)
    return Way(WHOLE, text, count, name, labels=labels)


def resources_of(pod: KubePod) -> list[str]:
    """The names of all resources that a pod's containers ask for, in their order."""
    parts = [each.resources for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))]
    both = ((one.limits or {}) | (one.requests or {}) for one in parts if one is not None)
    return list(dict.fromkeys(name for each in both for name in each))


def feature_labels(pod: KubePod) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The labels of GPU Feature Discovery that a pod selects nodes by, and the values that would do."""
    found: dict[str, tuple[str, ...]] = {key: (value,) for key, value in (pod.spec.node_selector or {}).items()}
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    for term in (required.node_selector_terms or () if required else ()):  # fmt: skip
        for each in term.match_expressions or ():
            found.setdefault(each.key, tuple(each.values or ()))
    return tuple(sorted((key, values) for key, values in found.items() if _of_gpus(key)))


def _of_gpus(label: str) -> bool:
    return label.startswith(("nvidia.com/gpu.", "nvidia.com/mig", "nvidia.com/cuda.")) and "clique" not in label


def amount(resources: Mapping[str, Quantity], name: str, scale: int, where: str) -> int:
    """A quantity; what is none counts as 0."""
    del where
    try:
        return max(parse_quantity(resources.get(name, 0), scale), 0)
    except (ValueError, OverflowError):
        return 0
