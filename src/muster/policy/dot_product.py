"""dot-product: the node whose free resources point least in the direction of what the pod asks for.

    score = int(100 * (1 - (c/C * p/C + g/G * q/G) / 2))

with c, g the node's free CPU and GPU before the pod, p, q what the pod asks for, C = 128 CPUs and G = 8 GPUs the
largest node of the paper's fleet. A fraction takes the device with the least room that fits. Ties: the first node.

Source: the policy 02-DotProd of the FGD paper's experiments (USENIX ATC 2023), after multi-resource packing.
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
    """The score above, cut to an integer in 0..100."""
    asked = shapes.table[shape, GPUS] * shapes.table[shape, GPU_MILLI]
    cpu = (nodes.table[node, FREE_CPU] / MOST_CPU_MILLI) * (shapes.table[shape, CPU] / MOST_CPU_MILLI)
    gpu = (free_milli(node, nodes) / MOST_GPU_MILLI) * (asked / MOST_GPU_MILLI)
    device = tightest_device(node, shapes.table[shape, GPU_MILLI], nodes)
    return float(int(100.0 * (1.0 - (cpu + gpu) / 2.0))), device
