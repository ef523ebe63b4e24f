"""fair-share: what was used, halved each half-life, plus what runs now, over weight, down the tree. Muster's default.

    past  = decayed GPU-seconds / (GPUs of the fleet * T / ln 2)     T the half-life
    now   = max over flavors (held / capacity)                       dominant share
    value of a node = (past + now) / share                           share = weight / weights of siblings and itself

``GPUs * T / ln 2`` is what the whole fleet would count if it had always been in use, so that both terms are parts of
the fleet, 0 to 1, and weigh the same in the long run: who has held a tenth of the fleet for many half-lives has
0.1 + 0.1. Without ``now`` a queue with a clean past would take the whole fleet at once, and only then begin to pay;
without ``past`` one that has just ended its jobs would be first again. The decay is Slurm's (PriorityDecayHalfLife).
"""

from __future__ import annotations

import math
from typing import ClassVar

from msgspec import Struct

from muster.errors import InputError
from muster.policy.ordering.decay import WEEK_S, checked_half_life
from muster.policy.ordering.protocol import OrderingView, Standing
from muster.policy.ordering.tree import ShareStanding, ShareTree


class DecayedFairShare(Struct, frozen=True):
    """Fair over time; ``half_life_s`` is the one by which the view's usage was decayed. Raises `InputError` on it."""

    name: ClassVar[str] = "fair-share"
    half_life_s: float = WEEK_S

    def __post_init__(self) -> None:
        if math.isinf(checked_half_life(self.half_life_s)):
            raise InputError("is infinite", field="half_life_s", hint="fair-share needs a half-life in seconds")

    def standing(self, view: OrderingView) -> Standing:
        """Ranks are the values of the module's formula, from the root down to the user."""
        tree = ShareTree(view)
        gpus = max(1, sum(view.capacity_milli.values())) / 1000
        always = gpus * self.half_life_s / math.log(2)
        used = tree.totals(((use.queue, use.user), use.gpu_s) for use in view.usage)
        return ShareStanding(tree, view, [gpu_s / always for gpu_s in used])
