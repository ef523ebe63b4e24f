"""The work that waits, so kept that a cycle looks only at what could start.

Work of one queue that asks for the same (one kind) is in order; only the first of it can be next. So a cycle sees
heads: at most one a queue and kind, however long the queue is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence

from muster.engine.cluster import GangKind
from muster.model.reasons import Reason
from muster.model.workload import Workload

Order = tuple[int, float, str]
"""Within a queue: higher priority, then earlier submission, then name."""


class Gang:
    """A workload that waits: its kind, and why it was passed over last (None: it was not looked at)."""

    __slots__ = ("kind", "order", "reason", "workload")

    def __init__(self, workload: Workload, kind: GangKind) -> None:
        self.workload = workload
        self.kind = kind
        self.order: Order = (-workload.priority, workload.submitted_s, workload.name)
        self.reason: Reason | None = None

    def __lt__(self, other: Gang) -> bool:
        return self.order < other.order


class Pending:
    """All gangs that wait: by kind and queue, and each queue in order."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}
        self.kinds: dict[GangKind, dict[str, list[Gang]]] = {}
        self._in_order: dict[str, list[Gang]] = {}
        self._kinds_of: dict[str, dict[GangKind, None]] = {}
        self._falls: dict[str, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self.gangs)

    def __iter__(self) -> Iterator[Gang]:
        return iter(self.gangs.values())

    @property
    def queues(self) -> Iterable[str]:
        """The queues in which something waits."""
        return self._in_order

    def in_order(self, queue: str) -> Sequence[Gang]:
        """The gangs of a queue, first to last; not to be changed."""
        return self._in_order.get(queue, ())

    def next_within(self, queue: str, start: int, milli: int) -> int:
        """The index, from ``start`` on, of the first gang of a queue that asks for at most ``milli``; -1: none.

        Ideally a walk along the queue. From the head on, the points where the least that was asked for so far falls
        are kept: they are few, and stay right until the queue changes.
        """
        gangs = self._in_order.get(queue, ())
        if start == 0:
            falls = self._falls.get(queue)
            if falls is None:
                falls = self._falls[queue] = []
                for index, gang in enumerate(gangs):
                    if not falls or gang.kind.milli < falls[-1][0]:
                        falls.append((gang.kind.milli, index))
            return next((index for least, index in falls if least <= milli), -1)
        for index in range(start, len(gangs)):
            if gangs[index].kind.milli <= milli:
                return index
        return -1

    def kinds_of(self, queue: str) -> Iterable[GangKind]:
        """The kinds of gangs that wait in a queue."""
        return self._kinds_of.get(queue, ())

    def add(self, gang: Gang) -> None:
        """Enter a gang into its queue."""
        queue = gang.workload.queue
        self._falls.pop(queue, None)
        insort(self.kinds.setdefault(gang.kind, {}).setdefault(queue, []), gang)
        insort(self._in_order.setdefault(queue, []), gang)
        self._kinds_of.setdefault(queue, {})[gang.kind] = None
        self.gangs[gang.workload.name] = gang

    def remove(self, gang: Gang) -> None:
        """Take a gang out."""
        queue = gang.workload.queue
        self._falls.pop(queue, None)
        queues = self.kinds[gang.kind]
        _take_out(queues[queue], gang)
        if not queues[queue]:
            del queues[queue], self._kinds_of[queue][gang.kind]
            if not queues:
                del self.kinds[gang.kind]
        _take_out(self._in_order[queue], gang)
        if not self._in_order[queue]:
            del self._in_order[queue], self._kinds_of[queue]
        del self.gangs[gang.workload.name]


def _take_out(gangs: list[Gang], gang: Gang) -> None:
    index = bisect_left(gangs, gang)
    assert gangs[index] is gang
    del gangs[index]
