"""Which nodes a job may use, as selectors and affinities of pods, in the labels that the fleet's nodes bear."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import Any

from muster.answers.specs.places import is_model
from muster.answers.translate.base import Remarks
from muster.answers.translate.stand_in import FEATURE
from muster.catalog import find_gpu
from muster.catalog.products import NVIDIA_PRODUCTS
from muster.errors import InputError
from muster.kube.nodes import HOST_LABEL, LEVEL_LABELS, MODEL_LABELS
from muster.model.fleet import HOST, Fleet
from muster.slurm.hostlist import expand
from muster.slurm.sbatch_lines import Option

Pair = tuple[str, str]
_TOKEN = re.compile(r"[&|()]|[^&|()\s]+")


class Where:
    """Makes labels of one fleet; ``assumed`` says that it only stands in for one that was not named."""

    def __init__(self, fleet: Fleet, remarks: Remarks, *, assumed: bool) -> None:
        self._fleet, self._remarks, self._assumed = fleet, remarks, assumed
        self._pairs = dict.fromkeys(pair for node in fleet for pair in node.labels)

    def resource(self, models: Sequence[str]) -> str:
        """The resource that GPUs of some models are."""
        for model in models or tuple(self._fleet.gpus_by_model)[:1]:
            try:
                if find_gpu(model).vendor == "AMD":
                    return "amd.com/gpu"
            except InputError:
                pass
        return "nvidia.com/gpu"

    def products(self, models: Sequence[str]) -> list[Pair]:
        """The node labels that say that a node has one of some GPU models."""
        found: dict[Pair, None] = {}
        for model in models:
            own = [
                (key, value)
                for key, value in self._pairs
                if key in MODEL_LABELS
                and any((key, value) in node.labels and model in node.gpu_models for node in self._fleet)
            ]
            found.update(dict.fromkeys(own or [self._product(model)]))
        return list(found)

    def _product(self, model: str) -> Pair:
        key = MODEL_LABELS[1] if self.resource([model]) == "amd.com/gpu" else MODEL_LABELS[0]
        value = NVIDIA_PRODUCTS.get(model, model)
        self._remarks.note(
            "GPU type", f"{model} is the node label {key}={value}; look at it by kubectl get nodes -L {key}"
        )
        return key, value

    def level(self, level: str) -> str:
        """The node label of a level of the topology: one that nodes bear, else the usual one."""
        if level == HOST:
            return HOST_LABEL
        labels = dict(LEVEL_LABELS).get(level, (level,))
        keys = {key for key, _ in self._pairs}
        return next((label for label in labels if label in keys), labels[0])

    def affinity(self, options: dict[str, Option], models: Sequence[str]) -> dict[str, Any]:
        """``nodeSelector`` and ``affinity`` of pods for a component's options and GPU models."""
        terms: list[list[dict[str, Any]]] = [[]]
        if "constraint" in options:
            terms = [
                [_is(*self._feature(name, options["constraint"])) for name in names]
                for names in _alternatives(options["constraint"].value)
            ]
        every: list[dict[str, Any]] = []
        for name, operator in (("nodelist", "In"), ("exclude", "NotIn")):
            if name in options:
                names = list(expand(options[name].value))
                every.append({"key": HOST_LABEL, "operator": operator, "values": names})
        products = self.products(models)
        selector: dict[str, str] = {}
        if len(products) == 1:
            selector = dict(products)
        elif products:
            keys = dict.fromkeys(key for key, _ in products)
            every += [
                {"key": key, "operator": "In", "values": [value for own, value in products if own == key]}
                for key in list(keys)[:1]
            ]
        if len(terms) == 1 and all(each["operator"] == "In" and len(each["values"]) == 1 for each in terms[0]):
            selector.update({each["key"]: each["values"][0] for each in terms[0]})
            terms = [[]]
        found: dict[str, Any] = {"nodeSelector": selector} if selector else {}
        whole = [[*each, *every] for each in terms if each or every]
        if whole:
            required = {"nodeSelectorTerms": [{"matchExpressions": each} for each in whole]}
            found["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return found

    def _feature(self, name: str, option: Option) -> Pair:
        for key, value in self._pairs:
            if name in (key, value) and not (self._assumed and key.startswith(FEATURE)):
                return key, value
        for model in self._fleet.gpus_by_model:
            if any(is_model(node, name) for node in self._fleet if model in node.gpu_models):
                return self.products([model])[0]
        pair = f"{FEATURE}{name}", name
        self._remarks.note(
            option.written, f"feature {name} is taken as the node label {pair[0]}={name}: kubectl label node NODE it",
            option.line,
        )  # fmt: skip
        return pair


def _is(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}


def _alternatives(text: str) -> list[list[str]]:
    """A feature expression as alternatives of features that must all be there; it was checked before."""
    tokens = _TOKEN.findall(text)

    def either() -> list[list[str]]:
        found = both()
        while tokens[:1] == ["|"]:
            tokens.pop(0)
            found = [*found, *both()]
        return found

    def both() -> list[list[str]]:
        found = one()
        while tokens[:1] == ["&"]:
            tokens.pop(0)
            found = [[*left, *right] for left, right in product(found, one())]
        return found

    def one() -> list[list[str]]:
        token = tokens.pop(0)
        if token != "(":
            return [[token]]
        found = either()
        tokens.pop(0)
        return found

    return either()
