"""Which running work to take away so that pods find room: the cheapest found, node by node and domain by domain."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from muster.engine.cluster import Cluster, GangKind
from muster.engine.grains import nvlink_depth
from muster.engine.kernels.domains import fill_spans, node_rooms
from muster.engine.running import RunningGang, RunningSet
from muster.kernels import Ints, direct

_node_rooms, _fill = direct(node_rooms), direct(fill_spans)

MOST_PER_NODE = 1 << 20
"""Room that is counted on one node for pods that ask for nothing."""
NODES_AHEAD = 64
"""Of many nodes those with least in use are priced: four times as many as there are pods, and so many more."""
DOMAINS_AHEAD = 64
"""Of many domains those with most free are priced: four times as many as are needed, and so many more."""

Price = Callable[[RunningGang], float | None]
Pods = tuple[tuple[int, int], ...]
"""Shape and count, an entry a pod set."""


class Units(Struct, frozen=True):
    """``times`` groups of the same pods; each group stays in one domain."""

    pods: Pods
    times: int = 1


class Option(NamedTuple):
    """Work to take away, and what that loses in GPU-seconds."""

    price: float
    runs: list[RunningGang]


def units_of(pods: Ints, size: int) -> list[Units]:
    """Pods in order, cut into groups of ``size`` that must each stand in one domain; 0: all are one group."""
    sets: list[tuple[int, int]] = [(shape, count) for shape, count in pods.T.tolist()]
    if not size:
        return [Units(tuple(sets))]
    found: list[Units] = []
    parts: list[tuple[int, int]] = []
    left = size
    for shape, total in sets:
        count = total
        while count:
            if not parts and count >= size:
                found.append(Units(((shape, size),), count // size))
                count %= size
                continue
            share = min(count, left)
            parts.append((shape, share))
            count, left = count - share, left - share
            if not left:
                found.append(Units(tuple(parts)))
                parts, left = [], size
    if parts:
        found.append(Units(tuple(parts)))
    return found


def one_domain(cluster: Cluster, kind: GangKind) -> tuple[int, int]:
    """The depth of the domain that each group of a gang's pods must stand in (0: none), and its size (0: all)."""
    if kind.topology is not None and kind.topology.required:
        return cluster.index.depth_of(kind.topology.required), kind.topology.segment
    if kind.groups.together > 1:
        return nvlink_depth(cluster.index), kind.groups.together
    return 0, 0


class _Step(NamedTuple):
    """Taking ``runs`` away makes room for ``gain`` pods more; ordered by the price of one, then by what is moved."""

    per_pod: float
    gangs: int
    node: int
    name: str
    gain: int
    runs: list[RunningGang]


class RoomMaker:
    """Finds work to take away; everything that it tries is undone.

    Args:
        cluster, running: what there is, as it is at each call.
        price: what taking away a gang loses, in GPU-seconds; None if it must stay, or is away already.
    """

    def __init__(self, cluster: Cluster, running: RunningSet, price: Price) -> None:
        self.cluster = cluster
        self.running = running
        self.price = price
        nodes = cluster.state.nodes
        self._all = np.arange(len(nodes.gpus))
        self._rooms = np.zeros(len(nodes.gpus), np.int64)
        self._gone: dict[str, RunningGang] = {}
        self._trials: list[Ints] = []
        self._parts: dict[tuple[str, int], Ints] = {}
        self._smaller_only = False

    def cheapest(self, kind: GangKind, flavor: str, *, smaller_only: bool) -> Option | None:
        """The cheapest work found whose removal makes room for a gang: for all of it in one domain if it must be so.

        ``smaller_only`` leaves pods alone that take as much GPU as those that need the room.
        """
        self._smaller_only = smaller_only
        pods = self.cluster.pods_of(kind, flavor)
        depth, size = one_domain(self.cluster, kind)
        with self._trying():
            if depth:
                found = all(self._clear_domains(each, depth) for each in units_of(pods, size))
            else:
                found = self._clear(self._all, tuple((shape, count) for shape, count in pods.T.tolist()))
            return self._option(()) if found else None

    def _option(self, before: Sequence[str]) -> Option:
        runs = [run for name, run in self._gone.items() if name not in before]
        return Option(sum(self.price(run) or 0.0 for run in runs), runs)

    @contextmanager
    def _trying(self) -> Generator[list[str]]:
        """Undo, on leaving, what is taken away and placed inside; gives the names of what was away before."""
        gone, trials = list(self._gone), len(self._trials)
        try:
            yield gone
        finally:
            while len(self._trials) > trials:
                self.cluster.give_back(self._trials.pop())
            for name in list(self._gone)[len(gone) :]:
                self.cluster.take(self._gone.pop(name).rows)

    # -- domains ------------------------------------------------------------------------------------------------------

    def _clear_domains(self, units: Units, depth: int) -> bool:
        """Make room for each unit in one domain, the cheapest; a price is looked at anew where one was taken."""
        index, nodes, shapes = self.cluster.index, self.cluster.state.nodes, self.cluster.state.shape_list
        asked = sum(count * shapes[shape].gpu_milli_total for shape, count in units.pods)
        free = index.sums(nodes.gpu_free.sum(axis=1))[depth]
        enough = index.real[depth] & (index.sums(nodes.gpus)[depth] * 1000 >= asked)
        domains = np.flatnonzero(enough)
        domains = domains[np.lexsort((domains, -free[domains]))][: 4 * units.times + DOMAINS_AHEAD]
        heap: list[tuple[float, int]] = []

        def push(domain: int) -> None:
            with self._trying() as before:
                if self._clear(members(domain), units.pods):
                    heapq.heappush(heap, (self._option(before).price, domain))

        def members(domain: int) -> Ints:
            return index.order[index.starts[depth][domain] : index.starts[depth][domain + 1]]

        for domain in domains.tolist():
            push(domain)
        for left in range(units.times - 1, -1, -1):
            if not heap:
                return False
            _, domain = heapq.heappop(heap)
            self._clear(members(domain), units.pods)
            if left:
                push(domain)
        return True

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _clear(self, nodes: Ints, pods: Pods) -> bool:
        """Make room for pods on some nodes and place them for a trial, the largest shape first."""
        shapes = self.cluster.state.shape_list

        def size(pod: tuple[int, int]) -> tuple[int, int, int]:
            shape = shapes[pod[0]]
            return -shape.gpu_milli_total, -shape.cpu_milli, -shape.memory_bytes

        for shape, count in sorted(pods, key=size):
            if not self._make_room(nodes, shape, count):
                return False
            self._place(nodes, shape, count)
        return True

    def _place(self, nodes: Ints, shape: int, count: int) -> None:
        spans, out = np.array([[0], [len(nodes)], [count]]), np.zeros((2, count), np.int64)
        if _fill(shape, spans, nodes, self.cluster.placer.scene(), out) == count:
            self._trials.append(np.stack([out[0], np.full(count, shape), out[1]]))

    def _room(self, shape: int, nodes: Ints, start: int, end: int) -> int:
        state = self.cluster.state
        return _node_rooms(shape, MOST_PER_NODE, nodes, start, end, state.nodes, state.shapes, self._rooms)

    def _make_room(self, nodes: Ints, shape: int, count: int) -> bool:
        """Take work away until ``count`` pods of a shape fit on the nodes: always what is cheapest for a pod.

        Taking a gang away makes room on all its nodes, so what was priced before may have become cheaper or needless:
        each step is priced anew when it is its turn.
        """
        room = self._room(shape, nodes, 0, len(nodes))
        if room >= count:
            return True
        heap: list[_Step] = []
        seen: set[str] = set()

        def push(node: int) -> None:
            step = self._on_node(node, shape)
            if step is not None:
                heapq.heappush(heap, step)

        def push_gang(run: RunningGang) -> None:
            step = self._of_gang(run, shape, within)
            if step is not None:
                heapq.heappush(heap, step)

        order = self._in_use(nodes, shape)
        few = 4 * count + NODES_AHEAD
        for some in (order[:few], order[few:]):
            within = set(order.tolist() if some is not order[:few] else some.tolist())
            for node in some.tolist():
                push(node)
                for run in self.running.on_node(node):
                    if len(run.nodes) > 1 and run.workload.name not in seen:
                        seen.add(run.workload.name)
                        push_gang(run)
            while heap and room < count:
                step = heapq.heappop(heap)
                again = self._of_gang(step.runs[0], shape, within) if step.name else self._on_node(step.node, shape)
                if again is None:
                    continue
                if heap and again > heap[0]:
                    heapq.heappush(heap, again)
                    continue
                for run in again.runs:
                    self._gone[run.workload.name] = run
                    self.cluster.give_back(run.rows)
                room = self._room(shape, nodes, 0, len(nodes))
                for node in sorted({node for run in again.runs for node in run.nodes} & within):
                    push(node)
            if room >= count:
                return True
        return False

    def _in_use(self, nodes: Ints, shape: int) -> Ints:
        """The nodes that could take a pod of the shape if they were empty and are in use, the least used first."""
        state = self.cluster.state
        arrays, shapes = state.nodes, state.shapes
        able = shapes.static_refusals[shapes.constraint[shape], nodes] == 0
        able &= arrays.gpus[nodes] >= shapes.gpus[shape]
        able &= arrays.pods[nodes] > 0
        nodes = nodes[able]
        used = arrays.gpus[nodes] * 1000 - arrays.gpu_free[nodes].sum(axis=1)
        return nodes[np.lexsort((nodes, used))]

    def _priced(self, run: RunningGang) -> float | None:
        return None if run.workload.name in self._gone else self.price(run)

    def _part(self, run: RunningGang, node: int) -> Ints:
        """The pods of a gang on a node."""
        key = run.workload.name, node
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = run.rows[:, run.rows[0] == node]
        return part

    def _sizes(self, rows: Ints) -> list[int]:
        """The GPU that each pod takes, in milli."""
        shapes: list[int] = rows[1].tolist()
        return [self.cluster.state.shape_list[shape].gpu_milli_total for shape in shapes]

    def _on_node(self, node: int, shape: int) -> _Step | None:
        """The cheapest work found on a node whose removal makes room for at least one pod more."""
        size = self.cluster.state.shape_list[shape].gpu_milli_total
        works: list[tuple[float, str, RunningGang, Ints]] = []
        for run in self.running.on_node(node):
            price = self._priced(run)
            if price is None:
                continue
            part = self._part(run, node)
            sizes = self._sizes(part)
            if self._smaller_only and size and max(sizes) >= size:
                continue
            works.append((price / max(sum(sizes), 1), run.workload.name, run, part))
        works.sort(key=lambda each: each[:2])
        before = self._room(shape, self._all, node, node + 1)
        away: list[tuple[float, str, RunningGang, Ints]] = []
        room = before
        for each in works:
            self.cluster.give_back(each[3])
            away.append(each)
            room = self._room(shape, self._all, node, node + 1)
            if room > before:
                break
        if room > before:
            for each in sorted(away[:-1], key=lambda each: (-(self.price(each[2]) or 0.0), each[1])):
                self.cluster.take(each[3])
                if self._room(shape, self._all, node, node + 1) > before:
                    away.remove(each)
                else:
                    self.cluster.give_back(each[3])
            room = self._room(shape, self._all, node, node + 1)
        for each in away:
            self.cluster.take(each[3])
        if room <= before:
            return None
        runs = [each[2] for each in away]
        price = sum(self.price(run) or 0.0 for run in runs)
        return _Step(price / (room - before), len(runs), node, "", room - before, runs)

    def _of_gang(self, run: RunningGang, shape: int, within: set[int]) -> _Step | None:
        """A gang on several nodes whose removal alone makes room on them."""
        price = self._priced(run)
        if price is None:
            return None
        size = self.cluster.state.shape_list[shape].gpu_milli_total
        if self._smaller_only and size and max(self._sizes(run.rows)) >= size:
            return None
        nodes = np.array(sorted(run.nodes & within), np.int64)
        before = self._room(shape, nodes, 0, len(nodes))
        self.cluster.give_back(run.rows)
        gain = self._room(shape, nodes, 0, len(nodes)) - before
        self.cluster.take(run.rows)
        return _Step(price / gain, 1, int(nodes[0]), run.workload.name, gain, [run]) if gain else None
