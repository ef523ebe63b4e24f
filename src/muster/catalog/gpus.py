"""The GPU models that Muster knows; every value stands beside the key of its source."""

from __future__ import annotations

from muster.catalog import nvidia
from muster.catalog.gpu import Gpu, make_gpu

OTHERS: tuple[Gpu, ...] = (
    make_gpu(
        "MI250X-OAM-128GB",
        "AMD",
        architecture=("CDNA 2", "rocm"),
        form=("OAM", "mi250x"),
        memory_gib=(128, "mi250x"),
        bandwidth=(3280, "stas-acc"),
        link=("xGMI MI250X", "stas-net"),
        power=(560, "mi250x"),
        mig=(False, "mig-unlisted"),
        aliases=("MI250X", "Instinct MI250X"),
        note="Two dies; the operating system shows two GPUs of 64 GB.",
    ),
    make_gpu(
        "MI300X-OAM-192GB",
        "AMD",
        architecture=("CDNA 3", "mi300x"),
        form=("OAM", "mi325x"),
        memory_gib=(192, "mi300x"),
        bandwidth=(5300, "stas-acc"),
        link=("xGMI MI300X", "stas-net"),
        pcie=(5, "mi300x"),
        power=(750, "mi300x"),
        mig=(False, "mig-unlisted"),
        per_node=(8, "mi300x"),
        aliases=("MI300X", "Instinct MI300X", "Instinct MI300X OAM"),
    ),
    make_gpu(
        "MI325X-OAM-256GB",
        "AMD",
        architecture=("CDNA 3", "rocm"),
        form=("OAM", "mi325x"),
        memory_gib=(256, "rocm"),
        bandwidth=(6000, "mi325x"),
        link=("xGMI MI325X", "stas-net"),
        pcie=(5, "mi325x-host"),
        power=(1000, "mi325x"),
        mig=(False, "mig-unlisted"),
        per_node=(8, "mi325x-host"),
        aliases=("MI325X", "Instinct MI325X", "Instinct MI325X OAM"),
    ),
    make_gpu(
        "MI355X-OAM-288GB",
        "AMD",
        architecture=("CDNA 4", "rocm"),
        form=("OAM", "mi350-form"),
        memory_gib=(288, "rocm"),
        bandwidth=(8000, "mi355x"),
        link=("xGMI MI355X", "stas-net"),
        power=(1400, "mi355x"),
        mig=(False, "mig-unlisted"),
        aliases=("MI355X", "Instinct MI355X", "Instinct MI355X OAM"),
    ),
    make_gpu(
        "Gaudi3-OAM-128GB",
        "Intel",
        architecture=("Gaudi 3", "gaudi3"),
        form=("OAM", "gaudi3"),
        memory_gib=(128, "gaudi3"),
        bandwidth=(3670, "gaudi3"),
        link=("Gaudi3 RoCE", "stas-net"),
        pcie=(5, "gaudi3"),
        power=(900, "gaudi3"),
        mig=(False, "mig-unlisted"),
        per_node=(8, "stas-net"),
        aliases=("Gaudi3", "Gaudi 3"),
        note="Air cooled; 1,200 W with liquid.",
    ),
    make_gpu("openb-G2", "", per_node=(8, "openb"), aliases=("G2",), note="Anonymised by the trace's authors."),
    make_gpu("openb-G3", "", per_node=(8, "openb"), aliases=("G3",), note="Anonymised by the trace's authors."),
    make_gpu("spot-series-1", "", aliases=("GPU-series-1", "series-1"), note="Anonymised by the trace's authors."),
    make_gpu(
        "spot-series-2",
        "",
        per_node=(8, "spot-trace"),
        aliases=("GPU-series-2", "series-2"),
        note="Anonymised by the trace's authors.",
    ),
)

GPUS: tuple[Gpu, ...] = nvidia.MODELS + OTHERS
"""All models, older generations first, other vendors and anonymised models last."""
