"""Links and what they really carry: NVLink, PCIe, InfiniBand and RoCE ports, node totals, measured fractions.

All rates are unidirectional, in GB/s (1 GB = 10^9 bytes; 8 Gb/s of line rate are 1 GB/s).
"""

from __future__ import annotations

from msgspec import Struct

KINDS = ("nvlink", "scale-up", "pcie", "infiniband", "nic", "node", "measured")
"""Kinds of entries, in the order of `LINKS`."""


class Link(Struct, frozen=True):
    """One link, port, node total or measurement.

    Attributes:
        kind: one of `KINDS`.
        name: unique in the catalog.
        gb_per_s: unidirectional rate; for a measurement the (lowest) bus bandwidth seen.
        per: what the rate belongs to: ``GPU``, ``slot``, ``port`` or ``node``.
        source: key in `muster.catalog.sources.SOURCES`.
        made_of: how the rate comes about, such as ``8 x 400 Gb/s``.
        of_gb_per_s: for a measurement, the nominal rate that it is a part of.
        high_gb_per_s: for a measurement, the highest value seen.
        note: a condition that the number depends on.
    """

    kind: str
    name: str
    gb_per_s: float
    per: str
    source: str
    made_of: str = ""
    of_gb_per_s: float | None = None
    high_gb_per_s: float | None = None
    note: str = ""

    @property
    def fraction(self) -> float | None:
        """Achieved part of the nominal rate (the lowest seen); None where nothing was measured."""
        return None if self.of_gb_per_s is None else self.gb_per_s / self.of_gb_per_s


def _measured(name: str, low: float, high: float | None, of: float, per: str, source: str, note: str = "") -> Link:
    return Link("measured", name, low, per, source, of_gb_per_s=of, high_gb_per_s=high, note=note)


LINKS: tuple[Link, ...] = (
    Link("nvlink", "NVLink 1", 80, "GPU", "stas-net", "4 links", note="P100"),
    Link("nvlink", "NVLink 2", 150, "GPU", "stas-net", "6 links", note="V100"),
    Link("nvlink", "NVLink 3", 300, "GPU", "stas-net", "12 links", note="A100"),
    Link("nvlink", "NVLink 4", 450, "GPU", "stas-net", "18 links", note="H100, H200"),
    Link("nvlink", "NVLink 5", 900, "GPU", "stas-net", "18 links", note="B200, GB200"),
    Link("nvlink", "NVLink 6", 1800, "GPU", "stas-net", note="Rubin, announced"),
    Link("scale-up", "xGMI MI250X", 350, "GPU", "stas-net", "7 x 50", note="50 between two GPUs"),
    Link("scale-up", "xGMI MI300X", 448, "GPU", "stas-net", "7 x 64", note="64 between two GPUs"),
    Link("scale-up", "xGMI MI325X", 448, "GPU", "stas-net", "7 x 64", note="64 between two GPUs"),
    Link("scale-up", "xGMI MI355X", 535.5, "GPU", "stas-net"),
    Link("scale-up", "Gaudi3 RoCE", 600, "GPU", "stas-net", "24 x 200 Gb/s"),
    Link("scale-up", "TPU7x ICI", 600, "GPU", "stas-net"),
    Link("pcie", "PCIe 3.0 x16", 15.75, "slot", "pcie", "16 x 8 GT/s"),
    Link("pcie", "PCIe 4.0 x16", 31, "slot", "stas-net"),
    Link("pcie", "PCIe 5.0 x16", 63, "slot", "stas-net"),
    Link("pcie", "PCIe 6.0 x16", 121, "slot", "stas-net"),
    Link("infiniband", "InfiniBand EDR 4x", 12.5, "port", "stas-net", "100 Gb/s"),
    Link("infiniband", "InfiniBand HDR 4x", 25, "port", "stas-net", "200 Gb/s"),
    Link("infiniband", "InfiniBand NDR 4x", 50, "port", "stas-net", "400 Gb/s"),
    Link("infiniband", "InfiniBand XDR 4x", 100, "port", "stas-net", "800 Gb/s"),
    Link("nic", "ConnectX-7", 50, "port", "stas-net", "400 Gb/s", note="InfiniBand or RoCE"),
    Link("nic", "ConnectX-8", 100, "port", "stas-net", "800 Gb/s", note="InfiniBand or RoCE"),
    Link("nic", "ConnectX-9", 200, "port", "stas-net", "1,600 Gb/s", note="announced"),
    Link("node", "DGX H100", 400, "node", "stas-net", "8 x 400 Gb/s"),
    Link("node", "DGX B300", 800, "node", "stas-net", "8 x 800 Gb/s"),
    Link("node", "AWS P4d", 50, "node", "stas-net", "4 x 100 Gb/s", note="EFA"),
    Link("node", "AWS P5, P5e", 400, "node", "stas-net", "32 x 100 Gb/s", note="EFA"),
    Link("node", "AWS P5en", 400, "node", "stas-net", "16 x 200 Gb/s", note="EFA"),
    Link("node", "AWS P6-B200", 400, "node", "stas-net", "8 x 400 Gb/s", note="EFA"),
    Link("node", "AWS P6-B300", 800, "node", "stas-net", "16 x 400 Gb/s", note="EFA"),
    Link("node", "GCP A3 High", 100, "node", "stas-net", "4 x 200 Gb/s", note="GPUDirect-TCPX"),
    Link("node", "GCP A3 Mega", 200, "node", "stas-net"),
    _measured("all-reduce 8 A100", 235, None, 300, "GPU", "stas-net", "ring"),
    _measured("all-reduce 8 H100", 365, 370, 450, "GPU", "nccl-tests", "ring"),
    _measured("all-reduce 8 H100 NVLS", 476, 480, 450, "GPU", "nccl-tests", "in the switch"),
    _measured("all-reduce 8 H200", 367, None, 450, "GPU", "stas-net", "ring"),
    _measured("all-reduce 8 B200", 741, 846, 900, "GPU", "stas-net", "4 to 16 GiB"),
    _measured("all-reduce 8 MI300X", 312.9, None, 448, "GPU", "stas-net", "2 GPUs alone: 47.7"),
    _measured("all-reduce 4 x 8 B200", 36.5, None, 50, "GPU", "stas-net", "on the NIC, 4 GiB"),
    _measured("NCCL on NDR", 46, 48, 50, "port", "nccl-tests"),
    _measured("ib_write_bw on NDR", 49, None, 50, "port", "ib-write", "392 Gb/s"),
    _measured("GPU on PCIe 5.0 x16", 55, None, 63, "slot", "stas-net"),
    _measured("host to H100, floor", 48, None, 63, "slot", "azure-nhc", "Azure's check"),
)
"""All links. The rates of the network chapter were read in the facts collected on 2026-11-30."""

LEAVING_THE_NODE: tuple[tuple[int, float], ...] = ((32 * 2**10, 120.0), (4 * 2**20, 4.0), (512 * 2**20, 2.0))
"""All-reduce time outside a node over inside it, by message size in bytes (this size and larger); source stas-net.

Measured on B200 at 32 KiB, 4 to 16 MiB and from 512 MiB on; between these sizes nothing is known.
"""

_BY_NAME = {link.name: link for link in LINKS}


def find_link(name: str) -> Link:
    """The link called ``name`` exactly; raises `KeyError`."""
    return _BY_NAME[name]
