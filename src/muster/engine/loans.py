"""Floor and borrow: what a serving queue does not use now is lent, and is back before it is needed.

A queue says how fast its need may grow, and within what time a loan can be back and at work. What it may need within
that time is not lent (`Queue.headroom_milli`); when its use grows into that, loans are called back at once, so that
the next growth finds room again. A loan is safe if notice, saving, leaving and a cold start together take no longer
than the time for demand to grow through the headroom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.engine.elastic import shrink
from muster.engine.preempt import Part, priced
from muster.model.plan import Decision, Evict
from muster.model.queue import Queue

if TYPE_CHECKING:
    from muster.engine.books import Books

WHY = "headroom"


def restore_headroom(books: Books, now_s: float) -> list[Decision]:
    """Call back loans where a queue has not its headroom: the cheapest first, and no more than is needed."""
    decisions: list[Decision] = []
    for queue in books.queues.values():
        for flavor in books.cluster.flavors if queue.headroom_milli else ():
            if books.quota.short_of_headroom(queue.name, flavor):
                for part in _called_back(books, queue, flavor, now_s):
                    decisions.append(_take(books, part, now_s, queue.name))
    return decisions


def _called_back(books: Books, queue: Queue, flavor: str, now_s: float) -> Sequence[Part]:
    quota, running = books.quota, books.running
    borrowers = [run for each in quota.borrowers(queue.name, flavor) for run in running.in_queue(each.queue)]
    stopped: list[Part] = []
    try:
        for part in priced(books, (), borrowers, flavor, now_s):
            if not quota.short_of_headroom(queue.name, flavor):
                break
            if quota.owes(part.run.workload.queue, queue.name, flavor):
                quota.refund(part.run.workload.queue, flavor, part.milli)
                stopped.append(part)
        needed: list[Part] = []
        whole: set[str] = set()
        for part in reversed(stopped[:]):
            name = part.run.workload.name
            quota.charge(part.run.workload.queue, flavor, part.milli)
            if name in whole or quota.short_of_headroom(queue.name, flavor):
                quota.refund(part.run.workload.queue, flavor, part.milli)
                if name not in whole:
                    needed.append(part)
                whole.update([name] if part.whole else [])
            else:
                stopped.remove(part)
        return needed[::-1]
    finally:
        for part in stopped:
            quota.charge(part.run.workload.queue, flavor, part.milli)


def _take(books: Books, part: Part, now_s: float, queue: str) -> Decision:
    if not part.whole:
        return shrink(books, part.run, part.columns, now_s, WHY, queue)
    lost_gpu_s = part.run.lost_gpu_s(now_s)
    books.send_back(part.run.workload.name, now_s)
    return Evict(part.run.workload.name, queue, WHY, lost_gpu_s)


def loan_warnings(queues: Sequence[Queue], stop_s: float, start_s: float) -> tuple[str, ...]:
    """Where what is said of loans cannot be: ``stop_s`` to save and leave, ``start_s`` until a replica serves."""
    warnings: list[str] = []
    for queue in queues:
        if not queue.headroom_milli:
            continue
        takes_s = stop_s + start_s
        if takes_s > queue.reclaim_s:
            warnings.append(
                f"{queue.name} counts on loans back within {queue.reclaim_s:g} s, but stopping takes {stop_s:g} s and "
                f"a start {start_s:g} s: set reclaim_s to {takes_s:g} or more"
            )
        headroom = queue.headroom_milli / 1000
        warnings += [
            f"{queue.name} never lends of {quota.flavor}: its headroom of {headroom:g} GPUs is its whole quota"
            for quota in queue.quotas
            if queue.headroom_milli >= quota.nominal_milli
        ]
    return tuple(warnings)
