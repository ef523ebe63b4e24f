"""What `muster fit` understands of a spec, in a form in which a script and its manifests can be compared."""

from __future__ import annotations

from typing import Any

from muster.answers.specs.base import Specs
from muster.answers.specs.read import specs_of
from muster.answers.translate import to_kubernetes as kubernetes
from muster.answers.translate import to_slurm as slurm
from muster.answers.translate.documents import manifests_text
from muster.model import Snapshot
from muster.model.workload import PodSet


def nodes_for(specs: Specs, pods: PodSet) -> frozenset[str]:
    """The nodes that pods of a set may use."""
    shape = pods.shape
    return frozenset(
        node.name
        for node in specs.fleet
        if (not shape.gpu_models or set(node.gpu_models) & set(shape.gpu_models))
        and set(shape.node_selector) <= set(node.labels)
    )


def understood(specs: Specs) -> list[Any]:
    """Of each gang: its pod sets (those of one shape together), time limit and topology."""
    found: list[Any] = []
    for each in specs.workloads:
        sets: dict[Any, tuple[int, int]] = {}
        for pods in each.pod_sets:
            shape = pods.shape
            key = (shape.gpus, shape.gpu_milli, shape.cpu_milli, shape.memory_bytes, nodes_for(specs, pods))
            count, least = sets.get(key, (0, 0))
            sets[key] = count + pods.count, least + pods.required
        topology = each.topology
        pods = sum(pods.count for pods in each.pod_sets)
        segment = topology.segment if topology and topology.segment != pods else 0
        asked = (topology.required, segment) if topology and topology.required else ()
        preferred = topology.preferred if topology else ""
        found.append(
            (sorted(sets.items(), key=str), each.time_limit_s, asked, preferred if preferred != "host" else "")
        )
    return found


def as_manifests(text: str, snapshot: Snapshot, **choices: Any) -> str:
    """A script's manifests."""
    made = kubernetes.to_kubernetes(text, "job.sbatch", kubernetes.Choices(image="i", **choices), snapshot)
    return manifests_text(made.objects)


def as_script(text: str, snapshot: Snapshot, **choices: Any) -> str:
    """A manifest's script."""
    made = slurm.to_slurm(text, "job.yaml", slurm.Choices(**choices), snapshot)
    assert len(made.scripts) == 1
    return made.scripts[0][1]


def read(text: str, snapshot: Snapshot) -> list[Any]:
    """What is understood of a script or of manifests."""
    return understood(specs_of(text, "job", snapshot))
