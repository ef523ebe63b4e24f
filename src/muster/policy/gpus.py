"""What policies ask about the GPUs of one node."""

from __future__ import annotations

from muster.kernels import (
    NodeArrays,
    kernel,
)

WHOLE = 1000
MOST_CPU_MILLI, MOST_GPU_MILLI = 128000.0, 8000.0
"""The largest node of the fleet of the FGD paper."""


@kernel
def gpu_class(gpus: int, milli: int) -> int:
    """0 CPU pod, 1 a fraction of a GPU, 1 + k for k whole GPUs."""
    if gpus == 0:
        return 0
    if milli < WHOLE:
        return 1
    return 1 + gpus


@kernel
def free_milli(node: int, nodes: NodeArrays) -> int:
    """Free GPU of the node, in thousandths of a GPU."""
    free = 0
    for device in range(nodes.gpu_free.shape[1]):
        free += nodes.gpu_free[node, device]
    return free


@kernel
def idle_gpus(node: int, nodes: NodeArrays) -> int:
    """GPUs of the node that are wholly free."""
    idle = 0
    for device in range(nodes.gpu_free.shape[1]):
        if nodes.gpu_free[node, device] == WHOLE:
            idle += 1
    return idle


@kernel
def fitting_and_spoiled(node: int, milli: int, nodes: NodeArrays) -> tuple[int, int]:
    """How many devices have ``milli`` free, and what is free on those that have less."""
    fitting = 0
    spoiled = 0
    for device in range(nodes.gpu_free.shape[1]):
        left = nodes.gpu_free[node, device]
        if left >= milli:
            fitting += 1
        else:
            spoiled += left
    return fitting, spoiled


@kernel
def tightest_device(node: int, milli: int, nodes: NodeArrays) -> int:
    """The device with the least room that still has ``milli`` free; the lowest index of equals; -1 for none."""
    best = -1
    for device in range(nodes.gpu_free.shape[1]):
        left = nodes.gpu_free[node, device]
        if left >= milli and (best < 0 or left < nodes.gpu_free[node, best]):
            best = device
    return best
