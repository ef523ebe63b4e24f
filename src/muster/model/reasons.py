"""Why a pod cannot use a node, and why a workload waits: one closed list, with tiers.

The same reasons feed the command line, the HTTP API, events and metrics.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from msgspec import Struct


class Tier(IntEnum):
    """How far a reason is from being solved by itself; the lower tier is told first."""

    MISCONFIGURED = 0
    IMPOSSIBLE = 1
    OVER_LIMIT = 2
    WAITING_FOR_QUOTA = 3
    WAITING_FOR_CAPACITY = 4
    WAITING_FOR_PREEMPTION = 5
    GATED = 6


class Reason(Enum):
    """One cause: ``bit`` is its place in a mask, ``text`` its wording.

    Those below WORKLOAD_BIT are why a node refuses a pod, the others why a whole workload waits.
    """

    UNSCHEDULABLE = (0, Tier.MISCONFIGURED, "node is cordoned, drained or not ready")
    SELECTOR = (1, Tier.MISCONFIGURED, "node lacks a label of the node selector")
    TAINT = (2, Tier.MISCONFIGURED, "node has a taint that the pod does not tolerate")
    SPARE = (11, Tier.MISCONFIGURED, "node is a spare, kept for replacements")
    UNKNOWN_QUEUE = (17, Tier.MISCONFIGURED, "its queue does not exist")
    NO_FLAVOR = (18, Tier.MISCONFIGURED, "no flavor that it may use has a quota in its queue")
    GPU_MODEL = (3, Tier.IMPOSSIBLE, "GPU model is not one that the pod allows")
    GPU_COUNT = (4, Tier.IMPOSSIBLE, "node has fewer healthy GPUs than the pod asks for")
    CPU_TOTAL = (5, Tier.IMPOSSIBLE, "node has less CPU in all than the pod asks for")
    MEMORY_TOTAL = (6, Tier.IMPOSSIBLE, "node has less memory in all than the pod asks for")
    SHARING_MODE = (14, Tier.IMPOSSIBLE, "its GPUs cannot be shared in the way that the pod asks for")
    NEVER_FITS = (16, Tier.IMPOSSIBLE, "it does not fit even on the empty fleet")
    OVER_LIMIT = (19, Tier.OVER_LIMIT, "its user or queue holds as much as it may")
    OVER_QUOTA = (20, Tier.OVER_LIMIT, "it is larger than all that its queue could ever borrow")
    QUOTA = (21, Tier.WAITING_FOR_QUOTA, "its queue's quota is used and no more can be borrowed now")
    GPU_FREE = (7, Tier.WAITING_FOR_CAPACITY, "too little GPU is free")
    GPU_SHAPE = (8, Tier.WAITING_FOR_CAPACITY, "enough GPU is free in all, but not on single devices")
    MIG_START = (12, Tier.WAITING_FOR_CAPACITY, "enough of a GPU is free for the MIG slice, but not at a legal start")
    GPU_SHARED = (13, Tier.WAITING_FOR_CAPACITY, "enough GPU is free, but on GPUs that others share or that are split")
    CPU_FREE = (9, Tier.WAITING_FOR_CAPACITY, "too little CPU is free")
    MEMORY_FREE = (10, Tier.WAITING_FOR_CAPACITY, "too little memory is free")
    POD_COUNT = (15, Tier.WAITING_FOR_CAPACITY, "node has as many pods as it may")
    CAPACITY = (22, Tier.WAITING_FOR_CAPACITY, "its pods do not all fit at once")
    ONE_DOMAIN = (23, Tier.WAITING_FOR_CAPACITY, "its pods fit, but not in one domain of the level that it requires")
    APART = (28, Tier.WAITING_FOR_CAPACITY, "its pods fit, but not as far apart as it requires")
    OTHER_PODS = (29, Tier.WAITING_FOR_CAPACITY, "its own or other pods' rules about each other close nodes to it")
    RESERVED = (24, Tier.WAITING_FOR_CAPACITY, "it would delay work that is ahead of it and has a reserved start")
    EVICTING = (25, Tier.WAITING_FOR_PREEMPTION, "work that was stopped for it has not ended yet")
    DEPENDENCY = (26, Tier.GATED, "it depends on work that has not finished")
    HELD = (27, Tier.GATED, "it is held until a time that has not come")

    def __init__(self, bit: int, tier: Tier, text: str) -> None:
        self.bit = bit
        self.tier = tier
        self.text = text

    @property
    def mask(self) -> int:
        """The reason as a one-bit mask."""
        return 1 << self.bit


NO_ROOM = (Reason.CAPACITY, Reason.ONE_DOMAIN, Reason.APART)
"""Why the cycle finds no place for a workload now that has its quota."""


def reasons_of(mask: int) -> tuple[Reason, ...]:
    """The reasons in a refusal mask, in the order of their tiers."""
    return tuple(reason for reason in Reason if mask & reason.mask)


WORKLOAD_BIT = 16
"""Reasons from this bit on are a whole workload's, not a node's."""


class Refusal(Struct, frozen=True):
    """How many nodes refused a shape for one combination of reasons."""

    reasons: tuple[Reason, ...]
    nodes: int
    examples: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """What became of a shape on all nodes: ``feasible`` + the refusals sum up to ``nodes``."""

    nodes: int
    feasible: int
    refusals: tuple[Refusal, ...] = ()

    @property
    def dominant(self) -> Reason | None:
        """The reason that refused most nodes; a tie goes to the earlier tier. None if any node is feasible."""
        if self.feasible:
            return None
        counted: dict[Reason, int] = {}
        for refusal in self.refusals:
            for reason in refusal.reasons:
                counted[reason] = counted.get(reason, 0) + refusal.nodes
        return max(counted, key=lambda reason: (counted[reason], -reason.bit)) if counted else None
