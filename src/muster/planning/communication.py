"""What a placement costs a training job: collectives over the links that its groups use, in closed forms.

With S bytes, n GPUs, B the rate of the link in GB/s and a the latency of one hop:

    ring all-reduce            2 (n-1) a + 2 (n-1)/n S/B
    tree all-reduce            2 log2(n) a + 2 S/B
    all-gather, reduce-scatter (n-1) a + (n-1)/n S/B
    all-to-all                 (n-1) a + (n-1)/n S/B
    hierarchical all-reduce    2 (g-1) a1 + 2 (g-1)/g S/B1  +  2 (k-1) a2 + 2 (k-1)/k (S/g)/B2
                               g GPUs in each of k NVLink domains, each GPU with a NIC of rate B2

and of one step, for t tensor, p pipeline and d data parallel, b sequences of s tokens a microbatch, m microbatches:

    compute          passes * 2 * parameters * tokens / (GPUs * achieved)          3 passes, 4 with recomputation
    tensor parallel  4 all-reduces of b s h e bytes a layer and microbatch         2 forward, 2 backward
    expert parallel  4 all-to-alls of b s top_k h e bytes a layer and microbatch
    pipeline         2 transfers of b s h e bytes a boundary and microbatch;  bubble (p-1) / (v m)
    data parallel    all-reduce of parameters / (t p) * e bytes; ZeRO-3 1.5 times that
    step             (compute + tensor + expert) (1 + bubble) + max(0, pipeline + data - overlap * compute)

Tensor and expert parallel stand in the path of every layer; pipeline and data parallel hide under ``overlap`` of the
compute time. Of the groups of a kind the slowest counts. A group whose members are split unevenly over domains pays the
inner phase of its largest part and the outer phase with the NICs of its smallest.

Ranks: tensor parallel is the innermost, then pipeline, then data: tensor groups and pipeline neighbours stand together.

Sources: NCCL's bus factors (nccl-tests); Megatron-LM's volumes; S. Bekman, Machine Learning Engineering, network
chapter, for the step. Rates are the catalog's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from muster.catalog import LINKS, find_gpu, find_link, hop_latency_s
from muster.engine.domains import TopologyIndex
from muster.engine.state import Allocation, FleetState
from muster.errors import InputError

GB = 1e9

INSIDE_LATENCY_S = hop_latency_s("NVLink")
"""Latency of one hop over NVLink, from the catalog."""

OUTSIDE_LATENCY_S = hop_latency_s("network")
"""Latency of one hop over the network, from the catalog."""


class Spot(Struct, frozen=True):
    """Where one GPU is: its NVLink domain (the node, where NVLink ends there) and its leaf of the network."""

    nvlink: str
    leaf: str = ""


class Fabric(Struct, frozen=True):
    """The rates that a GPU sees, unidirectional, in GB/s as collectives reach them; latencies of one hop in seconds.

    Attributes:
        inside_gb_per_s: within an NVLink domain.
        outside_gb_per_s: to other domains, the GPU's share of its node's NICs.
        oversubscription: uplinks of a leaf are this many times slower than its ports; 1 is none.
        origin: where the rates come from, for the reader.
    """

    inside_gb_per_s: float
    outside_gb_per_s: float
    inside_latency_s: float = INSIDE_LATENCY_S
    outside_latency_s: float = OUTSIDE_LATENCY_S
    oversubscription: float = 1.0
    origin: str = ""


class Line(Struct, frozen=True):
    """One line of arithmetic: what it is, the formula, the numbers put in, the result in words and as a value."""

    what: str
    formula: str
    numbers: str
    result: str
    value: float

    def text(self) -> str:
        """The line, such as ``compute: passes 2 P T / (n F) = 3 x 2 x ... = 1.2 s``."""
        return f"{self.what}: {self.formula} = {self.numbers} = {self.result}"


class TrainingJob(Struct, frozen=True):
    """What one step of a training job computes and sends.

    Attributes:
        parameters, layers, hidden: of the model; hidden is the width h.
        sequence: tokens of a sequence.
        achieved_tflops: per GPU, as the job reaches it when nothing waits.
        micro_batch: sequences a microbatch and replica.
        microbatches: a step and replica.
        tensor, pipeline, data: degrees of parallelism; their product is the number of GPUs.
        expert: expert parallel degree, a divisor of ``data``; 1 is none.
        expert_layers, top_k: MoE layers, and experts a token goes to.
        element_bytes: of weights, gradients and activations; 2 is bf16.
        passes: 3, or 4 with recomputation.
        interleave: model chunks a pipeline stage.
        zero3: whether parameters are sharded too (ZeRO-3, FSDP).
        overlap: part of the compute time under which pipeline and data parallel transfers hide, 0 to 1.
    """

    parameters: float
    layers: int
    hidden: int
    sequence: int
    achieved_tflops: float
    micro_batch: int = 1
    microbatches: int = 1
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    expert_layers: int = 0
    top_k: int = 1
    element_bytes: int = 2
    passes: int = 3
    interleave: int = 1
    zero3: bool = False
    overlap: float = 1.0

    @property
    def gpus(self) -> int:
        """GPUs that it takes."""
        return self.tensor * self.pipeline * self.data

    @property
    def activation_bytes(self) -> int:
        """Bytes of the activations of one microbatch between two layers: b s h e."""
        return self.micro_batch * self.sequence * self.hidden * self.element_bytes


class StepTime(Struct, frozen=True):
    """The time of one step in seconds, its parts, and the arithmetic. Parts are before hiding and bubble."""

    total_s: float
    compute_s: float
    tensor_s: float
    expert_s: float
    pipeline_s: float
    data_s: float
    bubble: float
    lines: tuple[Line, ...]


class Slowdown(Struct, frozen=True):
    """How much longer a step takes on one placement than on another: ``factor`` 1.06 is 6 % longer."""

    factor: float
    placed: StepTime
    best: StepTime
    lines: tuple[Line, ...]


# Collectives


def ring_all_reduce_s(size_bytes: float, gpus: int, gb_per_s: float, latency_s: float = 0.0) -> float:
    """Seconds of a ring all-reduce: 2 (n-1) a + 2 (n-1)/n S/B."""
    return 2 * (gpus - 1) * latency_s + wire_bytes(size_bytes, gpus) / (gb_per_s * GB)


def tree_all_reduce_s(size_bytes: float, gpus: int, gb_per_s: float, latency_s: float = 0.0) -> float:
    """Seconds of a tree all-reduce: 2 log2(n) a + 2 S/B; better than a ring for small messages."""
    return (2 * math.log2(gpus) * latency_s + 2 * size_bytes / (gb_per_s * GB)) if gpus > 1 else 0.0


def gather_s(size_bytes: float, gpus: int, gb_per_s: float, latency_s: float = 0.0) -> float:
    """Seconds of an all-gather or a reduce-scatter of S bytes in all: (n-1) a + (n-1)/n S/B."""
    return (gpus - 1) * latency_s + (gpus - 1) / gpus * size_bytes / (gb_per_s * GB)


def wire_bytes(size_bytes: float, gpus: int) -> float:
    """Bytes that each GPU sends in an all-reduce of S bytes: 2 (n-1)/n S."""
    return 2 * (gpus - 1) / gpus * size_bytes


def hierarchical_all_reduce_s(
    size_bytes: float, parts: Sequence[int], fabric: Fabric, *, crosses: bool = False
) -> float:
    """Seconds of an all-reduce over a group with so many GPUs in each NVLink domain.

    ``crosses``: whether the group spans leaves of the network; its outer rate is then divided by the oversubscription.
    """
    most, least, domains = max(parts), min(parts), len(parts)
    inside = ring_all_reduce_s(size_bytes, most, fabric.inside_gb_per_s, fabric.inside_latency_s)
    outer = _outer_rate(fabric, crosses)
    return inside + ring_all_reduce_s(size_bytes / least, domains, outer, fabric.outside_latency_s)


def all_to_all_s(size_bytes: float, parts: Sequence[int], fabric: Fabric, *, crosses: bool = False) -> float:
    """Seconds of an all-to-all in which each GPU sends S bytes in all, an equal part to each of the group.

    What stays in the GPU's NVLink domain goes over NVLink and the rest over its NIC, one after the other; the GPU of
    the smallest part sends most outside.
    """
    gpus, least = sum(parts), min(parts)
    inside = (least - 1) * (fabric.inside_latency_s + size_bytes / gpus / (fabric.inside_gb_per_s * GB))
    outer = _outer_rate(fabric, crosses) * GB
    return inside + (gpus - least) * (fabric.outside_latency_s + size_bytes / gpus / outer)


def _outer_rate(fabric: Fabric, crosses: bool) -> float:
    return fabric.outside_gb_per_s / (fabric.oversubscription if crosses else 1.0)


# Rates


def fabric_for(model: str, nic: str = "ConnectX-7", nics_per_gpu: float = 1.0, oversubscription: float = 1.0) -> Fabric:
    """The rates of a GPU model with NICs of the catalog, as collectives were measured to reach them.

    Inside: the all-reduce measured on the model, else its link's rate times the lowest part reached on any model.
    Outside: the NIC's rate times the part reached by the all-reduce measured over NICs.

    Raises:
        InputError: a model or NIC that the catalog does not have, or a model without a link between GPUs.
    """
    gpu = find_gpu(model)
    try:
        port = find_link(nic)
    except KeyError:
        known = ", ".join(link.name for link in LINKS if link.kind in ("nic", "infiniband"))
        raise InputError(f"unknown NIC {nic!r}", field="nic", hint=f"known: {known}") from None
    if not gpu.link_gb_per_s and not gpu.pcie_gb_per_s:
        raise InputError(f"no link between GPUs is known of {gpu.name}", field="model", hint="make a Fabric yourself")
    measured = [link for link in LINKS if link.kind == "measured" and link.name.startswith("all-reduce 8 ")]
    rings = [link for link in measured if link.fraction is not None and link.fraction < 1]
    own = [link for link in rings if link.name.split()[-1] == gpu.name.split("-")[0]]
    direct = next((link for link in own if link.of_gb_per_s == gpu.link_gb_per_s), None)
    if direct is not None:
        inside, inside_from = direct.gb_per_s, f"{direct.name}, measured"
    elif gpu.link_gb_per_s:
        lowest = min(link.fraction for link in rings if link.fraction is not None)
        inside, inside_from = gpu.link_gb_per_s * lowest, f"{gpu.link} x {lowest:.2f}"
    else:
        board = find_link("GPU on PCIe 5.0 x16")
        part = board.fraction or 1.0
        inside, inside_from = (gpu.pcie_gb_per_s or 0.0) * part, f"PCIe {gpu.pcie_generation}.0 x {part:.2f}"
    over = find_link("all-reduce 4 x 8 B200")
    reached = over.fraction or 1.0
    outside = port.gb_per_s * nics_per_gpu * reached
    origin = f"inside {inside:g} GB/s ({inside_from}); outside {outside:g} GB/s ({port.name} x {reached:.2f})"
    return Fabric(inside, outside, oversubscription=oversubscription, origin=origin)


# Placements


def packed(gpus: int, per_domain: int) -> tuple[Spot, ...]:
    """The best placement: domains of ``per_domain`` GPUs filled one after the other, all under one leaf."""
    return tuple(Spot(f"domain-{at // per_domain}") for at in range(gpus))


def spots_of(
    state: FleetState,
    index: TopologyIndex,
    allocations: Iterable[Allocation],
    nvlink_level: str = "",
    leaf_level: str = "",
) -> tuple[Spot, ...]:
    """The spot of each GPU of a gang in rank order: pods as given, devices by index.

    ``nvlink_level`` is the level of the fleet's topology within which NVLink reaches, such as ``nvlink_domain``; a node
    that is in no such domain, and every node where it is empty, is one for itself. ``leaf_level`` is the level of a
    network leaf, such as ``rack``.
    """
    nvlink, leaf = index.depth_of(nvlink_level), index.depth_of(leaf_level)
    spots: list[Spot] = []
    for pod in allocations:
        domain = state.node_names[pod.node]
        if nvlink and index.of_node[nvlink - 1][pod.node] >= 0:
            domain = index.name_of(nvlink, int(index.of_node[nvlink - 1][pod.node]))
        under = index.name_of(leaf, int(index.groups[leaf][pod.node])) if leaf else ""
        spots.extend(Spot(domain, under) for _ in pod.device_indexes)
    return tuple(spots)


class _Group(Struct, frozen=True):
    """How a group stands: GPUs in each NVLink domain, the largest first, and whether it spans leaves."""

    parts: tuple[int, ...]
    crosses: bool

    def __str__(self) -> str:
        shown = "+".join(map(str, self.parts)) if len(set(self.parts)) > 1 or len(self.parts) < 4 else ""
        text = shown or f"{len(self.parts)} x {max(self.parts)}"
        return f"{text} across leaves" if self.crosses else text


def _group(spots: Sequence[Spot]) -> _Group:
    counted = Counter(spot.nvlink for spot in spots)
    return _Group(tuple(sorted(counted.values(), reverse=True)), len({spot.leaf for spot in spots}) > 1)


def _groups(job: TrainingJob, placement: Sequence[Spot], kind: str) -> list[_Group]:
    """The distinct ways in which the groups of a kind stand, in order of first appearance."""
    t, p, d, e = job.tensor, job.pipeline, job.data, job.expert
    replica = t * p
    if kind == "tensor":
        members = [range(first, first + t) for first in range(0, job.gpus, t)]
    elif kind == "data":
        members = [range(first, job.gpus, replica) for first in range(replica)]
    elif kind == "expert":
        starts = [first + run * e * replica for first in range(replica) for run in range(d // e)]
        members = [range(first, first + e * replica, replica) for first in starts]
    else:  # the two ends of each pipeline boundary
        ends = [first for first in range(job.gpus) if first % replica < replica - t]
        members = [range(first, first + t + 1, t) for first in ends]
    return list(dict.fromkeys(_group([placement[rank] for rank in ranks]) for ranks in members))


# A step


def check_job(job: TrainingJob, field: str = "job") -> None:
    """Raise `InputError`, naming the field, where the numbers of a job make no sense."""
    counts = ("layers", "hidden", "sequence", "micro_batch", "microbatches", "tensor", "pipeline", "data", "expert")
    for name in (*counts, "top_k", "element_bytes", "passes", "interleave", "parameters", "achieved_tflops"):
        value: float = getattr(job, name)
        if not value > 0:
            raise InputError(f"is {value}, not above 0", field=f"{field}.{name}")
    if job.data % job.expert:
        what = f"{job.expert} does not divide the data parallel degree {job.data}"
        raise InputError(what, field=f"{field}.expert")
    if not 0 <= job.overlap <= 1:
        raise InputError(f"is {job.overlap}, not within 0 to 1", field=f"{field}.overlap")


def step_time(job: TrainingJob, placement: Sequence[Spot], fabric: Fabric) -> StepTime:
    """The time of one step on a placement (the spot of each rank, in order), by the formulas of the module's text.

    Raises:
        InputError: the job's numbers make no sense, or the placement has not one spot a GPU.
    """
    check_job(job)
    if len(placement) != job.gpus:
        what = f"has {len(placement)} GPUs for {job.tensor} x {job.pipeline} x {job.data} = {job.gpus} ranks"
        raise InputError(what, field="placement")
    lines: list[Line] = []
    tokens = job.micro_batch * job.sequence * job.microbatches * job.data
    compute = job.passes * 2 * job.parameters * tokens / (job.gpus * job.achieved_tflops * 1e12)
    parameters = f"{job.parameters:.4g}".replace("e+", "e")
    numbers = f"{job.passes} x 2 x {parameters} x {tokens:,} / ({job.gpus} x {job.achieved_tflops:g}e12)"
    lines.append(Line("compute", "passes 2 P T / (n F)", numbers, seconds(compute), compute))
    tensor = _tensor(job, placement, fabric, lines)
    expert = _expert(job, placement, fabric, lines)
    pipeline = _pipeline(job, placement, fabric, lines)
    data = _data(job, placement, fabric, lines)
    bubble = (job.pipeline - 1) / (job.interleave * job.microbatches)
    if job.pipeline > 1:
        numbers = f"({job.pipeline} - 1) / ({job.interleave} x {job.microbatches})"
        lines.append(Line("bubble", "(p - 1) / (v m)", numbers, f"{bubble:.3f}", bubble))
    exposed = max(0.0, pipeline + data - job.overlap * compute)
    total = (compute + tensor + expert) * (1 + bubble) + exposed
    numbers = f"({seconds(compute)} + {seconds(tensor + expert)}) x {1 + bubble:.3f} + {seconds(exposed)}"
    formula = "(compute + tensor and expert) (1 + bubble) + exposed pipeline and data"
    lines.append(Line("step", formula, numbers, seconds(total), total))
    return StepTime(total, compute, tensor, expert, pipeline, data, bubble, tuple(lines))


def slowdown(job: TrainingJob, placement: Sequence[Spot], best: Sequence[Spot], fabric: Fabric) -> Slowdown:
    """How much longer a step takes on ``placement`` than on ``best``, with the lines in which the two differ."""
    here, there = step_time(job, placement, fabric), step_time(job, best, fabric)
    lines: list[Line] = []
    for one, other in zip(here.lines, there.lines, strict=True):
        if one != other:
            lines += [_named(one, "as placed"), _named(other, "at best")]
    factor = here.total_s / there.total_s
    numbers = f"{seconds(here.total_s)} / {seconds(there.total_s)}"
    lines.append(Line("slow-down", "step as placed / step at best", numbers, f"{factor:.3f}", factor))
    return Slowdown(factor, here, there, tuple(lines))


def _named(line: Line, how: str) -> Line:
    return Line(f"{line.what}, {how}", line.formula, line.numbers, line.result, line.value)


def _tensor(job: TrainingJob, placement: Sequence[Spot], fabric: Fabric, lines: list[Line]) -> float:
    if job.tensor == 1:
        return 0.0
    size = job.activation_bytes
    one, group = _slowest(_groups(job, placement, "tensor"), size, fabric)
    _all_reduce_line("one all-reduce of a tensor group", size, group, fabric, one, lines)
    times = 4 * job.layers / job.pipeline * job.microbatches
    numbers = f"4 x {job.layers}/{job.pipeline} layers x {job.microbatches} x {seconds(one)}"
    lines.append(Line("tensor parallel", "4 L/p m all-reduces", numbers, seconds(times * one), times * one))
    return times * one


def _expert(job: TrainingJob, placement: Sequence[Spot], fabric: Fabric, lines: list[Line]) -> float:
    if job.expert == 1 or not job.expert_layers:
        return 0.0
    size = job.activation_bytes * job.top_k
    groups = _groups(job, placement, "expert")
    one = max(all_to_all_s(size, group.parts, fabric, crosses=group.crosses) for group in groups)
    times = 4 * job.expert_layers / job.pipeline * job.microbatches
    numbers = f"4 x {job.expert_layers}/{job.pipeline} layers x {job.microbatches} x {seconds(one)}"
    formula = f"4 L/p m all-to-alls of {megabytes(size)}"
    lines.append(Line("expert parallel", formula, numbers, seconds(times * one), times * one))
    return times * one


def _pipeline(job: TrainingJob, placement: Sequence[Spot], fabric: Fabric, lines: list[Line]) -> float:
    if job.pipeline == 1:
        return 0.0
    size = job.activation_bytes
    rates = {
        fabric.inside_gb_per_s if len(group.parts) == 1 else _outer_rate(fabric, group.crosses)
        for group in _groups(job, placement, "pipeline")
    }
    rate = min(rates)
    latency = fabric.inside_latency_s if rate == fabric.inside_gb_per_s else fabric.outside_latency_s
    value = 2 * job.microbatches * (latency + size / (rate * GB))
    numbers = f"2 x {job.microbatches} x ({seconds(latency)} + {megabytes(size)} / {rate:g} GB/s)"
    lines.append(Line("pipeline", "2 m (a + b s h e / B)", numbers, seconds(value), value))
    return value


def _data(job: TrainingJob, placement: Sequence[Spot], fabric: Fabric, lines: list[Line]) -> float:
    if job.data == 1:
        return 0.0
    size = job.parameters / (job.tensor * job.pipeline) * job.element_bytes
    one, group = _slowest(_groups(job, placement, "data"), size, fabric)
    _all_reduce_line("one all-reduce of a data group", size, group, fabric, one, lines)
    times = 1.5 if job.zero3 else 1.0
    formula = "1.5 all-reduces (ZeRO-3: 3 of 2 passes)" if job.zero3 else "1 all-reduce"
    lines.append(Line("data parallel", formula, f"{times:g} x {seconds(one)}", seconds(times * one), times * one))
    return times * one


def _slowest(groups: Sequence[_Group], size: float, fabric: Fabric) -> tuple[float, _Group]:
    """The longest all-reduce and the first group that has it."""
    times = [hierarchical_all_reduce_s(size, group.parts, fabric, crosses=group.crosses) for group in groups]
    longest = max(times)
    return longest, groups[times.index(longest)]


def _all_reduce_line(what: str, size: float, group: _Group, fabric: Fabric, value: float, lines: list[Line]) -> None:
    """The hierarchical all-reduce with its numbers; a phase of one member is left out."""
    most, least, domains = max(group.parts), min(group.parts), len(group.parts)
    formulas: list[str] = []
    numbers: list[str] = []
    if most > 1:
        formulas.append("2(g-1)a1 + 2(g-1)/g S/B1")
        hops = seconds(2 * (most - 1) * fabric.inside_latency_s)
        numbers.append(f"{hops} + {megabytes(wire_bytes(size, most))} / {fabric.inside_gb_per_s:g} GB/s")
    if domains > 1:
        formulas.append(f"2(k-1)a2 + 2(k-1)/k (S/g{'min' if most != least else ''})/B2")
        hops = seconds(2 * (domains - 1) * fabric.outside_latency_s)
        rate = _outer_rate(fabric, group.crosses)
        numbers.append(f"{hops} + {megabytes(wire_bytes(size / least, domains))} / {rate:g} GB/s")
    name = f"{what} ({group}; S = {megabytes(size)})"
    lines.append(Line(name, " + ".join(formulas), " + ".join(numbers), seconds(value), value))


def seconds(value: float) -> str:
    """A time with three digits: ``0.64 ms``, ``1.2 s``, ``28 us``; ``0`` for none."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 0.1:
            return f"{value * factor:.3g} {unit}" if value * factor < 1000 else f"{value * factor:,.0f} {unit}"
    return f"{value * 1e6:.2g} us" if value else "0"


def megabytes(value: float) -> str:
    """Bytes as ``134 MB`` or ``3.5 GB``, in powers of ten."""
    return f"{value / 1e9:.3g} GB" if value >= 1e9 else f"{value / 1e6:.3g} MB"
