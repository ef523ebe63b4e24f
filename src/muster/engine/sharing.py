"""How GPUs are shared: whose share may stand beside whose, what MIG instances a GPU offers, and what they cost.

A GPU is in one of four ways in use: by one pod that takes it whole; by shares of one *owner*, which is a tenant and a
sharing mode; by MIG instances; or by nobody. Shares of two owners never meet on one GPU: nothing keeps the processes of
MPS, time-slicing and soft fractions from each other's memory and faults. MIG instances are walls, so anybody's may
stand side by side, at starts that the hardware allows. What a GPU is used as ends with its last pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.catalog.mig import MIG_TABLES, MigTable
from muster.catalog.mig_layouts import check_layout
from muster.catalog.mig_placements import MOST_PLACEMENTS, MigPlacement, mig_placements, table_number, table_of
from muster.errors import InputError
from muster.kernels import ON_NODE, Ints
from muster.model.fleet import WHOLE_GPU_MILLI, Device, Node
from muster.model.queue import Queue
from muster.model.workload import PodSet, PodShape
from muster.policy.sharing import ANYBODY, FIRST_OWNER, MIG, NO_SHARER, OWNER_SHIFT, SLICE_SHIFT, TABLE_SHIFT


class Owners:
    """Numbers for the owners of shares, in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {("", ""): ANYBODY}

    def copy(self) -> Owners:
        """An independent copy."""
        twin = Owners()
        twin._numbers.update(self._numbers)
        return twin

    def number(self, shape: PodShape) -> int:
        """The owner of what a pod of the shape takes."""
        if not shape.gpus or (shape.gpu_milli == WHOLE_GPU_MILLI and not shape.mig_profile):
            return NO_SHARER
        if shape.mig_profile:
            if shape.gpus != 1:
                raise InputError(f"a pod takes one MIG instance, not {shape.gpus}", field="mig_profile")
            return MIG
        return self._numbers.setdefault((shape.tenant, shape.sharing), FIRST_OWNER + len(self._numbers) - 1)


def queue_tenants(queues: Iterable[Queue]) -> dict[str, str]:
    """The tenant of each queue that has one: its own, or that of the nearest queue above it."""
    by_name = {queue.name: queue for queue in queues}
    found: dict[str, str] = {}
    for name in by_name:
        at, seen = name, set[str]()
        while at in by_name and not by_name[at].tenant and at not in seen:
            seen.add(at)
            at = by_name[at].parent
        if at in by_name and by_name[at].tenant:
            found[name] = by_name[at].tenant
    return found


@lru_cache(maxsize=4096)
def with_tenant(pod_sets: tuple[PodSet, ...], tenant: str) -> tuple[PodSet, ...]:
    """Pod sets with the tenant of their queue, where they name none and it makes a difference."""
    if not tenant or not any(each.shape.shares_gpu and not each.shape.tenant for each in pod_sets):
        return pod_sets
    return tuple(
        replace(each, shape=replace(each.shape, tenant=tenant))
        if each.shape.shares_gpu and not each.shape.tenant
        else each
        for each in pod_sets
    )


@lru_cache(maxsize=4096)
def without_tenants(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """Pod sets that share with everybody."""
    if not any(each.shape.tenant for each in pod_sets):
        return pod_sets
    return tuple(replace(each, shape=replace(each.shape, tenant="")) for each in pod_sets)


# -- MIG --------------------------------------------------------------------------------------------------------------


def fleet_tables(nodes: Sequence[Node]) -> tuple[MigTable, ...]:
    """The MIG tables of the GPU models of some nodes."""
    models = sorted({device.model for node in nodes for device in node.devices})
    found = {table_number(table): table for table in map(_table_of, models) if table is not None}
    return tuple(found[number] for number in sorted(found))


@cache
def _table_of(model: str) -> MigTable | None:
    return table_of(model)


def layouts() -> Ints:
    """`ShapeArrays.layouts`: of profiles that differ in media engines only, one counts."""
    table = np.zeros((1 + len(MIG_TABLES), MOST_PLACEMENTS), np.int64)
    for number, each in enumerate(MIG_TABLES, 1):
        for index, place in enumerate(mig_placements(each)):
            if not place.variant:
                size = place.memory_slices.bit_length() - 1
                table[number, index] = size << SLICE_SHIFT | place.mask
    return table


def instances(profile: str, tables: Iterable[MigTable]) -> list[tuple[MigPlacement, int]]:
    """All ways to place a profile on the GPUs of some tables, each with its bit as in a GPU's ``OFFER``."""
    found: list[tuple[MigPlacement, int]] = []
    for table in tables:
        number, name = table_number(table) << TABLE_SHIFT, _profile_name(table, profile)
        for index, place in enumerate(mig_placements(table)):
            if place.profile == name:
                found.append((place, number | 1 << index))
    return found


def _profile_name(table: MigTable, profile: str) -> str:
    try:
        return table.profile(profile).name
    except InputError:
        return ""


def offered(node: Node, device: Device) -> int:
    """What a device offers, as in a GPU's ``OFFER``: every placement, or those that are carved; 0: no MIG.

    Raises:
        InputError: it is carved into instances that it cannot have.
    """
    table = _table_of(device.model) if node.sharing in ("", "mig") and device.healthy else None
    if table is None:
        if device.mig_profiles and device.healthy:
            why = f"is shared by {node.sharing}" if node.sharing not in ("", "mig") else "cannot be split by MIG"
            what = f"node {node.name}: GPU {device.index} ({device.model}) has MIG instances, but {why}"
            raise InputError(what, field="mig_profiles")
        return 0
    bits = (1 << len(mig_placements(table))) - 1
    if device.mig_profiles:
        bits = 0
        for place, bit in carved(table, device):
            bits |= bit if place else 0
    return table_number(table) << TABLE_SHIFT | bits


def carved(table: MigTable, device: Device) -> list[tuple[MigPlacement, int]]:
    """The instances that a device is carved into, with their bits; raises `InputError` where they cannot be."""
    layout = check_layout(table.gpus[0], device.mig_profiles)
    places = {(place.profile, place.start): (place, 1 << at) for at, place in enumerate(mig_placements(table))}
    return [places[each] for each in layout]


def device_milli(device: Device) -> int:
    """What of a device may be given out: all, or the slices of the instances that it is carved into."""
    if not device.healthy:
        return 0
    table = _table_of(device.model) if device.mig_profiles else None
    if table is None:
        return WHOLE_GPU_MILLI
    return sum(place.gpu_milli for place, _ in carved(table, device))


def first_use(device: Device) -> int:
    """``USE`` of a device without pods: one that is carved is never anybody's but MIG pods'."""
    return MIG << OWNER_SHIFT | 1 if device.mig_profiles and device.healthy else 0


# -- what no change of load can lift ----------------------------------------------------------------------------------


class GpuUse(Struct, frozen=True):
    """How a pod uses GPUs: ``whole``, as a MIG instance, or as a share in some mode."""

    whole: bool = False
    mig_profile: str = ""
    sharing: str = ""

    @staticmethod
    def of(shape: PodShape) -> GpuUse | None:
        """That of a shape; None for a pod without GPUs."""
        if not shape.gpus:
            return None
        whole = shape.gpu_milli == WHOLE_GPU_MILLI and not shape.mig_profile
        return GpuUse(whole, shape.mig_profile, "" if whole or shape.mig_profile else shape.sharing)


def mode_refused(node: Node, use: GpuUse) -> bool:
    """Whether no GPU of the node may ever be shared as the pod asks for."""
    healthy = [device for device in node.devices if device.healthy]
    if not healthy:
        return False
    if use.mig_profile:
        return not any(_offers(node, device, use.mig_profile) for device in healthy)
    if all(device.mig_profiles for device in healthy):
        return True
    if use.whole:
        return node.sharing in ("mig", "mps", "time-slicing")
    return node.sharing in ("none", "mig") or node.sharing not in ("", use.sharing or node.sharing)


def _offers(node: Node, device: Device, profile: str) -> bool:
    table = _table_of(device.model)
    bits = offered(node, device)
    return table is not None and any(bit & bits & (1 << TABLE_SHIFT) - 1 for _, bit in instances(profile, [table]))


# -- reserved starts --------------------------------------------------------------------------------------------------


def keep_whole(amounts: Ints) -> None:
    """Where shares have owners, a GPU of which something is kept is kept whole: else another owner could begin there.

    ``amounts`` has a row a node: CPU, memory and pods, then each device; changed in place. As with any hold, nothing is
    kept that is not free.
    """
    devices = amounts[:, ON_NODE:]
    devices[devices > 0] = np.maximum(devices[devices > 0], WHOLE_GPU_MILLI)
