"""Notebooks on GPUs: how many are open, hold and use a GPU at a time, and what taking idle ones away costs.

A session is work for w, then a tail of mean t in which it stays open and nobody comes back. Within the work a cell runs
a share a of the time; between cells are pauses P, lognormal of median g and shape s, or as they were measured. How many
cells a user runs is taken not to depend on the pauses.

    pauses of a session            n = w (1 - a) / E P,          E P = g e^(s^2 / 2)
    false stops of a session       k = n P(P > T),               T: idle time after which the GPU is taken
    sessions that meet one         1 - e^-k
    held of its open time          f = (w - n E(P - T)+  + t (1 - e^(-T/t))) / (w + t)
    works of its open time         r = a w / (w + t)

    E(P - T)+ = E P F(s - z) - T F(-z),   z = ln(T / g) / s,   F the normal distribution

Of U users, each with a notebook open at the busiest time with chance o, independently, Binomial(U, o) are open,
Binomial(U, o f) hold a GPU, Binomial(U, o r) run a cell. GPUs for a share e of the time without: the least k with
P(more than k) <= e. Where the numbers open were seen over time, the mean over them of Binomial(seen, f) counts instead,
each weighted by itself: as those see it who have a notebook open.

Sources: computed; lognormal partial expectation. Pauses of people at work have heavy tails, which a lognormal has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from msgspec import Struct

_NORMAL = NormalDist()


class Pauses(Struct, frozen=True):
    """Pauses between cells: lognormal, or as measured.

    Attributes:
        median_s, shape: of the lognormal.
        seen: measured pauses in seconds, sorted; empty: there are none, the lognormal counts.
    """

    median_s: float
    shape: float
    seen: tuple[float, ...] = ()

    @property
    def mean_s(self) -> float:
        """E P."""
        if self.seen:
            return math.fsum(self.seen) / len(self.seen)
        return self.median_s * math.exp(self.shape**2 / 2)

    def longer(self, than_s: float) -> float:
        """P(P > T)."""
        if self.seen:
            return sum(each > than_s for each in self.seen) / len(self.seen)
        return _NORMAL.cdf(-self._z(than_s)) if than_s > 0 else 1.0

    def beyond_s(self, than_s: float) -> float:
        """E(P - T)+."""
        if self.seen:
            return math.fsum(max(0.0, each - than_s) for each in self.seen) / len(self.seen)
        if than_s <= 0:
            return self.mean_s
        z = self._z(than_s)
        return max(0.0, self.mean_s * _NORMAL.cdf(self.shape - z) - than_s * _NORMAL.cdf(-z))

    def _z(self, than_s: float) -> float:
        return math.log(than_s / self.median_s) / self.shape


class Policy(Struct, frozen=True):
    """What a time after which idle GPUs are taken does to one session.

    Attributes:
        held: share of its open time in which it holds a GPU.
        stops: false stops of a session in the mean: its user comes back to a GPU that is gone.
        idle_s: time that its GPU is held without a cell running.
    """

    held: float
    stops: float
    idle_s: float

    @property
    def met(self) -> float:
        """Share of sessions with at least one false stop, if stops come at random."""
        return 1 - math.exp(-self.stops)


def policy(work_s: float, active: float, tail_s: float, pauses: Pauses, after_s: float | None) -> Policy:
    """Of a session, if its GPU is taken after ``after_s`` without a cell; None: never."""
    count = work_s * (1 - active) / pauses.mean_s if pauses.mean_s else 0.0
    if after_s is None:
        held_s, stops = work_s + tail_s, 0.0
    else:
        tail = tail_s * -math.expm1(-after_s / tail_s) if tail_s else 0.0
        held_s = work_s - count * pauses.beyond_s(after_s) + tail
        stops = count * pauses.longer(after_s)
    return Policy(held_s / (work_s + tail_s), stops, held_s - active * work_s)


def over(trials: int, chance: float, count: int) -> float:
    """P(Binomial(trials, chance) > count): the smaller side is summed from its largest term down."""
    if count >= trials or chance <= 0:
        return 0.0
    if count < 0 or chance >= 1:
        return 1.0
    above = count + 1 > trials * chance
    at = count + 1 if above else count
    odds = chance / (1 - chance)
    term = math.exp(
        math.lgamma(trials + 1) - math.lgamma(at + 1) - math.lgamma(trials - at + 1)
        + at * math.log(chance) + (trials - at) * math.log1p(-chance)
    )  # fmt: skip
    total = 0.0
    while term > total * 1e-16 and 0 <= at <= trials:
        total += term
        term *= (trials - at) / (at + 1) * odds if above else at / (trials - at + 1) / odds
        at += 1 if above else -1
    return min(1.0, total if above else 1 - total)


def places(weights: Mapping[int, float], chance: float, missed: float) -> int:
    """The least k with P(more than k) <= ``missed``, of a mixture of Binomial(n, chance); ``weights`` of each n."""
    low, high = -1, max(weights, default=0)
    while high - low > 1:
        middle = (low + high) // 2
        share = math.fsum(weight * over(trials, chance, middle) for trials, weight in weights.items())
        low, high = (low, middle) if share <= missed else (middle, high)
    return high


def weights_of(seen: Sequence[float]) -> dict[int, float]:
    """Weight of each number that was seen: its share of the notebooks' time, so that empty nights excuse nothing."""
    found: dict[int, float] = {}
    total = math.fsum(round(each) for each in seen)
    for each in map(round, seen):
        if each:
            found[each] = found.get(each, 0.0) + each / total
    return found
