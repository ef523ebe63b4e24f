"""What a workload would ask with DRA, as Kubernetes objects: a claim template, and what its pods say of it."""

from __future__ import annotations

import re
from typing import Any

from muster.answers.dra.check import BLOCKED, CLAIMS, Asking
from muster.answers.dra.ways import FEATURE_LABELS, INSTANCE
from muster.errors import InputError

GPU_CLASS, MIG_CLASS, AMD_CLASS = "gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com"
_NUMBERS = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor", "nvidia.com/cuda.driver.major",
            "nvidia.com/cuda.driver-version.major")  # fmt: skip
_NO_NAME = re.compile(r"[^a-z0-9-]+")


def template_objects(asking: Asking) -> tuple[list[dict[str, Any]], list[str]]:
    """The claim template of a workload, the class that would leave its pods as they are, and what to say of them.

    Raises:
        InputError: it cannot be moved as it is, or asks by claims already.
    """
    way = asking.way
    if asking.change == BLOCKED:
        raise InputError(f"{asking.workload} asks for {asking.today}: {asking.why}", hint="it stays as it is for now")
    if way.kind == CLAIMS:
        raise InputError(f"{asking.workload} asks by claims already", hint="nothing is to be done")
    namespace, _, owner = asking.workload.partition("/")
    klass = MIG_CLASS if way.kind == INSTANCE else AMD_CLASS if way.resource.startswith("amd") else GPU_CLASS
    selectors = [f"device.attributes['{GPU_CLASS}'].profile == '{way.profile}'"] if way.kind == INSTANCE else []
    kept: list[str] = []
    for label, values in way.labels:
        expression = _expression(label, values)
        (selectors if expression else kept).append(expression or label)
    exactly: dict[str, Any] = {"deviceClassName": klass, "count": way.count}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    name = _NO_NAME.sub("-", f"{owner.lower()}-gpus").strip("-")
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}},
    }
    says = [
        "in the pods' spec:",
        f"  resourceClaims: [{{name: gpus, resourceClaimTemplateName: {name}}}]",
        "in each container that uses the GPUs, in the place of " + way.resource + ":",
        "  resources: {claims: [{name: gpus}]}",
    ]
    if way.labels:
        moved = [label for label, _ in way.labels if label not in kept]
        if moved:
            says.append(f"the claim selects by itself what the pods select nodes for: {', '.join(moved)}")
        if kept:
            says.append(f"stays a selector of nodes, as no attribute says it: {', '.join(kept)}")
    return [template], says


def class_object(asking: Asking) -> dict[str, Any]:
    """The device class with which the pods of a workload may stay as they are (Kubernetes 1.36 and newer)."""
    way = asking.way
    driver = AMD_CLASS if way.resource.startswith("amd") else GPU_CLASS
    kind = "mig" if way.kind == INSTANCE else "gpu"
    expression = f"device.driver == '{driver}'"
    if driver == GPU_CLASS:
        expression += f" && device.attributes['{GPU_CLASS}'].type == '{kind}'"
    if way.profile:
        expression += f" && device.attributes['{GPU_CLASS}'].profile == '{way.profile}'"
    name = _NO_NAME.sub("-", way.resource.lower().replace("/", "-").replace(".", "-")).strip("-")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"extendedResourceName": way.resource, "selectors": [{"cel": {"expression": expression}}]},
    }


def _expression(label: str, values: tuple[str, ...]) -> str:
    """The same of a device as a label says of its node; empty where no attribute does."""
    where = FEATURE_LABELS.get(label, "")
    if not where or not values:
        return ""
    if label in _NUMBERS:
        return f"{where} == {values[0]}" if len(values) == 1 else f"{where} in [{', '.join(values)}]"
    if label.endswith(".memory"):  # the label has MiB
        each = [f"{where}.compareTo(quantity('{value}Mi')) == 0" for value in values]
        return " || ".join(each)
    # the label has dashes where the product's name has blanks
    each = [f"{where}.lowerAscii().replace(' ', '-') == '{value.lower()}'" for value in values]
    return " || ".join(each)
