"""The GPU nodes of a cluster by what they are, and what they should do: move to DRA, stay, or be put right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from muster.answers.dra.ways import GPU, MIG_PREFIX, MIG_STRATEGY, PRODUCT, REPLICAS, STRATEGY, amount
from muster.kube.dra.gpus import Gpu
from muster.kube.objects import KubeNode

MOVE, STAY, DONE, TWICE = "move", "stay", "done", "fix"
"""What a pool should do."""


class NodePool(Struct, frozen=True):
    """Nodes that are alike in what matters here.

    Attributes:
        model: of their GPUs.
        shared: how GPUs are shared: ``mig single``, ``mig mixed``, ``time-slicing x4``, ``mps x4``, ``hami`` or empty.
        nodes: how many.
        gpus: of all of them, each counted once.
        advertised: ``device plugin``, ``DRA`` or ``both``.
        stance: what they should do.
        why: in a sentence.
        names: the nodes.
    """

    model: str
    shared: str
    nodes: int
    gpus: int
    advertised: str
    stance: str
    why: str
    names: tuple[str, ...]


def node_pools(nodes: Iterable[KubeNode], published: Mapping[str, list[Gpu]], driver: str) -> tuple[NodePool, ...]:
    """All nodes with GPUs, by model and by how they are shared; the largest pools first.

    Args:
        published: the GPUs that drivers publish, by node.
        driver: what is known of the DRA driver; empty: there is none.
    """
    grouped: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
    for node in nodes:
        sizes = node.status.capacity or node.status.allocatable or {}
        plugin = (
            amount(sizes, GPU, 1, "") or amount(sizes, f"{GPU}.shared", 1, "") or amount(sizes, "amd.com/gpu", 1, "")
        )
        instances = sum(amount(sizes, name, 1, "") for name in sizes if name.startswith(MIG_PREFIX))
        mine = published.get(node.metadata.name, [])
        if not plugin and not instances and not mine:
            continue
        told = node.metadata.label("nvidia.com/gpu.count")
        counted = int(told) if told.isascii() and told.isdigit() else 0
        apart = bool(counted) and plugin + len(mine) <= counted
        if mine and (plugin or instances):
            advertised = "DRA, device plugin" if apart else "both"
        else:
            advertised = "DRA" if mine else "device plugin"
        shared = _shared(node, instances)
        gpus = counted or len(mine) or plugin
        model = node.metadata.label(PRODUCT).partition("-MIG-")[0].removesuffix("-SHARED") or (
            mine[0].device.model if mine else "not known"
        )
        grouped.setdefault((model, shared, advertised), []).append((node.metadata.name, gpus))
    found = [
        NodePool(
            model, shared, len(each), sum(gpus for _, gpus in each), advertised, *_stance(shared, advertised, driver),
            tuple(name for name, _ in each),
        )
        for (model, shared, advertised), each in grouped.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda pool: (-pool.nodes, pool.model, pool.shared, pool.advertised)))


def _shared(node: KubeNode, instances: int) -> str:
    label = node.metadata.label
    if any(name.startswith("hami.io/") for name in node.metadata.annotations or ()):
        return "hami"
    replicas = label(REPLICAS)
    if replicas.isdigit() and int(replicas) > 1:
        return f"{label(STRATEGY) or 'time-slicing'} x{replicas}"
    if instances or (label(MIG_STRATEGY) in ("single", "mixed") and "-MIG-" in label(PRODUCT)):
        return f"mig {label(MIG_STRATEGY) or 'mixed'}"
    return ""


def _stance(shared: str, advertised: str, driver: str) -> tuple[str, str]:
    if advertised == "both":
        return TWICE, "given out twice: one of the two must go"
    if advertised != "device plugin":
        return DONE, "its GPUs are devices"
    if shared.startswith(("time-slicing", "mps")):
        gate = "MPSSupport" if shared.startswith("mps") else "TimeSlicingSettings"
        return STAY, f"replicas are no devices; nearest: a shared claim ({gate})"
    if shared == "hami":
        return STAY, "limits have no counterpart; nearest: consumable capacity"
    if shared.startswith("mig"):
        return MOVE, "instances that are there become devices"
    return MOVE, "the driver can take the plugin's place" if driver else "a DRA driver can take the plugin's place"
