"""gpu-clustering: nodes that run only pods of the same GPU class, then mixed ones with it, then idle ones.

Classes are: a fraction of a GPU, and 1, 2, 3 ... whole GPUs.

    score = band + int(25 * (G - g) / G)     g free GPU, G = 8 GPUs
    band  = 75 only this class, 50 this and others, 25 none yet, 0 only others; CPU pods: 0 in all

A fraction takes the device with the least room that fits. Ties: the first node.

Source: the policy 03-GpuClustering of the FGD paper's experiments (USENIX ATC 2023).
"""

from __future__ import annotations

from muster.kernels import (
    GPU_MILLI,
    GPUS,
    Knowledge,
    NodeArrays,
    ShapeArrays,
    scorer_kernel,
)
from muster.policy.gpus import free_milli, gpu_class, tightest_device

MOST_GPU_MILLI = 8000


@scorer_kernel
def score(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge) -> tuple[float, int]:
    """The score above, an integer in 0..100."""
    own = gpu_class(shapes.table[shape, GPUS], shapes.table[shape, GPU_MILLI])
    if own == 0:
        return 0.0, 0
    device = tightest_device(node, shapes.table[shape, GPU_MILLI], nodes)
    others = False
    for group in range(1, nodes.gpu_classes.shape[1]):
        if group != own and nodes.gpu_classes[node, group] > 0:
            others = True
    used = max(MOST_GPU_MILLI - free_milli(node, nodes), 0)
    base = 25 * used // MOST_GPU_MILLI
    if nodes.gpu_classes[node, own] > 0:
        return float(base + (50 if others else 75)), device
    return float(base + (0 if others else 25)), device
