"""Which GPUs of a node each pod has, and what is left of it.

The API does not say which GPUs a pod was given: each gets the lowest free ones, and keeps them as long as it is there.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from muster.model.fleet import WHOLE_GPU_MILLI, Node
from muster.model.plan import PodPlacement
from muster.model.workload import PodShape

NO_LIMIT = 1 << 40


class _Left(Struct):
    """What is left of a node.

    Of its devices in thousandths, with the owner of the shares of each; of those that are carved, the MIG instances.
    """

    cpu_milli: int
    memory_bytes: int
    pods: int
    gpu_milli: list[int]
    owners: list[tuple[str, str] | None]
    instances: list[list[tuple[str, int]]]


class _Held(Struct, frozen=True):
    """What a pod holds: ``shape`` is the part of ``asked`` that there was."""

    asked: PodShape
    shape: PodShape
    place: PodPlacement


class Ledger:
    """Accounts of all nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._left: dict[str, _Left] = {}
        self._held: dict[str, _Held] = {}
        self._on: dict[str, dict[str, None]] = {}

    def set_node(self, node: Node) -> None:
        """A node is there, new or other than before; pods on it keep their GPUs as far as there is room.

        The others hold nothing until they are placed again.
        """
        self._nodes[node.name] = node
        self._left[node.name] = _Left(
            node.cpu_milli,
            node.memory_bytes,
            node.max_pods or NO_LIMIT,
            [WHOLE_GPU_MILLI if device.healthy and not device.mig_profiles else 0 for device in node.devices],
            [None] * len(node.devices),
            [list(device.mig_profiles) if device.healthy else [] for device in node.devices],
        )
        for pod in list(self._on.get(node.name, ())):
            held = self._held.pop(pod)
            del self._on[node.name][pod]
            if held.shape == held.asked and self._fits(held):
                self._enter(pod, held)

    def drop_node(self, name: str) -> None:
        """A node is there no more, and nothing is on it."""
        self._nodes.pop(name, None)
        self._left.pop(name, None)
        for pod in self._on.pop(name, {}):
            self._held.pop(pod, None)

    def release(self, pod: str) -> None:
        """A pod has gone; nothing where it was not known."""
        held = self._held.pop(pod, None)
        if held is not None:
            self._on.get(held.place.node, {}).pop(pod, None)
            self._take(held, 1)

    def keep(self, pods: Collection[str]) -> None:
        """Only these pods are there: all others have gone."""
        for pod in [pod for pod in self._held if pod not in pods]:
            self.release(pod)

    def hold(self, pod: str, place: PodPlacement, shape: PodShape) -> None:
        """A pod gets these devices, as was decided; what it had before is free."""
        self.release(pod)
        self._enter(pod, _Held(shape, shape, place))

    def place(
        self, pod: str, node: str, shape: PodShape, given: PodPlacement | None = None
    ) -> tuple[PodPlacement, PodShape] | str:
        """Where a pod is that is bound to a node, and what it holds there; else why it cannot be told.

        ``given``: the devices that it is known to have, where nobody else was told to have them.
        It holds less than it asks for where the node has less left (a GPU fell ill, or it was shrunk): all the rest.
        """
        held = self._held.get(pod)
        if held is not None and held.place.node == node and held.asked == shape:
            return held.place, held.shape
        self.release(pod)
        left = self._left.get(node)
        if left is None:
            return "is bound to a node that is not there"
        if not left.pods:
            return "is one more than the pods that its node may have"
        place = self._place(node, left, shape, given)
        kept, gpus = shape, len(place.devices)
        if shape.cpu_milli > left.cpu_milli or shape.memory_bytes > left.memory_bytes or gpus < shape.gpus:
            cpu_milli, memory_bytes = min(shape.cpu_milli, left.cpu_milli), min(shape.memory_bytes, left.memory_bytes)
            kept = replace(shape, cpu_milli=cpu_milli, memory_bytes=memory_bytes, gpus=gpus)
            if not gpus and shape.gpus:
                kept = replace(kept, gpu_milli=WHOLE_GPU_MILLI, gpu_models=(), sharing="", tenant="", mig_profile="")
        self._enter(pod, _Held(shape, kept, place))
        return place, kept

    def _place(self, node: str, left: _Left, shape: PodShape, given: PodPlacement | None) -> PodPlacement:
        """The devices for a pod, those that it is given if they are free, as far as there are any."""
        if given is not None and len(given.devices) == shape.gpus and self._has(left, given, shape):
            return replace(given, node=node, gpu_milli=shape.gpu_milli if given.devices else 0)
        if not shape.mig_profile:
            devices = self._devices(left, shape)
            return PodPlacement(node, devices, shape.gpu_milli if devices else 0)
        for at, free in enumerate(left.instances):
            for profile, start in free:
                if profile == shape.mig_profile:
                    return PodPlacement(node, (at,), shape.gpu_milli, profile, start)
        return PodPlacement(node)

    def _devices(self, left: _Left, shape: PodShape) -> tuple[int, ...]:
        """The devices for a pod: whole ones that nobody uses, or those that shares of its kind leave room on."""
        free = range(len(left.gpu_milli))
        if not shape.shares_gpu:
            return tuple([at for at in free if left.gpu_milli[at] == WHOLE_GPU_MILLI][: shape.gpus])
        mine = (shape.tenant, shape.sharing)
        open_ = [at for at in free if left.gpu_milli[at] >= shape.gpu_milli and left.owners[at] in (None, mine)]
        open_.sort(key=lambda at: (left.owners[at] is None, left.gpu_milli[at], at))
        return tuple(sorted(open_[: shape.gpus]))

    @staticmethod
    def _has(left: _Left, place: PodPlacement, shape: PodShape) -> bool:
        """Whether the devices of a place are free for a shape."""
        there = all(at < len(left.gpu_milli) for at in place.devices)
        if there and place.mig and any((place.mig, place.mig_start) in left.instances[at] for at in place.devices):
            return True
        return there and all(left.gpu_milli[at] >= shape.gpu_milli for at in place.devices)

    def _fits(self, held: _Held) -> bool:
        left, shape, place = self._left[held.place.node], held.shape, held.place
        free = self._has(left, place, shape) and left.pods > 0
        return free and left.cpu_milli >= shape.cpu_milli and left.memory_bytes >= shape.memory_bytes

    def _enter(self, pod: str, held: _Held) -> None:
        self._held[pod] = held
        self._on.setdefault(held.place.node, {})[pod] = None
        self._take(held, -1)

    def _take(self, held: _Held, sign: int) -> None:
        left = self._left.get(held.place.node)
        if left is None:
            return
        shape = held.shape
        left.cpu_milli += sign * shape.cpu_milli
        left.memory_bytes += sign * shape.memory_bytes
        left.pods += sign
        devices = self._nodes[held.place.node].devices
        at = held.place.devices[0] if held.place.mig else len(devices)
        if at < len(devices) and devices[at].mig_profiles:
            left.instances[at] = _without(left.instances[at], (held.place.mig, held.place.mig_start), sign)
            return
        healthy = [device.healthy for device in devices]
        for at in held.place.devices:
            if at < len(left.gpu_milli):
                left.gpu_milli[at] += sign * shape.gpu_milli
                whole = left.gpu_milli[at] >= WHOLE_GPU_MILLI or not healthy[at]
                left.owners[at] = None if whole else (shape.tenant, shape.sharing)


def _without(free: list[tuple[str, int]], instance: tuple[str, int], sign: int) -> list[tuple[str, int]]:
    """The free instances of a GPU without one more, or with it again."""
    others = [each for each in free if each != instance]
    return sorted([*others, instance], key=lambda each: each[1]) if sign > 0 else others
