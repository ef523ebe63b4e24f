"""Queues form a tree; each may hold a guaranteed quota per flavor."""

from __future__ import annotations

from msgspec import Struct


class Quota(Struct, frozen=True):
    """A queue's quota of one flavor (GPU model and purchase option), in ``gpu_milli``.

    Attributes:
        flavor: such as ``H100/reserved``.
        nominal_milli: guaranteed.
        borrowing_limit_milli: how much may be borrowed from the cohort; None is no limit.
        lending_limit_milli: how much of the nominal quota may be lent; None is all.
    """

    flavor: str
    nominal_milli: int
    borrowing_limit_milli: int | None = None
    lending_limit_milli: int | None = None


class Queue(Struct, frozen=True):
    """A node of the queue tree; ``parent`` is empty at the root."""

    name: str
    parent: str = ""
    weight: int = 1
    quotas: tuple[Quota, ...] = ()
