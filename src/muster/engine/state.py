"""The fleet as arrays, what runs on it, and an undo log for everything that only tries something."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from muster.catalog.mig_placements import MigPlacement
from muster.engine.alike import alike
from muster.engine.kernels.devices import best_instance, instance_free
from muster.engine.kernels.nodes import apply
from muster.engine.sharing import (
    GpuUse,
    Owners,
    device_milli,
    first_use,
    fleet_tables,
    instances,
    layouts,
    mode_refused,
    offered,
)
from muster.errors import CapacityError, InputError, StateError
from muster.kernels import (
    ALL_CPU,
    ALL_GPUS,
    ALL_MEMORY,
    ALL_PODS,
    CHANGES,
    COUNT,
    FIRST,
    FREE_CPU,
    FREE_MEMORY,
    FREE_PODS,
    KEPT,
    KIND,
    ON_NODE,
    OWNER,
    PLACE,
    RING,
    SHARED,
    SLICES,
    USE,
    Ints,
    NodeArrays,
    ShapeArrays,
    direct,
)
from muster.model.fleet import MOST_GPUS_PER_NODE, WHOLE_GPU_MILLI, Fleet, Node, Taint
from muster.model.reasons import Reason
from muster.model.workload import PodShape, Toleration
from muster.policy.sharing import ANYBODY, MIG, OWNER_SHIFT, SHARERS, SLICE_SHIFT, TABLE_SHIFT

_apply = direct(apply)
_instance_fits, _best_instance = direct(instance_free), direct(best_instance)

NO_LIMIT = 1 << 40
"""Pods that a node may have where nobody said how many."""

REPLACEMENT = Toleration("muster.dev/spare", "Exists")
"""What a pod bears that replaces a lost one: it may use spare nodes."""

CORDONED = Toleration("muster.dev/unschedulable", "Exists")
"""What a pod bears that is only imagined, to see whether nodes that are cordoned would make the difference."""

_Constraint = tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[Toleration, ...], GpuUse | None]
"""GPU models, node selector and tolerations of a shape, and how it uses GPUs."""


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
        self._known_alike: tuple[list[Node], Ints] | None = None
        self.kinds, kind_of = _kinds(*self._alike)
        self.nodes = _node_arrays(*self._alike, kind_of)
        self.shape_list: list[PodShape] = []
        self._shape_ids: dict[PodShape, int] = {}
        self._constraint_ids: dict[_Constraint, int] = {}
        self._shape_table = np.zeros((16, 10), np.int64)
        self._shapes: ShapeArrays | None = None
        self._layouts = layouts()
        self._tables = fleet_tables(self.node_list)
        self._owners = Owners()
        self.instances: dict[int, MigPlacement] = {}
        self.owned = any(device.mig_profiles for node in self.node_list for device in node.devices)
        self._static = np.zeros((4, len(self.node_list)), np.int64)
        self._log: list[tuple[Allocation, int]] = []
        self._trials = 0

    def copy(self) -> FleetState:
        """An independent state; what never changes is shared. No trial may be open."""
        twin = object.__new__(FleetState)
        twin.__dict__.update(self.__dict__)
        twin.nodes = NodeArrays(*(array.copy() for array in self.nodes))
        twin.shape_list, twin._shape_ids = list(self.shape_list), dict(self._shape_ids)
        twin._constraint_ids, twin.instances = dict(self._constraint_ids), dict(self.instances)
        twin._shape_table, twin._static = self._shape_table.copy(), self._static.copy()
        twin._owners, twin._shapes, twin._log = self._owners.copy(), None, []
        return twin

    @property
    def _alike(self) -> tuple[list[Node], Ints]:
        """The nodes as `alike` tells them."""
        if self._known_alike is None:
            self._known_alike = alike(self.node_list)
        return self._known_alike

    def emptied(self) -> FleetState:
        """The same nodes as they are, with nothing on them."""
        twin = self.copy()
        twin.nodes = _node_arrays(*self._alike, self.nodes.kind)
        return twin

    @property
    def shapes(self) -> ShapeArrays:
        """What the shapes ask for, with room to spare after the last one."""
        known = self._shapes
        if known is None or known.static_refusals is not self._static or known.table is not self._shape_table:
            known = self._shapes = ShapeArrays(self._shape_table, self._static, self._layouts)
        return known

    @property
    def shape_capacity(self) -> int:
        """How many shapes the arrays have room for."""
        return self._shape_table.shape[0]

    def shape_id(self, shape: PodShape) -> int:
        """The row of a shape; a new one is added on its first sight, with MIG one more for each start."""
        known = self._shape_ids.get(shape)
        if known is not None:
            return known
        owner = self._owners.number(shape)
        self.owned = self.owned or owner > ANYBODY
        places = instances(shape.mig_profile, self._tables) if owner == MIG else []
        milli = min(
            (place.gpu_milli for place, _ in places), default=shape.gpu_milli if shape.gpus else WHOLE_GPU_MILLI
        )
        index = self._add_row(shape, milli, (owner, len(self.shape_list) + 1, len(places), 0, 0))
        for place, bit in places:
            row = self._add_row(shape, place.gpu_milli, (owner, 0, 0, bit, place.mask))
            self.instances[row] = place
        self._shape_ids[shape] = index
        return index

    def _add_row(self, shape: PodShape, milli: int, sharing: tuple[int, ...]) -> int:
        index = len(self.shape_list)
        if index == self.shape_capacity:
            self._shape_table = np.pad(self._shape_table, ((0, index), (0, 0)))
        self._shape_table[index] = (
            shape.cpu_milli, shape.memory_bytes, shape.gpus, milli, self._constraint_id(shape), *sharing,
        )  # fmt: skip
        self.shape_list.append(shape)
        return index

    def row_on(self, shape: int, node: int, devices: int, start: int = -1) -> int:
        """The row of what a pod gets on the devices: of a MIG pod that of its start (-1: the best one), else its shape.

        Raises:
            CapacityError: there is no instance that starts there.
        """
        first, count = self._shape_table[shape, FIRST], self._shape_table[shape, COUNT]
        device = devices.bit_length() - 1
        if not count or not 0 <= device < self.nodes.gpu_free.shape[1]:
            return shape
        if start < 0:
            found = int(_best_instance(node, devices, shape, self.nodes, self.shapes))
        else:
            table = int(self.nodes.gpu_mig[node, device]) >> TABLE_SHIFT
            rows = range(int(first), int(first + count))
            of_table = [row for row in rows if int(self._shape_table[row, PLACE]) >> TABLE_SHIFT == table]
            found = next((row for row in of_table if self.instances[row].start == start), -1)
        if found < 0:
            where = f"{self.node_names[node]}: GPU {device}"
            what = self.shape_list[shape].mig_profile
            raise CapacityError(f"{where} has no MIG {what}" + (f" at slice {start}" if start >= 0 else " free"))
        return found

    def _constraint_id(self, shape: PodShape) -> int:
        models = shape.gpu_models if shape.gpus else ()
        key = (models, shape.node_selector, shape.tolerations, GpuUse.of(shape))
        known = self._constraint_ids.get(key)
        if known is not None:
            return known
        index = len(self._constraint_ids)
        if index == self._static.shape[0]:
            self._static = np.ascontiguousarray(np.pad(self._static, ((0, index), (0, 0))))
        refusals: dict[tuple[object, ...], int] = {}
        masks: list[int] = []
        for node in self._alike[0]:
            look = (
                node.schedulable, node.labels, node.taints, node.gpu_models, node.spare, node.sharing, _carving(node),
            )  # fmt: skip
            mask = refusals.get(look)
            if mask is None:
                mask = refusals[look] = static_refusal(node, *key)
            masks.append(mask)
        self._static[index] = np.array(masks, np.int64)[self._alike[1]]
        self._constraint_ids[key] = index
        return index

    def set_node(self, position: int, node: Node) -> None:
        """Another state of the node at a position: health, labels, taints, size. What runs on it is still there.

        Raises `StateError` if it has more devices than the widest node of the fleet had, or stands elsewhere.
        """
        old, nodes = self.node_list[position], self.nodes
        if node.name != old.name or node.topology != old.topology or len(node.devices) > nodes.gpu_free.shape[1]:
            raise StateError(f"{old.name} cannot become a node of another name, place or number of GPUs")
        one = np.zeros(1, np.int64)
        before, after = _node_arrays([old], one, one), _node_arrays([node], one, one)
        self._share_anew(position, old, node, after.gpu_mig[0])
        for arrays, sign in ((before, -1), (after, 1)):
            nodes.table[position, : ALL_GPUS + 1] += sign * arrays.table[0, : ALL_GPUS + 1]
            width = arrays.gpu_free.shape[1]
            nodes.gpu_free[position, :width] += sign * arrays.gpu_free[0]
        kind = _hardware(node)
        if kind not in self.kinds:
            self.kinds = (*self.kinds, kind)
        nodes.kind[position] = self.kinds.index(kind)
        self.node_list = (*self.node_list[:position], node, *self.node_list[position + 1 :])
        self._known_alike = None
        for key, constraint in self._constraint_ids.items():
            self._static[constraint, position] = static_refusal(node, *key)
        nodes.version[position] += 1
        nodes.changes[RING + nodes.change_count % (len(nodes.changes) - RING)] = position
        nodes.changes[CHANGES] += 1

    def _share_anew(self, position: int, old: Node, node: Node, offered: Ints) -> None:
        """What a node's GPUs offer, and the sharer that keeps those that are carved from others, as it is now."""
        nodes = self.nodes
        for device in node.devices:
            use = int(nodes.gpu_use[position, device.index])
            if first_use(device) and use and use >> OWNER_SHIFT != MIG:
                raise StateError(f"{node.name}: GPU {device.index} cannot be carved while pods share it otherwise")
        nodes.gpu_mig[position, :] = 0
        nodes.gpu_mig[position, : len(offered)] = offered
        for devices, sign in ((old.devices, -1), (node.devices, 1)):
            for device in devices:
                if keeper := first_use(device):
                    after = int(nodes.gpu_use[position, device.index] or keeper - 1) + sign
                    nodes.gpu_use[position, device.index] = after if after & SHARERS else 0
        kept = int((nodes.gpu_use[position] >> OWNER_SHIFT > ANYBODY).sum())
        nodes.changes[KEPT] += kept - nodes.shared[position]
        nodes.shared[position] = kept
        if any(device.mig_profiles for device in node.devices):
            self.owned = True

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
        fresh = _node_arrays(*self._alike, self.nodes.kind)
        for allocation in allocations:
            self._require_open(allocation, fresh)
            _apply(allocation.node, allocation.shape, allocation.devices, 1, fresh, self.shapes)
        pairs = (
            ("CPU", fresh.cpu_free, self.nodes.cpu_free),
            ("memory", fresh.memory_free, self.nodes.memory_free),
            ("GPU", fresh.gpu_free, self.nodes.gpu_free),
            ("shares of GPUs", fresh.gpu_use, self.nodes.gpu_use),
            ("pods", fresh.pods_free, self.nodes.pods_free),
        )
        for what, expected, present in pairs:
            wrong = np.argwhere((expected != present) | (present < 0))
            if len(wrong):
                name = self.node_names[int(wrong[0][0])]
                raise CapacityError(f"{name}: free {what} is not the total less what its pods take, or is negative")

    def has_free(self, allocation: Allocation) -> bool:
        """Whether `assign` would do."""
        try:
            self._require_free(allocation)
        except CapacityError:
            return False
        return True

    def _require_free(self, allocation: Allocation) -> None:
        node, shape = allocation.node, self.shape_list[allocation.shape]
        cpu, memory, pods = self.nodes.table[node, :ON_NODE].tolist()
        short = shape.cpu_milli > cpu or shape.memory_bytes > memory or pods < 1
        devices = allocation.device_indexes
        if len(devices) != shape.gpus or any(index >= self.nodes.gpu_free.shape[1] for index in devices):
            raise CapacityError(f"{self.node_names[node]}: {shape.gpus} GPUs asked for, {len(devices)} named")
        if short or any(self.nodes.gpu_free[node, index] < shape.gpu_milli for index in devices):
            raise CapacityError(f"{self.node_names[node]}: {shape.describe()} is not free there")
        self._require_open(allocation, self.nodes)
        for device in devices:
            if allocation.shape in self.instances and not _instance_fits(
                node, device, allocation.shape, self.nodes, self.shapes
            ):
                start = self.instances[allocation.shape].start
                what = f"MIG {shape.mig_profile} at slice {start}"
                raise CapacityError(f"{self.node_names[node]}: GPU {device} offers no {what}")

    def _require_open(self, allocation: Allocation, nodes: NodeArrays) -> None:
        """Raise `CapacityError` where others share a device, or the slices of a MIG instance are another's."""
        node, row = allocation.node, allocation.shape
        owner = int(self._shape_table[row, OWNER])
        for device in allocation.device_indexes:
            where = f"{self.node_names[node]}: GPU {device}"
            use = int(nodes.gpu_use[node, device])
            if use and use >> OWNER_SHIFT != owner:
                raise CapacityError(f"{where} is shared by others")
            if owner != MIG:
                continue
            what = f"MIG {self.shape_list[row].mig_profile}"
            if row not in self.instances:
                raise CapacityError(f"{where} cannot have {what} without a start")
            if use >> SLICE_SHIFT & int(self._shape_table[row, SLICES]):
                raise CapacityError(f"{where} has no {what} at slice {self.instances[row].start} left")


def static_refusal(
    node: Node, models: tuple[str, ...], selector: tuple[tuple[str, str], ...], tolerations: tuple[Toleration, ...],
    use: GpuUse | None,
) -> int:  # fmt: skip
    """The refusals of a node that no change of load can lift, as a mask of `Reason` bits."""
    mask = 0
    if not node.schedulable and CORDONED not in tolerations:
        mask |= Reason.UNSCHEDULABLE.mask
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in selector):
        mask |= Reason.SELECTOR.mask
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerates(toleration, taint) for toleration in tolerations):
            mask |= Reason.TAINT.mask
    if node.spare and REPLACEMENT not in tolerations:
        mask |= Reason.SPARE.mask
    if models and not set(models).intersection(node.gpu_models):
        mask |= Reason.GPU_MODEL.mask
    if use is not None and mode_refused(node, use):
        mask |= Reason.SHARING_MODE.mask
    return mask


def _carving(node: Node) -> tuple[object, ...]:
    """The devices' MIG instances, where there are any: nodes of equal models may be carved in different ways."""
    if not any(device.mig_profiles or not device.healthy for device in node.devices):
        return ()
    return tuple((device.mig_profiles, device.healthy) for device in node.devices)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a pod with the toleration bears the taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def refusing_taints(shapes: Iterable[PodShape], node: Node) -> list[Taint]:
    """The taints of a node that keep a pod of one of some shapes away."""
    borne = [shape.tolerations for shape in shapes]
    return [
        taint
        for taint in node.taints
        if taint.effect != "PreferNoSchedule" and not all(any(tolerates(one, taint) for one in each) for each in borne)
    ]


def _hardware(node: Node) -> tuple[int, int, tuple[str, ...]]:
    return node.cpu_milli, node.memory_bytes, tuple(device.model for device in node.devices if device.healthy)


def _kinds(nodes: Sequence[Node], which: Ints) -> tuple[tuple[tuple[int, int, tuple[str, ...]], ...], Ints]:
    """The hardware kinds (cpu_milli, memory_bytes, GPU models) in sorted order, and the kind of each node, as `alike`
    tells nodes."""
    keys = [_hardware(node) for node in nodes]
    kinds = tuple(sorted(set(keys)))
    number = {kind: index for index, kind in enumerate(kinds)}
    return kinds, np.array([number[key] for key in keys], np.int64)[which]


def _node_arrays(nodes: Sequence[Node], which: Ints, kind_of: Ints) -> NodeArrays:
    """All nodes with nothing on them, as `alike` tells them."""
    count = len(which)
    width = max([len(node.devices) for node in nodes], default=0) or 1
    if width > MOST_GPUS_PER_NODE:
        name = next(node.name for node in nodes if len(node.devices) == width)
        raise InputError(f"node {name} has {width} GPUs; at most {MOST_GPUS_PER_NODE} are supported", field="gpus")
    gpus = np.zeros((3, len(nodes), width), np.int64)
    for row, node in enumerate(nodes):
        for device in node.devices:
            gpus[:, row, device.index] = device_milli(device), first_use(device), offered(node, device)
    gpus = gpus[:, which]
    gpu_free, gpu_ways = gpus[0].copy(), np.ascontiguousarray(gpus[1:])
    sizes = [(each.cpu_milli, each.memory_bytes, each.max_pods or NO_LIMIT, each.healthy_gpus) for each in nodes]
    table = np.zeros((count, 10), np.int64)
    table[:, [ALL_CPU, ALL_MEMORY, ALL_PODS, ALL_GPUS]] = np.array(sizes, np.int64).reshape(-1, 4)[which]
    table[:, [FREE_CPU, FREE_MEMORY, FREE_PODS]] = table[:, [ALL_CPU, ALL_MEMORY, ALL_PODS]]
    table[:, KIND] = kind_of
    table[:, SHARED] = (gpu_ways[USE] != 0).sum(axis=1)
    changes = np.zeros(RING + max(count, 1), np.int64)
    changes[KEPT] = table[:, SHARED].sum()
    classes = np.zeros((count, MOST_GPUS_PER_NODE + 2 if width > 16 else 18), np.int64)
    return NodeArrays(table, gpu_free, gpu_ways, classes, changes)
