"""The work that waits, so kept that a cycle looks only at what could start.

Work of one claim (a queue and a user of it) that asks for the same (one kind) is in order; only the first of it can be
next. So a cycle sees heads: at most one a claim and kind, however long the queue is.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter

from muster.engine.cluster import GangKind
from muster.engine.waiting import Waiting
from muster.model.reasons import Reason
from muster.model.workload import Workload

Claim = tuple[str, str]
"""A queue and a user of it."""

NOTHING = 1 << 62

Order = tuple[int, float, str]
"""Within a claim: higher priority, then who could have run earlier (submitted and not held), then name."""


class Gang:
    """A workload that waits: its kind, and why it was passed over last (None: it was not looked at)."""

    __slots__ = ("claim", "kind", "order", "reason", "workload")

    def __init__(self, workload: Workload, kind: GangKind) -> None:
        self.workload = workload
        self.kind = kind
        self.claim: Claim = (workload.queue, workload.user)
        # what is held does not grow older
        since_s = max(workload.submitted_s, 0.0 if workload.failures else workload.not_before_s)
        self.order: Order = (-workload.priority, since_s, workload.name)
        self.reason: Reason | None = None

    def __lt__(self, other: Gang) -> bool:
        return self.order < other.order


_order: Callable[[Gang], Order] = attrgetter("order")


class Gangs(Mapping[str, Gang]):
    """Gangs by name, in the order in which they came: those that are awake, and rows of the claims that sleep.

    ``sleeping`` says of each claim of ``waiting`` whether it sleeps.
    """

    __slots__ = ("awake", "sleeping", "waiting")

    def __init__(self, waiting: Waiting | None, sleeping: bytearray, awake: dict[str, Gang]) -> None:
        self.waiting, self.sleeping, self.awake = waiting, sleeping, awake

    def copy(self) -> Gangs:
        """An independent copy."""
        return Gangs(self.waiting, bytearray(self.sleeping), dict(self.awake))

    def _asleep(self, name: object) -> int | None:
        """The row of a name in a claim that sleeps."""
        row = self.waiting.row_of.get(name) if self.waiting is not None else None  # type: ignore[arg-type]
        return row if row is not None and self.sleeping[self.waiting.claim[row]] else None  # type: ignore[union-attr]

    def __contains__(self, name: object) -> bool:
        return name in self.awake or self._asleep(name) is not None

    def __getitem__(self, name: str) -> Gang:
        gang = self.awake.get(name)
        if gang is None:
            row = self._asleep(name)
            if row is None or self.waiting is None:
                raise KeyError(name)
            gang = self.waiting.gang(row)
        return gang

    def __len__(self) -> int:
        return len(self.awake) + (self.waiting.count_of(self.sleeping) if self.waiting is not None else 0)

    def __iter__(self) -> Iterator[str]:
        waiting = self.waiting
        if waiting is None:
            yield from self.awake
            return
        made = waiting.made
        for row, (name, claim) in enumerate(zip(waiting.names, waiting.claim.tolist(), strict=True)):
            if self.sleeping[claim] or (name in self.awake and self.awake[name] is made.get(row)):
                yield name
        for name, gang in self.awake.items():  # what came later
            row = waiting.row_of.get(name)
            if row is None or gang is not made.get(row):
                yield name

    def every(self) -> list[Gang]:
        """All gangs in this order."""
        waiting = self.waiting
        if waiting is None:
            return list(self.awake.values())
        first, claims = waiting.every(), waiting.claim.tolist()
        found = [
            gang
            for gang, claim in zip(first, claims, strict=True)
            if self.sleeping[claim] or self.awake.get(gang.workload.name) is gang
        ]
        rows = waiting.row_of
        later = ((rows.get(name), gang) for name, gang in self.awake.items())
        return found + [gang for row, gang in later if row is None or gang is not first[row]]


class Pending:
    """All gangs that wait: by kind and claim, by claim and kind, and by claim and the least GPU that they run with.

    What waits at first may be given as columns: then a claim sleeps there until something of it changes, or its gangs
    are asked for by kind. ``kinds`` has all kinds, but lists only of claims that are awake.

    Args:
        length: of each of the work of one claim and kind; what has the same is taken to run equally long.
        waiting: what waits at first.
    """

    def __init__(self, length: Callable[[Workload], Hashable], waiting: Waiting | None = None) -> None:
        self._length = length
        self._asleep: dict[Claim, int] = {} if waiting is None else dict(waiting.claim_number)
        self.gangs = Gangs(waiting, bytearray([1]) * len(self._asleep), {})
        self._of_claim: dict[Claim, dict[GangKind, list[Gang]]] = {claim: {} for claim in self._asleep}
        self._by_size: dict[Claim, dict[int, list[Gang]]] = {claim: {} for claim in self._asleep}
        self._least: dict[Claim, int] = {} if waiting is None else dict(zip(self._asleep, waiting.least, strict=True))
        self._priorities: dict[int, int] = {} if waiting is None else dict(waiting.priorities)
        self._sleeping_kinds: dict[GangKind, int] = {} if waiting is None else waiting.claims_of_kinds()
        self.kinds: dict[GangKind, dict[Claim, list[Gang]]] = {kind: {} for kind in self._sleeping_kinds}
        self._first: dict[Claim, Gang] = {}
        self._by_length: dict[GangKind, dict[Claim, dict[Hashable, list[Gang]]]] = {}
        self._limits: dict[GangKind, dict[float | None, int]] = {}
        self._shortest: dict[GangKind, tuple[float, bool]] = {}
        self._shares = False

    def copy(self) -> Pending:
        """What may be changed while this one is not: it copies what it changes, when it changes it."""
        twin = Pending(self._length)
        twin.gangs, twin.kinds, twin._least = self.gangs.copy(), dict(self.kinds), dict(self._least)
        twin._of_claim, twin._by_size = dict(self._of_claim), dict(self._by_size)
        twin._priorities, twin._shortest = dict(self._priorities), dict(self._shortest)
        twin._limits = {kind: dict(limits) for kind, limits in self._limits.items()}
        twin._asleep, twin._sleeping_kinds = dict(self._asleep), dict(self._sleeping_kinds)
        twin._shares = True
        return twin

    def _wake(self, claim: Claim) -> None:
        """Take the gangs of a claim out of the columns."""
        number, waiting = self._asleep.pop(claim, None), self.gangs.waiting
        if number is None or waiting is None:
            return
        self.gangs.sleeping[number] = 0
        for kind in waiting.kinds_of(number):
            self._sleeping_kinds[kind] -= 1
        self._enter([waiting.gang(row) for row in waiting.rows_of(number)])

    def asleep(self, claim: Claim) -> int | None:
        """The number of a claim that sleeps in ``gangs.waiting``; None: it is awake, or nothing of it waits."""
        return self._asleep.get(claim)

    def _unshare(self, kind: GangKind, claim: Claim) -> None:
        """What changes of a kind and claim is no longer that of another."""
        of_claim, sizes, claims = self._of_claim.get(claim), self._by_size.get(claim), self.kinds.get(kind)
        if of_claim is not None:
            of_claim = self._of_claim[claim] = dict(of_claim)
        if sizes is not None:
            sizes = self._by_size[claim] = dict(sizes)
            if kind.least.milli in sizes:
                sizes[kind.least.milli] = list(sizes[kind.least.milli])
        if claims is not None:
            claims = self.kinds[kind] = dict(claims)
            if of_claim is not None and claim in claims:
                claims[claim] = of_claim[kind] = list(claims[claim])

    def reasons(self) -> Callable[[], None]:
        """What brings back why each gang was passed over last."""
        made = self.gangs.waiting.made if self.gangs.waiting is not None else dict[int, Gang]()
        gangs, looked_at = [*self.gangs.awake.values(), *made.values()], len(made)
        kept = [gang.reason for gang in gangs]

        def recall() -> None:
            for gang in islice(made.values(), looked_at, None):
                gang.reason = None
            for gang, reason in zip(gangs, kept, strict=True):
                if gang.reason is not reason:
                    gang.reason = reason

        return recall

    def __len__(self) -> int:
        return len(self.gangs)

    def __iter__(self) -> Iterator[Gang]:
        return iter(self.gangs.every())

    @property
    def claims(self) -> Iterable[Claim]:
        """The claims of which something waits."""
        return self._of_claim

    def of_claim(self, claim: Claim) -> Mapping[GangKind, list[Gang]]:
        """The gangs of a claim by kind, each kind's first to last; not to be changed."""
        self._wake(claim)
        return self._of_claim.get(claim, {})

    def least(self, claim: Claim) -> int:
        """The least GPU (milli) with which a gang of the claim may run; very much if nothing waits."""
        least = self._least.get(claim)
        if least is None:
            least = self._least[claim] = min(self._by_size.get(claim, ()), default=NOTHING)
        return least

    def first(self, claim: Claim) -> Gang:
        """The first gang of a claim, of which something must wait."""
        number, waiting = self._asleep.get(claim), self.gangs.waiting
        if number is not None and waiting is not None:
            return waiting.gang(waiting.firsts[number])
        first = self._first.get(claim)
        if first is None:
            first = self._first[claim] = min(gangs[0] for gangs in self._by_size[claim].values())
        return first

    @property
    def highest_priority(self) -> float:
        """The highest priority of all that waits; negative infinite if nothing does."""
        return max(self._priorities, default=float("-inf"))

    def next_within(self, claim: Claim, after: Gang | None, milli: int) -> Gang | None:
        """The first gang of a claim behind ``after`` (None: of all) that may run with ``milli``.

        Ideally a walk along the claim; kept by size, it costs as many looks as there are sizes, however many wait.
        """
        number, waiting = self._asleep.get(claim), self.gangs.waiting
        if number is not None and waiting is not None:
            if self.least(claim) > milli:
                return None
            row = waiting.next_within(number, None if after is None else after.order, milli)
            return None if row is None else waiting.gang(row)
        if after is None and milli >= NOTHING and claim in self._by_size:
            return self.first(claim)
        best: Gang | None = None
        for size, gangs in self._by_size.get(claim, {}).items():
            if size > milli:
                continue
            at = 0 if after is None else bisect_right(gangs, after)
            if at < len(gangs) and (best is None or gangs[at] < best):
                best = gangs[at]
        return best

    def by_length(self, claim: Claim, kind: GangKind) -> Iterable[Sequence[Gang]]:
        """The gangs of a claim and kind, those that run equally long together, each first to last; not to be changed.

        They are put apart when that is asked for first, and kept so from then on.
        """
        claims = self._by_length.setdefault(kind, {})
        lengths = claims.get(claim)
        if lengths is None:
            lengths = claims[claim] = {}
            for gang in self.kinds[kind][claim]:
                lengths.setdefault(self._length(gang.workload), []).append(gang)
        return lengths.values()

    def shortest(self, kind: GangKind) -> tuple[float, bool]:
        """The least time limit of a kind, infinite if none has one; and whether any has none.

        Of what sleeps that is not known: it may be the shortest there could be.
        """
        if self._sleeping_kinds.get(kind):
            return 0.0, True
        known = self._shortest.get(kind)
        if known is None:
            limits = self._limits[kind]
            stated = (limit_s for limit_s in limits if limit_s is not None)
            known = self._shortest[kind] = min(stated, default=math.inf), None in limits
        return known

    def add(self, gangs: Iterable[Gang]) -> None:
        """Enter gangs into their claims."""
        gangs = list(gangs)
        for gang in gangs:
            self._wake(gang.claim)
            priority = -gang.order[0]
            self._priorities[priority] = self._priorities.get(priority, 0) + 1
        self._enter(gangs)

    def _enter(self, gangs: Iterable[Gang]) -> None:
        """Ideally one by one; here a list that many come into is put in order once."""
        together: dict[tuple[GangKind, Claim], list[Gang]] = {}
        for gang in gangs:
            key = gang.kind, gang.claim
            some = together.get(key)
            if some is None:
                together[key] = [gang]
            else:
                some.append(gang)
            self.gangs.awake[gang.workload.name] = gang
        lists: dict[int, list[Gang]] = {}
        for kind, claim in together if self._shares else ():  # all before any list is put out of order
            self._unshare(kind, claim)
        for (kind, claim), some in together.items():
            claims = self.kinds.setdefault(kind, {})
            if claim not in claims:
                claims[claim] = self._of_claim.setdefault(claim, {})[kind] = []
            for entered in (claims[claim], self._by_size.setdefault(claim, {}).setdefault(kind.least.milli, [])):
                if len(some) == 1:
                    insort(entered, some[0])
                else:
                    entered += some
                    lists[id(entered)] = entered
            self._least.pop(claim, None)
            self._first.pop(claim, None)
            self._add_lengths(kind, claim, some)
        for entered in lists.values():
            entered.sort(key=_order)

    def _add_lengths(self, kind: GangKind, claim: Claim, gangs: Sequence[Gang]) -> None:
        limits = self._limits.setdefault(kind, {})
        for gang in gangs:
            limit_s = gang.workload.time_limit_s
            if limit_s not in limits:
                limits[limit_s] = 0
                self._shortest.pop(kind, None)
            limits[limit_s] += 1
        claims = self._by_length.get(kind, {})
        if claim in claims and 16 * len(gangs) > len(self.kinds[kind][claim]):
            del claims[claim]
        elif claim in claims:
            for gang in gangs:
                insort(claims[claim].setdefault(self._length(gang.workload), []), gang)

    def _remove_length(self, gang: Gang) -> None:
        kind, claim, limit_s = gang.kind, gang.claim, gang.workload.time_limit_s
        limits = self._limits[kind]
        limits[limit_s] -= 1
        if not limits[limit_s]:
            del limits[limit_s]
            self._shortest.pop(kind, None)
            if not limits:
                del self._limits[kind]
        claims = self._by_length.get(kind, {})
        if claim in claims:
            length, lengths = self._length(gang.workload), claims[claim]
            _take_out(lengths[length], gang)
            if not lengths[length]:
                del lengths[length]
                if not lengths:
                    del claims[claim]

    def remove(self, gang: Gang) -> None:
        """Take a gang out."""
        kind, claim = gang.kind, gang.claim
        self._wake(claim)
        if self._shares:
            self._unshare(kind, claim)
        claims, kinds, sizes = self.kinds[kind], self._of_claim[claim], self._by_size[claim]
        _take_out(claims[claim], gang)
        size = kind.least.milli
        _take_out(sizes[size], gang)
        self._first.pop(claim, None)
        self._remove_length(gang)
        if not sizes[size]:
            del sizes[size]
            self._least.pop(claim, None)
        self._priorities[gang.workload.priority] -= 1
        if not self._priorities[gang.workload.priority]:
            del self._priorities[gang.workload.priority]
        if not claims[claim]:
            del claims[claim], kinds[kind]
            if not claims and not self._sleeping_kinds.get(kind):
                del self.kinds[kind]
                self._by_length.pop(kind, None)
            if not kinds:
                del self._of_claim[claim], self._by_size[claim]
        del self.gangs.awake[gang.workload.name]


def _take_out(gangs: list[Gang], gang: Gang) -> None:
    index = bisect_left(gangs, gang)
    assert gangs[index] is gang
    del gangs[index]
