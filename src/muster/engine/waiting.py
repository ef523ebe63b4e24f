"""The work that waits when a scheduler begins, in columns: all of it in order, and gangs only of what is looked at.

Of 100,000 gangs that wait an answer looks at some hundreds. Ideally all are objects in the lists of
`muster.engine.pending.Pending`. Here claims sleep in these columns until something of them changes, and what is asked
of a claim that sleeps is told from the columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from muster.kernels import Floats, Ints
from muster.model.columns import Table, factored, field_of
from muster.model.workload import Workload

if TYPE_CHECKING:
    from muster.engine.cluster import GangKind
    from muster.engine.pending import Claim, Gang, Order

Bools = npt.NDArray[np.bool_]
_Item = TypeVar("_Item")


class Waiting:
    """Work by row, in the order in which it was given; it never changes.

    Args:
        workloads: all; no two have one name.
        kind_of: the kind of a workload; of work that asks for the same it is asked once.
        make: makes a gang.
        tenants: of queues: work that asks for the same is of other kinds for other tenants.
        most: the highest priority that a queue allows; what is above it is lowered.

    Attributes:
        names: of the rows.
        row_of: the row of a name.
        kinds, claims: the distinct ones, in the order in which they come first; ``kind`` and ``claim`` are those of the
            rows, by number.
        levels: negative priorities, in order; ``level`` those of the rows, by number.
        submitted_s, since_s: when each row was submitted, and from when on it could have run.
        made: gangs that were looked at, by row.
    """

    def __init__(
        self, workloads: Sequence[Workload], kind_of: Callable[[Workload], GangKind],
        make: Callable[[Workload, GangKind], Gang], tenants: Mapping[str, str], most: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._workloads, self._make = workloads, make
        self.made: dict[int, Gang] = {}
        self.names: Sequence[str] = field_of(workloads, "name")
        self.row_of = dict(zip(self.names, range(len(self.names)), strict=True))
        queues, queue = _coded(workloads, "queue")
        users, user = _coded(workloads, "user")
        firsts, self.claim = _distinct([queue, user])
        self.claims: list[Claim] = [(queues[int(queue[row])], users[int(user[row])]) for row in firsts.tolist()]
        self.claim_number = {claim: number for number, claim in enumerate(self.claims)}
        self.kinds, self.kind = self._kinds(kind_of, _coded([tenants.get(each, "") for each in queues])[1][queue])
        priorities, priority = _coded(workloads, "priority")
        allowed = _lowered(priorities, priority, queues, queue, most) if most else None
        self._allowed: dict[int, int] = {}
        if allowed is not None:
            self._allowed, priorities, priority = allowed
        self.levels: list[int] = sorted(-each for each in priorities)
        number: dict[int, int] = {each: at for at, each in enumerate(self.levels)}
        self.level: Ints = np.array([number[-each] for each in priorities], np.int64)[priority]
        self.submitted_s = self.since_s = _numbers(workloads, "submitted_s")
        held_s = np.where(_numbers(workloads, "failures") != 0.0, 0.0, _numbers(workloads, "not_before_s"))
        if held_s.any():
            self.since_s = np.maximum(self.submitted_s, held_s)

    def _kinds(self, kind_of: Callable[[Workload], GangKind], tenant: Ints) -> tuple[list[GangKind], Ints]:
        """The kinds, and of each row which one it is."""
        parallel, of = _coded(self._workloads, "parallelism")
        # the pods of what is split over its GPUs have ranks, which belong together in ways of their own
        alone = np.array([each is not None for each in parallel], np.bool_)[of]
        own = np.where(alone, np.arange(1, len(of) + 1), 0)
        asked = [_coded(self._workloads, name)[1] for name in ("pod_sets", "topology", "flavors")]
        firsts, which = _distinct([*asked, tenant, own])
        numbers: dict[GangKind, int] = {}
        rows: list[int] = firsts.tolist()
        found = [numbers.setdefault(kind_of(self._workloads[row]), len(numbers)) for row in rows]
        return list(numbers), np.array(found, np.int64)[which]

    def __len__(self) -> int:
        return len(self.names)

    def gang(self, row: int) -> Gang:
        """The gang of a row: one object, however often it is asked for."""
        gang = self.made.get(row)
        if gang is None:
            workload, allowed = self._workloads[row], self._allowed.get(row)
            if allowed is not None:
                workload = replace(workload, priority=allowed)
            gang = self.made[row] = self._make(workload, self.kinds[int(self.kind[row])])
        return gang

    def every(self) -> list[Gang]:
        """The gangs of all rows."""
        if len(self.made) < len(self):
            for row, _ in enumerate(self._workloads):  # of a table all are made at once, which is faster
                if row not in self.made:
                    self.gang(row)
        return [self.made[row] for row in range(len(self))]

    def order_of(self, row: int) -> Order:
        """As that of its gang."""
        return self.levels[int(self.level[row])], float(self.since_s[row]), self.names[row]

    def deadlines(self) -> list[tuple[float, str]]:
        """By when work must have started, and which, where that is said."""
        of = field_of(self._workloads, "start_deadline_s")
        return [(each, name) for each, name in zip(of, self.names, strict=True) if each is not None]

    def limits_s(self, rows: Ints) -> list[float | None]:
        """The time limits of rows."""
        return _at(self._workloads, "time_limit_s", rows)

    def count_of(self, which: bytearray) -> int:
        """How many rows the claims have of which this is not 0."""
        return int(self._of_claims[np.frombuffer(which, np.bool_)].sum())

    @cached_property
    def _of_claims(self) -> Ints:
        return np.bincount(self.claim, minlength=len(self.claims))

    def kinds_of(self, claim: int) -> list[GangKind]:
        """The kinds of a claim."""
        groups = self.by_kind
        return [self.kinds[kind] for kind in groups.kinds[groups.bounds[claim] : groups.bounds[claim + 1]].tolist()]

    def claims_of_kinds(self) -> dict[GangKind, int]:
        """Of how many claims there is work of each kind."""
        counts = np.bincount(self.by_kind.kinds, minlength=len(self.kinds))
        return dict(zip(self.kinds, counts.tolist(), strict=True))

    @cached_property
    def priorities(self) -> dict[int, int]:
        """How many have each priority."""
        counts = np.bincount(self.level, minlength=len(self.levels)).tolist()
        return {-level: count for level, count in zip(self.levels, counts, strict=True) if count}

    # -- in order -----------------------------------------------------------------------------------------------------

    @cached_property
    def by_kind(self) -> Grouped:
        """The rows of each claim and kind in order; the claims, and the kinds of a claim, as they come first."""
        firsts, which = _distinct([self.claim, self.kind])
        ranks = np.empty(len(firsts), np.int64)
        ranks[np.argsort(self.claim[firsts], kind="stable")] = np.arange(len(firsts))
        return self._grouped(ranks[which])

    @cached_property
    def by_size(self) -> Grouped:
        """The rows of each claim and least size in order."""
        sizes = np.array([kind.least.milli for kind in self.kinds], np.int64)[self.kind]
        return self._grouped(_distinct([self.claim, sizes], ordered=True)[1])

    def _grouped(self, group: Ints) -> Grouped:
        rows = np.lexsort((self.since_s, self.level, group))
        level, since_s, group = self.level[rows], self.since_s[rows], group[rows]
        same = (group[1:] == group[:-1]) & (level[1:] == level[:-1]) & (since_s[1:] == since_s[:-1])
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
        for first, last in edges.reshape(-1, 2).tolist():
            some = rows[first : last + 1]
            some[:] = sorted(some.tolist(), key=self.names.__getitem__)
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]])) if len(rows) else rows
        claims = self.claim[rows[starts]]
        bounds = np.searchsorted(claims, np.arange(len(self.claims) + 1))
        return Grouped(rows, np.append(starts, len(rows)), claims, self.kind[rows[starts]], bounds.tolist())

    def rows_of(self, claim: int) -> list[int]:
        """The rows of a claim, as they were given."""
        return np.sort(self.by_kind.of_claim(claim)).tolist()

    @cached_property
    def least(self) -> list[int]:
        """The least GPU (milli) with which a gang of each claim may run."""
        groups = self.by_kind
        least = np.array([kind.least.milli for kind in self.kinds], np.int64)[groups.kinds]
        return np.minimum.reduceat(least, groups.bounds[:-1]).tolist() if len(self.claims) else []

    @cached_property
    def firsts(self) -> list[int]:
        """The first row of each claim."""
        groups = self.by_kind
        heads = groups.rows[groups.starts[:-1]]
        heads = heads[np.lexsort((self.since_s[heads], self.level[heads], groups.claims))]
        level, since_s = self.level[heads], self.since_s[heads]
        same = np.append((level[1:] == level[:-1]) & (since_s[1:] == since_s[:-1]), False)
        found: list[int] = []
        for first, last in zip(groups.bounds[:-1], groups.bounds[1:], strict=True):
            tied = first + 1 < last and same[first]  # then names tell
            found.append(min(heads[first:last].tolist(), key=self.order_of) if tied else int(heads[first]))
        return found

    def next_within(self, claim: int, after: Order | None, milli: int) -> int | None:
        """The first row of a claim behind ``after`` (None: of all) that may run with ``milli``, if any."""
        groups, found = self.by_size, list[int]()
        for group in range(groups.bounds[claim], groups.bounds[claim + 1]):
            first, last = groups.starts[group], groups.starts[group + 1]
            if self.kinds[int(groups.kinds[group])].least.milli > milli:
                continue
            if after is not None:
                first = bisect_right(groups.rows, after, first, last, key=self.order_of)
            if first < last:
                found.append(int(groups.rows[first]))
        return min(found, key=self.order_of) if found else None

    def before(self, order: Order, behind: Ints) -> Ints:
        """How many rows of each group of `by_kind` are looked at before a gang.

        Args:
            order: that of the gang.
            behind: of each group whether its turn is that of the gang but for order (0), or before (-1) or behind (1).
        """
        groups = self.by_kind
        low, high = bisect_left(self.levels, order[0]), bisect_right(self.levels, order[0])
        level, since_s = self.level[groups.rows], self.since_s[groups.rows]
        behind = np.repeat(behind, np.diff(groups.starts))
        first: Bools = (level < low) | ((level < high) & (behind < 0))
        equal = (level >= low) & (level < high) & (behind == 0)
        first |= equal & (since_s < order[1])
        for at in np.flatnonzero(equal & (since_s == order[1])).tolist():
            first[at] = self.names[int(groups.rows[at])] < order[2]
        return np.add.reduceat(first.astype(np.int64), groups.starts[:-1]) if len(first) else np.zeros(0, np.int64)


class Grouped(NamedTuple):
    """Rows in groups, and in order within each: group g is ``rows[starts[g]:starts[g + 1]]``, of one claim and kind.

    ``bounds`` are the first groups of the claims, and an end: those of a claim stand together. Where rows are grouped
    by size, ``kinds`` has one kind of that size for each group.
    """

    rows: Ints
    starts: Ints
    claims: Ints
    kinds: Ints
    bounds: list[int]

    def of_claim(self, claim: int) -> Ints:
        """The rows of a claim."""
        return self.rows[self.starts[self.bounds[claim]] : self.starts[self.bounds[claim + 1]]]


class Rows(Sequence["Gang"]):
    """The gangs of some rows, each made when it is looked at."""

    __slots__ = ("_rows", "_waiting")

    def __init__(self, waiting: Waiting, rows: Ints) -> None:
        self._waiting, self._rows = waiting, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Gang: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Gang | Rows:
        if isinstance(index, slice):
            return Rows(self._waiting, self._rows[index])
        return self._waiting.gang(int(self._rows[index]))

    def __iter__(self) -> Iterator[Gang]:
        return map(self._waiting.gang, self._rows.tolist())

    def names(self) -> Iterator[str]:
        """Their names."""
        return map(self._waiting.names.__getitem__, self._rows.tolist())


def _at(workloads: Sequence[Workload], name: str, rows: Ints) -> list[Any]:
    """A field of some."""
    numbers: list[int] = rows.tolist()
    if isinstance(workloads, Table):
        return list(map(workloads.field(name).of, numbers))
    return [getattr(workloads[row], name) for row in numbers]


def _coded(workloads: Sequence[Any], name: str = "") -> tuple[list[Any], Ints]:
    """The distinct values of a field (of no name: the items), and which each has."""
    if not isinstance(workloads, Table):
        values, at = factored([getattr(each, name) for each in workloads] if name else workloads)
        return values, np.array(at, np.int64)
    values, at = workloads.field(name)
    if at is None:
        values, at = factored(values)
        return values, np.array(at, np.int64)
    distinct, same = factored(values)
    which = np.array(at, np.int64) if at else np.zeros(len(workloads), np.int64)
    return distinct, which if len(distinct) == len(values) else np.array(same, np.int64)[which]


def _numbers(workloads: Sequence[Workload], name: str) -> Floats:
    """A numeric field."""
    if isinstance(workloads, Table):
        values, at = workloads.field(name)
        numbers = np.array(values, np.float64)
        if at is None:
            return numbers
        return numbers[np.array(at, np.int64)] if at else np.full(len(workloads), numbers[0])
    return np.array([getattr(each, name) for each in workloads], np.float64)


def _distinct(columns: Sequence[Ints], *, ordered: bool = False) -> tuple[Ints, Ints]:
    """Of rows of numbers of 0 or more the distinct ones: the first row of each, in this order, and which each row is.

    ``ordered``: in the order of the numbers instead.
    """
    keys = columns[0]
    for column in columns[1:]:
        if len(keys) and (int(keys.max()) + 1) * (int(column.max()) + 1) >= 1 << 62:
            keys = np.unique(keys, return_inverse=True)[1]
        keys = keys * (int(column.max()) + 1 if len(column) else 1) + column
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    if ordered:
        return firsts, which
    order = np.argsort(firsts, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return firsts[order], ranks[which]


def _lowered(
    priorities: Sequence[int], priority: Ints, queues: Sequence[str], queue: Ints, most: Mapping[str, int]
) -> tuple[dict[int, int], list[int], Ints] | None:
    """Priorities with those that their queues allow: what has another one, by row; the distinct ones, and whose."""
    allowed: dict[int, int] = {}
    for number, name in enumerate(queues):
        limit = most.get(name)
        high = [at for at, each in enumerate(priorities) if limit is not None and each > limit]
        if limit is not None and high:
            rows = np.flatnonzero((queue == number) & np.isin(priority, high))
            allowed.update(dict.fromkeys(rows.tolist(), limit))
    if not allowed:
        return None
    numbers: list[int] = priority.tolist()
    found = [priorities[at] for at in numbers]
    for row, limit in allowed.items():
        found[row] = limit
    distinct, at = factored(found)
    return allowed, distinct, np.array(at, np.int64)
