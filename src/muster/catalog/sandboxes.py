"""What isolation costs: memory of a sandbox beside its own, what was measured on a host, how it starts, its GPU.

The measured rows are of one host of 8 cores and about 27 GB with a browser in each sandbox (agent-sandbox benchmarks).
"""

from __future__ import annotations

from msgspec import Struct

SOURCE = "sandbox-runtimes"
"""Key in `muster.catalog.sources.SOURCES`."""


class Runtime(Struct, frozen=True):
    """A way to wall work in.

    Attributes:
        name: as it is asked for.
        overhead_bytes: host memory of one beside what runs in it.
        overhead_cpu: cores of one that the runtime itself takes.
        start_s: until it runs, when the host is not busy.
        start_cpu_s: core-seconds of a start.
        wall: how strong: ``process``, ``kernel in user space`` or ``virtual machine``.
        gpu: what GPU it can have, in words.
        measured: sandboxes that one host of 8 cores and 27 GB held steadily; 0: not measured.
    """

    name: str
    overhead_bytes: float
    overhead_cpu: float
    start_s: float
    start_cpu_s: float
    wall: str
    gpu: str
    measured: int = 0


MIB = 2.0**20

RUNTIMES: tuple[Runtime, ...] = (
    Runtime("runc", 0.0, 0.0, 1.0, 0.5, "process", "any: whole, MIG, shared", 120),
    Runtime("gvisor", 65 * MIB, 0.0, 1.0, 1.0, "kernel in user space", "whole, listed drivers; no MIG", 80),
    Runtime("firecracker", 5 * MIB, 0.0, 0.125, 0.05, "virtual machine", "none", 0),
    Runtime("kata-clh", 430 * MIB, 0.0, 2.4, 11.0, "virtual machine", "none", 40),
    Runtime("kata-qemu", 374 * MIB, 0.0, 2.4, 11.0, "virtual machine", "whole, by pass-through", 20),
    Runtime("kata-qemu-gpu", 10_240 * MIB, 1.0, 10.0, 11.0, "virtual machine", "whole, by pass-through", 0),
    Runtime("kata-qemu-snp", 2_048 * MIB, 1.0, 10.0, 11.0, "confidential virtual machine", "none", 0),
)
"""gVisor: the sentry's memory beside runc under load. Kata: what a browser took more than under runc, measured; its
RuntimeClass reserves 130 to 320 MiB and 0.25 CPU. With a GPU, and confidential: what the RuntimeClass reserves. Starts
of Kata cost about 11 core-seconds (measured); of runc and gVisor about one is taken."""

POD_LIMIT = 110
"""Pods of a node by default (kubelet)."""

API_SEATS, SEATS_A_CLAIM = 600, 272 / 300
"""Seats of the API server's priority and fairness by default, and those that one claim of a burst takes (measured)."""


def runtime(name: str) -> Runtime | None:
    """The runtime of a name."""
    return next((each for each in RUNTIMES if each.name == name), None)
