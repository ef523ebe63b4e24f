from __future__ import annotations

from muster.engine.kernels import devices, nodes
from muster.model.reasons import WORKLOAD_BIT, Reason


def test_kernel_bits_are_the_masks_of_reasons() -> None:
    static = {"UNSCHEDULABLE", "SELECTOR", "TAINT", "GPU_MODEL", "SPARE"}
    for reason in Reason:
        if reason.name not in static and reason.bit < WORKLOAD_BIT:
            known = [vars(module)[reason.name] for module in (nodes, devices) if reason.name in vars(module)]
            assert known
            assert set(known) == {reason.mask}
