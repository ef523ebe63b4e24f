"""Which running work to take away so that pods find room: the cheapest found, node by node and domain by domain."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from heapq import heappop, heappush, nsmallest
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from muster.engine.cluster import Cluster, GangKind
from muster.engine.grains import nvlink_depth
from muster.engine.kernels.domains import node_rooms
from muster.engine.running import RunningGang, RunningSet
from muster.kernels import Ints, direct

_node_rooms = direct(node_rooms)

MOST_PER_NODE = 1 << 20
"""Room that is counted on one node for pods that ask for nothing."""
NODES_AHEAD = 64
"""Of many nodes those with least in use are priced: four times as many as there are pods, and so many more."""
DOMAINS_AHEAD = 32
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
    """Taking ``runs`` away makes room for ``gain`` pods more; ordered by the price of one, then by what is moved.

    It was priced at ``tick``; ``name`` is that of a gang on several nodes, empty for work on one node.
    """

    per_pod: float
    gangs: int
    node: int
    name: str
    gain: int
    tick: int
    runs: list[RunningGang]


class _Work(NamedTuple):
    """What a gang has on a node: its pods there and the GPU that they take."""

    per_milli: float
    name: str
    price: float
    milli: int
    run: RunningGang
    rows: Ints


class RoomMaker:
    """Finds work to take away; everything that it tries is undone.

    Args:
        cluster, running: what there is; the same at each call.
        price: what taking away a gang loses, in GPU-seconds; None if it must stay. Only from a price to None does it
            change from call to call.
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
        self._spent = 0.0
        self._limit = 0.0
        self._parts: dict[tuple[str, int], tuple[Ints, int, int]] = {}
        self._smaller_only = False
        self._tick = 0
        self._changed: dict[int, int] = {}
        """The tick of the last change of a node."""
        self._away: dict[int, int] = {}
        """How many changes of a node are to be undone; 0: it is as it was at first."""
        self._first: dict[tuple[int, int, bool], _Step | None] = {}
        """What was priced on nodes as they were at first."""

    def cheapest(self, kind: GangKind, flavor: str, limit_gpu_s: float, *, smaller_only: bool) -> Option | None:
        """The cheapest work found whose removal makes room for a gang: for all of it in one domain if it must be so.

        None if that loses more than ``limit_gpu_s``. ``smaller_only`` leaves pods alone that take as much GPU as those
        that need the room.
        """
        self._smaller_only, self._limit = smaller_only, limit_gpu_s
        pods = self.cluster.pods_of(kind, flavor)
        depth, size = one_domain(self.cluster, kind)
        with self._trying():
            if depth:
                found = all(self._clear_domains(each, depth) for each in units_of(pods, size))
            else:
                found = self._clear(self._all, tuple((shape, count) for shape, count in pods.T.tolist()))
            return Option(self._spent, list(self._gone.values())) if found else None

    # -- trying -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _trying(self) -> Generator[None]:
        """Undo, on leaving, what is taken away and placed inside."""
        gone, trials, spent = len(self._gone), len(self._trials), self._spent
        try:
            yield
        finally:
            while len(self._trials) > trials:
                rows = self._trials.pop()
                self.cluster.give_back(rows)
                self._note(rows[0].tolist(), -1)
            for name in list(self._gone)[gone:]:
                run = self._gone.pop(name)
                self.cluster.take(run.rows)
                self._note(run.nodes, -1)
            self._spent = spent

    def _take_away(self, run: RunningGang) -> None:
        self._spent += self.price(run) or 0.0
        self._gone[run.workload.name] = run
        self.cluster.give_back(run.rows)
        self._note(run.nodes, 1)

    def _place(self, nodes: Ints, shape: int, count: int) -> None:
        rows = self.cluster.placer.place_in_spans(shape, np.array([[0], [len(nodes)], [count]]), nodes)
        if rows is not None:
            self._trials.append(rows)
            self._note(rows[0].tolist(), 1)

    def _note(self, nodes: Iterable[int], sign: int) -> None:
        self._tick += 1
        for node in nodes:
            self._changed[node] = self._tick
            self._away[node] = self._away.get(node, 0) + sign

    # -- domains ------------------------------------------------------------------------------------------------------

    def _clear_domains(self, units: Units, depth: int) -> bool:
        """Make room for each unit in one domain, the cheapest; a price is looked at anew where one was taken."""
        index, nodes, shapes = self.cluster.index, self.cluster.state.nodes, self.cluster.state.shape_list
        asked = sum(count * shapes[shape].gpu_milli_total for shape, count in units.pods)
        free = index.sums(nodes.gpu_free.sum(axis=1))[depth]
        enough = index.real[depth] & (index.sums(nodes.gpus)[depth] * 1000 >= asked)
        domains = np.flatnonzero(enough)
        domains = domains[np.lexsort((domains, -free[domains]))][: 4 * units.times + DOMAINS_AHEAD]
        limit, start, heap = self._limit, self._spent, list[tuple[float, int]]()

        def push(domain: int, wanted: int) -> None:
            # what is dearer than as many others as are wanted is of no interest
            self._limit = min(limit, start + nsmallest(wanted, heap)[-1][0]) if len(heap) >= wanted else limit
            with self._trying():
                before = self._spent
                if self._clear(members(domain), units.pods):
                    heappush(heap, (self._spent - before, domain))
            self._limit = limit

        def members(domain: int) -> Ints:
            return index.order[index.starts[depth][domain] : index.starts[depth][domain + 1]]

        for domain in domains.tolist():
            push(domain, units.times)
        for left in range(units.times - 1, -1, -1):
            if not heap:
                return False
            _, domain = heappop(heap)
            if not self._clear(members(domain), units.pods):
                return False
            start = self._spent
            if left:
                push(domain, left)
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

    def _room(self, shape: int, nodes: Ints, start: int, end: int) -> int:
        state = self.cluster.state
        return _node_rooms(shape, MOST_PER_NODE, nodes, start, end, state.nodes, state.shapes, self._rooms)

    def _make_room(self, nodes: Ints, shape: int, count: int) -> bool:
        """Take work away until ``count`` pods of a shape fit on the nodes: always what is cheapest for a pod.

        Taking a gang away makes room on all its nodes, so what was priced before may have become cheaper or needless:
        a step whose nodes have changed is priced anew when it is its turn.
        """
        room = self._room(shape, nodes, 0, len(nodes))
        if room >= count:
            return True
        heap: list[_Step] = []
        seen: set[str] = set()

        def push(step: _Step | None) -> None:
            if step is not None:
                heappush(heap, step)

        order: list[int] = self._in_use(nodes, shape).tolist()
        few = 4 * count + NODES_AHEAD
        for some in (order[:few], order[few:]):
            within = set(order[:few] if some == order[:few] else order)
            for node in some:
                push(self._on_node(node, shape))
                for run in self.running.on_node(node):
                    if len(run.nodes) > 1 and run.workload.name not in seen:
                        seen.add(run.workload.name)
                        push(self._of_gang(run, shape, within))
            while heap and room < count:
                step = heappop(heap)
                touched = step.runs[0].nodes & within if step.name else (step.node,)
                if any(self._changed.get(node, 0) > step.tick for node in touched):
                    push(self._of_gang(step.runs[0], shape, within) if step.name else self._on_node(step.node, shape))
                    continue
                for run in step.runs:
                    self._take_away(run)
                if self._spent > self._limit:
                    return False
                room = self._room(shape, nodes, 0, len(nodes))
                for node in sorted({node for run in step.runs for node in run.nodes} & within):
                    push(self._on_node(node, shape))
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

    def _part(self, run: RunningGang, node: int) -> tuple[Ints, int, int]:
        """The pods of a gang on a node, the GPU (milli) that they take, and that of the largest."""
        key = run.workload.name, node
        part = self._parts.get(key)
        if part is None:
            rows = np.ascontiguousarray(run.rows[:, run.rows[0] == node]) if len(run.nodes) > 1 else run.rows
            sizes = self._sizes(rows)
            part = self._parts[key] = rows, sum(sizes), max(sizes)
        return part

    def _sizes(self, rows: Ints) -> list[int]:
        """The GPU that each pod takes, in milli."""
        shapes: list[int] = rows[1].tolist()
        return [self.cluster.state.shape_list[shape].gpu_milli_total for shape in shapes]

    def _on_node(self, node: int, shape: int) -> _Step | None:
        """The cheapest work found on a node whose removal makes room for at least one pod more."""
        self.cluster.looks += 0.1
        if self._away.get(node, 0):
            return self._priced_on_node(node, shape)
        key = node, shape, self._smaller_only
        if key in self._first:
            step = self._first[key]
            if step is None or all(self.price(run) is not None for run in step.runs):
                return step if step is None else step._replace(tick=self._tick)
        step = self._first[key] = self._priced_on_node(node, shape)
        return step

    def _works(self, node: int, size: int) -> list[_Work]:
        """What may be taken away on a node, the cheapest for its GPU first."""
        works: list[_Work] = []
        for run in self.running.on_node(node):
            price = None if run.workload.name in self._gone else self.price(run)
            if price is None:
                continue
            rows, milli, largest = self._part(run, node)
            if not (self._smaller_only and size and largest >= size):
                works.append(_Work(price / max(milli, 1), run.workload.name, price, milli, run, rows))
        works.sort(key=lambda each: each[:2])
        return works

    def _priced_on_node(self, node: int, shape: int) -> _Step | None:
        size = self.cluster.state.shape_list[shape].gpu_milli_total
        works = self._works(node, size)
        before = self._room(shape, self._all, node, node + 1)
        free = int(self.cluster.state.nodes.gpu_free[node].sum())
        if not works or free + sum(work.milli for work in works) < (before + 1) * size:
            return None
        away: list[_Work] = []
        room = before
        for work in works:
            self.cluster.give_back(work.rows)
            away.append(work)
            free += work.milli
            if free >= (before + 1) * size and (room := self._room(shape, self._all, node, node + 1)) > before:
                break
        for work in sorted(away[:-1], key=lambda each: (-each.price, each.name)) if room > before else ():
            if free - work.milli < (before + 1) * size:
                continue
            self.cluster.take(work.rows)
            if self._room(shape, self._all, node, node + 1) > before:
                away.remove(work)
                free -= work.milli
            else:
                self.cluster.give_back(work.rows)
        gain = self._room(shape, self._all, node, node + 1) - before
        for work in away:
            self.cluster.take(work.rows)
        if gain <= 0:
            return None
        price = sum(work.price for work in away)
        return _Step(price / gain, len(away), node, "", gain, self._tick, [work.run for work in away])

    def _of_gang(self, run: RunningGang, shape: int, within: set[int]) -> _Step | None:
        """A gang on several nodes whose removal alone makes room on them."""
        price = None if run.workload.name in self._gone else self.price(run)
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
        if not gain:
            return None
        return _Step(price / gain, 1, int(nodes[0]), run.workload.name, gain, self._tick, [run])
