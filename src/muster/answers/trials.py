"""What becomes of a waiting gang if something is changed: the engine's own cycle, on a twin of the view's scheduler."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.changes import (
    Change,
    EndReservation,
    Move,
    SetJob,
    SetLimit,
    SetNodes,
    SetQuota,
    Stop,
    apply_changes,
)
from muster.answers.view import View
from muster.engine.config import config_of
from muster.engine.pending import Gang
from muster.engine.scheduler import Scheduler
from muster.model.fleet import WHOLE_GPU_MILLI, Fleet
from muster.model.plan import Evict, Migrate, Place, Plan, Resize
from muster.model.reasons import Reason
from muster.model.snapshot import Running, Snapshot

LARGE = 20_000
"""Nodes, running and waiting work above which no scheduler is made anew for a trial: that takes seconds."""

MOST_LOOKS = 8
"""Of so many kinds of displaced work a new start is looked for; the others are taken to start with the last of them."""


class Outcome(Struct, frozen=True):
    """What a cycle makes of a gang after some changes.

    Attributes:
        place: where it starts; None: it waits.
        lost_gpu_s: work that others lose, with their restarts, in GPU-seconds.
        delayed_gpu_s: GPU-seconds that others get later: from when they would have started, or were stopped.
        displaced: whose work is stopped, moved or made smaller, in the order of the decisions.
        delayed: who starts later.
        reason: why it waits all the same.
        reserved_s: when it is to start if it waits; infinite if that is not known.
    """

    place: Place | None
    lost_gpu_s: float = 0.0
    delayed_gpu_s: float = 0.0
    displaced: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()
    reason: Reason | None = None
    reserved_s: float = math.inf


class Trials:
    """Tries changes for one waiting gang of a view, a budget of them; nothing of the view changes.

    Args:
        view: what there is.
        name: of the gang.
        most: how many trials there may be.
    """

    def __init__(self, view: View, name: str, most: int) -> None:
        self.view = view
        self.name = name
        self.left = most
        self.refused = False
        """Whether something was not tried: there were trials enough, or it would have taken seconds."""
        self.scheduler = view.scheduler
        """Whose twins are made: the view's after its cycle, with the changes of `based`."""
        self.base: tuple[Change, ...] = ()
        view.scheduler.look_ahead(view.now_s)  # made once: twins get a copy of what is free when
        self._before = {
            each.workload: each for each in view.plan.decisions if isinstance(each, (Evict, Migrate, Resize))
        }
        told = {slot.name: slot.start_s for slot in view.scheduler.slots.values()}
        self._told = {**told, **dict.fromkeys(view.starts, view.now_s)}
        """When others start as things are, of whom that is known."""
        self._told.pop(name, None)

    @contextmanager
    def based(self, changes: tuple[Change, ...]) -> Generator[Scheduler]:
        """Within it, all that is tried comes on top of some changes; gives the view's scheduler with them."""
        if not changes:
            yield self.view.scheduler
            return
        with self.view.scheduler.trial(self.view.snapshot.searches) as twin:
            for each in changes:
                self._change(twin, each)
            self.scheduler, self.base = twin, changes
            try:
                yield twin
            finally:
                self.scheduler, self.base = self.view.scheduler, ()

    def outcome(self, changes: Sequence[Change]) -> Outcome | None:
        """What the next cycle makes of the gang after the changes; None where that is not tried: see `refused`.

        Raises `InputError` for a change that cannot be made.
        """
        if self.left <= 0 or (self.large and not self.in_place(changes)):
            self.refused = True
            return None
        self.left -= 1
        with self._changed(changes) as (scheduler, stopped):
            plan = scheduler.cycle(self.view.now_s)
            return self._measured(scheduler, plan, stopped)

    @property
    def large(self) -> bool:
        """Whether a scheduler made anew would take seconds."""
        snapshot = self.view.snapshot
        return len(snapshot.fleet) + len(snapshot.running) + len(snapshot.pending) > LARGE

    # -- the changed state --------------------------------------------------------------------------------------------

    @contextmanager
    def _changed(self, changes: Sequence[Change]) -> Generator[tuple[Scheduler, dict[str, float]]]:
        """A scheduler before this instant's cycle with the changes, and what those who are stopped or moved lose."""
        lost = {each.job: self.lost_gpu_s(each.job) for each in changes if isinstance(each, (Stop, Move))}
        if not self.in_place(changes):
            snapshot = apply_changes(self.view.snapshot, (*self.base, *changes))
            yield Scheduler(snapshot, config_of(dict(snapshot.settings))), lost
            return
        with self.scheduler.trial(self.view.snapshot.searches) as twin:
            undo_plan(twin, self.view)
            for each in changes:
                if not isinstance(each, Move):
                    self._change(twin, each)
            self._move(twin, [each for each in changes if isinstance(each, Move)])
            yield twin, lost

    def in_place(self, changes: Sequence[Change]) -> bool:
        """Whether a twin can be given the changes; else a scheduler must be made anew."""
        return all(isinstance(each, IN_PLACE) for each in (*self.base, *changes))

    def lost_gpu_s(self, name: str) -> float:
        """What a running workload loses if it is stopped now."""
        return self.scheduler.running[name].lost_gpu_s(self.view.now_s)

    def _change(self, twin: Scheduler, change: Change) -> None:
        now_s = self.view.now_s
        if isinstance(change, SetJob):
            # as it was submitted: its queue may have lowered its priority, and another may not
            submitted = change.job == self.name and not self.base
            known = self.view.find(self.name).workload if submitted else twin.pending.gangs[change.job].workload
            (workload,) = self._part(change, pending=(known,)).pending
            twin.cancel(change.job)
            twin.submit(workload)
        elif isinstance(change, Stop):
            twin.send_back(change.job, now_s)
        elif isinstance(change, SetNodes):
            fleet = twin.cluster.fleet
            nodes = tuple(fleet.nodes[twin.cluster.position[name]] for name in change.names)
            for node in self._part(change, Fleet(nodes, fleet.topology)).fleet:
                twin.set_node(node, now_s)
                if change.what in ("repair", "uncordon"):
                    twin.failures.forget(node.name)
        elif isinstance(change, (SetQuota, SetLimit)):
            twin.set_queues(self._part(change, queues=tuple(twin.queues.values())).queues)
        else:
            assert isinstance(change, EndReservation)
            twin.reservations = tuple(each for each in twin.reservations if each.name != change.name)

    def _part(self, change: Change, fleet: Fleet | None = None, **parts: object) -> Snapshot:
        """The change made to the part of the snapshot that it is about."""
        whole = self.view.snapshot
        parts.setdefault("queues", whole.queues)
        part = Snapshot(fleet or Fleet((), whole.fleet.topology), taken_s=whole.taken_s, **parts)  # type: ignore[arg-type]
        return apply_changes(part, (change,))

    def _move(self, twin: Scheduler, moves: Sequence[Move]) -> None:
        moved: list[Running] = []
        for move in moves:
            run = self.view.find(move.job).running
            assert run is not None, "only what runs is moved"
            moved.append(replace(run, pods=move.pods, missing=()))
        twin.put(moved)

    # -- what it costs others -----------------------------------------------------------------------------------------

    def _measured(self, scheduler: Scheduler, plan: Plan, stopped: dict[str, float]) -> Outcome:
        place = next((each for each in plan.decisions if isinstance(each, Place) and each.workload == self.name), None)
        if place is None:
            return self._waiting(scheduler)
        lost, evicted = dict(stopped), {name for name in stopped if name in scheduler.pending.gangs}
        for each in plan.decisions:
            if (
                isinstance(each, (Evict, Migrate, Resize))
                and each.workload != self.name
                and self._before.get(each.workload) != each
            ):
                lost[each.workload] = lost.get(each.workload, 0.0) + (
                    each.lost_gpu_s if isinstance(each, Evict) else each.cost_gpu_s
                )
                if isinstance(each, Evict):
                    evicted.add(each.workload)
        delays = self._delays(scheduler, {**dict.fromkeys(evicted, self.view.now_s), **self._told})
        return Outcome(place, sum(lost.values()), sum(delays.values()), tuple(lost), tuple(delays))

    def _waiting(self, scheduler: Scheduler) -> Outcome:
        gang = scheduler.pending.gangs.get(self.name)
        if gang is None:
            return Outcome(None)
        slot = scheduler.slots.get(self.name)
        return Outcome(None, reason=gang.reason, reserved_s=slot.start_s if slot else math.inf)

    def _delays(self, scheduler: Scheduler, told: dict[str, float]) -> dict[str, float]:
        """GPU-seconds by which others start later than they were to: where their starts are not reserved, as alone."""
        looks, latest_s = dict[object, float](), self.view.now_s
        delays: dict[str, float] = {}
        waiting = [gang for name in told if (gang := scheduler.pending.gangs.get(name)) is not None]
        for gang in sorted(waiting, key=lambda gang: (-gang.kind.least.milli, gang.order)):
            slot = scheduler.slots.get(gang.workload.name)
            start_s = slot.start_s if slot else looks.get(gang.kind)
            if start_s is None:
                start_s = latest_s if len(looks) >= MOST_LOOKS else self._look(scheduler, gang)
                looks[gang.kind] = start_s
            latest_s = max(latest_s, start_s)
            later_s = start_s - told[gang.workload.name]
            if later_s > 0 and gang.kind.least.milli:
                delays[gang.workload.name] = later_s * gang.kind.least.milli / WHOLE_GPU_MILLI
        return delays

    def _look(self, scheduler: Scheduler, gang: Gang) -> float:
        """When a gang starts by what runs and is reserved; else when the one that is asked about should have ended."""
        now_s, slots, kept = self.view.now_s, list(scheduler.slots.values()), scheduler.kept_from(gang.workload)
        found = [
            scheduler.look_ahead(now_s).earliest(gang, flavor, now_s, slots, kept=kept)
            for flavor in scheduler.flavors_of(gang.kind)
        ]
        starts = [slot.start_s for slot in found if slot is not None]
        own = scheduler.running[self.name]
        return min(starts, default=max(now_s, own.limit_s))


IN_PLACE = (SetJob, Stop, Move, SetNodes, SetQuota, SetLimit, EndReservation)
"""Changes that a twin can be given; with others a scheduler is made anew, which costs as much as a view."""


def undo_plan(twin: Scheduler, view: View) -> None:
    """What the cycle of the view's instant started, stopped, moved and resized is as it was before."""
    touched = {each.workload for each in view.plan.decisions if isinstance(each, (Place, Evict, Migrate, Resize))}
    if not touched:
        return
    for name in touched:
        if name in twin.running:
            twin.take_out(name)
        elif name in twin.pending.gangs:
            twin.cancel(name)
    twin.put(each for each in view.snapshot.running if each.workload.name in touched)
    for workload in view.waiting(touched):
        twin.submit(workload)
