"""One pool for serving and training: how much may be lent, so that serving gets it back before it needs it.

Serving asks at every instant for its demand d and a slack s; what it asks for arrives T later, the time of reclaim. So
it holds h(t) = max(floor, d(t - T) + s), and is short by max(0, d(t) - h(t)).

    loan rule      a loan is safe while growth within T stays below the slack:  d(t) - d(t - T) <= s
    slack          s = quantile of that growth at 1 - risk
    lent           N_s - h(t), in the mean; what serving would own alone is its peak N_s
    taken back     sum of the rises of h; each GPU costs training half a checkpoint interval and a restart

Source: growth that was measured: 1.78 times the mean within ten minutes (ServeGen m-large), 3.4 times the step before
(Alibaba GenAI 2026).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from muster.errors import InputError


class Lent(Struct, frozen=True):
    """What a slack gives, in GPUs in the mean over the time.

    Attributes:
        held: what serving holds.
        short: what it lacks.
        short_share: part of the time in which it lacks something.
        risen: GPUs that are taken back, an hour.
    """

    held: float
    short: float
    short_share: float
    risen: float


def growths(demand: Sequence[float], steps: int) -> list[float]:
    """Growth within so many steps at each instant; negative where demand falls."""
    return [later - before for before, later in zip(demand, demand[steps:], strict=False)]


def slack_for(demand: Sequence[float], steps: int, risk: float) -> float:
    """The slack that growth within so many steps passes in at most a share of the time; 0 at least.

    Raises:
        InputError: the demand is shorter than the reclaim.
    """
    found = sorted(growths(demand, steps))
    if not found:
        raise InputError("is shorter than the reclaim takes", field="--demand", hint="a day or more")
    return max(0.0, found[min(len(found) - 1, max(0, math.ceil((1 - risk) * len(found) - 1e-9) - 1))])


def lend(demand: Sequence[float], steps: int, slack: float, floor: float, step_s: float) -> Lent:
    """What serving holds and lacks under a slack; the first ``steps`` have no past and are left out."""
    held: list[float] = []
    short: list[float] = []
    for at in range(steps, len(demand)):
        has = max(floor, demand[at - steps] + slack)
        held.append(has)
        short.append(max(0.0, demand[at] - has))
    count = len(held)
    if not count:
        raise InputError("is shorter than the reclaim takes", field="--demand", hint="a day or more")
    risen = sum(max(0.0, after - before) for before, after in pairwise(held))
    return Lent(
        sum(held) / count,
        sum(short) / count,
        sum(each > 1e-9 for each in short) / count,
        risen / (count * step_s) * 3600,
    )
