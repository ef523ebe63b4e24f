"""slurm-classic: Slurm's fair-share factor before Fair Tree (PriorityFlags=NO_FAIR_TREE), of each user.

    F  = 2^(-UE / S / d)                                       d: FairShareDampeningFactor
    UE = U + (UE of the parent - U) * share                    share = weight / weights of siblings and itself
    UE = U in the first tier
    S  = product of the shares from the first tier down to the user
    U  = decayed use / the decayed use of all

The highest F is first. Source: Slurm's documentation, classic_fair_share. A single root queue is Slurm's root account,
and no tier.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from muster.errors import InputError
from muster.policy.ordering.protocol import Claim, FixedStanding, OrderingView, Standing
from muster.policy.ordering.tree import ShareTree, same_if_near


class SlurmClassic(Struct, frozen=True):
    """Slurm's classic fair share.

    Attributes:
        dampening: FairShareDampeningFactor, above 0; more makes differences of use smaller.
        total_gpu_s: what U is a part of; None is the use of all, as in Slurm. The example in Slurm's documentation
            states use as a part of the machine, which is 1.
    """

    name: ClassVar[str] = "slurm-classic"
    dampening: float = 1.0
    total_gpu_s: float | None = None

    def __post_init__(self) -> None:
        if not self.dampening > 0:
            raise InputError(f"is {self.dampening:g}", field="dampening", hint="a number above 0")
        if self.total_gpu_s is not None and not self.total_gpu_s > 0:
            raise InputError(f"is {self.total_gpu_s:g}", field="total_gpu_s", hint="GPU-seconds, above 0")

    def standing(self, view: OrderingView) -> Standing:
        """``UE / S / d`` of each user: it orders as F does, and does not vanish where F would be 0."""
        tree = ShareTree(view)
        raw = tree.totals(((use.queue, use.user), use.gpu_s) for use in view.usage)
        total = self.total_gpu_s or sum(raw[root] for root in tree.roots) or 1.0
        effective = [use / total for use in raw]
        norm = list(tree.share)
        root = tree.roots[0] if len(tree.roots) == 1 else -1
        for node in tree.order:
            above = tree.parent[node]
            if above >= 0:
                norm[node] *= norm[above]
                if above != root:
                    effective[node] += (effective[above] - effective[node]) * tree.share[node]
        return FixedStanding(
            {claim: (same_if_near(effective[n] / norm[n] / self.dampening),) for claim, n in tree.users.items()}
        )

    def factors(self, view: OrderingView) -> dict[Claim, float]:
        """F of each user, 0 to 1, as ``sshare`` shows it."""
        return {claim: 2.0 ** -rank[0] for claim, rank in self.standing(view).ranks().items()}
