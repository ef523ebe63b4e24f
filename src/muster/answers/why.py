"""Why a job waits: one dominant reason, the funnel of nodes, the quota, and everything else that is in its way.

The reason is the engine's own (`Scheduler.refused_on`, which `decide` tells), made sharper by `engine.explain`: which
of the gang's demands makes the difference, and whether room is short or only in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.forecast import Budget, Forecast, forecast
from muster.answers.sentences import Facts, also, headline
from muster.answers.view import Found, View
from muster.engine.cluster import GangKind
from muster.engine.explain import Funnel, cause, funnel
from muster.engine.pending import Gang
from muster.engine.quota import Holdings
from muster.engine.scheduler import nearest
from muster.model.plan import Place
from muster.model.reasons import NO_ROOM, Reason, Tier
from muster.model.workload import Workload

if TYPE_CHECKING:
    from muster.answers.fixes import Fix


class Blocker(Struct, frozen=True):
    """Something that is in the way of a job: its reason and a sentence with the numbers; ``flavor`` where it is of one.

    ``first`` marks the dominant one.
    """

    reason: Reason
    text: str
    flavor: str = ""
    first: bool = False


class Why(Struct, frozen=True):
    """Why a job is where it is.

    Attributes:
        workload: the job as it was submitted.
        state: ``waits``, ``starts`` (in this instant's cycle) or ``runs``.
        blockers: what is in its way, the dominant one first; empty unless it waits.
        flavor: the flavor that came nearest, of which the funnel is.
        funnels: one a pod set, that with the least room first.
        quota: the arithmetic of its queue, one a flavor that it may use.
        ahead: gangs that are looked at before it.
        place: where it starts or runs, in the order of its ranks; None while it waits.
        forecast: when it starts; None unless that was asked for and it waits.
        fixes: how it could start sooner, what costs others least first; empty unless that was asked for.
        untried: kinds of fixes for which the trials did not suffice.
    """

    workload: Workload
    state: str
    blockers: tuple[Blocker, ...] = ()
    flavor: str = ""
    funnels: tuple[Funnel, ...] = ()
    quota: tuple[Holdings, ...] = ()
    ahead: int = 0
    place: Place | None = None
    forecast: Forecast | None = None
    fixes: tuple[Fix, ...] = ()
    untried: tuple[str, ...] = ()

    @property
    def reason(self) -> Reason | None:
        """The dominant reason; None unless it waits."""
        return self.blockers[0].reason if self.blockers else None


def why(view: View, name: str, *, budget: Budget | None = None) -> Why:
    """Why a job waits, or where it is; with a budget also when it starts, and what would help.

    Raises `InputError` for a job that is not there.
    """
    found = view.find(name)
    if found.workload.name in view.scheduler.running:
        return _placed(view, found)
    gang = view.scheduler.pending.gangs.get(found.workload.name)
    if gang is None:  # it missed its start deadline in this very cycle
        text = f"It was given up: it should have started by {found.workload.start_deadline_s:g} s."
        return Why(found.workload, "given up", (Blocker(Reason.HELD, text, first=True),))
    told = blocked(view, gang)
    if budget is None:
        return told
    from muster.answers.fixes import find_fixes

    start = forecast(view, gang.workload.name, budget=budget)
    found = find_fixes(view, gang.workload.name, start_s=start.expected_s)
    return replace(told, forecast=start, fixes=found.fixes, untried=found.untried)


def _placed(view: View, found: Found) -> Why:
    name = found.workload.name
    quota = _quota(view, view.scheduler.running[name].kind, found.workload)
    if found.running is None:
        return Why(found.workload, "starts", place=view.starts.get(name), quota=quota)
    run = view.scheduler.running[name]
    place = Place(name, view.scheduler.cluster.places(run.rows), run.flavor, counts=run.counts)
    return Why(found.workload, "runs", flavor=run.flavor, place=place, quota=quota)


def blocked(view: View, gang: Gang) -> Why:
    """Why a gang waits: all that is in its way, the dominant reason first; not when it starts."""
    scheduler, workload, kind = view.scheduler, gang.workload, gang.kind.least
    gated = scheduler.gated(workload, view.now_s)
    quota = _quota(view, kind, workload)
    if gated is Reason.UNKNOWN_QUEUE:
        facts = Facts(view, gang, "", None, (), quota)
        return Why(workload, "waits", (Blocker(gated, headline(gated, facts), first=True),))
    told = {flavor: scheduler.refused_on(gang, flavor) for flavor in scheduler.flavors_of(gang.kind)}
    dominant = nearest(list(told.values()))
    flavor = next((flavor for flavor, reason in told.items() if reason is dominant), "")
    room = cause(scheduler.cluster, kind, flavor)
    facts = Facts(view, gang, flavor, room, _funnels(view, gang, kind, flavor), quota)
    if gated is not None and dominant.tier > Tier.OVER_LIMIT:
        dominant = gated
    sharp = room.reason if room and dominant in (*NO_ROOM, Reason.NEVER_FITS) else dominant
    blockers = [Blocker(sharp, headline(sharp, facts), flavor, first=True)]
    blockers += _others(facts, sharp, gated, told)
    return Why(
        workload, "waits", tuple(blockers), flavor, facts.funnels, quota, scheduler.ahead_of(gang)
    )  # fmt: skip


def _others(facts: Facts, dominant: Reason, gated: Reason | None, told: dict[str, Reason]) -> list[Blocker]:
    """What would still be in its way if the dominant reason were gone, nearest to it first."""
    view, gang = facts.view, facts.gang
    found: list[Blocker] = []

    def add(reason: Reason | None, flavor: str = "") -> None:
        if reason is not None and reason is not dominant and all(each.reason is not reason for each in found):
            found.append(Blocker(reason, headline(reason, facts), flavor))

    add(gated)
    if view.scheduler.queues and facts.flavor:
        workload = gang.workload
        add(view.scheduler.quota.fits(workload.queue, facts.flavor, gang.kind.least.milli), facts.flavor)
    if facts.room is not None:
        add(facts.room.reason, facts.flavor)
    for flavor, reason in told.items():
        if flavor != facts.flavor and reason is not dominant:
            room = cause(view.scheduler.cluster, gang.kind.least, flavor) if reason.tier >= Tier.IMPOSSIBLE else None
            other = Facts(view, gang, flavor, room, (), facts.quota)
            sharp = room.reason if room and reason in (*NO_ROOM, Reason.NEVER_FITS) else reason
            found.append(Blocker(sharp, headline(sharp, other), flavor))
    found += [
        Blocker(reason, text, facts.flavor) for reason, text in also(facts, {dominant, *(x.reason for x in found)})
    ]
    return found


def _funnels(view: View, gang: Gang, kind: GangKind, flavor: str) -> tuple[Funnel, ...]:
    """One a pod set; first the one of which the fewest pods find room for what it asks."""
    holds = view.scheduler.holds(gang.workload, view.now_s)
    cluster = view.scheduler.cluster
    found = [funnel(cluster, kind, flavor, holds, which) for which in range(len(kind.pod_sets))]
    order = sorted(range(len(found)), key=lambda each: (found[each].pods / kind.pod_sets[each].count, each))
    return tuple(found[each] for each in order)


def _quota(view: View, kind: GangKind, workload: Workload) -> tuple[Holdings, ...]:
    scheduler = view.scheduler
    if workload.queue not in scheduler.queues:
        return ()
    flavors: Sequence[str] = [each for each in scheduler.flavors_of(kind) if each]
    told = [scheduler.quota.who_holds(workload.queue, flavor) for flavor in flavors]
    return tuple(each for each in told if each.potential_milli)
