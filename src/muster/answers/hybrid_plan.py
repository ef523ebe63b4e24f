"""`muster plan hybrid` as a derivation: what was put in, the splits that were tried, what the best one costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.hybrid import CLASSES, Bench, Job, Mix, Outcome, make_jobs
from muster.answers.words import plural
from muster.engine.config import Config
from muster.errors import InputError
from muster.model.fleet import Fleet
from muster.planning.derivation import Derivation, Input, Origin, Result, Sensitivity, Step, Table
from muster.planning.hybrid import HOURS_A_YEAR, WORKING_DAYS, bring_up_cost, yearly_cost

ALIKE = 1.05
"""Scores that differ by less are taken to be the same: chance moves them by as much."""
MOST_RUNS_AT_SCALE = 4000
"""Jobs of a seed; more would take minutes."""


class Money(Struct, frozen=True):
    """What nobody can know but who plans; None: not given, and no money is told.

    Attributes:
        gpu_hour: price of a GPU-hour.
        person_year: cost of an engineer a year.
        people_one, people_both: engineers who run one of the systems, and both.
        bring_up_days: working days of those people to bring all work onto one.
    """

    gpu_hour: float | None = None
    person_year: float | None = None
    people_one: float | None = None
    people_both: float | None = None
    bring_up_days: float | None = None

    @property
    def complete(self) -> bool:
        """Whether money can be told."""
        return None not in (self.gpu_hour, self.person_year, self.people_one, self.people_both)


class Asked(Struct, frozen=True):
    """What is planned.

    Attributes:
        mix: the made work; its origin is told by ``origins``, by the name of the field.
        recorded: work of a trace instead of made work; empty: none. ``recorded_from_s``: when it began in the trace.
        seeds: how often made work is drawn.
        weight: an hour that a service waits, in hours of others.
        with_sensitivity: whether other loads and shares are run, too (made work only).
    """

    fleet: Fleet
    fleet_from: str
    mix: Mix
    origins: dict[str, Origin]
    money: Money
    recorded: tuple[Job, ...] = ()
    recorded_from_s: float = 0.0
    seeds: int = 1
    weight: float = 10.0
    with_sensitivity: bool = True


def plan_hybrid(asked: Asked, config: Config, tick: Callable[[], None] | None = None) -> Derivation:
    """The best split of a fleet between Slurm (gangs) and Kubernetes (services, notebooks), against one pool.

    Raises:
        InputError: the fleet has fewer than two nodes, or shares and load make no sense.
    """
    check_mix(asked.mix)
    nodes = len(asked.fleet.nodes)
    if nodes < 2:
        raise InputError("a fleet of one node cannot be split", field="--nodes", hint="2 or more")
    bench = _bench(asked, asked.mix, config, tick)
    best, tried = bench.best_split()
    pool = bench.pool(nodes)
    like = bench.pool_like(best.score)
    saved = nodes - like if best.score else 0
    gpus = bench.gpus_per_node
    return Derivation(
        "hybrid",
        f"How should {nodes} nodes of {gpus} GPUs be split between Slurm and Kubernetes, and what does the split cost?",
        _answer(best, pool, nodes, saved),
        (
            "score = sum of GPUs x delay, services weighing w times; best split = the one with the least",
            "delay = time from submission to the end, less the run time: waits, and work lost when stopped",
            "k = N - (fewest nodes of one pool whose score is no more than the best split's)",
            "cost of the split a year = k G 8,760 p + (E2 - E1) c",
        ),
        "simulation by Muster's scheduler, the same on both sides and on the pool; planning/hybrid.py",
        tuple(_inputs(asked, nodes, gpus)),
        tuple(_steps(asked, best, pool, nodes, like, gpus)),
        tuple(_results(asked, best, pool, saved, gpus)),
        tuple(_sensitivity(asked, config, tick, saved)),
        (_table(tried, pool, nodes),),
        FAILS_WHEN,
        tuple(_todo(best, pool, saved)),
    )


def check_mix(mix: Mix) -> None:
    """Raise `InputError` where shares or load make no sense."""
    for name, value in zip(CLASSES, (mix.services, mix.gangs, mix.notebooks), strict=True):
        if not 0 <= value <= 1:
            raise InputError(f"is {value:g}", field=f"--{name}", hint="a share of the GPU-hours, 0 to 1")
    total = mix.services + mix.gangs + mix.notebooks
    if abs(total - 1) > 0.005:
        raise InputError(f"the shares sum to {total:g}", field="--services", hint="with --gangs and --notebooks to 1")
    if not 0.05 <= mix.load <= 1.5:
        raise InputError(f"is {mix.load:g}", field="--load", hint="of the fleet's GPU-hours, usually 0.6 to 0.95")


def _bench(asked: Asked, mix: Mix, config: Config, tick: Callable[[], None] | None) -> Bench:
    jobs: list[tuple[Job, ...]] = [asked.recorded] if asked.recorded else []
    for seed in range(0 if jobs else asked.seeds):
        jobs.append(make_jobs(asked.fleet, mix, seed + 1))
    for each in jobs:
        if len(each) > MOST_RUNS_AT_SCALE:
            what = f"is {len(each):,} jobs to simulate, some twenty times"
            raise InputError(what, field="--days", hint="fewer days, or a fleet of fewer nodes in the same proportions")
    return Bench(asked.fleet, jobs, mix.days, asked.weight, config, tick)


def _answer(best: Outcome, pool: Outcome, nodes: int, saved: int) -> str:
    if not best.score:
        return (
            f"Of {nodes} nodes, {best.slurm_nodes} for Slurm and {nodes - best.slurm_nodes} for Kubernetes: nothing "
            "waits, so the fleet is larger than its work, and the split costs nothing yet."
        )
    split = f"Of {nodes} nodes, {best.slurm_nodes} for Slurm and {nodes - best.slurm_nodes} for Kubernetes wait least"
    if saved > 0:
        costs = f"the split costs {plural(saved, 'node')}"
        return f"{split}; one pool of {nodes - saved} nodes makes work wait no longer: {costs}."
    if saved == 0:
        more = best.score / pool.score if pool.score else math.inf
        times = f"{more:.1f} times" if math.isfinite(more) else "infinitely"
        return f"{split}; as one pool the same nodes make work wait less (the split {times} as long), but none can go."
    if pool.score <= ALIKE * best.score:
        return f"{split}; as one pool the same nodes make work wait about as long, divided otherwise among its kinds."
    return f"{split}, and less than in one pool: here the wall between them keeps small work out of the gangs' nodes."


def _inputs(asked: Asked, nodes: int, gpus: int) -> Iterator[Input]:
    origin = asked.origins
    yield Input("N", "nodes", nodes, "nodes", origin.get("nodes", "default"), asked.fleet_from, "--nodes")
    yield Input("G", "GPUs of a node", gpus, "GPUs", origin.get("nodes", "default"), asked.fleet_from, "--gpus")
    mix = asked.mix
    if asked.recorded:
        told = f"its days with the most GPU-hours, from day {asked.recorded_from_s / 86400:.1f}"
        yield Input("", "jobs of the trace", len(asked.recorded), "jobs", "from your data", told, "--workload")
        for kind in CLASSES:
            hours = math.fsum(_gpu_hours(job) for job in asked.recorded if job.kind == kind)
            yield Input("", f"{kind}", hours, "GPU-hours", "from your data", "by pods and GPUs, see docs")
    else:
        source = "see docs/explanation/slurm-or-kubernetes.md"
        for kind, value in zip(CLASSES, (mix.services, mix.gangs, mix.notebooks), strict=True):
            yield Input("", f"{kind}, of the GPU-hours", value, "", origin.get(kind, "default"), source, f"--{kind}")
        yield Input("", "load", mix.load, "of the GPU-hours", origin.get("load", "default"), source, "--load")
        yield Input("", "draws", asked.seeds, "seeds", origin.get("seeds", "default"), "", "--seeds")
    yield Input("", "days, the first not counted", mix.days, "days", origin.get("days", "default"), "", "--days")
    yield Input("w", "an hour that a service waits", asked.weight, "hours of others",
                origin.get("weight", "default"), "an assumption: say yours", "--service-weight")  # fmt: skip
    money = asked.money
    for symbol, name, value, unit, option in (
        ("p", "GPU-hour", money.gpu_hour, "price", "--gpu-hour"),
        ("c", "engineer", money.person_year, "price a year", "--engineer-year"),
        ("E1", "engineers for one system", money.people_one, "people", "--engineers-one"),
        ("E2", "engineers for both", money.people_both, "people", "--engineers-both"),
        ("D", "bring-up of one system for all", money.bring_up_days, "working days", "--bring-up-days"),
    ):
        if value is not None:
            yield Input(symbol, name, value, unit, "given", "", option)


def _gpu_hours(job: Job) -> float:
    return job.work.gpu_milli / 1000 * (job.work.duration_s or 0.0) / 3600


def _steps(asked: Asked, best: Outcome, pool: Outcome, nodes: int, like: int, gpus: int) -> Iterator[Step]:
    yield Step("waiting with the best split", f"{best.slurm_nodes} + {nodes - best.slurm_nodes} nodes, simulated",
               best.score, "GPU-hours, weighed")  # fmt: skip
    how = "are stopped for services" if pool.stops else "are not stopped: services only go first"
    yield Step(
        "waiting in one pool",
        f"{nodes} nodes, simulated; gangs {how}, which waits less",
        pool.score,
        "GPU-hours, weighed",
    )
    if like <= nodes and best.score:
        yield Step("fewest nodes of one pool that waits no longer", "bisection over simulations", like, "nodes")
        yield Step("k, nodes that the split costs", f"{nodes} - {like}", nodes - like, "nodes")
    yield Step("free GPUs beside waiting work", "over time: min(free here, waiting there), both ways",
               best.stranded, "GPUs")  # fmt: skip
    money, saved = asked.money, max(0, nodes - like) if best.score else 0
    if money.complete:
        hour, year = money.gpu_hour or 0.0, money.person_year or 0.0
        one, both = money.people_one or 0.0, money.people_both or 0.0
        worked = f"{saved} x {gpus} x {HOURS_A_YEAR:,} x {hour:g} + ({both:g} - {one:g}) x {year:,.0f}"
        yield Step("cost of the split a year", worked, yearly_cost(saved, gpus, hour, both, one, year), "a year")
        if money.bring_up_days is not None:
            worked = f"{money.bring_up_days:g} x {one:g} x {year:,.0f} / {WORKING_DAYS}"
            cost = bring_up_cost(money.bring_up_days, one, year)
            yield Step("cost of becoming one pool, once", worked, cost, "once")


def _results(asked: Asked, best: Outcome, pool: Outcome, saved: int, gpus: int) -> Iterator[Result]:
    yield Result("nodes that the split costs", max(0, saved), "nodes")
    yield Result("nodes for Slurm in the best split", best.slurm_nodes, "nodes")
    yield Result("nodes for Kubernetes in it", best.nodes - best.slurm_nodes, "nodes")
    yield Result("waiting with the split, of that in one pool", best.score / pool.score if pool.score else math.inf, "")
    yield Result("GPUs free beside waiting work", best.stranded, "GPUs")
    yield Result("nodes that would have to change sides", best.moves, "nodes a day")
    money = asked.money
    if money.complete:
        cost = yearly_cost(
            max(0, saved), gpus, money.gpu_hour or 0.0, money.people_both or 0.0, money.people_one or 0.0,
            money.person_year or 0.0,
        )  # fmt: skip
        yield Result("cost of the split", cost, "a year")
        if money.bring_up_days is not None and cost > 0:
            once = bring_up_cost(money.bring_up_days, money.people_one or 0.0, money.person_year or 0.0)
            yield Result("becoming one pool pays after", once / cost * 12, "months")


def _sensitivity(
    asked: Asked, config: Config, tick: Callable[[], None] | None, saved: int
) -> Iterator[Sensitivity]:  # fmt: skip
    if asked.recorded or not asked.with_sensitivity:
        return
    mix = asked.mix
    yield Sensitivity("as planned", "", max(0, saved), "nodes")
    changes = [("load", f"{mix.load + by:.2f}", replace(mix, load=mix.load + by)) for by in (-0.1, 0.1)]
    for by in (-0.1, 0.1):
        services, gangs = mix.services + by, mix.gangs - by
        if 0 <= services <= 1 and 0 <= gangs <= 1:
            told = f"{services:.2f}, gangs {gangs:.2f}"
            changes.append(("services", told, replace(mix, services=services, gangs=gangs)))
    for name, told, other in changes:
        if not 0.05 <= other.load <= 1.5:
            continue
        bench = _bench(asked, other, config, tick)
        best, _ = bench.best_split()
        saved = best.nodes - bench.pool_like(best.score) if best.score else 0
        yield Sensitivity(name, told, max(0, saved), "nodes")


def _table(tried: Sequence[Outcome], pool: Outcome, nodes: int) -> Table:
    rows = [(f"{each.slurm_nodes} + {nodes - each.slurm_nodes}", *_figures(each)) for each in tried]
    columns = (
        "split", "waiting GPU-h, weighed", "services delay s", "gangs delay s", "notebooks delay s",
        "services late %", "used %", "stranded GPUs", "moves a day", "not started",
    )  # fmt: skip
    how = "gangs stopped" if pool.stops else "nobody stopped"
    return Table("What was tried", columns, (*rows, (f"one pool of {nodes}, {how}", *_figures(pool))))


def _figures(one: Outcome) -> tuple[float, ...]:
    return (one.score, *one.wait_s, 100 * one.late, 100 * one.used, one.stranded, one.moves, one.unplaced)


FAILS_WHEN = (
    "the two sides are scheduled worse or better than here: both are run by Muster's scheduler, so that only the split "
    "differs (compare settings by `muster simulate`)",
    "nodes may change sides within hours: then the wall is lower, and the moves a day tell how much of it is left",
    "nodes differ between the sides (other GPUs, other fabric): the first nodes are taken for Slurm",
    "few jobs are drawn: chance moves the answer by a node; more --days and --seeds tell it better",
    "services cannot be put before gangs in the pool, or gangs cannot be stopped: then the pool waits longer",
)


def _todo(best: Outcome, pool: Outcome, saved: int) -> Iterator[str]:
    if saved > 0:
        yield f"one pool, services first: it frees {plural(saved, 'node')}, or takes that much more work"
        yield "until then, let idle nodes of one side take preemptible, checkpointed work of the other"
    elif ALIKE * best.score >= pool.score:
        yield "one pool waits no longer, and services start at once there: decide by people and bring-up"
    else:
        yield f"keep the split at {best.slurm_nodes} + {best.nodes - best.slurm_nodes}; look again when shares change"
    yield "try it on your own work: muster plan hybrid --workload TRACE --fleet FLEET"
    yield "scripts and manifests of the one for the other: muster translate"
