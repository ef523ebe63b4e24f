"""What the default policy derives from the mix and the fleet without search: hole values, prices, blocks.

Linear programs are solved by HiGHS through scipy. Single dual prices jump when demand moves a little, their mean over
perturbed demands does not: that is why each table is a mean over seeded draws.
"""

from __future__ import annotations

# Numba has no stubs, and numpy's tell arrays from scalars only in part.
# pyright: reportArgumentType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false
# pyright: reportReturnType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
from typing import Any

import numpy as np

from muster.engine.state import FleetState
from muster.kernels import Floats, Ints, entry_kernel


@entry_kernel
def knapsack(values: Floats, sizes: Ints, best: Floats, last: Ints) -> None:
    """``best[r]`` = most value of items that fit in r milli, ``last[r]`` the item taken last there (-1: none)."""
    for room in range(1, best.shape[0]):
        best[room] = best[room - 1]
        for item in range(sizes.shape[0]):
            if sizes[item] <= room and best[room - sizes[item]] + values[item] > best[room] + 1e-12:
                best[room] = best[room - sizes[item]] + values[item]
                last[room] = item


def _solve(*args: Any, **options: Any) -> Any:
    from scipy.optimize import linprog  # pyright: ignore[reportUnknownVariableType]

    return linprog(*args, method="highs", **options)  # pyright: ignore[reportUnknownVariableType]


def cutting_stock_duals(sizes: Ints, demand: Floats) -> Floats:
    """Dual price of each size, in GPUs a pod, of packing the demand into the fewest GPUs (column generation)."""
    patterns = [np.eye(len(sizes), dtype=np.int64)[index] * (1000 // size) for index, size in enumerate(sizes.tolist())]
    duals = np.zeros(len(sizes))
    for _ in range(100):
        result = _solve(np.ones(len(patterns)), A_ub=-np.array(patterns).T, b_ub=-demand)
        if result.status != 0:
            return sizes / 1000.0
        duals = np.maximum(0.0, -result.ineqlin.marginals)
        best, last = np.zeros(1001), np.full(1001, -1, np.int64)
        knapsack(duals, sizes, best, last)
        if best[1000] <= 1 + 1e-7:
            break
        pattern = np.zeros(len(sizes), np.int64)
        room = 1000
        while room > 0:
            item = int(last[room])
            if item < 0:
                room -= 1
            else:
                pattern[item] += 1
                room -= int(sizes[item])
        patterns.append(pattern)
    return duals


def hole_table(gpus: Ints, milli: Ints, share: Floats, draws: int = 8, most: int = 60) -> Floats:
    """Worth (0..1) of r free milli of a GPU, r = 0..1000, by the cutting-stock prices of the mix's fractions."""
    fraction = (gpus == 1) & (milli < 1000)
    if not share[fraction].any():
        table = np.zeros(1001)
        table[1000] = 1.0
        return table
    sizes, inverse = np.unique(milli[fraction], return_inverse=True)
    demand = np.bincount(inverse, weights=share[fraction])
    if len(sizes) > most:
        keep = np.sort(np.argsort(-demand * sizes, kind="stable")[:most])
        sizes, demand = sizes[keep], demand[keep]
    demand = demand / demand.sum() * 1000.0
    rng = np.random.Generator(np.random.PCG64(1))
    total = np.zeros(1001)
    for draw in range(draws):
        perturbed = demand if draw == 0 else demand * np.exp(0.3 * rng.standard_normal(len(demand)))
        best = np.zeros(1001)
        knapsack(cutting_stock_duals(sizes, perturbed), sizes, best, np.full(1001, -1, np.int64))
        total += best / best[1000]
    return total / draws


def kind_prices(state: FleetState, ids: Ints, share: Floats, allowed: Ints, draws: int = 15) -> Floats:
    """Dual price (0..1) of a GPU of each hardware kind when the mix asks for 0.9 to 1.1 of the fleet.

    A transport program: groups of shapes (allowed kinds, GPUs a pod) to kinds, with CPU, memory and GPU of each kind.
    All zero where no shape is bound to some kinds. ``allowed`` is shapes x kinds.
    """
    kinds = len(state.kinds)
    shapes = state.shapes
    gpu = shapes.gpus[ids] * shapes.gpu_milli[ids] / 1000.0
    asks = shapes.gpus[ids] > 0
    if not (share * gpu).sum() or allowed[asks].all():
        return np.zeros(kinds)
    groups: dict[tuple[tuple[int, ...], int], Floats] = {}
    for row in np.flatnonzero(asks).tolist():
        key = (tuple(allowed[row].tolist()), int(shapes.gpus[ids[row]]))
        amounts = np.array([gpu[row], shapes.cpu[ids[row]] / 1000.0, shapes.memory[ids[row]] / 2**30])
        groups[key] = groups.get(key, np.zeros(3)) + share[row] * amounts
    keys = sorted(groups)
    sets = sorted({key[0] for key in keys})
    set_of = np.array([sets.index(key[0]) for key in keys])
    amounts = np.array([groups[key] for key in keys])
    width = [len(kind[2]) for kind in state.kinds]
    pairs = [(g, t) for g, key in enumerate(keys) for t in range(kinds) if key[0][t] and key[1] <= width[t]]
    if not pairs:
        return np.zeros(kinds)
    rows = np.zeros((len(keys) + 3 * kinds, len(pairs)))
    for column, (group, kind) in enumerate(pairs):
        rows[group, column] = 1.0
        rows[len(keys) + kind, column] = 1.0
        rows[len(keys) + kinds + kind, column] = amounts[group, 1] / amounts[group, 0]
        rows[len(keys) + 2 * kinds + kind, column] = amounts[group, 2] / amounts[group, 0]
    count = np.bincount(state.nodes.kind, minlength=kinds)
    capacity = np.array([[len(kind[2]), kind[0] / 1000.0, kind[1] / 2**30] for kind in state.kinds]) * count[:, None]
    rng = np.random.Generator(np.random.PCG64(2))
    prices = np.zeros(kinds)
    for draw in range(draws):
        demand = amounts[:, 0] * np.exp(0.4 * rng.standard_normal(len(sets)))[set_of]
        demand *= (0.9, 1.0, 1.1)[draw % 3] * capacity[:, 0].sum() / demand.sum()
        result = _solve(-np.ones(len(pairs)), A_ub=rows, b_ub=np.concatenate([demand, capacity.T.ravel()]))
        if result.status == 0:
            prices += -result.ineqlin.marginals[len(keys) : len(keys) + kinds]
    return prices / draws


def block_table(state: FleetState, ids: Ints, share: Floats, allowed: Ints) -> Floats:
    """kinds x (G + 1): whole GPUs among w free ones that multi-GPU pods can use, by their share of GPU demand."""
    shapes = state.shapes
    widest = state.nodes.gpu_free.shape[1]
    demand = share * shapes.gpus[ids] * shapes.gpu_milli[ids]
    demand = demand / max(float(demand.sum()), 1e-12)
    table = np.zeros((len(state.kinds), widest + 1))
    for row in np.flatnonzero(shapes.gpus[ids] > 1).tolist():
        size = int(shapes.gpus[ids[row]])
        usable = demand[row] * size * (np.arange(widest + 1) // size)
        table += allowed[row][:, None] * usable[None, :]
    return table
