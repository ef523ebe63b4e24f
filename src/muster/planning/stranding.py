"""How many GPUs of a fleet a mix of pods cannot use, and what each rule costs: parts, counts, models, CPU, memory.

A GPU is stranded if it is healthy and asked for, and no placement could give it to a pod. With n_s pods of shape s that
ask for k_s GPUs of which they use u_s (a notebook uses a fifth of one and takes it whole), the useful GPUs that the
best placement serves are bounded with more and more of the rules:

    V0  what is asked for, at most the fleet
    V1  and a pod's part of a GPU is rounded up to what the fleet gives: a fraction, a MIG instance, a whole GPU
    V2  and the GPUs of a pod are on one node:  fewest GPUs left over by patterns of counts that fit a node
    V3  and pods that name a GPU model have that model
    V4  and CPU suffices
    V5  and host memory suffices

    stranded = V0 - V5, of which V0 - V1 by parts, V1 - V2 by counts, V2 - V3 by models, V3 - V4 by CPU, V4 - V5 by
    memory

V1 is the linear program of `muster.planning.bound`. The others are programs over patterns: the multisets of pods that
fit on one node of a type, with its GPUs, CPU and memory. With many shapes there are too many patterns; then V2 is over
the multisets of counts alone, and V3 to V5 are `muster.planning.bound`, in which nodes of a type pool their CPU and
memory. All are bounds: at least so many GPUs are stranded, and a real scheduler leaves more.

Source: Gilmore and Gomory 1961, by HiGHS; the classes are those of FGD (USENIX ATC'23).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.model.fleet import WHOLE_GPU_MILLI, Fleet
from muster.model.workload import PodShape, ShapeMix

SHARINGS = ("whole GPUs", "MIG", "fractions")
"""In what parts a fleet gives its GPUs, coarsest first."""

MIG_MILLI = (125, 250, 500, 1000)
"""What MIG instances of 1, 2, 4 and 8 of 8 memory slices are of a GPU (muster.catalog.mig)."""

_ANY_MODEL: dict[str, Any] = {"gpu_models": (), "node_selector": ()}
_FREE: dict[str, Any] = {"cpu_milli": 0, "memory_bytes": 0, **_ANY_MODEL}

RULES: tuple[str, ...] = ("parts", "counts", "models", "CPU", "memory")


class Asked(Struct, frozen=True):
    """Pods of one shape.

    Attributes:
        shape: its ``gpu_milli`` is the part of each GPU that it uses.
        count: pods; only proportions matter.
    """

    shape: PodShape
    count: float


class Stranded(Struct, frozen=True):
    """GPUs of a fleet by the rule that strands them.

    Attributes:
        gpus: healthy GPUs.
        asked: useful GPUs that are asked for, at most ``gpus``.
        served: of them, what the best placement serves at most.
        by_rule: GPUs lost by each of `RULES`; they sum to ``asked - served``.
    """

    gpus: int
    asked: float
    served: float
    by_rule: tuple[float, ...]

    @property
    def stranded(self) -> float:
        """GPUs that no placement could use."""
        return self.asked - self.served


def taken_milli(used: int, sharing: str) -> int:
    """What a pod takes of a GPU of which it uses so much."""
    if sharing == "fractions":
        return used
    if sharing == "MIG":
        return next(size for size in MIG_MILLI if size >= used)
    return WHOLE_GPU_MILLI


def stranded(fleet: Fleet, pods: Sequence[Asked], load: float, sharing: str, *, models: bool = True) -> Stranded:
    """The bounds V0 to V5 for pods in these proportions, useful demand ``load`` times the fleet's GPUs.

    Args:
        fleet: the nodes, as if empty.
        pods: those with GPUs count; ``load`` scales them.
        sharing: one of `SHARINGS`.
        models: whether pods are held to the models that they name.
    """
    gpus, asked = _asked(fleet, pods, load)
    if not asked:
        return Stranded(gpus, 0.0, 0.0, (0.0,) * len(RULES))
    values = [min(load, 1.0) * gpus]
    for value in _bounds(fleet, asked, sharing, models=models):
        values.append(value if value < values[-1] - 1e-6 else values[-1])
    losses = tuple(before - after for before, after in pairwise(values))
    return Stranded(gpus, values[0], values[-1], losses)


def stranded_gpus(fleet: Fleet, pods: Sequence[Asked], load: float, sharing: str, *, models: bool = True) -> float:
    """`stranded` in all, without telling the rules apart: V2 to V4 are looked at only where V5 does not imply them."""
    from muster.planning.node_patterns import served_by_patterns

    gpus, asked = _asked(fleet, pods, load)
    if not asked:
        return 0.0
    held = {} if models else dict(_ANY_MODEL)
    served = [min(load, 1.0) * gpus, _bounded(fleet, _singles(asked), sharing, _FREE)]
    exact = served_by_patterns(fleet, _changed(asked, sharing, held))
    if exact is None:
        served += [_counts_bound(fleet, asked, sharing), _bounded(fleet, asked, sharing, held)]
    else:
        served.append(exact)
    lost = served[0] - min(served)
    return lost if lost > 1e-6 else 0.0


def _asked(fleet: Fleet, pods: Sequence[Asked], load: float) -> tuple[int, list[Asked]]:
    """Healthy GPUs, and the pods with GPUs, as many as use ``load`` times those."""
    gpus = sum(node.healthy_gpus for node in fleet)
    asked = [each for each in pods if each.shape.gpus and each.count > 0]
    useful = sum(each.count * each.shape.gpu_milli_total for each in asked) / WHOLE_GPU_MILLI
    if not gpus or not useful:
        return gpus, []
    return gpus, [Asked(each.shape, each.count * load * gpus / useful) for each in asked]


def _singles(asked: Sequence[Asked]) -> list[Asked]:
    return [Asked(replace(each.shape, gpus=1), each.count * each.shape.gpus) for each in asked]


def _bounds(fleet: Fleet, asked: Sequence[Asked], sharing: str, *, models: bool) -> Iterator[float]:
    """V1 to V5."""
    from muster.planning.node_patterns import served_by_patterns

    held = {} if models else dict(_ANY_MODEL)
    rules = [_FREE, {"cpu_milli": 0, "memory_bytes": 0, **held}, {"memory_bytes": 0, **held}, held]
    yield _bounded(fleet, _singles(asked), sharing, _FREE)
    for at, changes in enumerate(rules):
        exact = served_by_patterns(fleet, _changed(asked, sharing, changes))
        if exact is not None:
            yield exact
        else:
            yield _bounded(fleet, asked, sharing, changes) if at else _counts_bound(fleet, asked, sharing)


def _changed(asked: Sequence[Asked], sharing: str, changes: dict[str, Any]) -> list[tuple[PodShape, float, float]]:
    """Shapes as they are given, with how many pods there are and the useful GPUs of one.

    Pods that take the same and do not use the same stay apart: the best placement prefers those that use more.
    """
    found: dict[tuple[PodShape, float], float] = {}
    for each in asked:
        shape = replace(each.shape, gpu_milli=taken_milli(each.shape.gpu_milli, sharing), **changes)
        key = (shape, each.shape.gpu_milli_total / WHOLE_GPU_MILLI)
        found[key] = found.get(key, 0.0) + each.count
    return [(shape, count, useful) for (shape, useful), count in found.items()]


def _bounded(fleet: Fleet, asked: Sequence[Asked], sharing: str, changes: dict[str, Any]) -> float:
    """Useful GPUs by the linear program, with fields of the shapes replaced by those of ``changes``."""
    from muster.planning.bound import allocation_bound

    found = _changed(asked, sharing, changes)
    mix = ShapeMix(tuple(shape for shape, _, _ in found), tuple(count for _, count, _ in found))  # type: ignore[arg-type]
    bound = allocation_bound(fleet, mix, None, [useful for _, _, useful in found])
    return bound.percent * bound.gpus / 100


def _counts_bound(fleet: Fleet, asked: Sequence[Asked], sharing: str) -> float:
    """Useful GPUs if the GPUs of a pod must be on one node and nothing else matters: a program over counts.

    maximise sum of u x_ku;  x_ku <= GPUs that pods of k GPUs with use u take;  sum over u of x_ku <= sum over nodes'
    patterns of k a_kP z_gP;  sum of z_gP = nodes with g GPUs. Parts of a GPU count as so much of a single one, which
    can only help them.
    """
    import numpy as np
    from scipy.optimize import linprog  # pyright: ignore[reportUnknownVariableType]

    kinds: defaultdict[tuple[int, float], float] = defaultdict(float)  # GPUs of a pod, use of each, to GPUs taken
    for each in asked:
        part = taken_milli(each.shape.gpu_milli, sharing)
        kinds[each.shape.gpus, each.shape.gpu_milli / part] += each.count * each.shape.gpus * part / WHOLE_GPU_MILLI
    rows = sorted(kinds)
    sizes = sorted({size for size, _ in rows})
    nodes = Counter(node.healthy_gpus for node in fleet if node.healthy_gpus)
    columns = [(gpus, pattern) for gpus in sorted(nodes) for pattern in _patterns(gpus, sizes)]
    first = len(rows)
    gain = np.zeros(first + len(columns))
    gain[:first] = [-use for _, use in rows]
    upper = np.zeros((len(sizes) + len(nodes), first + len(columns)))
    limits = np.zeros(len(sizes) + len(nodes))
    for at, size in enumerate(sizes):
        upper[at, :first] = [float(size == other) for other, _ in rows]
        upper[at, first:] = [-size * pattern[at] for _, pattern in columns]
    for at, gpus in enumerate(sorted(nodes)):
        upper[len(sizes) + at, first:] = [float(of == gpus) for of, _ in columns]
        limits[len(sizes) + at] = nodes[gpus]
    bounds = [(0, kinds[row]) for row in rows] + [(0, None)] * len(columns)
    found: Any = linprog(gain, A_ub=upper, b_ub=limits, bounds=bounds, method="highs")
    return -float(found.fun)


def _patterns(gpus: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Multisets of counts that fit on a node and to which none can be added: how many of each size."""

    def ways(at: int, left: int) -> Iterator[tuple[int, ...]]:
        if at < 0:
            yield ()
            return
        for count in range(left // sizes[at], -1, -1):
            for rest in ways(at - 1, left - count * sizes[at]):
                yield (*rest, count)

    smallest = sizes[0]
    for way in ways(len(sizes) - 1, gpus):
        left = gpus - sum(count * size for count, size in zip(way, sizes, strict=True))
        if left < smallest or not any(size <= left for size in sizes):
            yield way
