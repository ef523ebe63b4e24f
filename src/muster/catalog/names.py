"""From any name of a GPU model to the model."""

from __future__ import annotations

import re

from muster.catalog.gpu import Gpu
from muster.catalog.gpus import GPUS
from muster.errors import InputError

_SHARING = re.compile(r"(-shared|-mig-[0-9]+g\.[0-9]+gb[^-]*(-me)?)+$")
"""What GPU Feature Discovery appends to ``nvidia.com/gpu.product``: time-slicing, and MIG with strategy single."""


def normalized(name: str) -> str:
    """One spelling for all: lower case, ``-`` between words, no vendor, no ``-SHARED`` and ``-MIG-1g.10gb`` suffix."""
    words = re.sub(r"[\s_-]+", "-", name.strip().casefold())
    return re.sub(r"^((nvidia|amd|intel|tesla)-)+", "", _SHARING.sub("", words))


def _index() -> dict[str, Gpu]:
    index: dict[str, Gpu] = {}
    for gpu in GPUS:
        for name in (gpu.name, *gpu.aliases):
            known = index.setdefault(normalized(name), gpu)
            assert known is gpu, f"{name} names both {known.name} and {gpu.name}"
    return index


_INDEX = _index()


def find_gpu(name: str) -> Gpu:
    """The model called ``name``: its canonical name, an nvidia-smi name, a node label's value or a trace's short name.

    Case, vendor prefix and the sharing suffixes of node labels do not matter: ``NVIDIA-H100-80GB-HBM3``,
    ``H100 80GB HBM3`` and ``h100`` are the same model. A short name means the most common board (``A100`` is
    A100-SXM4-80GB).

    Raises:
        InputError: for an unknown name, with the nearest known ones.
    """
    gpu = _INDEX.get(normalized(name))
    if gpu is None:
        near = near_names(name)
        hint = f"did you mean {' or '.join(near)}" if near else "'muster catalog gpus' lists the known ones"
        raise InputError(f"unknown GPU model '{name}'", hint=hint)
    return gpu


def near_names(name: str, count: int = 3) -> tuple[str, ...]:
    """Canonical names of the models whose names look most like ``name``, the nearest first; may be empty.

    Names that begin with it go before all others, and are not mixed with them; then those that begin most like it.
    """
    import difflib

    wanted = normalized(name)
    close = [known for known in _INDEX if wanted and known.startswith(wanted)]
    if not close:
        close = difflib.get_close_matches(wanted, _INDEX, n=8 * count, cutoff=0.5)
        close.sort(key=lambda known: -_same_start(known, wanted))
    return tuple(dict.fromkeys(_INDEX[known].name for known in close))[:count]


def _same_start(one: str, other: str) -> int:
    """How many letters two texts begin with in common."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
