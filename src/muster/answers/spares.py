"""How many spares the failure rate asks for, and how many there are: by flavor, or by domain of a level."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.answers.times import span
from muster.answers.view import View
from muster.answers.words import plural
from muster.catalog.reliability import FAILURE_RATES
from muster.catalog.sources import SOURCES
from muster.errors import InputError, near
from muster.model.fleet import Node
from muster.planning.spares import SpareNeed, SpareStep, spares_needed

LEAST_FAILED = 10
"""So many nodes must have failed of late that their rate is taken: with fewer it may be off by more than a third."""

DAY_S = 86400.0


class Rate(Struct, frozen=True):
    """Failures of a node in a day, and where that is from."""

    per_node_day: float
    origin: Literal["given", "measured", "catalog"]
    source: str


class Group(Struct, frozen=True):
    """Nodes that can replace each other: what they need, what is there, and what each number of spares gives."""

    flavor: str
    domain: str
    gpus_per_node: int
    present: int
    need: SpareNeed
    steps: tuple[SpareStep, ...]

    @property
    def missing(self) -> int:
        """How many spares there should be beyond those that are there."""
        return max(0, self.need.spares - self.present)


def failure_rate(view: View, given_per_node_day: float | None = None) -> Rate:
    """The rate that is given, else that of the snapshot's failures if they are enough, else one that was published."""
    if given_per_node_day is not None:
        return Rate(given_per_node_day, "given", "as given")
    window_s = view.config.quarantine_window_s
    nodes = sum(bool(node.devices) for node in view.snapshot.fleet)
    recent = {each.node for each in view.snapshot.failures if view.now_s - each.time_s < window_s}
    if len(recent) >= LEAST_FAILED and nodes and window_s > 0:
        rate = len(recent) / (nodes * window_s / DAY_S)
        told = f"work failed on {len(recent):,} of {nodes:,} nodes within the last {span(window_s)}"
        return Rate(rate, "measured", told)
    first = FAILURE_RATES[0]
    few = f"{plural(len(recent), 'node')} with failures of late, which tells too little" if recent else "none given"
    return Rate(first.per_1000_node_days / 1000, "catalog", f"{first.cluster} ({SOURCES[first.source]}); {few}")


def spares_by_group(view: View, rate: Rate, repair_days: float, target: float, level: str = "") -> tuple[Group, ...]:
    """What each flavor needs, in each domain of a level if one is given; raises `InputError` for one there is not."""
    topology = view.snapshot.fleet.topology
    if level and level not in topology.levels:
        hint = near(level, list(topology.levels)) or f"known: {', '.join(topology.levels) or 'none'}"
        raise InputError(f"there is no topology level {level!r}", field="--per", hint=hint)
    depth = topology.levels.index(level) if level else -1
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in view.snapshot.fleet:
        if node.devices:
            domain = node.topology[depth] if level and node.topology else ""
            groups.setdefault((node.flavor, domain), []).append(node)
    if not groups:
        raise InputError("the fleet has no GPUs", field="--from")
    return tuple(_group(flavor, domain, nodes, rate, repair_days, target) for (flavor, domain), nodes in groups.items())


def _group(flavor: str, domain: str, nodes: list[Node], rate: Rate, repair_days: float, target: float) -> Group:
    serving = [node for node in nodes if not node.spare]
    present = sum(node.spare and node.schedulable and node.healthy_gpus == len(node.devices) for node in nodes)
    need = spares_needed(len(serving), rate.per_node_day, repair_days, target)
    first = max(0, min(present, need.spares) - 1)
    shown = sorted({0, *range(first, first + 3), *range(max(0, need.spares - 1), need.spares + 3)})
    gpus = max(len(node.devices) for node in nodes)
    return Group(flavor, domain, gpus, present, need, tuple(need.step(spares) for spares in shown))
