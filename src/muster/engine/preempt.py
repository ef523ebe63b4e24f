"""Whom to stop for a gang that is entitled to start: as few and as cheap as possible, or nobody.

1. *Reclaim*: a queue asks for no more than its nominal quota, and others have borrowed it.
2. *Priority*: work of lower priority in the same queue (with no queues: anywhere).

Candidates are released in memory, cheapest first, until the gang fits; then those that turn out not to be needed are
put back, dearest first. Nobody is named unless the gang then really has its places. No loop can come of it: work that
was stopped for reclaim ran on borrowed quota and cannot reclaim it, and priority is strict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.engine.pending import Gang
from muster.engine.running import RunningGang

if TYPE_CHECKING:
    from muster.engine.scheduler import Scheduler

OPPORTUNISTIC = ("spot", "BE", "best-effort", "opportunistic")
"""Qualities of service whose work goes first."""


def find_victims(scheduler: Scheduler, gang: Gang, now_s: float) -> tuple[list[RunningGang], str] | None:
    """The gangs to stop, in the order of their stopping, and the flavor on which ``gang`` then starts; None: nobody."""
    for flavor in scheduler.flavors_of(gang.kind):
        candidates = _candidates(scheduler, gang, flavor, now_s)
        if candidates:
            victims = _choose(scheduler, gang, flavor, candidates)
            if victims is not None:
                return victims, flavor
    return None


def _candidates(scheduler: Scheduler, gang: Gang, flavor: str, now_s: float) -> list[RunningGang]:
    """Gangs that may be stopped, the cheapest first: opportunistic, low priority, least lost work for the GPU freed."""
    config, workload, running = scheduler.config, gang.workload, scheduler.running
    found: list[RunningGang] = []
    if config.preempt_lower_priority and running.lowest_priority < workload.priority:
        pool = running.in_queue(workload.queue) if scheduler.queues else running
        found += [run for run in pool if run.workload.priority < workload.priority]
    if config.reclaim and scheduler.queues and within_nominal(scheduler, gang, flavor):
        for borrower in scheduler.quota.borrowers(workload.queue, flavor):
            found += running.in_queue(borrower.queue)
    found = [run for run in found if run.flavor == flavor and _may_be_stopped(scheduler, run, now_s)]

    def price(run: RunningGang) -> tuple[bool, int, float, float, str]:
        per_gpu_s = run.lost_gpu_s(now_s) / max(run.kind.milli, 1)
        opportunistic = run.workload.quality in OPPORTUNISTIC
        return not opportunistic, run.workload.priority, per_gpu_s, -run.started_s, run.workload.name

    return sorted(found, key=price)


def within_nominal(scheduler: Scheduler, gang: Gang, flavor: str) -> bool:
    """Whether the gang asks for no more than what is its queue's own, or its department's."""
    return gang.kind.milli <= scheduler.quota.own_left(gang.workload.queue, flavor)


def _may_be_stopped(scheduler: Scheduler, run: RunningGang, now_s: float) -> bool:
    queue = scheduler.queues.get(run.workload.queue)
    protected_s = max(scheduler.config.min_runtime_s, queue.min_runtime_s if queue else 0.0)
    # what started in this very cycle stays: it was first in order
    return run.workload.preemptible and run.started_s < now_s and now_s - run.started_s >= protected_s


def _choose(
    scheduler: Scheduler,
    gang: Gang,
    flavor: str,
    candidates: list[RunningGang],
) -> list[RunningGang] | None:
    cluster, quota = scheduler.cluster, scheduler.quota
    stopped: list[RunningGang] = []

    def stop(run: RunningGang) -> None:
        cluster.give_back(run.rows)
        quota.refund(run.workload.queue, run.flavor, run.kind.milli)

    def go_on(run: RunningGang) -> None:
        cluster.take(run.rows)
        quota.charge(run.workload.queue, run.flavor, run.kind.milli)

    def starts() -> bool:
        if scheduler.queues and quota.fits(gang.workload.queue, flavor, gang.kind.milli) is not None:
            return False
        return cluster.fits(gang.kind, flavor)

    try:
        freed = 0
        patience = 0
        enough = False
        for run in candidates:
            other = run.workload.queue != gang.workload.queue
            if other and scheduler.queues and not quota.owes(run.workload.queue, gang.workload.queue, flavor):
                continue  # the others of its queue have given back what it had borrowed
            stop(run)
            stopped.append(run)
            freed += run.kind.milli
            # trying costs more than stopping: not before enough is free in all, then after ever longer steps
            if freed >= patience and starts():
                enough = True
                break
            patience = max(patience, freed + freed // 8)
        if not enough and not (stopped and starts()):
            return None
        needed: list[RunningGang] = []
        for run in reversed(stopped[:]):
            go_on(run)
            stopped.remove(run)
            if not starts():
                stop(run)
                stopped.append(run)
                needed.append(run)
        return needed[::-1]
    finally:
        for run in stopped:
            go_on(run)
