"""`muster doctor`: from partial evidence to the broken layer of a node."""

from __future__ import annotations

import click

from muster.cli.lazy import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "bundle": ("muster.cli.doctor.bundle", "Make a file of evidence that is fit for a public issue."),
    "script": ("muster.cli.doctor.script", "Print a shell script that gathers evidence on a node."),
}
"""Name of a subcommand to the module that defines ``command`` and its one-line help."""

EPILOG = """\b
Examples:
  muster doctor --from node.txt --from plugin.log
  kubectl describe node gpu-7 | muster doctor --from -
  muster doctor --from case-4711/ --node gpu-7 -o json

\b
Exit codes: 0 nothing is wrong in what was seen, 1 a finding, 2 bad input.
"""


@click.group(
    cls=LazyGroup, commands=COMMANDS, invoke_without_command=True, epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
@click.option(
    "--from", "sources", multiple=True, metavar="PATH", help="A file, a folder, or - : any pile of pasted text."
)
@click.option("--node", default="", metavar="NAME", help="Which node, where the evidence is about several.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json", "yaml")), default="table", show_default=True,
    help="table: a page for people; json or yaml for machines.",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, sources: tuple[str, ...], node: str, output: str) -> None:
    """Find the broken layer of a GPU node from whatever evidence there is.

    Paste what you have: kubectl describe or get, logs of the device plugin, the operator, kubelet and containerd,
    nvidia-smi, dmesg, lspci, NCCL's log, Slurm's node record. Each piece is recognised by content. The verdict tells
    what is broken and how sure that is, which lines show it, what is healthy, how to mend it, and which command would
    tell apart what is left.
    """
    if ctx.invoked_subcommand is not None:
        return
    from muster.errors import InputError

    if not sources or "" in sources:  # an unset variable is not the folder that one stands in
        raise InputError("no evidence is named", field="--from", hint="a file, a folder or - for standard input")
    from muster.cli.doctor.page import emit_verdict
    from muster.doctor.pile import read_pile
    from muster.doctor.verdict import judge

    evidence = read_pile(sources)
    if node and node not in evidence.nodes:
        known = ", ".join(evidence.nodes[:8]) or "no node is named in it"
        raise InputError(f"the evidence says nothing of {node!r}", field="--node", hint=f"there are: {known}")
    if not evidence.pieces and not evidence.lines:
        raise InputError(
            "nothing in it was recognised", field="--from",
            hint="such as kubectl describe node, nvidia-smi, dmesg or the device plugin's log",
        )  # fmt: skip
    verdict = judge(evidence, node)
    emit_verdict(verdict, output)
    if verdict.findings or verdict.unexplained:
        raise click.exceptions.Exit(1)
