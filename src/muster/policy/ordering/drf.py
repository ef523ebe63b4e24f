"""drf: the least weighted dominant share of what runs now, level by level down the tree; the past does not count.

    value of a node = max over flavors (held by all below it / capacity) / share
    share           = its weight / the weights of its siblings and itself

Ghodsi et al., Dominant Resource Fairness (NSDI 2011), with flavors as the resources. The comparison down the tree is
the plain one, without the rescaling of H-DRF (Bhattacharya et al., SoCC 2013).
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from muster.policy.ordering.protocol import OrderingView, Standing
from muster.policy.ordering.tree import ShareStanding, ShareTree


class DominantResourceFairness(Struct, frozen=True):
    """Weighted dominant share, compared where two claimants' ancestors first differ."""

    name: ClassVar[str] = "drf"

    def standing(self, view: OrderingView) -> Standing:
        """Ranks are the values of the module's formula, from the root down to the user."""
        tree = ShareTree(view)
        return ShareStanding(tree, view, [0.0] * len(tree.parent))
