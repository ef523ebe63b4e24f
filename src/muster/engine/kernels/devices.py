"""Devices on nodes where GPUs are shared: why none will do, which are taken, and where a MIG instance starts."""

from __future__ import annotations

from muster.kernels import (
    COUNT,
    FIRST,
    GPU_MILLI,
    GPUS,
    OFFER,
    OWNER,
    SHARED,
    SLICES,
    USE,
    NodeArrays,
    ShapeArrays,
    entry_kernel,
    kernel,
)
from muster.policy.gpus import free_milli
from muster.policy.sharing import (
    MIG,
    SLICE_MASK,
    SLICE_SHIFT,
    TABLE_SHIFT,
    fitting_and_kept,
    instance_fits,
    may_share,
    room_on,
)

# The same bits as in muster.model.reasons.Reason; tests/engine/test_reasons.py holds them together.
GPU_FREE = 1 << 7
GPU_SHAPE = 1 << 8
MIG_START = 1 << 12
GPU_SHARED = 1 << 13
SHARING_MODE = 1 << 14


@kernel
def shared_refusal(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """Why the GPUs of a node do not do for the pod: the reason that is nearest to being solved; 0 if they do."""
    wanted, milli, owner = shapes.table[shape, GPUS], shapes.table[shape, GPU_MILLI], shapes.table[shape, OWNER]
    fitting, _ = fitting_and_kept(node, shape, nodes, shapes)
    if fitting >= wanted:
        return 0
    roomy = 0
    open_ = 0
    for device in range(nodes.gpu_free.shape[1]):
        if nodes.gpu_free[node, device] >= milli:
            roomy += 1
            if may_share(nodes.gpu_ways[USE, node, device], owner):
                open_ += 1
    if open_ >= wanted and owner == MIG:
        return MIG_START
    if roomy >= wanted:
        return GPU_SHARED
    return GPU_SHAPE if free_milli(node, nodes) >= wanted * milli else GPU_FREE


@kernel
def choose_shared(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """The devices for a pod, as a bit mask: of those that take it the ones with least room, the lowest of equals."""
    mask = 0
    for _ in range(shapes.table[shape, GPUS]):
        best = -1
        for device in range(nodes.gpu_free.shape[1]):
            left = nodes.gpu_free[node, device]
            if (
                (mask >> device) & 1 == 0
                and (best < 0 or left < nodes.gpu_free[node, best])
                and room_on(node, device, shape, nodes, shapes) > 0
            ):
                best = device
        if best < 0:
            return 0
        mask |= 1 << best
    return mask


@entry_kernel
def best_instance(node: int, devices: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """The row of the MIG instance that a pod gets on the GPU ``devices`` (a mask); -1 if none fits.

    Of all starts, the one that leaves most: first most places for instances of 8 slices, then of 4, 2 and 1, by all
    profiles that the GPU offers; of equals the lowest start.
    """
    device = 0
    while (devices >> device) & 1 == 0:
        device += 1
    offered = nodes.gpu_ways[OFFER, node, device]
    used = (nodes.gpu_ways[USE, node, device] >> SLICE_SHIFT) & SLICE_MASK
    table = offered >> TABLE_SHIFT
    best = -1
    most = -1
    first = shapes.table[shape, FIRST]
    for row in range(first, first + shapes.table[shape, COUNT]):
        if not instance_fits(node, device, row, nodes, shapes):
            continue
        after = used | shapes.table[row, SLICES]
        left = 0
        for place in range(shapes.layouts.shape[1]):
            layout = shapes.layouts[table, place]
            if layout != 0 and (offered >> place) & 1 != 0 and layout & after & SLICE_MASK == 0:
                left += 1 << 8 * (layout >> SLICE_SHIFT)
        if left > most:
            most = left
            best = row
    return best


@entry_kernel
def instance_free(node: int, device: int, row: int, nodes: NodeArrays, shapes: ShapeArrays) -> bool:
    """`instance_fits`, for Python."""
    return instance_fits(node, device, row, nodes, shapes)


@kernel
def sharing_hash(node: int, nodes: NodeArrays) -> int:
    """A hash over who shares which GPU of a node."""
    value = nodes.table[node, SHARED]
    for device in range(nodes.gpu_free.shape[1]):
        value = value * 1000003 ^ (nodes.gpu_ways[USE, node, device] >> SLICE_SHIFT)
    return value & 0x7FFFFFFFFFFFFFFF


@kernel
def same_sharing(one: int, other: int, nodes: NodeArrays) -> bool:
    """Whether the GPUs of two nodes are shared in the same way, and may be split in the same way."""
    differ = nodes.table[one, SHARED] ^ nodes.table[other, SHARED]
    for device in range(nodes.gpu_free.shape[1]):
        differ |= nodes.gpu_ways[OFFER, one, device] ^ nodes.gpu_ways[OFFER, other, device]
        differ |= (nodes.gpu_ways[USE, one, device] ^ nodes.gpu_ways[USE, other, device]) >> SLICE_SHIFT
    return differ == 0
