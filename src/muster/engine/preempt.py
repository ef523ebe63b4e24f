"""Whom to stop for a gang that is entitled to start: as few and as cheap as possible, or nobody.

1. *Reclaim*: a queue asks for no more than its nominal quota, and others have borrowed it.
2. *Priority*: work of lower priority in the same queue (with no queues: anywhere).

Work that has used none of its GPUs for too long goes first, and pods of elastic gangs above their least size yield;
both also to a gang of the same priority in the same queue. Then candidates are released in memory, cheapest first, till
the gang fits; then those that turn out not to be needed are put back, dearest first. Nobody is named unless the gang
then really has its places. No loop can come of it: work that was stopped for reclaim ran on borrowed quota and cannot
reclaim it, and priority is strict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from muster.engine.elastic import excess_columns
from muster.engine.pending import Gang
from muster.engine.running import RunningGang

if TYPE_CHECKING:
    from muster.engine.books import Books

OPPORTUNISTIC = ("spot", "BE", "best-effort", "opportunistic")
"""Qualities of service whose work goes first."""


class Part:
    """What may be taken from a running gang: all its pods (``whole``), or those above its least size.

    ``columns`` are its pods in ``run.rows``. Of an elastic gang the part above the least size is taken first; the whole
    then is the rest.
    """

    __slots__ = ("columns", "milli", "rows", "run", "whole")

    def __init__(self, books: Books, run: RunningGang, columns: list[int], *, whole: bool) -> None:
        self.run = run
        self.columns = columns
        self.whole = whole
        if len(columns) == run.rows.shape[1] and not run.missing:
            self.rows, self.milli = run.rows, run.kind.milli
            return
        self.rows = run.rows[:, columns]
        shapes = books.cluster.state.shapes
        pods = self.rows[1]
        self.milli = int((shapes.gpus[pods] * shapes.gpu_milli[pods]).sum())

    def lost_gpu_s(self, now_s: float) -> float:
        """What taking it loses: work since the last checkpoint, or of a gang that goes on only a restart."""
        saved = self.run.workload.checkpointing
        if self.whole:
            return self.run.lost_gpu_s(now_s)
        return (saved.restart_s if saved else 0.0) * self.run.kind.milli / 1000.0


def find_victims(books: Books, gang: Gang, flavors: Iterable[str], now_s: float) -> tuple[list[Part], str] | None:
    """What to take, in order, and the flavor on which ``gang`` then starts; None: nobody is to be stopped."""
    for flavor in flavors:
        candidates = _candidates(books, gang, flavor, now_s)
        if candidates:
            victims = _choose(books, gang, flavor, candidates)
            if victims is not None:
                return victims, flavor
    return None


def _candidates(books: Books, gang: Gang, flavor: str, now_s: float) -> list[Part]:
    """What may be taken for a gang, the cheapest first."""
    config, workload, running = books.config, gang.workload, books.running
    may_shrink: list[RunningGang] = []
    for run in running.elastic(workload.queue if books.queues else None):
        if run.workload.priority <= workload.priority:
            may_shrink.append(run)
    idle = running.idle(workload.queue if books.queues else None, now_s)
    others = [run for run in idle if not workload.user or run.workload.user != workload.user]
    may_stop = [run for run in others if run.workload.priority <= workload.priority]
    if config.preempt_lower_priority and running.lowest_priority < workload.priority:
        pool = running.in_queue(workload.queue) if books.queues else running
        may_stop += [run for run in pool if run.workload.priority < workload.priority and run not in may_stop]
    if config.reclaim and books.queues and within_nominal(books, gang, flavor):
        for borrower in books.quota.borrowers(workload.queue, flavor):
            may_stop += running.in_queue(borrower.queue)
    return priced(books, may_shrink, may_stop, flavor, now_s)


def priced(
    books: Books, may_shrink: Iterable[RunningGang], may_stop: Sequence[RunningGang], flavor: str, now_s: float
) -> list[Part]:
    """What may be taken of running gangs, the cheapest first: what is idle; pods above the least size; then gangs:
    opportunistic, low priority, least lost work for the GPU freed."""
    books.cluster.looks += 0.05 * len(may_stop)
    shrinkable = {
        run.workload.name: run
        for run in (*may_shrink, *(run for run in may_stop if run.workload.elastic))
        if run.flavor == flavor and not run.missing and run.resized_s < now_s and run.leaving_s is None
    }
    found: list[Part] = []
    excess: dict[str, list[int]] = {}
    for name, run in shrinkable.items():
        columns = excess_columns(run, books.cluster.kind_of(run.workload).sizes[0])
        if columns:
            excess[name] = columns
            found.append(Part(books, run, columns, whole=False))
    for run in may_stop:
        if run.flavor == flavor and may_be_stopped(books, run, now_s):
            gone = set(excess.get(run.workload.name, ()))
            rest = [column for column in range(run.rows.shape[1]) if column not in gone]
            found.append(Part(books, run, rest, whole=True))

    def price(part: Part) -> tuple[bool, bool, bool, int, float, float, str]:
        run = part.run
        per_gpu_s = run.lost_gpu_s(now_s) / max(run.kind.milli, 1)
        opportunistic = run.workload.quality in OPPORTUNISTIC
        idle = books.running.is_idle(run, now_s)
        return (
            not idle,
            part.whole,
            not opportunistic,
            run.workload.priority,
            per_gpu_s,
            -run.started_s,
            run.workload.name,
        )

    return sorted(found, key=price)


def within_nominal(books: Books, gang: Gang, flavor: str) -> bool:
    """Whether the gang asks for no more than what is its queue's own, or its department's."""
    return gang.kind.least.milli <= books.quota.own_left(gang.workload.queue, flavor)


def may_be_stopped(books: Books, run: RunningGang, now_s: float) -> bool:
    """Whether its owner allows that it is stopped, and it has run for its least time."""
    queue = books.queues.get(run.workload.queue)
    protected_s = max(books.config.min_runtime_s, queue.min_runtime_s if queue else 0.0)
    # what started in this very cycle stays: it was first in order
    if not run.workload.preemptible or run.started_s >= now_s or run.leaving_s is not None:
        return False
    return now_s - run.started_s >= protected_s or books.running.is_idle(run, now_s)


def _choose(books: Books, gang: Gang, flavor: str, candidates: list[Part]) -> list[Part] | None:
    cluster, quota = books.cluster, books.quota
    kind = gang.kind.least
    stopped: dict[Part, None] = {}
    again: list[Part] = []

    def stop(part: Part) -> None:
        cluster.give_back(part.rows)
        quota.refund(part.run.workload.queue, flavor, part.milli)
        stopped[part] = None

    def go_on(part: Part) -> None:
        cluster.take(part.rows)
        quota.charge(part.run.workload.queue, flavor, part.milli)
        del stopped[part]

    def stop_only(count: int) -> None:
        """Stop the first ``count`` of all that was stopped so far."""
        while len(stopped) > count:
            again.append(next(reversed(stopped)))
            go_on(again[-1])
        while len(stopped) < count:
            stop(again.pop())

    def starts() -> bool:
        if books.queues and quota.fits(gang.workload.queue, flavor, kind.milli) is not None:
            return False
        return cluster.fits(kind, flavor)

    freed = tried = 0
    due = kind.milli - int(cluster.state.nodes.gpu_free.sum())
    if sum(part.milli for part in candidates) < due:
        return None
    try:
        # ideally it is tried after each stop; more room never makes it fail, so not before enough is free in all, then
        # after ever longer steps, and between the last two by halving
        for part in candidates:
            other = part.run.workload.queue != gang.workload.queue
            if other and books.queues and not quota.owes(part.run.workload.queue, gang.workload.queue, flavor):
                continue  # the others of its queue have given back what it had borrowed
            stop(part)
            freed += part.milli or 1
            if freed >= due:
                if starts():
                    break
                tried, due = len(stopped), freed + freed // 8
        else:
            if len(stopped) == tried or not starts():
                return None
        enough = len(stopped)
        while enough - tried > 1:
            stop_only((enough + tried) // 2)
            enough, tried = (len(stopped), tried) if starts() else (enough, len(stopped))
        stop_only(enough)
        needed: list[Part] = []
        whole: set[str] = set()
        for part in reversed(list(stopped)):
            name = part.run.workload.name
            if name in whole:  # the rest of it is stopped, so these are too
                continue
            go_on(part)
            if starts():
                continue
            stop(part)
            if part.whole:
                whole.add(name)
                needed.append(part)
            else:
                needed.append(_fewer(books, part, stopped, stop, go_on, starts))
        return needed[::-1]
    finally:
        for part in list(stopped):
            go_on(part)


def _fewer(
    books: Books, part: Part, stopped: dict[Part, None], stop: Callable[[Part], None],
    go_on: Callable[[Part], None], starts: Callable[[], bool],
) -> Part:  # fmt: skip
    """Of the pods of an elastic gang that were taken, only those that are needed: the others are put back."""
    run = part.run
    if run.kind.groups.near > 1 or (run.kind.topology is not None and run.kind.topology.segment):
        return part  # it runs with whole replicas or segments only
    pods = [Part(books, run, [column], whole=False) for column in part.columns]
    del stopped[part]
    stopped.update(dict.fromkeys(pods))
    needed: list[int] = []
    for pod in pods:
        go_on(pod)
        if not starts():
            stop(pod)
            needed += pod.columns
    return Part(books, run, needed, whole=False)
