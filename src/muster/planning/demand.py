"""How much capacity to commit to: the demand duration curve and the newsvendor's quantile.

Demand D in GPUs varies over the hours. Reserved GPUs cost c_r an hour whether they are used or not; what is above them
costs c_o an hour of use. With R reserved the mean cost an hour is

    cost(R) = c_r R + c_o E[(D - R)+]          least at R* = F^-1(1 - c_r / c_o),  F the share of hours with D <= R

A long commitment at c_3 (years) binds before it is known how demand moves. With s_y the factor by which demand has
moved in year y (growth and a log-normal uncertainty), the slice of demand at height x is worth it while

    years x c_3 < sum over y of E[min(c_1, c_o (1 - F(x / s_y)))]

where c_1 is the price of a commitment of one year, which can be taken anew each year when s_y is known: the right side
is what waiting costs. So the long term takes the lowest slices, the short one those above, on-demand the rest.

Capacity blocks hold a whole day: of a day's hours above the commitments the block that costs least is their quantile
at 1 - c_b / (u c_o), u the usable part of a block.

Source: the newsvendor problem (Arrow, Harris, Marschak, Econometrica 1951).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import NormalDist

from muster.errors import InputError

HOURS_A_DAY = 24
_DRAWS = 15


def quantile(demand: Sequence[float], share: float) -> float:
    """The least value that at least a share of the hours do not pass; ``demand`` is sorted."""
    if not demand:
        raise InputError("there is no demand", field="--demand", hint="GPUs in use, hour by hour")
    if share <= 0:
        return 0.0
    return demand[min(len(demand) - 1, max(0, math.ceil(share * len(demand) - 1e-9) - 1))]


def used_share(demand: Sequence[float], height: float) -> float:
    """The share of hours in which the slice at a height is used: 1 - F(height); ``demand`` is sorted."""
    return 1 - bisect_right(demand, height) / len(demand)


def best_commitment(demand: Sequence[float], reserved: float, on_demand: float) -> float:
    """GPUs to reserve; ``demand`` is sorted, prices are those of an hour."""
    return 0.0 if reserved >= on_demand else quantile(demand, 1 - reserved / on_demand)


def hourly_cost(demand: Sequence[float], committed: float, reserved: float, on_demand: float) -> float:
    """Mean cost an hour with so many GPUs committed."""
    above = sum(max(0.0, each - committed) for each in demand) / len(demand)
    return reserved * committed + on_demand * above


def long_commitment(
    demand: Sequence[float], long: float, years: int, short: float, on_demand: float, growth: float, sigma: float
) -> float:
    """GPUs to commit to for years, against waiting and committing year by year.

    Args:
        demand: of this year, sorted.
        long, short, on_demand: prices of an hour; ``short`` of a commitment of one year (or ``on_demand``: none).
        years: of the long term.
        growth: by which demand grows a year in the median, such as 0.2.
        sigma: standard deviation of the logarithm of a year's movement.
    """
    factors = [_movements(year, growth, sigma) for year in range(years)]

    def worth(height: float) -> float:
        waiting = 0.0
        for some in factors:
            each = (min(short, on_demand * used_share(demand, height / factor)) for factor in some)
            waiting += sum(each) / len(some)
        return waiting - years * long

    low, high = 0.0, max(demand) * max(max(some) for some in factors)
    if worth(0.0) <= 0:
        return 0.0
    for _ in range(50):  # what a slice is worth falls with its height
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle) > 0 else (low, middle)
    return low


def _movements(year: int, growth: float, sigma: float) -> list[float]:
    """Equally likely factors by which demand has moved when a year begins; 1 in the first."""
    middle = (1 + growth) ** year
    if not year or not sigma:
        return [middle]
    normal = NormalDist(0.0, sigma * math.sqrt(year))
    return [middle * math.exp(normal.inv_cdf((at + 0.5) / _DRAWS)) for at in range(_DRAWS)]


def block_cost(hours: Sequence[float], committed: float, block: float, usable: float, on_demand: float) -> float:
    """Mean cost an hour of what is above the commitment, with the best block each day, known the day before.

    Args:
        hours: demand in the order of time, from the first hour of a day.
        block: price of a block's hour; its hours are paid whole.
        usable: part of a block in which it can be used.
    """
    total = 0.0
    for start in range(0, len(hours), HOURS_A_DAY):
        day = sorted(max(0.0, each - committed) for each in hours[start : start + HOURS_A_DAY])
        size = best_commitment(day, block / usable, on_demand)
        total += block * size * len(day) / usable + on_demand * sum(max(0.0, each - size) for each in day)
    return total / len(hours)
