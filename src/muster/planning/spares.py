"""How many spare nodes a failure rate asks for: closed forms.

Each node that is up fails at a constant rate r and is then away for a mean time T, whatever happens to the others. Then
it is away for the part q = rT / (1 + rT) of the time, and of n nodes

    P(k are away) = C(n, k) q^k (1 - q)^(n - k)         (binomial; it depends on T only by its mean)

With s spares that fail as well, the fleet of N nodes is whole while at most s of N + s are away. The common rule takes
the failures of N nodes in T as a Poisson number of mean N r T. It lets nodes fail that are away already, and forgets
that spares fail, too; the two nearly cancel.

`muster.sim.failures.FailureProcess` is the simulated counterpart; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

from msgspec import Struct

from muster.errors import InputError

MOST_SPARES = 1_000_000


class SpareStep(Struct, frozen=True):
    """What a number of spares gives.

    Attributes:
        spares: so many.
        covered: the part of the time in which every node that is away is replaced.
        short_nodes: nodes that are away and not replaced, in the mean over all time.
    """

    spares: int
    covered: float
    short_nodes: float


class SpareNeed(Struct, frozen=True):
    """How many spares are needed, with the numbers that were put in.

    Attributes:
        nodes: that must be up.
        per_node_day: failures of a node in a day while it is up.
        repair_days: how long it is away, in the mean.
        target: the part of the time in which all must be up.
        away: part of the time in which one node is away, q.
        mean_away: of the nodes alone, how many are away in the mean.
        spares: the least number that meets the target (binomial; spares fail, too).
        by_poisson: the same by the common rule.
    """

    nodes: int
    per_node_day: float
    repair_days: float
    target: float
    away: float
    mean_away: float
    spares: int
    by_poisson: int

    def step(self, spares: int) -> SpareStep:
        """What so many spares give."""
        covered, short = _covered(self.nodes, spares, self.away)
        return SpareStep(spares, covered, short)


def spares_needed(nodes: int, per_node_day: float, repair_days: float, target: float) -> SpareNeed:
    """The spares that ``nodes`` need, so that all are replaced for ``target`` of the time.

    Raises:
        InputError: a number is out of its range: ``nodes`` and times not below 0, ``target`` between 0 and 1.
    """
    for field, value in (("nodes", nodes), ("per_node_day", per_node_day), ("repair_days", repair_days)):
        if not (value >= 0 and math.isfinite(value)):
            raise InputError(f"is {value:g}", field=field, hint="0 or more")
    if not 0 < target < 1:
        raise InputError(f"is {target:g}", field="target", hint="above 0 and below 1, such as 0.99")
    load = per_node_day * repair_days
    away = load / (1 + load)
    return SpareNeed(
        nodes, per_node_day, repair_days, target, away, nodes * away,
        spares_by_availability(nodes, 1 - away, target), spares_by_poisson(nodes * load, target),
    )  # fmt: skip


def spares_by_availability(nodes: int, availability: float, target: float) -> int:
    """The least s with P(at least ``nodes`` of ``nodes`` + s are up) >= target, each up for ``availability``."""
    if not 0 < availability <= 1:
        raise InputError(f"is {availability:g}", field="availability", hint="above 0, at most 1")
    if nodes == 0 or availability == 1:
        return 0
    away = 1 - availability
    low, high = -1, 1
    while _covered(nodes, high, away)[0] < target:
        low, high = high, 2 * high
        if high > MOST_SPARES:
            raise InputError("asks for more than a million spares", field="repair", hint="is the rate right?")
    while high - low > 1:  # more spares never cover less
        middle = (low + high) // 2
        if _covered(nodes, middle, away)[0] >= target:
            high = middle
        else:
            low = middle
    return high


def spares_by_poisson(mean: float, target: float) -> int:
    """The least s with P(a Poisson number of this mean <= s) >= target."""
    total = 0.0
    for number, part in enumerate(_poisson(mean)):
        total += part
        if total >= target or number > MOST_SPARES:
            return number
    raise AssertionError("an endless sum ended")


def _poisson(mean: float) -> Iterator[float]:
    """P(0), P(1), ...; in logarithms, as exp(-mean) may be too small to be told from 0."""
    log = -mean
    for number in count():
        yield math.exp(log)
        log += math.log(mean) - math.log(number + 1) if mean else -math.inf


def _covered(nodes: int, spares: int, away: float) -> tuple[float, float]:
    """P(at most ``spares`` of all are away), and the mean number of those beyond them."""
    total = nodes + spares
    if away <= 0 or nodes == 0:
        return 1.0, 0.0
    log = total * math.log1p(-away)
    odds = math.log(away) - math.log1p(-away)
    covered = kept = 0.0
    for number in range(spares + 1):
        part = math.exp(log)
        covered += part
        kept += (spares - number) * part
        log += math.log(total - number) - math.log(number + 1) + odds if number < total else -math.inf
    # mean of (away - spares)+ = mean of (away - spares) + mean of (spares - away)+
    return min(1.0, covered), max(0.0, total * away - spares + kept)
