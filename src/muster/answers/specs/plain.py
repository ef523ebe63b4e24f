"""A gang without a file: so many pods of one shape."""

from __future__ import annotations

import math

from msgspec import Struct

from muster.answers.specs.base import Specs
from muster.answers.specs.places import Places
from muster.errors import InputError
from muster.kube.objects import parse_quantity
from muster.model.fleet import WHOLE_GPU_MILLI, Fleet
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload
from muster.traces.checks import check_pod_set

DEFAULT_NAME = "asked"


class Shape(Struct, frozen=True):
    """What is asked for on the command line; ``gpus`` below 1 is a share of one, ``cpu`` and ``memory`` quantities."""

    pods: int = 1
    gpus: float = 0.0
    cpu: str = "0"
    memory: str = "0"
    gpu_model: str = ""
    topology: str = ""
    prefer: str = ""
    segment: int = 0


def plain_specs(asked: Shape, fleet: Fleet, name: str = "") -> Specs:
    """The gang; raises `InputError` naming the option that makes no sense."""
    places = Places(fleet)
    if not math.isfinite(asked.gpus):
        raise InputError(f"is {asked.gpus:g}", field="--gpus", hint="a whole number a pod, or a share such as 0.5")
    gpus, milli = int(asked.gpus), WHOLE_GPU_MILLI
    if 0 < asked.gpus < 1:
        gpus, milli = 1, round(asked.gpus * WHOLE_GPU_MILLI)
    if asked.gpus < 0 or (milli == WHOLE_GPU_MILLI and gpus != asked.gpus) or not milli:
        raise InputError(f"is {asked.gpus:g}", field="--gpus", hint="a whole number a pod, or a share such as 0.5")
    models: tuple[str, ...] = ()
    if asked.gpu_model:
        models = places.models_like(asked.gpu_model)
        if not models:
            hint = f"it has {', '.join(places.models) or 'none'}"
            raise InputError(f"no GPU of the fleet is a {asked.gpu_model[:40]}", field="--gpu-model", hint=hint)
    shape = PodShape(
        _quantity(asked.cpu, 1000, "--cpu"), _quantity(asked.memory, 1, "--memory"), gpus, milli, models if gpus else ()
    )  # fmt: skip
    if not (shape.gpus or shape.cpu_milli or shape.memory_bytes):
        raise InputError("nothing is asked for", hint="name a SPEC file, or say --gpus, --cpu or --memory of a pod")
    if asked.segment and asked.pods % asked.segment:
        raise InputError(f"{asked.segment} does not divide the {asked.pods} pods", field="--segment")
    if asked.segment and not asked.topology:
        raise InputError("needs the level in whose domains it stays", field="--segment", hint="--topology LEVEL")
    levels: dict[str, str] = {}
    for option, level in (("--topology", asked.topology), ("--prefer", asked.prefer)):
        try:
            levels[option] = places.level(level) if level else ""
        except InputError:
            known = ", ".join(fleet.topology.with_hosts)
            raise InputError(f"unknown topology level {level[:40]!r}", field=option, hint=f"known: {known}") from None
    topology = None
    if any(levels.values()):
        topology = TopologyRequest(levels["--topology"], levels["--prefer"], asked.segment)
    pods = PodSet(shape, asked.pods)
    check_pod_set(pods, "--pods")
    return Specs("the command line", "pods", (Workload(name or DEFAULT_NAME, (pods,), topology=topology),), fleet)


def _quantity(text: str, scale: int, option: str) -> int:
    try:
        amount = parse_quantity(text, scale)
    except (ValueError, OverflowError):
        amount = -1
    if not 0 <= amount < 2**53:
        raise InputError(f"{text[:40]!r} is no quantity", field=option, hint="such as 8, 500m or 64Gi")
    return amount
