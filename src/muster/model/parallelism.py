"""How a training job is split over its GPUs: it decides which of its pods must stand together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.errors import InputError
from muster.model.fleet import WHOLE_GPU_MILLI

if TYPE_CHECKING:
    from muster.model.workload import Workload


class Parallelism(Struct, frozen=True):
    """Degrees of parallelism, and what a step computes and sends.

    Ranks are numbered with tensor parallel innermost, then pipeline, then data; pods take them in order, and so do the
    GPUs of a pod. The degrees decide where pods may stand. The rest is what a slow-down is told from; a 0 is filled in
    by `muster.planning.placed.training_job`, and with no ``parameters`` no slow-down is told.

    Attributes:
        tensor, pipeline, data: their product is the number of GPUs; ``data`` 0 is what the others leave.
        expert: expert parallel degree, a divisor of ``data``; 1 is none.
        parameters, layers, hidden: of the model; layers and width h are taken from the parameters where they are 0.
        sequence: tokens of a sequence.
        micro_batch: sequences a microbatch and replica.
        microbatches: a step and replica; 0 is four a pipeline stage.
        expert_layers, top_k: MoE layers, and experts that a token goes to.
        element_bytes: of weights, gradients and activations; 2 is bf16.
        recompute: whether activations are computed again in the backward pass.
        interleave: model chunks a pipeline stage.
        zero3: whether parameters are sharded too (ZeRO-3, FSDP).
        overlap: part of the compute time under which pipeline and data parallel transfers hide, 0 to 1.
        achieved_tflops: of a GPU when nothing waits; 0 is what the catalog has for the model.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 0
    expert: int = 1
    parameters: float = 0.0
    layers: int = 0
    hidden: int = 0
    sequence: int = 8192
    micro_batch: int = 1
    microbatches: int = 0
    expert_layers: int = 0
    top_k: int = 1
    element_bytes: int = 2
    recompute: bool = False
    interleave: int = 1
    zero3: bool = False
    overlap: float = 1.0
    achieved_tflops: float = 0.0

    def data_of(self, gpus: int) -> int:
        """The data parallel degree on so many GPUs; an elastic gang may have fewer than it asked for."""
        return gpus // (self.tensor * self.pipeline)


class RankGroups(Struct, frozen=True):
    """Runs of pods in rank order that belong together.

    Attributes:
        together: pods that must stand in one NVLink domain: those of a tensor parallel group; 1 asks nothing.
        near: pods that should stand in as narrow a domain as possible: those of a replica's tensor and pipeline
            groups, and of an expert parallel group, up to the end of a pod; a multiple of ``together``, 1 asks nothing.
            Elastic gangs have a multiple of it.
    """

    together: int = 1
    near: int = 1


MOST = 10**15
"""The largest number that is believed."""

NO_GROUPS = RankGroups()


def rank_groups(workload: Workload) -> RankGroups:
    """What the parallelism of a workload asks of places; of one that `check_parallelism` has passed."""
    asked = workload.parallelism
    if asked is None:
        return NO_GROUPS
    shape = next((each.shape for each in workload.pod_sets if each.shape.gpus), None)
    if shape is None:
        return NO_GROUPS
    together = max(1, asked.tensor // shape.gpus)
    return RankGroups(together, math.lcm(asked.tensor * asked.pipeline * asked.expert, shape.gpus) // shape.gpus)


def check_degrees(asked: Parallelism, field: str = "parallelism") -> None:
    """Raise `InputError`, naming the field, where a number makes no sense whatever the pods are."""
    for name in ("tensor", "pipeline", "expert", "sequence", "micro_batch", "top_k", "element_bytes", "interleave"):
        if not 1 <= getattr(asked, name) <= MOST:
            raise InputError(f"is {getattr(asked, name)}, not within 1 to 10^15", field=f"{field}.{name}")
    for name in ("data", "parameters", "layers", "hidden", "microbatches", "expert_layers", "achieved_tflops"):
        if not 0 <= getattr(asked, name) <= MOST:
            raise InputError(f"is {getattr(asked, name)}, not within 0 to 10^15", field=f"{field}.{name}")
    if not 0 <= asked.overlap <= 1:
        raise InputError(f"is {asked.overlap}, not within 0 to 1", field=f"{field}.overlap")


def check_parallelism(workload: Workload, field: str = "parallelism") -> None:
    """Raise `InputError`, naming the field, where the parallelism of a workload and its pods do not go together."""
    asked = workload.parallelism
    if asked is None:
        return
    check_degrees(asked, field)
    sets = [each for each in workload.pod_sets if each.shape.gpus and each.count]
    if not sets:
        raise InputError("the pods ask for no GPU", field=field)
    shapes = {each.shape for each in sets}
    per_pod = sets[0].shape.gpus
    if len(shapes) > 1 or sets[0].shape.gpu_milli != WHOLE_GPU_MILLI:
        what = "the pods with GPUs are not all alike" if len(shapes) > 1 else "the pods ask for shares of a GPU"
        raise InputError(f"{what}, so ranks have no order", field=field, hint="pods of one shape, with whole GPUs")
    if asked.tensor % per_pod and per_pod % asked.tensor:
        what = f"{asked.tensor} GPUs of a group and {per_pod} of a pod: neither divides the other"
        raise InputError(what, field=f"{field}.tensor")
    gpus = sum(each.count for each in sets) * per_pod
    replica = asked.tensor * asked.pipeline
    if gpus % replica or (asked.data and asked.data * replica != gpus):
        degrees = [asked.tensor, asked.pipeline, *([asked.data] if asked.data else [])]
        times = " x ".join(map(str, degrees))
        what = f"{times} = {replica * (asked.data or 1)} GPUs, and the pods have {gpus}"
        hint = None if asked.data else "the GPUs must be a multiple"
        raise InputError(what, field=f"{field}.{'data' if asked.data else 'pipeline'}", hint=hint)
    if asked.data_of(gpus) % asked.expert:
        what = f"{asked.expert} does not divide the data parallel degree {asked.data_of(gpus)}"
        raise InputError(what, field=f"{field}.expert")
    groups = rank_groups(workload)
    segment = workload.topology.segment if workload.topology else 0
    if segment % groups.together:
        what = f"a segment of {segment} pods cuts tensor parallel groups of {groups.together} pods"
        raise InputError(what, field=f"{field}.tensor", hint="a segment must be a multiple of such groups")
    if any(each.count % groups.together for each in sets):
        what = f"a tensor parallel group of {groups.together} pods would stand in two pod sets"
        raise InputError(what, field=f"{field}.tensor")
    for each in sets:
        if each.required < each.count and each.required % groups.near:
            what = f"a minimum of {each.required} pods is no whole number of replicas of {groups.near} pods"
            raise InputError(what, field=field)
