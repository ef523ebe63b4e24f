"""`muster plan topology`: a training job's step on whole and on half nodes, under one leaf and over the spine."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from msgspec.structs import replace

from muster.catalog.names import find_gpu
from muster.errors import InputError
from muster.model.parallelism import Parallelism
from muster.planning.communication import Fabric, Spot, StepTime, TrainingJob, check_job, seconds, step_time
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.kinds_of_parallelism import Sent, kinds_sent
from muster.planning.placed import Network, best_spots, spots_from, text_of, training_job
from muster.planning.quantities import BYTES, FLOPS, SHARE, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked

_PARAMETERS = numbers("parameters", "70e9")
MOST_GPUS = 16_384


class Placement(Question, frozen=True, kw_only=True, dict=True):
    """A training job by its degrees of parallelism."""

    planner = "topology"
    asks = "What does it cost a training step to stand on split nodes or over the spine, and what must stand together?"

    gpu: Annotated[str, Ask("G", "GPU model")] = "H100"
    gpus: Annotated[
        int, Ask("n", "GPUs of the job", counts("GPUs", "64"), least=2, most=MOST_GPUS, usual="8 to 4,096")
    ] = 64
    parameters: Annotated[
        float, Ask("P", "parameters of the model", _PARAMETERS, least=1e6, most=1e14, usual="1e9 to 2e12")
    ] = 70e9  # fmt: skip
    tensor: Annotated[int, Ask("t", "tensor parallel degree", counts("", "8"), least=1, usual="1 to 8", vary=())] = 8
    pipeline: Annotated[
        int, Ask("p", "pipeline parallel degree", counts("", "2"), least=1, usual="1 to 16", vary=())
    ] = 2
    expert: Annotated[int, Ask("e", "expert parallel degree", counts("", "8"), least=1, usual="1 to 64", vary=())] = 1
    expert_layers: Annotated[
        int, Ask("E", "layers with experts", counts("", "32"), usual="0 to 100", vary=())
    ] = 0  # fmt: skip
    top_k: Annotated[
        int, Ask("k", "experts that a token goes to", counts("", "2"), least=1, usual="1 to 8", vary=())
    ] = 1
    sequence: Annotated[
        int, Ask("s", "tokens of a sequence", counts("tokens", "8192"), least=1, usual="2,048 to 131,072")
    ] = 8192
    micro_batch: Annotated[int, Ask("b", "sequences of a microbatch", counts("", "1"), least=1, usual="1 to 8")] = 1
    microbatches: Annotated[
        int, Ask("m", "microbatches of a step and replica; 0: four a stage, or one", counts("", "8"), usual="4 to 64")
    ] = 0  # fmt: skip
    layers: Annotated[
        int, Ask("l", "layers; 0: those of a usual model of that size", counts("", "80"), usual="20 to 130", vary=())
    ] = 0
    hidden: Annotated[
        int,
        Ask("h", "width; 0: that of a usual model of that size", counts("", "8192"), usual="2,048 to 20,000", vary=()),
    ] = 0
    achieved: Annotated[
        float | None,
        Ask("F", "what a GPU reaches in this job, where the catalog does not know it", FLOPS, above=True,
            usual="100TFLOPS to 1PFLOPS"),
    ] = None  # fmt: skip
    zero3: Annotated[bool, Ask("z", "parameters are sharded too (ZeRO-3, FSDP)")] = False
    overlap: Annotated[
        float,
        Ask("o", "part of the compute under which pipeline and data transfers hide", SHARE, most=1, usual="0.5 to 1"),
    ] = 1.0
    nic: Annotated[str, Ask("N", "NIC, as muster catalog links names it")] = "ConnectX-7"
    nics_per_gpu: Annotated[
        float, Ask("c", "NICs of a node over its GPUs", numbers("", "1"), above=True, most=16, usual="0.125 to 1")
    ] = 1.0  # fmt: skip
    oversubscription: Annotated[
        float, Ask("v", "how many times slower a leaf's uplinks are than its ports", numbers("times", "2"), least=1,
                   most=1000, usual="1 to 4")
    ] = 4.0  # fmt: skip
    domain: Annotated[
        int, Ask("d", "GPUs of an NVLink domain; 0: those of the model's usual node", counts("GPUs", "8"), most=1024,
                 usual="4 to 72", vary=())
    ] = 0  # fmt: skip
    placements: Annotated[
        tuple[str, ...], Ask("S", "placements to compare instead, such as 4+4, 8x8 or 4x8/4x8", option="placement")
    ] = ()  # fmt: skip

    @cached_property
    def _job(self) -> TrainingJob:
        replica = self.tensor * self.pipeline
        if self.gpus % replica:
            what = f"{self.tensor} x {self.pipeline} = {replica} GPUs do not divide {self.gpus}"
            raise InputError(what, field="--gpus", hint="tensor x pipeline x data = GPUs; data is what is left")
        asked = Parallelism(
            self.tensor, self.pipeline, 0, self.expert, self.parameters, sequence=self.sequence,
            micro_batch=self.micro_batch, microbatches=self.microbatches, expert_layers=self.expert_layers,
            top_k=self.top_k, achieved_tflops=(self.achieved or 0.0) / 1e12,
            layers=self.layers, hidden=self.hidden, zero3=self.zero3, overlap=self.overlap,
        )  # fmt: skip
        try:
            job = training_job(asked, self.gpus, self.gpu)
            check_job(job, "")
        except InputError as error:
            raise _as_option(error) from None
        return job

    @cached_property
    def _fabric(self) -> Fabric:
        try:
            return Network(self.nic, self.nics_per_gpu, oversubscription=self.oversubscription).fabric(self.gpu)
        except InputError as error:
            raise _as_option(error) from None

    @cached_property
    def _per_domain(self) -> int:
        try:
            return self.domain or find_gpu(self.gpu).gpus_per_node or 8
        except InputError as error:
            raise _as_option(error) from None

    @cached_property
    def _spots(self) -> tuple[tuple[str, str, tuple[Spot, ...]], ...]:
        """Name, text and spots of each placement; the best first."""
        best = best_spots(self._job, self._per_domain, self._fabric)
        found = [("whole domains, one leaf", text_of(best), best)]
        if self.placements:
            for text in self.placements:
                try:
                    spots = spots_from(text)
                except InputError as error:
                    raise InputError(error.what, field="--placement", hint=error.hint) from None
                if len(spots) != self.gpus:
                    what = f"{text} has {len(spots)} GPUs, the job {self.gpus}"
                    raise InputError(what, field="--placement", hint="GPUs in each domain, such as 4+4 or 2x8/2x8")
                found.append(("as given", text, spots))
            return tuple(found)
        n, d = self.gpus, min(self._per_domain, self.gpus)
        texts: list[tuple[str, str]] = []
        if d % 2 == 0 and n % d == 0:
            texts.append(("half domains, one leaf", f"{2 * n // d}x{d // 2}"))
        if n % (2 * d) == 0:
            texts.append(("whole domains, two leaves", f"{n // d // 2}x{d}/{n // d // 2}x{d}"))
        if d % 2 == 0 and n % d == 0:
            texts.append(("half domains, two leaves", f"{n // d}x{d // 2}/{n // d}x{d // 2}"))
        return tuple(found + [(name, text, spots_from(text)) for name, text in texts])

    def _times(self) -> list[StepTime]:
        return [step_time(self._job, spots, self._fabric) for _, _, spots in self._spots]

    def headline(self) -> float:
        """The slow-down of the first alternative alone."""
        times = [step_time(self._job, spots, self._fabric).total_s for _, _, spots in self._spots[:2]]
        return times[-1] / times[0]

    def work(self) -> Worked:
        """See `muster.planning.communication` for the model, `muster.planning.kinds_of_parallelism` for the rules."""
        times = self._times()
        sent = kinds_sent(self._job, self._per_domain, self._fabric)
        other = min(1, len(times) - 1)
        results = [
            Result(
                f"step on {self._spots[other][0]}, against the best", times[other].total_s / times[0].total_s, "times"
            )
        ]
        for (name, text, _), each in zip(self._spots, times, strict=True):
            results.append(Result(f"step on {name} ({text})", each.total_s, "s"))
        results += [Result(f"{each.kind} parallel groups stand", each.rule) for each in sent]
        return Worked(
            self._answer(times, sent), _FORMULA,
            "NCCL's bus factors; Megatron-LM's volumes; S. Bekman, Machine Learning Engineering; "
            "muster.planning.communication",
            tuple(self._steps(sent, times[0])), tuple(results), tuple(self._tables(times, sent)), (self._chart(),),
            _FAILS, tuple(self._todo(sent)),
        )  # fmt: skip

    def _answer(self, times: list[StepTime], sent: tuple[Sent, ...]) -> str:
        told = [f"On {self._spots[0][0]} a step takes {seconds(times[0].total_s)}"]
        for (name, text, _), each in zip(self._spots[1:], times[1:], strict=True):
            told.append(f"on {text if name == 'as given' else name} {_grown(each.total_s / times[0].total_s)}")
        most = max(sent, key=lambda each: each.leaves_node, default=None)
        why = ""
        if most is not None and most.leaves_node > 0.01:
            why = f" {most.kind.capitalize()} parallel groups cost most when they leave: {most.rule}."
        return f"{'; '.join(told)}.{why}"

    def _steps(self, sent: tuple[Sent, ...], best: StepTime) -> list[Step]:
        fabric = self._fabric
        outside, over = fabric.outside_gb_per_s, fabric.outside_gb_per_s / fabric.oversubscription
        steps: list[Step] = []
        for each in sent:
            wire = BYTES.show(each.wire_bytes)
            text = f"{each.kind}: what a GPU sends for one message of {BYTES.show(each.size_bytes)}"
            steps.append(Step(text, _wire(each, self._job), each.wire_bytes, "B"))
            ways = [("outside", outside, each.outside_s)]
            if each.fits:
                ways.insert(0, ("inside", fabric.inside_gb_per_s, each.inside_s))
            if fabric.oversubscription > 1:
                ways.append(("over the spine", over, each.over_spine_s))
            for where, rate, spent in ways:
                worked = f"{wire} / {figure(rate)} GB/s and hops"
                steps.append(Step(f"{each.kind}: one message {where}", worked, spent / each.messages, "s"))
        for line in best.lines:
            if line.what in ("compute", "bubble", "step"):
                unit = "" if line.what == "bubble" else "s"
                steps.append(Step(f"{line.what}, at best", f"{line.formula} = {line.numbers}", line.value, unit))
        return steps

    def _tables(self, times: list[StepTime], sent: tuple[Sent, ...]) -> list[Table]:
        parts = ("tensor_s", "expert_s", "pipeline_s", "data_s")
        rows = tuple(
            (text, seconds(each.total_s), f"{each.total_s / times[0].total_s:.2f}", seconds(each.compute_s),
             *(seconds(getattr(each, part)) for part in parts))
            for (_, text, _), each in zip(self._spots, times, strict=True)
        )  # fmt: skip
        columns = ("placement", "step", "x", "compute", "tensor", "expert", "pipeline", "data")
        rules = tuple(
            (each.kind, BYTES.show(each.size_bytes), round(each.messages), BYTES.show(each.wire_bytes * each.messages),
             _percent(each.leaves_node) if each.fits else "never fits", _percent(each.leaves_leaf), each.rule)
            for each in sent
        )  # fmt: skip
        heads = ("kind", "message", "a step", "sent a GPU", "leaves domain", "leaves leaf", "groups stand in")
        return [
            Table("Placements (GPUs in each NVLink domain; / parts leaves)", columns, rows),
            Table("What each kind sends, and by how much a step grows if its groups leave", heads, rules),
        ]

    def _chart(self) -> Chart:
        sizes: dict[str, list[tuple[float, float]]] = {}
        replica = self.tensor * self.pipeline
        for factor in (1, 2, 4, 8, 16, 32):
            gpus = factor * max(replica, self._per_domain)
            if gpus > MOST_GPUS or gpus % replica or (gpus // replica) % self.expert:
                continue
            other = replace(self, gpus=gpus, placements=())
            times = other._times()
            for (name, _, _), each in zip(other._spots[1:], times[1:], strict=True):
                sizes.setdefault(name, []).append((gpus, each.total_s / times[0].total_s))
        lines = tuple(Line(name, tuple(points)) for name, points in sizes.items())
        return Chart("Step against the best placement, by the size of the job", "GPUs", "times as long", lines)

    def _todo(self, sent: tuple[Sent, ...]) -> list[str]:
        per_node = min(self._per_domain, self.gpus)
        told: list[str] = []
        if any("NVLink domain: required" in each.rule for each in sent):
            told.append(
                f"Ask for whole nodes: pods of {per_node} GPUs on Kubernetes; --gpus-per-node={per_node} --exclusive "
                "on Slurm. A job of single-GPU pods needs a required topology of its host or NVLink domain."
            )
        if any("leaf" in each.rule for each in sent):
            told.append(
                "Keep it under one leaf: Kueue's podset-preferred-topology, Volcano's networkTopology, "
                "on Slurm --switches=1@2:00:00 (wait two hours for it) or --segment with topology/block."
            )
        told.append("Give ranks in order, tensor parallel innermost: a run file of Muster does.")
        told.append("For a placement of your own: --placement 4x8/4x8, with all its lines: muster slowdown.")
        told.append("Measure it: nccl-tests all_reduce_perf at the message sizes above, inside a node and over two.")
        return told


def _wire(each: Sent, job: TrainingJob) -> str:
    size = BYTES.show(each.size_bytes)
    n = {"tensor": job.tensor, "data": job.data, "expert": job.expert}.get(each.kind, 0)
    if each.kind == "pipeline":
        return f"b s h e = {job.micro_batch} x {job.sequence:,} x {job.hidden:,} x {job.element_bytes}"
    if each.kind == "expert":
        return f"({n} - 1)/{n} x {size}"
    return f"2 x ({n} - 1)/{n} x {size}"


def _grown(factor: float) -> str:
    if factor >= 1.5:
        return f"{factor:.1f} times as long"
    return f"{100 * (factor - 1):.1f} % longer" if factor > 1.0005 else "as long"


def _percent(share: float) -> str:
    return f"+{100 * share:.0f} %" if share >= 0.095 else f"+{100 * share:.1f} %"


def _as_option(error: InputError) -> InputError:
    names = {"model": "--gpu", "nic": "--nic", "achieved_tflops": "--achieved"}
    field = (error.field or "").lstrip(".")
    hint = FLOPS.hint if field == "achieved_tflops" else error.hint
    return InputError(error.what, field=names.get(field, f"--{(field or 'gpu').replace('_', '-')}"), hint=hint)


_FORMULA = (
    "tensor: 4 L/p m all-reduces of b s h e bytes, in the path; expert: 4 E/p m all-to-alls of b s k h e bytes",
    "pipeline: 2 m transfers of b s h e bytes; bubble (p - 1)/m; data: an all-reduce of P/(t p) e bytes a step",
    "ring all-reduce of S bytes over n: 2 (n - 1) a + 2 (n - 1)/n S/B;  B: NVLink, NIC, or NIC / v over the spine",
    "step = (compute + tensor + expert)(1 + bubble) + max(0, pipeline + data - o compute)",
)
_FAILS = (
    "Tensor parallel transfers are overlapped with compute (asynchronous tensor parallelism hides a part): less grows.",
    "Other jobs use the same uplinks: the oversubscription that a job sees is then larger than the fabric's.",
    "One NIC or link is slow: collectives go at the pace of the slowest, and the form knows rates only.",
    "Message sizes below about a megabyte: latency and protocol changes of NCCL decide, not the rates.",
    "Expert routing is uneven: the all-to-all waits for the GPU with most tokens.",
)
