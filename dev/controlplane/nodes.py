"""Fake GPU nodes that look like real ones: what kubelet, device plugin, GPU Feature Discovery and a cloud would write.

Labels and amounts are those that `kubectl get node -o json` shows on such machines; kwok then plays their kubelets.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from controlplane.errors import ClusterError

DRIVER = "gpu.nvidia.com"
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
GPU_DRIVER, CUDA = (580, 95, 5), (13, 0)
ADVERTISED = ("plugin", "dra", "both", "none")


@dataclass(frozen=True, slots=True)
class Model:
    """What GPU Feature Discovery and the DRA driver say of a GPU model."""

    product: str
    memory_mib: int
    family: str
    compute: str
    cpu: int
    """CPUs of the usual machine with eight of them (four for GB200)."""
    memory_gib: int
    per_clique: int = 0
    """GPUs that share one NVLink domain over several nodes; 0: the domain ends at the node."""


MODELS = {
    "T4": Model("Tesla-T4", 15360, "turing", "7.5", 96, 384),
    "A100": Model("NVIDIA-A100-SXM4-80GB", 81920, "ampere", "8.0", 128, 1024),
    "L4": Model("NVIDIA-L4", 23034, "ada-lovelace", "8.9", 96, 384),
    "L40S": Model("NVIDIA-L40S", 46068, "ada-lovelace", "8.9", 128, 768),
    "H100": Model("NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0", 192, 2048),
    "H200": Model("NVIDIA-H200", 143771, "hopper", "9.0", 192, 2048),
    "B200": Model("NVIDIA-B200", 183359, "blackwell", "10.0", 224, 2048),
    "GB200": Model("NVIDIA-GB200", 189471, "blackwell", "10.0", 144, 960, 72),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes of one kind. Racks are filled in order of the nodes' numbers, blocks and zones in order of the racks."""

    count: int = 20
    gpus: int = 8
    model: str = "H100"
    per_rack: int = 4
    blocks: int = 1
    zones: int = 1
    prefix: str = "gpu"
    advertise: str = "plugin"
    """By what GPUs are advertised: the device plugin (``nvidia.com/gpu``), DRA (ResourceSlices), both or neither."""

    def __post_init__(self) -> None:
        if self.gpus and self.model not in MODELS:
            raise ClusterError(f"there is no GPU model '{self.model}'; there are {', '.join(MODELS)}")
        if self.advertise not in ADVERTISED:
            raise ClusterError(f"GPUs are advertised by {', '.join(ADVERTISED)}, not by '{self.advertise}'")
        if min(self.count, self.gpus) < 0 or min(self.per_rack, self.blocks, self.zones) < 1:
            raise ClusterError("nodes and GPUs are 0 or more, nodes a rack, blocks and zones 1 or more")
        if not self.zones <= self.blocks <= max(1, -(-self.count // self.per_rack)):
            racks = -(-self.count // self.per_rack)
            raise ClusterError(
                f"{self.count} nodes, {self.per_rack} a rack, make {racks} racks, which {self.blocks} blocks in "
                f"{self.zones} zones cannot share; zones <= blocks <= racks"
            )


def nodes(shape: Shape, version: str) -> Iterator[dict[str, Any]]:
    """The Node objects of a shape; ``version`` is what their kubelets say they are, such as ``v1.37.2``."""
    width = max(3, len(str(shape.count)))
    for number in range(shape.count):
        yield _node(shape, number, f"{shape.prefix}-{number + 1:0{width}d}", version)


def _node(shape: Shape, number: int, name: str, version: str) -> dict[str, Any]:
    model = MODELS.get(shape.model, MODELS["H100"])
    cpu, memory_gib = (model.cpu, model.memory_gib) if shape.gpus else (64, 256)
    amounts = {"cpu": cpu, "memory": f"{memory_gib}Gi", "ephemeral-storage": "3500Gi", "pods": 110}
    amounts |= {"hugepages-1Gi": "0", "hugepages-2Mi": "0"}
    # what kubelet keeps for itself and the system
    free = amounts | {"cpu": cpu - 2, "memory": f"{memory_gib - 16}Gi", "ephemeral-storage": "3200Gi"}
    if shape.gpus and shape.advertise in ("plugin", "both"):
        amounts["nvidia.com/gpu"] = free["nvidia.com/gpu"] = shape.gpus
    labels = _place_labels(shape, number, name) | (_gpu_labels(shape, model, number) if shape.gpus else {})
    architecture = labels["kubernetes.io/arch"]
    info = {"architecture": architecture, "operatingSystem": "linux", "kubeletVersion": version, "bootID": "",
            "containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "6.8.0-79-generic", "machineID": "",
            "kubeProxyVersion": version, "osImage": "Ubuntu 24.04.3 LTS", "systemUUID": ""}  # fmt: skip
    high, low = divmod(number, 250)
    address = [{"type": "InternalIP", "address": f"10.1.{high}.{low + 1}"}, {"type": "Hostname", "address": name}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        "spec": {"providerID": f"fake:///{labels['topology.kubernetes.io/zone']}/{name}"},
        "status": {
            "capacity": {k: str(v) for k, v in amounts.items()},
            "allocatable": {k: str(v) for k, v in free.items()},
            "addresses": address,
            "nodeInfo": info,
        },
    }


def _place_labels(shape: Shape, number: int, name: str) -> dict[str, str]:
    racks = -(-shape.count // shape.per_rack)
    rack = number // shape.per_rack
    block = rack * shape.blocks // racks
    zone = block * shape.zones // shape.blocks
    kind = f"{shape.model.lower()}-{shape.gpus}g" if shape.gpus else "cpu-64"
    return {
        "kubernetes.io/arch": "arm64" if shape.gpus and shape.model == "GB200" else "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": f"region-1{chr(ord('a') + zone % 26)}",
        BLOCK: f"block-{block + 1}",
        RACK: f"rack-{rack + 1}",
    }


def _gpu_labels(shape: Shape, model: Model, number: int) -> dict[str, str]:
    major, minor = model.compute.split(".")
    labels = {
        "present": "true",
        "product": model.product,
        "count": str(shape.gpus),
        "memory": str(model.memory_mib),
        "family": model.family,
        "compute.major": major,
        "compute.minor": minor,
        "replicas": "1",
        "sharing-strategy": "none",
        "mode": "compute",
    }
    found = {f"nvidia.com/gpu.{key}": value for key, value in labels.items()}
    found |= {
        "nvidia.com/mig.capable": "true" if int(major) >= 8 and model.family != "ada-lovelace" else "false",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/cuda.driver-version.full": ".".join(f"{part:02d}" for part in GPU_DRIVER),
        "nvidia.com/cuda.driver-version.major": str(GPU_DRIVER[0]),
        "nvidia.com/cuda.driver-version.minor": str(GPU_DRIVER[1]),
        "nvidia.com/cuda.runtime-version.major": str(CUDA[0]),
        "nvidia.com/cuda.runtime-version.minor": str(CUDA[1]),
    }
    if model.per_clique:
        domain = number * shape.gpus // model.per_clique
        found["nvidia.com/gpu.clique"] = f"{uuid.uuid5(uuid.NAMESPACE_DNS, f'{shape.prefix}-{domain}')}.0"
    return found


def device_class() -> dict[str, Any]:
    """The DeviceClass that NVIDIA's DRA driver installs for whole GPUs."""
    cel = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": cel}}]},
    }


def resource_slice(node: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """The ResourceSlice that the DRA driver would publish for a node: one device a GPU."""
    name = node["metadata"]["name"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(name, number, shape) for number in range(shape.gpus)],
        },
    }


def _device(node: str, number: int, shape: Shape) -> dict[str, Any]:
    model = MODELS[shape.model]
    root = number // 2  # two GPUs share a PCIe root port, half of them a NUMA node, as on an HGX board
    text = {
        "type": "gpu",
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}-{number}')}",
        "productName": model.product.replace("-", " ") if shape.model != "A100" else "NVIDIA A100-SXM4-80GB",
        "brand": "Nvidia",
        "architecture": model.family.title().replace("-", " "),
        "resource.kubernetes.io/pciBusID": f"0000:{0x10 + number * 0x10:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{0x10 + root * 0x20:02x}",
    }
    versions = {
        "cudaComputeCapability": f"{model.compute}.0",
        "driverVersion": ".".join(str(p) for p in GPU_DRIVER),
        "cudaDriverVersion": f"{CUDA[0]}.{CUDA[1]}.0",
    }
    attributes: dict[str, Any] = {key: {"string": value} for key, value in text.items()}
    attributes |= {key: {"version": value} for key, value in versions.items()}
    attributes["resource.kubernetes.io/numaNode"] = {"int": number * 2 // max(shape.gpus, 1)}
    return {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": f"{model.memory_mib}Mi"}},
    }
