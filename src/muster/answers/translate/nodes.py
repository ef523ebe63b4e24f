"""Selectors and affinities of pods as options of sbatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from muster.answers.specs.places import is_model
from muster.answers.specs.pods import inside
from muster.answers.translate.base import dict_at, dicts_at, texts
from muster.answers.translate.pods import PodRuns
from muster.answers.translate.stand_in import FEATURE
from muster.kube.nodes import HOST_LABEL, MODEL_LABELS
from muster.model.fleet import Fleet
from muster.slurm.hostlist import compress

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SAYS_NOTHING = ("", "true", "false", "yes", "no", "1", "0")


class _Asked(Struct):
    """What is asked of nodes: a GPU type (empty: any), options, and features that must all be there."""

    kind: str = ""
    options: dict[str, None] = field(default_factory=dict[str, None])
    features: list[str] = field(default_factory=list[str])


class Conditions:
    """Reads what pods ask of nodes."""

    def __init__(self, fleet: Fleet, runs: PodRuns) -> None:
        self._fleet, self._runs = fleet, runs

    def options(
        self, data: Mapping[str, Any], path: str, pods: int, models: Sequence[str], *, has_gpus: bool
    ) -> tuple[str, list[str]]:
        """The GPU type that pods of the spec at a path ask for, and options such as ``--constraint=ib``."""
        asked = _Asked(short(models[0]) if models else "")
        for key, value in dict_at(data, f"{path}.nodeSelector").items():
            self._pair(str(key), [str(value)], pods, asked, f"{path}.nodeSelector", alone=has_gpus)
        affinity = dict_at(data, f"{path}.affinity")
        terms = dicts_at(affinity, f"nodeAffinity.{_REQUIRED}.nodeSelectorTerms")
        where = f"{path}.affinity.nodeAffinity"
        either: list[str] = []
        for term in terms:
            mine = _Asked(asked.kind, asked.options)
            for each in dicts_at(term, "matchExpressions"):
                self._expression(each, pods, mine, where, alone=has_gpus and len(terms) == 1)
            if term.get("matchFields"):
                self._runs.lost(where, "matchFields are not read: name the nodes by --nodelist")
            asked.kind = mine.kind
            either.append("&".join(mine.features))
        if any(either):
            several = [f"({each})" if "&" in each and len(either) > 1 else each for each in either]
            asked.features.append("|".join(several))
        if inside(affinity, f"nodeAffinity.{_PREFERRED}"):
            self._runs.lost(where, "preferred nodes: write #SBATCH --prefer=FEATURE")
        found = list(asked.options)
        if asked.features:
            several = len(asked.features) > 1
            joined = [f"({each})" if "|" in each and several else each for each in asked.features]
            found.append(f"--constraint={'&'.join(joined)}")
        return asked.kind, found

    def _expression(self, each: Mapping[str, Any], pods: int, asked: _Asked, where: str, *, alone: bool) -> None:
        key, operator = str(each.get("key")), str(each.get("operator"))
        values = texts(each, "values")
        if operator == "In":
            self._pair(key, values, pods, asked, where, alone=alone)
        elif operator == "NotIn" and key == HOST_LABEL:
            asked.options[f"--exclude={compress(values)}"] = None
        elif operator == "Exists":
            asked.features.append(self._feature(key, "", where))
        else:
            self._runs.lost(where, f"{key} {operator}: features of Slurm are there or not; name the nodes by --exclude")

    def _pair(
        self, key: str, values: Sequence[str], pods: int, asked: _Asked, where: str, *, alone: bool
    ) -> None:  # fmt: skip
        """A label that must have one of some values; ``alone``: a GPU model may be said by the type of GPUs."""
        if key in MODEL_LABELS:
            known = dict.fromkeys(each for value in values for each in self._models(value))
            names = list(dict.fromkeys(short(each) for each in known or values))
            if alone and len(known) <= 1:
                asked.kind = names[0]
                return
            text = f"{' or '.join(values)} is the feature {'|'.join(names)} there: Features= of the nodes in slurm.conf"
            self._runs.note(where, text)
            asked.features.append(names[0] if len(names) == 1 else f"({'|'.join(names)})")
        elif key == HOST_LABEL and len(values) == pods:
            asked.options[f"--nodelist={compress(values)}"] = None
        elif key == HOST_LABEL:
            others = [node.name for node in self._fleet if node.name not in values]
            text = f"{pods} of {len(values)} nodes: --nodelist takes all of its nodes; exclude the others"
            self._runs.lost(where, text)
            if others and self._fleet.name != "stand-in":
                asked.options[f"--exclude={compress(others)}"] = None
        else:
            names = list(dict.fromkeys(self._feature(key, value, where) for value in values))
            asked.features.append(names[0] if len(names) == 1 else f"({'|'.join(names)})")

    def _models(self, value: str) -> list[str]:
        nodes = [node for node in self._fleet if is_model(node, value)]
        return list(dict.fromkeys(model for node in nodes for model in node.gpu_models))

    def _feature(self, key: str, value: str, where: str) -> str:
        name = key.removeprefix(FEATURE) if key.startswith(FEATURE) else ""
        if not name:
            name = value if value.casefold() not in _SAYS_NOTHING else key.rpartition("/")[2]
        label = f"{key}={value}" if value else key
        self._runs.note(where, f"{label} is the feature {name} there: Features={name} of the nodes in slurm.conf")
        return name


def short(model: str) -> str:
    """A GPU model as gres.conf usually types it, such as h100."""
    words = model.casefold().removeprefix("nvidia-").removeprefix("tesla-").split("-")
    return words[0]
