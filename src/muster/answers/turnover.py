"""When a gang would start if only amounts counted: what is ahead of it against what running work gives back.

For queues too long to be run forward. Nodes, topology and backfill do not count: the GPUs (of CPU work the cores) that
it may use are one pool, all that is ahead goes first and in order, and run times are drawn. Gangs ahead are taken in
at most `LUMPS` lumps of one kind each, so that the cost grows with kinds and not with the queue. Where several times
the pool is ahead, what is beyond `ROUNDS` times it passes at the mean rate.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.answers.lengths import Floats, Lengths
from muster.answers.view import View
from muster.engine.pending import Gang
from muster.engine.running import RunningGang
from muster.model.reasons import Reason
from muster.model.workload import Workload

LUMPS = 240
ROUNDS = 8.0


class _Lump(NamedTuple):
    like: Workload
    units: float
    gangs: float


def turnover(view: View, gang: Gang, lengths: Lengths, samples: int, rng: np.random.Generator) -> Floats:
    """When the gang starts, once a sample, in seconds of the snapshot's epoch."""
    pool = _Pool(view, gang)
    lumps = _lumps(pool, list(view.scheduler.groups_ahead(gang)))
    own = pool.units(gang.workload)
    held = [pool.held(run) for run in pool.runs]
    ends_s = [
        run.started_s + lengths.draw(run.workload, max(0.0, view.now_s - run.started_s), samples, rng)
        for run in pool.runs
    ]
    lasts_s = [lengths.draw(lump.like, 0.0, samples, rng) for lump in lumps]
    size = max(pool.free + sum(held), own)
    ahead = sum(lump.units for lump in lumps)
    skipped = max(0.0, 1.0 - ROUNDS * size / ahead) if ahead else 0.0
    starts = np.empty(samples)
    for sample in range(samples):
        starts[sample] = _start(
            view.now_s, pool.free, own,
            [(float(each[sample]), units) for each, units in zip(ends_s, held, strict=True)],
            [(lump.units * (1.0 - skipped), float(each[sample])) for lump, each in zip(lumps, lasts_s, strict=True)],
        )  # fmt: skip
        if skipped:
            work = sum(lump.units * float(each[sample]) for lump, each in zip(lumps, lasts_s, strict=True))
            starts[sample] += skipped * work / size
    gated_s = gang.workload.not_before_s
    return np.maximum(starts, gated_s)


def _start(
    now_s: float, free: float, own: float, ends: Sequence[tuple[float, float]], lumps: Sequence[tuple[float, float]]
) -> float:
    """When ``own`` units are free for the first time after all lumps (units, seconds) have begun in order."""
    heap = list(ends)
    heapq.heapify(heap)
    at_s = now_s
    for units, seconds in (*lumps, (own, math.inf)):
        left = units
        while left > 1e-9:
            if free <= 0 or (seconds == math.inf and free < left):
                if not heap:
                    return math.inf
                end_s, back = heapq.heappop(heap)
                at_s = max(at_s, end_s)
                free += back
                continue
            begun = min(free, left)
            free -= begun
            left -= begun
            heapq.heappush(heap, (at_s + seconds, begun))
    return at_s


class _Pool:
    """What a gang may use, as one amount: of its flavors, or of its queue where quota is what it waits for."""

    def __init__(self, view: View, gang: Gang) -> None:
        scheduler = view.scheduler
        self._gpu = gang.kind.milli > 0
        flavors = set(scheduler.flavors_of(gang.kind))
        reason = scheduler.waits_for(gang, view.now_s)
        self.queue = gang.workload.queue if reason in (Reason.QUOTA, Reason.OVER_LIMIT) else None
        self.user = gang.workload.user if reason is Reason.OVER_LIMIT else None
        self.runs: list[RunningGang] = [
            run
            for run in scheduler.running
            if run.flavor in flavors and self._shares(run.workload) and self.held(run) > 0
        ]
        if self.queue is not None:
            self.free = float(max(0, max(scheduler.quota.available(self.queue, each) for each in flavors)))
        else:
            nodes = [
                node
                for node in view.snapshot.fleet.nodes
                if node.schedulable and (not scheduler.cluster.flavored or node.flavor in flavors)
            ]
            size = sum(1000 * node.healthy_gpus if self._gpu else node.cpu_milli for node in nodes)
            self.free = max(0.0, size - sum(self.held(run) for run in self.runs))
        self._flavors = flavors

    def _shares(self, workload: Workload) -> bool:
        return self.queue in (None, workload.queue) and self.user in (None, workload.user)

    def units(self, workload: Workload) -> float:
        """How much of the pool work takes."""
        return float(workload.gpu_milli if self._gpu else workload.cpu_milli)

    def held(self, run: RunningGang) -> float:
        """How much of the pool running work holds."""
        return float(run.kind.milli) if self._gpu else run.workload.cpu_milli * run.kind.count / run.workload.pods

    def takes(self, gang: Gang) -> bool:
        """Whether a gang that is ahead takes of the pool."""
        return self._shares(gang.workload) and self.units(gang.workload) > 0


def _lumps(pool: _Pool, ahead: Sequence[Sequence[Gang]]) -> list[_Lump]:
    """The gangs ahead, in order: each kind's in as many lumps as its part of all that is ahead asks for."""
    groups = [gangs for gangs in ahead if pool.takes(gangs[0])]
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
