"""The fleet that a spec is read against where none is named: it has what the spec names, on nodes of one size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec.structs import replace

from muster.catalog import find_gpu
from muster.errors import InputError
from muster.kube.nodes import HOST_LABEL, LEVEL_LABELS, MODEL_LABELS
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.snapshot import Snapshot
from muster.slurm.hostlist import expand
from muster.slurm.sbatch_lines import Option, gpus_of

GIB = 2**30
GPUS, CPUS, MEMORY_GIB = 8, 128, 1024
"""Of a node: the usual node of eight GPUs."""
USUAL = "H100-SXM5-80GB"
"""The GPU model where none is named: it is not asked for, but MIG profiles are looked up in it."""
FEATURE = "feature.node.kubernetes.io/"
"""Begin of the labels that Node Feature Discovery writes; they stand for Slurm's features."""
_LEVELS = ("block", "rack")
_SOME_DAY_S = 1.8e9


def stand_in(components: Iterable[Iterable[Option]], gpus: int = GPUS) -> Snapshot:
    """Nodes of ``gpus`` GPUs of each model that the options name, with the host names and features that they name."""
    models: dict[str, None] = {}
    hosts: dict[str, None] = {}
    features: dict[str, None] = {}
    for options in components:
        for option in options:
            if option.name in ("gpus", "gpus-per-node", "gpus-per-task"):
                models.update(dict.fromkeys(_models([option.value])))
            elif option.name == "gres":
                parts = re.sub(r"\([^)]*\)", "", option.value).split(",")
                models.update(dict.fromkeys(_models(p.partition(":")[2] for p in parts if p.startswith("gpu:"))))
            elif option.name in ("nodelist", "exclude"):
                hosts.update(dict.fromkeys(_names(option.value)))
            elif option.name == "constraint":
                features.update(dict.fromkeys(re.findall(r"[\w.+-]+", option.value)))
    for name in [each for each in features if _is_gpu(each)]:
        models[_model(name)] = None
        del features[name]
    labels = tuple(sorted((f"{FEATURE}{name}", name) for name in features))
    names = {model: f"node-{model.lower()}" for model in models or (USUAL,)}
    nodes = [_node(name, model, gpus, labels) for model, each in names.items() for name in (f"{each}-1", f"{each}-2")]
    nodes += [_node(name, next(iter(names)), gpus, labels) for name in hosts]
    return Snapshot(Fleet(tuple(nodes), Topology(_LEVELS), "stand-in"), taken_s=_SOME_DAY_S, source="stand-in")


def _node(name: str, model: str, gpus: int, labels: tuple[tuple[str, str], ...]) -> Node:
    try:
        memory = find_gpu(model).memory_bytes or 0
    except InputError:
        memory = 0
    devices = tuple(Device(at, model, memory) for at in range(gpus))
    return Node(name, CPUS * 1000, MEMORY_GIB * GIB, devices, labels, topology=("block-1", "rack-1"))


def _models(values: Iterable[str]) -> list[str]:
    found: list[str] = []
    for value in values:
        try:
            kind, _ = gpus_of(value)
        except ValueError:
            continue  # told by whoever reads the option
        if kind:
            found.append(_model(kind))
    return found


def _model(name: str) -> str:
    try:
        return find_gpu(name).name
    except InputError:
        return name


def _is_gpu(name: str) -> bool:
    try:
        find_gpu(name)
    except InputError:
        return False
    return True


def _names(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except InputError:
        return ()  # told by whoever reads the option


def stand_in_for_objects(objects: Iterable[Mapping[str, Any]], gpus: int = GPUS) -> Snapshot:
    """Nodes of ``gpus`` GPUs of each model, with each label, that the objects' selectors name; all levels are there."""
    models: dict[str, None] = {}
    labels: dict[tuple[str, str], None] = {}
    hosts: dict[str, None] = {}
    for key, value in (pair for each in objects for pair in _pairs(each)):
        if key in MODEL_LABELS:
            models[_model(value)] = None
        elif key == HOST_LABEL:
            hosts[value] = None
        else:
            labels[key, value] = None
    levels = tuple(level for level, _ in LEVEL_LABELS)
    place = tuple(f"{level}-1" for level in levels)
    several: dict[str, tuple[tuple[str, str], ...]] = {}
    for pair in labels or {("", ""): None}:
        several[f"n{len(several)}"] = (pair,) if pair[0] else ()
    nodes = [
        replace(_node(f"node-{model.lower()}-{name}", model, gpus, own), topology=place)
        for model in models or (USUAL,)
        for name, own in several.items()
    ]
    nodes += [replace(_node(name, next(iter(models), USUAL), gpus, ()), topology=place) for name in hosts]
    return Snapshot(Fleet(tuple(nodes), Topology(levels), "stand-in"), taken_s=_SOME_DAY_S, source="stand-in")


def _pairs(data: Any) -> Iterator[tuple[str, str]]:
    """Labels that node selectors and node affinities anywhere in an object name."""
    if isinstance(data, list):
        for each in cast("list[Any]", data):
            yield from _pairs(each)
    elif isinstance(data, Mapping):
        for key, value in cast("Mapping[str, Any]", data).items():
            if key == "nodeSelector" and isinstance(value, Mapping):
                yield from ((str(name), str(own)) for name, own in cast("Mapping[str, Any]", value).items())
            elif key == "matchExpressions" and isinstance(value, list):
                for each in cast("list[Any]", value):
                    if isinstance(each, Mapping) and cast("Mapping[str, Any]", each).get("operator") in (
                        "In",
                        "NotIn",
                        "Exists",
                    ):
                        known = cast("Mapping[str, Any]", each)
                        for own in known.get("values") or ("true",):
                            yield str(known.get("key")), str(own)
            else:
                yield from _pairs(value)
