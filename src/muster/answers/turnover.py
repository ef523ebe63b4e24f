"""When a gang would start if only amounts counted: what is ahead of it against what running work gives back.

For queues too long to be run forward. Nodes, topology and backfill do not count: the GPUs (of CPU work the cores) that
it may use are one pool, all that is ahead goes first and in order, and run times are drawn. Gangs ahead are taken in
at most `LUMPS` lumps of one kind each, so that the cost grows with kinds and not with the queue. Where several times
the pool is ahead, what is beyond `ROUNDS` times it passes at the mean rate.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from muster.answers.arrivals import MOST_RUNS, some_of
from muster.answers.lengths import Floats, Lengths
from muster.answers.view import View
from muster.engine.ahead import kinds_ahead
from muster.engine.cluster import GangKind
from muster.engine.pending import Claim, Gang
from muster.engine.running import RunningGang
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Node
from muster.model.reasons import Reason, Tier
from muster.model.workload import Workload

LUMPS = 150
MOST_GROUPS = 1000
ROUNDS = 8.0


class _Lump(NamedTuple):
    like: Workload
    units: float
    gangs: float


Coming = Callable[[int], Sequence[tuple[float, Workload, float]]]
"""Of a world: when work comes that goes first, which, and how long it runs; in the order of the times."""


def turnover(view: View, gang: Gang, lengths: Lengths, coming: Coming, worlds: int) -> Floats:
    """When the gang starts in each world, in seconds of the snapshot's epoch."""
    pool = _Pool(view, gang)
    lumps = _lumps(pool, _ahead(view.scheduler, gang, pool))
    own, free = pool.units(gang.workload), pool.free
    if free >= own and view.scheduler.waits_for(gang, view.now_s).tier is not Tier.GATED:
        free = 0.0  # it does not start now: what is free is in pieces that it cannot use
    runs, part = some_of(pool.runs, MOST_RUNS)
    held = [pool.held(run) * part for run in runs]
    ends_s = [run.started_s + lengths.draw(run.workload, max(0.0, view.now_s - run.started_s))[0] for run in runs]
    lasts_s = [lengths.draw(lump.like, 0.0)[0] for lump in lumps]
    size = max(pool.free + sum(held), own)
    ahead = sum(lump.units for lump in lumps)
    skipped = max(0.0, 1.0 - ROUNDS * size / ahead) if ahead else 0.0
    starts = np.empty(worlds)
    for world in range(worlds):
        skipped_s = 0.0
        if skipped:
            work = sum(lump.units * float(each[world]) for lump, each in zip(lumps, lasts_s, strict=True))
            skipped_s = skipped * work / size
        starts[world] = skipped_s + _start(
            view.now_s, free, own,
            [(float(each[world]), units) for each, units in zip(ends_s, held, strict=True)],
            [(lump.units * (1.0 - skipped), float(each[world])) for lump, each in zip(lumps, lasts_s, strict=True)],
            [(time_s, pool.units(like), seconds) for time_s, like, seconds in coming(world) if pool.takes(like)],
        )  # fmt: skip
    return np.maximum(starts, _let_go(view, gang.workload, lengths))


def _let_go(view: View, workload: Workload, lengths: Lengths) -> Floats:
    """Until when it is held, or what it depends on runs; what that waits for itself does not count."""
    scheduler, until_s = view.scheduler, np.full(lengths.worlds, workload.not_before_s)
    for name in workload.depends_on:
        if name in scheduler.running:
            run = scheduler.running[name]
            ends_s = run.started_s + lengths.draw(run.workload, max(0.0, view.now_s - run.started_s))[0]
            until_s = np.maximum(until_s, ends_s)
        elif name in scheduler.pending.gangs:
            ends_s = view.now_s + lengths.draw(scheduler.pending.gangs[name].workload, 0.0)[0]
            until_s = np.maximum(until_s, ends_s)
    return until_s


def _start(
    now_s: float, free: float, own: float, ends: Sequence[tuple[float, float]], lumps: Sequence[tuple[float, float]],
    coming: Sequence[tuple[float, float, float]],
) -> float:  # fmt: skip
    """When ``own`` units are free, after all lumps (units, seconds) and what came first (time, units, seconds)."""
    heap = list(ends)
    heapq.heapify(heap)
    at_s, came = now_s, 0
    queue = list(reversed(lumps))
    while True:
        if not queue:
            if came < len(coming) and coming[came][0] <= at_s:
                queue.append(coming[came][1:])
                came += 1
                continue
            if free >= own:
                return at_s
        elif free > 0:
            units, seconds = queue.pop()
            begun = min(free, units)
            free -= begun
            heapq.heappush(heap, (at_s + seconds, begun))
            if units > begun:
                queue.append((units - begun, seconds))
            continue
        if not heap:
            return math.inf
        end_s, back = heapq.heappop(heap)
        at_s = max(at_s, end_s)
        free += back


class _Pool:
    """What a gang may use, as one amount: of its flavors, or of its queue where quota is what it waits for."""

    def __init__(self, view: View, gang: Gang) -> None:
        scheduler = view.scheduler
        self._gpu = gang.kind.milli > 0
        flavors = set(scheduler.flavors_of(gang.kind))
        self._flavors, self._flavored = flavors, scheduler.cluster.flavored
        reason = scheduler.waits_for(gang, view.now_s)
        self.queue = gang.workload.queue if reason in (Reason.QUOTA, Reason.OVER_LIMIT) else None
        self.user = gang.workload.user if reason is Reason.OVER_LIMIT else None
        self.runs = self._running(scheduler)
        self.free = 0.0
        if self.queue is not None:
            self.free = float(max(0, max(scheduler.quota.available(self.queue, each) for each in flavors)))
            if self.free + sum(map(self.held, self.runs)) < self.units(gang.workload):
                # what its queue holds is too little: it waits for what others have borrowed or hold of the loan
                self.queue = self.user = None
                self.runs = self._running(scheduler)
        if self.queue is None:
            nodes = [node for node in view.snapshot.fleet.nodes if self._may_use(node)]
            size = sum(1000 * node.healthy_gpus if self._gpu else node.cpu_milli for node in nodes)
            self.free = max(0.0, size - sum(map(self.held, self.runs)))

    def _running(self, scheduler: Scheduler) -> list[RunningGang]:
        shared = (run for run in scheduler.running if run.flavor in self._flavors and self._shares(run.workload))
        return [run for run in shared if self.held(run) > 0]

    def _may_use(self, node: Node) -> bool:
        return node.schedulable and (not self._flavored or node.flavor in self._flavors)

    def _shares(self, workload: Workload) -> bool:
        return self.queue in (None, workload.queue) and self.user in (None, workload.user)

    def units(self, workload: Workload) -> float:
        """How much of the pool work takes."""
        return float(workload.gpu_milli if self._gpu else workload.cpu_milli)

    def held(self, run: RunningGang) -> float:
        """How much of the pool running work holds."""
        return float(run.kind.milli) if self._gpu else run.workload.cpu_milli * run.kind.count / run.workload.pods

    def takes(self, workload: Workload) -> bool:
        """Whether work that is ahead takes of the pool."""
        return self._allows(workload.flavors) and self._shares(workload) and self.units(workload) > 0

    def _allows(self, flavors: Sequence[str]) -> bool:
        return not flavors or not self._flavored or not self._flavors.isdisjoint(flavors)

    def of(self, claim: Claim) -> bool:
        """Whether work of a claim may take of the pool."""
        return self.queue in (None, claim[0]) and self.user in (None, claim[1])

    def takes_kind(self, kind: GangKind) -> bool:
        """Whether work of a kind takes of the pool."""
        units = sum(
            each.count * (each.shape.gpu_milli_total if self._gpu else each.shape.cpu_milli) for each in kind.asked
        )
        return self._allows(kind.flavors) and units > 0


def _ahead(scheduler: Scheduler, gang: Gang, pool: _Pool) -> list[Sequence[Gang]]:
    """What is ahead, by claim and kind; where there are very many of these, by kind."""
    groups = list(islice(scheduler.groups_ahead(gang), MOST_GROUPS + 1))
    return groups if len(groups) <= MOST_GROUPS else [*kinds_ahead(scheduler, gang, pool.of, pool.takes_kind)]


def _lumps(pool: _Pool, ahead: Sequence[Sequence[Gang]]) -> list[_Lump]:
    """The gangs ahead, in order: each kind's in as many lumps as its part of all that is ahead asks for."""
    groups = [gangs for gangs in ahead if pool.takes(gangs[0].workload)]
    total = sum(len(gangs) for gangs in groups)
    found: list[tuple[tuple[object, ...], _Lump]] = []
    for gangs in groups:
        pieces = min(len(gangs), max(1, round(LUMPS * len(gangs) / total)))
        for piece in range(pieces):
            first, last = len(gangs) * piece // pieces, len(gangs) * (piece + 1) // pieces
            like = gangs[first].workload
            order = (-like.priority, like.submitted_s, like.name)
            found.append((order, _Lump(like, pool.units(like) * (last - first), last - first)))
    found.sort(key=lambda each: each[0])
    return [lump for _, lump in found]
