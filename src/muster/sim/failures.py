"""When nodes break, are taken away, and come back, in a simulated cluster; and how often gangs fail by themselves.

Failures come from outside: they do not depend on what the scheduler does, so that two configs are compared under the
same ones. Each node and each pool has random numbers of its own.

Sources, with figures: docs/how-to/simulate-failures.md.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct

from muster.errors import InputError, near
from muster.model.fleet import Fleet

DAY_S = 86400.0

_NotNegative = Annotated[float, Meta(ge=0, le=1e12)]
_Part = Annotated[float, Meta(ge=0, le=1)]
_Mean = Annotated[float, Meta(gt=0, le=1e12)]


class Outage(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that is lost at a known time, with all that runs on it, and is back ``for_s`` later."""

    node: str
    at_s: _NotNegative
    for_s: _Mean


class SpotShocks(Struct, frozen=True, forbid_unknown_fields=True):
    """How spot nodes are taken away: not one by one, but by shocks that a pool has in common.

    A pool is all spot nodes of a flavor in one domain of ``level`` (left out: in the fleet). Shocks come ``per_h`` to a
    pool; one takes the whole pool with probability ``whole``, else each node with probability ``share``. Nodes are back
    after ``back_s`` in the mean, each by itself.
    """

    per_h: Annotated[float, Meta(gt=0, le=3600)]
    whole: _Part = 0.5
    share: _Part = 0.3
    back_s: _Mean = 3600.0
    level: str = ""


class BlackHole(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that looks well and fails each pod ``after_s`` after its start; from ``from_s`` until it is repaired."""

    node: str
    from_s: _NotNegative = 0.0
    after_s: _Mean = 30.0


class FailureModel(Struct, frozen=True, forbid_unknown_fields=True):
    """What breaks and how often.

    Attributes:
        per_1000_node_days: failures of nodes, of each 1,000 in a day.
        size_exponent: gangs fail more often than their nodes do by themselves: a gang of G GPUs by (G / 8) to the power
            of this, as often in all as its nodes; 0: no more often.
        detect_s: how long a gang hangs before anybody sees that a node of it is gone.
        repair_s: how long a node is away, in the mean (exponential).
        outages, spot, black_holes: see there.
    """

    per_1000_node_days: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    size_exponent: Annotated[float, Meta(ge=0, le=2)] = 0.0
    detect_s: _NotNegative = 60.0
    repair_s: _Mean = 3 * DAY_S
    outages: tuple[Outage, ...] = ()
    spot: SpotShocks | None = None
    black_holes: tuple[BlackHole, ...] = ()

    @property
    def endless(self) -> bool:
        """Whether something goes on breaking as long as time goes on."""
        return self.per_1000_node_days > 0 or self.spot is not None


class Change(NamedTuple):
    """A node (by its index) ``fails``, is ``seen`` to have failed, or is ``back``."""

    node: int
    what: Literal["fails", "seen", "back"]


def check_failures(model: FailureModel, fleet: Fleet, field: str = "failures") -> None:
    """Raise `InputError`, naming the field below ``field``, for nodes and levels that the fleet has not."""
    names = [node.name for node in fleet]
    there = set(names)
    named = [(f"{field}.outages[{at}].node", each.node) for at, each in enumerate(model.outages)]
    named += [(f"{field}.black_holes[{at}].node", each.node) for at, each in enumerate(model.black_holes)]
    for path, name in named:
        if name not in there:
            hint = near(name, names) or f"they are called {names[0]} to {names[-1]}"
            raise InputError(f"there is no node {name!r}", field=path, hint=hint)
    if model.spot is None:
        return
    if model.spot.level and model.spot.level not in fleet.topology.levels:
        known = f"known: {', '.join(fleet.topology.levels)}" if fleet.topology.levels else "the fleet has none"
        raise InputError(f"unknown topology level {model.spot.level!r}", field=f"{field}.spot.level", hint=known)
    if not any(node.purchase == "spot" for node in fleet):
        raise InputError(
            "the fleet has no spot nodes", field=f"{field}.spot", hint="name some in the field spot, such as node-1*"
        )


class FailureProcess:
    """The failures of a fleet in time: `next_s`, then `advance` to it; can be copied and pickled in between.

    Args:
        model: what breaks.
        fleet: the nodes, whatever their state.
        seed: of all random numbers.
        from_s: when it begins.
    """

    def __init__(self, model: FailureModel, fleet: Fleet, seed: int, from_s: float = 0.0) -> None:
        self.model = model
        self._seed = seed
        self._due: list[tuple[float, int, str, int]] = []
        self._sequence = 0
        self._away = [0] * len(fleet)
        self._random: dict[tuple[int, int], np.random.Generator] = {}
        self._budget: dict[int, float] = {}
        self._draws: dict[int, int] = {}
        self._holes = {node.name: at for at, node in enumerate(fleet)}
        self.black_holes = {self._holes[each.node]: each for each in model.black_holes}
        self.pools = tuple(_pools(model.spot, fleet)) if model.spot else ()
        for each in model.outages:
            self._add(each.at_s, "seen", self._holes[each.node])
            self._add(each.at_s + each.for_s, "back", self._holes[each.node])
        if model.per_1000_node_days:
            for node in range(len(fleet)):
                self._next_failure(node, from_s)
        for pool in range(len(self.pools)):
            self._next_shock(pool, from_s)

    @property
    def next_s(self) -> float:
        """When something changes next; infinite if nothing does."""
        return self._due[0][0] if self._due else math.inf

    def advance(self, now_s: float) -> list[Change]:
        """What changes up to ``now_s``. A node that is away for several reasons is back when the last has gone."""
        changes: list[Change] = []
        while self._due and self._due[0][0] <= now_s:
            time_s, _, what, number = heapq.heappop(self._due)
            if what == "fails":
                changes.append(Change(number, "fails"))
                self._add(time_s + self.model.detect_s, "seen", number)
                back_s = time_s + self.model.detect_s + self._of(0, number).exponential(self.model.repair_s)
                self._add(back_s, "back", number)
                self._next_failure(number, back_s)
            elif what == "shock":
                changes += self._shock(number, time_s)
            elif what == "repaired":
                self.black_holes.pop(number, None)
                if not self._away[number]:
                    changes.append(Change(number, "back"))
            else:
                changes += self._moves(number, 1 if what == "seen" else -1)
        return changes

    def repair(self, node: int, now_s: float) -> None:
        """Somebody is told to repair a node that was taken out of service; it is back when that is done."""
        self._add(now_s + self._of(2, node).exponential(self.model.repair_s), "repaired", node)

    def fails_after_s(self, job: int, nodes: int, gpus: float) -> float:
        """How long a gang runs until it fails by itself, if it runs on as large as it is; infinite if it never does."""
        rate = self._rate(nodes, gpus)
        if rate <= 0:
            return math.inf
        if job not in self._budget:
            self._budget[job] = float(self._of(3, job).exponential())
        return self._budget[job] / rate

    def ran(self, job: int, nodes: int, gpus: float, seconds: float, *, failed: bool) -> None:
        """A gang has run for some time at a size; whether it has failed then."""
        if failed:
            self._budget.pop(job, None)
        elif job in self._budget:
            self._budget[job] = max(0.0, self._budget[job] - seconds * self._rate(nodes, gpus))

    def _rate(self, nodes: int, gpus: float) -> float:
        """Failures a second of a gang beyond those of its nodes."""
        factor = max(1.0, gpus / 8.0) ** self.model.size_exponent
        return nodes * self.model.per_1000_node_days / 1000.0 / DAY_S * (factor - 1.0)

    def _add(self, time_s: float, what: str, number: int) -> None:
        heapq.heappush(self._due, (time_s, self._sequence, what, number))
        self._sequence += 1

    def _of(self, stream: int, number: int) -> np.random.Generator:
        key = stream, number
        if key not in self._random:
            self._random[key] = np.random.Generator(np.random.PCG64([self._seed, stream, number]))
        return self._random[key]

    def _next_failure(self, node: int, from_s: float) -> None:
        mean_s = 1000.0 * DAY_S / self.model.per_1000_node_days
        self._add(from_s + self._of(0, node).exponential(mean_s), "fails", node)

    def _next_shock(self, pool: int, from_s: float) -> None:
        assert self.model.spot is not None
        self._add(from_s + self._of(1, pool).exponential(3600.0 / self.model.spot.per_h), "shock", pool)

    def _shock(self, pool: int, now_s: float) -> Iterator[Change]:
        spot, random = self.model.spot, self._of(1, pool)
        assert spot is not None
        self._next_shock(pool, now_s)
        whole = random.random() < spot.whole
        draws, waits = random.random(len(self.pools[pool])), random.exponential(spot.back_s, len(self.pools[pool]))
        for node, draw, wait_s in zip(self.pools[pool], draws.tolist(), waits.tolist(), strict=True):
            if whole or draw < spot.share:
                yield from self._moves(node, 1)
                self._add(now_s + wait_s, "back", node)

    def _moves(self, node: int, step: int) -> Iterator[Change]:
        before = self._away[node]
        self._away[node] = before + step
        if before == 0:
            yield Change(node, "seen")
        elif self._away[node] == 0:
            yield Change(node, "back")


def _pools(spot: SpotShocks, fleet: Fleet) -> Iterator[Sequence[int]]:
    """The spot nodes that have their shocks in common, pool by pool in the fleet's order."""
    depth = fleet.topology.index(spot.level) if spot.level else -1
    pools: dict[tuple[str, ...], list[int]] = {}
    for at, node in enumerate(fleet):
        if node.purchase == "spot":
            pools.setdefault((node.flavor, *node.topology[: depth + 1]), []).append(at)
    yield from pools.values()
