"""random: any feasible node with equal chance, and any device of it that fits. A baseline.

Source: the policy 01-Random of the FGD paper's experiments (USENIX ATC 2023).
"""

from __future__ import annotations

from muster.kernels import Knowledge, NodeArrays, ShapeArrays, scorer_kernel


@scorer_kernel
def score(node: int, shape: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge) -> tuple[float, int]:
    """All feasible nodes are equal; the engine draws one (selection ``random``)."""
    return 0.0, 0
