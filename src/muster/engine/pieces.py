"""In which pieces free GPU lies, and so what a count of GPUs does not tell. The parts sum up to what is free.

`muster.policy.fragmentation` asks what is of use to typical pods; this asks nobody, and looks at nodes and GPUs alone.
"""

from __future__ import annotations

import numpy as np

from muster.engine.state import FleetState
from muster.kernels import Ints
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.policy.sharing import MIG, OWNER_SHIFT, SLICE_MASK, SLICE_SHIFT, TABLE_SHIFT

WHOLE_NODES, WHOLE_GPUS, SHARES, SLICES, NO_START = PIECES = (
    "whole_nodes", "whole_gpus", "shares", "slices", "no_start",
)  # fmt: skip
"""``whole_nodes``: on nodes of which all GPUs are free; ``whole_gpus``: whole ones on nodes in use, of no use to a pod
that needs a node; ``shares``: what is left of GPUs that are shared, for pods that may share them; ``slices``: MIG
slices that an instance may still take; ``no_start``: MIG slices that none can take any more."""


def free_pieces(state: FleetState) -> dict[str, int]:
    """Free GPU of schedulable nodes in milli, by the names of PIECES."""
    nodes = state.nodes
    rows = np.array([row for row, node in enumerate(state.node_list) if node.schedulable], np.int64)
    free, use = nodes.gpu_free[rows], nodes.gpu_use[rows]
    split = use >> OWNER_SHIFT == MIG
    whole = (free == WHOLE_GPU_MILLI) & ~split
    all_free = (whole.sum(axis=1) == nodes.gpus[rows])[:, None]
    found = {
        WHOLE_NODES: int(free[whole & all_free].sum()),
        WHOLE_GPUS: int(free[whole & ~all_free].sum()),
        SHARES: int(free[~whole & ~split].sum()),
        SLICES: 0,
        NO_START: 0,
    }
    masks = state.shapes.layouts & SLICE_MASK
    for left, used, offered in zip(
        free[split].tolist(), use[split].tolist(), nodes.gpu_mig[rows][split].tolist(), strict=True
    ):
        startable = min(left, _startable(masks[offered >> TABLE_SHIFT], used >> SLICE_SHIFT & SLICE_MASK, offered))
        found[SLICES] += startable
        found[NO_START] += left - startable
    return found


def _startable(masks: Ints, used: int, offered: int) -> int:
    """What of a split GPU instances could still take, in milli: its slices that a legal instance would cover."""
    covered = every = 0
    for place, mask in enumerate(masks.tolist()):
        every |= mask
        if mask and offered >> place & 1 and not mask & used:
            covered |= mask
    memory = every & 0xFF
    return WHOLE_GPU_MILLI * (covered & memory).bit_count() // max(memory.bit_count(), 1)
