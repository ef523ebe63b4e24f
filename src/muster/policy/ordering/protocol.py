"""What an ordering policy is shown, and what it answers: a rank for each queue and user, compared in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from msgspec import Struct

from muster.model.queue import Queue
from muster.model.snapshot import Usage
from muster.model.workload import Workload

Claim = tuple[str, str]
"""A queue and a user of it, who has work pending or had some."""

Rank = tuple[float, ...]
"""Compared element by element; the smaller comes first. Equal ranks are a tie, which age decides."""


class Held(Struct, frozen=True):
    """What a user of a queue holds now of one flavor, in ``gpu_milli``."""

    queue: str
    user: str
    flavor: str
    milli: int


class OrderingView(Struct, frozen=True):
    """All that an order may depend on, at one instant.

    Attributes:
        queues: the tree, with weights.
        claimants: who has work pending: each gets a rank.
        usage: GPU-seconds used in the past, decayed to this instant.
        held: what runs now.
        capacity_milli: healthy ``gpu_milli`` of each flavor.
    """

    queues: tuple[Queue, ...] = ()
    claimants: tuple[Claim, ...] = ()
    usage: tuple[Usage, ...] = ()
    held: tuple[Held, ...] = ()
    capacity_milli: Mapping[str, int] = {}


def claims_of(view: OrderingView) -> list[Claim]:
    """All who get a rank, sorted: those with pending work, and those who have used or hold something."""
    claims = {*view.claimants}
    claims.update((use.queue, use.user) for use in view.usage)
    claims.update((held.queue, held.user) for held in view.held)
    return sorted(claims)


class Standing(Protocol):
    """How claimants stand; it is asked again and again while a cycle hands out GPUs, each answer O(depth)."""

    def rank(self, claim: Claim) -> Rank:
        """The rank now; KeyError for a claim that the view did not have."""
        ...

    def hold(self, claim: Claim, flavor: str, milli: int) -> None:
        """The claim holds ``milli`` more of a flavor now; negative: less. Policies that look at the past ignore it."""
        ...

    def ranks(self) -> dict[Claim, Rank]:
        """The rank of each claimant, and of each other user who has used or holds something."""
        ...


class OrderingPolicy(Protocol):
    """A pure function of the view. Promised of each policy, and tested:

    - every claimant gets a rank, and all ranks have the same length;
    - the order of anything in the view does not matter;
    - nor does a common factor of all weights, unless users, who weigh 1, are siblings of queues;
    - more usage, or more held, never moves a claimant ahead of another;
    - to hold more, and less again, leaves the ranks as they were.
    """

    name: ClassVar[str]

    def standing(self, view: OrderingView) -> Standing:
        """How the claimants stand at the view's instant."""
        ...


class FixedStanding:
    """Ranks that what is held now does not change."""

    def __init__(self, ranks: dict[Claim, Rank]) -> None:
        self._ranks = ranks

    def rank(self, claim: Claim) -> Rank:
        """The rank; KeyError for an unknown claim."""
        return self._ranks[claim]

    def hold(self, claim: Claim, flavor: str, milli: int) -> None:
        """Nothing."""

    def ranks(self) -> dict[Claim, Rank]:
        """A copy of all ranks."""
        return dict(self._ranks)


def pending_key(workload: Workload, ranks: Mapping[Claim, Rank]) -> tuple[int, Rank, float, str]:
    """Sort pending work by this: priority class, then the policy's rank, then age, then name."""
    return (-workload.priority, ranks[workload.queue, workload.user], workload.submitted_s, workload.name)
