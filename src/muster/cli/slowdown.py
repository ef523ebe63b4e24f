"""`muster slowdown`: how much longer a training step takes on one placement than on another, with the arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import MOST_COLUMNS, Column, emit, emit_document, output_option, print_table, say, wrapped
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.planning.communication import Fabric, Line, Slowdown, StepTime, TrainingJob

SCHEMA = "muster.slowdown/v1"

EPILOG = """\b
Examples:
  muster slowdown --gpu H200 --parameters 70e9 --tensor 8 --placement 8 --placement 4+4
  muster slowdown --gpu H100 --parameters 70e9 --tensor 8 --pipeline 2 \\
      --placement 4x8/4x8 --oversubscription 4
  muster slowdown --gpu GB200 --achieved-tflops 800 --parameters 70e9 --tensor 16 \\
      --placement 16+16 -o json

\b
A placement says how many GPUs are in each NVLink domain, in the order of ranks:
  8        eight in one domain
  4+4      four in each of two
  4x8      eight in each of four
  2x8/2x8  two domains under each of two leaves of the network
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gpu", required=True, metavar="MODEL", help="A GPU model of `muster catalog gpus`.")
@click.option("--parameters", required=True, type=float, help="Parameters of the model, such as 70e9.")
@click.option(
    "--placement",
    "placements",
    multiple=True,
    required=True,
    metavar="TEXT",
    help="GPUs in each NVLink domain (repeatable). The others are compared with the first; one alone with the best.",
)
@click.option("--tensor", type=int, default=1, show_default=True, help="Tensor parallel degree.")
@click.option("--pipeline", type=int, default=1, show_default=True, help="Pipeline parallel degree; data is the rest.")
@click.option("--expert", type=int, default=1, show_default=True, help="Expert parallel degree.")
@click.option("--expert-layers", type=int, default=0, help="MoE layers.")
@click.option("--top-k", type=int, default=1, show_default=True, help="Experts that a token goes to.")
@click.option("--layers", type=int, default=0, help="Layers; left out, those of a usual model of that size.")
@click.option("--hidden", type=int, default=0, help="Width; left out, that of a usual model of that size.")
@click.option("--sequence", type=int, default=8192, show_default=True, help="Tokens of a sequence.")
@click.option("--micro-batch", type=int, default=1, show_default=True, help="Sequences a microbatch.")
@click.option("--microbatches", type=int, default=0, help="Microbatches a step; left out, 4 a pipeline stage.")
@click.option("--zero3", is_flag=True, help="Parameters are sharded too (ZeRO-3, FSDP).")
@click.option("--recompute", is_flag=True, help="Activations are computed again in the backward pass.")
@click.option("--overlap", type=float, default=1.0, show_default=True, help="Part of the compute time to hide under.")
@click.option(
    "--achieved-tflops", type=float, default=0.0, help="Of a GPU when nothing waits; left out, the catalog's."
)
@click.option("--nic", default="ConnectX-7", show_default=True, help="A NIC of `muster catalog links`.")
@click.option("--nics-per-gpu", type=float, default=1.0, show_default=True, help="NICs of a node over its GPUs.")
@click.option("--oversubscription", type=float, default=1.0, show_default=True, help="Of the uplinks of a leaf.")
@click.option(
    "--domain", type=int, default=0, help="GPUs of an NVLink domain at best; left out, those of a usual node."
)
@output_option
def command(
    gpu: str, parameters: float, placements: tuple[str, ...], nic: str, nics_per_gpu: float, oversubscription: float,
    domain: int, output: str, **given: Any,
) -> None:  # fmt: skip
    """Predict how much longer a training step takes on one placement than on another, and show the arithmetic.

    The formulas and what they leave out are explained in docs/explanation/topology.md.
    """
    from muster.catalog import find_gpu
    from muster.model.parallelism import Parallelism, check_degrees
    from muster.planning.communication import check_job, slowdown
    from muster.planning.placed import Network, best_spots, spots_from, text_of, training_job

    try:
        spots = [spots_from(text) for text in placements]
    except InputError as error:
        raise InputError(error.what, field="--placement", hint=error.hint) from None
    sizes = {len(each) for each in spots}
    if len(sizes) > 1:
        told = ", ".join(f"{text} has {len(each)}" for text, each in zip(placements, spots, strict=True))
        raise InputError(f"the placements differ in GPUs: {told}", field="--placement")
    asked = Parallelism(parameters=parameters, **given)
    for name, value in (("oversubscription", oversubscription), ("nics-per-gpu", nics_per_gpu)):
        if not 0 < value <= 1000:
            raise InputError(f"is {value:g}, not above 0 and at most 1000", field=f"--{name}")
    if not 0 <= domain <= 1_000_000:
        raise InputError(f"is {domain}, not 1 or more", field="--domain")
    try:
        check_degrees(asked, "")
    except InputError as error:
        raise _as_option(error) from None
    gpus, replica = sizes.pop(), asked.tensor * asked.pipeline
    if gpus % replica:
        what = f"{asked.tensor} x {asked.pipeline} = {replica} GPUs do not divide the {gpus} of the placements"
        raise InputError(what, field="--tensor" if asked.pipeline == 1 else "--pipeline")
    try:
        job = training_job(asked, gpus, gpu)
        check_job(job, "")
        fabric = Network(nic, nics_per_gpu, oversubscription=oversubscription).fabric(gpu)
    except InputError as error:
        raise _as_option(error) from None
    if len(spots) == 1:
        best = best_spots(job, domain or find_gpu(gpu).gpus_per_node or 8, fabric)
        spots, placements = [best, *spots], (text_of(best), *placements)
    told = [slowdown(job, each, spots[0], fabric) for each in spots]
    if output in ("json", "yaml"):
        emit_document(_document(job, fabric, gpu, placements, told), output)
    elif output in ("csv", "name"):
        emit(_records(placements, told), _COLUMNS, output=output, schema=SCHEMA, list_key="placements")
    else:
        _print(job, fabric, gpu, placements, told)


def _as_option(error: InputError) -> InputError:
    """An error of the library that names a field of the job, at the option that gives it."""
    names = {"model": "--gpu", "nic": "--nic", None: "--gpu"}
    field = (error.field or "").lstrip(".") or None
    return InputError(error.what, field=names.get(field) or f"--{(field or '').replace('_', '-')}", hint=error.hint)


_PARTS = (
    ("compute_s", "compute"), ("tensor_s", "tensor parallel"), ("expert_s", "expert parallel"),
    ("pipeline_s", "pipeline transfers"), ("data_s", "data parallel"),
)  # fmt: skip
_COLUMNS = [
    Column("placement", "placement"), Column("step_s", "step"), Column("slowdown", "slow-down"),
    *(Column(key, title) for key, title in _PARTS), Column("bubble", "bubble"),
]  # fmt: skip


def _records(placements: tuple[str, ...], told: list[Slowdown]) -> list[dict[str, Any]]:
    return [
        {
            "placement": text,
            "step_s": each.placed.total_s,
            "slowdown": each.factor,
            **{key: getattr(each.placed, key) for key, _ in _PARTS},
            "bubble": each.placed.bubble,
        }
        for text, each in zip(placements, told, strict=True)
    ]


def _document(
    job: TrainingJob, fabric: Fabric, gpu: str, placements: tuple[str, ...], told: list[Slowdown]
) -> dict[str, Any]:
    import msgspec

    records = _records(placements, told)
    for record, each in zip(records, told, strict=True):
        record["derivation"] = msgspec.to_builtins(each.placed.lines)
    return {
        "schema": SCHEMA,
        "gpu": gpu,
        "job": msgspec.to_builtins(job),
        "fabric": msgspec.to_builtins(fabric),
        "placements": records,
    }


def _print(job: TrainingJob, fabric: Fabric, gpu: str, placements: tuple[str, ...], told: list[Slowdown]) -> None:
    from muster.planning.communication import seconds

    degrees = f"tensor {job.tensor} x pipeline {job.pipeline} x data {job.data}"
    degrees += f", expert {job.expert}" if job.expert > 1 else ""
    tokens = job.micro_batch * job.sequence * job.microbatches * job.data
    lines = [
        f"{job.parameters / 1e9:.4g} billion parameters, {job.layers} layers of width {job.hidden:,}, "
        f"{tokens:,} tokens a step; {job.achieved_tflops:g} TFLOPS on each of {job.gpus} {gpu}; {degrees}.",
        f"A GPU reaches {fabric.origin}.",
    ]
    click.echo(wrapped("\n".join(lines), MOST_COLUMNS) + "\n")
    steps: list[StepTime] = [each.placed for each in told]
    rows = [
        [title, *(seconds(getattr(step, key)) for step in steps)]
        for key, title in _PARTS
        if any(getattr(step, key) for step in steps)
    ]
    if job.pipeline > 1:
        rows.append(["bubble", *(f"{step.bubble:.3f}" for step in steps)])
    rows.append(["step", *(seconds(step.total_s) for step in steps)])
    rows.append(["slow-down", *(f"{each.factor:.3f}" for each in told)])
    print_table([Column("part", ""), *(Column(text, text, right=True) for text in placements)], rows)
    shown: set[Line] = set()
    for text, each in zip(placements, told, strict=True):
        new = [line for line in each.placed.lines if line not in shown]
        shown.update(new)
        if new:
            click.echo(f"\nHow {text} comes about")
            _print_lines(new)
    say("Next: `muster simulate RUN.yaml` with communication: true stretches run times by where jobs stand.")


def _print_lines(lines: list[Line]) -> None:
    for line in lines:
        whole = f"  {line.text()}"
        if len(whole) <= MOST_COLUMNS:
            click.echo(whole)
            continue
        head = f"  {line.what}: {line.formula}"
        click.echo(head if len(head) <= MOST_COLUMNS else f"  {line.what}:\n    {line.formula}")
        click.echo(f"    = {line.numbers} = {line.result}")
