"""Objects of Kubernetes in a short form, for tests."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from muster.kube.kinds import STRUCTS
from muster.kube.translate import Options, Translation, Translator
from muster.kube.world import World

NOW_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""


def node(name: str, gpus: int = 8, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node of 96 CPUs and so many H100."""
    sizes: dict[str, Any] = {"cpu": "96", "memory": "1Ti", "pods": "110"}
    told = {"kubernetes.io/hostname": name}
    if gpus:
        sizes["nvidia.com/gpu"] = str(gpus)
        told |= {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": told | (labels or {})},
        "spec": spec,
        "status": {"allocatable": sizes, "capacity": sizes},
    }


def pod(name: str, gpus: int = 0, on: str | None = None, **more: Any) -> dict[str, Any]:
    """A pod in namespace ``ns``; ``labels``, ``annotations``, ``owner`` (``Kind/name``), ``spec`` and ``status``."""
    limits: dict[str, Any] = {"cpu": "1", "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": "2025-12-31T23:00:00Z",
    }
    for key in ("labels", "annotations"):
        if more.get(key):
            meta[key] = more[key]
    if more.get("owner"):
        kind, _, owner = more["owner"].partition("/")
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": kind, "name": owner, "uid": owner, "controller": True}]
    meta |= more.get("metadata", {})
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    if on:
        spec["nodeName"] = on
    status = {"phase": "Running" if on else "Pending"} | ({"startTime": "2025-12-31T23:30:00Z"} if on else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec | more.get("spec", {}),
        "status": status | more.get("status", {}),
    }


def thing(text: str) -> dict[str, Any]:
    """An object written as YAML."""
    return yaml.safe_load(text)


def world(*objects: dict[str, Any]) -> World:
    """A world of these objects, and no others, of all kinds that are read."""
    found = World()
    for kind, struct in STRUCTS.items():
        mine = [
            each
            for each in objects
            if each["kind"] == kind.kind and (each["apiVersion"].rpartition("/")[0] == kind.group)
        ]
        found.put_all(kind, [msgspec.convert(each, struct) for each in mine])
    return found


def translated(*objects: dict[str, Any], **options: Any) -> Translation:
    """The translation of these objects."""
    return Translator(world(*objects), options=Options(**options)).translate(NOW_S)
