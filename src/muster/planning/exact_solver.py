"""The solver's side of `muster.planning.exact`: a problem as JSON on stdin, its solution on stdout. Needs ortools.

Pods of one shape are interchangeable, so those of all gangs that may stand anywhere are counted together, node by node;
only gangs that must stand in one domain have counts of their own. That is what makes it small.
"""

from __future__ import annotations

# ortools' stubs leave much untyped.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

WHOLE_MILLI = 1000


class FreeNode(Struct):
    """What is free on a node: CPU (milli), memory (bytes), and milli of each device."""

    cpu_milli: int
    memory_bytes: int
    gpu_milli: list[int]


class Shape(Struct):
    """What a pod takes, and the nodes that may take it."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    gpu_milli: int
    nodes: list[int]


class Group(Struct):
    """``times`` groups of pods, (shape, count) each; a group stands in one domain."""

    pods: list[tuple[int, int]]
    times: int


class Held(Struct):
    """What a running gang holds on a node."""

    node: int
    cpu_milli: int
    memory_bytes: int
    gpu_milli: list[int]


class Item(Struct):
    """A gang: its pods, the domains of which it needs one for each group (none: it may stand anywhere).

    A running one has a price for being moved, in GPU-seconds, and what it holds now.
    """

    pods: list[tuple[int, int]]
    groups: list[Group] = []
    domains: list[list[int]] = []
    price_gpu_s: float = 0.0
    holds: list[Held] = []


class MoveProblem(Struct):
    """Make room for ``gang`` by moving ``movable`` gangs at the least price."""

    nodes: list[FreeNode]
    shapes: list[Shape]
    gang: Item
    movable: list[Item]


class MoveSolution(Struct):
    """``status`` is optimal, feasible (the time was up), infeasible or unknown.

    ``places`` are (node, shape, device mask) of each pod: of the gang, then of each gang in ``moved``, set by set.
    ``bound_gpu_s`` is what no solution costs less than.
    """

    status: str
    moved: list[int] = []
    places: list[list[tuple[int, int, int]]] = []
    cost_gpu_s: float = 0.0
    bound_gpu_s: float = 0.0


class _Model:
    """Counts of pods by shape and node; moves as booleans."""

    def __init__(self, problem: MoveProblem) -> None:
        from ortools.sat.python import cp_model

        self.problem = problem
        self.model: Any = cp_model.CpModel()
        self.moves = [self.model.new_bool_var(f"move{at}") for at in range(len(problem.movable))]
        self.items = [problem.gang, *problem.movable]
        self.anywhere: dict[tuple[int, ...], Any] = {}
        self.own: dict[tuple[int, ...], Any] = {}
        self.chosen: dict[int, list[list[Any]]] = {}
        self.whole: dict[tuple[int, int], Any] = {}
        self.shares: dict[tuple[int, int, int], Any] = {}

    def build(self) -> None:
        """All constraints and the price."""
        needs: dict[int, list[Any]] = {}
        for number, item in enumerate(self.items):
            factor = 1 if number == 0 else self.moves[number - 1]
            if item.domains:
                self._in_domains(number, item, factor)
            else:
                for shape, count in item.pods:
                    needs.setdefault(shape, []).append(count * factor)
        for shape, terms in needs.items():
            most = sum(count for item in self.items for each, count in item.pods if each == shape)
            for node in self.problem.shapes[shape].nodes:
                self.anywhere[shape, node] = self.model.new_int_var(0, most, f"z{shape}n{node}")
            here = [self.anywhere[shape, node] for node in self.problem.shapes[shape].nodes]
            self.model.add(sum(here) == sum(terms))
        for node in range(len(self.problem.nodes)):
            self._fits_on(node)
        # equal prices: fewer moves
        prices = [round(item.price_gpu_s) * 1000 + 1 for item in self.problem.movable]
        self.model.minimize(sum(price * move for price, move in zip(prices, self.moves, strict=True)))

    def _in_domains(self, number: int, item: Item, factor: Any) -> None:
        counts = [
            [self.model.new_int_var(0, group.times, f"t{number}g{at}d{domain}") for domain in range(len(item.domains))]
            for at, group in enumerate(item.groups)
        ]
        self.chosen[number] = counts
        for group, at_domain in zip(item.groups, counts, strict=True):
            self.model.add(sum(at_domain) == group.times * factor)
        for shape in {shape for shape, _ in item.pods}:
            most = sum(count for each, count in item.pods if each == shape)
            allowed = set(self.problem.shapes[shape].nodes)
            for domain, nodes in enumerate(item.domains):
                here: list[Any] = []
                for node in nodes:
                    if node in allowed:
                        self.own[number, shape, node] = self.model.new_int_var(0, most, f"y{number}s{shape}n{node}")
                        here.append(self.own[number, shape, node])
                asked = [
                    sum(count for each, count in group.pods if each == shape) * at_domain[domain]
                    for group, at_domain in zip(item.groups, counts, strict=True)
                ]
                self.model.add(sum(here) == sum(asked))

    def placed_on(self, node: int) -> dict[int, list[Any]]:
        """The counts of pods that are placed on a node, by shape."""
        placed: dict[int, list[Any]] = {}
        for (shape, at), count in self.anywhere.items():
            if at == node:
                placed.setdefault(shape, []).append(count)
        for (_, shape, at), count in self.own.items():
            if at == node:
                placed.setdefault(shape, []).append(count)
        return placed

    def _fits_on(self, node: int) -> None:
        free, shapes = self.problem.nodes[node], self.problem.shapes
        placed = self.placed_on(node)
        given = [
            (held, move)
            for item, move in zip(self.problem.movable, self.moves, strict=True)
            for held in item.holds
            if held.node == node
        ]
        for what in ("cpu_milli", "memory_bytes"):
            asked = sum(getattr(shapes[shape], what) * sum(counts) for shape, counts in placed.items())
            self.model.add(asked <= getattr(free, what) + sum(getattr(held, what) * move for held, move in given))
        left = [
            free.gpu_milli[device] + sum(held.gpu_milli[device] * move for held, move in given)
            for device in range(len(free.gpu_milli))
        ]
        for device in range(len(left)):
            self.whole[node, device] = self.model.new_bool_var(f"w{node}d{device}")
        whole = [sum(counts) * shapes[s].gpus for s, counts in placed.items() if shapes[s].gpu_milli == WHOLE_MILLI]
        self.model.add(sum(self.whole[node, device] for device in range(len(left))) == sum(whole))
        taken: list[list[Any]] = [[WHOLE_MILLI * self.whole[node, device]] for device in range(len(left))]
        for shape, counts in placed.items():
            asks = shapes[shape]
            if not asks.gpus or asks.gpu_milli == WHOLE_MILLI:
                continue
            for device in range(len(left)):
                share = self.shares[shape, node, device] = self.model.new_int_var(
                    0, WHOLE_MILLI // asks.gpu_milli, f"q{shape}n{node}d{device}"
                )
                taken[device].append(asks.gpu_milli * share)
                if asks.gpus > 1:  # devices of a pod differ
                    self.model.add(share <= sum(counts))
            shares = [self.shares[shape, node, device] for device in range(len(left))]
            self.model.add(sum(shares) == asks.gpus * sum(counts))
        for device in range(len(left)):
            self.model.add(sum(taken[device]) <= left[device])


class _Reader:
    """Pods and devices of a solution."""

    def __init__(self, model: _Model, solver: Any) -> None:
        self.model = model
        self.value = solver.value
        self.bound = float(solver.best_objective_bound // 1000)
        self.masks: dict[tuple[int, int], list[int]] = {}
        """Devices of each pod of a shape on a node that were not given out yet."""
        self.left = {key: self.value(count) for key, count in (model.anywhere | model.own).items()}
        """Pods that stand on a node and were not given out: (shape, node), or (item, shape, node)."""

    def solution(self, status: str) -> MoveSolution:
        """Which gangs move, and each pod's place."""
        problem = self.model.problem
        for node in range(len(problem.nodes)):
            self._devices_on(node)
        moved = [at for at, move in enumerate(self.model.moves) if self.value(move)]
        places = [self._places(number) for number in (0, *(at + 1 for at in moved))]
        cost = sum(problem.movable[at].price_gpu_s for at in moved)
        return MoveSolution(status, moved, places, cost, min(cost, self.bound))

    def _devices_on(self, node: int) -> None:
        shapes = self.model.problem.shapes
        devices = range(len(self.model.problem.nodes[node].gpu_milli))
        whole = [device for device in devices if self.value(self.model.whole[node, device])]
        for shape, counts in self.model.placed_on(node).items():
            asks, count = shapes[shape], sum(self.value(each) for each in counts)
            masks = [0] * count
            if asks.gpus and asks.gpu_milli == WHOLE_MILLI:
                masks = [sum(1 << whole.pop() for _ in range(asks.gpus)) for _ in range(count)]
            elif asks.gpus and count:
                # each device's shares are dealt in turn; it has no more than there are pods, so no pod gets it twice
                turn = [device for device in devices for _ in range(self.value(self.model.shares[shape, node, device]))]
                masks = [sum(1 << device for device in turn[pod::count]) for pod in range(count)]
            self.masks[shape, node] = masks

    def _places(self, number: int) -> list[tuple[int, int, int]]:
        item, shapes = self.model.items[number], self.model.problem.shapes
        found: list[tuple[int, int, int]] = []
        if not item.domains:
            for shape, count in item.pods:
                found += self._take((), shape, count, shapes[shape].nodes)
            return found
        for group, at_domain in zip(item.groups, self.model.chosen[number], strict=True):
            for domain, times in enumerate(at_domain):
                for _ in range(self.value(times)):
                    for shape, count in group.pods:
                        found += self._take((number,), shape, count, item.domains[domain])
        return found

    def _take(self, owner: tuple[int, ...], shape: int, count: int, nodes: list[int]) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for node in nodes:
            key = (*owner, shape, node)
            while len(found) < count and self.left.get(key, 0):
                self.left[key] -= 1
                found.append((node, shape, self.masks[shape, node].pop()))
        return found


def solve(problem: MoveProblem, limit_s: float) -> MoveSolution:
    """The cheapest moves, by CP-SAT with one worker and a fixed seed."""
    from ortools.sat.python import cp_model

    model = _Model(problem)
    model.build()
    solver: Any = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_time_in_seconds = limit_s
    status = solver.status_name(solver.solve(model.model)).lower()
    if status not in ("optimal", "feasible"):
        return MoveSolution(status)
    return _Reader(model, solver).solution(status)


def main(arguments: Sequence[str]) -> None:
    """Read a problem, write its solution; the argument is the time limit in seconds."""
    problem = msgspec.json.decode(sys.stdin.buffer.read(), type=MoveProblem)
    sys.stdout.buffer.write(msgspec.json.encode(solve(problem, float(arguments[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
