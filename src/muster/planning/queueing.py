"""Waiting lines: Erlang's formulas, and what heavy tails do to them.

With a = arrival rate x mean time of service (the load, in servers) and c servers:

    Erlang B   chance that an arrival is lost where nobody may wait       B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1))
    Erlang C   chance that an arrival waits                               C = B / (1 - rho (1 - B)),  rho = a / c
    wait       mean C S / (c (1 - rho)),   P(W > t) = C e^(-c (1 - rho) t / S)
    any times  Allen-Cunneen: wait x (Ca^2 + Cs^2) / 2, with the coefficients of variation of arrivals and services

Sources: A. Erlang 1917; A. Allen, Probability, Statistics and Queueing Theory, 1990.
"""

from __future__ import annotations

import math

from muster.errors import InputError

MOST_SERVERS = 1_000_000
"""Of one line; more is a slip, and takes seconds to count up to."""


def erlang_b(load: float, servers: int) -> float:
    """The share of arrivals that find all servers busy, where those are lost."""
    lost = 1.0
    for each in range(1, servers + 1):
        lost = load * lost / (each + load * lost)
    return lost


def erlang_c(load: float, servers: int) -> float:
    """The share of arrivals that wait; 1 where the load is not below the servers."""
    if load >= servers:
        return 1.0
    lost = erlang_b(load, servers)
    return lost / (1 - load / servers * (1 - lost))


def mean_wait(load: float, servers: int, service: float, variation: float = 1.0) -> float:
    """The mean wait in the unit of ``service``; infinite where the load is not below the servers.

    ``variation`` is (Ca^2 + Cs^2) / 2; 1 for random arrivals and exponential times.
    """
    if load >= servers:
        return math.inf
    return erlang_c(load, servers) * service / (servers - load) * variation


def servers_for_wait(load: float, service: float, wait: float, variation: float = 1.0) -> int:
    """The least servers whose mean wait is at most ``wait``; raises `InputError` where it is not above 0."""
    if wait <= 0:
        raise InputError(f"is {wait:g}", field="wait", hint="above 0")
    low, high = math.floor(load), math.floor(load) + 1
    while mean_wait(load, high, service, variation) > wait:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mean_wait(load, middle, service, variation) <= wait else (middle, high)
    return high


def servers_for_loss(load: float, share: float) -> int:
    """The least servers that lose at most a share of the arrivals; raises `InputError` where it is not above 0."""
    if not 0 < share < 1:
        raise InputError(f"is {share:g}", field="share", hint="above 0 and below 1")
    if load * (1 - share) > MOST_SERVERS:  # each server carries one at most
        raise InputError("asks for more than a million servers", field="share", hint="a shorter service, or more loss")
    lost, count = 1.0, 0
    while lost > share:
        count += 1
        lost = load * lost / (count + load * lost)
        if count > MOST_SERVERS:
            raise InputError(
                "asks for more than a million servers", field="share", hint="a shorter service, or more loss"
            )
    return count
