"""The domains of a fleet's topology as arrays, and dealing out a number of pods over them.

A domain is told by its whole path: ``rack-1`` of one block is not ``rack-1`` of another. Depth 0 is the whole fleet,
depth k the k-th level of `Topology`. Nodes that name no domain at a level stand in a nameless one beside the others,
which is never a domain that a request may require and is used last where a level is only preferred.

A fleet that names no level ``host`` has one all the same: each node is a domain of it. It is below the fleet's own
levels, which go as far as `TopologyIndex.levels`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from muster.engine.state import FleetState
from muster.kernels import Ints
from muster.model.fleet import HOST, Node

Flags = npt.NDArray[np.bool_]
Depths = tuple[Ints, ...]
"""One array a depth, an entry a domain."""

_LAST = 1 << 40
_NAMELESS = 1 << 20
_NEVER = 1 << 60


class TopologyIndex:
    """Which node stands in which domain; fixed for a `FleetState`, whatever runs on it.

    Attributes:
        levels: names of the fleet's levels, widest first; without the implied ``host``.
        of_node: for each level the domain of each node (int32, in the state's tie order), -1 where it has none.
        names: for each level the names of its domains; those that occur twice carry their path. "" is the nameless.
        order: node positions along the topology: domain by domain as the fleet lists them, then as it lists nodes.
        rank: the reverse: place in ``order`` of each node.
        starts: for each depth where in ``order`` each domain starts, and the number of nodes.
        real: for each depth whether a domain has a name.
    """

    def __init__(self, state: FleetState) -> None:
        fleet = state.fleet
        self.levels = fleet.topology.levels
        number = {id(node): at for at, node in enumerate(fleet.nodes)}
        listed = np.array([number[id(node)] for node in state.node_list], np.int64)
        keys, labels = _first_seen(fleet.nodes, len(self.levels))
        at_node = [key[listed] for key in keys]
        self.order: Ints = np.lexsort([listed, *reversed(at_node)]).astype(np.int64)
        self.rank: Ints = np.empty_like(self.order)
        self.rank[self.order] = np.arange(len(self.order))
        self.groups: list[Ints] = [np.zeros(len(listed), np.int64)]
        starts = [np.array([0, len(listed)], np.int64)]
        self.real: list[Flags] = [np.ones(1, np.bool_)]
        names: list[tuple[str, ...]] = []
        for key, label in zip(at_node, labels, strict=True):
            along = key[self.order]
            new = np.flatnonzero(np.diff(along, prepend=-1))
            group = np.empty_like(along)
            group[self.order] = np.repeat(np.arange(len(new)), np.diff(new, append=len(along)))
            self.groups.append(group)
            starts.append(np.append(new, len(along)).astype(np.int64))
            self.real.append(along[new] < _LAST)
            names.append(_shown([label[int(first) % _LAST] for first in along[new]]))
        if HOST not in self.levels:
            self.groups.append(self.rank)
            starts.append(np.arange(len(listed) + 1))
            self.real.append(np.ones(len(listed), np.bool_))
            names.append(tuple(state.node_list[node].name for node in _listed(self.order)))
        self.starts: Depths = tuple(starts)
        self.names = tuple(names)
        self.of_node = tuple(
            np.where(self.real[depth][group], group, -1).astype(np.int32)
            for depth, group in enumerate(self.groups)
            if depth
        )

    def depth_of(self, level: str) -> int:
        """The depth of a level; 0 for the empty name; raises `ValueError`."""
        if level == HOST and HOST not in self.levels:
            return 1 + len(self.levels)
        return 1 + self.levels.index(level) if level else 0

    def level_of(self, depth: int) -> str:
        """The name of a level from its depth, 1 or more."""
        return self.levels[depth - 1] if depth <= len(self.levels) else HOST

    def name_of(self, depth: int, group: int) -> str:
        """Name of a domain; the fleet's for depth 0."""
        return self.names[depth - 1][group] if depth else "the fleet"

    def heads(self, depth: int) -> Ints:
        """The first node of each domain of a depth."""
        return self.order[self.starts[depth][:-1]]

    def ancestors(self, depth: int, above: int) -> Ints:
        """For each domain of ``depth`` the one of ``above`` that it is in."""
        return self.groups[above][self.heads(depth)]

    def below(self, depth: int, group: int, deeper: int) -> tuple[int, int]:
        """The domains of ``deeper`` within a domain: first and one past the last."""
        first, last = self.order[self.starts[depth][group]], self.order[self.starts[depth][group + 1] - 1]
        return int(self.groups[deeper][first]), int(self.groups[deeper][last]) + 1

    def sums(self, per_node: Ints) -> Depths:
        """Sums over the nodes of each domain, for each depth."""
        if not len(self.order):
            return tuple(np.zeros(len(starts) - 1, np.int64) for starts in self.starts)
        along = per_node[self.order]
        return tuple(np.add.reduceat(along, starts[:-1]) for starts in self.starts)

    def sums_above(self, depth: int, values: Ints) -> Depths:
        """Sums of ``values``, one a domain of ``depth``, for each depth down to this one."""
        above = (np.bincount(self.ancestors(depth, each), values, len(self.real[each])) for each in range(depth))
        return (*(total.astype(np.int64) for total in above), values)

    def capped(self, depth: int, rooms: Depths, most: Ints) -> Depths:
        """Rooms where each domain of ``depth`` takes ``most`` at most."""
        return (*self.sums_above(depth, np.minimum(rooms[depth], most)), *rooms[depth + 1 :])

    def fewest_needed(self, depth: int, deeper: int, rooms: Depths, amount: int) -> Ints:
        """For each domain of ``depth`` the least number of domains of ``deeper`` in it that hold ``amount``.

        A very large number where all together do not. Largest first is the least number, as their rooms just add up.
        The nameless are taken last and count as many.
        """
        room, parent = rooms[deeper], self.ancestors(deeper, depth)
        by_size = np.lexsort((-room, ~self.real[deeper], parent))
        room = room[by_size]
        before = np.cumsum(room) - room
        heads = np.searchsorted(parent, np.arange(len(rooms[depth])))
        taken = (before - before[heads][parent] < amount) & (room > 0)
        cost = np.where(self.real[deeper][by_size], 1, _NAMELESS)
        needed = np.add.reduceat(taken * cost, heads)
        return np.where(rooms[depth] >= amount, needed, _NEVER)


class Dealing(Struct, frozen=True):
    """What to deal out over the domains within one, and by which rules.

    Attributes:
        rooms: for each depth how much each domain takes.
        loads: for each depth what the gang has there already; such domains are preferred.
        bottom: the depth down to which it is dealt.
        preferred: the depth at which the number of domains is to be least; 0: none.
        spread: the depth over whose domains it is dealt evenly; 0: none.
        tie: for the domains of ``bottom`` a finer measure of room, for those whose rooms are equal.
    """

    rooms: Depths
    loads: Depths
    bottom: int
    preferred: int = 0
    spread: int = 0
    tie: Ints | None = None

    def deal(self, index: TopologyIndex, depth: int, group: int, amount: int) -> list[tuple[int, int]]:
        """Deal ``amount``, for which there is room, over the domains of ``bottom`` within one; in order.

        From the widest level to the narrowest: at each, the fewest domains, and of single ones that suffice the
        tightest. At ``spread`` evenly instead; ``preferred`` goes before the levels above it.
        """
        if self.bottom <= depth:
            return [(group, amount)]
        parts = [(group, amount)]
        at = depth
        if at < self.spread <= self.bottom:
            if at < self.preferred < self.spread:
                at, group = self._narrow(index, at, group, self.preferred, amount)
            parts = self._evenly(index, at, group, amount)
            at = self.spread
        if at < self.preferred <= self.bottom:
            parts = [piece for part in parts for piece in self._at_preferred(index, at, *part)]
            at = self.preferred
        for deeper in range(at + 1, self.bottom + 1):
            parts = [
                piece
                for part, share in parts
                for piece in self._fewest(index, deeper, index.below(deeper - 1, part, deeper), share)
            ]
        return sorted(parts)

    def _narrow(self, index: TopologyIndex, depth: int, group: int, deeper: int, amount: int) -> tuple[int, int]:
        """The tightest domain of ``deeper`` that holds all; the domain given if there is none."""
        low, high = index.below(depth, group, deeper)
        fits = (self.rooms[deeper][low:high] >= amount) & index.real[deeper][low:high]
        if not fits.any():
            return depth, group
        return deeper, self._tightest(deeper, low + np.flatnonzero(fits))

    def _at_preferred(self, index: TopologyIndex, depth: int, group: int, amount: int) -> list[tuple[int, int]]:
        """Over the fewest domains of the preferred level; of such choices those within the narrowest wider domain."""
        least = int(index.fewest_needed(depth, self.preferred, self.rooms, amount)[group])
        for between in range(self.preferred - 1, depth, -1):
            low, high = index.below(depth, group, between)
            needed = index.fewest_needed(between, self.preferred, self.rooms, amount)[low:high]
            good = low + np.flatnonzero((needed <= least) & index.real[between][low:high])
            if len(good):
                depth, group = between, self._tightest(between, good)
                break
        return self._fewest(index, self.preferred, index.below(depth, group, self.preferred), amount)

    def _tightest(self, depth: int, groups: Ints) -> int:
        """Of domains that suffice: one where the gang is already, then the least room, then the first."""
        room = self.rooms[depth][groups]
        finer = room if self.tie is None or depth != self.bottom else self.tie[groups]
        return int(groups[np.lexsort((groups, finer, room, self.loads[depth][groups] == 0))[0]])

    def _fewest(self, index: TopologyIndex, depth: int, span: tuple[int, int], amount: int) -> list[tuple[int, int]]:
        """Over the fewest of the domains: the largest first, and for what is left the tightest that holds it."""
        groups = np.arange(*span)
        room, real = self.rooms[depth][groups], index.real[depth][groups]
        finer = room if self.tie is None or depth != self.bottom else self.tie[groups]
        order = np.lexsort((groups, finer, self.loads[depth][groups] == 0, -room, ~real))
        parts: list[tuple[int, int]] = []
        left = amount
        free = real.copy()
        for at in order.tolist():
            if not left:
                break
            enough = free & (room >= left)
            if enough.any():
                return [*parts, (self._tightest(depth, groups[enough]), left)]
            share = min(left, int(room[at]))
            free[at] = False
            if share:
                parts.append((int(groups[at]), share))
                left -= share
        return parts

    def _evenly(self, index: TopologyIndex, depth: int, group: int, amount: int) -> list[tuple[int, int]]:
        """Water filling over the domains of ``spread``: as even as their rooms allow; the nameless get what is over."""
        low, high = index.below(depth, group, self.spread)
        real = index.real[self.spread][low:high]
        room, load = self.rooms[self.spread][low:high], self.loads[self.spread][low:high]
        named = np.where(real, room, 0)
        inside = min(amount, int(named.sum()))
        tight = np.arange(high - low)
        if self.tie is not None and self.spread == self.bottom:
            tight = np.argsort(self.tie[low:high], kind="stable")
        shares = np.zeros_like(room)
        shares[tight] = even_shares(named[tight], load[tight], inside)
        shares += even_shares(room - named, load, amount - inside)
        return [(low + int(at), int(shares[at])) for at in np.flatnonzero(shares)]


def even_shares(room: Ints, load: Ints, amount: int) -> Ints:
    """``amount`` over domains so that load + share is as even as ``room`` allows; the sum of ``room`` suffices.

    Two domains differ by at most 1, unless the lower one is full or the higher one got nothing. What remains after
    whole rounds goes to the first.
    """
    low, high = 0, int(load.max(initial=0)) + amount
    while low < high:  # the highest level that needs no more than there is
        level = (low + high + 1) // 2
        if int(np.clip(level - load, 0, room).sum()) <= amount:
            low = level
        else:
            high = level - 1
    shares = np.clip(low - load, 0, room)
    more = np.flatnonzero((shares < room) & (load + shares <= low))[: amount - int(shares.sum())]
    shares[more] += 1
    return shares


def _first_seen(nodes: Sequence[Node], depth: int) -> tuple[list[Ints], list[list[tuple[str, ...]]]]:
    """For each level a sort key of each node (its domain by first appearance, the nameless last) and their paths."""
    keys = [np.zeros(len(nodes), np.int64) for _ in range(depth)]
    paths: list[list[tuple[str, ...]]] = [[] for _ in range(depth)]
    known: list[dict[tuple[str, ...], int]] = [{} for _ in range(depth)]
    by_path: dict[tuple[str, ...], list[int]] = {}
    for at, node in enumerate(nodes):
        path = node.topology
        row = by_path.get(path)
        if row is None:
            full = (*path, *[""] * depth)[:depth]
            row = by_path[path] = []
            for level in range(depth):
                number = known[level].setdefault(full[: level + 1], len(paths[level]))
                if number == len(paths[level]):
                    paths[level].append(full[: level + 1])
                row.append(number if full[level] else number + _LAST)
        for level in range(depth):
            keys[level][at] = row[level]
    return keys, paths


def _listed(values: Ints) -> list[int]:
    return values.tolist()


def _shown(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The last name of each path, or the whole path where that name occurs more than once; "" for nameless domains."""
    counts: dict[str, int] = {}
    for path in paths:
        counts[path[-1]] = counts.get(path[-1], 0) + 1
    return tuple("/".join(path) if path[-1] and counts[path[-1]] > 1 else path[-1] for path in paths)
