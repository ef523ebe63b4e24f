"""`muster fit SPEC`: whether work would start if it were submitted now, and where; else why not, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit_document, print_table, tell
from muster.cli.source import namespace_asked, source_options, view_of
from muster.errors import InputError
from muster.planning.quantities import seconds

if TYPE_CHECKING:
    from muster.answers.fit import Asked, Changes, Fit, FitView
    from muster.answers.specs.base import Specs
    from muster.model.snapshot import Snapshot

MOST_ROWS = 12
MOST_OTHERS = 4

EPILOG = """\b
Examples:
  muster fit job.yaml --from now.snap
  muster fit train.sbatch --from now.snap --explain
  muster fit job.yaml -n research --context prod
  kubectl get job llama-70b -o yaml | muster fit - --from now.snap
  muster fit --pods 8 --gpus 8 --queue research --topology block --from now.snap
  muster fit job.yaml --from now.snap --tensor 8 --parameters 70e9
  muster fit job.yaml --from now.snap -o json

\b
SPEC is a YAML or JSON file of Kubernetes objects (Job, JobSet, PyTorchJob, TrainJob, RayCluster, RayJob,
LeaderWorkerSet, Deployment, StatefulSet, Pod and more) or an sbatch script; - is the standard input.
Exit codes: 0 all of it starts now, 1 not now, 2 bad input.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("spec", required=False)
@source_options
@click.option("--explain", is_flag=True, help="Also the changes to the work by which it would start sooner.")
@click.option("--queue", metavar="QUEUE", help="The queue, instead of the spec's.")
@click.option("--user", metavar="USER", help="Whose it is: limits of users count for it.  [default: you]")
@click.option("--priority", type=int, help="The priority, instead of the spec's.")
@click.option("--time", "limit", metavar="TIME", help="The time limit, such as 90m or 2h, instead of the spec's.")
@click.option("--flavor", "flavors", multiple=True, help="A flavor that it may use (repeatable, tried in this order).")
@click.option("--pods", type=click.IntRange(1, 1_000_000), help="Without SPEC: so many pods.  [default: 1]")
@click.option("--gpus", type=float, help="Without SPEC: GPUs a pod; below 1 a share of one.")
@click.option("--cpu", metavar="QUANTITY", help="Without SPEC: CPUs a pod, such as 16 or 500m.")
@click.option("--memory", metavar="QUANTITY", help="Without SPEC: memory a pod, such as 64Gi.")
@click.option("--gpu-model", metavar="MODEL", help="Without SPEC: a GPU model, such as H100.")
@click.option("--topology", metavar="LEVEL", help="Without SPEC: all pods in one domain of this level.")
@click.option("--prefer", metavar="LEVEL", help="Without SPEC: in one domain of this level if possible.")
@click.option("--segment", type=click.IntRange(1, 1_000_000), help="Without SPEC: pods that share a domain.")
@click.option("--parameters", type=float, help="Of the model that is trained, such as 70e9: tells the slow-down.")
@click.option("--tensor", type=int, help="Tensor parallel degree: such pods stand in one NVLink domain.")
@click.option("--pipeline", type=int, help="Pipeline parallel degree.")
@click.option("--expert", type=int, help="Expert parallel degree.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json", "yaml", "name")), default="table", show_default=True,
    help="table for people; json or yaml for machines; name: the nodes, one a line.",
)  # fmt: skip
def command(
    spec: str | None, source: str, at: str | None, settings: tuple[str, ...], explain: bool, output: str, **given: Any
) -> None:
    """Tell whether work would start if it were submitted now.

    It is put into the snapshot, and the scheduler's own cycle decides: where it stands, who gives way, who starts
    later; and if it does not start, why not, and when it would.
    """
    from muster.answers.fit import MOST_EXPLAINED, changes_that_fit, fit

    view = view_of(source, at, settings)
    specs = _specs(spec, view.snapshot, given)
    if view.snapshot.limits and not given["user"]:
        import getpass

        given["user"] = getpass.getuser()
    told, fitted = fit(view.snapshot, specs, view.config, _asked(given))
    waits = [each for each in told.answers if each.place is None][:MOST_EXPLAINED] if explain else []
    changes = [changes_that_fit(fitted, each, specs) for each in waits]
    if output in ("json", "yaml"):
        from muster.answers.fit_document import fit_document

        emit_document(fit_document(told, fitted, specs, changes if explain else None), output)
    elif output == "name":
        for node in dict.fromkeys(pod.node for each in told.answers if each.place for pod in each.place.pods):
            click.echo(node)
    else:
        _print(told, fitted, specs)
        for each in changes:
            _print_changes(each)
        if not (told.fits or explain):
            click.echo()
            tell("Add --explain for the smallest changes by which it would start.")
    raise click.exceptions.Exit(0 if told.fits else 1)


_SHAPE = ("pods", "gpus", "cpu", "memory", "gpu_model", "topology", "prefer", "segment")
_PARALLEL = ("parameters", "tensor", "pipeline", "expert")


def _specs(spec: str | None, snapshot: Snapshot, given: dict[str, Any]) -> Specs:
    shape = {key: given[key] for key in _SHAPE if given[key] is not None}
    if spec is None:
        from muster.answers.specs.plain import Shape, plain_specs

        if not shape:
            raise InputError("nothing is asked for", hint="name a SPEC file, or say --pods and --gpus")
        return plain_specs(Shape(**shape), snapshot.fleet)
    if shape:
        option = f"--{next(iter(shape)).replace('_', '-')}"
        raise InputError(f"cannot be given beside {spec}", field=option, hint="it is for work without a file")
    from muster.answers.specs.read import read_specs

    return read_specs(spec, snapshot, namespace_asked())


def _asked(given: dict[str, Any]) -> Asked:
    from muster.answers.fit import Asked
    from muster.model.parallelism import Parallelism, check_degrees

    parallel = {key: given[key] for key in _PARALLEL if given[key] is not None}
    parallelism = Parallelism(**parallel) if parallel else None
    if parallelism is not None:
        try:
            check_degrees(parallelism, "")
        except InputError as error:
            raise InputError(error.what, field=f"--{(error.field or '').lstrip('.')}", hint=error.hint) from None
    return Asked(
        given["queue"],
        given["priority"],
        None if given["limit"] is None else seconds(given["limit"], "--time"),
        tuple(given["flavors"]),
        parallelism,
        given["user"] or "",
    )


# -- for people


def _print(told: Fit, view: FitView, specs: Specs) -> None:
    from muster.answers.fit_words import delay, displacement, sentence, starts, where
    from muster.answers.told import said_of

    several = len(told.answers) > 1
    if several:
        now = sum(each.place is not None for each in told.answers)
        begin = "Yes" if told.fits else "No"
        tell(f"{begin}: {now:,} of {len(told.answers):,} jobs of {specs.source} would start now.")
        click.echo()
    shown = told.answers[:MOST_ROWS]
    for number, each in enumerate(shown):
        if number and not several:
            click.echo()
        tell(sentence(view, each, verdict=not several))
        if (said := said_of(each.workload)) is not None:
            tell(f"  Slurm would say {said.code}: {said.text}")
            tell(f"  {said.detail}. {said.fix}{f'  {said.command}' if said.command else ''}")
        for title, text in where(each):
            tell(f"  {title:<10} {text}")
        for text in starts(view, each):
            tell(text)
    if len(told.answers) > len(shown):
        tell(f"... and {len(told.answers) - len(shown):,} more jobs (-o json lists all)")
    if told.displaced or told.delayed:
        click.echo()
        _print_displaced(view, told, displacement, delay)
    if told.notes:
        click.echo()
        tell("To be known:")
        for note in told.notes:
            tell(f"  {note}")


def _print_changes(each: Changes) -> None:
    from muster.answers.fit_words import change

    click.echo()
    if not each.own and not each.others:
        tell(f"No single change was found by which {each.job} would start now.")
    for title, fixes in (("change of the work", each.own), ("or, by others", each.others[:MOST_OTHERS])):
        if fixes:
            if title != "change of the work" and each.own:
                click.echo()
            columns = [Column("title", title), Column("cost", "costs others"), Column("when", "starts in")]
            print_table(columns, [change(fix) for fix in fixes])


def _print_displaced(view: FitView, told: Fit, displacement: Any, delay: Any) -> None:
    rows = [displacement(view, each) for each in told.displaced]
    rows += [delay(view, each) for each in told.delayed]
    columns = [Column("job", "who gives way"), Column("how", "how"), Column("cost", "costs it", right=True)]
    print_table(columns, rows[: 2 * MOST_ROWS])
    if len(rows) > 2 * MOST_ROWS:
        tell(f"... and {len(rows) - 2 * MOST_ROWS:,} more (-o json lists all)")
