"""The fleet as arrays, what runs on it, and an undo log for everything that only tries something."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from muster.engine.kernels.nodes import apply
from muster.errors import CapacityError, InputError, StateError
from muster.kernels import Ints, NodeArrays, ShapeArrays, direct
from muster.model.fleet import WHOLE_GPU_MILLI, Fleet, Node
from muster.model.reasons import Reason
from muster.model.workload import PodShape, Toleration

_apply = direct(apply)

MOST_GPUS_PER_NODE = 62
"""Devices of a node are a bit mask in a signed 64-bit integer."""


REPLACEMENT = Toleration("muster.dev/spare", "Exists")
"""What a pod bears that replaces a lost one: it may use spare nodes."""

_Constraint = tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[Toleration, ...]]
"""GPU models, node selector and tolerations of a shape."""


class Allocation(Struct, frozen=True):
    """One pod on one node: indexes into the state, and the devices as a bit mask."""

    node: int
    shape: int
    devices: int = 0

    @property
    def device_indexes(self) -> tuple[int, ...]:
        """The devices as indexes."""
        return tuple(index for index in range(self.devices.bit_length()) if self.devices >> index & 1)


class Trial:
    """Handle of an open trial; `keep` makes its changes last."""

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        """Let the changes stand when the trial ends."""
        self.kept = True


class FleetState:
    """What is free on each node, as arrays in tie order, with the pod shapes met so far.

    Args:
        fleet: the nodes.
        order: the tie order: position to index in ``fleet.nodes``; the fleet's own order if None.

    Every change goes through `assign` and `release` (or the kernels, which call the same `apply`), so that scores
    that others keep are refreshed, and through the undo log while a trial is open.
    """

    def __init__(self, fleet: Fleet, order: Sequence[int] | None = None) -> None:
        self.fleet = fleet
        positions = range(len(fleet)) if order is None else order
        self.node_list: tuple[Node, ...] = tuple(fleet.nodes[int(index)] for index in positions)
        if len({id(node) for node in self.node_list}) != len(fleet):
            raise CapacityError("the tie order must name each node once")
        self.node_names = tuple(node.name for node in self.node_list)
        self.kinds, kind_of = _kinds(self.node_list)
        self.nodes = _node_arrays(self.node_list, kind_of)
        self.shape_list: list[PodShape] = []
        self._shape_ids: dict[PodShape, int] = {}
        self._constraint_ids: dict[_Constraint, int] = {}
        self._shape_table = np.zeros((5, 16), np.int64)
        self._shapes: ShapeArrays | None = None
        self._static = np.zeros((4, len(self.node_list)), np.int64)
        self._log: list[tuple[Allocation, int]] = []
        self._trials = 0

    @property
    def shapes(self) -> ShapeArrays:
        """What the shapes ask for, with room to spare after the last one."""
        known = self._shapes
        if known is None or known.static_refusals is not self._static or known.cpu.base is not self._shape_table:
            cpu, memory, gpus, milli, constraint = self._shape_table
            known = self._shapes = ShapeArrays(cpu, memory, gpus, milli, constraint, self._static)
        return known

    @property
    def shape_capacity(self) -> int:
        """How many shapes the arrays have room for."""
        return self._shape_table.shape[1]

    def shape_id(self, shape: PodShape) -> int:
        """The row of a shape; a new one is added on its first sight."""
        known = self._shape_ids.get(shape)
        if known is not None:
            return known
        index = len(self.shape_list)
        if index == self.shape_capacity:
            self._shape_table = np.ascontiguousarray(np.pad(self._shape_table, ((0, 0), (0, index))))
        milli = shape.gpu_milli if shape.gpus else WHOLE_GPU_MILLI
        self._shape_table[:, index] = (
            shape.cpu_milli, shape.memory_bytes, shape.gpus, milli, self._constraint_id(shape),
        )  # fmt: skip
        self.shape_list.append(shape)
        self._shape_ids[shape] = index
        return index

    def _constraint_id(self, shape: PodShape) -> int:
        models = shape.gpu_models if shape.gpus else ()
        key = (models, shape.node_selector, shape.tolerations)
        known = self._constraint_ids.get(key)
        if known is not None:
            return known
        index = len(self._constraint_ids)
        if index == self._static.shape[0]:
            self._static = np.ascontiguousarray(np.pad(self._static, ((0, index), (0, 0))))
        refusals: dict[tuple[object, ...], int] = {}
        for position, node in enumerate(self.node_list):
            look = (node.schedulable, node.labels, node.taints, node.gpu_models, node.spare)
            mask = refusals.get(look)
            if mask is None:
                mask = refusals[look] = static_refusal(node, *key)
            self._static[index, position] = mask
        self._constraint_ids[key] = index
        return index

    def set_node(self, position: int, node: Node) -> None:
        """Another state of the node at a position: health, labels, taints, size. What runs on it is still there.

        Raises `StateError` if it has more devices than the widest node of the fleet had, or stands elsewhere.
        """
        old, nodes = self.node_list[position], self.nodes
        if node.name != old.name or node.topology != old.topology or len(node.devices) > nodes.gpu_free.shape[1]:
            raise StateError(f"{old.name} cannot become a node of another name, place or number of GPUs")
        before, after = _node_arrays([old], np.zeros(1, np.int64)), _node_arrays([node], np.zeros(1, np.int64))
        nodes.cpu_total[position] = node.cpu_milli
        nodes.memory_total[position] = node.memory_bytes
        nodes.gpus[position] = node.healthy_gpus
        nodes.cpu_free[position] += node.cpu_milli - old.cpu_milli
        nodes.memory_free[position] += node.memory_bytes - old.memory_bytes
        for arrays, sign in ((before, -1), (after, 1)):
            width = arrays.gpu_free.shape[1]
            nodes.gpu_free[position, :width] += sign * arrays.gpu_free[0]
        key = _hardware(node)
        if key not in self.kinds:
            self.kinds = (*self.kinds, key)
        nodes.kind[position] = self.kinds.index(key)
        self.node_list = (*self.node_list[:position], node, *self.node_list[position + 1 :])
        for (models, selector, tolerations), constraint in self._constraint_ids.items():
            self._static[constraint, position] = static_refusal(node, models, selector, tolerations)
        nodes.version[position] += 1
        nodes.changes[nodes.change_count[0] % nodes.changes.shape[0]] = position
        nodes.change_count[0] += 1

    def assign(self, allocation: Allocation) -> None:
        """Give a pod what it asks for; raises `CapacityError` if that is not free."""
        self._require_free(allocation)
        _apply(allocation.node, allocation.shape, allocation.devices, 1, self.nodes, self.shapes)
        if self._trials:
            self._log.append((allocation, -1))

    def release(self, allocation: Allocation) -> None:
        """Take back what `assign` gave."""
        _apply(allocation.node, allocation.shape, allocation.devices, -1, self.nodes, self.shapes)
        if self._trials:
            self._log.append((allocation, 1))

    def note_assigned(self, allocations: Iterable[Allocation]) -> None:
        """Enter into the undo log what a kernel has assigned already."""
        if self._trials:
            self._log.extend((allocation, -1) for allocation in allocations)

    @contextmanager
    def trial(self) -> Generator[Trial, None, None]:
        """Try something: on leaving, all changes made inside are undone unless `Trial.keep` was called.

        Trials nest; what an inner one keeps is still undone with the outer one.
        """
        handle = Trial()
        mark = self.checkpoint()
        self._trials += 1
        try:
            yield handle
        except BaseException:
            handle.kept = False
            raise
        finally:
            if not handle.kept:
                self.rollback(mark)
            self._trials -= 1
            if not self._trials:
                self._log.clear()

    def checkpoint(self) -> int:
        """A mark in the undo log to go back to with `rollback`; only of use inside a trial."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo, newest first, everything since ``mark``."""
        while len(self._log) > mark:
            allocation, sign = self._log.pop()
            _apply(allocation.node, allocation.shape, allocation.devices, sign, self.nodes, self.shapes)

    def validate(self, allocations: Iterable[Allocation]) -> None:
        """Check that what is free plus what ``allocations`` take is what there is, on every node and device.

        Raises:
            CapacityError: naming the first node on which it is not, or which is over-committed.
        """
        fresh = _node_arrays(self.node_list, self.nodes.kind)
        for allocation in allocations:
            _apply(allocation.node, allocation.shape, allocation.devices, 1, fresh, self.shapes)
        pairs = (
            ("CPU", fresh.cpu_free, self.nodes.cpu_free),
            ("memory", fresh.memory_free, self.nodes.memory_free),
            ("GPU", fresh.gpu_free, self.nodes.gpu_free),
            ("pods", fresh.pods, self.nodes.pods),
        )
        for what, expected, present in pairs:
            wrong = np.argwhere((expected != present) | (present < 0))
            if len(wrong):
                name = self.node_names[int(wrong[0][0])]
                raise CapacityError(f"{name}: free {what} is not the total less what its pods take, or is negative")

    def _require_free(self, allocation: Allocation) -> None:
        node, shape = allocation.node, self.shape_list[allocation.shape]
        short = shape.cpu_milli > self.nodes.cpu_free[node] or shape.memory_bytes > self.nodes.memory_free[node]
        devices = allocation.device_indexes
        if len(devices) != shape.gpus or any(index >= self.nodes.gpu_free.shape[1] for index in devices):
            raise CapacityError(f"{self.node_names[node]}: {shape.gpus} GPUs asked for, {len(devices)} named")
        if short or any(self.nodes.gpu_free[node, index] < shape.gpu_milli for index in devices):
            raise CapacityError(f"{self.node_names[node]}: {shape.describe()} is not free there")


def static_refusal(
    node: Node, models: tuple[str, ...], selector: tuple[tuple[str, str], ...], tolerations: tuple[Toleration, ...]
) -> int:
    """The refusals of a node that no change of load can lift, as a mask of `Reason` bits."""
    mask = 0
    if not node.schedulable:
        mask |= Reason.UNSCHEDULABLE.mask
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in selector):
        mask |= Reason.SELECTOR.mask
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not any(
            _tolerates(toleration, taint.key, taint.value, taint.effect) for toleration in tolerations
        ):
            mask |= Reason.TAINT.mask
    if node.spare and REPLACEMENT not in tolerations:
        mask |= Reason.SPARE.mask
    if models and not set(models).intersection(node.gpu_models):
        mask |= Reason.GPU_MODEL.mask
    return mask


def _tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    if toleration.effect and toleration.effect != effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", key)
    return toleration.key == key and toleration.value == value


def _hardware(node: Node) -> tuple[int, int, tuple[str, ...]]:
    return node.cpu_milli, node.memory_bytes, tuple(device.model for device in node.devices if device.healthy)


def _kinds(nodes: Sequence[Node]) -> tuple[tuple[tuple[int, int, tuple[str, ...]], ...], Ints]:
    """The hardware kinds (cpu_milli, memory_bytes, GPU models) in sorted order, and the kind of each node."""
    keys = [_hardware(node) for node in nodes]
    kinds = tuple(sorted(set(keys)))
    number = {kind: index for index, kind in enumerate(kinds)}
    return kinds, np.array([number[key] for key in keys], np.int64)


def _node_arrays(nodes: Sequence[Node], kind_of: Ints) -> NodeArrays:
    count = len(nodes)
    width = max([len(node.devices) for node in nodes], default=0) or 1
    if width > MOST_GPUS_PER_NODE:
        name = next(node.name for node in nodes if len(node.devices) == width)
        raise InputError(f"node {name} has {width} GPUs; at most {MOST_GPUS_PER_NODE} are supported", field="gpus")
    gpu_free = np.zeros((count, width), np.int64)
    for row, node in enumerate(nodes):
        for device in node.devices:
            if device.healthy:
                gpu_free[row, device.index] = WHOLE_GPU_MILLI
    cpu = np.array([node.cpu_milli for node in nodes], np.int64)
    memory = np.array([node.memory_bytes for node in nodes], np.int64)
    return NodeArrays(
        kind=kind_of,
        cpu_total=cpu,
        memory_total=memory,
        gpus=np.array([node.healthy_gpus for node in nodes], np.int64),
        cpu_free=cpu.copy(),
        memory_free=memory.copy(),
        gpu_free=gpu_free,
        pods=np.zeros(count, np.int64),
        gpu_classes=np.zeros((count, MOST_GPUS_PER_NODE + 2 if width > 16 else 18), np.int64),
        version=np.zeros(count, np.int64),
        changes=np.zeros(max(count, 1), np.int64),
        change_count=np.zeros(1, np.int64),
    )
