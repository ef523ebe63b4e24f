"""gpu-packing: first a shared GPU in use, then a free GPU of a node in use, then an empty node.

    on an empty node of n GPUs           max(33 - n, n)
    else if k whole GPUs are taken       max(50 - k, 33)
    else, on a shared GPU with r left    max(100 - int(r * 100 / 1000) // 10, 50)

CPU pods score 0 everywhere. A fraction takes the device with the least room that fits. Ties: the first node.

Source: the policy 04-GpuPacking of the FGD paper's experiments (USENIX ATC 2023).
"""

from __future__ import annotations

from muster.kernels import (
    ALL_GPUS,
    GPU_MILLI,
    GPUS,
    Knowledge,
    NodeArrays,
    ShapeArrays,
    scorer_kernel,
)
from muster.policy.gpus import WHOLE, idle_gpus, tightest_device


@scorer_kernel
def score(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge) -> tuple[float, int]:
    """The score above, an integer in 0..100."""
    wanted = shapes.table[shape, GPUS]
    if wanted == 0:
        return 0.0, 0
    milli = shapes.table[shape, GPU_MILLI]
    device = tightest_device(node, milli, nodes)
    idle = idle_gpus(node, nodes)
    if idle == nodes.table[node, ALL_GPUS]:
        return float(max(33 - idle, idle)), device
    if milli == WHOLE:
        return float(max(50 - wanted, 33)), device
    left = nodes.gpu_free[node, device]
    if left == WHOLE:
        return float(max(50 - 1, 33)), device
    return float(max(100 - (left * 100 // WHOLE) // 10, 50)), device
