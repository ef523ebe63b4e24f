"""Pod sets as components of a Slurm job: nodes or tasks, with what each has of GPUs, CPUs and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from muster.answers.translate.nodes import Conditions
from muster.answers.translate.pods import PodRuns
from muster.model.fleet import Fleet
from muster.model.workload import PodSet, PodShape, TopologyRequest

_KIB, _MIB = 1024, 1024**2


class Component(Struct, frozen=True):
    """One component.

    Attributes:
        pods: as one set: that of all roles in it.
        roles: with how many pods each has, in the order of ranks.
        by_node: a pod is a node; else a task.
        switches, segment: options of topology; 0: none.
    """

    pods: PodSet
    roles: tuple[tuple[str, int], ...]
    by_node: bool
    switches: int = 0
    segment: int = 0

    def options(self, conditions: Conditions, data: Mapping[str, Any], paths: Mapping[str, str]) -> Iterator[str]:
        """The options of sbatch; ``paths`` are those of the roles' pod specs in the object."""
        shape, count = self.pods.shape, self.pods.count
        path = next((paths[role] for role, _ in self.roles if role in paths), next(iter(paths.values()), "spec"))
        kind, more = conditions.options(data, path, count, shape.gpu_models, has_gpus=shape.gpus > 0)
        typed = f"{kind}:" if kind and shape.gpus else ""
        cpus = max(1, -(-shape.cpu_milli // 1000))
        if self.by_node:
            least = self.pods.min_count
            yield f"--nodes={f'{max(1, least)}-' if least is not None else ''}{count}"
            yield "--ntasks-per-node=1"
            if shape.shares_gpu:
                yield f"--gres=mps:{max(1, round(shape.gpu_milli / 10))}"
            elif shape.mig_profile:
                yield f"--gres=gpu:{shape.mig_profile}:1"
            elif shape.gpus:
                yield f"--gpus-per-node={typed}{shape.gpus}"
            yield f"--cpus-per-task={cpus}"
            if shape.memory_bytes:
                yield f"--mem={memory(shape.memory_bytes)}"
        else:
            yield f"--ntasks={count}"
            if shape.gpus:
                yield f"--gpus-per-task={typed}{shape.gpus}"
            yield f"--cpus-per-task={cpus}"
            if shape.memory_bytes and shape.gpus:
                yield f"--mem-per-gpu={memory(-(-shape.memory_bytes // shape.gpus))}"
            elif shape.memory_bytes:
                yield f"--mem-per-cpu={memory(-(-shape.memory_bytes // cpus))}"
        if self.segment:
            yield f"--segment={self.segment}"
        if self.switches:
            yield f"--switches={self.switches}"
        yield from more


def memory(value: int) -> str:
    """Memory as Slurm takes it, rounded up to a kibibyte."""
    if value % 1024**3 == 0:
        return f"{value // 1024**3}G"
    if value % _MIB == 0:
        return f"{value // _MIB}M"
    return f"{-(-value // _KIB)}K"


def components(
    sets: Sequence[PodSet], topology: TopologyRequest | None, fleet: Fleet, runs: PodRuns, *, alone: bool
) -> list[Component]:
    """The components of some pod sets. ``alone``: each pod is a job of its own, a task of an array."""
    merged: list[tuple[PodSet, list[tuple[str, int]]]] = []
    for each in sets:
        for at, (other, roles) in enumerate(merged):
            if other.shape == each.shape and other.min_count is None and each.min_count is None:
                merged[at] = PodSet(each.shape, other.count + each.count, role=other.role), roles
                roles.append((each.role, each.count))
                break
        else:
            merged.append((each, [(each.role, each.count)]))
    found: list[Component] = []
    node_gpus = max((node.healthy_gpus for node in fleet), default=0)
    for pods, roles in merged:
        count = 1 if alone else pods.count
        mine = PodSet(pods.shape, count, None if alone else pods.min_count, pods.role)
        switches, segment = _places(topology, mine, runs)
        whole = not _two_fit(pods.shape, fleet) or pods.shape.shares_gpu or bool(pods.shape.mig_profile)
        spread = topology is not None and topology.spread == "host" and topology.at_most == 1
        by_node = count == 1 or whole or bool(segment) or spread or mine.min_count is not None
        found.append(Component(mine, tuple(roles), by_node, switches, segment))
        _tell(mine, by_node, node_gpus, runs)
    return found


def _two_fit(shape: PodShape, fleet: Fleet) -> bool:
    """Whether two such pods may stand on one node of a fleet."""
    return any(
        2 * shape.gpus <= node.healthy_gpus
        and 2 * shape.cpu_milli <= node.cpu_milli
        and 2 * shape.memory_bytes <= node.memory_bytes
        for node in fleet
    )


def _tell(pods: PodSet, by_node: bool, node_gpus: int, runs: PodRuns) -> None:
    shape = pods.shape
    if shape.cpu_milli % 1000 or not shape.cpu_milli:
        whole = max(1, -(-shape.cpu_milli // 1000))
        runs.note("cpu", f"{shape.cpu_milli / 1000:g} CPUs a pod are {whole}: Slurm gives whole ones")
    if not shape.memory_bytes:
        runs.note("memory", "is not asked for: the site's default holds (DefMemPerCPU, DefMemPerGPU)")
    if shape.shares_gpu:
        share = max(1, round(shape.gpu_milli / 10))
        runs.note("GPU", f"{shape.gpu_milli / 1000:g} of a GPU is mps:{share}, where a GPU has 100 of them")
    if shape.mig_profile:
        runs.note("GPU", f"MIG {shape.mig_profile} is a type of GPU there, as gres.conf names it")
    if by_node and pods.count > 1 and 0 < shape.gpus < node_gpus:
        runs.note("pods", f"each has a node of its own there, though it takes {shape.gpus} of {node_gpus} GPUs")


def _places(topology: TopologyRequest | None, pods: PodSet, runs: PodRuns) -> tuple[int, int]:
    """``--switches`` and ``--segment``."""
    if topology is None:
        return 0, 0
    segment = 0
    if topology.required == "block":
        segment = topology.segment or pods.count
        runs.note("topology", "--segment needs TopologyPlugin=topology/block, and a Slurm whose sbatch knows it")
        if topology.spread:
            runs.lost("topology", f"segments need not stand in {topology.spread}s of their own there")
    elif topology.required == "rack" and not topology.segment:
        runs.lost(
            "topology", "one rack is required; --switches=1 only prefers it, and waits for it up to max_switch_wait"
        )
        return 1, 0
    elif topology.required and topology.required != "host":
        runs.lost(
            "topology", f"one {topology.required} is required: Slurm has --segment (blocks) and --switches (leaves)"
        )
    if topology.preferred == "rack":
        return 1, segment
    if topology.preferred and topology.preferred != "host":
        runs.lost("topology", f"one {topology.preferred} is preferred: Slurm only has --switches, which are leaves")
    if topology.spread and topology.spread != "host" and not segment:
        runs.lost("topology", f"pods dealt over {topology.spread}s: Slurm only has --spread-job, over nodes")
    return 0, segment
