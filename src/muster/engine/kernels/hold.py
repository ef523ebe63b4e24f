"""Taking what is free on some nodes out of sight, and putting it back."""

from __future__ import annotations

from muster.kernels import Ints, NodeArrays, entry_kernel


@entry_kernel
def hold_free(rows: Ints, held: Ints, sign: int, nodes: NodeArrays) -> None:
    """Hide (``sign`` 1) or show again (-1) on the nodes ``rows`` what ``held`` says; its own reverse.

    ``held`` has a row a node: CPU, memory, then each device. Nothing is hidden that is not free.
    """
    for index in range(rows.shape[0]):
        node = rows[index]
        if sign > 0:
            held[index, 0] = min(held[index, 0], nodes.cpu_free[node])
            held[index, 1] = min(held[index, 1], nodes.memory_free[node])
        nodes.cpu_free[node] -= sign * held[index, 0]
        nodes.memory_free[node] -= sign * held[index, 1]
        for device in range(nodes.gpu_free.shape[1]):
            if sign > 0:
                held[index, 2 + device] = min(held[index, 2 + device], nodes.gpu_free[node, device])
            nodes.gpu_free[node, device] -= sign * held[index, 2 + device]
        nodes.version[node] += 1
        count = nodes.change_count[0]
        nodes.changes[count % nodes.changes.shape[0]] = node
        nodes.change_count[0] = count + 1
