"""`muster k8s`: questions about a Kubernetes cluster's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, say, tell, thousands
from muster.cli.source import again, cluster_options, named_source
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.answers.dra.check import Asking, Check

SCHEMA = "muster.k8s.dra-check/v1"
_MOST_ROWS = 12
_CLUSTER = ("context", "kubeconfig", "namespace", "as_user", "all_namespaces", "cluster")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Questions about a Kubernetes cluster's own objects."""


@command.command(
    "dra-check",
    epilog="\b\nExamples:\n  muster k8s dra-check --context prod\n"
    "  kubectl get nodes,pods,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates \\\n"
    "    -A -o json > now.json\n"
    "  muster k8s dra-check --from now.json -o wide\n"
    "  muster k8s dra-check --from now.json --template research/train > claims.yaml\n"
    "  muster k8s dra-check --context prod -o json | jq '.in_the_way'\n\n"
    "\b\nExit codes: 0 nothing is in the way, 1 something is, 2 usage or bad input, 3 cluster not reached.",
)
@cluster_options
@click.option(
    "--from", "source", envvar="MUSTER_FROM", metavar="SOURCE",
    help="A kubectl dump (DUMP.json) or kubernetes:CONTEXT. [env: MUSTER_FROM]",
)  # fmt: skip
@click.option(
    "--template", "workload", metavar="NAMESPACE/OWNER", help="Write what these pods would ask with DRA, as YAML."
)
@output_option
@click.pass_context
def dra_check(ctx: click.Context, source: str | None, workload: str | None, output: str, **given: Any) -> None:
    """What moving from the device plugin to DRA would change, and what is in the way.

    DRA (dynamic resource allocation, resource.k8s.io) gives GPUs out as devices that claims ask for. Tells of each
    workload how it asks today, what the same is with DRA and whether its pods change; of each pool of nodes whether
    it can move; what server and driver need; GPUs that are advertised twice. Nothing is written to the cluster.
    """
    from muster.answers.dra.check import check
    from muster.answers.worlds import open_world

    typed = ctx.get_parameter_source("source") is click.core.ParameterSource.COMMANDLINE
    named = named_source(source, {name: given[name] for name in _CLUSTER}, typed=typed)
    if named is None:
        raise InputError("no source is named", hint="say --from DUMP.json, or --context NAME for a live cluster")
    objects = open_world(named, say)
    found = check(objects.world, objects.version)
    if workload is not None:
        _write_template(found, workload)
        return
    if output in ("json", "yaml"):
        emit_document({"schema": SCHEMA, "in_the_way": found.in_the_way, **_document(found)}, output)
    elif output in ("csv", "name"):
        columns = [Column(key, key) for key in ("workload", "pods", "today", "with_dra", "change", "why")]
        emit([_asking(each) for each in found.workloads], columns, output=output, schema=SCHEMA, list_key="workloads")
    else:
        _print(found, again(named, None), wide=output == "wide")
    if found.in_the_way:
        ctx.exit(1)


def _document(found: Check) -> dict[str, Any]:
    from msgspec import to_builtins

    document: dict[str, Any] = to_builtins(found)
    document["workloads"] = [_asking(each) for each in found.workloads]
    return document


def _asking(each: Asking) -> dict[str, Any]:
    return {
        "workload": each.workload, "pods": each.pods, "today": each.today, "with_dra": each.with_dra,
        "change": each.change, "why": each.why,
    }  # fmt: skip


# -- for people -------------------------------------------------------------------------------------------------------


def _print(found: Check, source: str, *, wide: bool) -> None:
    tell(_summary(found))
    if found.workloads:
        click.echo()
        rows = found.workloads if wide else found.workloads[:_MOST_ROWS]
        columns = [
            Column("workload", "Workload"), Column("pods", "Pods", right=True), Column("today", "Asks today"),
            Column("with_dra", "With DRA"), Column("change", "Its pods"), Column("why", "Because"),
        ]  # fmt: skip
        shown = [
            [each.workload, thousands(each.pods), each.today, each.with_dra, each.change, each.why] for each in rows
        ]
        if not any(each.why for each in rows):
            columns, shown = columns[:-1], [row[:-1] for row in shown]
        print_table(columns, shown, fold=not wide)
        if len(rows) < len(found.workloads):
            tell(f"{len(found.workloads) - len(rows):,} workloads more: -o wide")
    if found.pools:
        click.echo()
        columns = [
            Column("model", "GPUs of nodes"), Column("shared", "Shared"), Column("nodes", "Nodes", right=True),
            Column("gpus", "GPUs", right=True), Column("advertised", "Advertised by"), Column("stance", "Stance"),
            Column("why", "Because"),
        ]  # fmt: skip
        print_table(
            columns,
            [
                [each.model, each.shared or "no", thousands(each.nodes), thousands(each.gpus), each.advertised,
                 each.stance, each.why]
                for each in found.pools
            ],
            fold=not wide,
        )  # fmt: skip
    click.echo()
    columns = [
        Column("feature", "To have"), Column("kubernetes", "Kubernetes, on by default since"),
        Column("driver", "Driver's gate"), Column("there", f"On {found.version or 'this server'}"),
    ]  # fmt: skip
    print_table(columns, [[each.feature, each.kubernetes, each.driver or "-", each.there] for each in found.needed])
    _print_findings(found, source)


def _summary(found: Check) -> str:
    server = f"Kubernetes {found.version.removeprefix('v')}" if found.version else "The server's version is not known"
    names = ", ".join(found.drivers)
    drivers = f"DRA driver{'s' if len(found.drivers) > 1 else ''} {names}" if names else "no DRA driver"
    nodes = f"{found.gpu_nodes:,} node{'' if found.gpu_nodes == 1 else 's'} with GPUs"
    count = found.in_the_way
    way = f"{count} thing{' is' if count == 1 else 's are'} in the way" if count else "nothing is in the way"
    return f"{server}, {drivers}, {nodes}: {way} of moving to DRA."


def _print_findings(found: Check, source: str) -> None:
    for title, blocks in (("In the way", True), ("To know", False)):
        mine = [each for each in found.findings if each.blocks is blocks]
        if mine:
            click.echo()
            columns = [Column("text", title), Column("fix", "What to do")]
            print_table(columns, [[each.text, each.fix] for each in mine])
    movable = next((each for each in found.workloads if each.change not in ("in the way", "none")), None)
    if movable is not None:
        click.echo()
        click.echo("What pods would say with DRA:")
        click.echo(f"  muster k8s dra-check{source} --template {movable.workload}")


def _write_template(found: Check, workload: str) -> None:
    """YAML of a claim template for a workload; what else its pods say stands above it as comments."""
    import difflib

    from msgspec import yaml

    from muster.answers.dra.check import BLOCKED, CLAIMS, SAME
    from muster.answers.dra.template import class_object, template_objects

    mine = [each for each in found.workloads if each.workload == workload]
    if not mine:
        names = list(dict.fromkeys(each.workload for each in found.workloads))
        near = difflib.get_close_matches(workload, names, n=3, cutoff=0.4) or names[:3]
        hint = f"such as {', '.join(near)}" if near else "no pods ask for GPUs here"
        raise InputError(f"no pods of {workload} ask for GPUs", field="--template", hint=hint)
    one = next((each for each in mine if each.change != BLOCKED and each.way.kind != CLAIMS), mine[0])
    objects, says = template_objects(one)
    lines = [f"# {one.workload} asks for {one.today} today ({one.pods:,} pod{'' if one.pods == 1 else 's'}).", "#"]
    lines += [f"# {line}" for line in says]
    documents = [yaml.encode(each).decode() for each in objects]
    if one.change == SAME:
        lines += ["#", "# Or leave the pods as they are: with the DeviceClass below, made once in the cluster,",
                  f"# {one.way.resource} is given out by DRA on nodes whose device plugin has none of it."]  # fmt: skip
        documents.append(yaml.encode(class_object(one)).decode())
    click.echo("\n".join(lines))
    click.echo("---\n".join(documents), nl=False)
