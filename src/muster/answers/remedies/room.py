"""Room for the gang: running work that is moved or stopped, which the rules would not do by themselves."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from muster.answers.changes import Change, Move, Stop
from muster.answers.remedies.ask import Ask, Candidate
from muster.answers.words import listed, plural
from muster.engine.defrag import plan_moves
from muster.engine.preempt import OPPORTUNISTIC, may_be_stopped
from muster.engine.room import RoomMaker
from muster.engine.running import RunningGang
from muster.model.reasons import Reason

MOST_VICTIMS = 512
"""More running work than this is never proposed to be stopped for one gang."""


def moves(ask: Ask) -> Iterator[Candidate]:
    """The cheapest moves that the engine finds, at any price."""
    if not ask.lacks_room():
        return
    found = plan_moves(ask.scheduler, ask.gang, ask.now_s, math.inf)
    if found is None or not found.moved:
        return
    changes = tuple(Move(run.workload.name, ask.cluster.places(rows)) for run, rows in found.moved)
    title = f"move {_jobs(ask, [run for run, _ in found.moved])}"
    yield Candidate("moves", title, changes, ask.workload, room=True)


def stops(ask: Ask) -> Iterator[Candidate]:
    """The cheapest work found whose stop makes room, or frees quota, for the gang: on each flavor that it may use."""
    for flavor in sorted(ask.flavors, key=lambda flavor: flavor != ask.flavor):
        victims = _Victims(ask, flavor).found()
        if victims:
            changes = tuple(Stop(run.workload.name) for run in victims)
            yield Candidate("preempt", f"stop {_jobs(ask, victims)}", changes, ask.workload, room=True)


def own_jobs(ask: Ask) -> Iterator[Candidate]:
    """Work of the same user, where the limit of a user is what the gang waits for."""
    scheduler, workload = ask.scheduler, ask.workload
    if scheduler.may_hold(workload, ask.kind.milli) or scheduler.queues[workload.queue].max_running_milli is None:
        return
    limit = scheduler.queues[workload.queue].max_running_milli or 0
    over = scheduler.running.held_by(workload.queue, workload.user) + ask.kind.milli - limit
    own = [run for run in scheduler.running.in_queue(workload.queue) if run.workload.user == workload.user]
    victims: list[RunningGang] = []
    for run in _by_price(ask, own):
        if over <= 0:
            break
        victims.append(run)
        over -= run.kind.milli
    if over <= 0 and victims:
        changes: tuple[Change, ...] = tuple(Stop(run.workload.name) for run in victims)
        yield Candidate("preempt", f"stop {_jobs(ask, victims)} of the same user", changes, workload, room=True)


def _by_price(ask: Ask, runs: Iterable[RunningGang]) -> list[RunningGang]:
    """What may be stopped, that which loses least for the GPU that it gives back first."""
    may = [run for run in runs if may_be_stopped(ask.scheduler, run, ask.now_s)]
    return sorted(may, key=lambda run: (run.lost_gpu_s(ask.now_s) / max(run.kind.milli, 1), run.workload.name))


def _jobs(ask: Ask, runs: Sequence[RunningGang]) -> str:
    """``3 spot jobs (a, b and c; last saved 4 min ago)``."""
    names = [run.workload.name for run in runs]
    spot = "spot " if all(run.workload.quality in OPPORTUNISTIC for run in runs) else ""
    ages = [ask.now_s - run.checkpointed_s for run in runs if run.checkpointed_s is not None]
    saved = f"; last saved {_minutes(max(ages))} ago" if len(ages) == len(runs) else ""
    return f"{plural(len(runs), f'{spot}job')} ({listed(names)}{saved})"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Victims:
    """Whom to stop on one flavor, tried in memory and undone."""

    def __init__(self, ask: Ask, flavor: str) -> None:
        self.ask = ask
        self.flavor = flavor
        self.gone: dict[str, RunningGang] = {}

    def found(self) -> list[RunningGang]:
        """The work to stop, in the order of its price; empty if there is none."""
        ask = self.ask
        reason = ask.reasons.get(self.flavor)
        if reason is None or reason in _HOPELESS:
            return []
        with ExitStack() as stack:
            for hold in ask.scheduler.holds(ask.workload, ask.now_s):
                stack.enter_context(ask.cluster.holding(hold))
            with self._undone():
                if not self._free_quota() or not self._free_room():
                    return []
                self._leave_unneeded()
                return _by_price(ask, self.gone.values())

    @contextmanager
    def _undone(self) -> Generator[None]:
        try:
            yield
        finally:
            for run in self.gone.values():
                self._put_back(run)

    def _take_out(self, run: RunningGang) -> None:
        self.ask.cluster.give_back(run.rows)
        self.ask.scheduler.quota.refund(run.workload.queue, run.flavor, run.kind.milli)

    def _put_back(self, run: RunningGang) -> None:
        self.ask.cluster.take(run.rows)
        self.ask.scheduler.quota.charge(run.workload.queue, run.flavor, run.kind.milli)

    def _has_quota(self) -> bool:
        scheduler, queue = self.ask.scheduler, self.ask.workload.queue
        return not scheduler.queues or scheduler.quota.fits(queue, self.flavor, self.ask.kind.milli) is None

    def _free_quota(self) -> bool:
        """Stop what holds the quota that the gang lacks, the cheapest first."""
        if self._has_quota():
            return True
        quota, queue = self.ask.scheduler.quota, self.ask.workload.queue
        for run in _by_price(self.ask, (run for run in self.ask.scheduler.running if run.flavor == self.flavor)):
            before = quota.available(queue, self.flavor)
            self._take_out(run)
            if quota.available(queue, self.flavor) <= before:
                self._put_back(run)
                continue
            self.gone[run.workload.name] = run
            if self._has_quota():
                return True
            if len(self.gone) >= MOST_VICTIMS:
                break
        return False

    def _free_room(self) -> bool:
        ask = self.ask
        if ask.cluster.fits(ask.kind, self.flavor):
            return True

        def price(run: RunningGang) -> float | None:
            if run.workload.name in self.gone or run.flavor != self.flavor:
                return None
            return run.lost_gpu_s(ask.now_s) if may_be_stopped(ask.scheduler, run, ask.now_s) else None

        maker = RoomMaker(ask.cluster, ask.scheduler.running, price)
        option = maker.cheapest(ask.kind, self.flavor, math.inf, smaller_only=False)
        if option is None or len(option.runs) + len(self.gone) > MOST_VICTIMS:
            return False
        for run in option.runs:
            self._take_out(run)
            self.gone[run.workload.name] = run
        return ask.cluster.fits(ask.kind, self.flavor)

    def _leave_unneeded(self) -> None:
        """Put back what need not be stopped, the dearest first."""
        for run in reversed(_by_price(self.ask, list(self.gone.values()))):
            self._put_back(run)
            if self._has_quota() and self.ask.cluster.fits(self.ask.kind, self.flavor):
                del self.gone[run.workload.name]
            else:
                self._take_out(run)


_HOPELESS = (Reason.NEVER_FITS, Reason.OVER_QUOTA, Reason.NO_FLAVOR, Reason.UNKNOWN_QUEUE)
"""What no stop of others can change."""
