"""How a waiting gang could start sooner: fixes, ranked by what each costs others.

A fix is proposed only if the gang then starts: each is tried with the engine's own cycle, on a twin of the view's
scheduler (`muster.answers.trials`), and what it costs is what that cycle did to others. Ideally every set of changes is
tried; here the kinds of `muster.answers.remedies` are tried one by one, the cheapest first, each till one helps, and
no more than a stated number of trials.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.changes import Change, Stop
from muster.answers.remedies import nodes, quota, request, room
from muster.answers.remedies.ask import Ask, Candidate, Remedy
from muster.answers.told import may_be_released
from muster.answers.trials import Outcome, Trials
from muster.answers.view import View
from muster.answers.words import listed
from muster.errors import InputError
from muster.model.plan import Place
from muster.model.reasons import Reason
from muster.planning.placed import Placements

MOST_TRIALS = 40
MOST_FIXES = 10
MOST_IN_VAIN = 4
"""Candidates of one kind that are tried before it is given up."""


KINDS = (
    "queue", "hold", "selector", "topology", "limit", "flavor", "taint", "host", "shape", "smaller", "borrow", "quota",
    "nodes", "reservation", "moves", "priority", "preempt", "add",
)  # fmt: skip
"""What a fix changes: how the gang was submitted, what it asks for, its queue's quota, nodes, or other work."""


class Fix(Struct, frozen=True):
    """A way to start sooner.

    Attributes:
        kind: ``wait``, or what is changed: one of `KINDS`.
        title: in plain words.
        changes: what to do, as `muster whatif` takes it; empty: wait.
        cost_gpu_s: work that others lose, with their restarts, in GPU-seconds.
        delayed_gpu_s: GPU-seconds that others get later: who waits and was told a start, and who is stopped for it.
        starts_in_s: when the gang then starts, from now; infinite where that is not known.
        slowdown: how many times as long its own work then takes; None where that is not known, or as long.
        displaced: whose work is stopped, moved or made smaller.
        delayed: whose start is delayed.
    """

    kind: str
    title: str
    changes: tuple[Change, ...] = ()
    cost_gpu_s: float = 0.0
    delayed_gpu_s: float = 0.0
    starts_in_s: float = 0.0
    slowdown: float | None = None
    displaced: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()

    @property
    def displaced_gpu_s(self) -> float:
        """What it costs others: lost and delayed GPU time."""
        return self.cost_gpu_s + self.delayed_gpu_s


class Found(Struct, frozen=True):
    """Fixes, the least displacement first; ``untried`` are kinds for which the trials did not suffice."""

    fixes: tuple[Fix, ...]
    untried: tuple[str, ...] = ()


REQUESTS: tuple[tuple[str, Remedy], ...] = (
    ("topology", request.segments),
    ("topology", request.wider),
    ("topology", request.closer),
    ("flavor", request.other_gpus),
    ("selector", request.any_label),
    ("taint", request.tolerated),
    ("host", request.less_host),
    ("shape", request.reshaped),
    ("smaller", request.smaller),
)
"""What the gang may ask for instead."""

REMEDIES: tuple[tuple[str, Remedy], ...] = (
    *REQUESTS,
    ("limit", request.shorter),
    ("limit", quota.user_limit),
    ("borrow", quota.borrow),
    ("quota", quota.nominal),
    ("nodes", nodes.uncordon),
    ("nodes", nodes.repaired),
    ("nodes", nodes.spares),
    ("nodes", nodes.untaint),
    ("nodes", nodes.mixed),
    ("reservation", nodes.reservations),
    ("moves", room.moves),
    ("priority", request.higher),
    ("preempt", room.own_jobs),
    ("preempt", room.stops),
    ("add", nodes.new_nodes),
)
"""What is tried, in this order: first what changes the gang alone, then what costs others nothing, then the rest."""


def fixes(view: View, name: str, *, limit: int = MOST_FIXES, start_s: float | None = None) -> tuple[Fix, ...]:
    """How a waiting gang could start sooner, the least displacement first; empty if it does not wait.

    Work that runs, and that is stopped in this instant's cycle, does not wait yet.

    Args:
        view: what there is.
        name: of the gang, as `View.find` takes it.
        limit: how many at most.
        start_s: when it is expected to start if nothing is done; None: its reserved start, if it has one.

    Raises:
        InputError: there is no such job.
    """
    return find_fixes(view, name, limit=limit, start_s=start_s).fixes


def find_fixes(
    view: View, name: str, *, limit: int = MOST_FIXES, start_s: float | None = None, most_trials: int = MOST_TRIALS
) -> Found:
    """As `fixes`, and what there were not trials enough for."""
    asked = view.find(name)
    name = asked.workload.name
    if asked.running is not None or name not in view.scheduler.pending.gangs:
        return Found(())
    slot = view.scheduler.slots.get(name)
    if start_s is None:
        start_s = slot.start_s if slot and slot.start_s > view.now_s else math.inf
    search = _Search(view, name, most_trials)
    held = math.isinf(asked.workload.not_before_s) and not may_be_released(asked.workload)
    with _without_collection():
        if not held:  # else nothing that Muster can change lets it start
            search.run()
    wait = Fix("wait", "do nothing, and wait", starts_in_s=max(0.0, start_s - view.now_s))
    # sorting keeps the order in which they were tried; new nodes displace nobody, and are the dearest all the same
    ranked = sorted(
        _distinct([wait, *search.found]),
        key=lambda fix: (fix.kind == "add", fix.displaced_gpu_s, fix.kind == "smaller", fix.starts_in_s),
    )
    return Found(tuple(ranked[:limit]), tuple(dict.fromkeys(search.untried)))


@contextmanager
def _without_collection() -> Generator[None]:
    """Trials make and drop many small objects, none in a cycle: to look through a large view for such is in vain."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _distinct(found: list[Fix]) -> list[Fix]:
    """Without those that do the same to others as one with fewer changes: a higher priority, and what it would stop."""
    kept: dict[object, Fix] = {}
    for fix in found:
        same = (fix.displaced, fix.cost_gpu_s, fix.kind == "moves") if fix.displaced else fix.changes
        known = kept.get(same)
        if known is None or len(fix.changes) < len(known.changes):
            kept[same] = fix
    return list(kept.values())


class _Search:
    """One search for fixes."""

    def __init__(self, view: View, name: str, most_trials: int) -> None:
        self.view = view
        self.name = name
        self.trials = Trials(view, name, most_trials)
        self.found: list[Fix] = []
        self.untried: list[str] = []
        self._placements: Placements | None = None

    def run(self) -> None:
        """Find what there is: first with what must be changed in any case, which may be enough."""
        base, titles = self._needed()
        self._with(base, titles)
        if not self._starts():
            # each may lack something else as well: what it asks for is made possible, then its quota is raised
            for more in (self._possible(base), self._short_of_quota(base)):
                if more is not None and not self._starts():
                    self._with((*base, *more.changes), [*titles, str(more.title)])

    def _starts(self) -> bool:
        """Whether anything was found with which the gang starts, on the nodes that there are."""
        return any(fix.starts_in_s <= self.view.config.stop_s and fix.kind != "add" for fix in self.found)

    def _with(self, base: tuple[Change, ...], titles: list[str]) -> None:
        """Try all remedies on top of some changes."""
        prefix = "".join(f"{title}, and " for title in titles)
        with self.trials.based(base) as scheduler:
            ask = Ask(self.view, scheduler, self.name)
            if ask.gated in (None, Reason.OVER_LIMIT):
                for kind, remedy in REMEDIES:
                    self._try(kind, remedy, ask, prefix)

    def _possible(self, base: tuple[Change, ...]) -> Candidate | None:
        """The least change of a request that could never be met, with which it could."""
        with self.trials.based(base) as scheduler:
            ask = Ask(self.view, scheduler, self.name, ever=True)
            if not ask.reasons or any(reason is not Reason.NEVER_FITS for reason in ask.reasons.values()):
                return None
            return next((each for _, remedy in REQUESTS for each in remedy(ask)), None)

    def _short_of_quota(self, base: tuple[Change, ...]) -> Candidate | None:
        """More quota, where that alone does not help: it may be what other changes lack."""
        with self.trials.based(base) as scheduler:
            ask = Ask(self.view, scheduler, self.name)
            remedy = quota.user_limit if ask.gated is Reason.OVER_LIMIT else quota.nominal
            return next(remedy(ask), None)

    def _needed(self) -> tuple[tuple[Change, ...], list[str]]:
        """What must be changed before anything else counts, and its titles."""
        base: tuple[Change, ...] = ()
        titles: list[str] = []
        for _ in range(3):
            with self.trials.based(base) as scheduler:
                ask = Ask(self.view, scheduler, self.name)
                candidates = list(self._repairs(ask))
            better = [each for each in candidates if self._is_enough(each, base, titles)]
            if better or not candidates:
                break
            base, titles = (*base, *candidates[0].changes), [*titles, str(candidates[0].title)]
        return base, titles

    def _is_enough(self, candidate: Candidate, base: tuple[Change, ...], titles: list[str]) -> bool:
        """Whether the gang starts, or is told a start, with what sets right how it is submitted; then that is a fix."""
        changes = (*base, *candidate.changes)
        outcome = self._outcome(changes)
        if outcome is None:
            return False
        candidate = replace(candidate, title=", and ".join([*titles, str(candidate.title)]), changes=changes)
        if outcome.place is not None:
            self._add(candidate, outcome, outcome.place)
        elif self.view.now_s < outcome.reserved_s < math.inf:
            starts_in_s = outcome.reserved_s - self.view.now_s
            self.found.append(Fix(candidate.kind, str(candidate.title), changes, starts_in_s=starts_in_s))
        return outcome.place is not None

    def _repairs(self, ask: Ask) -> Iterator[Candidate]:
        """What sets right how the gang was submitted."""
        workload = ask.workload
        if ask.gated is Reason.UNKNOWN_QUEUE:
            for name in quota.near_queues(ask):
                title = f"put it into the queue {name} (there is no queue {workload.queue!r})"
                yield Candidate("queue", title, (ask.job(queue=name),), replace(workload, queue=name))
        elif ask.gated is Reason.HELD and may_be_released(workload):
            yield Candidate("hold", "release it: it is held", (ask.job(released=True),), workload)
        elif ask.gated is Reason.DEPENDENCY:
            missing = [name for name in workload.depends_on if name not in ask.scheduler.finished]
            title = f"do not let it wait for {listed(missing)}"
            yield Candidate("hold", title, (ask.job(released=True),), workload)
        yield from request.wrong_labels(ask)

    def _outcome(self, changes: tuple[Change, ...]) -> Outcome | None:
        try:
            return self.trials.outcome(changes)
        except InputError:
            return None

    def _try(self, kind: str, remedy: Remedy, ask: Ask, prefix: str) -> None:
        """Try what a remedy proposes till something helps."""
        self.trials.refused = False
        for number, candidate in enumerate(remedy(ask)):
            if number >= MOST_IN_VAIN:
                break
            first = self._first(ask, candidate) if candidate.room else None
            # unless it is first in line, others take what is freed: where trials are dear, that is not tried
            passed = first is not None and self.trials.large and self.name not in self.view.scheduler.slots
            for each in (first,) if passed else (candidate, first):
                outcome = None if each is None else self._outcome(each.changes)
                if each is not None and outcome is not None and outcome.place is not None:
                    told = each.title if isinstance(each.title, str) else each.title(outcome.place)
                    whole = replace(each, title=prefix + told, changes=(*self.trials.base, *each.changes))
                    self._add(whole, outcome, outcome.place)
                    return
            if self.trials.refused:
                self.untried.append(kind)
                return

    def _first(self, ask: Ask, candidate: Candidate) -> Candidate | None:
        """The same, and the gang comes before all who wait, also those that are stopped for it."""
        stopped = [self.view.find(each.job).workload.priority for each in candidate.changes if isinstance(each, Stop)]
        target = int(max([ask.scheduler.pending.highest_priority, *stopped])) + 1
        queue = ask.scheduler.queues.get(ask.workload.queue)
        if queue is not None and queue.max_priority is not None and queue.max_priority < target:
            return None
        title = candidate.title
        if isinstance(title, str):
            title = f"{title}, and raise its priority to {target}"
        changes = (*candidate.changes, ask.job(priority=target))
        return replace(candidate, title=title, changes=changes, workload=replace(candidate.workload, priority=target))

    def _add(self, candidate: Candidate, outcome: Outcome, place: Place) -> None:
        fix = Fix(
            candidate.kind,
            str(candidate.title),
            candidate.changes,
            outcome.lost_gpu_s,
            outcome.delayed_gpu_s,
            self.view.config.stop_s if outcome.displaced else 0.0,
            self._slowdown(candidate, place),
            outcome.displaced,
            outcome.delayed,
        )
        self.found.append(fix)

    def _slowdown(self, candidate: Candidate, place: Place) -> float | None:
        """What the gang's own work loses by a change of its places, shape or GPUs."""
        if candidate.kind not in ("topology", "shape", "smaller", "flavor"):
            return None
        asked, factor = candidate.workload.parallelism, None
        if asked is not None and asked.parameters:
            if self._placements is None:
                self._placements = Placements(self.view.snapshot.fleet)
            try:
                told = self._placements.slowdown(candidate.workload, place.pods)
            except InputError:
                told = None
            factor = None if told is None else told.factor
        if candidate.slower == 1.0:
            return factor
        return candidate.slower * (factor or 1.0)
