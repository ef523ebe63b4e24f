"""Why a gang has no room: which nodes fall away at which step, and which single cause makes the difference.

A cause is found by asking the engine itself: the gang is imagined without one of its demands (a toleration for every
taint, no CPU ...), and placed. What lets it be placed is what keeps it from its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from muster.engine.cluster import Cluster, GangKind, Hold
from muster.engine.requests import Refused
from muster.engine.state import CORDONED, NO_LIMIT, REPLACEMENT
from muster.kernels import FREE_PODS, ON_NODE, Ints
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.reasons import Reason
from muster.model.workload import PodShape, Toleration, TopologyRequest

Flags = npt.NDArray[np.bool_]

TOO_SMALL = (Reason.GPU_COUNT, Reason.CPU_TOTAL, Reason.MEMORY_TOTAL, Reason.SHARING_MODE)
NO_GPU_ROOM = (Reason.GPU_FREE, Reason.GPU_SHAPE, Reason.MIG_START, Reason.GPU_SHARED)


class Step(NamedTuple):
    """One step of the funnel: ``rows`` are the nodes that are left after it, ``lost`` those that fell away at it."""

    key: str
    text: str
    rows: Ints
    lost: Ints


class Funnel(NamedTuple):
    """From all nodes to those that take a pod of one shape now, on one flavor.

    ``free_milli`` is the free GPU on the nodes that could take a pod if nothing ran, ``usable_milli`` what pods of the
    shape could use of it; ``pods`` how many of them find room now, each by itself.
    """

    shape: PodShape
    flavor: str
    steps: tuple[Step, ...]
    free_milli: int
    usable_milli: int
    pods: int


def funnel(cluster: Cluster, kind: GangKind, flavor: str, holds: Sequence[Hold], which: int) -> Funnel:
    """The funnel of the pods of a gang's pod set number ``which`` (of those with pods), beside what is held."""
    pod_set = kind.pod_sets[which]
    row = int(cluster.pods_of(kind, flavor)[0, which])
    alone = cluster.placer.refusals(row)
    with ExitStack() as stack:
        for hold in holds:
            stack.enter_context(cluster.holding(hold))
        masks, rooms = cluster.placer.refusals(row), cluster.rooms(row)
        free = cluster.state.nodes.gpu_free.sum(axis=1)
    left: Flags = np.ones(len(alone), np.bool_)
    steps = [Step("nodes", "nodes", np.flatnonzero(left), np.zeros(0, np.int64))]

    def keep(key: str, text: str, which: Flags) -> None:
        nonlocal left
        lost = np.flatnonzero(left & ~which)
        left = left & which
        steps.append(Step(key, text, np.flatnonzero(left), lost))

    keep("flavor", _flavor_text(pod_set.shape, flavor), _of_flavor(cluster, pod_set.shape, flavor, alone))
    keep("healthy", "schedulable", ~_any(alone, Reason.UNSCHEDULABLE))
    keep("labels", "labels match", ~_any(alone, Reason.SELECTOR))
    keep("taints", "taints tolerated", ~_any(alone, Reason.TAINT))
    keep("spares", "no spare", ~_any(alone, Reason.SPARE))
    keep("size", "large enough", ~_any(alone, *TOO_SMALL))
    keep("reserved", "not reserved", (masks == 0) | (alone != 0))
    free_milli = int(free[left].sum())
    if pod_set.shape.gpus:
        keep("any", "any GPU free", free > 0)
        keep("gpus", _wanted_text(cluster, pod_set.shape, left), ~_any(masks, *NO_GPU_ROOM))
    keep("pods", "fewer pods than they may have", ~_any(masks, Reason.POD_COUNT))
    keep("rest", "CPU and memory free", masks == 0)
    usable = int(rooms[left].sum())
    per_pod = pod_set.shape.gpu_milli_total
    shown = [steps[0], *(step for step in steps[1:] if len(step.lost) or step.key in ("gpus", "flavor"))]
    return Funnel(pod_set.shape, flavor, tuple(shown), free_milli, usable * per_pod, usable)


def _any(masks: Ints, *reasons: Reason) -> Flags:
    return masks & sum(reason.mask for reason in reasons) != 0


def _of_flavor(cluster: Cluster, shape: PodShape, flavor: str, masks: Ints) -> Flags:
    nodes = cluster.state.node_list
    fits = ~_any(masks, Reason.GPU_MODEL)
    if cluster.flavored:
        return fits & np.array([node.flavor == flavor for node in nodes], np.bool_)
    return fits & np.array([bool(node.devices) for node in nodes], np.bool_) if shape.gpus else fits


def _flavor_text(shape: PodShape, flavor: str) -> str:
    if flavor:
        return flavor
    return "|".join(shape.gpu_models) if shape.gpu_models and shape.gpus else "with GPUs" if shape.gpus else "all kinds"


def _wanted_text(cluster: Cluster, shape: PodShape, left: Flags) -> str:
    if shape.gpu_milli < WHOLE_GPU_MILLI:
        return "room for a pod"
    whole = {int(gpus) for gpus in cluster.state.nodes.gpus[left]}
    return f"all {shape.gpus} free" if whole == {shape.gpus} and shape.gpus > 1 else f"{shape.gpus} free"


class Cause(NamedTuple):
    """Why a gang finds no room on a flavor: the ``reason``; what the engine said of its places (None: nothing).

    ``never`` says that it would not fit if nothing ran.
    """

    reason: Reason
    flavor: str
    never: bool
    refused: Refused | None


_STATIC = (
    Reason.SELECTOR, Reason.TAINT, Reason.UNSCHEDULABLE, Reason.SPARE, Reason.GPU_MODEL, Reason.SHARING_MODE,
    Reason.CPU_TOTAL, Reason.MEMORY_TOTAL,
)  # fmt: skip
_LOAD = (Reason.CPU_FREE, Reason.MEMORY_FREE)


def without(shape: PodShape, reason: Reason) -> PodShape:
    """A shape that no node refuses for ``reason``; the same shape for reasons that no demand stands behind."""
    bears = {
        Reason.TAINT: Toleration(operator="Exists"), Reason.SPARE: REPLACEMENT, Reason.UNSCHEDULABLE: CORDONED,
    }.get(reason)  # fmt: skip
    if bears is not None:
        return replace(shape, tolerations=tuple(sorted({*shape.tolerations, bears})))
    if reason is Reason.SELECTOR:
        return replace(shape, node_selector=())
    if reason is Reason.GPU_MODEL:
        return replace(shape, gpu_models=())
    if reason in (Reason.CPU_TOTAL, Reason.CPU_FREE):
        return replace(shape, cpu_milli=0)
    if reason in (Reason.MEMORY_TOTAL, Reason.MEMORY_FREE):
        return replace(shape, memory_bytes=0)
    if reason is Reason.SHARING_MODE:
        return replace(shape, sharing="", tenant="")
    return shape


def relaxed(cluster: Cluster, kind: GangKind, reason: Reason) -> GangKind:
    """The gang without what ``reason`` is about; the same kind where it asks for no such thing."""
    sets = tuple(replace(each, shape=without(each.shape, reason)) for each in kind.asked)
    return cluster.kind(sets, kind.topology, kind.flavors, kind.groups)


def anywhere(cluster: Cluster, kind: GangKind) -> GangKind:
    """The gang without its topology request and the places of its ranks."""
    return cluster.kind(kind.asked, TopologyRequest() if kind.topology else None, kind.flavors)


def beside_anybody(cluster: Cluster, kind: GangKind) -> GangKind:
    """The gang without what rules about other pods ask for; the same kind where there are none."""
    return cluster.kind(kind.lasting, kind.topology, kind.flavors, kind.groups)


def cause(cluster: Cluster, kind: GangKind, flavor: str) -> Cause | None:
    """Why a gang has no room on a flavor now; None if it has."""
    refused = cluster.refusal(kind, flavor)
    if refused is None and cluster.fits(kind, flavor):
        return None
    if cluster.never_fits(kind, flavor):
        empty = cluster.emptied
        twin = empty.kind(kind.lasting, kind.topology, kind.flavors, kind.groups)
        return Cause(_never(empty, twin, flavor), flavor, True, empty.refusal(twin, flavor))
    return Cause(_now(cluster, kind, flavor, refused), flavor, False, refused)


def _never(empty: Cluster, kind: GangKind, flavor: str) -> Reason:
    """Of the demands that alone make the difference, the one without which most pods would find room."""
    best: tuple[int, int, Reason] | None = None
    for number, reason in enumerate(_STATIC):
        easier = relaxed(empty, kind, reason)
        if easier is not kind and empty.fits(easier, flavor):
            room = _room(empty, easier, flavor)
            if best is None or (room, -number) > best[:2]:
                best = room, -number, reason
    if best is not None:
        return best[2]
    loose = anywhere(empty, kind)
    if not kind.anywhere and empty.fits(loose, flavor):
        refused = empty.refusal(kind, flavor)
        return Reason.ONE_DOMAIN if refused is None or refused.reason is Reason.CAPACITY else refused.reason
    return _no_node(empty, kind, flavor) or Reason.NEVER_FITS


def _no_node(empty: Cluster, kind: GangKind, flavor: str) -> Reason | None:
    """The reason for which every node refuses a pod of the gang even when empty; None if some node takes each."""
    rows: list[int] = empty.pods_of(kind, flavor)[0].tolist()
    for row in rows:
        masks = empty.placer.refusals(row)
        if (masks == 0).any():
            continue
        # nodes of other flavors and without GPUs say nothing: what counts is what came nearest
        shape = empty.state.shape_list[row]
        fits = masks[_of_flavor(empty, shape, flavor, masks)] if shape.gpus else masks
        if not len(fits):
            return Reason.GPU_MODEL if shape.gpu_models else Reason.GPU_COUNT
        bits = [reason for reason in Reason if reason.bit < 32 and (fits & reason.mask).any()]
        fewest = min(fits.tolist(), key=lambda mask: (mask.bit_count(), -int((fits == mask).sum())))
        return next(reason for reason in bits if fewest & reason.mask)
    return None


def _room(cluster: Cluster, kind: GangKind, flavor: str) -> int:
    return sum(int(cluster.rooms(row).sum()) for row in cluster.pods_of(kind, flavor)[0].tolist())


def _now(cluster: Cluster, kind: GangKind, flavor: str, refused: Refused | None) -> Reason:
    """Why there is no room now although there would be if nothing ran."""
    if refused is not None and refused.reason is not Reason.CAPACITY:
        return refused.reason
    free = beside_anybody(cluster, kind)
    if free is not kind and cluster.fits(free, flavor):
        return Reason.OTHER_PODS
    with cluster.holding(_no_pod_limits(cluster)):
        if cluster.fits(kind, flavor):
            return Reason.POD_COUNT
    for reason in _LOAD:
        easier = relaxed(cluster, kind, reason)
        if easier is not kind and cluster.fits(easier, flavor):
            return reason
    rows = cluster.pods_of(kind, flavor)[0].tolist()
    if not any(each.shape.gpus for each in kind.pod_sets):
        return _scarce_host(cluster, kind, flavor)
    if free_milli(cluster, rows) < kind.milli:
        return Reason.GPU_FREE
    masks = np.concatenate([cluster.placer.refusals(row) for row in rows])
    for reason in (Reason.MIG_START, Reason.GPU_SHARED):
        if (masks == reason.mask).any() and not (masks == 0).any():
            return reason
    if any(each.shape.shares_gpu for each in kind.pod_sets):
        return Reason.GPU_SHAPE
    return Reason.CAPACITY


def _no_pod_limits(cluster: Cluster) -> Hold:
    """A hold of less than nothing: nodes may have any number of pods."""
    amounts = np.zeros((len(cluster.state.node_list), ON_NODE + cluster.state.nodes.gpu_free.shape[1]), np.int64)
    amounts[:, FREE_PODS] = -NO_LIMIT
    return Hold(np.arange(len(amounts)), amounts)


def _scarce_host(cluster: Cluster, kind: GangKind, flavor: str) -> Reason:
    """Of pods without GPUs: whether CPU or memory is short, where neither alone makes the difference."""
    masks = np.concatenate([cluster.placer.refusals(row) for row in cluster.pods_of(kind, flavor)[0].tolist()])
    return Reason.MEMORY_FREE if _any(masks, Reason.MEMORY_FREE).sum() > _any(masks, Reason.CPU_FREE).sum() else (
        Reason.CPU_FREE if _any(masks, Reason.CPU_FREE).any() else Reason.CAPACITY
    )  # fmt: skip


def free_milli(cluster: Cluster, rows: Sequence[int]) -> int:
    """GPU (milli) free on the nodes that some pod of these shapes could use if nothing ran."""
    could = np.zeros(len(cluster.state.node_list), np.bool_)
    hopeless = sum(reason.mask for reason in (*_STATIC, Reason.GPU_COUNT))
    for row in rows:
        could |= cluster.placer.refusals(row) & hopeless == 0
    return int(cluster.state.nodes.gpu_free[could].sum())
