"""Moves with a price: make room for a gang by moving running work, if the gang then starts at once.

The gang is first in order and within its quota, enough GPU is free in all, but not where it needs it. Ideally every set
of running gangs is tried that could be moved, and the cheapest taken; `muster.planning.exact` does so for small cases.
Here:

1. *Choose*: node by node the cheapest work whose removal makes room for one pod more, of these nodes the cheapest for
   the room made, until there is enough. A gang that must stand in one domain is tried in each, the cheapest first.
2. *Place* the gang; what need not move for it stays.
3. *Settle* what was moved in other places that are free, the largest pods first; pods that may stay do. Work that finds
   no place may be given one by moving smaller work. If some finds none, another choice is made without it.

All of it is tried in memory and undone. A plan is only given if every moved gang has its new place, whole, where its
own topology request allows it, and if it delays no reserved start.

The price of a move is what stopping the gang loses: GPUs x (time since its last checkpoint + its restart), however few
of its pods move. Work that does not save its work is not moved, nor is what may not be stopped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from muster.engine.cluster import GangKind, Hold
from muster.engine.pending import Gang
from muster.engine.preempt import may_be_stopped
from muster.engine.room import Option, RoomMaker
from muster.engine.running import RunningGang
from muster.engine.state import Allocation
from muster.engine.timeline import Slot
from muster.kernels import Ints
from muster.model.plan import Migrate
from muster.model.reasons import Reason
from muster.model.workload import Workload

if TYPE_CHECKING:
    from muster.engine.books import Books

MOST_TRIES = 12
"""Choices that are made for one gang before it is left waiting."""


class Moves(Struct, frozen=True):
    """Moves that let a gang start at once: its own places, and the new ones of each gang that moves.

    Places are rows node, shape and device mask, a column a pod. ``cost_gpu_s`` is the price of all moves.
    """

    flavor: str
    rows: Ints
    moved: tuple[tuple[RunningGang, Ints], ...]
    cost_gpu_s: float


def plan_moves(books: Books, gang: Gang, now_s: float, budget_gpu_s: float) -> Moves | None:
    """Moves that let ``gang`` start now and cost at most ``budget_gpu_s``; None if none were found. Nothing changes."""
    for flavor in books.flavors_of(gang.kind):
        if books.queues and books.quota.fits(gang.workload.queue, flavor, gang.kind.least.milli) is not None:
            continue
        found = _Planner(books, gang, flavor, now_s, budget_gpu_s).plan() if enough_free(books, gang) else None
        if found is not None:
            return found
    return None


def plan_on(books: Books, gang: Gang, flavor: str, now_s: float, budget_gpu_s: float) -> Moves | None:
    """As `plan_moves` on one flavor, whatever quota the gang has; it need not be known to ``books``."""
    return _Planner(books, gang, flavor, now_s, budget_gpu_s).plan() if enough_free(books, gang) else None


def enough_free(books: Books, gang: Gang) -> bool:
    """Moving makes no GPU free that is not free already: a cheap look before anything is tried."""
    if not books.running.saving:
        return False
    return int(books.cluster.state.nodes.gpu_free.sum()) >= gang.kind.least.milli


def movable(books: Books, run: RunningGang, now_s: float) -> bool:
    """Whether running work may be moved at all: it saves its work, may be stopped, and was not moved just now."""
    if run.workload.checkpointing is None or run.missing or not may_be_stopped(books, run, now_s):
        return False
    return not run.workload.attempts or now_s - run.started_s >= books.config.move_every_s


def relocate(books: Books, gang: Gang, moves: Moves, now_s: float) -> list[Migrate]:
    """Carry out a plan: work stands in its new places, and the places of the gang are taken for it."""
    cluster, decisions = books.cluster, list[Migrate]()
    for run, rows in moves.moved:
        books.running.remove(run.workload.name)
        cluster.release(run.rows)
        for slot in books.slots.values():
            slot.ended(run, cluster)
        name, cost_gpu_s = run.workload.name, run.lost_gpu_s(now_s)
        decisions.append(Migrate(name, cluster.places(rows), "room", cost_gpu_s, gang.workload.name))
    for run, rows in moves.moved:
        cluster.take(rows)
        moved = RunningGang(run.again(), run.kind, run.flavor, rows, now_s)
        books.running.add(moved)
        for slot in books.slots.values():
            slot.expect(moved, cluster)
    cluster.take(moves.rows)
    return decisions


class _NoPlaceError(Exception):
    """A gang that was to be moved finds no place: its name."""


class _Settling:
    """A gang that was taken out of its places: which pods stay there, and where it stands in the end."""

    def __init__(self, run: RunningGang, largest_milli: int) -> None:
        self.run = run
        self.stays = np.zeros(run.rows.shape[1], np.bool_)
        self.new: Ints | None = None
        self.largest_milli = largest_milli

    @property
    def hardness(self) -> tuple[bool, int, int, str]:
        """What is hard to place goes first."""
        return self.run.kind.anywhere, -self.largest_milli, -self.run.kind.milli, self.run.workload.name

    @property
    def taken(self) -> Ints:
        """What it holds now."""
        return self.run.rows[:, self.stays] if self.new is None else self.new


class _Planner:
    def __init__(self, books: Books, gang: Gang, flavor: str, now_s: float, budget_gpu_s: float) -> None:
        self.books = books
        self.cluster = books.cluster
        self.gang = gang
        self.flavor = flavor
        self.now_s = now_s
        self.budget_gpu_s = budget_gpu_s
        self.excluded: set[str] = set()
        self.out: dict[str, _Settling] = {}
        self.prices: dict[str, float] = {}
        self.rows: Ints = np.zeros((3, 0), np.int64)
        self.room = self._room_maker()

    @cached_property
    def slots(self) -> list[Slot]:
        """The reserved starts of others."""
        return [slot for slot in self.books.slots.values() if slot.name != self.gang.workload.name]

    @cached_property
    def waited(self) -> set[str]:
        """What reserved starts wait for: they count on its room, so it stays where it is."""
        return {name for slot in self.slots for name in slot.waits_for}

    def price(self, run: RunningGang) -> float | None:
        """What moving it loses, in GPU-seconds; None if it stays where it is."""
        name = run.workload.name
        if name in self.out or name in self.excluded:
            return None
        price = self.prices.get(name)
        if price is None:
            free = name not in self.waited and movable(self.books, run, self.now_s)
            price = self.prices[name] = run.lost_gpu_s(self.now_s) if free else -1.0
        return None if price < 0 else price

    def _room_maker(self) -> RoomMaker:
        return RoomMaker(self.cluster, self.books.running, self.price)

    def plan(self) -> Moves | None:
        for _ in range(MOST_TRIES):
            try:
                return self._try()
            except _NoPlaceError as stuck:
                self.excluded.add(str(stuck))
        return None

    # -- one choice ---------------------------------------------------------------------------------------------------

    def _try(self) -> Moves | None:
        kind, rows = self.gang.kind.least, None
        holds = self._holds(self.gang.workload)
        try:
            option = self._choose(self.room, kind, self.flavor, holds, 0.0)
            if option is None or not option.runs:  # there is room for each shape alone, but not for all at once
                return None
            self._take_out(option.runs)
            self._leave_unneeded(kind, holds)
            rows = self._place(kind, self.flavor, holds)
            if rows is None:
                raise _NoPlaceError(max(option.runs, key=lambda run: self.prices[run.workload.name]).workload.name)
            self.rows = rows
            self._settle_all()
            self._go_home()
            moved = [each for each in self.out.values() if each.new is not None]
            cost = sum(each.run.lost_gpu_s(self.now_s) for each in moved)
            if cost > self.budget_gpu_s:
                return None
            found = tuple((each.run, each.new) for each in moved if each.new is not None)
            return Moves(self.flavor, rows, found, cost)
        finally:
            if rows is not None:
                self.cluster.give_back(rows)
            for each in self.out.values():
                self.cluster.give_back(each.taken)
            for each in self.out.values():
                self.cluster.take(each.run.rows)
            self.out.clear()

    def _choose(
        self, room: RoomMaker, kind: GangKind, flavor: str, holds: Sequence[Hold], spent: float, *, again: bool = False
    ) -> Option | None:
        """The cheapest work found whose removal makes room, of what is not out already; None: none within the budget.

        First without work that has pods as large as those that need the room: it needs as much elsewhere. Where room
        is made ``again``, for work that is out itself, only so: else equals would push each other on without end.
        """
        one_domain = kind.topology is not None and kind.topology.required
        with self._beside(holds):
            for smaller in (False,) if one_domain else (True,) if again else (True, False):
                option = room.cheapest(kind, flavor, self.budget_gpu_s - spent, smaller_only=smaller)
                if option is not None:
                    return option
        return None

    def _take_out(self, runs: Iterable[RunningGang]) -> list[_Settling]:
        shapes = self.cluster.state.shape_list
        taken: list[_Settling] = []
        for run in runs:
            self.cluster.give_back(run.rows)
            kinds: list[int] = run.rows[1].tolist()
            largest = max((shapes[shape].gpu_milli_total for shape in kinds), default=0)
            self.out[run.workload.name] = each = _Settling(run, largest)
            taken.append(each)
        return taken

    def _leave_unneeded(self, kind: GangKind, holds: Sequence[Hold]) -> None:
        """Put back what the gang does not need to be moved, the dearest first."""
        for each in sorted(self.out.values(), key=lambda each: (-self.prices[each.run.workload.name], each.hardness)):
            self.cluster.take(each.run.rows)
            with self._beside(holds):
                needed = not self.cluster.fits(kind, self.flavor)
            if needed:
                self.cluster.give_back(each.run.rows)
            else:
                del self.out[each.run.workload.name]

    def _place(self, kind: GangKind, flavor: str, holds: Sequence[Hold]) -> Ints | None:
        placed = self.books.place_beside(kind, flavor, holds)
        return None if isinstance(placed, Reason) else placed

    # -- what was moved -----------------------------------------------------------------------------------------------

    def _settle_all(self) -> None:
        """Give all that is out a place; raises `_NoPlaceError` for one that finds none."""
        todo = sorted(self.out.values(), key=lambda each: each.hardness)
        for each in todo:
            self._stay(each)
        while todo:
            each = todo.pop(0)
            if self._settle(each):
                continue
            more = self._make_room_for(each)
            if not self._settle(each):
                raise _NoPlaceError(each.run.workload.name)
            for other in more:
                self._stay(other)
            todo = sorted(todo + more, key=lambda each: each.hardness)

    def _holds(self, workload: Workload) -> list[Hold]:
        return self.books.holds(workload, self.now_s, slots=self.slots)

    @contextmanager
    def _beside(self, holds: Sequence[Hold]) -> Generator[None]:
        with ExitStack() as stack:
            for hold in holds:
                stack.enter_context(self.cluster.holding(hold))
            yield

    def _stay(self, each: _Settling) -> None:
        """Let pods stay where they were and nothing else is now; if it matters where they stand, all or none."""
        with self._beside(self._holds(each.run.workload)):
            pods: list[list[int]] = each.run.rows.T.tolist()
            for number, (node, shape, devices) in enumerate(pods):
                each.stays[number] = self.cluster.state.has_free(Allocation(node, shape, devices))
                if each.stays[number]:
                    self.cluster.take(each.run.rows[:, number : number + 1])
        if not each.run.kind.anywhere and not each.stays.all():
            self.cluster.give_back(each.run.rows[:, each.stays])
            each.stays[:] = False

    def _unsettled(self, each: _Settling) -> GangKind:
        """What of it needs a place: the pods that do not stay; all, if it asks for anything of their places."""
        kind, counts = each.run.kind, each.run.counts
        if each.stays.any():
            sets = np.repeat(np.arange(len(counts)), counts)
            kind = self.cluster.sized(kind, np.bincount(sets[~each.stays], minlength=len(counts)).tolist())
        return kind

    def _settle(self, each: _Settling) -> bool:
        if each.stays.all():
            return True
        placed = self._place(self._unsettled(each), each.run.flavor, self._holds(each.run.workload))
        if placed is None:
            return False
        each.new = each.run.rows.copy()
        each.new[:, ~each.stays] = placed
        return True

    def _make_room_for(self, each: _Settling) -> list[_Settling]:
        """Take out more work, so that one that is out finds its place."""
        spent = sum(self.prices[name] for name in self.out)
        kind, holds = self._unsettled(each), self._holds(each.run.workload)
        option = self._choose(self._room_maker(), kind, each.run.flavor, holds, spent, again=True)
        if option is None:
            raise _NoPlaceError(each.run.workload.name)
        return self._take_out(option.runs)

    def _go_home(self) -> None:
        """What could stay after all does, the dearest first: its old places are free again."""
        for each in sorted(self.out.values(), key=lambda each: (-self.prices[each.run.workload.name], each.hardness)):
            if each.new is None:
                continue
            new, each.new = each.new, None
            self.cluster.give_back(new)
            each.stays[:] = False
            self._stay(each)
            if not each.stays.all():
                self.cluster.give_back(each.taken)
                self.cluster.take(new)
                each.new = new
