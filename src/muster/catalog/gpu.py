"""The shape of a GPU model: facts with their sources, and how one is written down."""

from __future__ import annotations

from msgspec import Struct

from muster.catalog.links import find_link

_GIB = 2**30

FACTS = (
    "architecture",
    "form",
    "memory_bytes",
    "memory_gb_per_s",
    "link",
    "link_gb_per_s",
    "pcie_generation",
    "pcie_gb_per_s",
    "power_w",
    "compute_capability",
    "mig_capable",
    "gpus_per_node",
)
"""The fields of `Gpu` that are facts; each is None (not known) or has a source."""


class Gpu(Struct, frozen=True):
    """One GPU model. None means that no source was found; nothing is guessed.

    Attributes:
        name: canonical name, as `muster.model.Device.model` carries it.
        vendor: ``NVIDIA``, ``AMD``, ``Intel``; empty where a trace hides it.
        architecture: the chip's generation.
        form: ``SXM``, ``PCIe``, ``OAM`` or ``superchip``.
        memory_bytes: memory of the board. Drivers report up to 2 % less, 6 % less with ECC in GDDR.
        memory_gb_per_s: peak memory bandwidth, GB/s.
        link: the fastest link between GPUs, such as ``NVLink 4``; ``none`` where there is only PCIe.
        link_gb_per_s: its rate per GPU, unidirectional, GB/s; 0 for ``none``.
        pcie_generation: the highest that the board speaks; the host may run it slower.
        pcie_gb_per_s: unidirectional rate of 16 lanes of that generation, GB/s.
        power_w: power limit as shipped, watts.
        compute_capability: CUDA compute capability, such as ``9.0``; None on other vendors' chips.
        mig_capable: whether it can be split by MIG.
        gpus_per_node: GPUs of the usual node; None where there is no usual one.
        aliases: other names: nvidia-smi, GPU Feature Discovery labels, Slurm, traces.
        sources: ``(field, source key)`` of every field of `FACTS` that is not None.
        note: what to know before relying on a number.
    """

    name: str
    vendor: str
    architecture: str | None = None
    form: str | None = None
    memory_bytes: int | None = None
    memory_gb_per_s: float | None = None
    link: str | None = None
    link_gb_per_s: float | None = None
    pcie_generation: int | None = None
    pcie_gb_per_s: float | None = None
    power_w: int | None = None
    compute_capability: str | None = None
    mig_capable: bool | None = None
    gpus_per_node: int | None = None
    aliases: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    note: str = ""

    def source_of(self, field: str) -> str | None:
        """The source key of a field of `FACTS`; None where the value is not known."""
        return dict(self.sources).get(field)


def make_gpu(
    name: str,
    vendor: str,
    *,
    architecture: tuple[str, str] | None = None,
    form: tuple[str, str] | None = None,
    memory_gib: tuple[int, str] | None = None,
    bandwidth: tuple[float, str] | None = None,
    link: tuple[str, str] | tuple[str, float, str] | None = None,
    pcie: tuple[int, str] | None = None,
    power: tuple[int, str] | None = None,
    cuda: tuple[str, str] | None = None,
    mig: tuple[bool, str] | None = None,
    per_node: tuple[int, str] | None = None,
    aliases: tuple[str, ...] = (),
    note: str = "",
) -> Gpu:
    """Build a model from ``(value, source)`` pairs.

    ``link`` is ``(name, source)`` for a link of the link catalog, whose rate is then taken from there, or
    ``(name, GB/s, source)``.
    """
    facts: dict[str, tuple[object, str] | None] = {
        "architecture": architecture,
        "form": form,
        "memory_bytes": memory_gib and (memory_gib[0] * _GIB, memory_gib[1]),
        "memory_gb_per_s": bandwidth,
        "pcie_generation": pcie,
        "power_w": power,
        "compute_capability": cuda,
        "mig_capable": mig,
        "gpus_per_node": per_node,
    }
    if link is not None:
        facts["link"] = (link[0], link[-1])
        if len(link) == 3:
            facts["link_gb_per_s"] = (link[1], link[2])
        else:
            nominal = find_link(link[0])
            facts["link_gb_per_s"] = (nominal.gb_per_s, nominal.source)
    if pcie is not None:
        slot = find_link(f"PCIe {pcie[0]}.0 x16")
        facts["pcie_gb_per_s"] = (slot.gb_per_s, slot.source)
    known = {field: facts[field] for field in FACTS if facts.get(field) is not None}
    values = {field: pair[0] for field, pair in known.items() if pair is not None}
    sources = tuple((field, pair[1]) for field, pair in known.items() if pair is not None)
    return Gpu(name, vendor, aliases=aliases, sources=sources, note=note, **values)  # type: ignore[arg-type]
