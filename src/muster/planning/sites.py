"""Several sites: what a synchronous job pays, what outer steps need, and whole jobs shared out with their data.

With P parameters, W sites, t seconds a step at one site, B bytes a second between sites, r seconds there and back:

    synchronous   step = t + 2 (W - 1)/W P b / B + 2 (W - 1) r / 2         b bytes a gradient; nothing hides it
    outer steps   bandwidth = 2 (W - 1)/W P b / (H t)                      one exchange each H steps, hidden under them

(all-reduce between sites by a ring; the sites' own is in t). Whole jobs go to one site each:

    cost(job, site) = GPU-hours x price(site) + data x egress(home), the latter if it leaves its home
    minimise the sum;  GPU-hours of a site's jobs <= its GPUs x horizon;  a job has no more GPUs than its site

That is a generalised assignment problem: solved by depth-first search with the sum of each job's cheapest site as
bound, exact where it ends in time. Else the answer is the greedy one, improved by moves and exchanges until none helps,
beside the bound that prices of the sites' room give (Lagrange): for any prices y >= 0

    cost >= sum over jobs of min over sites (cost(job, site) + y(site) GPU-hours) - sum of y(site) x room

Work that fits nowhere is left out last.

Sources: Douillard et al., DiLoCo (arXiv 2311.08105) and Streaming DiLoCo (arXiv 2501.18512) for outer steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

MOST_NODES = 60_000
"""Partial assignments that the search looks at."""

_LEFT_OUT = 1e12
"""What a GPU-hour that runs nowhere counts: more than any cost."""


class Site(Struct, frozen=True):
    """A site; ``price`` of a GPU-hour, ``egress`` of a GB that leaves it, both in one currency."""

    name: str
    gpus: int
    price: float = 0.0
    egress: float = 0.0


class Job(Struct, frozen=True):
    """A job that runs at one site; ``data_bytes`` are at ``home``."""

    name: str
    gpus: int
    hours: float
    data_bytes: float
    home: str

    @property
    def gpu_hours(self) -> float:
        """What it takes."""
        return self.gpus * self.hours


class Shared(Struct, frozen=True):
    """Jobs shared out.

    Attributes:
        sites: of each job, the site's number; -1: it fits nowhere.
        cost: of those that run, in the currency; without prices the bytes that move.
        at_least: no sharing out of as much work costs less; equal to ``cost`` where the search ended.
    """

    sites: tuple[int, ...]
    cost: float
    at_least: float

    @property
    def exact(self) -> bool:
        """Whether nothing is cheaper."""
        return self.cost <= self.at_least * (1 + 1e-12) + 1e-9


def synchronous_s(
    parameters: float, sites: int, step_s: float, link: float, rtt_s: float, gradient_bytes: float
) -> float:
    """A step of one job over all sites."""
    sent = 2 * (sites - 1) / sites * parameters * gradient_bytes
    return step_s + sent / link + (sites - 1) * rtt_s


def outer_bandwidth(parameters: float, sites: int, step_s: float, every: int, bits: float) -> float:
    """Bytes a second between sites that outer steps need."""
    return 2 * (sites - 1) / sites * parameters * bits / 8 / (every * step_s)


def costs_of(jobs: Sequence[Job], sites: Sequence[Site], *, priced: bool) -> list[list[float]]:
    """Cost of each job at each site; infinite where it does not fit."""
    by_name = {site.name: site for site in sites}
    table: list[list[float]] = []
    for job in jobs:
        row: list[float] = []
        for site in sites:
            moved = job.data_bytes if site.name != job.home else 0.0
            money = job.gpu_hours * site.price + moved / 1e9 * by_name[job.home].egress
            row.append(float("inf") if job.gpus > site.gpus else money if priced else moved)
        table.append(row)
    return table


def share_out(jobs: Sequence[Job], sites: Sequence[Site], horizon_h: float, *, priced: bool) -> Shared:
    """The cheapest way to run as many GPU-hours as fit; see the module's text."""
    costs = costs_of(jobs, sites, priced=priced)
    order = sorted(range(len(jobs)), key=lambda at: (-jobs[at].gpu_hours, at))
    cheapest = [min([*costs[at], _LEFT_OUT * jobs[at].gpu_hours]) for at in order]
    rest = [sum(cheapest[at:]) for at in range(len(order) + 1)]
    room = [site.gpus * horizon_h for site in sites]
    best, best_cost = _improved(jobs, costs, room, _greedy(jobs, costs, order, room))
    chosen = [-1] * len(jobs)
    nodes = 0
    stopped = False

    def search(at: int, cost: float) -> None:
        """Sites for the jobs from ``at`` on, the cheapest first; a site that is full is passed over."""
        nonlocal best, best_cost, nodes, stopped
        nodes += 1
        if nodes > MOST_NODES:
            stopped = True
        if stopped or cost + rest[at] >= best_cost - 1e-9:
            return
        if at == len(order):
            best, best_cost = tuple(chosen), cost
            return
        job = order[at]
        for site in sorted(range(len(sites)), key=lambda one: (costs[job][one], one)):
            if costs[job][site] < float("inf") and jobs[job].gpu_hours <= room[site] + 1e-9:
                room[site] -= jobs[job].gpu_hours
                chosen[job] = site
                search(at + 1, cost + costs[job][site])
                room[site] += jobs[job].gpu_hours
        chosen[job] = -1
        search(at + 1, cost + _LEFT_OUT * jobs[job].gpu_hours)

    search(0, 0.0)
    runs = sum(costs[job][site] for job, site in enumerate(best) if site >= 0)
    there = [job for job, site in enumerate(best) if site >= 0]
    return Shared(best, runs, _bound(jobs, costs, there, room, runs) if stopped else runs)


def _greedy(
    jobs: Sequence[Job], costs: Sequence[Sequence[float]], order: Sequence[int], room: Sequence[float]
) -> tuple[tuple[int, ...], float]:
    """The largest jobs first, each at the cheapest site that has room."""
    left, chosen, total = list(room), [-1] * len(jobs), 0.0
    for job in order:
        fits = [
            site for site in range(len(left))
            if costs[job][site] < float("inf") and jobs[job].gpu_hours <= left[site] + 1e-9
        ]  # fmt: skip
        if not fits:
            total += _LEFT_OUT * jobs[job].gpu_hours
            continue
        chosen[job] = min(fits, key=lambda site: (costs[job][site], site))
        left[chosen[job]] -= jobs[job].gpu_hours
        total += costs[job][chosen[job]]
    return tuple(chosen), total


def _improved(
    jobs: Sequence[Job], costs: Sequence[Sequence[float]], room: Sequence[float], found: tuple[tuple[int, ...], float]
) -> tuple[tuple[int, ...], float]:
    """Jobs moved to a cheaper site, or exchanged with another's, until that helps no more."""
    chosen, total = list(found[0]), found[1]
    left = list(room)
    for job, site in enumerate(chosen):
        if site >= 0:
            left[site] -= jobs[job].gpu_hours
    better = True
    while better:
        better = False
        for one in range(len(jobs)):
            here = chosen[one]
            if here < 0:
                continue
            for site in range(len(left)):
                if site != here and costs[one][site] < costs[one][here] - 1e-9 and jobs[one].gpu_hours <= left[site]:
                    left[here] += jobs[one].gpu_hours
                    left[site] -= jobs[one].gpu_hours
                    total += costs[one][site] - costs[one][here]
                    chosen[one] = here = site
                    better = True
            for other in range(one + 1, len(jobs)):
                there = chosen[other]
                if there < 0 or there == here:
                    continue
                change = costs[one][there] + costs[other][here] - costs[one][here] - costs[other][there]
                more = jobs[one].gpu_hours - jobs[other].gpu_hours
                if change < -1e-9 and left[there] >= more and left[here] >= -more:
                    left[there] -= more
                    left[here] += more
                    total += change
                    chosen[one], chosen[other] = there, here
                    here = there
                    better = True
    return tuple(chosen), total


def _bound(
    jobs: Sequence[Job], costs: Sequence[Sequence[float]], there: Sequence[int], room: Sequence[float], cost: float
) -> float:
    """The best of the bounds that prices of room give, by steps along the overload; each is one."""
    prices = [0.0] * len(room)
    best = 0.0
    for step in range(300):
        load = [-each for each in room]
        value = -sum(price * each for price, each in zip(prices, room, strict=True))
        for job in there:
            hours = jobs[job].gpu_hours
            at = min(range(len(room)), key=lambda site: (costs[job][site] + prices[site] * hours, site))
            value += costs[job][at] + prices[at] * hours
            load[at] += hours
        best = max(best, value)
        length = sum(each * each for each in load)
        if not length:
            break
        size = (1.0 if step < 100 else 100.0 / step) * max(0.0, 1.01 * cost - value) / length
        prices = [max(0.0, price + size * each) for price, each in zip(prices, load, strict=True)]
    return best
