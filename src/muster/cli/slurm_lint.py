"""`muster slurm lint`: what an sbatch script will get, what is wrong with it, and the corrected script."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, emit_document, output_option, print_table, printable, say, tell, thousands
from muster.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.slurm.config.files import Config
    from muster.slurm.lint.job import Job
    from muster.slurm.lint.linter import Lint
    from muster.slurm.lint.ranks import Ranks
    from muster.slurm.lint.site import Site

SCHEMA = "muster.slurm.lint/v1"
MOST_BYTES = 16 << 20
"""No batch script is larger: four times what sbatch takes unless the site says more."""


@click.command(
    "lint",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  muster slurm lint job.sh\n  muster slurm lint job.sh --config /etc/slurm\n"
    "  muster slurm lint job.sh --cluster slurm -- --nodes 2 --exclusive\n"
    "  muster slurm lint job.sh --write fixed.sh\n  muster slurm lint - -o json < job.sh | jq '.findings[].rule'\n"
    "  muster slurm lint --rules\n\n"
    "\b\nExit codes: 0 nothing is found (notes do not count), 1 something is, 2 usage or bad input.",
)
@click.argument("script", required=False)
@click.argument("options", nargs=-1, metavar="[-- SBATCH OPTIONS]")
@click.option(
    "--config", metavar="DIR", help="The site's configuration: a folder with slurm.conf and what is beside it."
)
@click.option("--cluster", type=click.Choice(["slurm"]), help="The configuration of this machine (SLURM_CONF).")
@click.option("--write", metavar="FILE", help="Write the corrected script; - is standard output.")
@click.option("--rules", "list_rules", is_flag=True, help="List all rules with their sources.")
@output_option
@click.pass_context
def command(
    ctx: click.Context, script: str | None, options: tuple[str, ...], config: str | None, cluster: str | None,
    write: str | None, list_rules: bool, output: str,
) -> None:  # fmt: skip
    """Say what an sbatch script will get, what is wrong with it, and how it is put right.

    Which options scatter GPUs over nodes, make ranks see the wrong GPU, keep memory or CPUs from others or the job from
    being backfilled; how srun, torchrun and mpirun start its ranks, and how each finds its GPU. Ends with the script
    that does what was meant, as a difference. Nothing is submitted.

    Options of sbatch after -- count as on its command line. Without the site's configuration, what depends on it is
    said so.
    """
    from muster.slurm.lint import lint

    if list_rules:
        _list_rules(output)
        return
    if script is None:
        raise InputError("no script is named", hint="muster slurm lint job.sh")
    text = _text(script)
    found = lint(text, "standard input" if script == "-" else script, options, _site(config, cluster))
    if write is not None:
        _write(found, write)
    if write != "-":
        _show(found, output)
    if any(each.severity != "note" for each in found.findings):
        ctx.exit(1)


def _text(script: str) -> str:
    from muster.traces.files import decode_text, read_bytes

    if script == "-":
        data = sys.stdin.buffer.read()
        if not data.strip():
            raise InputError("is empty", file="standard input", hint="was a script piped in?")
    else:
        data = read_bytes(script)
    name = "standard input" if script == "-" else script
    if len(data) > MOST_BYTES:
        hint = "sbatch takes 4 MiB, unless SchedulerParameters=max_script_size says more"
        raise InputError(f"holds {len(data) / 1_048_576:.0f} MiB, and is no batch script", file=name, hint=hint)
    if b"\r" in data and b"\n" not in data:
        raise InputError("has lines that end in CR alone", file=name, hint="tr '\\r' '\\n' < FILE")
    return decode_text(data, name)


def _site(config: str | None, cluster: str | None) -> Callable[[Job], Site] | None:
    from muster.slurm.lint import site_of
    from muster.traces.slurm_conf import here, load_config

    if config is None and cluster is None:
        return None
    found: Config = load_config([config if config is not None else here()])

    def site(job: Job) -> Site:
        return site_of(found.conf, found.cgroup, job)

    return site


def _write(found: Lint, path: str) -> None:
    if path == "-":
        click.echo(found.corrected, nl=False)
        return
    from pathlib import Path

    from muster.model.snapshot import write_atomically
    from muster.traces.files import check_target

    check_target(path, "--write")
    target = Path(path).resolve()  # a link stays one
    mode = target.stat().st_mode if target.exists() else None
    try:
        write_atomically(target, found.corrected.encode())
        if mode is not None:
            target.chmod(mode)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror or error})", file=path) from None
    say(
        f"wrote {path}"
        if found.corrected != found.job.text
        else f"wrote {path}, unchanged: there is nothing to correct"
    )


def _show(found: Lint, output: str) -> None:
    if output in ("json", "yaml"):
        emit_document(_document(found), output)
    elif output in ("csv", "name"):
        keys = ("rule", "severity", "line", "what", "fix", "unsure", "source")
        columns = [Column(key, key) for key in keys]
        records = [{key: getattr(each, key) for key in keys} for each in found.findings]
        emit(records, columns, output=output, schema=SCHEMA, list_key="findings")
    else:
        _print(found, wide=output == "wide")


def _document(found: Lint) -> dict[str, Any]:
    from msgspec import to_builtins

    shape = found.shape
    return {
        "schema": SCHEMA,
        "script": found.job.path,
        "gets": {
            "nodes_least": shape.least, "nodes_most": shape.most, "tasks": shape.tasks,
            "tasks_per_node": shape.tasks_per_node, "gpus": shape.gpus, "gpus_per_node": shape.gpus_per_node,
            "gpu_type": shape.kind,
        },
        "findings": [
            {"rule": each.rule, "severity": each.severity, "line": each.line, "what": each.what, "fix": each.fix,
             "unsure": each.unsure, "source": each.source}
            for each in found.findings
        ],
        "ranks": to_builtins(found.ranks),
        "corrected": found.corrected if found.corrected != found.job.text else None,
    }  # fmt: skip


# -- for people -------------------------------------------------------------------------------------------------------


def _print(found: Lint, *, wide: bool) -> None:
    tell(_gets(found))
    words = {"error": "Wrong", "warning": "To look at", "note": "To know"}
    for severity, title in words.items():
        mine = [each for each in found.findings if each.severity == severity]
        if not mine:
            continue
        click.echo()
        columns = [Column("line", "Line", right=True), Column("what", title), Column("fix", "Instead")]
        rows: list[list[str]] = []
        for each in mine:
            what = f"{each.what} ({each.rule})" if wide else each.what
            unsure = f"; depends on {each.unsure}" if each.unsure else ""
            source = f" [{each.source}]" if wide else ""
            rows.append([_line(each.line), f"{what}{unsure}{source}", each.fix])
        print_table(columns, rows)
    if found.ranks and any(sees for each in found.ranks for sees in each.sees):
        click.echo()
        _print_ranks(found.ranks, corrected=found.corrected != found.job.text)
    if found.corrected != found.job.text:
        click.echo()
        click.echo("The script that does what was meant (--write FILE writes it):")
        click.echo(_difference(found), nl=False)


def _line(line: int | None) -> str:
    return "" if line is None else "--" if line == 0 else str(line)


def _gets(found: Lint) -> str:
    shape, count = found.shape, len([each for each in found.findings if each.severity != "note"])
    nodes = f"{shape.least:,}" if shape.least == shape.most else f"{shape.least:,} to {shape.most:,}"
    gpus = ""
    if shape.gpus_per_node:
        kind = f" ({shape.kind})" if shape.kind else ""
        on_each = " on each" if shape.most > 1 else ""
        gpus = f", {thousands(shape.gpus_per_node)} GPU{'' if shape.gpus_per_node == 1 else 's'}{kind}{on_each}"
    elif shape.gpus:
        gpus = f", {thousands(shape.gpus)} GPUs in all"
    tasks = f"{shape.tasks:,} task{'' if shape.tasks == 1 else 's'}"
    on_each = f" ({shape.tasks_per_node} on each)" if shape.tasks_per_node and shape.most > 1 else ""
    if shape.most > 1 and found.job.option("ntasks", "ntasks-per-node", "ntasks-per-gpu") is None:
        tasks, on_each = "1 task on each", ""
    end = "nothing is wrong with it." if not count else f"{count} thing{'' if count == 1 else 's'} to look at."
    return f"{found.job.path} asks for {nodes} node{'' if nodes == '1' else 's'}{gpus}, {tasks}{on_each}: {end}"


def _print_ranks(ranks: tuple[Ranks, ...], *, corrected: bool) -> None:
    columns = [
        Column("line", "Line", right=True), Column("by", "Started by"), Column("ranks", "Ranks"),
        Column("sees", "Each sees GPUs"), Column("device", "Its own is"), Column("rank", "Its number"),
    ]  # fmt: skip
    rows: list[list[str]] = []
    for each in ranks:
        on_node = each.ranks_per_node
        count = "?" if on_node is None else f"{on_node}" + (f" x {each.nodes}" if each.nodes and each.nodes > 1 else "")
        rows.append([str(each.line), each.launcher, count, _sees(each), each.device, each.rank])
    if corrected:
        click.echo("How each rank finds its GPU, as corrected:")
    print_table(columns, rows)


def _sees(ranks: Ranks) -> str:
    first = next(iter(ranks.sees), ())
    if not first:
        return "none" if ranks.ranks_per_node is not None else "?"
    if len(set(ranks.sees)) == 1:
        return f"{min(first)} to {max(first)}" if len(first) > 1 else str(min(first))
    return f"{len(first)} of its own"


def _difference(found: Lint) -> str:
    import difflib

    from muster.slurm.sbatch_lines import lines_of

    old, new = lines_of(found.job.text), lines_of(found.corrected)
    lines = difflib.unified_diff(old, new, found.job.path, "corrected", n=1, lineterm="")
    return "".join(f"{printable(line)}\n" for line in lines)


def _list_rules(output: str) -> None:
    from muster.slurm.lint import rules

    records = [
        {
            "rule": each.name,
            "family": each.family,
            "severity": each.severity,
            "about": each.about,
            "source": each.source,
        }
        for each in rules()
    ]
    columns = [
        Column("rule", "Rule"), Column("severity", "Severity"), Column("family", "Family", wide=True),
        Column("about", "Finds"), Column("source", "Source"),
    ]  # fmt: skip
    emit(records, columns, output=output, schema="muster.slurm.lint-rules/v1", list_key="rules")
