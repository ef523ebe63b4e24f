"""slurm-fair-tree: Slurm's default since 19.05. Siblings are ranked, depth first, and users counted as they are met.

    LF = S / U                S = weight / weights of siblings and itself, U = decayed use / that of siblings and itself
    F  = rank / users         the first user met has rank = number of users, the last one 1

The highest LF is visited first; without use it is infinite. Ties:

1. Sibling users of the same LF have the same rank.
2. A user with the LF of a sibling queue has the rank of that queue's first user.
3. Sibling queues of the same LF are one: their children are sorted together.

As with places in a race, a rank that n users share is followed by one n lower. Queues without users are left out.
Source: Slurm's documentation, fair_tree (Ryan Cox and Levi Morrison), and src/plugins/priority/multifactor/fair_tree.c.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from muster.policy.ordering.protocol import Claim, FixedStanding, OrderingView, Standing
from muster.policy.ordering.tree import ShareTree, same_if_near


class SlurmFairTree(Struct, frozen=True):
    """Slurm's Fair Tree."""

    name: ClassVar[str] = "slurm-fair-tree"

    def standing(self, view: OrderingView) -> Standing:
        """How many users are ahead of each."""
        tree = ShareTree(view)
        places = _places(tree, level_fair_shares(tree, view))
        return FixedStanding({claim: (float(places[node]),) for claim, node in tree.users.items()})

    def factors(self, view: OrderingView) -> dict[Claim, float]:
        """F of each user, above 0 to 1, as ``sshare`` shows it."""
        ranks = self.standing(view).ranks()
        return {claim: (len(ranks) - rank[0]) / len(ranks) for claim, rank in ranks.items()}


def level_fair_shares(tree: ShareTree, view: OrderingView) -> list[float]:
    """LF of each node: below 1 it is over-served; infinite without use."""
    raw = tree.totals(((use.queue, use.user), use.gpu_s) for use in view.usage)
    everything = sum(raw[root] for root in tree.roots)
    level = [math.inf] * len(raw)
    for node, use in enumerate(raw):
        if use > 0:
            above = tree.parent[node]
            level[node] = same_if_near(tree.share[node] * (raw[above] if above >= 0 else everything) / use)
    return level


def _places(tree: ShareTree, level: list[float]) -> dict[int, int]:
    """How many users are ahead of each user, by the rules above."""
    users = set(tree.users.values())
    populated = set(users)
    for node in reversed(tree.order):
        if node in populated and tree.parent[node] >= 0:
            populated.add(tree.parent[node])

    def ties(siblings: Iterable[int]) -> list[tuple[list[int], bool]]:
        """Groups to visit in turn, and whether each ties with the one before: a user, or all tied queues as one."""
        wanted = sorted((n for n in siblings if n in populated), key=lambda n: (-level[n], n not in users))
        groups: list[tuple[list[int], bool]] = []
        for _, tied in itertools.groupby(wanted, key=lambda n: level[n]):
            nodes = list(tied)
            found = [[n] for n in nodes if n in users]
            queues = [n for n in nodes if n not in users]
            found += [queues] if queues else []
            groups += [(group, number > 0) for number, group in enumerate(found)]
        return groups

    places: dict[int, int] = {}
    place = 0
    pending = [*reversed(ties(tree.roots))]
    while pending:
        group, tied = pending.pop()
        if group[0] in users:
            place = place if tied else len(places)
            places[group[0]] = place
            continue
        below = ties(child for queue in group for child in tree.children[queue])
        if below:  # the first of them inherits the tie of the queue itself
            below[0] = (below[0][0], tied)
        pending.extend(reversed(below))
    return places
