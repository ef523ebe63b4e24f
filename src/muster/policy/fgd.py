"""fgd: the node and device where the pod adds least to the fleet's fragment (fragmentation gradient descent).

    score = int(100 / (1 + exp(-(F_before - F_after) / 1000)))

with F the node's fragment in milli GPU (`muster.policy.fragmentation`), before and after the pod. A fraction takes
the device with the highest score, the lowest index of equals; whole GPUs the first idle ones. Ties: the first node.
The cut to an integer and the tie rule are part of the policy: without them it packs worse (the paper's results are
reproduced only with both).

Source: Weng et al., USENIX ATC 2023; the policy 06-FGD of its experiments.
"""

from __future__ import annotations

import math

from muster.kernels import (
    CPU,
    FREE_CPU,
    GPU_MILLI,
    GPUS,
    Knowledge,
    NodeArrays,
    ShapeArrays,
    kernel,
    scorer_kernel,
)
from muster.policy.fragmentation import fragment_milli
from muster.policy.gpus import WHOLE


@kernel
def gradient_score(less: float) -> int:
    """The cut sigmoid of the fragment that the pod takes away, in milli GPU."""
    return int(1.0 / (1.0 + math.exp(-(less / 1000.0))) * 100.0)


@scorer_kernel
def score(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge) -> tuple[float, int]:
    """The score above. The node is changed to the state after the pod and back; nothing of it stays."""
    wanted = shapes.table[shape, GPUS]
    milli = shapes.table[shape, GPU_MILLI]
    before = fragment_milli(node, nodes, shapes, knowledge)
    nodes.table[node, FREE_CPU] -= shapes.table[shape, CPU]
    best = 0
    chosen = -1
    if wanted == 1 and milli < WHOLE:
        for device in range(nodes.gpu_free.shape[1]):
            if nodes.gpu_free[node, device] >= milli:
                nodes.gpu_free[node, device] -= milli
                value = gradient_score(before - fragment_milli(node, nodes, shapes, knowledge))
                nodes.gpu_free[node, device] += milli
                if chosen < 0 or value > best:
                    best = value
                    chosen = device
    else:
        taken = 0
        for device in range(nodes.gpu_free.shape[1]):
            if wanted > 0 and nodes.gpu_free[node, device] >= milli:
                nodes.gpu_free[node, device] -= milli
                taken |= 1 << device
                wanted -= 1
        best = gradient_score(before - fragment_milli(node, nodes, shapes, knowledge))
        for device in range(nodes.gpu_free.shape[1]):
            if (taken >> device) & 1:
                nodes.gpu_free[node, device] += milli
    nodes.table[node, FREE_CPU] += shapes.table[shape, CPU]
    return float(best), chosen
