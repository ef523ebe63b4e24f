"""How many warm replicas or sandboxes to keep ready, and how full serving may be run.

Each claim takes one and starts a refill that lasts T. With claims at rate q, a = q T refills run in the mean:

    slots for a share m of misses      least n with ErlangB(a, n) <= m
    slots by price                     least n with P(refills <= n) >= cu / (cu + co)          newsvendor
                                       cu: what a miss costs, co: what a slot costs idle for T
    claims in bursts                   the variance of refills is d times their mean: quantiles of a normal
                                       distribution of mean a and variance d a instead of Poisson's

How full what serves may be run, when demand may grow b times within a cold start and a wait of W is allowed:

    u = (1 + W / T) / b

Source: Erlang 1917; newsvendor; the fluid bound is computed in muster's facts and agrees within 3 % with a published
simulation (dev.to, 2026).
"""

from __future__ import annotations

import math
from statistics import NormalDist

from muster.errors import InputError
from muster.planning.queueing import servers_for_loss


def safe_utilisation(cold_s: float, wait_s: float, burst: float) -> float:
    """The share of its capacity at which serving may be run; 1 at most."""
    if burst <= 0:
        raise InputError(f"is {burst:g}", field="--burst", hint="1 or more")
    return min(1.0, (1 + wait_s / cold_s) / burst) if cold_s > 0 else 1.0


def slots_for_misses(load: float, misses: float, dispersion: float = 1.0) -> int:
    """Slots so that at most a share of claims find none ready; ``dispersion`` is variance over mean of the refills."""
    least = servers_for_loss(load, misses)
    if dispersion <= 1:
        return least
    spread = NormalDist().inv_cdf(1 - misses) * math.sqrt(load)
    return max(least, math.ceil(least + spread * (math.sqrt(dispersion) - 1)))


def slots_by_price(load: float, miss_cost: float, idle_cost: float, dispersion: float = 1.0) -> int:
    """The least slots whose next one costs more idle than it saves; raises `InputError` where both cost nothing."""
    if miss_cost + idle_cost <= 0:
        raise InputError("a miss and an idle slot cost nothing", field="--miss-cost", hint="say what one costs")
    wanted = miss_cost / (miss_cost + idle_cost)
    if dispersion > 1:
        if wanted <= 0 or wanted >= 1:
            return 0 if wanted <= 0 else math.ceil(load + 8 * math.sqrt(dispersion * load))
        return max(0, math.ceil(load + NormalDist().inv_cdf(wanted) * math.sqrt(dispersion * load)))
    total, part, count = math.exp(-load), math.exp(-load), 0
    if load > 600:
        return math.ceil(load + NormalDist().inv_cdf(min(wanted, 1 - 1e-12)) * math.sqrt(load))
    while total < wanted - 1e-12 and count < 10 * load + 100:
        count += 1
        part *= load / count
        total += part
    return count
