"""DRA objects in few words, decoded as those of an API server are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import convert

from muster.kube.dra.allocate import Devices
from muster.kube.dra.amounts import Allocated
from muster.kube.dra.objects import DraAllocation, KubeClass, KubeDraClaim, KubeSlice, KubeTaintRule
from muster.kube.dra.pools import Inventory, Place

DRIVER = "gpu.nvidia.com"
GPU_CLASS = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
MIG_CLASS = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"
N1 = Place("n1", {"zone": "a"})


def attributes(**values: Any) -> dict[str, Any]:
    """Attributes by name; ``__`` stands for the slash after a domain, ``_dot_`` for a dot."""
    kinds = {bool: "bool", int: "int", str: "string"}
    return {
        name.replace("__", "/").replace("_dot_", "."): value if isinstance(value, dict) else {kinds[type(value)]: value}
        for name, value in values.items()
    }


def gpu(name: str, *, memory: str = "80Gi", taints: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A whole GPU."""
    known = {"type": "gpu", "productName": "NVIDIA H100 80GB HBM3", "cudaComputeCapability": {"version": "9.0.0"}}
    fields = {"name": name, "attributes": attributes(**{**known, **more}), "capacity": {"memory": {"value": memory}}}
    return fields | ({"taints": [taint(each) for each in taints]} if taints else {})


def taint(text: str) -> dict[str, str]:
    """``key=value:effect``."""
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    return {"key": key, "value": value, "effect": effect}


def slice_of(
    name: str, devices: Iterable[Any], *, node: str | None = "n1", pool: str = "", driver: str = DRIVER, **more: Any
) -> KubeSlice:
    """A slice of a pool, by default all of one that is named after its node; ``more`` goes into pool or spec."""
    at = {key: more.pop(key) for key in ("generation", "resourceSliceCount") if key in more}
    whole = {"name": pool or node or name, "generation": 1, "resourceSliceCount": 1, **at}
    spec: dict[str, Any] = {"driver": driver, "pool": whole, "devices": list(devices), **more}
    if node:
        spec["nodeName"] = node
    return convert({"metadata": {"name": name}, "spec": spec}, KubeSlice)


def device_class(name: str, *expressions: str, **more: Any) -> KubeClass:
    """A device class."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return convert({"metadata": {"name": name}, "spec": {"selectors": selectors, **more}}, KubeClass)


CLASSES = (device_class("gpu.nvidia.com", GPU_CLASS), device_class("mig.nvidia.com", MIG_CLASS), device_class("any"))


def asks(
    name: str = "gpus", count: int = 1, klass: str = "gpu.nvidia.com", *select: str, **more: Any
) -> dict[str, Any]:
    """What a request asks for; ``alternatives`` makes a prioritized list of it."""
    if "alternatives" in more:
        return {
            "name": name,
            "firstAvailable": [one["exactly"] | {"name": one["name"]} for one in more["alternatives"]],
        }
    exactly: dict[str, Any] = {"deviceClassName": klass, **more}
    if more.get("allocationMode") != "All":
        exactly["count"] = count
    if select:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in select]
    return {"name": name, "exactly": exactly}


def claim(name: str, *requests: dict[str, Any], constraints: Sequence[Any] = (), **more: Any) -> KubeDraClaim:
    """A claim; ``given`` has the devices that it was given, ``POOL/DEVICE``, alone."""
    given: Sequence[str] = more.pop("given", ())
    spec = {"devices": {"requests": list(requests), "constraints": list(constraints), **more}}
    found = convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, KubeDraClaim)
    if given:
        results = [
            {"request": "gpus", "driver": DRIVER, "pool": each.partition("/")[0], "device": each.partition("/")[2]}
            for each in given
        ]
        found.status.allocation = convert({"devices": {"results": results}}, DraAllocation)
    return found


def devices(
    slices: Iterable[KubeSlice], held: Iterable[KubeDraClaim] = (), *, rules: Iterable[Any] = (), classes: Any = CLASSES
) -> Devices:
    """All of it together."""
    taint_rules = [
        convert({"metadata": {"name": f"rule-{number}"}, "spec": each}, KubeTaintRule)
        for number, each in enumerate(rules)
    ]
    by_name = {each.metadata.name: each for each in classes}
    return Devices(Inventory(slices, taint_rules), by_name, Allocated(held))


def names(allocation: DraAllocation) -> list[str]:
    """``REQUEST:DEVICE`` of each result."""
    return [f"{one.request}:{one.device}" for one in allocation.devices.results]
