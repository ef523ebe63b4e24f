"""The tree of queues with their users as leaves, and sums and shares over it: what the hierarchical policies share.

Queues and users below the same queue are siblings, and so are all roots. A user weighs 1. A queue that is not in the
tree, as where a snapshot has no queues, counts as a root of weight 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.errors import InputError
from muster.policy.ordering.protocol import Claim, OrderingView, Rank, claims_of


class ShareTree:
    """Nodes are numbered: queues first, then users. Cost: O(nodes) for each sum.

    Attributes:
        parent: of each node; -1 at a root.
        users: the node of each claim, in a stable order.
        share: of each node, its weight over the sum of the weights of its siblings and itself.
        order: all nodes, each after its parent.
    """

    def __init__(self, view: OrderingView) -> None:
        claims = claims_of(view)
        queues = {queue.name: (queue.parent, queue.weight) for queue in sorted(view.queues, key=lambda q: q.name)}
        for name in sorted({queue for queue, _ in claims} - queues.keys()):
            queues[name] = ("", 1.0)
        index = {name: number for number, name in enumerate(queues)}
        self.parent = [index.get(parent, -1) if parent else -1 for parent, _ in queues.values()]
        weights = [weight for _, weight in queues.values()]
        self.users: dict[Claim, int] = {}
        for claim in claims:
            self.users[claim] = len(self.parent)
            self.parent.append(index[claim[0]])
            weights.append(1.0)
        self.children: list[list[int]] = [[] for _ in self.parent]
        self.roots: list[int] = []
        for node, above in enumerate(self.parent):
            (self.children[above] if above >= 0 else self.roots).append(node)
        self.order = list(self.roots)
        for node in self.order:
            self.order.extend(self.children[node])
        if len(self.order) < len(self.parent):
            raise InputError("the parents form a cycle", field="queues")
        self.share = [1.0] * len(self.parent)
        for siblings in (self.roots, *self.children):
            total = sum(weights[node] for node in siblings)
            for node in siblings:
                self.share[node] = weights[node] / total

    def path(self, node: int) -> list[int]:
        """From the root down to the node."""
        path = [node]
        while self.parent[path[-1]] >= 0:
            path.append(self.parent[path[-1]])
        return path[::-1]

    def totals(self, amounts: Iterable[tuple[Claim, float]]) -> list[float]:
        """Sum up the amounts of users; each node's is the sum over all below it."""
        total: list[float] = [0.0] * len(self.parent)
        for claim, amount in amounts:
            total[self.users[claim]] += amount
        for node in reversed(self.order):
            above = self.parent[node]
            if above >= 0:
                total[above] += total[node]
        return total


class ShareStanding:
    """Parts of the fleet over share, compared where two claimants' ancestors first differ.

    The value of a node is ``(past + max over flavors (held / capacity)) / share``, and a rank the values from the root
    down to the user. Where these tie, the values below decide, across both. Ranks are filled up with 0 to the same
    length: a user that ties with a queue beside it is like the first in that queue.

    Args:
        past: of each node, what it used in the past as a part of the fleet.
    """

    def __init__(self, tree: ShareTree, view: OrderingView, past: Sequence[float]) -> None:
        self._tree = tree
        self._past = past
        self._capacity = view.capacity_milli
        by_flavor: dict[str, list[tuple[Claim, float]]] = {}
        for held in view.held:
            by_flavor.setdefault(held.flavor, []).append(((held.queue, held.user), held.milli))
        self._held = {flavor: (self._size(flavor), tree.totals(by_flavor[flavor])) for flavor in by_flavor}
        homes = {tree.parent[node] for node in tree.users.values()}
        self._length = 1 + max((len(tree.path(home)) for home in homes), default=0)
        self._known: list[float | None] = [None] * len(tree.parent)
        self._paths: dict[Claim, tuple[int, ...]] = {}
        roots = [node for node, above in enumerate(tree.parent) if above < 0]
        self._only_root = roots[0] if len(roots) == 1 else -1

    def _size(self, flavor: str) -> int:
        return max(1, self._capacity.get(flavor, 0))

    def _value(self, node: int) -> float:
        known = self._known[node]
        if known is None:
            known = self._known[node] = self._computed(node)
        return known

    def _computed(self, node: int) -> float:
        if node == self._only_root:
            return 0.0  # everybody is below it
        dominant = 0.0
        for capacity, held in self._held.values():
            if held[node] > dominant * capacity:
                dominant = held[node] / capacity
        return same_if_near((self._past[node] + dominant) / self._tree.share[node])

    def rank(self, claim: Claim) -> Rank:
        """The values down to the user; KeyError for an unknown claim."""
        path = self._paths.get(claim)
        if path is None:
            path = self._paths[claim] = tuple(self._tree.path(self._tree.users[claim]))
        return tuple(map(self._value, path)) + (0.0,) * (self._length - len(path))

    def hold(self, claim: Claim, flavor: str, milli: int) -> None:
        """Count ``milli`` more of a flavor as held by the user and all queues above."""
        node = self._tree.users[claim]
        if flavor not in self._held:
            self._held[flavor] = (self._size(flavor), [0.0] * len(self._tree.parent))
        held = self._held[flavor][1]
        while node >= 0:
            held[node] += milli
            self._known[node] = None
            node = self._tree.parent[node]

    def ranks(self) -> dict[Claim, Rank]:
        """All ranks; each node's value is computed once."""
        tree = self._tree
        paths: list[Rank] = [()] * len(tree.parent)
        for node in tree.order:
            above = tree.parent[node]
            paths[node] = (*paths[above], self._value(node)) if above >= 0 else (self._value(node),)
        return {claim: paths[node] + (0.0,) * (self._length - len(paths[node])) for claim, node in tree.users.items()}


def same_if_near(value: float) -> float:
    """Twelve significant digits: equal shares that were summed up in different ways are to tie."""
    return float(f"{value:.12g}")
