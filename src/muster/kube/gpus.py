"""The GPUs of a node by what its device plugin advertises: whole, as replicas, as MIG instances, or HAMi's shares.

- ``nvidia.com/gpu`` counts whole GPUs; on a node whose labels say so (GPU Feature Discovery), replicas of shared ones
  (``nvidia.com/gpu.replicas``, product ``...-SHARED``) or MIG instances (strategy single, product ``...-MIG-PROFILE``).
- ``nvidia.com/gpu.shared`` counts replicas, ``nvidia.com/mig-PROFILE`` MIG instances (strategy mixed).
- Where HAMi is the device plugin, its annotation lists the GPUs; what it advertises is a multiple of them.

Names: NVIDIA/k8s-device-plugin and Project-HAMi/HAMi documentation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from muster.catalog.mig_layouts import can_add, check_layout
from muster.catalog.mig_placements import mig_milli, table_of
from muster.errors import InputError
from muster.kube.objects import GPU_RESOURCES, KubeNode, Quantity, first_of
from muster.model.fleet import WHOLE_GPU_MILLI, Device

MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
MEMORY_LABELS = ("nvidia.com/gpu.memory",)
REPLICAS_LABEL, STRATEGY_LABEL, COUNT_LABEL = (
    "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.count",
)  # fmt: skip
SHARED, MIG_PREFIX = "nvidia.com/gpu.shared", "nvidia.com/mig-"
HAMI_REGISTER = "hami.io/node-nvidia-register"
GPU = GPU_RESOURCES[0]

Amount = Callable[[str, bool], int]
"""``amount(resource, allocatable)``: how much of a resource a node has, of its allocatable or its capacity."""
Say = Callable[[str, str], None]
"""``say(field, text)`` notes something of the node."""


class GpuMode(Struct, frozen=True):
    """What one ``nvidia.com/gpu`` of a node is: a MIG instance, or a share of a GPU; by default a whole GPU."""

    mig_profile: str = ""
    milli: int = WHOLE_GPU_MILLI
    sharing: str = ""


WHOLE = GpuMode()


class NodeGpus(Struct, frozen=True):
    """The devices of a node, how they may be shared (`Node.sharing`), and what one ``nvidia.com/gpu`` there is."""

    devices: tuple[Device, ...] = ()
    sharing: str = ""
    mode: GpuMode = WHOLE


class _HamiGpu(Struct):
    """An entry of HAMi's annotation; memory in MiB."""

    type: str = ""
    devmem: int = 0
    health: bool = True


def profile_name(text: str) -> str:
    """A MIG profile as the catalog writes it: resources and labels have ``.me`` for ``+me``."""
    return f"{text[:-3]}+me" if text.endswith(".me") else text


def replicas_of(labels: Mapping[str, str]) -> int:
    """Into how many shares a node's labels say that a GPU is divided; 1: it is not."""
    told = labels.get(REPLICAS_LABEL, "1")
    return max(1, int(told)) if told.isascii() and told.isdigit() and len(told) < 6 else 1


def strategy_of(labels: Mapping[str, str]) -> str:
    """How a node's labels say that its GPUs are shared: ``time-slicing`` or ``mps``."""
    return "mps" if labels.get(STRATEGY_LABEL) == "mps" else "time-slicing"


def share_milli(labels: Mapping[str, str]) -> int:
    """What a replica is of a GPU, in thousandths."""
    return max(1, WHOLE_GPU_MILLI // replicas_of(labels))


def node_gpus(found: KubeNode, sizes: Mapping[str, Quantity], amount: Amount, say: Say) -> NodeGpus:
    """The GPUs of a node."""
    labels = found.metadata.labels or {}
    register = found.metadata.annotation(HAMI_REGISTER)
    if register:
        devices = _hami(register, say)
        if devices is not None:
            return NodeGpus(devices, "soft")
    product = first_of(labels, MODEL_LABELS)
    model, mig = product.removesuffix("-SHARED"), ""
    if "-MIG-" in model:
        model, _, mig = model.partition("-MIG-")
    memory = labels.get(MEMORY_LABELS[0], "")
    size = int(memory) * 2**20 if memory.isascii() and memory.isdigit() and len(memory) < 9 else 0
    size = 0 if mig else size  # it is that of an instance there
    instances = {
        profile_name(name.removeprefix(MIG_PREFIX)): amount(name, True) for name in sizes if name.startswith(MIG_PREFIX)
    }
    instances = {profile: count for profile, count in instances.items() if count}
    kept, whole = amount(GPU, True), max(amount(GPU, True), amount(GPU, False))
    if mig and whole:
        profile = profile_name(mig)
        devices = _carved(model, size, {profile: kept}, count_of(labels), say)
        return NodeGpus(devices, "mig", GpuMode(profile, mig_milli(profile, (model,)) or WHOLE_GPU_MILLI))
    shared = max(amount(SHARED, True), amount(SHARED, False))
    replicas = replicas_of(labels)
    if replicas > 1 and (shared or (product.endswith("-SHARED") and whole)):
        now = amount(SHARED, True) if shared else kept
        devices = _plain(model or "nvidia", size, -(-(shared or whole) // replicas), -(-now // replicas), 0)
        sharing = strategy_of(labels)
        mode = WHOLE if shared else GpuMode("", share_milli(labels), sharing)
        if shared and whole:
            say("status.capacity", "has whole GPUs beside shared ones: the whole ones are left out")
        return NodeGpus(devices, sharing, mode)
    devices = _plain(model or "nvidia", size, whole, kept, 0)
    for resource in GPU_RESOURCES[1:]:
        total = max(amount(resource, True), amount(resource, False))
        name = product or resource.partition(".")[0]
        devices = (*devices, *_plain(name, size, total, amount(resource, True), len(devices)))
    if instances:
        whole_too = len(devices)
        carved = _carved(model, size, instances, max(0, count_of(labels) - whole_too), say)
        devices = (*devices, *(msgspec.structs.replace(each, index=each.index + whole_too) for each in carved))
        return NodeGpus(devices, "mig" if not whole_too else "")
    return NodeGpus(devices, "soft" if devices else "")


def count_of(labels: Mapping[str, str]) -> int:
    """How many GPUs GPU Feature Discovery found on a node; 0: it does not say."""
    told = labels.get(COUNT_LABEL, "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 4 else 0


def _plain(model: str, size: int, total: int, healthy: int, first: int) -> tuple[Device, ...]:
    """GPUs of which the last are not healthy."""
    return tuple(Device(first + at, model, size, healthy=at < healthy) for at in range(total))


def _hami(register: str, say: Say) -> tuple[Device, ...] | None:
    try:
        found = msgspec.json.decode(register, type=list[_HamiGpu])
    except (msgspec.DecodeError, UnicodeDecodeError):
        say(f"metadata.annotations['{HAMI_REGISTER}']", "is not read: its GPUs are those of nvidia.com/gpu")
        return None
    return tuple(
        Device(at, each.type.removeprefix("NVIDIA-") or "nvidia", max(0, each.devmem) * 2**20, healthy=each.health)
        for at, each in enumerate(found)
    )


def _carved(model: str, size: int, instances: Mapping[str, int], gpus: int, say: Say) -> tuple[Device, ...]:
    """GPUs that hold these MIG instances: the API tells only how many there are in all."""
    layouts = carve(model, tuple(sorted(instances.items())), gpus)
    if layouts is None:
        profiles = ", ".join(instances)
        say("status.allocatable", f"no GPU {model or 'of an unknown model'} can hold MIG {profiles}: they are left out")
        return ()
    return tuple(Device(at, model, size, layout) for at, layout in enumerate(layouts))


@cache
def carve(
    model: str, instances: tuple[tuple[str, int], ...], gpus: int = 0
) -> tuple[tuple[tuple[str, int], ...], ...] | None:
    """Layouts of as many GPUs as hold these instances; None where the model has none of the profiles.

    All GPUs alike, if that is possible: on ``gpus`` of them where it is told, else on as few as can be. Otherwise the
    larger instances first, each on the first GPU with room.
    """
    if table_of(model) is None:
        return None
    counts = Counter(dict(instances))
    most = sum(counts.values())
    for number in [gpus] if gpus else range(1, most + 1):
        if all(count % number == 0 for count in counts.values()):
            layout = _layout(model, [profile for profile, count in instances for _ in range(count // number)])
            if layout is not None:
                return (layout,) * number
    layouts: list[list[tuple[str, int]]] = []
    for profile in _largest_first(model, [profile for profile, count in instances for _ in range(count)]):
        try:
            mine = next((each for each in layouts if can_add(model, each, profile)), None)
            if mine is None:
                mine = list[tuple[str, int]]()
                layouts.append(mine)
            mine.append((profile, can_add(model, mine, profile)[-1]))
        except (InputError, IndexError):
            return None
    return tuple(check_layout(model, each) for each in layouts)


def _largest_first(model: str, profiles: Sequence[str]) -> list[str]:
    return sorted(profiles, key=lambda profile: (-mig_milli(profile, (model,)), profile))


def _layout(model: str, profiles: Sequence[str]) -> tuple[tuple[str, int], ...] | None:
    """Where these instances stand on one GPU; None if they do not fit."""
    found: list[tuple[str, int]] = []
    wanted = _largest_first(model, profiles)

    def place(at: int) -> bool:
        if at == len(wanted):
            return True
        for start in can_add(model, found, wanted[at]):
            found.append((wanted[at], start))
            if place(at + 1):
                return True
            found.pop()
        return False

    try:
        return check_layout(model, found) if place(0) else None
    except InputError:
        return None
