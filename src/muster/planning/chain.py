"""A chain of components on many nodes: when the last node is ready, and what people spend by hand and by operator.

Component i takes t_i once those before it are ready, and on average half a poll passes until it notices:

    ready(i)  = max over those before it of ready(j), + poll/2 + t_i           0 for those that wait for nothing
    path      = the components that the last one waits for, the longest way
    a node    = ready of the last needed one; deviation d = v sqrt(sum of t_i^2 on the path), v that of each t_i / t_i
    last of N = a node + d (z + (z^2 - 1) g/6),  z = quantile of the normal distribution at (N - 0.375) / (N + 0.25)
                g = 2 v^4 (sum of t_i^3 on the path) / d^3        skewness, as that of gamma distributions; 0 for N = 1

    people by operator = set up + N f fix,     f = 1 - product of (1 - f_i)
    people by hand     = N (sum of h_i) (1 - scripted) + N f' fix,     f' = 1 - product of (1 - m f_i)

with h_i the hands-on time of a component, f_i the share of nodes on which it fails, m how many times more often it does
by hand.

Sources: Blom, Statistical Estimates and Transformed Beta-Variables, 1958, for the largest of N; Cornish and Fisher 1938
for the skewness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from msgspec import Struct

from muster.errors import InputError


class Link(Struct, frozen=True):
    """One component; ``needed``: a node counts as ready only with it."""

    name: str
    after: tuple[str, ...]
    time_s: float
    hands_s: float = 0.0
    fails: float = 0.0
    needed: bool = True


class Ready(Struct, frozen=True):
    """When a node is ready.

    Attributes:
        at_s: of each link, in their order.
        node_s: when all needed ones are.
        path: the names of those on the longest way to it, first to last.
        deviation_s: of ``node_s``, if links differ independently.
        skewness: of ``node_s``, if their times are gamma distributed.
    """

    at_s: tuple[float, ...]
    node_s: float
    path: tuple[str, ...]
    deviation_s: float
    skewness: float = 0.0


def ready(links: Sequence[Link], poll_s: float, spread: float) -> Ready:
    """The chain of one node; raises `InputError` where a link waits for one that is not there, or for itself."""
    by_name = {link.name: link for link in links}
    at: dict[str, float] = {}
    before: dict[str, str] = {}
    waiting = list(links)
    while waiting:
        link = next((one for one in waiting if all(name in at for name in one.after)), None)
        if link is None:
            unknown = [name for one in waiting for name in one.after if name not in by_name]
            what = f"waits for {unknown[0]!r}, which is not there" if unknown else "wait for each other"
            names = ", ".join(one.name for one in waiting[:4])
            raise InputError(f"{names}: {what}", field="--link", hint="after= names links that are given")
        waiting.remove(link)
        last = max(link.after, key=lambda name: at[name], default="")
        at[link.name] = (at[last] + poll_s / 2 if last else 0.0) + link.time_s
        before[link.name] = last
    end = max((link.name for link in links if link.needed), key=lambda name: at[name])
    path = [end]
    while before[path[0]]:
        path.insert(0, before[path[0]])
    deviation = spread * math.sqrt(sum(by_name[name].time_s ** 2 for name in path))
    cubes = sum(by_name[name].time_s ** 3 for name in path)
    skewness = 2 * spread**4 * cubes / deviation**3 if deviation else 0.0
    return Ready(tuple(at[link.name] for link in links), at[end], tuple(path), deviation, skewness)


def last_of(nodes: int, found: Ready) -> float:
    """When the last of so many nodes is ready, on average."""
    return found.node_s + found.deviation_s * late(nodes, found.skewness)


def late(nodes: int, skewness: float) -> float:
    """How many deviations after the mean the last of so many is, on average; 0 for one."""
    if nodes == 1:
        return 0.0
    z = NormalDist().inv_cdf((nodes - 0.375) / (nodes + 0.25))
    return z + (z * z - 1) * skewness / 6


def failing(links: Sequence[Link], times: float = 1.0) -> float:
    """The share of nodes on which some link fails, if each fails so many times more often."""
    return 1 - math.prod(1 - min(1.0, times * link.fails) for link in links)
