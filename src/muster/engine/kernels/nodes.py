"""What one pod does to one node: whether it fits, why not, and how the node changes."""

from __future__ import annotations

from muster.engine.kernels.devices import SHARING_MODE, shared_refusal
from muster.kernels import (
    ALL_CPU,
    ALL_GPUS,
    ALL_MEMORY,
    CHANGES,
    CONSTRAINT,
    CPU,
    FREE_CPU,
    FREE_MEMORY,
    FREE_PODS,
    GPU_MILLI,
    GPUS,
    KEPT,
    KIND,
    MEMORY,
    OWNER,
    RING,
    SHARED,
    SLICES,
    USE,
    VERSION,
    Ints,
    NodeArrays,
    ShapeArrays,
    entry_kernel,
    kernel,
)
from muster.policy.gpus import fitting_and_spoiled, free_milli, gpu_class
from muster.policy.sharing import ANYBODY, OWNER_SHIFT, SHARERS, SLICE_SHIFT, plain

# The same bits as in muster.model.reasons.Reason; tests/engine/test_reasons.py holds them together.
GPU_COUNT = 1 << 4
CPU_TOTAL = 1 << 5
MEMORY_TOTAL = 1 << 6
GPU_FREE = 1 << 7
GPU_SHAPE = 1 << 8
CPU_FREE = 1 << 9
MEMORY_FREE = 1 << 10
POD_COUNT = 1 << 15


@kernel
def refusal(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """Why the node cannot take the pod now, as a mask of all reasons that hold; 0 if it can."""
    return closer(plain_refusal(node, shape, nodes, shapes), node, shape, nodes, shapes)


@kernel
def closer(mask: int, node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """`refusal`, from what `plain_refusal` gave: with an eye on who shares the node's GPUs."""
    wanted = shapes.table[shape, GPUS]
    if 0 < wanted <= nodes.table[node, ALL_GPUS]:
        if mask & SHARING_MODE != 0:
            mask &= ~(GPU_FREE | GPU_SHAPE)
        elif not plain(node, shape, nodes, shapes):
            mask &= ~(GPU_FREE | GPU_SHAPE)
            mask |= shared_refusal(node, shape, nodes, shapes)
    return mask


@kernel
def plain_refusal(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """`refusal` where no GPU is kept from anybody. It is apart because it is hot, and small enough to be inlined."""
    mask = shapes.static_refusals[shapes.table[shape, CONSTRAINT], node]
    cpu = shapes.table[shape, CPU]
    if cpu > nodes.table[node, FREE_CPU]:
        mask |= CPU_FREE if cpu <= nodes.table[node, ALL_CPU] else CPU_TOTAL
    memory = shapes.table[shape, MEMORY]
    if memory > nodes.table[node, FREE_MEMORY]:
        mask |= MEMORY_FREE if memory <= nodes.table[node, ALL_MEMORY] else MEMORY_TOTAL
    if nodes.table[node, FREE_PODS] < 1:
        mask |= POD_COUNT
    wanted = shapes.table[shape, GPUS]
    if wanted > 0:
        if wanted > nodes.table[node, ALL_GPUS]:
            mask |= GPU_COUNT
        else:
            milli = shapes.table[shape, GPU_MILLI]
            fitting, _ = fitting_and_spoiled(node, milli, nodes)
            if fitting < wanted:
                mask |= GPU_SHAPE if free_milli(node, nodes) >= wanted * milli else GPU_FREE
    return mask


@kernel
def lowest_fitting(node: int, wanted: int, milli: int, nodes: NodeArrays) -> int:
    """The first ``wanted`` devices with at least ``milli`` free, as a bit mask; 0 if there are not so many."""
    mask = 0
    for device in range(nodes.gpu_free.shape[1]):
        if wanted > 0 and nodes.gpu_free[node, device] >= milli:
            mask |= 1 << device
            wanted -= 1
    return mask if wanted == 0 else 0


@entry_kernel
def apply(node: int, shape: int, devices: int, sign: int, nodes: NodeArrays, shapes: ShapeArrays) -> None:
    """Give (``sign`` 1) or take back (-1) what a pod of ``shape`` gets on ``node``; its own reverse.

    A device's first sharer brings its owner, the last takes it away. Slices of instances on one GPU have no bit in
    common, so adding them is joining them.
    """
    owner = shapes.table[shape, OWNER]
    sharer = (shapes.table[shape, SLICES] << SLICE_SHIFT) + 1
    nodes.table[node, FREE_CPU] -= sign * shapes.table[shape, CPU]
    nodes.table[node, FREE_MEMORY] -= sign * shapes.table[shape, MEMORY]
    milli = shapes.table[shape, GPU_MILLI]
    for device in range(nodes.gpu_free.shape[1]):
        if (devices >> device) & 1:
            nodes.gpu_free[node, device] -= sign * milli
            if owner >= ANYBODY:
                before = nodes.gpu_ways[USE, node, device]
                after = before + sign * sharer
                if before == 0:
                    after += owner << OWNER_SHIFT
                if after & SHARERS == 0:
                    after = 0
                nodes.gpu_ways[USE, node, device] = after
                if owner > ANYBODY:
                    kept = int(before == 0) - int(after == 0)
                    nodes.table[node, SHARED] += kept
                    nodes.changes[KEPT] += kept
    nodes.table[node, FREE_PODS] -= sign
    nodes.gpu_classes[node, gpu_class(shapes.table[shape, GPUS], milli)] += sign
    nodes.table[node, VERSION] += 1
    count = nodes.changes[CHANGES]
    nodes.changes[RING + count % (nodes.changes.shape[0] - RING)] = node
    nodes.changes[CHANGES] = count + 1


@kernel
def state_hash(node: int, static: int, nodes: NodeArrays) -> int:
    """A hash over all that a score may depend on but how GPUs are shared; equal states have equal hashes."""
    value = nodes.table[node, KIND] * 31 + static
    value = value * 1000003 ^ nodes.table[node, FREE_CPU]
    value = value * 1000003 ^ nodes.table[node, FREE_MEMORY]
    value = value * 1000003 ^ nodes.table[node, FREE_PODS]
    for device in range(nodes.gpu_free.shape[1]):
        value = value * 1000003 ^ nodes.gpu_free[node, device]
    for group in range(nodes.gpu_classes.shape[1]):
        value = value * 1000003 ^ nodes.gpu_classes[node, group]
    return value & 0x7FFFFFFFFFFFFFFF


@kernel
def same_state(one: int, other: int, constraint: int, nodes: NodeArrays, static_refusals: Ints) -> bool:
    """Whether two nodes are alike in all that a score or a refusal may depend on but how GPUs are shared."""
    if (
        nodes.table[one, KIND] != nodes.table[other, KIND]
        or nodes.table[one, FREE_CPU] != nodes.table[other, FREE_CPU]
        or nodes.table[one, FREE_MEMORY] != nodes.table[other, FREE_MEMORY]
        or nodes.table[one, FREE_PODS] != nodes.table[other, FREE_PODS]
        or static_refusals[constraint, one] != static_refusals[constraint, other]
    ):
        return False
    for device in range(nodes.gpu_free.shape[1]):
        if nodes.gpu_free[one, device] != nodes.gpu_free[other, device]:
            return False
    for group in range(nodes.gpu_classes.shape[1]):
        if nodes.gpu_classes[one, group] != nodes.gpu_classes[other, group]:
            return False
    return True
