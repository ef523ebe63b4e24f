"""From the GPUs that are there to the work that they do: the funnel, and which class of waste each GPU's gap is.

Of a window of minutes, with shares of 1 of a GPU's time: u GPU_UTIL (a kernel ran), s SM_ACTIVE (its multiprocessors
had work), t PIPE_TENSOR_ACTIVE, d DRAM_ACTIVE, m of its memory held. Each next share is a part of the one before:

    capacity >= healthy >= allocated >= running >= sum u >= sum s >= sum t            in GPUs

The class of a GPU is the first that fits, thresholds as NVIDIA's guidance and the measured fleets have them:

    idle-held     u <= 0.01 and m > 0.05
    starved       u < 0.30                       waits for data or the CPU
    launch-bound  u > 0.80 and s < 0.30          kernels too small or too many
    comm-bound    network above 0.5 and s < 0.5  waits for other GPUs
    memory-bound  d > 0.50 and t < 0.10
    good          s >= 0.80 or t >= 0.30
    partial       s >= 0.50
    mixed         the rest

Sources: NVIDIA DCGM field identifiers 203, 1002, 1004, 1005; NVIDIA's advice on SM_ACTIVE (0.8 needed, below 0.5 poor).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from muster.errors import InputError
from muster.planning.rows import read_row

CLASSES = ("idle-held", "starved", "launch-bound", "comm-bound", "memory-bound", "partial", "mixed", "good")

POLICIES: Mapping[str, str] = {
    "idle-held": "stop or shrink what holds GPUs idle (idle_after_s in the scheduler's configuration)",
    "starved": "more CPU and data loaders a GPU, data beside the GPU; muster plan stranded tells what the nodes allow",
    "launch-bound": "CUDA graphs, larger batches; or let several share a GPU: muster plan sharing",
    "comm-bound": "place the gang closer (muster plan topology), check the fabric (muster doctor)",
    "memory-bound": "a GPU with less compute does as well; larger batches where memory allows",
    "partial": "profile: half of the multiprocessors wait; batch size, fused kernels",
    "mixed": "profile before anything else: no single cause shows",
    "good": "nothing",
}
"""Class to the policy that closes its gap."""


class Use(Struct, frozen=True):
    """Some GPUs of a tenant that are used alike; shares of 1, None where they were not measured.

    Attributes:
        tenant: who holds them.
        gpus: how many, in the mean over the window.
        gpu_util, sm_active, tensor_active, dram_active, network, memory: see the module's text.
    """

    tenant: str
    gpus: float
    gpu_util: float
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    network: float | None = None
    memory: float | None = None


def class_of(use: Use) -> str:
    """The class of GPUs that are used alike; what was not measured decides nothing."""
    s, t, d = use.sm_active, use.tensor_active, use.dram_active
    if use.gpu_util <= 0.01 and (use.memory is None or use.memory > 0.05):
        return "idle-held"
    if use.gpu_util < 0.30:
        return "starved"
    if s is not None and use.gpu_util > 0.80 and s < 0.30:
        return "launch-bound"
    if s is not None and use.network is not None and use.network > 0.5 and s < 0.5:
        return "comm-bound"
    if d is not None and t is not None and d > 0.5 and t < 0.10:
        return "memory-bound"
    if (s is not None and s >= 0.80) or (t is not None and t >= 0.30):
        return "good"
    return "partial" if s is not None and s >= 0.50 else "mixed"


class Funnel(Struct, frozen=True):
    """GPUs at each stage; None where nothing of it was measured."""

    held: float
    util: float
    sm: float | None
    tensor: float | None


def funnel(uses: Iterable[Use]) -> Funnel:
    """The stages of what is held, in GPUs. SM and tensor count what was measured only, scaled to all that is held."""
    uses = list(uses)
    held = sum(each.gpus for each in uses)
    util = sum(each.gpus * each.gpu_util for each in uses)
    return Funnel(held, util, _scaled(uses, "sm_active"), _scaled(uses, "tensor_active"))


def _scaled(uses: list[Use], name: str) -> float | None:
    """Sum of a share over GPUs, at most all; the rest is in proportion to GPU_UTIL of what was measured."""
    known = [(each, value) for each in uses if (value := getattr(each, name)) is not None]
    base = sum(each.gpus * each.gpu_util for each, _ in known)
    if not known:
        return None
    found = sum(each.gpus * value for each, value in known)
    total = sum(each.gpus * each.gpu_util for each in uses)
    if not base:  # nothing ran of what was measured
        return found
    return min(found * (total / base), sum(each.gpus for each in uses))


def by_class(uses: Iterable[Use]) -> dict[str, tuple[float, float]]:
    """Of each class that is there: GPUs, and GPUs that do nothing (by SM_ACTIVE, else GPU_UTIL)."""
    found: dict[str, tuple[float, float]] = {}
    for each in uses:
        name = class_of(each)
        gpus, idle = found.get(name, (0.0, 0.0))
        works = each.sm_active if each.sm_active is not None else each.gpu_util
        found[name] = gpus + each.gpus, idle + each.gpus * (1 - works)
    return {name: found[name] for name in CLASSES if name in found}


_FIELDS = {
    "gpus": "gpus", "util": "gpu_util", "sm": "sm_active", "tensor": "tensor_active", "dram": "dram_active",
    "network": "network", "memory": "memory",
}  # fmt: skip


def parse_use(text: str, field: str = "--use") -> Use:
    """``tenant:gpus=64,util=0.9,sm=0.4,tensor=0.1,dram=0.2,memory=0.8``; raises `InputError`."""
    tenant, said = read_row(text, ("gpus", "util"), tuple(_FIELDS)[2:], field, _HINT)
    values: dict[str, float] = {}
    for name, number in said.items():
        try:
            value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not 0 <= value <= (1e7 if name == "gpus" else 1):
            what = f"{name}={number[:30]!r} is no {'number' if name == 'gpus' else 'share'}"
            raise InputError(what, field=field, hint=_HINT)
        values[_FIELDS[name]] = value
    return Use(tenant, **values)


def use_text(use: Use) -> str:
    """The same as `parse_use` reads it."""
    names = ((name, getattr(use, field)) for name, field in _FIELDS.items())
    return f"{use.tenant}:" + ",".join(f"{name}={value:.4g}" for name, value in names if value is not None)


_HINT = "such as vision:gpus=64,util=0.9,sm=0.4,tensor=0.1,memory=0.8 (shares of 1)"
