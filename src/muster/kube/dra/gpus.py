"""The GPUs behind the devices that drivers publish: whole ones, and MIG instances with their places.

A GPU may be published as one device, as the MIG instances that it is carved into, or as both and all instances that it
could be carved into; these then divide the counters of one set. Devices of one counter set, or of one parent, are one
GPU. Passthrough devices (type ``vfio``) are GPUs in another guise and are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field

from muster.catalog.mig import MigTable
from muster.catalog.mig_layouts import check_layout
from muster.catalog.mig_placements import table_of
from muster.errors import InputError
from muster.kube.dra.objects import NANO, NO_SCHEDULE, nanos
from muster.kube.dra.pools import DeviceKey, Offered, Pool
from muster.model.fleet import Device

WHOLE, INSTANCE, PASSTHROUGH = "gpu", "mig", "vfio"
_SLICE = re.compile(r"memory-?slice-?([0-9]+)", re.IGNORECASE)
_START = re.compile(r"-mig-[0-9]+-([0-9]+)-[0-9]+$|-mig-.*-([0-9]+)$")
"""A start at the end of a name: ``gpu-0-mig-19-4-1`` (profile id, start, size), ``gpu-0-mig-1g10gb-19-4``."""


class Gpu(Struct, eq=False):
    """A GPU and the devices that it is published as, each with the MIG profile and start that it stands for.

    ``shared``: several claims may have a share of it.
    """

    device: Device
    devices: dict[DeviceKey, tuple[str, int]] = field(default_factory=dict[DeviceKey, tuple[str, int]])
    shared: bool = False


def is_gpu_driver(driver: str) -> bool:
    """Whether a driver's devices are GPUs: ``gpu.nvidia.com``, ``gpu.amd.com`` and the like."""
    return driver.startswith("gpu.")


def text_of(device: Offered, name: str) -> str:
    """An attribute of the driver's own domain as text; empty where there is none."""
    found = device.device.attribute(f"{device.driver}/{name}", device.driver)
    return "" if found is None or found.value is None else str(found.value[1])


def kind_of(device: Offered) -> str:
    """``gpu``, ``mig`` or ``vfio``; of drivers that do not say, every device is a whole GPU."""
    kind = text_of(device, "type")
    return kind if kind in (INSTANCE, PASSTHROUGH) else WHOLE


def model_of(device: Offered) -> str:
    """The product's name as GPU Feature Discovery writes it into labels: ``NVIDIA-H100-80GB-HBM3``."""
    return text_of(device, "productName").replace(" ", "-") or device.driver


def memory_of(device: Offered) -> int:
    """Memory in bytes; 0 where the driver does not say."""
    found = (device.device.capacity or {}).get("memory") or (device.device.capacity or {}).get(
        f"{device.driver}/memory"
    )
    try:
        return nanos(found.value) // NANO if found else 0
    except ValueError:
        return 0


def closed(device: Offered) -> bool:
    """Whether a taint keeps claims off it that do not bear it."""
    return any(taint.effect in NO_SCHEDULE for taint in device.taints)


def gpus_of(
    pools: Sequence[Pool], taken: frozenset[DeviceKey] = frozenset()
) -> tuple[list[Gpu], list[tuple[str, str]]]:
    """The GPUs of a node in the order of their numbers, and what is not understood, as (device, text).

    ``taken``: devices that are given out to nobody that runs; they count as not healthy.
    """
    groups: dict[tuple[str, str], list[Offered]] = {}
    for device in (device for pool in pools if pool.usable and is_gpu_driver(pool.driver) for device in pool.devices):
        if kind_of(device) != PASSTHROUGH:
            groups.setdefault((device.pool, _gpu_name(device)), []).append(device)
    found: list[Gpu] = []
    notes: list[tuple[str, str]] = []
    for devices in sorted(groups.values(), key=lambda each: _natural(each[0].device.name)):
        found.append(_gpu(len(found), devices, taken, notes))
    return found, notes


def _gpu_name(device: Offered) -> str:
    if device.counters:
        return f"set {device.counters[0][0][0]}"
    uuid = text_of(device, "parentUUID" if kind_of(device) == INSTANCE else "uuid")
    return f"uuid {uuid}" if uuid else f"device {device.device.name}"


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _gpu(index: int, devices: list[Offered], taken: frozenset[DeviceKey], notes: list[tuple[str, str]]) -> Gpu:
    whole = next((device for device in devices if kind_of(device) == WHOLE), None)
    instances = [device for device in devices if kind_of(device) == INSTANCE]
    model = model_of(whole or devices[0])
    gone = {device.key for device in devices if closed(device) or device.key in taken}
    if whole is not None:
        known = {whole.key: ("", -1)} | {one.key: (text_of(one, "profile"), _start(one)) for one in instances}
        # what is given out of its instances to nobody that runs cannot be told: none of it is given out then
        healthy = whole.key not in gone and not any(device.key in taken for device in devices)
        return Gpu(Device(index, model, memory_of(whole), healthy=healthy), known, whole.shared)
    carved = {one.key: (text_of(one, "profile"), _start(one)) for one in instances}
    table = table_of(model)
    placed = _placed(table, carved) if table is not None else {}
    if not placed:
        why = f"{len(instances)} MIG instances of {model} are in places that are not known: they are left out"
        notes.append((devices[0].device.name, why))
        return Gpu(Device(index, model, healthy=False), carved)
    open_ = tuple(sorted((place for key, place in placed.items() if key not in gone), key=lambda place: place[1]))
    return Gpu(Device(index, model, mig_profiles=open_, healthy=bool(open_)), placed)


def _placed(table: MigTable, carved: dict[DeviceKey, tuple[str, int]]) -> dict[DeviceKey, tuple[str, int]]:
    """Instances with profiles as the catalog names them, and starts; those without one get some that are possible."""
    try:
        named = {key: (table.profile(profile).name, start) for key, (profile, start) in carved.items()}
        if any(start < 0 for _, start in named.values()):
            named = _arranged(table, named)
        check_layout(table.gpus[0], tuple(named.values()))
    except InputError:
        return {}
    return named


def _arranged(table: MigTable, named: dict[DeviceKey, tuple[str, int]]) -> dict[DeviceKey, tuple[str, int]]:
    """Starts for all instances so that none overlap, the largest first; raises `InputError` where there are none."""
    order = sorted(named, key=lambda key: (-table.profile(named[key][0]).memory_slices, key))
    found: dict[DeviceKey, tuple[str, int]] = {}

    def place(at: int, used: int) -> bool:
        if at == len(order):
            return True
        profile = table.profile(named[order[at]][0])
        for start in reversed(profile.starts):
            mask = ((1 << profile.memory_slices) - 1) << start
            if not mask & used:
                found[order[at]] = profile.name, start
                if place(at + 1, used | mask):
                    return True
        return False

    if not place(0, 0):
        raise InputError("these MIG instances do not fit on one GPU")
    return {key: found[key] for key in named}


def _start(device: Offered) -> int:
    """The memory slice at which an instance starts: by its counters, its capacities, or its name; -1: not told."""
    named = [name for (_, name), amount in device.counters if amount] or list(device.device.capacity or {})
    slices = [int(match[1]) for match in map(_SLICE.search, named) if match]
    if slices:
        return min(slices)
    match = _START.search(device.device.name)
    return int(match[1] or match[2]) if match else -1
