"""Fitting the default policy to a fleet and a mix of shapes: one deterministic procedure for all.

1. Tables without search (`muster.planning.tables`): what a hole is worth, prices of hardware kinds, blocks.
2. Fifteen weights and one price offset a GPU model are searched by CMA-ES. Each generation places one new stream of
   pods, drawn from the mix up to 130 % of the fleet's GPUs, once with each candidate, by the engine's own kernel.
   Worth: 0.15 A90 + 0.30 A95 + 0.40 A100 + 0.15 A110 (A: percent allocated) less 0.03 times the percent of rejected
   multi-GPU pods of 2-4 and of 5 and more GPUs at 100 % and at the end.
3. On fresh streams the start, the fitted weights, the half-way point and FGD are compared; the best is kept. There,
   each size class (1, 2-4, 5 and more GPUs) costs 0.2 times the percent rejected beyond FGD's, less 0.5.

All draws are seeded and the number of generations depends on the size of the problem only: the same input gives the
same tuning. A large fleet is cut to a proportional part for the search, a long mix to the
shapes that are most in demand.
"""

from __future__ import annotations

# Numba has no stubs, and numpy's tell arrays from scalars only in part.
# pyright: reportArgumentType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false
# pyright: reportReturnType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from muster.cache import forget, keep, kept
from muster.engine.kernels import place
from muster.engine.placement import empty_knowledge, new_cache
from muster.engine.state import FleetState
from muster.kernels import Floats, Ints, Knowledge, NodeArrays, Scores, user_cache
from muster.model.fleet import Fleet
from muster.model.workload import ShapeMix
from muster.planning.search import CovarianceSearch
from muster.planning.tables import block_table, hole_table, kind_prices
from muster.policy import default, fgd
from muster.policy.fragmentation import CAUSES, typical_shapes

VERSION = 3
WEIGHTS = (
    ("hole_mix", 1.6, 0.5, "how much of a hole's worth is the worth of what fits in, not its size"),
    ("hole", 3.1, 0.5, "price of GPU space that a fraction spoils"),
    ("second", 0.71, 1.0, "weight of the second stranding term"),
    ("cpu_1", 0.65, 0.2, "CPU that serves a GPU in the first term, in means of the mix"),
    ("memory_1", 1.6, 0.2, "memory that serves a GPU in the first term, in means of the mix"),
    ("cpu_2", 0.98, 0.3, "the same of the second term"),
    ("memory_2", 2.0, 0.3, "the same of the second term"),
    ("block", 0.34, 1.5, "worth of blocks of whole GPUs to multi-GPU pods"),
    ("pack_gpu", 0.0045, 1.0, "best fit in GPUs"),
    ("pack_memory", 0.014, 1.0, "best fit in memory"),
    ("fresh", 0.28, 1.5, "reluctance to break an untouched node"),
    ("open", 0.16, 1.0, "reluctance to open a whole GPU for a fraction"),
    ("price", 0.5, 1.0, "weight of the prices of hardware kinds"),
    ("keep", 0.24, 1.0, "CPU pods stay away from nodes with GPU value left"),
    ("pack_cpu", 0.012, 1.0, "best fit of CPU pods in CPU"),
)
"""Name, start, step, meaning: a weight is start * exp(step * theta)."""

OFFSET_STEP, MOST_MODELS = 0.3, 8
POINTS = ((90, 0.15), (95, 0.30), (100, 0.40), (110, 0.15))
POPULATION, FRESH_STREAMS = 12, 8
GENERATIONS = 3, 60
"""Least and most."""
MOST_NODES, MOST_SHAPES = 1300, 500
WORK = 1_200_000_000
"""Arrivals x (nodes + 10 x shapes) of all generations together, to which the time of a run is proportional."""
SIZE_CLASSES = ((1, 1), (2, 4), (5, 99))
"""GPUs of a pod, from and to."""


class Tuning(Struct, frozen=True):
    """A fitted policy. ``chosen`` is ``start``, ``fitted``, ``half`` or ``fgd``; ``gains`` their worth.

    ``named`` are the weights by name; ``weights``, ``curve`` and ``by_kind`` are what the kernel reads, the rows of
    ``by_kind`` in the order of `FleetState.kinds`.
    """

    chosen: str
    gains: dict[str, float]
    named: dict[str, float]
    weights: list[float]
    curve: list[float]
    by_kind: list[list[float]]
    generations: int


def tuned(fleet: Fleet, mix: ShapeMix, say: Callable[[str], None] | None = None) -> Tuning:
    """The tuning for a fleet and a mix: from the user's cache, or fitted now and kept there."""
    state = FleetState(fleet)
    path = _path_of(state, mix)
    found = _not_kept.get(path) or kept(path, Tuning)
    if found is not None and _fits(found, state):
        return found
    if say:
        say("Fitting the default policy to this fleet and mix, once (up to a minute; kept in the cache).")
    tuning = tune(fleet, mix)
    forget(path)
    if not keep(path, tuning):
        _not_kept[path] = tuning
        if say:
            say(f"The cache folder cannot be written ({user_cache()}): the next command has to fit again.")
    return tuning


_not_kept: dict[Path, Tuning] = {}
"""Tunings of this process that the cache could not take, or that were given."""


def give_tuning(fleet: Fleet, mix: ShapeMix, tuning: Tuning) -> None:
    """Take this for the tuning of a fleet and a mix in this process: it was fitted in another."""
    _not_kept[_path_of(FleetState(fleet), mix)] = tuning


def _path_of(state: FleetState, mix: ShapeMix) -> Path:
    """Where the tuning of a fleet and a mix is kept: by all that it depends on."""
    counts = np.bincount(state.nodes.kind, minlength=len(state.kinds)).tolist()
    labels = sorted({(node.labels, node.taints, node.schedulable) for node in state.fleet.nodes})
    key = msgspec.json.encode([VERSION, state.kinds, counts, labels, mix])
    return user_cache() / "tunings" / f"{hashlib.sha256(key).hexdigest()[:32]}.json"


def _fits(tuning: Tuning, state: FleetState) -> bool:
    """Whether a kept tuning has the form that the kernel reads on this fleet; the kernel looks at no length itself."""
    width = 1 + state.nodes.gpu_free.shape[1] + 1
    return (
        tuning.chosen in ("start", "fitted", "half", "fgd")
        and list(tuning.named) == [name for name, *_ in WEIGHTS]
        and len(tuning.weights) == default.PACK_CPU + 1
        and len(tuning.curve) == 1001
        and [len(row) for row in tuning.by_kind] == [width] * len(state.kinds)
    )


def knowledge_from(tuning: Tuning) -> Knowledge:
    """The tuning as the default policy's kernel reads it."""
    return empty_knowledge()._replace(
        weights=np.array(tuning.weights), curve=np.array(tuning.curve), by_kind=np.array(tuning.by_kind)
    )


def tune(fleet: Fleet, mix: ShapeMix) -> Tuning:
    """Fit the default policy; see the module's text for the procedure."""
    problem = _Problem(_part_of(fleet), _most_demanded(mix))
    zero = np.zeros(problem.dimension)
    if not problem.total or not problem.asked.any():
        return problem.tuning("start", {}, zero, 0)
    rng = np.random.Generator(np.random.PCG64(11))
    search = CovarianceSearch(problem.dimension, 0.3, POPULATION, 11)
    arrivals = 1.3 * problem.total / max(float(problem.share @ problem.asked), 1e-9)
    work = arrivals * (problem.nodes + 10 * len(problem.ids))
    generations = int(np.clip(WORK / max(work, 1.0), *GENERATIONS))
    for _ in range(generations):
        stream = problem.draw(rng)
        search.tell([problem.worth(*stream, problem.knowledge(theta)) for theta in search.ask()])
    candidates = {"start": zero, "fitted": search.mean, "half": search.mean / 2}
    gains = _compare(problem, candidates, rng)
    chosen = max(gains, key=lambda name: gains[name])
    return problem.tuning(chosen, gains, candidates.get(chosen, zero), generations)


def _compare(problem: _Problem, candidates: dict[str, Floats], rng: np.random.Generator) -> dict[str, float]:
    """The mean worth of each candidate, and of FGD, on fresh streams."""
    gains = dict.fromkeys([*candidates, "fgd"], 0.0)
    rejects = {name: np.zeros((len(SIZE_CLASSES), 2)) for name in gains}
    for _ in range(FRESH_STREAMS):
        stream = problem.draw(rng)
        for name in gains:
            if name == "fgd":
                result = problem.run(*stream, problem.typical, fgd.score)
            else:
                result = problem.run(*stream, problem.knowledge(candidates[name]))
            gains[name] += result[0] / FRESH_STREAMS
            rejects[name] += result[1] / FRESH_STREAMS
    for name in gains:
        gains[name] -= 0.2 * float(np.maximum(0.0, rejects[name] - rejects["fgd"] - 0.5).sum())
    return gains


class _Problem:
    """The fleet and the mix as arrays, and what a set of weights is worth on a stream."""

    def __init__(self, fleet: Fleet, mix: ShapeMix) -> None:
        self.state = state = FleetState(fleet)
        self.nodes = len(fleet)
        ids = np.array([state.shape_id(shape) for shape in mix.shapes], np.int64)
        shapes, share = typical_shapes(mix)
        typical = np.array([state.shape_id(shape) for shape in shapes], np.int64)
        self.typical = empty_knowledge()._replace(typical=typical, typical_share=np.array(share))
        counts = np.array(mix.counts, float)
        self.share = counts / counts.sum() if len(counts) else counts
        arrays = state.shapes
        self.ids = ids
        self.asked = arrays.gpus[ids] * arrays.gpu_milli[ids]
        self.total = int(state.nodes.gpu_free.sum())
        allowed = np.zeros((len(ids), len(state.kinds)), np.int64)
        for position, kind in enumerate(state.nodes.kind.tolist()):
            allowed[:, kind] |= arrays.static_refusals[arrays.constraint[ids], position] == 0
        fits = self._fit_somewhere(ids, allowed)
        usable = self.share * fits
        gpu = float(usable @ self.asked) / 1000.0
        self._cpu = max(1.0, float(usable @ arrays.cpu[ids]) / gpu) if gpu else 1.0
        self._memory = max(1.0, float(usable @ arrays.memory[ids]) / gpu) if gpu else 1.0
        self._hole = hole_table(arrays.gpus[ids], arrays.gpu_milli[ids], usable)
        self._prices = kind_prices(state, ids[fits], usable[fits], allowed[fits])
        self._blocks = block_table(state, ids, usable, allowed)
        models = [kind[2][0] if kind[2] else "" for kind in state.kinds]
        gpus: dict[str, int] = {}
        for kind in state.nodes.kind.tolist():
            gpus[models[kind]] = gpus.get(models[kind], 0) + len(state.kinds[kind][2])
        top = [model for model in sorted(gpus, key=lambda model: (-gpus[model], model)) if model][:MOST_MODELS]
        top = top if len(top) > 1 else []
        self._slot = [top.index(model) if model in top else -1 for model in models]
        self.dimension = len(WEIGHTS) + len(top)

    def _fit_somewhere(self, ids: Ints, allowed: Ints) -> Ints:
        fits = np.zeros(len(ids), bool)
        arrays = self.state.shapes
        for number, (cpu, memory, devices) in enumerate(self.state.kinds):
            there = (arrays.cpu[ids] <= cpu) & (arrays.memory[ids] <= memory) & (arrays.gpus[ids] <= len(devices))
            fits |= there & (allowed[:, number] > 0)
        return fits

    def named(self, theta: Floats) -> dict[str, float]:
        """The weights by name."""
        logs = np.clip(theta[: len(WEIGHTS)], -6, 6)
        return {
            name: start * float(np.exp(step * at)) for (name, start, step, _), at in zip(WEIGHTS, logs, strict=True)
        }

    def knowledge(self, theta: Floats) -> Knowledge:
        """What the kernel reads for a point of the search."""
        w = self.named(theta)
        weights = np.array([
            w["hole"], w["second"],
            1 / (w["cpu_1"] * self._cpu), 1 / (w["memory_1"] * self._memory),
            1 / (w["cpu_2"] * self._cpu), 1 / (w["memory_2"] * self._memory),
            w["block"], w["pack_gpu"], w["pack_memory"], w["fresh"], w["open"], w["keep"], w["pack_cpu"],
        ])  # fmt: skip
        curve = (np.arange(1001) / 1000.0 + w["hole_mix"] * self._hole) / (1 + w["hole_mix"])
        offsets = OFFSET_STEP * np.clip(theta[len(WEIGHTS) :], -8, 8)
        price = w["price"] * self._prices + np.array([offsets[slot] if slot >= 0 else 0.0 for slot in self._slot])
        by_kind = np.concatenate([price[:, None], self._blocks], axis=1)
        return empty_knowledge()._replace(weights=weights, curve=curve, by_kind=np.ascontiguousarray(by_kind))

    def tuning(self, chosen: str, gains: dict[str, float], theta: Floats, generations: int) -> Tuning:
        """The result as a value."""
        known = self.knowledge(theta)
        weights, curve, by_kind = known.weights.tolist(), known.curve.tolist(), known.by_kind.tolist()
        return Tuning(chosen, gains, self.named(theta), weights, curve, by_kind, generations)

    def draw(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """A stream of shapes up to 130 % of the GPUs, and a node order."""
        expected = float(self.share @ self.asked)
        count = min(int(1.4 * 1.3 * self.total / expected) + 50, 200_000)
        rows = rng.choice(len(self.ids), size=count, p=self.share)
        end = int(np.searchsorted(np.cumsum(self.asked[rows]), 1.3 * self.total)) + 1
        return rows[:end].astype(np.int64), rng.permutation(self.nodes).astype(np.int64)

    def worth(self, rows: Ints, order: Ints, known: Knowledge) -> float:
        """What weights are worth on a stream: see the module's text."""
        gain, rejects = self.run(rows, order, known)
        return gain - 0.03 * float(rejects[1:].sum())

    def run(self, rows: Ints, order: Ints, known: Knowledge, score: Scores = default.score) -> tuple[float, Floats]:
        """Place a stream: the weighted allocation (percent), and the percent rejected by size class and horizon."""
        state = self.state
        nodes, changes = state.nodes, np.zeros_like(state.nodes.changes)
        ways, classes = np.ascontiguousarray(nodes.gpu_ways[:, order]), nodes.gpu_classes[order]
        arrays = NodeArrays(nodes.table[order], nodes.gpu_free[order], ways, classes, changes)
        shapes = state.shapes._replace(static_refusals=np.ascontiguousarray(state.shapes.static_refusals[:, order]))
        out = np.zeros((2, len(rows)), np.int64)
        cache = new_cache(len(state.shape_list), self.nodes, 0)
        scene = place.Scene(score, place.FIRST, arrays, shapes, known, cache)
        none = np.zeros((0, len(CAUSES)))
        place.place_stream(self.ids[rows], scene, self.typical, np.zeros((1, len(CAUSES))), out, none)
        asked, placed = self.asked[rows], out[0] >= 0
        arrived = np.rint(100.0 * np.cumsum(asked) / self.total)
        allocated = 100.0 * np.cumsum(np.where(placed, asked, 0)) / self.total
        gain = sum(weight * _mean(allocated[arrived == mark]) for mark, weight in POINTS)
        gpus = state.shapes.gpus[self.ids[rows]]
        rejects = np.zeros((len(SIZE_CLASSES), 2))
        for size, (least, most) in enumerate(SIZE_CLASSES):
            of_class = (gpus >= least) & (gpus <= most)
            for column, end in enumerate((100.0, 1000.0)):
                some = of_class & (arrived <= end)
                rejects[size, column] = 100.0 * float((some & ~placed).sum()) / max(int(some.sum()), 1)
        return gain, rejects


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _most_demanded(mix: ShapeMix) -> ShapeMix:
    """The shapes that ask for most GPU and CPU in all, each measured by its mean; MOST_SHAPES at most."""
    if len(mix.shapes) <= MOST_SHAPES:
        return mix
    counts = np.array(mix.counts, float)
    gpu = np.array([shape.gpu_milli_total for shape in mix.shapes], float)
    cpu = np.array([shape.cpu_milli for shape in mix.shapes], float)
    weight = counts * (gpu / max(1.0, float(gpu.mean())) + cpu / max(1.0, float(cpu.mean())))
    keep = sorted(np.argsort(-weight, kind="stable")[:MOST_SHAPES].tolist())
    return ShapeMix(tuple(mix.shapes[index] for index in keep), tuple(mix.counts[index] for index in keep))


def _part_of(fleet: Fleet) -> Fleet:
    """A large fleet cut to a proportional part of each hardware kind, at least one node of each."""
    if len(fleet) <= MOST_NODES:
        return fleet
    kind_of = FleetState(fleet).nodes.kind.tolist()
    count = np.bincount(kind_of)
    quota = np.maximum(1, np.floor(count * MOST_NODES / len(fleet) + 0.5)).astype(int).tolist()
    taken = [0] * len(quota)
    chosen = []
    for node, kind in zip(fleet.nodes, kind_of, strict=True):
        if taken[kind] < quota[kind]:
            taken[kind] += 1
            chosen.append(node)
    return Fleet(tuple(chosen), fleet.topology, fleet.name)
