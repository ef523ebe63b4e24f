"""`muster k8s dra-check`: what DRA would change for the pods and nodes of a cluster, and what is in the way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.answers.dra.node_pools import TWICE, NodePool, node_pools
from muster.answers.dra.ways import CLAIMS, FRACTION, INSTANCE, MEMORY, SHARE, WHOLE, Way, ways_of
from muster.kube.affinity import term_takes
from muster.kube.dra.gpus import Gpu, is_gpu_driver
from muster.kube.dra.objects import KubeClass
from muster.kube.dra.reader import DraReader
from muster.kube.kinds import CLASSES, NODES, PODS, SLICES
from muster.kube.marks import Marks
from muster.kube.objects import KubeNode, KubePod
from muster.kube.owners import gang_of
from muster.kube.world import World
from muster.model.notes import Notes

OLDEST = (1, 34)
"""The first version with resource.k8s.io/v1, by default on."""
EXTENDED_SINCE = (1, 36)
"""The first version that by default gives devices to pods that ask for an extended resource (alpha since 1.34)."""

NOTHING, SAME, TEMPLATE, BLOCKED = "none", "by a class", "claim template", "in the way"
"""What changes for pods: nothing; nothing once a class stands for their resource; they need a claim; it cannot be."""

KNOWN_SCHEDULERS = ("", "default-scheduler", "muster", "kai-scheduler")
PLUGIN_LABEL = "nvidia.com/gpu.deploy.device-plugin"
"""By this label of a node the GPU Operator runs the device plugin there."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_HASH = re.compile(r"-[0-9a-z]{5,10}$")


class Asking(Struct, frozen=True):
    """Pods of one owner that ask for GPUs in one way.

    Attributes:
        workload: ``NAMESPACE/OWNER``.
        pods: how many.
        today: how they ask.
        with_dra: what the same is.
        change: what changes for them.
        why: what is in the way, or what else to know; empty: nothing.
        way: how they ask, in parts.
    """

    workload: str
    pods: int
    today: str
    with_dra: str
    change: str
    why: str
    way: Way


class Finding(Struct, frozen=True):
    """One thing that is in the way (``blocks``), or that is to know; and what to do."""

    text: str
    fix: str
    blocks: bool = True


class Needed(Struct, frozen=True):
    """What this cluster's work would use of DRA.

    Attributes:
        feature: in words.
        kubernetes: the gate, and the version that has it on by default.
        driver: NVIDIA's driver's own gate, off by default; empty: none.
        there: whether the server's version has it on by default: ``yes``, ``no`` or ``not known``.
    """

    feature: str
    kubernetes: str
    driver: str
    there: str


class Check(Struct, frozen=True):
    """The whole answer."""

    version: str
    drivers: tuple[str, ...]
    gpu_nodes: int
    workloads: tuple[Asking, ...]
    pools: tuple[NodePool, ...]
    needed: tuple[Needed, ...]
    findings: tuple[Finding, ...]

    @property
    def in_the_way(self) -> int:
        """How many things are in the way."""
        return sum(finding.blocks for finding in self.findings)


def check(world: World, version: str = "") -> Check:
    """The check of a cluster.

    Args:
        world: its objects; without ResourceSlices there it is taken to have no DRA driver.
        version: the server's; empty: that of its newest kubelet.
    """
    nodes = list(world.of(NODES, KubeNode).values())
    version = version or max((_kubelet(node) for node in nodes), key=parsed, default="")
    reader = DraReader(world, Marks(), Notes())
    published = {node.metadata.name: reader.gpus(node) for node in nodes} if reader.there else {}
    drivers = tuple(sorted({pool.driver for pool in reader.devices.inventory.pools})) if reader.there else ()
    driver = next((name for name in drivers if is_gpu_driver(name)), "")
    pools = node_pools(nodes, published, driver)
    classes = world.of(CLASSES, KubeClass)
    workloads = _workloads(world, nodes, published, classes, parsed(version))
    findings = (*_server(world, version), *_nodes(pools), *_work(workloads), *_preemption(world, workloads))
    needed = tuple(_needed(workloads, pools, version))
    return Check(version, drivers, sum(pool.nodes for pool in pools), workloads, pools, needed, tuple(findings))


def parsed(version: str) -> tuple[int, int]:
    """``v1.37.2`` as (1, 37); (0, 0) where it is none."""
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _kubelet(node: KubeNode) -> str:
    return node.status.node_info.kubelet_version if node.status.node_info else ""


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# -- pods -------------------------------------------------------------------------------------------------------------


def _workloads(
    world: World, nodes: Sequence[KubeNode], published: Mapping[str, list[Gpu]], classes: Mapping[str, KubeClass],
    version: tuple[int, int],
) -> tuple[Asking, ...]:  # fmt: skip
    by_name = {node.metadata.name: node for node in nodes}
    with_gpus = [
        node for node in nodes
        if published.get(node.metadata.name)
        or any(name.startswith(("nvidia.com/", "amd.com/")) for name in node.status.capacity or ())
    ]  # fmt: skip
    grouped: dict[tuple[str, Way], list[KubePod]] = {}
    for pod in world.of(PODS, KubePod).values():
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        bound = by_name.get(pod.spec.node_name or "")
        where = [bound] if bound is not None else [node for node in with_gpus if _may_be_on(pod, node)]
        for way in ways_of(pod, where):
            grouped.setdefault((owner_of(pod), way), []).append(pod)
    found = [
        Asking(name, len(pods), way.text, *_with_dra(way, classes, version, pods[0]), way)
        for (name, way), pods in grouped.items()
    ]
    order = (BLOCKED, TEMPLATE, SAME, NOTHING)
    return tuple(sorted(found, key=lambda each: (order.index(each.change), -each.pods, each.workload, each.today)))


def owner_of(pod: KubePod) -> str:
    """What made a pod, ``NAMESPACE/NAME``; of a Deployment's pods the Deployment."""
    gang = gang_of(pod)
    name, owner = gang.name, pod.metadata.owner
    if gang.kind == "Pod" and owner is not None:
        name = _HASH.sub("", owner.name) if owner.kind == "ReplicaSet" else owner.name
    return f"{pod.metadata.namespace}/{name}"


def _may_be_on(pod: KubePod, node: KubeNode) -> bool:
    labels = node.metadata.labels or {}
    if not (pod.spec.node_selector or {}).items() <= labels.items():
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    terms = (required.node_selector_terms or []) if required else []
    return not terms or any(term_takes(term, labels, node.metadata.name) for term in terms)


def _with_dra(
    way: Way, classes: Mapping[str, KubeClass], version: tuple[int, int], pod: KubePod
) -> tuple[str, str, str]:
    """What the same is with DRA, what changes for the pod, and what else to know."""
    scheduler = pod.spec.scheduler_name or ""
    strange = f"its scheduler {scheduler} must know DRA" if scheduler not in KNOWN_SCHEDULERS else ""
    if way.kind == CLAIMS:
        return "as today", NOTHING, ""
    if way.kind == MEMORY:
        return "consumable capacity", BLOCKED, "HAMi's limits have no counterpart yet"
    if way.kind == FRACTION:
        return "consumable capacity", BLOCKED, "KAI's fractions are the scheduler's own"
    if way.kind == SHARE:
        return "a shared claim", BLOCKED, f"replicas ({way.strategy}) are no devices"
    if way.kind == INSTANCE:
        text = f"{way.count} x mig.nvidia.com, profile {way.profile}"
    else:
        text = f"{way.count} x {'gpu.amd.com' if way.resource.startswith('amd') else 'gpu.nvidia.com'}"
    why = strange or (f"selects nodes by {', '.join(key for key, _ in way.labels)}" if way.labels else "")
    if any(each.spec.extended_resource_name == way.resource for each in classes.values()) and version >= OLDEST:
        return text, NOTHING if version >= EXTENDED_SINCE else SAME, why
    if version >= EXTENDED_SINCE:
        return text, SAME, why
    return text, TEMPLATE, why


# -- what is in the way -----------------------------------------------------------------------------------------------


def _server(world: World, version: str) -> list[Finding]:
    found: list[Finding] = []
    missing = world.missing.get(SLICES.name, "")
    if parsed(version) == (0, 0):
        found.append(Finding("the server's version is not told by the file", "ask with --context", blocks=False))
    elif parsed(version) < OLDEST:
        found.append(Finding(f"Kubernetes {version} has no resource.k8s.io/v1", "upgrade to 1.34 or newer"))
    elif missing == "not served":
        fix = "start the API server without --runtime-config that takes resource.k8s.io away"
        found.append(Finding(f"the server ({version}) does not serve resource.k8s.io", fix))
    elif missing:
        found.append(Finding(f"ResourceSlices are {missing}", "ask as somebody who may list them", blocks=False))
    elif not world.holds(SLICES):
        fix = "kubectl get nodes,pods,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates -A -o json"
        found.append(Finding("no ResourceSlices are in the file: as if there were no DRA driver", fix, blocks=False))
    return found


def _nodes(pools: Sequence[NodePool]) -> list[Finding]:
    found: list[Finding] = []
    for pool in pools:
        if pool.stance == TWICE:
            text = f"{_many(pool.gpus, 'GPU')} of {_many(pool.nodes, 'node')}, such as {pool.names[0]}"
            text += ": given out twice, by the device plugin and by DRA"
            fix = f"kubectl label node {pool.names[0]} {PLUGIN_LABEL}=false (GPU Operator), or the driver's own"
            found.append(Finding(text, fix))
    return found


def _work(workloads: Sequence[Asking]) -> list[Finding]:
    fixes = {
        MEMORY: "leave their nodes to HAMi, or take a driver with consumable capacity",
        FRACTION: "leave their nodes on the device plugin; KAI gives fractions there",
        SHARE: "leave their nodes on the device plugin, or let pods name one claim",
    }
    found: list[Finding] = []
    for kind, fix in fixes.items():
        mine = [each for each in workloads if each.way.kind == kind and each.change == BLOCKED]
        if mine:
            pods = sum(each.pods for each in mine)
            names = ", ".join(dict.fromkeys(each.workload for each in mine[:3])) + (" ..." if len(mine) > 3 else "")
            found.append(Finding(f"{_many(pods, 'pod')} of {names}: {mine[0].why}", fix))
    strange = [each for each in workloads if "must know DRA" in each.why]
    if strange:
        names = ", ".join(dict.fromkeys(each.workload for each in strange[:3]))
        text = f"{_many(sum(each.pods for each in strange), 'pod')} of {names}: placed by another scheduler"
        found.append(Finding(text, "see whether its version allocates resource claims", blocks=False))
    return found


def _preemption(world: World, workloads: Sequence[Asking]) -> list[Finding]:
    """kube-scheduler stops no pod for the sake of a claim: that matters where work has several priorities."""
    mine = {each.workload for each in workloads}
    pods = (pod for pod in world.of(PODS, KubePod).values() if owner_of(pod) in mine)
    values = {pod.spec.priority or 0 for pod in pods if (pod.spec.scheduler_name or "") in KNOWN_SCHEDULERS[:2]}
    if len(values) < 2:
        return []
    text = f"GPU pods have {len(values)} priorities, and kube-scheduler preempts nobody for devices of a claim"
    return [Finding(text, "let Muster or Kueue preempt, which stop whole workloads", blocks=False)]


# -- what it needs ----------------------------------------------------------------------------------------------------


def _needed(workloads: Sequence[Asking], pools: Sequence[NodePool], version: str) -> list[Needed]:
    kinds = {each.way.kind for each in workloads}
    shared = {pool.shared.partition(" ")[0] for pool in pools if pool.shared}
    rows: list[tuple[str, str, tuple[int, int], str]] = [
        ("devices and claims at all", "resource.k8s.io/v1", OLDEST, "")
    ]
    if kinds & {WHOLE, INSTANCE}:
        rows.append(("pods stay as they are (extendedResourceName)", "DRAExtendedResource", EXTENDED_SINCE, ""))
    rows.append(("devices with a taint are avoided", "DRADeviceTaints", (1, 36), "NVMLDeviceHealthCheck"))
    if "mig" in shared or INSTANCE in kinds:
        rows.append(("MIG instances carved on demand", "DRAPartitionableDevices", (1, 36), "DynamicMIG"))
    if SHARE in kinds:
        strategies = {each.way.strategy for each in workloads if each.way.kind == SHARE}
        gates = {"MPSSupport" if each == "mps" else "TimeSlicingSettings" for each in strategies}
        rows.append(("a claim whose pods share its GPU", "resource.k8s.io/v1", OLDEST, ", ".join(sorted(gates))))
    if kinds & {SHARE, MEMORY, FRACTION}:
        rows.append(("shares of a GPU for anybody", "DRAConsumableCapacity", (1, 36), "ConsumableShares"))
    known = parsed(version)
    return [
        Needed(feature, f"{gate}, {since[0]}.{since[1]}", driver,
               "not known" if known == (0, 0) else "yes" if known >= since else "no")
        for feature, gate, since, driver in rows
    ]  # fmt: skip
