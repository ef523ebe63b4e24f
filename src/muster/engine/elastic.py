"""Elastic gangs while they run: pods above the minimum yield to gangs that wait before anybody is stopped, and come
back when nobody else can use the room.

A change stops nothing: each worker that stays keeps its state, and the gang goes on after the restart time of its
checkpointing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from muster.engine.cluster import GangKind, Hold, whole_nodes
from muster.engine.running import RunningGang
from muster.engine.sizes import Counts, largest
from muster.kernels import Ints
from muster.model.plan import Resize
from muster.model.reasons import Reason
from muster.policy.ordering.protocol import Rank

if TYPE_CHECKING:
    from muster.engine.books import Books


def excess_columns(run: RunningGang, least: Counts) -> list[int]:
    """The pods of a running gang above its least size: the last of each pod set."""
    columns: list[int] = []
    end = 0
    for count, needed in zip(run.counts, least, strict=True):
        end += count
        columns += range(end - (count - needed), end)
    return columns


def shrink(books: Books, run: RunningGang, columns: Sequence[int], now_s: float, why: str, for_workload: str) -> Resize:
    """Take pods from a running gang; it goes on with the others."""
    cluster = books.cluster
    counts = tuple(map(int.__sub__, run.counts, run.per_set(columns)))
    cluster.release(run.rows[:, list(columns)])
    rows = np.delete(run.rows, list(columns), axis=1)
    books.rebook(run, cluster.sized(run.kind, counts), rows, now_s)
    return resized(books, run, now_s, why, for_workload)


def resized(books: Books, run: RunningGang, now_s: float, why: str, for_workload: str = "") -> Resize:
    """The decision that a gang goes on as it is now. Its state is with the pods that stay, so no work is lost."""
    saved = run.workload.checkpointing
    cost_gpu_s = saved.restart_s * run.kind.milli / 1000.0 if saved else 0.0
    if saved:
        run.checkpointed_s = now_s
    return Resize(run.workload.name, books.cluster.places(run.rows), run.counts, why, for_workload, cost_gpu_s)


def grow(books: Books, now_s: float) -> list[Resize]:
    """Give elastic gangs what nobody else can use now: in the order of the queue, as much as fits at once.

    Reserved starts are kept as by work that starts; so is the domain that a gang must stand in.
    """
    found: list[Resize] = []
    every_s = books.config.grow_every_s
    small = [
        run
        for run in books.running.elastic()
        if not run.missing and run.started_s < now_s and now_s - run.resized_s >= every_s
        and run.counts != books.cluster.kind_of(run.workload).sizes[-1]
    ]  # fmt: skip
    for run in sorted(small, key=lambda run: turn_of(books, run)):
        change = _more(books, run, now_s)
        if change is not None:
            found.append(change)
    return found


def next_growth_s(books: Books, now_s: float) -> float:
    """When the next elastic gang that is not at full size may be given more; infinite if there is none."""
    every_s = books.config.grow_every_s
    times = (
        run.resized_s + every_s
        for run in books.running.elastic()
        if run.counts != books.cluster.kind_of(run.workload).sizes[-1]
    )
    return min((time_s for time_s in times if time_s > now_s), default=math.inf)


def turn_of(books: Books, run: RunningGang) -> tuple[int, Rank, str]:
    """Who among running gangs is served first."""
    workload = run.workload
    return -workload.priority, books.shares.rank((workload.queue, workload.user)), workload.name


def _more(books: Books, run: RunningGang, now_s: float) -> Resize | None:
    cluster, workload, flavor = books.cluster, run.workload, run.flavor
    holds = books.holds(workload, now_s, run)
    holds += outside(books, run)
    full = cluster.kind_of(workload)
    larger = [size for size in full.sizes if size > run.counts and all(map(int.__ge__, size, run.counts))]

    def added(size: Counts) -> GangKind:
        return cluster.sized(full, tuple(map(int.__sub__, size, run.counts)))

    def fits(size: Counts) -> bool:
        kind = added(size)
        if books.queues and books.quota.fits(workload.queue, flavor, kind.milli) is not None:
            return False
        if not books.may_hold(workload, kind.milli) or cluster.still_refused(kind, flavor) is not None:
            return False
        placed = books.place_beside(kind, flavor, holds)
        if isinstance(placed, Reason):
            if not holds:
                cluster.note_refused(kind, flavor, placed)
            return False
        cluster.give_back(placed)
        return True

    size = largest(larger, fits)
    if size is None:
        return None
    placed = books.place_beside(added(size), flavor, holds)
    assert not isinstance(placed, Reason), "it did fit"
    books.rebook(run, cluster.sized(full, size), _joined(run.rows, run.counts, placed, size), now_s)
    return resized(books, run, now_s, "room")


def _joined(rows: Ints, counts: Counts, more: Ints, total: Counts) -> Ints:
    """The pods of a gang with ``more`` of them: behind the others of their pod sets."""
    ends, more_ends = np.cumsum(counts), np.cumsum(np.subtract(total, counts))
    parts = zip(np.split(rows, ends[:-1], axis=1), np.split(more, more_ends[:-1], axis=1), strict=True)
    return np.concatenate([part for pair in parts for part in pair], axis=1)


def outside(books: Books, run: RunningGang) -> list[Hold]:
    """Keeps further pods of a gang in the domain in which it must stand as a whole, and out of those with pods of it of
    which a domain may hold only so many."""
    request, index = run.kind.topology, books.cluster.index
    if request is None or not run.nodes:
        return []
    closed = np.zeros(len(index.order), np.bool_)
    if request.required and not request.segment:
        domain = index.of_node[index.depth_of(request.required) - 1]
        closed |= domain != domain[run.rows[0, 0]]
    if request.at_most:
        domain = index.of_node[index.depth_of(request.spread) - 1]
        closed |= np.isin(domain, domain[run.rows[0]])
    return [whole_nodes(books.cluster, np.flatnonzero(closed).tolist())]
