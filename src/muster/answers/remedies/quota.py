"""Quota for the gang: a higher limit or nominal quota, what others do not lend, or another queue."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from muster.answers.changes import SetLimit, SetQuota
from muster.answers.remedies.ask import Ask, Candidate
from muster.answers.words import gpus, listed
from muster.model.queue import Queue
from muster.model.reasons import Reason


def borrow(ask: Ask) -> Iterator[Candidate]:
    """A borrowing limit that is met first, raised by what the gang lacks."""
    for flavor, short in _short(ask):
        quota = ask.scheduler.quota
        for queue in _path(ask):
            stated = next((each for each in queue.quotas if each.flavor == flavor), None)
            limit = None if stated is None else stated.borrowing_limit_milli
            if limit is None or not queue.parent:
                continue
            change = SetLimit(queue.name, "borrowing", limit + short, flavor)
            lenders = _lenders(ask, flavor)
            who = f", from {listed(lenders)}" if lenders else ""
            title = f"let {queue.name} borrow {gpus(limit + short)} of {flavor} instead of {gpus(limit)}{who}"
            yield Candidate("borrow", title, (change,), ask.workload)
        for name in _keepers(ask, flavor):
            own = quota.nominal(name, flavor) - quota.used(name, flavor)
            title = f"let {name} lend what it does not use of {flavor} ({gpus(own)})"
            yield Candidate("borrow", title, (SetLimit(name, "lending", None, flavor),), ask.workload)


def nominal(ask: Ask) -> Iterator[Candidate]:
    """More nominal quota for its queue: what the gang lacks."""
    for flavor, short in _short(ask):
        title = f"raise the nominal quota of {ask.workload.queue} by {gpus(short)} ({flavor})"
        yield Candidate("quota", title, (SetQuota(ask.workload.queue, flavor, short),), ask.workload)


def user_limit(ask: Ask) -> Iterator[Candidate]:
    """A higher limit of what a user may hold."""
    scheduler, workload = ask.scheduler, ask.workload
    if ask.gated is not Reason.OVER_LIMIT:
        return
    held = scheduler.running.held_by(workload.queue, workload.user)
    limit = scheduler.queues[workload.queue].max_running_milli or 0
    needed = held + ask.kind.milli
    title = f"let each user of {workload.queue} hold {gpus(needed)} instead of {gpus(limit)}"
    yield Candidate("limit", title, (SetLimit(workload.queue, "user", needed),), workload)


def near_queues(ask: Ask) -> list[str]:
    """Queues that may be meant by one that there is not: near names, else those that have quota left for it."""
    asked, known = ask.workload.queue, ask.scheduler.queues
    parents = {queue.parent for queue in known.values()}
    leaves = [name for name in known if name not in parents]
    found = get_close_matches(asked, leaves, n=2, cutoff=0.6)
    found = found or [name for name in leaves if name.lower() == asked.lower() or asked.lower() in name.lower()]
    if found or not leaves:
        return found[:2]
    room = {name: max(ask.scheduler.quota.available(name, flavor) for flavor in ask.flavors) for name in leaves}
    return [max(leaves, key=lambda name: room[name])]


def _short(ask: Ask) -> Iterator[tuple[str, int]]:
    """Flavors of which the gang lacks quota, the nearest first, and how much."""
    lacking = (Reason.QUOTA, Reason.OVER_QUOTA, Reason.NO_FLAVOR)
    for flavor in sorted(ask.reasons, key=lambda flavor: flavor != ask.flavor):
        if ask.reasons[flavor] in lacking:
            available = ask.scheduler.quota.available(ask.workload.queue, flavor)
            yield flavor, ask.kind.milli - available


def _path(ask: Ask) -> Iterator[Queue]:
    """Its queue and all above it."""
    queues, at = ask.scheduler.queues, ask.workload.queue
    while at:
        yield queues[at]
        at = queues[at].parent


def _lenders(ask: Ask, flavor: str) -> list[str]:
    """Siblings with nominal quota that they do not use, that with most of it first."""
    quota, queues = ask.scheduler.quota, ask.scheduler.queues
    own = queues[ask.workload.queue]
    free = {
        name: quota.nominal(name, flavor) - quota.used(name, flavor)
        for name, queue in queues.items()
        if queue.parent == own.parent and name != own.name
    }
    return sorted((name for name, milli in free.items() if milli > 0), key=lambda name: (-free[name], name))


def _keepers(ask: Ask, flavor: str) -> list[str]:
    """Those of them that do not lend all of it, the two with most."""
    queues = ask.scheduler.queues

    def keeps(name: str) -> bool:
        return any(each.flavor == flavor and each.lending_limit_milli is not None for each in queues[name].quotas)

    return [name for name in _lenders(ask, flavor) if keeps(name)][:2]
