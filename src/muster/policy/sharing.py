"""GPUs that are shared: who may be on which, and where MIG instances may start.

A node is *plain* for a pod where what is free tells all: then none of this is looked at, and policies choose the
device. Elsewhere the engine chooses it, by the rules below.
"""

from __future__ import annotations

from muster.kernels import (
    COUNT,
    FIRST,
    GPU_MILLI,
    OFFER,
    OWNER,
    PLACE,
    SHARED,
    SLICES,
    USE,
    NodeArrays,
    ShapeArrays,
    kernel,
)

NO_SHARER, ANYBODY, MIG, FIRST_OWNER = -1, 0, 1, 2
"""Owners of shares: pods that share nothing, those that trust everybody, MIG instances, then tenants by mode."""

OWNER_SHIFT, SLICE_SHIFT = 32, 16
"""Where in a GPU's ``USE`` the owner and the used slices begin; below them is the number of sharers."""

SLICE_MASK = SHARERS = (1 << 16) - 1
TABLE_SHIFT = 40
"""Where in a GPU's ``OFFER`` and in the column ``PLACE`` the number of the MIG table begins; below are placements."""


@kernel
def plain(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> bool:
    """Whether what is free tells all: nobody on the node keeps others off its GPUs, nor does the pod."""
    return nodes.table[node, SHARED] == 0 and shapes.table[shape, OWNER] <= ANYBODY


@kernel
def may_share(use: int, owner: int) -> bool:
    """Whether a GPU is open to an owner: nobody shares it, or only others of the same owner."""
    return use == 0 or use >> OWNER_SHIFT == owner


@kernel
def instance_fits(node: int, device: int, row: int, nodes: NodeArrays, shapes: ShapeArrays) -> bool:
    """Whether the MIG instance of a row (profile and start) is one of the GPU's, and none of its slices is used."""
    place, offered = shapes.table[row, PLACE], nodes.gpu_ways[OFFER, node, device]
    if place >> TABLE_SHIFT != offered >> TABLE_SHIFT or place & offered & ((1 << TABLE_SHIFT) - 1) == 0:
        return False
    return shapes.table[row, SLICES] & (nodes.gpu_ways[USE, node, device] >> SLICE_SHIFT) & SLICE_MASK == 0


@kernel
def room_on(node: int, device: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> int:
    """How many shares of the pod a GPU has room for, one after the other, among those that it may meet there.

    Exact for MIG instances, too: those of one profile either never overlap, or there may be one only.
    """
    room = nodes.gpu_free[node, device] // shapes.table[shape, GPU_MILLI]
    owner = shapes.table[shape, OWNER]
    if room == 0 or not may_share(nodes.gpu_ways[USE, node, device], owner):
        return 0
    if owner != MIG:
        return room
    count = 0
    taken = 0
    first = shapes.table[shape, FIRST]
    for row in range(first, first + shapes.table[shape, COUNT]):
        slices = shapes.table[row, SLICES]
        if slices & taken == 0 and instance_fits(node, device, row, nodes, shapes):
            taken |= slices
            count += 1
    return min(room, count)


@kernel
def fitting_and_kept(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays) -> tuple[int, int]:
    """How many GPUs take a share of the pod, and what is free on those that do not."""
    fitting = 0
    kept = 0
    for device in range(nodes.gpu_free.shape[1]):
        if room_on(node, device, shape, nodes, shapes) > 0:
            fitting += 1
        else:
            kept += nodes.gpu_free[node, device]
    return fitting, kept
