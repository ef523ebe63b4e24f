"""best-fit: the node with the least CPU and GPU left after the pod.

    score = int(100 * (1 - (c/C + g/G) / 2))

with c, g the free CPU and GPU of the node after the pod, C = 128 CPUs and G = 8 GPUs the largest node of the paper's
fleet. The original then stretches the scores of all feasible nodes to 0..100, which cannot move the maximum. A
fraction takes the device with the least room that fits. Ties: the first node.

Source: the policy 05-BestFit of the FGD paper's experiments (USENIX ATC 2023).
"""

from __future__ import annotations

from muster.kernels import (
    CPU,
    FREE_CPU,
    GPU_MILLI,
    GPUS,
    Knowledge,
    NodeArrays,
    ShapeArrays,
    scorer_kernel,
)
from muster.policy.gpus import MOST_CPU_MILLI, MOST_GPU_MILLI, free_milli, tightest_device


@scorer_kernel
def score(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge) -> tuple[float, int]:
    """The score above, cut to an integer."""
    left = (nodes.table[node, FREE_CPU] - shapes.table[shape, CPU]) / MOST_CPU_MILLI * 0.5
    asked = shapes.table[shape, GPUS] * shapes.table[shape, GPU_MILLI]
    left += (free_milli(node, nodes) - asked) / MOST_GPU_MILLI * 0.5
    return float(int((1.0 - left) * 100.0)), tightest_device(node, shapes.table[shape, GPU_MILLI], nodes)
