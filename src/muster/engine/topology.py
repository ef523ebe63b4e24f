"""Placing a gang under a `TopologyRequest`: the whole gang in the right place, or nothing.

The order of choices, each among what the one before leaves open:

1. With ``required``, each unit (a segment of pods, or the whole gang) stands in one domain of that level. Only domains
   with room for all its pods are looked at; of these the one in which the pods need the fewest ``preferred`` domains,
   then the tightest (the least room: large domains stay whole), then the first. Several segments take the fewest
   domains of each wider level.
2. Within it, from the widest level to the narrowest: the fewest domains, the tightest single one that suffices.
   ``preferred`` goes before levels above it. ``spread`` deals evenly over its level instead, at most ``at_most`` pods
   to a domain.
3. On the nodes of the narrowest domain: the placer's policy, nodes and devices.
4. Ranks: pods are returned in order along the topology, so that neighbours in rank stand near each other. Only a
   last segment that is shorter stays last, wherever it stands.

For one shape a refusal is exact: rooms of nodes add up. So it is for sets of different shapes of whole GPUs in one
``host``, and for those of which a domain takes one pod (``at_most`` 1, no segments): `apart.one_each`. Else sets of
different shapes that share a domain are tried, the largest first, in each domain that has room for each of them alone;
that may miss a place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.apart import one_each
from muster.engine.domains import Dealing, Depths, Flags, TopologyIndex, even_shares
from muster.engine.grains import Grains, choices_of, deal, rounded
from muster.engine.kernels.domains import node_rooms
from muster.engine.placement import Placer
from muster.engine.requests import GangPlacement, Refused, check_request
from muster.engine.state import Allocation
from muster.kernels import Ints, direct
from muster.model.fleet import HOST
from muster.model.parallelism import RankGroups
from muster.model.reasons import Reason
from muster.model.workload import TopologyRequest

MOST_PER_NODE = 1 << 20
"""Room that is counted on one node for pods that ask for nothing."""

_rooms = direct(node_rooms)


def place_gang(
    placer: Placer,
    index: TopologyIndex,
    pods: Sequence[tuple[int, int]],
    request: TopologyRequest | None,
    field: str = "topology",
    groups: RankGroups | None = None,
) -> GangPlacement | Refused:
    """Place ``(shape, count)`` for each pod set under a request: all, or none with the state as it was.

    Args:
        placer: the policy and the state.
        index: of the placer's state.
        pods: shape ids of the state, and how many pods of each; one entry a pod set.
        request: None places under the policy alone; ranks follow the topology all the same.
        field: path of the request in the input, for errors.
        groups: which pods of the gang belong together as their ranks do; they are those of the one shape with GPUs.

    Raises:
        InputError: an unknown level, or a request that contradicts itself; before anything is looked at.
    """
    check_request(placer.state.fleet.topology, request, field)
    gang = _Gang(placer, index, pods, request or TopologyRequest(), groups or RankGroups())
    with placer.state.trial() as trial:
        refused = gang.place()
        if refused is not None:
            return refused
        trial.keep()
    return gang.placement()


_Parts = tuple[tuple[int, int, int], ...]
"""Pods that belong together: (pod set, shape, count) each."""


class _Units(Struct):
    """Runs of pods that are alike: ``times`` units of the same parts, each of which stays in one required domain."""

    parts: _Parts
    times: int
    placed: list[list[tuple[int, Allocation]]]
    """For each unit its (pod set, allocation), in order along the topology."""

    @property
    def size(self) -> int:
        return sum(count for _, _, count in self.parts)

    @property
    def by_shape(self) -> dict[int, int]:
        """Pods of each shape in one unit, the largest shape's first as `parts` has them."""
        counted: dict[int, int] = {}
        for _, shape, count in self.parts:
            counted[shape] = counted.get(shape, 0) + count
        return counted


class _Gang:
    """One gang on its way to its places."""

    def __init__(
        self, placer: Placer, index: TopologyIndex, pods: Sequence[tuple[int, int]], request: TopologyRequest,
        groups: RankGroups,
    ) -> None:  # fmt: skip
        self.placer, self.index, self.request = placer, index, request
        self.state = placer.state
        self.sets = tuple(pods)
        self.required = index.depth_of(request.required)
        self.preferred = index.depth_of(request.preferred)
        self.spread = index.depth_of(request.spread)
        self.groups = groups
        self.grains: Grains = ()
        asked = max(self.required, self.preferred, self.spread)
        self.bottom = max(len(index.levels), asked) if asked else 0
        self.classes = self._classes()
        self.load: Ints = np.zeros(len(index.order), np.int64)

    @property
    def pods(self) -> int:
        return sum(count for _, count in self.sets)

    def _classes(self) -> list[_Units]:
        """The pods in order, cut into segments; segments in a row that are alike in one entry."""
        size = self.request.segment or max(self.pods, 1)
        runs: list[tuple[_Parts, int]] = []
        parts: list[tuple[int, int, int]] = []
        left = size
        for number, (shape, count) in enumerate(self.sets):
            while count:
                if not parts and count >= size:
                    runs.append((((number, shape, size),), count // size))
                    count %= size
                    continue
                share = min(count, left)
                parts.append((number, shape, share))
                count, left = count - share, left - share
                if not left:
                    runs.append((self._largest_first(parts), 1))
                    parts, left = [], size
        if parts:
            runs.append((self._largest_first(parts), 1))
        return [_Units(each, times, []) for each, times in runs]

    def _largest_first(self, parts: Sequence[tuple[int, int, int]]) -> _Parts:
        """Large shapes are placed first; equal ones as given."""
        shapes = self.state.shape_list

        def size(part: tuple[int, int, int]) -> tuple[int, int, int]:
            shape = shapes[part[1]]
            return -shape.gpu_milli_total, -shape.cpu_milli, -shape.memory_bytes

        return tuple(sorted(parts, key=size))

    # Choosing

    def place(self) -> Refused | None:
        """Place all, or tell why not; the caller undoes what is left over from that."""
        if not self.pods:
            return None
        refused = self._no_room()
        if refused is not None:
            return refused
        bottom = self.bottom
        for grains in self._choices():
            self.grains = grains
            if grains:
                if any(int(self._rooms(shape)[0][0]) < count for shape, count in self._by_shape().items()):
                    continue
                self.bottom = max(bottom, len(self.index.levels), *(grain.depth for grain in grains))
            else:
                self.bottom = bottom
            for depth, group in self._containers():
                mark = self.state.checkpoint()
                if all(self._place_class(units, depth, group) for units in self.classes):
                    return None
                self._undo(mark)
        return self._refused()

    def _choices(self) -> Iterator[Grains]:
        """Which runs of pods to keep together: first all that should be, last only what must be."""
        shapes = self.state.shape_list
        if self.groups.near == 1 or len({shape for shape, _ in self.sets if shapes[shape].gpus}) != 1:
            return iter(((),))
        counts = [count for units in self.classes for _, shape, count in units.parts if shapes[shape].gpus]
        return choices_of(self.index, self.groups, self.required, counts)

    def _undo(self, mark: int) -> None:
        self.state.rollback(mark)
        self.load[:] = 0
        for units in self.classes:
            units.placed.clear()

    def _rooms(self, shape: int) -> Depths:
        """For each depth the pods of the shape that each domain has room for now."""
        return self._sums(shape, self._node_rooms(shape))

    def _sums(self, shape: int, on_node: Ints) -> Depths:
        """Rooms of domains from those of nodes: only for whole runs, where pods of the shape belong together."""
        index, grains = self.index, self._grains_of(shape)
        rooms = rounded(index, index.sums(on_node), grains)
        if not self.request.at_most:
            return rooms
        run = max((grain.size for grain in grains if grain.depth >= self.spread), default=1)
        rooms = index.capped(self.spread, rooms, self._may_take() // run * run)
        return rounded(index, rooms, tuple(grain for grain in grains if grain.depth < self.spread))

    def _may_take(self) -> Ints:
        """How many more pods each domain of ``spread`` may take; the nameless is none."""
        left = np.maximum(0, self.request.at_most - self.index.sums(self.load)[self.spread])
        return left * self.index.real[self.spread]

    def _grains_of(self, shape: int) -> Grains:
        return self.grains if self.state.shape_list[shape].gpus else ()

    def _node_rooms(self, shape: int, before: Ints | None = None, depth: int = 0, group: int = 0) -> Ints:
        """The pods of the shape that each node has room for; only nodes of a domain have changed since ``before``."""
        out = np.zeros(len(self.index.order), np.int64) if before is None else before.copy()
        start, end = int(self.index.starts[depth][group]), int(self.index.starts[depth][group + 1])
        nodes, shapes = self.state.nodes, self.state.shapes
        _rooms(shape, MOST_PER_NODE, self.index.order, start, end, nodes, shapes, out)
        return out

    def _containers(self) -> Iterator[tuple[int, int]]:
        """Domains above the required level in which all segments may fit, the narrowest first; last the fleet."""
        if sum(units.times for units in self.classes) > 1:
            capacity = {units.parts: self._capacity(units) for units in self.classes}
            room = self._rooms(self.classes[0].parts[0][1])
            widest = self.spread if 0 < self.spread <= self.required else self.required
            for depth in range(widest - 1, 0, -1):
                fits = self.index.real[depth].copy()
                for units in self.classes:
                    fits &= capacity[units.parts][depth] >= units.times
                groups = np.flatnonzero(fits)
                for group in groups[np.lexsort((groups, room[depth][groups]))].tolist():
                    yield depth, group
        yield 0, 0

    def _capacity(self, units: _Units) -> Depths:
        """For each depth down to the required one how many units fit, by the rooms of their shapes alone."""
        fits = [self._rooms(shape)[self.required] // count for shape, count in units.by_shape.items()]
        here = np.minimum.reduce(fits) * self.index.real[self.required]
        above = self.index.sums_above(self.required, here)
        if not self.request.at_most or self.spread > self.required:
            return above
        return self.index.capped(self.spread, above, self._may_take() // units.size)

    def _place_class(self, units: _Units, depth: int, group: int) -> bool:
        """Place all units within a domain."""
        if units.times > 1 and len(units.parts) == 1:
            return self._place_segments(units, depth, group)
        return all(self._place_unit(units, depth, group) for _ in range(units.times))

    def _place_segments(self, units: _Units, depth: int, group: int) -> bool:
        """Segments of one shape: how many go to each required domain follows from the rooms."""
        number, shape, size = units.parts[0]
        rooms = self._rooms(shape)
        capacity = self._capacity(units)
        if capacity[depth][group] < units.times:
            return False
        spread = self.spread if self.spread <= self.required else 0
        preferred = self.preferred if self.preferred < self.required else 0
        loads = tuple(load // size for load in self.index.sums(self.load))
        dealing = Dealing(capacity, loads, self.required, preferred, spread, rooms[self.required])
        for domain, share in dealing.deal(self.index, depth, group, units.times):
            placed = self._place_pods(shape, share * size, self.required, domain, rooms)
            if len(placed) < share * size:
                return False
            for first in range(0, share * size, size):
                units.placed.append([(number, pod) for pod in placed[first : first + size]])
        return True

    def _place_unit(self, units: _Units, depth: int, group: int) -> bool:
        """One unit, all of it in one required domain: the candidates in turn until it fits."""
        on_node = {shape: self._node_rooms(shape) for shape in units.by_shape}
        rooms = {shape: self._sums(shape, on_node[shape]) for shape in on_node}
        for at, domain in self._candidates(units, rooms, depth, group):
            where = self._one_each(units, rooms, at, domain)
            if where is None:
                continue
            mark, before = self.state.checkpoint(), self.load.copy()
            unit: list[tuple[int, Allocation]] = []
            for number, shape, count in units.parts:
                now = rooms[shape]
                if unit or where:
                    left = self._node_rooms(shape, on_node[shape], at, domain)
                    now = self._sums(shape, left * where[shape] if where else left)
                placed = self._place_pods(shape, count, at, domain, now)
                unit.extend((number, pod) for pod in placed)
                if len(placed) < count:
                    break
            else:
                units.placed.append(unit)
                return True
            self.state.rollback(mark)
            self.load = before
        return False

    def _candidates(self, units: _Units, rooms: dict[int, Depths], depth: int, group: int) -> Iterator[tuple[int, int]]:
        """Domains for one unit, the best first: (a) fewest preferred domains, (b) tightest, (c) first in order.

        Sets that share a domain are sent to one preferred domain where there is one for them, then to the wider one.
        """
        index, by_shape = self.index, units.by_shape
        low, high = index.below(depth, group, max(self.required, depth))
        at = max(self.required, depth)
        fits = index.real[at][low:high].copy()
        for shape, count in by_shape.items():
            fits &= rooms[shape][at][low:high] >= count
        if len(by_shape) > 1:
            fits &= self._free_together(by_shape, at)[low:high]
        if self.request.at_most and self.spread <= at:
            fits &= (self._may_take() >= units.size)[index.ancestors(at, self.spread)[low:high]]
        groups = low + np.flatnonzero(fits)
        needed = np.zeros(len(groups), np.int64)
        if self.preferred > at:
            for shape, count in by_shape.items():
                needed = np.maximum(needed, index.fewest_needed(at, self.preferred, rooms[shape], count)[groups])
        main = next(iter(by_shape))
        uneven = np.zeros(len(groups), np.int64)
        if self.spread > at and len(groups) > 1:
            uneven[:] = [self._largest_share(rooms[main], by_shape[main], at, one) for one in groups.tolist()]
        unused = index.sums(self.load)[at][groups] == 0
        for place in np.lexsort((groups, rooms[main][at][groups], unused, uneven, needed)).tolist():
            domain = int(groups[place])
            if len(units.parts) > 1 and self.preferred > at:
                inner = np.arange(*index.below(at, domain, self.preferred))
                fit = index.real[self.preferred][inner]
                for shape, count in by_shape.items():
                    fit = fit & (rooms[shape][self.preferred][inner] >= count)
                inner = inner[fit]
                for one in inner[np.lexsort((inner, rooms[main][self.preferred][inner]))].tolist():
                    if not at < self.spread <= self.preferred:
                        yield self.preferred, one
            yield at, domain

    def _one_each(self, units: _Units, rooms: dict[int, Depths], depth: int, group: int) -> dict[int, Ints] | None:
        """Where domains take one pod each: the nodes on which each shape may stand (1); empty: all; None: it fails."""
        by_shape = units.by_shape
        if self.request.at_most != 1 or len(by_shape) == 1 or self.spread <= depth:
            return {}
        low, high = self.index.below(depth, group, self.spread)
        takes = np.array([rooms[shape][self.spread][low:high] > 0 for shape in by_shape])
        found = one_each(takes, list(by_shape.values()))
        if found is None:
            return None
        domains = np.zeros(len(self.index.real[self.spread]), np.int64)
        where: dict[int, Ints] = {}
        for shape, mine in zip(by_shape, found, strict=True):
            domains[low:high] = mine
            where[shape] = domains[self.index.groups[self.spread]]
        return where

    def _free_together(self, by_shape: dict[int, int], depth: int) -> Flags:
        """For each domain whether what is free in sum suffices for all sets: needed, though not enough."""
        nodes, shapes, arrays = self.state.nodes, self.state.shape_list, self.state.shapes
        asked = [(shapes[shape], count) for shape, count in by_shape.items()]
        milli = sum(int(arrays.gpus[shape] * arrays.gpu_milli[shape]) * n for shape, n in by_shape.items())
        gpu = self.index.sums(nodes.gpu_free.sum(axis=1))[depth] >= milli
        cpu = self.index.sums(nodes.cpu_free)[depth] >= sum(n * shape.cpu_milli for shape, n in asked)
        memory = self.index.sums(nodes.memory_free)[depth] >= sum(n * shape.memory_bytes for shape, n in asked)
        return gpu & cpu & memory

    def _largest_share(self, rooms: Depths, count: int, depth: int, group: int) -> int:
        """Most pods in one failure domain when they are dealt evenly within a domain."""
        low, high = self.index.below(depth, group, self.spread)
        room = rooms[self.spread][low:high]
        return int(even_shares(room, np.zeros_like(room), min(count, int(room.sum()))).max(initial=0))

    def _place_pods(self, shape: int, count: int, depth: int, group: int, rooms: Depths) -> list[Allocation]:
        """Pods of one shape within a domain, in order along the topology; none if they do not all fit."""
        if rooms[depth][group] < count:
            return []
        bottom = max(self.bottom, depth)
        tie = None
        if self.spread and self.index.level_of(self.spread) == HOST:  # the fullest nodes, so that others stay whole
            tie = self.index.sums(self.state.nodes.gpu_free.sum(axis=1))[bottom]
        dealing = Dealing(rooms, self.index.sums(self.load), bottom, self.preferred, self.spread, tie)
        parts = deal(self.index, dealing, self._grains_of(shape), depth, group, count)
        starts = self.index.starts[bottom]
        spans = np.array([(starts[part], starts[part + 1], share) for part, share in parts], np.int64).T.copy()
        rows = self.placer.place_in_spans(shape, spans, self.index.order) if int(spans[2].sum()) >= count else None
        if rows is None:
            return []
        pods: list[list[int]] = rows[:, np.lexsort((rows[2], self.index.rank[rows[0]]))].T.tolist()
        placed = [Allocation(node, row, mask) for node, row, mask in pods]
        self.state.note_assigned(placed)
        np.add.at(self.load, rows[0], 1)
        return placed

    # Telling

    def _by_shape(self) -> dict[int, int]:
        return _Units(tuple((0, *each) for each in self.sets), 1, []).by_shape

    def _no_room(self) -> Refused | None:
        """A refusal if the fleet has not room for all pods of some shape."""
        fitting = 0
        may_stand = 0
        for shape, count in self._by_shape().items():
            on_node = self._node_rooms(shape)
            fitting += min(count, int(on_node.sum()))
            may_stand += min(count, int(self._sums(shape, on_node)[0][0]))
        if fitting < self.pods:
            return self._refusal(Reason.CAPACITY, fitting)
        return self._refusal(Reason.APART, may_stand) if may_stand < self.pods else None

    def _refused(self) -> Refused:
        """There is room for each set: then it is the domain, unless the sets do not fit together anywhere."""
        if self.request.at_most:
            with self.state.trial():
                closer = _Gang(self.placer, self.index, self.sets, replace(self.request, at_most=0), self.groups)
                if closer.place() is None:
                    return self._refusal(Reason.APART, self.pods)
        if not self.required and not self.grains:
            return self._refusal(Reason.CAPACITY, self.pods)
        if len({shape for shape, _ in self.sets}) > 1:
            with self.state.trial():
                anywhere = _Gang(self.placer, self.index, self.sets, TopologyRequest(), RankGroups())
                if anywhere.place() is not None:
                    return self._refusal(Reason.CAPACITY, self.pods)
        return self._refusal(Reason.ONE_DOMAIN, self.pods)

    def _refusal(self, reason: Reason, room: int) -> Refused:
        """A refusal with the numbers of the level that is required; else of the one that ranks must not leave."""
        if reason is Reason.APART:
            named = int(self.index.real[self.spread].sum())
            return Refused(reason, self.pods, room, self.request.spread, self.request.at_most, domains=named)
        if not self.required and not self.grains:
            return Refused(reason, self.pods, room)
        at, level = self.required, self.request.required
        largest = max(self.classes, key=lambda units: units.size)
        unit, by_shape = largest.size, largest.by_shape
        units = sum(each.times for each in self.classes)
        if not at:
            grain = self.grains[-1]
            at, level, unit = grain.depth, self.index.level_of(grain.depth), grain.size
            by_shape = {shape: unit for shape in by_shape if self._grains_of(shape)}
            units = sum(count for shape, count in self.sets if shape in by_shape) // unit
            fit = sum(int(self._rooms(shape)[0][0]) for shape in by_shape) // unit
        else:
            fit = sum(min(each.times, int(self._capacity(each)[0][0])) for each in self.classes)
        names = np.flatnonzero(self.index.real[at])
        most = MOST_PER_NODE if len(by_shape) == 1 else 0
        rooms = [
            np.minimum(self.index.sums(self._node_rooms(shape))[at][names], most or count)
            for shape, count in by_shape.items()
        ]
        total = np.add.reduce(rooms)
        best = int(total.argmax()) if len(total) else -1
        return Refused(
            reason, self.pods, room, level, unit, units, min(fit, units),
            self.index.name_of(at, int(names[best])) if best >= 0 else "",
            int(total[best]) if best >= 0 else 0, len(names), "segments" if self.required else "groups of ranks",
        )  # fmt: skip

    def placement(self) -> GangPlacement:
        """The pods in order: by set, then by segment, then along the topology."""
        index = self.index
        by_set: list[list[Allocation]] = [[] for _ in self.sets]
        for units in self.classes:
            for unit in sorted(units.placed, key=lambda unit: min(index.rank[pod.node] for _, pod in unit)):
                for number, pod in unit:
                    by_set[number].append(pod)
        allocations = tuple(pod for placed in by_set for pod in placed)
        nodes = np.array([pod.node for pod in allocations], np.int64)
        counts = tuple(
            (level, len(np.unique(index.groups[depth][nodes]))) for depth, level in enumerate(index.levels, 1)
        )
        depth = self.required or self.preferred or self.spread or len(index.levels)
        if not depth or not len(nodes):
            return GangPlacement(allocations, "", (), counts)
        groups, pods = np.unique(index.groups[depth][nodes], return_counts=True)
        domains = tuple(
            (index.name_of(depth, group), n) for group, n in zip(groups.tolist(), pods.tolist(), strict=True)
        )
        return GangPlacement(allocations, index.level_of(depth), domains, counts)
