"""Taking what is free on some nodes out of sight, and putting it back."""

from __future__ import annotations

from muster.kernels import CHANGES, ON_NODE, RING, VERSION, Ints, NodeArrays, entry_kernel


@entry_kernel
def hold_free(rows: Ints, held: Ints, sign: int, nodes: NodeArrays) -> None:
    """Hide (``sign`` 1) or show again (-1) on the nodes ``rows`` what ``held`` says; its own reverse.

    ``held`` has a row a node: CPU, memory and pods, then each device. Nothing is hidden that is not free.
    """
    for index in range(rows.shape[0]):
        node = rows[index]
        for part in range(ON_NODE):
            if sign > 0:
                held[index, part] = min(held[index, part], nodes.table[node, part])
            nodes.table[node, part] -= sign * held[index, part]
        for device in range(nodes.gpu_free.shape[1]):
            if sign > 0:
                held[index, ON_NODE + device] = min(held[index, ON_NODE + device], nodes.gpu_free[node, device])
            nodes.gpu_free[node, device] -= sign * held[index, ON_NODE + device]
        nodes.table[node, VERSION] += 1
        count = nodes.changes[CHANGES]
        nodes.changes[RING + count % (nodes.changes.shape[0] - RING)] = node
        nodes.changes[CHANGES] = count + 1
