"""`muster slurm config`: check a cluster's configuration files, and write them from a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, say, tell
from muster.cli.source import fleet_options
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.cli.source import FleetSource
    from muster.model.fleet import Fleet
    from muster.slurm.config.files import Config
    from muster.slurm.config.findings import Finding, Workload

SCHEMA = "muster.slurm.config-check/v1"


@click.group("config", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """A cluster's configuration: what is wrong with slurm.conf and the files beside it, and new ones from a fleet."""


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


@command.command(
    "generate",
    epilog="\b\nExamples:\n  muster slurm config generate uniform:nodes=64,model=H100-SXM5-80GB,block=16,rack=4\n"
    "  muster slurm config generate --from now.snap --out new-etc --controller head1 --database head2\n"
    "  muster slurm config generate example --topology block --max-time 2-0 --set TreeWidth=64\n"
    "  muster slurm config generate slurm-conf:/etc/slurm --out new-etc\n"
    "  muster fit job.yaml --from now.snap; muster fleet show slurm-conf:new-etc",
)
@fleet_options
@click.option("--out", metavar="DIR", help="Write the files into this folder; it must hold none of them.")
@click.option("--name", "cluster_name", default="gpu", show_default=True, help="Name of the cluster.")
@click.option("--controller", default="controller", show_default=True, metavar="HOST", help="The host of slurmctld.")
@click.option(
    "--database", default="controller", show_default=True, metavar="HOST", help="The host of slurmdbd, or none."
)
@click.option(
    "--topology", type=click.Choice(["tree", "block", "none"]), help="Default: a tree if the fleet has levels."
)
@click.option("--max-time", default="7-0", show_default=True, metavar="TIME", help="The longest a job may run.")
@click.option("--default-time", default="1:00:00", show_default=True, metavar="TIME", help="Of jobs that say none.")
@click.option("--devices", default="/dev/nvidia", show_default=True, help="Device files, without their number.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A line of slurm.conf that is to be so.")
@output_option
def generate(
    fleet: FleetSource, out: str | None, cluster_name: str, controller: str, database: str, topology: str | None,
    max_time: str, default_time: str, devices: str, settings: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Write slurm.conf, gres.conf, cgroup.conf and topology.conf for a fleet.

    A partition a GPU type with a GPU's share of memory and CPUs as default, backfill that looks as far as jobs run,
    weights that do not cancel out, GPUs hidden by cgroups and counted. `muster slurm config check` finds nothing in
    it. The other way round, slurm-conf:DIR is a fleet for every command that takes one.
    """
    from muster.slurm.config.generate import Wanted
    from muster.slurm.config.generate import generate as make

    wanted = Wanted(
        cluster_name, controller, "" if database == "none" else database, topology or "",
        _seconds("--max-time", max_time), _seconds("--default-time", default_time), devices, settings,
    )  # fmt: skip
    files = make(_fleet(fleet), wanted)
    if out is not None:
        _write(files, out)
    elif output in ("json", "yaml"):
        emit_document({"schema": "muster.slurm.config/v1", "files": files}, output)
    elif output in ("csv", "name"):
        records = [{"file": name, "text": text} for name, text in files.items()]
        columns = [Column("file", "file"), Column("text", "text")]
        emit(records, columns, output=output, schema="muster.slurm.config/v1", list_key="files")
    else:
        click.echo("\n".join(f"# ---- {name}\n{text}" for name, text in files.items()), nl=False)


def _seconds(option: str, text: str) -> float:
    from muster.slurm.sbatch_lines import minutes_up

    try:
        seconds = minutes_up(text)
    except (ValueError, OverflowError):
        raise InputError(f"is {text[:40]!r}", field=option, hint="minutes, or D-HH:MM:SS") from None
    if seconds is None:
        raise InputError("is no limit: backfill cannot plan without one", field=option, hint="such as 7-0")
    return seconds


def _fleet(source: FleetSource) -> Fleet:
    if source.spec is not None:
        from muster.traces import read_fleet

        found, skipped = read_fleet(source.spec)
    else:
        from muster.answers.sources import read_source
        from muster.cli.source import at_of

        snapshot, skipped = read_source(source.source, at_of(source.source, source.at), warn=say)
        found = snapshot.fleet
    for one in skipped[:3]:
        say(f"skipped {one}")
    return found


def _write(files: dict[str, str], out: str) -> None:
    from pathlib import Path

    from muster.traces.files import write_together

    if not out:
        raise InputError("names no folder", field="--out", hint="such as new-etc, or . for this one")
    write_together(files, Path(out))
    say(f"wrote {', '.join(files)} to {out}; next: muster slurm config check {out}")


def _config(paths: tuple[str, ...], cluster: str | None) -> Config:
    from muster.traces.slurm_conf import here, load_config

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
        "cluster": config.conf.settings.text("ClusterName"),
        "nodes": sum(len(each.names) for each in config.conf.nodes),
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
