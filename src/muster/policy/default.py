"""default: Muster's own policy. It places where the least value is lost, in GPUs, to the work that typically comes.

Of a node: c CPU, m memory, g_i milli free of GPU i. Of a pod: p CPU, q memory, k GPUs of d milli.

    v      = sum of V(g_i)                     value left; V is `Knowledge.curve`, V(1000) = 1
    S_h    = max(0, v - c * hc_h, v - m * hm_h), h = 1, 2      of it stranded: no CPU or memory left to serve it
    B(w)   = whole GPUs among w free ones that multi-GPU pods can use, weighted by their share of the demand

    score of a GPU pod on a device (primes: after placing)
      = - (S_1' - S_1) - s2 (S_2' - S_2)       strand nothing
        - hole (v - v' - k d / 1000)           spoil no space (fractions only)
        - block (B(w) - B(w'))                 break no block of whole GPUs
        - open (1 - d / 1000)                  if a fraction opens a whole GPU
        - fresh                                if the node is untouched
        - pack_gpu (GPUs left) - pack_memory (memory left / 64 GiB)
        - price of the hardware kind * k d / 1000
    score of a CPU pod
      = - (S_1' - S_1) - s2 (S_2' - S_2) - keep v - pack_cpu (c - p) / 16 CPUs - fresh, if untouched

Ties: the first node; on it the first device. Weights, V, B and prices are fitted to the mix of shapes and the fleet by
`muster.planning.tune`; docs/reference/policies.md tells how.
"""

from __future__ import annotations

# Numba has no stubs, and numpy's tell arrays from scalars only in part.
# pyright: reportArgumentType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false
# pyright: reportReturnType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
import numpy as np

from muster.kernels import (
    ALL_PODS,
    CPU,
    FREE_CPU,
    FREE_MEMORY,
    FREE_PODS,
    GPU_MILLI,
    GPUS,
    KIND,
    MEMORY,
    Knowledge,
    NodeArrays,
    ShapeArrays,
    kernel,
    scorer_kernel,
)
from muster.policy.gpus import WHOLE, idle_gpus

HOLE, SECOND, CPU_1, MEMORY_1, CPU_2, MEMORY_2, BLOCK, PACK_GPU, PACK_MEMORY, FRESH, OPEN, KEEP, PACK_CPU = range(13)
PRICE, BLOCKS = 0, 1
"""Columns of `Knowledge.by_kind`: the price, then B(0), B(1), ..."""

CPU_UNIT = 16000.0
MEMORY_UNIT = float(64 << 30)


@kernel
def stranded(value: float, cpu: int, memory: int, weights: Knowledge, which: int) -> float:
    """Value that the node's CPU or memory cannot serve, in GPUs."""
    w = weights.weights
    return max(0.0, value - cpu * w[CPU_1 + 2 * which], value - memory * w[MEMORY_1 + 2 * which])


@kernel
def newly_stranded(before: float, after: float, node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays,
                   knowledge: Knowledge) -> float:  # fmt: skip
    """Weighted growth of both stranded values when the node's value goes from ``before`` to ``after``."""
    cpu = nodes.table[node, FREE_CPU]
    memory = nodes.table[node, FREE_MEMORY]
    cpu_after = cpu - shapes.table[shape, CPU]
    memory_after = memory - shapes.table[shape, MEMORY]
    first = stranded(after, cpu_after, memory_after, knowledge, 0) - stranded(before, cpu, memory, knowledge, 0)
    second = stranded(after, cpu_after, memory_after, knowledge, 1) - stranded(before, cpu, memory, knowledge, 1)
    return first + knowledge.weights[SECOND] * second


@scorer_kernel
def score(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge) -> tuple[float, int]:
    """The score above, in GPUs; never above a few, usually negative."""
    w = knowledge.weights
    value = 0.0
    free = 0
    for device in range(nodes.gpu_free.shape[1]):
        left = nodes.gpu_free[node, device]
        value += knowledge.curve[left]
        free += left
    wanted = shapes.table[shape, GPUS]
    base = -w[FRESH] if nodes.table[node, FREE_PODS] == nodes.table[node, ALL_PODS] else 0.0
    if wanted == 0:
        cpu_left = nodes.table[node, FREE_CPU] - shapes.table[shape, CPU]
        base -= newly_stranded(value, value, node, shape, nodes, shapes, knowledge)
        return base - w[KEEP] * value - w[PACK_CPU] * cpu_left / CPU_UNIT, 0
    milli = shapes.table[shape, GPU_MILLI]
    table = knowledge.by_kind[nodes.table[node, KIND]]
    taken = wanted * milli
    memory_left = nodes.table[node, FREE_MEMORY] - shapes.table[shape, MEMORY]
    base -= w[PACK_MEMORY] * memory_left / MEMORY_UNIT + w[PACK_GPU] * (free - taken) / 1000.0
    base -= table[PRICE] * taken / 1000.0
    idle = idle_gpus(node, nodes)
    if wanted > 1 or milli == WHOLE:
        whole = wanted if milli == WHOLE else min(wanted, idle)
        after = value - taken / 1000.0
        base -= newly_stranded(value, after, node, shape, nodes, shapes, knowledge)
        return base - w[BLOCK] * (table[BLOCKS + idle] - table[BLOCKS + idle - whole]), 0
    best = -np.inf
    chosen = 0
    for device in range(nodes.gpu_free.shape[1]):
        left = nodes.gpu_free[node, device]
        if left < milli or (device > 0 and left == nodes.gpu_free[node, device - 1]):
            continue
        lost = knowledge.curve[left] - knowledge.curve[left - milli]
        this = base - newly_stranded(value, value - lost, node, shape, nodes, shapes, knowledge)
        this -= w[HOLE] * (lost - milli / 1000.0)
        if left == WHOLE:
            this -= w[BLOCK] * (table[BLOCKS + idle] - table[BLOCKS + idle - 1]) + w[OPEN] * (left - milli) / 1000.0
        if this > best:
            best = this
            chosen = device
    return best, chosen
