"""The work that waits, so kept that a cycle looks only at what could start.

Work of one claim (a queue and a user of it) that asks for the same (one kind) is in order; only the first of it can be
next. So a cycle sees heads: at most one a claim and kind, however long the queue is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from muster.engine.cluster import GangKind
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


class Pending:
    """All gangs that wait: by kind and claim, by claim and kind, and by claim and the least GPU that they run with."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}
        self.kinds: dict[GangKind, dict[Claim, list[Gang]]] = {}
        self._of_claim: dict[Claim, dict[GangKind, list[Gang]]] = {}
        self._by_size: dict[Claim, dict[int, list[Gang]]] = {}
        self._least: dict[Claim, int] = {}
        self._priorities: dict[int, int] = {}
        self._shares = False

    def copy(self) -> Pending:
        """What may be changed while this one is not: it copies what it changes, when it changes it."""
        twin = Pending()
        twin.gangs, twin.kinds, twin._least = dict(self.gangs), dict(self.kinds), dict(self._least)
        twin._of_claim, twin._by_size = dict(self._of_claim), dict(self._by_size)
        twin._priorities = dict(self._priorities)
        twin._shares = True
        return twin

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
        gangs = list(self.gangs.values())
        kept = [gang.reason for gang in gangs]

        def recall() -> None:
            for gang, reason in zip(gangs, kept, strict=True):
                if gang.reason is not reason:
                    gang.reason = reason

        return recall

    def __len__(self) -> int:
        return len(self.gangs)

    def __iter__(self) -> Iterator[Gang]:
        return iter(self.gangs.values())

    @property
    def claims(self) -> Iterable[Claim]:
        """The claims of which something waits."""
        return self._of_claim

    def of_claim(self, claim: Claim) -> Mapping[GangKind, list[Gang]]:
        """The gangs of a claim by kind, each kind's first to last; not to be changed."""
        return self._of_claim.get(claim, {})

    def least(self, claim: Claim) -> int:
        """The least GPU (milli) with which a gang of the claim may run; very much if nothing waits."""
        least = self._least.get(claim)
        if least is None:
            least = self._least[claim] = min(self._by_size.get(claim, ()), default=NOTHING)
        return least

    def first(self, claim: Claim) -> Gang:
        """The first gang of a claim, of which something must wait."""
        return min(gangs[0] for gangs in self._by_size[claim].values())

    @property
    def highest_priority(self) -> float:
        """The highest priority of all that waits; negative infinite if nothing does."""
        return max(self._priorities, default=float("-inf"))

    def next_within(self, claim: Claim, after: Gang | None, milli: int) -> Gang | None:
        """The first gang of a claim behind ``after`` (None: of all) that may run with ``milli``.

        Ideally a walk along the claim; kept by size, it costs as many looks as there are sizes, however many wait.
        """
        best: Gang | None = None
        for size, gangs in self._by_size.get(claim, {}).items():
            if size > milli:
                continue
            at = 0 if after is None else bisect_right(gangs, after)
            if at < len(gangs) and (best is None or gangs[at] < best):
                best = gangs[at]
        return best

    def add(self, gangs: Iterable[Gang]) -> None:
        """Enter gangs into their claims. Ideally one by one; here a list that many come into is put in order once."""
        together: dict[tuple[GangKind, Claim], list[Gang]] = {}
        for gang in gangs:
            key = gang.kind, gang.claim
            some = together.get(key)
            if some is None:
                together[key] = [gang]
            else:
                some.append(gang)
            self.gangs[gang.workload.name] = gang
            priority = -gang.order[0]
            self._priorities[priority] = self._priorities.get(priority, 0) + 1
        lists: dict[int, list[Gang]] = {}
        for (kind, claim), some in together.items():
            if self._shares:
                self._unshare(kind, claim)
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
        for entered in lists.values():
            entered.sort(key=_order)

    def remove(self, gang: Gang) -> None:
        """Take a gang out."""
        kind, claim = gang.kind, gang.claim
        if self._shares:
            self._unshare(kind, claim)
        claims, kinds, sizes = self.kinds[kind], self._of_claim[claim], self._by_size[claim]
        _take_out(claims[claim], gang)
        size = kind.least.milli
        _take_out(sizes[size], gang)
        if not sizes[size]:
            del sizes[size]
            self._least.pop(claim, None)
        self._priorities[gang.workload.priority] -= 1
        if not self._priorities[gang.workload.priority]:
            del self._priorities[gang.workload.priority]
        if not claims[claim]:
            del claims[claim], kinds[kind]
            if not claims:
                del self.kinds[kind]
            if not kinds:
                del self._of_claim[claim], self._by_size[claim]
        del self.gangs[gang.workload.name]


def _take_out(gangs: list[Gang], gang: Gang) -> None:
    index = bisect_left(gangs, gang)
    assert gangs[index] is gang
    del gangs[index]
