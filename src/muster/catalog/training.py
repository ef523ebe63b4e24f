"""What training reaches and pays: seconds a hop between GPUs, TFLOPS of a GPU, and the shape of a usual model."""

from __future__ import annotations

from msgspec import Struct

from muster.catalog.names import find_gpu


class Hop(Struct, frozen=True):
    """The latency of one hop of a ring: what a step of a collective takes apart from its bytes.

    Attributes:
        name: ``NVLink`` or ``network``.
        latency_s: of one hop, in seconds.
        low_s, high_s: of other protocols, for small and for large messages.
        source: key in `muster.catalog.sources.SOURCES`.
    """

    name: str
    latency_s: float
    low_s: float
    high_s: float
    source: str


HOPS: tuple[Hop, ...] = (
    Hop("NVLink", 1.9e-6, 0.6e-6, 3.4e-6, "nccl-tuning"),
    Hop("network", 4.0e-6, 2.7e-6, 14.0e-6, "nccl-tuning"),
)
"""NCCL's own figures for rings: the protocol LL128; low is LL, high is Simple."""


class Gemm(Struct, frozen=True):
    """The most bf16 TFLOPS (10^12 a second) that matrix products reach on a GPU model."""

    model: str
    tflops: float
    source: str


GEMMS: tuple[Gemm, ...] = (
    Gemm("A100-SXM4-80GB", 271, "stas-acc"),
    Gemm("H100-SXM5-80GB", 794, "stas-acc"),
    Gemm("H200-SXM5-141GB", 794, "stas-acc"),
    Gemm("B200-SXM6-180GB", 1745, "stas-acc"),
)

TRAINING_PART = 0.5
"""Part of `GEMMS` that a well-tuned training job reaches: 380 to 430 TFLOPS on H100 (Llama 3), source ``llama3``."""

TRAINING_PART_SOURCE = "llama3"

WIDTH_A_LAYER = 128
"""Width over layers of a usual dense model (GPT-3: 12,288 / 96; Llama 3: 16,384 / 126), source ``gpt3``.

With 12 L h^2 parameters in L layers of width h, both follow from the number of parameters.
"""

WIDTH_A_LAYER_SOURCE = "gpt3"


def hop_latency_s(name: str) -> float:
    """Seconds of one hop over ``NVLink`` or the ``network``; raises `KeyError`."""
    return {hop.name: hop.latency_s for hop in HOPS}[name]


def training_tflops(model: str) -> float | None:
    """TFLOPS that training reaches on a GPU model; None where nothing was measured on it.

    Raises:
        InputError: a model that the catalog does not have.
    """
    name = find_gpu(model).name
    return next((gemm.tflops * TRAINING_PART for gemm in GEMMS if gemm.model == name), None)


def usual_shape(parameters: float) -> tuple[int, int]:
    """Layers and width of a usual dense model with so many parameters: 12 L h^2 = parameters, h = 128 L."""
    layers = max(1, round((parameters / (12 * WIDTH_A_LAYER**2)) ** (1 / 3)))
    return layers, layers * WIDTH_A_LAYER
