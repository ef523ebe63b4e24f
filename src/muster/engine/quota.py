"""Quota arithmetic over the tree of queues: who may use how much of a flavor now, and who holds what.

The semantics are those of Kueue's hierarchical cohorts (its KEP-79 and KEP-1224; pkg/cache/scheduler/resource_node.go).
For one flavor and a queue i, leaf or inner (inner queues are cohorts), in ``gpu_milli``::

    subtree_i = nominal_i + sum over children c of (subtree_c - local_c)      what i guarantees to itself and below
    local_i   = max(0, subtree_i - lending limit_i); 0 without a limit        of it, what is never lent to the parent
    used_i    = charged to i itself + sum over children c of max(0, used_c - local_c)
    ceiling_i = subtree_i + borrowing limit_i; without limit: none; at a root: subtree_i

A charge of m at a queue reaches ancestor i as ``m - A_i``, what the local quotas below i absorb, so all limits on the
path, from the queue itself up to the root, become one minimum::

    A_i       = sum over j on the path below i of max(0, local_j - used_j)
    available = min over i on the path of (A_i + ceiling_i - used_i)
    potential = the same with used = 0

A queue that states no quota of a flavor has nominal 0 and no limits of its own: it is limited by its ancestors only,
and all that it uses is borrowed. If no queue on the path states one, the flavor cannot be used there
(`Reason.NO_FLAVOR`). A tree of no queues at all limits nothing.

Cost: `QuotaTree.charge`, `refund`, `fits` and `available` are O(depth) on lists of integers, some 3 microseconds each
in a tree of three levels; building is O(queues x flavors).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.errors import InputError, StateError
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason

UNLIMITED = 2**62
"""What `QuotaTree.available` and `potential` say where nothing limits."""
_ABSURD = 2**53


class Borrower(Struct, frozen=True):
    """A queue that holds ``milli`` more than its own quota, at the expense of the one that was asked about."""

    queue: str
    milli: int


class Holdings(Struct, frozen=True):
    """The arithmetic of one queue and flavor, for explanations. All amounts are in ``gpu_milli``.

    Attributes:
        nominal_milli: guaranteed; of an inner queue with what its children lend to it.
        used_milli: counted against it; of an inner queue without what its children use of what they never lend.
        borrowed_milli: used above nominal.
        lent_milli: of its unused nominal, what it cannot have now unless borrowers give it back.
        borrowers: who holds more than their own, the largest first; only while something is lent.
        available_milli: what may still be used now, by borrowing too; 0 or more.
        potential_milli: what could be used if nobody else used anything.
        cohort: the parent; empty at a root.
        cohort_free_milli: what the parent may still hand out; at a root the same as ``available_milli``.
        limited_by: the queue on the path whose limit is met first: a root's own quota, or a borrowing limit.
    """

    queue: str
    flavor: str
    nominal_milli: int
    used_milli: int
    borrowed_milli: int
    lent_milli: int
    borrowers: tuple[Borrower, ...]
    available_milli: int
    potential_milli: int
    cohort: str
    cohort_free_milli: int
    limited_by: str

    def describe(self) -> str:
        """One line, such as ``research uses 512 of 512 nominal GPUs (H100/reserved); 0 of 256 are borrowed, ...``."""
        most = max(0, self.potential_milli - self.nominal_milli)
        text = (
            f"{self.queue} uses {_gpus(self.used_milli)} of {_gpus(self.nominal_milli)} nominal GPUs ({self.flavor}); "
            f"{_gpus(self.borrowed_milli)} of at most {_gpus(most)} are borrowed, {_gpus(self.available_milli)} more "
            f"may be used now"
        )
        if self.lent_milli:
            names = ", ".join(f"{borrower.queue} {_gpus(borrower.milli)}" for borrower in self.borrowers)
            text += f"; {_gpus(self.lent_milli)} are lent ({names})"
        return text


class QuotaWarning(Struct, frozen=True):
    """A quota that is legal and cannot be kept; ``queue`` is empty where it is about a flavor as a whole."""

    flavor: str
    queue: str
    text: str


class QuotaTree:
    """Quotas and their use, for all queues and flavors; it changes only by `charge` and `refund`.

    Raises `InputError` for queues that `check_queues` refuses. Queues and flavors that it does not know are refused by
    `fits` and have nothing available. Work of theirs that runs all the same, as after a queue was deleted, counts
    against no quota: `charge` and `refund` of it do nothing.
    """

    def __init__(self, queues: tuple[Queue, ...]) -> None:
        check_queues(queues)
        self.queues = queues
        self.flavors = _flavors(queues)
        self._index = {queue.name: number for number, queue in enumerate(queues)}
        self._parent = [self._index.get(queue.parent, -1) for queue in queues]
        self._paths = _paths(self._parent)
        self._flavor = {flavor: number for number, flavor in enumerate(self.flavors)}
        tables = [_Table(queues, self._parent, flavor) for flavor in self.flavors]
        self._subtree = [table.subtree for table in tables]
        self._local = [table.local for table in tables]
        self._nominal = [table.nominal for table in tables]
        self._ceiling = [table.ceiling for table in tables]
        self._stated = [table.stated for table in tables]
        self._potential = [table.potential for table in tables]
        self._used = [[0] * len(queues) for _ in tables]
        self._own = [[0] * len(queues) for _ in tables]
        self._headroom = [queue.headroom_milli for queue in queues]
        self._kept = [[0] * len(queues) for _ in tables]
        self._forget()
        for node, headroom in enumerate(self._headroom):
            for column in range(len(tables) if headroom else 0):
                self._keep(node, column)

    def copy(self) -> QuotaTree:
        """An independent copy of what is used; the quotas are shared. O(queues x flavors)."""
        twin = object.__new__(QuotaTree)
        twin.__dict__.update(self.__dict__)
        twin._used = [list(used) for used in self._used]
        twin._own = [list(own) for own in self._own]
        twin._kept = [list(kept) for kept in self._kept]
        twin._forget()
        return twin

    def _forget(self) -> None:
        """What is kept of each queue: its room, what is left of its own, and at which version that was so."""
        self._version = 0
        self._rooms = [[0] * len(self.queues) for _ in self.flavors]
        self._left = [[0] * len(self.queues) for _ in self.flavors]
        self._known = [[-1] * len(self.queues) for _ in self.flavors]

    def fits(self, queue: str, flavor: str, milli: int) -> Reason | None:
        """None if ``queue`` may use ``milli`` more of ``flavor`` now, else the first of the reasons that hold.

        UNKNOWN_QUEUE, NO_FLAVOR, OVER_QUOTA (more than it could ever use), QUOTA (not now). Work that takes no GPU
        needs no quota.
        """
        if not self._index:
            return None
        node = self._index.get(queue)
        if node is None:
            return Reason.UNKNOWN_QUEUE
        if milli <= 0:
            return None
        column = self._flavor.get(flavor)
        if column is None or not self._stated[column][node]:
            return Reason.NO_FLAVOR
        if milli > self._potential[column][node]:
            return Reason.OVER_QUOTA
        return None if milli <= self._room(node, column) + self._kept[column][node] else Reason.QUOTA

    def available(self, queue: str, flavor: str) -> int:
        """``gpu_milli`` that may still be used now, by borrowing too; negative where use exceeds a quota."""
        if not self._index:
            return UNLIMITED
        node, column = self._index.get(queue), self._flavor.get(flavor)
        if node is None or column is None or not self._stated[column][node]:
            return 0
        return self._room(node, column) + self._kept[column][node]

    def short_of_headroom(self, queue: str, flavor: str) -> int:
        """``gpu_milli`` that is lent and should be back, so that the queue has its headroom."""
        node, column = self._index.get(queue), self._flavor.get(flavor)
        if node is None or column is None or not self._kept[column][node]:
            return 0
        return min(self._kept[column][node], max(0, -self._room(node, column)))

    def potential(self, queue: str, flavor: str) -> int:
        """``gpu_milli`` that could be used in all if nobody else used anything."""
        if not self._index:
            return UNLIMITED
        node, column = self._index.get(queue), self._flavor.get(flavor)
        if node is None or column is None or not self._stated[column][node]:
            return 0
        return self._potential[column][node]

    def charge(self, queue: str, flavor: str, milli: int) -> None:
        """Count ``milli`` more as used. It does not ask `fits`: what runs already is charged even over a quota."""
        self._add(queue, flavor, milli, 1)

    def refund(self, queue: str, flavor: str, milli: int) -> None:
        """Take back a charge, exactly; raises `StateError` if the queue itself was not charged so much."""
        self._add(queue, flavor, milli, -1)

    def used(self, queue: str, flavor: str) -> int:
        """``gpu_milli`` counted against the queue: its own, and what its children use beyond what they never lend."""
        return self._of(self._used, queue, flavor) - self._of(self._kept, queue, flavor)

    def nominal(self, queue: str, flavor: str) -> int:
        """``gpu_milli`` guaranteed: its nominal quota, and what its children lend to it."""
        return self._of(self._subtree, queue, flavor)

    def borrowed(self, queue: str, flavor: str) -> int:
        """``gpu_milli`` used above `nominal`."""
        return max(0, self.used(queue, flavor) - self.nominal(queue, flavor))

    def would_borrow(self, queue: str, flavor: str, milli: int) -> bool:
        """Whether ``milli`` more would be, in part or whole, above the queue's nominal quota."""
        return self.borrow_level(queue, flavor, milli) > 0

    def borrow_level(self, queue: str, flavor: str, milli: int) -> int:
        """How many levels up one must go to find a queue within whose quota ``milli`` more stays; 0 is no loan.

        The number of the root where it does not even stay within the root's. Flavors are compared by it: a loan inside
        the team is cheaper than one from another department.
        """
        node, column = self._index.get(queue), self._flavor.get(flavor)
        if node is None or column is None:
            return 0
        used, local, subtree = self._used[column], self._local[column], self._subtree[column]
        level = 0
        while used[node] + milli > subtree[node] and self._parent[node] >= 0:
            milli -= min(milli, max(0, local[node] - used[node]))
            node = self._parent[node]
            level += 1
        return level

    def borrowers(self, queue: str, flavor: str) -> tuple[Borrower, ...]:
        """From whom ``queue`` could take back: the largest loan first, then by name.

        Queues with work of their own where each queue on the path, below the ancestor that both share, holds more than
        its nominal quota; the amount is the least of these excesses: more would take from what is theirs. Work of the
        shared ancestors themselves counts where it is above their own nominal quota.
        """
        node, column = self._index.get(queue), self._flavor.get(flavor)
        if node is None or column is None:
            return ()
        mine = set(self._path(node))
        found: list[Borrower] = []
        for other, held in enumerate(self._own[column]):
            excess = self._excess(other, node, mine, column) if held else 0
            if excess > 0:
                found.append(Borrower(self.queues[other].name, excess))
        return tuple(sorted(found, key=lambda borrower: (-borrower.milli, borrower.queue)))

    def owes(self, other: str, queue: str, flavor: str) -> bool:
        """Whether ``other`` is one of the `borrowers` of ``queue``."""
        node, taker, column = self._index.get(queue), self._index.get(other), self._flavor.get(flavor)
        if node is None or taker is None or column is None:
            return False
        return self._excess(taker, node, set(self._path(node)), column) > 0

    def _excess(self, other: int, node: int, mine: set[int], column: int) -> int:
        used, subtree = self._used[column], self._subtree[column]
        excess = held = self._own[column][other]
        at = other
        if other in mine:
            excess = min(excess, held - self._nominal[column][other])
        while at >= 0 and at not in mine:
            excess = min(excess, used[at] - subtree[at])
            at = self._parent[at]
        return excess if at >= 0 and at != node and other != node else 0

    def own_left(self, queue: str, flavor: str) -> int:
        """``gpu_milli`` that is left of what is the queue's own, or of a department's that it is in; negative: none.

        What is not free of it was lent, and may be reclaimed. The root's is everybody's and does not count.
        """
        node, column = self._index.get(queue), self._flavor.get(flavor)
        if node is None or column is None:
            return 0
        kept = self._kept[column][node]
        if self._parent[node] < 0:
            return self._subtree[column][node] - self._used[column][node] + kept
        self._learn(node, column)
        return max(self._left[column][node], self._subtree[column][node] - self._used[column][node] + kept)

    def who_holds(self, queue: str, flavor: str) -> Holdings:
        """The numbers behind `fits`, for an explanation; raises `StateError` for an unknown queue."""
        if queue not in self._index:
            raise StateError(f"queue {queue!r} does not exist")
        node = self._index[queue]
        parent = self.queues[node].parent
        available, limit = self._tightest(node, flavor)
        used, nominal = self.used(queue, flavor), self.nominal(queue, flavor)
        lent = max(0, nominal - used - max(0, available))
        return Holdings(
            queue=queue,
            flavor=flavor,
            nominal_milli=nominal,
            used_milli=used,
            borrowed_milli=max(0, used - nominal),
            lent_milli=lent,
            borrowers=self.borrowers(queue, flavor) if lent else (),
            available_milli=max(0, available),
            potential_milli=self.potential(queue, flavor),
            cohort=parent,
            cohort_free_milli=max(0, self._tightest(self._index[parent] if parent else node, flavor)[0]),
            limited_by=self.queues[limit].name,
        )

    def _room(self, node: int, column: int) -> int:
        """The minimum in the module's docstring, from the queue up to its root."""
        self._learn(node, column)
        return self._rooms[column][node]

    def _learn(self, node: int, column: int) -> None:
        """Bring what is kept of a queue up to date; of the queues above it only those that are not."""
        known, version = self._known[column], self._version
        if known[node] == version:
            return
        rooms, left, used = self._rooms[column], self._left[column], self._used[column]
        above = -1
        for at in reversed(self._paths[node]):
            if known[at] != version:
                taken, kept = used[at], self._local[column][at]
                room, own = self._ceiling[column][at] - taken, self._subtree[column][at] - taken
                if above < 0:
                    own = -UNLIMITED  # the root's is everybody's
                else:
                    room = min(room, rooms[above] + (kept - taken if kept > taken else 0))
                    own = max(own, left[above])
                rooms[at], left[at], known[at] = room, own, version
            above = at

    def _tightest(self, node: int, flavor: str) -> tuple[int, int]:
        """`_room`, and the queue whose limit it is (the lowest of equals)."""
        column = self._flavor.get(flavor)
        if column is None or not self._stated[column][node]:
            return 0, node
        used, local, ceiling = self._used[column], self._local[column], self._ceiling[column]
        absorbed, room, limit = 0, UNLIMITED, node
        for at in self._path(node):
            if absorbed + ceiling[at] - used[at] < room:
                room, limit = absorbed + ceiling[at] - used[at], at
            absorbed += max(0, local[at] - used[at])
        return room, limit

    def _add(self, queue: str, flavor: str, milli: int, sign: int) -> None:
        """Add to the queue; what each level holds beyond its local quota is passed on to the next."""
        node, column = self._index.get(queue, -1), self._flavor.get(flavor, -1)
        if node < 0 or column < 0:
            return
        own, delta = self._own[column], milli * sign
        if milli < 0 or own[node] + delta < 0:
            raise StateError(f"{own[node]} milli are charged to queue {queue!r} for {flavor!r}, not {milli}")
        own[node] += delta
        self._pass_on(node, column, delta)
        if self._headroom[node]:
            self._keep(node, column)

    def _keep(self, node: int, column: int) -> None:
        """Keep a queue's headroom from the others: of its own that it does not use, as much is counted as used."""
        left = self._nominal[column][node] - self._own[column][node]
        kept = min(self._headroom[node], max(0, left))
        self._pass_on(node, column, kept - self._kept[column][node])
        self._kept[column][node] = kept

    def _pass_on(self, node: int, column: int, delta: int) -> None:
        self._version += 1
        used, local, parent = self._used[column], self._local[column], self._parent
        while node >= 0 and delta:
            before = used[node]
            used[node] = after = before + delta
            kept = local[node]
            delta = (after - kept if after > kept else 0) - (before - kept if before > kept else 0)
            node = parent[node]

    def _path(self, node: int) -> tuple[int, ...]:
        """The queue and all above it, up to its root."""
        return self._paths[node]

    def _of(self, table: list[list[int]], queue: str, flavor: str) -> int:
        node, column = self._index.get(queue), self._flavor.get(flavor)
        return 0 if node is None or column is None else table[column][node]


def _paths(parent: Sequence[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for node in range(len(parent)):
        path = [node]
        while parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        found.append(tuple(path))
    return found


class _Table:
    """What is constant of one flavor, a number a queue."""

    def __init__(self, queues: Sequence[Queue], parent: Sequence[int], flavor: str) -> None:
        count = len(queues)
        quotas = [next((quota for quota in queue.quotas if quota.flavor == flavor), None) for queue in queues]
        order = _root_first(parent)
        self.nominal = [quota.nominal_milli if quota else 0 for quota in quotas]
        self.subtree = list(self.nominal)
        self.local = [0] * count
        self.ceiling = [UNLIMITED] * count
        self.stated = [quota is not None for quota in quotas]
        self.potential = [0] * count
        for node in reversed(order):
            quota, above = quotas[node], parent[node]
            if quota and quota.lending_limit_milli is not None:
                self.local[node] = max(0, self.subtree[node] - quota.lending_limit_milli)
            if above < 0:
                self.ceiling[node] = self.subtree[node]
                continue
            if quota and quota.borrowing_limit_milli is not None:
                self.ceiling[node] = self.subtree[node] + quota.borrowing_limit_milli
            self.subtree[above] += self.subtree[node] - self.local[node]
        for node in order:
            above = parent[node]
            if above < 0:
                self.potential[node] = self.subtree[node]
                continue
            self.stated[node] |= self.stated[above]
            self.potential[node] = min(self.ceiling[node], self.local[node] + self.potential[above])


def check_queues(queues: tuple[Queue, ...]) -> None:
    """Raise `InputError`, with the field's path such as ``queues[3].parent``, for queues that make no sense.

    Refused are: a name that is empty or given twice, an unknown parent, a cycle, weights that are not above 0, negative
    or absurd amounts, two quotas of one flavor, a lending limit above what there is to lend (nominal; of an inner queue
    with what its children lend to it), a borrowing limit above 0 at a root, which has nobody to borrow from, and a ramp
    without the time of a reclaim, or at a queue that has others below it.
    """
    seen: dict[str, int] = {}
    for number, queue in enumerate(queues):
        if not queue.name:
            raise InputError("is empty", field=f"queues[{number}].name", hint="give the queue a name")
        if queue.name in seen:
            first = f"queues[{seen[queue.name]}]"
            raise InputError(f"{queue.name!r} is already the name of {first}", field=f"queues[{number}].name")
        seen[queue.name] = number
    for number, queue in enumerate(queues):
        if queue.parent and queue.parent not in seen:
            raise InputError(
                f"there is no queue {queue.parent!r}", field=f"queues[{number}].parent", hint="a root's parent is empty"
            )
    _check_cycles(queues, seen)
    for number, queue in enumerate(queues):
        _check_numbers(queue, f"queues[{number}]")
    parents = {queue.parent for queue in queues}
    for number, queue in enumerate(queues):
        if queue.ramp_milli_per_s and queue.name in parents:
            what = f"{queue.name} has queues below it"
            raise InputError(
                what, field=f"queues[{number}].ramp_milli_per_s", hint="give them to the queue of the work"
            )
    _check_lending(queues, [seen.get(queue.parent, -1) for queue in queues])


def _check_cycles(queues: Sequence[Queue], index: Mapping[str, int]) -> None:
    reaches_root: set[int] = set()
    for start in range(len(queues)):
        path: list[int] = []
        at = start
        while at >= 0 and at not in reaches_root:
            if at in path:
                circle = path[path.index(at) :]
                names = " -> ".join(queues[node].name for node in [*circle, at])
                raise InputError(f"is part of a cycle: {names}", field=f"queues[{min(circle)}].parent")
            path.append(at)
            at = index.get(queues[at].parent, -1)
        reaches_root.update(path)


def _check_numbers(queue: Queue, where: str) -> None:
    if not (queue.weight > 0 and math.isfinite(queue.weight)):
        raise InputError(f"is {queue.weight:g}", field=f"{where}.weight", hint="a number above 0")
    for name in ("reclaim_s", "ramp_milli_per_s"):
        value: float = getattr(queue, name)
        if not 0 <= value < 1e12:
            raise InputError(f"is {value:g}", field=f"{where}.{name}", hint="0 or more, and below 1e12")
    if bool(queue.ramp_milli_per_s) != bool(queue.reclaim_s):
        missing = "reclaim_s" if queue.ramp_milli_per_s else "ramp_milli_per_s"
        raise InputError(
            "is needed with the other", field=f"{where}.{missing}", hint="reclaim time and ramp go together"
        )
    if not (queue.min_runtime_s >= 0 and math.isfinite(queue.min_runtime_s)):
        raise InputError(f"is {queue.min_runtime_s:g}", field=f"{where}.min_runtime_s", hint="seconds, 0 or more")
    _check_amount(queue.max_running_milli, f"{where}.max_running_milli")
    flavors: set[str] = set()
    for position, quota in enumerate(queue.quotas):
        at = f"{where}.quotas[{position}]"
        if not quota.flavor or quota.flavor in flavors:
            what = f"{quota.flavor!r} has a quota twice in {queue.name!r}" if quota.flavor else "is empty"
            raise InputError(what, field=f"{at}.flavor", hint="one quota for each flavor")
        flavors.add(quota.flavor)
        _check_amount(quota.nominal_milli, f"{at}.nominal_milli")
        _check_amount(quota.borrowing_limit_milli, f"{at}.borrowing_limit_milli")
        _check_amount(quota.lending_limit_milli, f"{at}.lending_limit_milli")
        if quota.borrowing_limit_milli and not queue.parent:
            raise InputError(
                f"queue {queue.name!r} has no parent to borrow from",
                field=f"{at}.borrowing_limit_milli",
                hint="leave it out, or give the queue a parent",
            )


def _check_amount(milli: int | None, field: str) -> None:
    if milli is not None and not 0 <= milli < _ABSURD:
        raise InputError(f"is {'negative' if milli < 0 else 'absurdly large'} ({milli})", field=field)


def _check_lending(queues: Sequence[Queue], parent: Sequence[int]) -> None:
    for flavor in _flavors(queues):
        table = _Table(queues, parent, flavor)
        for number, queue in enumerate(queues):
            for position, quota in enumerate(queue.quotas):
                if quota.flavor == flavor and (quota.lending_limit_milli or 0) > table.subtree[number]:
                    raise InputError(
                        f"{quota.lending_limit_milli} is more than there is to lend ({table.subtree[number]})",
                        field=f"queues[{number}].quotas[{position}].lending_limit_milli",
                        hint="at most the nominal quota, and what the queues below lend",
                    )


def quota_warnings(queues: tuple[Queue, ...], capacity_milli: Mapping[str, int]) -> tuple[QuotaWarning, ...]:
    """Where quotas and capacity do not agree; ``capacity_milli`` counts what is there and healthy, by flavor.

    Nominal quotas that add up to more than exists (guarantees that cannot all be kept), a queue that is promised more
    than exists, a quota of a flavor that no node has, and a flavor that no queue may use.
    """
    warnings: list[QuotaWarning] = []
    flavors = _flavors(queues)
    for flavor in flavors:
        stated: list[tuple[Queue, Quota]] = [(q, quota) for q in queues for quota in q.quotas if quota.flavor == flavor]
        total, there = sum(quota.nominal_milli for _, quota in stated), capacity_milli.get(flavor, 0)
        if total and not there:
            names = ", ".join(queue.name for queue, quota in stated if quota.nominal_milli)
            warnings.append(QuotaWarning(flavor, "", f"no healthy GPU is {flavor}, but {names} hold a quota of it"))
            continue
        if total > there:
            warnings.append(
                QuotaWarning(
                    flavor,
                    "",
                    f"quotas of {flavor} add up to {_gpus(total)} GPUs; {_gpus(there)} are there and healthy, "
                    f"so {_gpus(total - there)} are promised twice",
                )
            )
        warnings += [
            QuotaWarning(
                flavor,
                queue.name,
                f"{queue.name} is promised {_gpus(quota.nominal_milli)} GPUs of {flavor}, more than the {_gpus(there)} "
                f"that are there and healthy",
            )
            for queue, quota in stated
            if quota.nominal_milli > there
        ]
    if queues:
        warnings += [
            QuotaWarning(flavor, "", f"no queue has a quota of {flavor}: its {_gpus(there)} GPUs can be used by nobody")
            for flavor, there in sorted(capacity_milli.items())
            if there > 0 and flavor not in flavors
        ]
    return tuple(warnings)


def _flavors(queues: Sequence[Queue]) -> tuple[str, ...]:
    """All flavors that have a quota, in the order of their first mention."""
    return tuple(dict.fromkeys(quota.flavor for queue in queues for quota in queue.quotas))


def _root_first(parent: Sequence[int]) -> list[int]:
    """Each queue after its parent."""
    children: list[list[int]] = [[] for _ in parent]
    order: list[int] = []
    for node, above in enumerate(parent):
        (children[above] if above >= 0 else order).append(node)
    for node in order:
        order.extend(children[node])
    return order


def _gpus(milli: int) -> str:
    """``1,104`` or ``0.5``."""
    return f"{milli // 1000:,}" if milli % 1000 == 0 else f"{milli / 1000:,.3f}".rstrip("0")
