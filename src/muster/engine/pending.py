"""The work that waits, so kept that a cycle looks only at what could start.

Work of one claim (a queue and a user of it) that asks for the same (one kind) is in order; only the first of it can be
next. So a cycle sees heads: at most one a claim and kind, however long the queue is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence

from muster.engine.cluster import GangKind
from muster.model.reasons import Reason
from muster.model.workload import Workload

Claim = tuple[str, str]
"""A queue and a user of it."""

Order = tuple[int, float, str]
"""Within a claim: higher priority, then earlier submission, then name."""


class Gang:
    """A workload that waits: its kind, and why it was passed over last (None: it was not looked at)."""

    __slots__ = ("claim", "kind", "order", "reason", "workload")

    def __init__(self, workload: Workload, kind: GangKind) -> None:
        self.workload = workload
        self.kind = kind
        self.claim: Claim = (workload.queue, workload.user)
        self.order: Order = (-workload.priority, workload.submitted_s, workload.name)
        self.reason: Reason | None = None

    def __lt__(self, other: Gang) -> bool:
        return self.order < other.order


class Pending:
    """All gangs that wait: by kind and claim, and each claim's in order."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}
        self.kinds: dict[GangKind, dict[Claim, list[Gang]]] = {}
        self._in_order: dict[Claim, list[Gang]] = {}
        self._falls: dict[Claim, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self.gangs)

    def __iter__(self) -> Iterator[Gang]:
        return iter(self.gangs.values())

    @property
    def claims(self) -> Iterable[Claim]:
        """The claims of which something waits."""
        return self._in_order

    def in_order(self, claim: Claim) -> Sequence[Gang]:
        """The gangs of a claim, first to last; not to be changed."""
        return self._in_order.get(claim, ())

    def next_within(self, claim: Claim, start: int, milli: int) -> int:
        """The index, from ``start`` on, of the first gang of a claim that may run with ``milli``; -1: none.

        Ideally a walk along the claim. From the head on, the points where the least that was asked for so far falls
        are kept: they are few, and stay right until the claim changes.
        """
        gangs = self._in_order.get(claim, ())
        if start == 0:
            falls = self._falls.get(claim)
            if falls is None:
                falls = self._falls[claim] = []
                for index, gang in enumerate(gangs):
                    least = gang.kind.least.milli
                    if not falls or least < falls[-1][0]:
                        falls.append((least, index))
            return next((index for least, index in falls if least <= milli), -1)
        for index in range(start, len(gangs)):
            if gangs[index].kind.least.milli <= milli:
                return index
        return -1

    def add(self, gang: Gang) -> None:
        """Enter a gang into its claim."""
        claim = gang.claim
        self._falls.pop(claim, None)
        insort(self.kinds.setdefault(gang.kind, {}).setdefault(claim, []), gang)
        insort(self._in_order.setdefault(claim, []), gang)
        self.gangs[gang.workload.name] = gang

    def remove(self, gang: Gang) -> None:
        """Take a gang out."""
        claim = gang.claim
        self._falls.pop(claim, None)
        claims = self.kinds[gang.kind]
        _take_out(claims[claim], gang)
        if not claims[claim]:
            del claims[claim]
            if not claims:
                del self.kinds[gang.kind]
        _take_out(self._in_order[claim], gang)
        if not self._in_order[claim]:
            del self._in_order[claim]
        del self.gangs[gang.workload.name]


def _take_out(gangs: list[Gang], gang: Gang) -> None:
    index = bisect_left(gangs, gang)
    assert gangs[index] is gang
    del gangs[index]
