"""Queues form a tree; each may hold a guaranteed quota per flavor."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

ALL_THERE_IS_MILLI = 10**12
"""A nominal quota of all GPUs that there are, however many: it keeps nothing waiting that has room on nodes."""


class Quota(Struct, frozen=True):
    """A queue's quota of one flavor (GPU model and purchase option), in ``gpu_milli``.

    Attributes:
        flavor: such as ``H100/reserved``.
        nominal_milli: guaranteed; ALL_THERE_IS_MILLI where nothing is limited.
        borrowing_limit_milli: how much may be borrowed from the cohort; None is no limit.
        lending_limit_milli: how much of the nominal quota may be lent; None is all.
    """

    flavor: str
    nominal_milli: int
    borrowing_limit_milli: int | None = None
    lending_limit_milli: int | None = None


class Queue(Struct, frozen=True):
    """A node of the queue tree; ``parent`` is empty at the root.

    Attributes:
        weight: share among its siblings.
        quotas: one a flavor; a queue without any is limited by its ancestors only.
        min_runtime_s: work of this queue is not stopped for others before it has run so long.
        max_running_milli: most GPU that each user of the queue may hold at a time.
        max_priority: work of a higher priority counts as of this one; None: there is no limit.
        reclaim_s: how long it takes at most until lent GPUs are back and do the queue's own work.
        ramp_milli_per_s: how fast what the queue needs may grow, in milli GPU a second. What it may need within
            ``reclaim_s`` is never lent: `headroom_milli`, of each flavor of which it has a quota.
        when_can_borrow: whether work borrows of a flavor before the next one is tried, or only when it fits nowhere
            without a loan.
        when_can_preempt: whether others are stopped on a flavor before the next one is tried, or only when it fits
            nowhere without.
        tenant: the tenant of its work and of all queues below it that name none: see `PodShape.tenant`.
    """

    name: str
    parent: str = ""
    weight: float = 1.0
    quotas: tuple[Quota, ...] = ()
    min_runtime_s: float = 0.0
    max_running_milli: int | None = None
    max_priority: int | None = None
    reclaim_s: float = 0.0
    ramp_milli_per_s: float = 0.0
    when_can_borrow: Literal["borrow", "try-next-flavor"] = "borrow"
    when_can_preempt: Literal["preempt", "try-next-flavor"] = "try-next-flavor"
    tenant: str = ""

    @property
    def headroom_milli(self) -> int:
        """GPU beyond what it uses that is not lent, as it may be needed before a loan could be back."""
        return math.ceil(self.reclaim_s * self.ramp_milli_per_s)
