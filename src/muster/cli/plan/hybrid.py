"""`muster plan hybrid`: a fleet on Slurm, on Kubernetes or on both."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from muster.cli.plan.derived import emit_derivation
from muster.cli.source import view_of
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.answers.hybrid import Job, Mix
    from muster.model.fleet import Fleet
    from muster.planning.derivation import Origin

DEFAULTS = {"services": 0.25, "gangs": 0.6, "notebooks": 0.15}
RUNS = 90
"""Simulations of a plan with its sensitivity, about."""

EPILOG = """\b
Examples:
  muster plan hybrid
  muster plan hybrid --nodes 64 --services 0.4 --gangs 0.5 --notebooks 0.1 --load 0.85
  muster plan hybrid --from now.snap --load 0.8
  muster plan hybrid --workload trace.jsonl --fleet uniform:nodes=32,gpus=8 --days 7
  muster plan hybrid --gpu-hour 2.5 --engineer-year 180000 --engineers-one 2 --engineers-both 3.5 --bring-up-days 60

\b
Gangs (several pods, or a whole node) go to Slurm, services and notebooks to Kubernetes; one pool takes all. Prices and
people are yours to say: without them nodes are told, and no money. Exit codes: 0 told, 2 bad input.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", type=click.IntRange(2, 2000), help="Nodes.  [default: 16]")
@click.option("--gpus", type=click.IntRange(1, 256), help="GPUs of each.  [default: 8]")
@click.option("--services", type=float, help="Share of the GPU-hours.  [default: 0.25]")
@click.option("--gangs", type=float, help="Share of the GPU-hours.  [default: 0.6]")
@click.option("--notebooks", type=float, help="Share of the GPU-hours.  [default: 0.15]")
@click.option("--load", type=float, help="GPU-hours asked for, of those that there are.  [default: 0.8]")
@click.option("--days", type=click.IntRange(2, 60), help="Days simulated; the first is not counted.  [default: 4]")
@click.option("--seeds", type=click.IntRange(1, 20), help="How often made work is drawn.  [default: 1]")
@click.option("--service-weight", "weight", type=float, help="An hour of a service, in hours of others.  [default: 10]")
@click.option("--workload", metavar="SPEC", help="Recorded work instead: a trace, as muster trace reads it.")
@click.option("--fleet", "fleet", metavar="SPEC", help="The fleet, as muster fleet reads it.")
@click.option("--from", "source", metavar="SOURCE", help="A snapshot: its fleet, and the shares of what runs there.")
@click.option("--gpu-hour", type=float, metavar="PRICE", help="Price of a GPU-hour.")
@click.option("--engineer-year", type=float, metavar="PRICE", help="Cost of an engineer a year.")
@click.option("--engineers-one", type=float, metavar="N", help="Engineers who run one system.")
@click.option("--engineers-both", type=float, metavar="N", help="Engineers who run both.")
@click.option("--bring-up-days", type=float, metavar="N", help="Working days of those to bring all work onto one.")
@click.option("--sensitivity/--no-sensitivity", default=True, help="Also other loads and shares; five times as long.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json", "yaml")), default="table", show_default=True,
    help="table: a worked page for people; json or yaml for machines.",
)  # fmt: skip
def command(output: str, sensitivity: bool, **given: Any) -> None:
    """Tell how a fleet should be split between Slurm and Kubernetes, and what the split costs against one pool.

    The split fleets and the pool are simulated with the same work and the same scheduler: waits by class, utilisation,
    GPUs that are free on one side while work waits on the other, nodes that would have to change sides.
    """
    from muster.answers.hybrid_plan import Asked, Money, plan_hybrid
    from muster.engine.config import config_of

    for name in ("gpu_hour", "engineer_year", "engineers_one", "engineers_both", "bring_up_days", "weight"):
        value = given[name]
        if value is not None and not 0 <= value < 1e9:
            option = "--service-weight" if name == "weight" else f"--{name.replace('_', '-')}"
            raise InputError(f"is {value:g}", field=option, hint="0 or more")
    origins: dict[str, Origin] = {name: "given" for name, value in given.items() if value is not None}
    fleet, told = _fleet(given, origins)
    mix = _mix(given, fleet, origins)
    money = Money(
        given["gpu_hour"], given["engineer_year"], given["engineers_one"], given["engineers_both"],
        given["bring_up_days"],
    )  # fmt: skip
    recorded, begin_s = _recorded(given, fleet, mix.days)
    asked = Asked(
        fleet, told, mix, origins, money, recorded, begin_s, given["seeds"] or 1,
        10.0 if given["weight"] is None else given["weight"], sensitivity,
    )  # fmt: skip
    emit_derivation(_with_progress(lambda tick: plan_hybrid(asked, config_of({}), tick)), output)


def _with_progress(work: Callable[[Callable[[], None] | None], Any]) -> Any:
    if not sys.stderr.isatty():
        return work(None)
    with click.progressbar(length=RUNS, label="simulations", file=sys.stderr) as bar:
        return work(lambda: bar.update(1))


def _fleet(given: dict[str, Any], origins: dict[str, Origin]) -> tuple[Fleet, str]:
    """The fleet that is planned, and where it is from."""
    from muster.traces import read_fleet

    named = [name for name in ("source", "fleet") if given[name] is not None]
    sized = [name for name in ("nodes", "gpus") if given[name] is not None]
    if len(named) > 1 or (named and sized):
        names = {"source": "--from", "fleet": "--fleet", "nodes": "--nodes", "gpus": "--gpus"}
        both = [names[each] for each in [*named, *sized][:2]]
        raise InputError(f"is given beside {both[0]}", field=both[1], hint="one of them says the fleet")
    if named:
        origins["nodes"] = "from your data" if given["source"] is not None else "given"
    if given["source"] is not None:
        fleet = view_of(given["source"], None, ()).snapshot.fleet
    elif given["fleet"] is not None:
        fleet, _ = read_fleet(given["fleet"])
    else:
        fleet, _ = read_fleet(f"uniform:nodes={given['nodes'] or 16},gpus={given['gpus'] or 8}")
        return fleet, ""
    from msgspec.structs import replace

    nodes = tuple(node for node in fleet.nodes if node.schedulable and node.healthy_gpus)
    if len(nodes) < 2:
        raise InputError("has fewer than two nodes with GPUs", file=given["source"] or given["fleet"])
    return replace(fleet, nodes=nodes), given["source"] or given["fleet"]


def _mix(given: dict[str, Any], fleet: Fleet, origins: dict[str, Origin]) -> Mix:
    """The shares of the work: given, else those of what runs in the snapshot, else usual ones."""
    from muster.answers.hybrid import CLASSES, Mix, class_of

    said: dict[str, float] = {name: given[name] for name in CLASSES if given[name] is not None}
    if said and given["workload"] is not None:
        raise InputError("is of made work", field=f"--{next(iter(said))}", hint="leave out --workload, or the share")
    if not said and given["source"] is not None:
        most = max(node.healthy_gpus for node in fleet)
        held: dict[str, float] = dict.fromkeys(CLASSES, 0.0)
        for run in view_of(given["source"], None, ()).snapshot.running:
            held[class_of(run.workload, most)] += run.workload.gpu_milli
        if sum(held.values()):
            said = {name: value / sum(held.values()) for name, value in held.items()}
            origins.update(dict.fromkeys(CLASSES, "from your data"))
    rest = [name for name in CLASSES if name not in said]
    left = 1 - sum(said.values())
    usual = sum(DEFAULTS[name] for name in rest)
    for name in rest:  # what is not said keeps its proportion
        said[name] = max(0.0, left * DEFAULTS[name] / usual)
    return Mix(
        said["services"], said["gangs"], said["notebooks"], 0.8 if given["load"] is None else given["load"],
        given["days"] or 4,
    )  # fmt: skip


def _recorded(given: dict[str, Any], fleet: Fleet, days: int) -> tuple[tuple[Job, ...], float]:
    if given["workload"] is None:
        return (), 0.0
    from muster.answers.hybrid import jobs_of
    from muster.traces import read_workload

    trace = read_workload(given["workload"])
    return jobs_of(trace.workloads, max(node.healthy_gpus for node in fleet), days)
