"""The generator's named mixes: published statistics as data, each with its source. No row of any trace is in here.

Sources:
    openb: Alibaba's 2023 GPU trace as counted in FGD (USENIX ATC'23) and its artifact: 8,152 pods, of which 7,064 with
        GPUs (13.3 % without), 3,078 fractional (43.6 % of GPU pods, 28.5 % of GPU demand), 16, 15 and 44 pods of 2, 4
        and 8 GPUs (7.3 % of GPU demand), 6,086.8 GPUs and 85,436 vCPU in all, 33 % of GPU pods with a model constraint
        in production; the variants are those of the paper.
    acme: cluster_summary.csv of AcmeTrace (NSDI'24, CC-BY-4.0): jobs, average, median and longest run, average and
        largest size of five clusters' GPU jobs.
    ours: assumptions, where nothing is published.
"""

from __future__ import annotations

from msgspec import Struct

Weighted = tuple[tuple[float, float], ...]
"""Pairs of value and weight; weights add up to 1."""


class PodMix(Struct, frozen=True):
    """Independent pods as in openb.

    Attributes:
        cpu_pods: share of pods without GPU.
        shared: share of the GPU demand that comes from pods with a fraction of one GPU.
        multi: share of the GPU demand that comes from pods with 2, 4 or 8 GPUs.
        constrained: share of the GPU pods that name the GPU models that they accept.
        source: of these figures.
    """

    cpu_pods: float
    shared: float
    multi: float
    constrained: float
    source: str


class JobMix(Struct, frozen=True):
    """Training jobs over time as one cluster of Acme's summary has them.

    Attributes:
        mean_s, median_s, longest_s: run time.
        mean_gpus, largest_gpus: size; the median is 1 GPU (0.5 for PAI).
        smallest_milli: the smallest size, in thousandths of a GPU; sizes are this times a power of two.
        smallest_share: least share of jobs of the smallest size, so that the median holds.
        queues: virtual clusters.
        source: of these figures.
    """

    mean_s: float
    median_s: float
    longest_s: float
    mean_gpus: float
    largest_gpus: int
    source: str
    smallest_milli: int = 1000
    smallest_share: float = 0.52
    queues: int = 8


_OPENB = "openb (FGD, USENIX ATC'23)"
_ACME = "acme (AcmeTrace cluster_summary.csv)"

MIXES: dict[str, PodMix | JobMix] = {
    "default": PodMix(0.1335, 0.285, 0.073, 0.0, f"{_OPENB}, default workload"),
    "cpu-heavy": PodMix(0.25, 0.285, 0.073, 0.0, f"{_OPENB}, 25 % of pods without GPU"),
    "share-heavy": PodMix(0.1335, 0.80, 0.073, 0.0, f"{_OPENB}, 80 % of GPU demand is fractional"),
    "multi-gpu": PodMix(0.1335, 0.154, 0.50, 0.0, f"{_OPENB}, 50 % of GPU demand from 2, 4 and 8 GPUs"),
    "constrained": PodMix(0.1335, 0.285, 0.073, 0.33, f"{_OPENB}, 33 % of GPU pods name models, as in production"),
    "philly": JobMix(18006, 874, 4240676, 1.928, 128, f"{_ACME}, Philly; 15 virtual clusters", queues=15),
    "seren": JobMix(1414.3, 122, 1209604, 5.68, 1024, f"{_ACME}, Seren"),
    "kalos": JobMix(1259.7, 124, 625740, 26.77, 1024, f"{_ACME}, Kalos"),
    "helios": JobMix(6651.7, 206, 4320009, 3.716, 2048, f"{_ACME}, Helios"),
    "pai": JobMix(4787.1, 480.7, 626371, 0.683, 8, f"{_ACME}, PAI", smallest_milli=250, smallest_share=0.3, queues=8),
}
"""Name to mix."""

PAI_RUN = MIXES["pai"]
"""openb's operator also runs PAI: its run times stand in for the pods', whose distribution is not published."""

SHARES: Weighted = (
    (0.1, 0.02), (0.2, 0.08), (0.25, 0.06), (0.3, 0.06), (0.4, 0.10), (0.5, 0.21), (0.6, 0.08), (0.7, 0.07),
    (0.75, 0.08), (0.8, 0.12), (0.9, 0.12),
)  # fmt: skip
"""Fraction of a GPU; ours, with openb's mean of 0.564 (28.5 % of 6,086.8 GPUs by 3,078 pods)."""

MULTI: Weighted = ((2, 16 / 75), (4, 15 / 75), (8, 44 / 75))
"""GPUs of pods with several; openb's counts."""

CORES_CPU_POD: Weighted = ((4, 0.3), (8, 0.3), (12, 0.15), (16, 0.15), (32, 0.1))
CORES_SHARED: Weighted = ((4, 0.25), (6, 0.25), (8, 0.3), (12, 0.2))
CORES_WHOLE: Weighted = ((4, 0.05), (8, 0.35), (12, 0.35), (16, 0.2), (24, 0.05))
CORES_MULTI: Weighted = ((8, 0.4), (10, 0.4), (12, 0.2))
"""Cores of a pod, and of each GPU of pods with several; ours, with openb's mean of 10.5 cores a pod and 14.0 a GPU."""

MEMORY_GIB_PER_CORE: Weighted = ((2, 0.7), (4, 0.3))
"""Ours."""

MODELS_NAMED: Weighted = ((1, 0.8), (2, 0.15), (3, 0.05))
"""How many models a constrained pod names; ours. Models are drawn by the number of nodes that have them."""

QUALITIES = ((0.57, "LS"), (0.43, "BE"))
"""Quality of service: latency-sensitive and best effort; ours."""

DIURNAL_SWING, PEAK_HOUR = 0.5, 15.0
"""Arrivals an hour are the mean times 1 + swing * cos(2 pi (hour - peak) / 24); ours."""

JOB_CORES_PER_GPU, JOB_MEMORY_GIB_PER_GPU = 6, 32
"""What jobs ask for beside GPUs; ours: half of a node with 12 cores and 64 GiB a GPU."""
