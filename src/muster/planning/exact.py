"""The cheapest moves that let a gang start, by an exact solver (CP-SAT): for small cases, and to measure the engine's.

The solver runs in a process of its own with a time limit. It is an extra: ``pip install '.[solver]'``. Without
it, where the time is up before it found anything, or where a case is not modelled, the engine's plan is the answer, and
a note says so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import msgspec
import numpy as np
from msgspec import Struct

from muster.engine.defrag import Moves, movable, plan_moves
from muster.engine.pending import Gang
from muster.engine.room import one_domain, units_of
from muster.engine.running import RunningGang
from muster.engine.scheduler import Scheduler
from muster.kernels import Ints
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.planning.exact_solver import FreeNode, Group, Held, Item, MoveProblem, MoveSolution, Shape

GRACE_S = 60.0
"""For the solver to start and to build its model."""


class ExactMoves(Struct, frozen=True):
    """The cheapest moves, or the best that is known.

    Attributes:
        moves: None if there are none.
        exact: whether nothing cheaper exists.
        bound_gpu_s: what no moves cost less than; 0 if nothing is known.
        note: why the engine's plan is given instead, or that the time was up; empty if neither.
    """

    moves: Moves | None
    exact: bool
    bound_gpu_s: float = 0.0
    note: str = ""


def plan_exactly(scheduler: Scheduler, name: str, now_s: float, limit_s: float = 30.0) -> ExactMoves:
    """The cheapest moves that let a gang that waits start now, whatever they cost; nothing changes.

    Args:
        scheduler: with the gang pending; only its first flavor is looked at.
        name: the gang's.
        limit_s: how long the solver may search.
    """
    gang = scheduler.pending.gangs[name]
    why_not = _not_modelled(scheduler, gang, now_s)
    if not why_not and importlib.util.find_spec("ortools") is None:
        why_not = "the solver is not installed (pip install '.[solver]')"
    if why_not:
        return _greedy(scheduler, gang, now_s, why_not)
    flavor = next(iter(scheduler.flavors_of(gang.kind)))
    problem, runs = move_problem(scheduler, gang, flavor, now_s)
    solution = solve_apart(problem, limit_s)
    if isinstance(solution, str):
        return _greedy(scheduler, gang, now_s, solution)
    if solution.status == "infeasible":
        return ExactMoves(None, True)
    rows = [np.array(places, np.int64).reshape(-1, 3).T.copy() for places in solution.places]
    moved = tuple((runs[at], new) for at, new in zip(solution.moved, rows[1:], strict=True))
    exact = solution.status == "optimal"
    note = "" if exact else f"not proven to be the cheapest in {limit_s:g} s"
    return ExactMoves(Moves(flavor, rows[0], moved, solution.cost_gpu_s), exact, solution.bound_gpu_s, note)


def solve_apart(problem: MoveProblem, limit_s: float) -> MoveSolution | str:
    """Run the solver in a process of its own; if it gives no answer, why."""
    command = [sys.executable, "-m", "muster.planning.exact_solver", str(limit_s)]
    nothing = f"the solver found nothing in {limit_s:g} s"
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(problem), capture_output=True, timeout=limit_s + GRACE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return nothing
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"the solver failed ({last or f'exit status {done.returncode}'})"
    solution = msgspec.json.decode(done.stdout, type=MoveSolution)
    return nothing if solution.status == "unknown" else solution


def _not_modelled(scheduler: Scheduler, gang: Gang, now_s: float) -> str:
    if scheduler.reservations or any(name != gang.workload.name for name in scheduler.slots):
        return "what is kept for others is not modelled"
    kinds = (gang.kind, *(run.kind for run in scheduler.running))
    if any(each.shape.mig_profile or each.shape.sharing for kind in kinds for each in kind.asked):
        return "MIG slices and shared GPUs are not modelled"
    if any(each.shape.tenant and each.shape.gpu_milli < WHOLE_GPU_MILLI for kind in kinds for each in kind.asked):
        return "tenants that share no GPU are not modelled"
    if any(kind.topology is not None and kind.topology.at_most for kind in kinds):
        return "pods that are kept apart are not modelled"
    return ""


def _greedy(scheduler: Scheduler, gang: Gang, now_s: float, note: str) -> ExactMoves:
    return ExactMoves(plan_moves(scheduler, gang, now_s, float("inf")), False, 0.0, f"the engine's plan: {note}")


def move_problem(scheduler: Scheduler, gang: Gang, flavor: str, now_s: float) -> tuple[MoveProblem, list[RunningGang]]:
    """The problem, and the running gangs that are its movable ones."""
    cluster, nodes = scheduler.cluster, scheduler.cluster.state.nodes
    runs = [run for run in scheduler.running if run.flavor == flavor and movable(scheduler, run, now_s)]
    kind = gang.kind.least
    asked = _item(scheduler, cluster.pods_of(kind, flavor), *one_domain(cluster, kind))
    items: list[Item] = []
    for run in runs:
        item = _item(scheduler, cluster.pods_of(run.kind, flavor), *one_domain(cluster, run.kind))
        item.price_gpu_s = run.lost_gpu_s(now_s)
        item.holds = _holds(scheduler, run)
        items.append(item)
    free = [
        FreeNode(int(nodes.cpu_free[at]), int(nodes.memory_free[at]), nodes.gpu_free[at].tolist())
        for at in range(len(nodes.cpu_free))
    ]
    return MoveProblem(free, _shapes(scheduler), asked, items), runs


def _item(scheduler: Scheduler, pods: Ints, depth: int, size: int) -> Item:
    item = Item([(shape, count) for shape, count in pods.T.tolist()])
    if depth:
        index = scheduler.cluster.index
        item.groups = [Group(list(each.pods), each.times) for each in units_of(pods, size)]
        item.domains = [
            index.order[index.starts[depth][domain] : index.starts[depth][domain + 1]].tolist()
            for domain in np.flatnonzero(index.real[depth]).tolist()
        ]
    return item


def _holds(scheduler: Scheduler, run: RunningGang) -> list[Held]:
    shapes, width = scheduler.cluster.state.shapes, scheduler.cluster.state.nodes.gpu_free.shape[1]
    by_node: dict[int, Held] = {}
    pods: list[list[int]] = run.rows.T.tolist()
    for node, shape, devices in pods:
        held = by_node.setdefault(node, Held(node, 0, 0, [0] * width))
        held.cpu_milli += int(shapes.cpu[shape])
        held.memory_bytes += int(shapes.memory[shape])
        for device in range(devices.bit_length()):
            if devices >> device & 1:
                held.gpu_milli[device] += int(shapes.gpu_milli[shape])
    return list(by_node.values())


def _shapes(scheduler: Scheduler) -> list[Shape]:
    state = scheduler.cluster.state
    shapes, nodes = state.shapes, state.nodes
    found: list[Shape] = []
    for at in range(len(state.shape_list)):
        able = (shapes.static_refusals[shapes.constraint[at]] == 0) & (nodes.gpus >= shapes.gpus[at])
        asks = (shapes.cpu[at], shapes.memory[at], shapes.gpus[at], shapes.gpu_milli[at])
        found.append(Shape(*(int(each) for each in asks), nodes=np.flatnonzero(able).tolist()))
    return found
