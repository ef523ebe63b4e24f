"""`muster defrag`: the moves that make room for a gang or for whole nodes, with price and gain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Column, emit, output_option, print_table, say, tell
from muster.cli.source import again, source_options, view_of

if TYPE_CHECKING:
    from muster.answers.defrag import RoomPlan
    from muster.answers.view import View

SCHEMA = "muster.defrag/v1"

EPILOG = """\b
Examples:
  muster defrag --from run.yaml --at 3h --for llama-70b
  muster defrag --from now.snap --whole-nodes 4 --in block
  muster defrag --from now.snap --whole-nodes 8 --flavor H100-SXM5-80GB/reserved -o json
  muster defrag --from now.snap --for llama-70b --commands slurm

\b
Exit codes: 0 moves were found or nothing need move, 1 there are none, 2 usage or bad input.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--for", "job", metavar="JOB", help="Make room for this job, which waits.")
@click.option("--whole-nodes", type=click.IntRange(1, 100_000), metavar="N", help="Until so many nodes are whole.")
@click.option("--flavor", default="", metavar="FLAVOR", help="Of whole nodes: their flavor.  [default: of most nodes]")
@click.option("--in", "level", default="", metavar="LEVEL", help="Of whole nodes: all in one domain of this level.")
@click.option(
    "--commands", type=click.Choice(["kubectl", "slurm", "whatif"]), help="Print the moves as commands instead."
)
@source_options
@output_option
def command(
    job: str | None, whole_nodes: int | None, flavor: str, level: str, commands: str | None, source: str,
    at: str | None, settings: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Tell which running work to move so that a gang starts now, or so that nodes become whole; nothing is changed.

    The moves are those that the scheduler would make, whatever they cost. A move loses the work since the last
    checkpoint and the restart. Work that does not save its work is never moved.
    """
    if (job is None) == (whole_nodes is None):
        raise click.UsageError("Give --for JOB or --whole-nodes N.")
    if job is not None and (flavor or level):
        raise click.UsageError("--flavor and --in go with --whole-nodes; a job has its own.")
    from muster.answers.by_hand.quoting import quoted
    from muster.answers.defrag import room_for_job, room_for_nodes

    view = view_of(source, at, settings)
    plan = room_for_job(view, job) if job is not None else room_for_nodes(view, whole_nodes or 1, flavor, level)
    if commands is not None:
        for line in _commands(view, plan, commands):
            click.echo(line)
    elif output in ("table", "wide"):
        asked = f"--for {quoted(job)}" if job is not None else f"--whole-nodes {whole_nodes}"
        asked += "".join(f" --{key} {quoted(value)}" for key, value in (("flavor", flavor), ("in", level)) if value)
        _print(plan, again(source, at), asked, wide=output == "wide")
    else:
        _emit(plan, output)
    if commands is not None and plan.outcome != "moves":
        say(f"{plan.target}: {plan.why}.")
    if plan.outcome == "none":
        raise click.exceptions.Exit(1)


def _emit(plan: RoomPlan, output: str) -> None:
    records: list[dict[str, Any]] = [
        {
            "job": each.job, "namespace": each.namespace, "pods": each.pods, "of_pods": each.of_pods,
            "gpus": each.gpu_milli / 1000, "from": each.from_nodes, "to": each.to_nodes,
            "cost_gpu_hours": each.cost_gpu_s / 3600, "change": str(each.change),
        }
        for each in plan.moves
    ]  # fmt: skip
    extra = {
        "target": plan.target, "outcome": plan.outcome, "why": plan.why, "flavor": plan.flavor,
        "nodes": list(plan.nodes), "cost_gpu_hours": plan.cost_gpu_s / 3600, "by_itself": plan.by_itself,
        "sooner_s": plan.sooner_s if math.isfinite(plan.sooner_s) else None,
        "whole_nodes_before": plan.whole_before, "whole_nodes_after": plan.whole_after,
    }  # fmt: skip
    keys = ("job", "namespace", "pods", "of_pods", "gpus", "from", "to", "cost_gpu_hours", "change")
    emit(records, [Column(key, key) for key in keys], output=output, schema=SCHEMA, list_key="moves", extra=extra)


def _print(plan: RoomPlan, of: str, asked: str, *, wide: bool) -> None:
    """For people; ``of`` are the options that name the source again, ``asked`` those that name the target."""
    from muster.answers.times import span
    from muster.answers.words import gpus, plural
    from muster.slurm.hostlist import compress

    if plan.outcome != "moves":
        lead = "no moves make room" if plan.outcome == "none" else "nothing need move"
        tell(f"{plan.target}: {lead}: {plan.why}.")
        return
    hours = f"{_hours(plan.cost_gpu_s)} GPU-hours"
    count = plural(len(plan.moves), "job")
    whose = "the scheduler itself moves" if plan.by_itself else "move"
    tell(f"{plan.target}: {whose} {count}, at {hours} of lost work and restarts.")
    click.echo()
    rows = [
        [each.job, f"{each.pods:,} of {each.of_pods:,}", gpus(each.gpu_milli), each.from_nodes, each.to_nodes,
         _hours(each.cost_gpu_s)]
        for each in (plan.moves if wide else plan.moves[:20])
    ]  # fmt: skip
    print_table(
        [Column("", "Move"), Column("", "pods", right=True), Column("", "with", right=True), Column("", "from"),
         Column("", "to"), Column("", "GPU-hours", right=True)],
        rows,
    )  # fmt: skip
    if len(rows) < len(plan.moves):
        tell(f"and {len(plan.moves) - len(rows):,} more; -o wide lists all")
    click.echo()
    whole = f"Whole nodes of {plan.flavor}: {plan.whole_before:,} now, {plan.whole_after:,} after the moves"
    if math.isnan(plan.sooner_s) and not plan.by_itself:
        tell(f"{whole}: {compress(plan.nodes)}.")
        tell("Keep them for what they are meant for, or waiting work takes them.")
    else:
        sooner = "" if math.isnan(plan.sooner_s) else f", about {span(plan.sooner_s)} sooner"
        if math.isinf(plan.sooner_s):
            sooner = ", which it else never does"
        tell(f"It then starts at once on {compress(plan.nodes)}{sooner}. {whole}, before it starts.")
    click.echo()
    tell("Next: the same command with --commands kubectl or slurm; or what it does to all others:")
    click.echo(f'  muster whatif{of} "$(muster defrag {asked}{of} --commands whatif)"')


def _hours(gpu_s: float) -> str:
    hours = gpu_s / 3600
    return f"{hours:.2g}" if hours < 100 else f"{hours:,.0f}"


def _commands(view: View, plan: RoomPlan, kind: str) -> Iterator[str]:
    if not plan.moves:
        return
    moves = [each.change for each in plan.moves]
    if kind == "whatif":
        yield "; ".join(map(str, moves))
        return
    from muster.answers.by_hand.moves import kubernetes_moves, slurm_moves
    from muster.slurm.hostlist import expand

    left = list(dict.fromkeys(name for each in plan.moves for name in expand(each.from_nodes)))
    if kind == "kubectl":
        yield from kubernetes_moves(view, moves, left)
    else:
        yield from slurm_moves(view, moves, left, plan.target)
