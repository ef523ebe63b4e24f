"""`muster slurm config`: check a cluster's configuration files, and write them from a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, say, tell

if TYPE_CHECKING:
    from muster.slurm.config.files import Config
    from muster.slurm.config.findings import Finding, Workload

SCHEMA = "muster.slurm.config-check/v1"


@click.group("config", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """A cluster's configuration: what is wrong with slurm.conf and the files beside it."""


@command.command(
    "check",
    epilog="\b\nExamples:\n  muster slurm config check /etc/slurm\n  muster slurm config check slurm.conf gres.conf\n"
    "  muster slurm config check --cluster slurm --from now.snap\n"
    "  muster slurm config check /etc/slurm -o json | jq -r '.findings[] | select(.severity == \"error\").what'\n"
    "  muster slurm config check --rules\n\n"
    "\b\nExit codes: 0 nothing is found (notes do not count), 1 something is, 2 usage or bad input.",
)
@click.argument("paths", nargs=-1, metavar="[DIR|FILES...]")
@click.option("--cluster", type=click.Choice(["slurm"]), help="The configuration of this machine (SLURM_CONF).")
@click.option("--from", "source", metavar="SOURCE", help="A snapshot, whose queue backfill is held against.")
@click.option("--rules", "list_rules", is_flag=True, help="List all rules with their sources.")
@output_option
@click.pass_context
def check(
    ctx: click.Context, paths: tuple[str, ...], cluster: str | None, source: str | None, list_rules: bool, output: str
) -> None:
    """What is wrong with slurm.conf, gres.conf, cgroup.conf and the topology, and what each costs.

    Counts of GPUs that differ between files, GPUs that memory defaults strand, what backfill never plans, priority
    weights that cancel out, preemption that loses work, nodes in no switch, time-outs too short for the cluster's
    size. Each finding names file and line, what happens, and what to write instead. Nothing is written.
    """
    from muster.slurm.config.check import RULES
    from muster.slurm.config.check import check as find

    if list_rules:
        records = [{"rule": each.name, "family": each.family, "severity": each.severity, "about": each.about,
                    "source": each.source} for each in RULES]  # fmt: skip
        columns = [Column("rule", "Rule"), Column("severity", "Severity"), Column("family", "Family", wide=True),
                   Column("about", "Finds"), Column("source", "Source")]  # fmt: skip
        emit(records, columns, output=output, schema="muster.slurm.config-rules/v1", list_key="rules")
        return
    config = _config(paths, cluster)
    found = find(config, _workload(source))
    if output in ("json", "yaml"):
        from msgspec import to_builtins

        emit_document({"schema": SCHEMA, **_counts(config), "findings": to_builtins(found)}, output)
    elif output in ("csv", "name"):
        keys = ("rule", "severity", "file", "line", "key", "what", "fix", "source")
        records = [{key: getattr(each, key) for key in keys} for each in found]
        emit(records, [Column(key, key) for key in keys], output=output, schema=SCHEMA, list_key="findings")
    else:
        _print(config, found, wide=output == "wide")
    if any(each.severity != "note" for each in found):
        ctx.exit(1)


def _config(paths: tuple[str, ...], cluster: str | None) -> Config:
    from muster.answers.slurm_files import here, load_config
    from muster.errors import InputError

    if paths and cluster:
        raise InputError("files are named, and --cluster", hint="one of them")
    if not paths and cluster is None:
        raise InputError("no configuration is named", hint="muster slurm config check /etc/slurm, or --cluster slurm")
    return load_config(paths or [here()])


def _workload(source: str | None) -> Workload | None:
    if source is None:
        return None
    from muster.answers.sources import read_source
    from muster.slurm.config.check import workload_of

    return workload_of(read_source(source, warn=say)[0])


def _counts(config: Config) -> dict[str, Any]:
    gpus = sum(each.gres_count("gpu") * len(each.names) for each in config.conf.nodes)
    return {
        "cluster": config.conf.settings.text("ClusterName"), "nodes": sum(len(each.names) for each in config.conf.nodes),
        "gpus": gpus, "partitions": len(config.conf.partitions),
    }  # fmt: skip


def _print(config: Config, found: tuple[Finding, ...], *, wide: bool) -> None:
    counts = _counts(config)
    number = sum(each.severity != "note" for each in found)
    end = "nothing is wrong with it" if not number else f"{number} thing{'' if number == 1 else 's'} to look at"
    named = counts["cluster"] or config.conf.path
    tell(
        f"{named}: {counts['nodes']:,} nodes with {counts['gpus']:,} GPUs in {counts['partitions']:,} "
        f"partition{'' if counts['partitions'] == 1 else 's'}: {end}."
    )
    for severity, title in (("error", "Wrong"), ("warning", "Costs GPUs or time"), ("note", "To know")):
        mine = [each for each in found if each.severity == severity]
        if mine:
            click.echo()
            columns = [Column("where", "Where"), Column("what", title), Column("fix", "Instead")]
            print_table(columns, [[_where(each), _what(each, wide=wide), each.fix] for each in mine])


def _where(found: Finding) -> str:
    name = found.file.rpartition("/")[2]
    return f"{name}:{found.line}" if found.line else name


def _what(found: Finding, *, wide: bool) -> str:
    return f"{found.what} ({found.rule}) [{found.source}]" if wide else found.what
