"""Parts of GPUs that a pod asks for: MIG instances, replicas, and shares that a scheduler counts (KAI, HAMi, Volcano).

Names: NVIDIA/k8s-device-plugin, kai-scheduler pkg/common/constants, Project-HAMi/HAMi, volcano-sh/devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from muster.kube.gpus import MIG_PREFIX, SHARED
from muster.kube.objects import GPU_RESOURCES, Amount, PodSpec, pod_request
from muster.model.fleet import WHOLE_GPU_MILLI

GPU_FRACTION, GPU_FRACTION_DEVICES, GPU_MEMORY = "gpu-fraction", "gpu-fraction-num-devices", "gpu-memory"
PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")
DEVICES = re.compile(
    r"nvidia\.com/.*|amd\.com/.*|gpu\.intel\.com/.*|habana\.ai/.*|google\.com/tpu|aws\.amazon\.com/neuron.*"
    r"|hami\.io/.*|volcano\.sh/vgpu.*|koordinator\.sh/gpu.*|deviceclass\.resource\.kubernetes\.io/.*"
)
"""Resources that are GPUs or parts of them: one that is not known makes the answer wrong."""

VGPU_COUNT = ("hami.io/gpu", "volcano.sh/vgpu-number")
VGPU_MEMORY = ("nvidia.com/gpumem", "hami.io/gpumem", "volcano.sh/vgpu-memory")
VGPU_PERCENT = ("nvidia.com/gpumem-percentage", "hami.io/gpumem-percentage", "volcano.sh/vgpu-memory-percentage")
VGPU_CORES = ("nvidia.com/gpucores", "hami.io/gpucores", "volcano.sh/vgpu-cores")
IGNORED = ("nvidia.com/priority",)


class Parts(Struct):
    """What a pod asks for beside CPU, memory and whole GPUs.

    Attributes:
        mig: MIG profiles, as the resources name them, and how many instances of each.
        shared: replicas of shared GPUs.
        gpus: GPUs of which it takes a share; 0: none.
        by: the annotation that says so; empty: its resources do, and whole GPUs beside are the same ones.
        milli: the share of each, in thousandths; 0: told by ``memory_mib``.
        memory_mib: memory of each of them.
        cores_percent: compute of each of them.
        unknown: resources that are devices, and are not understood.
        others: further resources.
        wrong: annotations that make no sense.
    """

    mig: dict[str, int] = field(default_factory=dict[str, int])
    shared: int = 0
    gpus: int = 0
    by: str = ""
    milli: int = 0
    memory_mib: int = 0
    cores_percent: int = 0
    unknown: list[str] = field(default_factory=list[str])
    others: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])

    def share_milli(self, memory_bytes: int) -> int:
        """The share of a GPU of so much memory, in thousandths; 0 where it cannot be told."""
        if self.milli:
            return self.milli
        by_memory = -(-self.memory_mib * 2**20 * WHOLE_GPU_MILLI // memory_bytes) if memory_bytes else 0
        if self.memory_mib and not memory_bytes:
            return 0
        return min(WHOLE_GPU_MILLI, max(by_memory, self.cores_percent * 10))


def parts_of(spec: PodSpec, annotations: Mapping[str, str], amount: Amount) -> Parts:
    """The parts of GPUs that a pod asks for by its resources and annotations."""
    names: dict[str, None] = {}
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        if container.resources is not None:
            names.update(dict.fromkeys((*(container.resources.limits or ()), *(container.resources.requests or ()))))
    found = Parts()
    vgpu: dict[str, int] = {}
    for name in names:
        if name in GPU_RESOURCES or name in PLAIN or name in IGNORED or name.startswith("hugepages-"):
            continue
        count = pod_request(spec, name, 1, amount)
        if not count:
            continue
        if name.startswith(MIG_PREFIX):
            found.mig[name.removeprefix(MIG_PREFIX)] = count
        elif name == SHARED:
            found.shared = count
        elif name in (*VGPU_COUNT, *VGPU_MEMORY, *VGPU_PERCENT, *VGPU_CORES):
            vgpu[name] = count
        else:
            (found.unknown if DEVICES.fullmatch(name) else found.others).append(name)
    if vgpu:
        _virtual(found, spec, vgpu, amount)
    if annotations.get(GPU_FRACTION) or annotations.get(GPU_MEMORY):
        _fraction(found, annotations)
    return found


def _virtual(found: Parts, spec: PodSpec, vgpu: Mapping[str, int], amount: Amount) -> None:
    """Shares by HAMi or Volcano: so many GPUs, and of each so much memory and compute; all where none is told."""
    counts = [vgpu[name] for name in VGPU_COUNT if name in vgpu]
    found.gpus = sum(counts) or pod_request(spec, GPU_RESOURCES[0], 1, amount) or 1
    percent = max((vgpu[name] for name in VGPU_PERCENT if name in vgpu), default=0)
    found.memory_mib = max((vgpu[name] for name in VGPU_MEMORY if name in vgpu), default=0)
    found.cores_percent = min(100, max((vgpu[name] for name in VGPU_CORES if name in vgpu), default=0))
    if not found.memory_mib:
        found.milli = max(min(100, percent or 100), found.cores_percent) * 10


def _fraction(found: Parts, annotations: Mapping[str, str]) -> None:
    """Shares by KAI's annotations."""
    try:
        gpus = int(annotations.get(GPU_FRACTION_DEVICES) or "1")
    except ValueError:
        gpus = 0
    key = GPU_FRACTION if annotations.get(GPU_FRACTION) else GPU_MEMORY
    try:
        if key == GPU_FRACTION:
            found.milli = round(float(annotations[key]) * WHOLE_GPU_MILLI)
        else:
            found.memory_mib = int(annotations[key])
    except (ValueError, OverflowError):
        found.milli = found.memory_mib = 0
    if not 0 < gpus < 1024 or not (0 < found.milli < WHOLE_GPU_MILLI or found.memory_mib > 0):
        found.milli = found.memory_mib = 0
        found.wrong.append(key)
        return
    found.gpus, found.by = gpus, key
