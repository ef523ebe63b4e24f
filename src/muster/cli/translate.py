"""`muster translate FILE`: a batch script of Slurm as objects of Kubernetes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import emit_document, say
from muster.cli.source import named_source, namespace_asked, view_of
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.answers.translate.base import Mount, Translation
    from muster.model.snapshot import Snapshot

SCHEMA = "muster.translation/v1"

EPILOG = """\b
Examples:
  muster translate train.sbatch > train.yaml
  muster translate train.sbatch --image nvcr.io/nvidia/pytorch:25.09-py3 --volume /home=pvc/home
  muster translate train.sbatch --as job --gang podgroup --strict
  muster translate job.yaml --account research
  kubectl get jobset llama -o yaml | muster translate - > llama.sbatch
  muster translate train.sbatch --from now.snap -o json

\b
FILE is an sbatch script (it begins with #!) or YAML or JSON of Kubernetes objects (Job, JobSet, PyTorchJob, MPIJob,
LeaderWorkerSet, RayJob, Pod and all that muster fit reads); - is the standard input. What has no counterpart is named
line by line, in comments of the output and on stderr.
Exit codes: 0 translated, 1 something has no counterpart and --strict was given, 2 bad input.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option("--to", "to", type=click.Choice(("kubernetes", "slurm")), help="By itself: the other one.")
@click.option("--as", "kind", metavar="KIND", help="job, jobset or pytorchjob; by itself job for one pod, else jobset.")
@click.option("--gang", metavar="HOW", help="How pods start together: kueue, podgroup (native), muster, none.")
@click.option("--queue", metavar="NAME", help="The queue (LocalQueue), instead of the script's account or partition.")
@click.option("--account", metavar="NAME", help="To Slurm: the account, instead of the objects' queue.")
@click.option("--partition", metavar="NAME", help="To Slurm: the partition.")
@click.option("--image", metavar="IMAGE", help="The container image; to Slurm also none: run without containers.")
@click.option("--volume", "volumes", multiple=True, metavar="PATH=WHAT", help="A folder: pvc/CLAIM or host/FOLDER.")
@click.option("--priority-class", metavar="NAME", help="To Kubernetes: the priority class, for --qos.")
@click.option(
    "--node-gpus", type=click.IntRange(1, 256), default=8, show_default=True, help="GPUs of a node, without --from."
)  # fmt: skip
@click.option("--from", "source", metavar="SOURCE", help="A snapshot, whose labels, features and GPU types count.")
@click.option("--context", metavar="NAME", help="The same of a live cluster, by its context.")
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig that has it.")
@click.option("-n", "--namespace", metavar="NAME", help="The namespace of the objects.")
@click.option("--strict", is_flag=True, help="End with 1 if anything has no counterpart.")
@click.option("-q", "--quiet", is_flag=True, help="Remarks only in the output.")
@click.option(
    "-o", "--output", type=click.Choice(("text", "yaml", "json")), default="text", show_default=True,
    help="text: manifests or script, with comments; yaml or json: these and the remarks, for machines.",
)  # fmt: skip
def command(
    file: str, to: str | None, kind: str | None, volumes: tuple[str, ...], strict: bool, quiet: bool, output: str,
    **given: Any,
) -> None:  # fmt: skip
    """Translate a batch script of Slurm to manifests of Kubernetes, or such manifests to a batch script.

    What is asked for stays the same: pods, GPUs, CPUs, memory, time limit, topology. Each rank finds what srun would
    have given it (SLURM_PROCID, SLURM_LOCALID, the host list) and RANK, WORLD_SIZE, MASTER_ADDR: srun is a function in
    the pods.
    """
    from muster.answers.translate.base import mount_of

    cluster = {name: given.pop(name) for name in ("context", "kubeconfig", "namespace")}
    source = named_source(given.pop("source"), cluster)
    snapshot = None if source is None else view_of(source, None, ()).snapshot
    text, path = _read(file)
    is_script = text.startswith("#!") or (not _looks_like_yaml(text) and "#SBATCH" in text)
    target = to or ("kubernetes" if is_script else "slurm")
    if (target == "kubernetes") != is_script:
        what = f"{path} is {'an sbatch script' if is_script else 'no sbatch script'}"
        raise InputError(f"{what}, so it is translated to {'kubernetes' if is_script else 'slurm'}", field="--to")
    mounts = tuple(mount_of(each) for each in volumes)
    found = _made(text, path, snapshot, kind, mounts, given, to_kubernetes=is_script)
    if output == "text":
        click.echo(text_of(found), nl=False)
    else:
        emit_document(_document(found), output)
    if not quiet:
        for each in found.remarks:
            say(f"{'no counterpart: ' if each.lost else ''}{each}")
    if strict and found.lost:
        raise click.exceptions.Exit(1)


_ONLY = {
    **dict.fromkeys(("gang", "queue", "priority_class"), "kubernetes"),
    **dict.fromkeys(("account", "partition"), "slurm"),
}  # fmt: skip


def _made(
    text: str, path: str, snapshot: Snapshot | None, kind: str | None, mounts: tuple[Mount, ...], given: dict[str, Any],
    *, to_kubernetes: bool,
) -> Translation:  # fmt: skip
    from muster.answers.translate import to_kubernetes as kubernetes
    from muster.answers.translate import to_slurm as slurm

    for name, target in _ONLY.items():
        if given[name] is not None and (target == "kubernetes") != to_kubernetes:
            raise InputError(f"is for a translation to {target}", field=f"--{name.replace('_', '-')}")
    image, node_gpus = given["image"] or "", given["node_gpus"]
    if to_kubernetes:
        _one_of(kind, kubernetes.KINDS, "--as")
        _one_of(given["gang"], kubernetes.GANGS, "--gang")
        choices = kubernetes.Choices(
            kind or "", given["gang"] or "", given["queue"] or "", image, namespace_asked(),
            given["priority_class"] or "", node_gpus, mounts,
        )  # fmt: skip
        return kubernetes.to_kubernetes(text, path, choices, snapshot)
    if kind is not None:
        raise InputError("is for a translation to kubernetes", field="--as")
    asked = slurm.Choices(
        image, given["account"] or "", given["partition"] or "", node_gpus, mounts, namespace_asked()
    )  # fmt: skip
    return slurm.to_slurm(text, path, asked, snapshot)


def _one_of(value: str | None, known: tuple[str, ...], field: str) -> None:
    from muster.errors import near

    if value is not None and value not in known:
        raise InputError(f"is {value[:40]!r}", field=field, hint=near(value, known) or f"one of {', '.join(known)}")


def _read(file: str) -> tuple[str, str]:
    import sys

    from muster.traces.files import decode_text, read_bytes

    if file == "-":
        data, file = sys.stdin.buffer.read(), "standard input"
        if not data.strip():
            raise InputError("is empty", file=file, hint="kubectl get job NAME -o yaml | muster translate -")
        return decode_text(data, file), file
    return decode_text(read_bytes(file), file), file


def _looks_like_yaml(text: str) -> bool:
    return any(line.startswith(("apiVersion:", "kind:", "{", "---")) for line in text.splitlines())


def text_of(found: Translation) -> str:
    """The translation as a file: manifests with comments, or the scripts, one after the other."""
    from muster.answers.translate.base import header

    if found.to == "slurm":
        if len(found.scripts) == 1:
            return found.scripts[0][1]
        return "\n".join(f"# ---- {name}\n{text}" for name, text in found.scripts)
    from muster.answers.translate.documents import manifests_text

    return "\n".join(header(found.source, found.remarks)) + "\n" + manifests_text(found.objects)


def _document(found: Translation) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "source": found.source, "to": found.to, "kind": found.kind,
        "objects": list(found.objects), "scripts": [{"name": name, "text": text} for name, text in found.scripts],
        "remarks": [
            {"field": each.field, "line": each.line, "lost": each.lost, "text": each.text} for each in found.remarks
        ],
    }  # fmt: skip
