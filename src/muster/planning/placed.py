"""How much longer a training job runs where it stands than at best: `muster.planning.communication` on a real fleet.

The best placement fills NVLink domains as large as the fleet's largest, one after the other and under one leaf, without
cutting tensor parallel groups, replicas or expert parallel groups where a domain holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from muster.catalog import training_tflops, usual_shape
from muster.engine.grains import NVLINK_DOMAIN
from muster.errors import InputError
from muster.model.fleet import Fleet, Node
from muster.model.parallelism import Parallelism, check_degrees
from muster.model.plan import PodPlacement
from muster.model.workload import Workload
from muster.planning.communication import (
    Fabric,
    Line,
    Slowdown,
    Spot,
    TrainingJob,
    fabric_for,
    packed,
    slowdown,
    step_time,
)

MICROBATCHES_A_STAGE = 4
"""Microbatches a pipeline stage where none are given: with them the bubble is below a quarter."""

LEAF_LEVELS = ("rack", "block")
"""Levels that stand for a leaf of the network, the first that the fleet has."""


MOST_GPUS = 1_000_000


class Network(Struct, frozen=True):
    """What of a fleet's links is not known from its GPU models.

    Attributes:
        nic: a NIC or port of the catalog.
        nics_per_gpu: NICs of a node over its GPUs.
        leaf: the level of a network leaf; empty is the first of `LEAF_LEVELS` that the fleet has.
        oversubscription: uplinks of a leaf are this many times slower than its ports; 1 is none.
        inside_gb_per_s, outside_gb_per_s: what a GPU reaches within its NVLink domain and to others; None is what the
            catalog has for its model and for the NIC.
    """

    nic: str = "ConnectX-7"
    nics_per_gpu: float = 1.0
    leaf: str = ""
    oversubscription: float = 1.0
    inside_gb_per_s: float | None = None
    outside_gb_per_s: float | None = None

    def leaf_of(self, fleet: Fleet) -> str:
        """The level of a network leaf on a fleet, empty where it has none; raises `InputError` for an unknown one."""
        levels = fleet.topology.levels
        if self.leaf and self.leaf not in levels:
            known = f"known: {', '.join(levels)}" if levels else "the fleet has none"
            raise InputError(f"unknown topology level {self.leaf!r}", field="leaf", hint=known)
        return self.leaf or next((level for level in LEAF_LEVELS if level in levels), "")

    def check_nic(self) -> None:
        """Raise `InputError` for a NIC that the catalog does not have."""
        fabric_for("H100", self.nic)

    def fabric(self, model: str) -> Fabric:
        """The rates on a GPU model; raises `InputError` for a model or NIC that the catalog does not have."""
        inside, outside = self.inside_gb_per_s, self.outside_gb_per_s
        if inside is not None and outside is not None:
            origin = f"inside {inside:g} GB/s, outside {outside:g} GB/s, as given"
            return Fabric(inside, outside, oversubscription=self.oversubscription, origin=origin)
        known = fabric_for(model, self.nic, self.nics_per_gpu, self.oversubscription)
        if inside is None and outside is None:
            return known
        return Fabric(
            known.inside_gb_per_s if inside is None else inside,
            known.outside_gb_per_s if outside is None else outside,
            oversubscription=self.oversubscription,
            origin=f"{known.origin}; {'outside' if inside is None else 'inside'} is as given instead",
        )


def training_job(asked: Parallelism, gpus: int, model: str) -> TrainingJob:
    """What a step of a job on so many GPUs of a model computes and sends; what was left out is filled in.

    Raises:
        InputError: no number of parameters, or no achieved TFLOPS and none known of the model; the field is named.
    """
    check_degrees(asked, "")
    if not asked.parameters:
        raise InputError("is not given or 0, so no step time can be told", field="parameters", hint="such as 70e9")
    layers, hidden = usual_shape(asked.parameters)
    if asked.layers and not asked.hidden:
        hidden = round((asked.parameters / 12 / asked.layers) ** 0.5)
    elif asked.hidden and not asked.layers:
        layers = max(1, round(asked.parameters / 12 / asked.hidden**2))
    achieved = asked.achieved_tflops or training_tflops(model)
    if not achieved:
        what = f"is not given, and what training reaches on {model} is not known"
        raise InputError(what, field="achieved_tflops", hint="such as 400")
    return TrainingJob(
        asked.parameters,
        asked.layers or layers,
        asked.hidden or hidden,
        asked.sequence,
        achieved,
        asked.micro_batch,
        asked.microbatches or (MICROBATCHES_A_STAGE * asked.pipeline if asked.pipeline > 1 else 1),
        asked.tensor,
        asked.pipeline,
        asked.data_of(gpus),
        asked.expert,
        asked.expert_layers,
        asked.top_k,
        asked.element_bytes,
        4 if asked.recompute else 3,
        asked.interleave,
        asked.zero3,
        asked.overlap,
    )


def best_spots(job: TrainingJob, per_domain: int, fabric: Fabric) -> tuple[Spot, ...]:
    """The best placement of a job in NVLink domains of so many GPUs, all under one leaf."""
    runs = (1, job.tensor, job.tensor * job.pipeline, job.tensor * job.pipeline * job.expert)
    sizes = dict.fromkeys(per_domain // run * run for run in runs if run <= per_domain)
    choices = [packed(job.gpus, size) for size in sizes]
    return min(choices, key=lambda spots: step_time(job, spots, fabric).total_s)


class Placements:
    """Tells the slow-down of placements on one fleet; equal patterns are worked out once."""

    def __init__(self, fleet: Fleet, network: Network | None = None) -> None:
        self.network = network or Network()
        self._nodes: Mapping[str, Node] = {node.name: node for node in fleet.nodes}
        levels = fleet.topology.levels
        self._nvlink = levels.index(NVLINK_DOMAIN) + 1 if NVLINK_DOMAIN in levels else 0
        leaf = self.network.leaf_of(fleet)
        self._leaf = levels.index(leaf) + 1 if leaf else 0
        self._spots = {node.name: self._spot(node) for node in fleet.nodes}
        self._per_domain: dict[str, int] = {}
        gpus: dict[tuple[str, str], int] = {}
        for node in fleet.nodes:
            for device in node.devices:
                key = (device.model, self._spots[node.name].nvlink)
                gpus[key] = gpus.get(key, 0) + 1
        for (model, _), count in gpus.items():
            self._per_domain[model] = max(self._per_domain.get(model, 1), count)
        self._known: dict[tuple[TrainingJob, str, tuple[tuple[int, int], ...]], Slowdown] = {}

    def _spot(self, node: Node) -> Spot:
        path = node.topology
        inside = self._nvlink and self._nvlink <= len(path) and path[self._nvlink - 1]
        nvlink = "/".join(path[: self._nvlink]) if inside else f"node {node.name}"
        return Spot(nvlink, "/".join(path[: self._leaf]))

    def check(self, workload: Workload, field: str = "parallelism") -> None:
        """Raise `InputError` where no slow-down could be told of a job with parameters, on any model it may use."""
        asked = workload.parallelism
        if asked is None or not asked.parameters:
            return
        shape = next(each.shape for each in workload.pod_sets if each.shape.gpus)
        for model in self._per_domain:
            if shape.gpu_models and model not in shape.gpu_models:
                continue
            try:
                training_job(asked, 1 << 20, model)
            except InputError as error:
                raise InputError(
                    error.what, field=f"{field}.{error.field or ''}".rstrip("."), hint=error.hint
                ) from None
            self.network.fabric(model)

    def spots(self, pods: Sequence[PodPlacement]) -> tuple[Spot, ...]:
        """The spot of each GPU in rank order: pods as given, the GPUs of a pod by index."""
        return tuple(self._spots[pod.node] for pod in pods for _ in pod.devices)

    def slowdown(self, workload: Workload, pods: Sequence[PodPlacement]) -> Slowdown | None:
        """How much longer a step takes where the pods stand than at best; None where no parameters are given,
        or where an elastic gang stands with a part of a replica.

        On several GPU models at once the slowest rates and TFLOPS count.
        """
        asked = workload.parallelism
        spots = self.spots(pods)
        if asked is None or not asked.parameters or len(spots) % (asked.tensor * asked.pipeline * asked.expert):
            return None
        models = {self._nodes[pod.node].devices[device].model for pod in pods for device in pod.devices}
        jobs = [(training_job(asked, len(spots), model), model) for model in sorted(models)]
        job = min(jobs, key=lambda each: each[0].achieved_tflops)[0]
        model = min(sorted(models), key=lambda each: self.network.fabric(each).inside_gb_per_s)
        key = (job, model, _pattern(spots))
        found = self._known.get(key)
        if found is None:
            fabric = self.network.fabric(model)
            best = best_spots(job, max(self._per_domain[each] for each in models), fabric)
            if step_time(job, spots, fabric).total_s < step_time(job, best, fabric).total_s:
                best = spots
            found = self._known[key] = slowdown(job, spots, best, fabric)
        return found

    def fabric_of(self, pods: Sequence[PodPlacement]) -> Fabric:
        """The rates that a placement is told with."""
        models = {self._nodes[pod.node].devices[device].model for pod in pods for device in pod.devices}
        return min((self.network.fabric(model) for model in sorted(models)), key=lambda each: each.inside_gb_per_s)


def placements_for(fleet: Fleet, workloads: Sequence[Workload], network: Network) -> Placements | None:
    """What tells slow-downs, if any workload gives the numbers for it.

    Raises:
        InputError: it could not tell those of a workload; the field is given as ``workloads[3].parallelism``.
    """
    asked = {
        (job.parallelism, job.pod_sets): index
        for index, job in reversed(list(enumerate(workloads)))
        if job.parallelism is not None and job.parallelism.parameters
    }
    if not asked:
        return None
    found = Placements(fleet, network)
    for index in asked.values():
        found.check(workloads[index], f"workloads[{index}].parallelism")
    return found


def _pattern(spots: Sequence[Spot]) -> tuple[tuple[int, int], ...]:
    """Runs of equal spots as (spot, length), with spots numbered as they appear: alike where only names differ.

    Leaves are told apart by the spots: those of a domain are in one leaf.
    """
    number: dict[Spot, int] = {}
    leaves: dict[str, int] = {}
    runs: list[tuple[int, int]] = []
    for spot in spots:
        at = number.setdefault(spot, len(number)) << 20 | leaves.setdefault(spot.leaf, len(leaves))
        if runs and runs[-1][0] == at:
            runs[-1] = (at, runs[-1][1] + 1)
        else:
            runs.append((at, 1))
    return tuple(runs)


def explanation(told: Slowdown, fabric: Fabric) -> tuple[Line, ...]:
    """The derivation of a slow-down from the rates on: what both placements share once, what differs twice."""
    shared = [line for line in told.placed.lines if line in told.best.lines]
    rates = Line("rates", "what a GPU reaches", fabric.origin or "as given", "", 0.0)
    return (rates, *shared, *told.lines)


# Placements as text


def spots_from(text: str) -> tuple[Spot, ...]:
    """GPUs in each NVLink domain in rank order: ``8``, ``4+4``, ``4x8`` (four of 8), ``2x8/2x8`` (two leaves).

    Raises:
        InputError: anything else.
    """
    spots: list[Spot] = []
    domains = 0
    for leaf, domains_text in enumerate(text.split("/")):
        for part in domains_text.split("+"):
            times, cross, gpus = part.strip().rpartition("x")
            if not (gpus.isdecimal() and (times.isdecimal() or not cross)) or not int(gpus) * int(times or 1):
                hint = "GPUs in each NVLink domain, such as 8, 4+4, 4x8, or 2x8/2x8 for two leaves"
                raise InputError(f"{text!r} is no placement", hint=hint)
            if len(spots) + int(gpus) * int(times or 1) > MOST_GPUS:
                raise InputError(f"{text!r} is more than {MOST_GPUS:,} GPUs")
            for _ in range(int(times or 1)):
                spots += [Spot(f"domain-{domains}", f"leaf-{leaf}")] * int(gpus)
                domains += 1
    return tuple(spots)


def text_of(spots: Sequence[Spot]) -> str:
    """The text of `spots_from` for a placement; a domain that ranks come back to is written again."""
    words: list[str] = []
    for _, on_leaf in groupby(spots, key=lambda spot: spot.leaf):
        sizes = [len(list(run)) for _, run in groupby(on_leaf)]
        alike = [(len(list(run)), size) for size, run in groupby(sizes)]
        words.append("+".join(f"{n}x{size}" if n > 2 else "+".join([str(size)] * n) for n, size in alike))
    return "/".join(words)
