"""Synthetic workloads from the named mixes. The same options, fleet and seed give the same workloads.

Sizes are drawn by exact shares (largest remainder) and run times by strata, then shuffled: a short trace, too, has the
mean that it is calibrated on. Arrivals are a Poisson process with a daily swing, given their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar, cast

from muster.errors import InputError
from muster.model import Fleet, PodSet, PodShape, Workload
from muster.traces import mixes
from muster.traces.jobs import GangSizes
from muster.traces.mixes import MIXES, JobMix, PodMix, Weighted
from muster.traces.spec import Options
from muster.traces.trace import Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

OPTIONS = (
    "mix", "pods", "seed", "load", "cpu_pods", "shared", "multi", "constrained",
    "gpus_per_pod", "cpu_per_gpu", "memory_gib_per_gpu",
)  # fmt: skip
MAX_PODS = 5_000_000
DEFAULT_JOBS = 10_000
OPENB_DEMAND = 6086.8 / 6212
"""openb's GPU demand by its fleet's GPUs: how many pods are made where the fleet is known and ``pods`` is not given."""

_GIB = 2**30
_T = TypeVar("_T")


def generate(source: str, options: Options, fleet: Fleet | None = None) -> Trace:
    """Workloads of the mix that the options name; raises `InputError` for options that make no sense."""
    import numpy as np

    if fleet is None:
        from muster.traces.fleets import example_fleet

        fleet = example_fleet()
    name = options.text("mix", "default", tuple(MIXES))
    mix = MIXES[name]
    seed = options.integer("seed", 0, 0, 2**63 - 1)
    load = options.number("load", 0.9, 0.001, 100)
    rng = np.random.Generator(np.random.PCG64(seed))
    if isinstance(mix, PodMix):
        workloads = _pods(mix, options, fleet, load, rng)
    else:
        workloads = _jobs(mix, options, fleet, load, rng)
    meta = (("mix", name), ("calibrated on", mix.source), ("seed", str(seed)), ("pods", str(len(workloads))))
    return Trace(name, source, tuple(workloads), meta=meta)


def _pods(mix: PodMix, options: Options, fleet: Fleet, load: float, rng: Generator) -> list[Workload]:
    cpu_pods = options.number("cpu_pods", mix.cpu_pods, 0, 1)
    shared = options.number("shared", mix.shared, 0, 1)
    multi = options.number("multi", mix.multi if "multi" in options else min(mix.multi, 1 - shared), 0, 1)
    constrained = options.number("constrained", mix.constrained, 0, 1)
    for key in ("gpus_per_pod", "cpu_per_gpu", "memory_gib_per_gpu"):
        if key in options:
            raise InputError("is an option of the mixes of jobs over time", field=key)
    if shared + multi > 1 + 1e-9:
        raise InputError(f"shared + multi is {shared + multi:g} of the GPU demand", field="multi", hint="at most 1")
    whole = max(0.0, 1 - shared - multi)
    weights = (shared / _mean(mixes.SHARES), multi / _mean(mixes.MULTI), whole)
    gpus_per_pod = (1 - cpu_pods) / sum(weights)
    count = _pod_count(options, fleet, gpus_per_pod)
    kinds = [cpu_pods, *(weight * gpus_per_pod for weight in weights)]
    cpu, fractional, several, single = _quota(kinds, count)
    shapes = [
        *_cpu_shapes(cpu, rng),
        *_gpu_shapes(fractional, mixes.CORES_SHARED, rng, shares=mixes.SHARES),
        *_gpu_shapes(several, mixes.CORES_MULTI, rng, gpus=mixes.MULTI),
        *_gpu_shapes(single, mixes.CORES_WHOLE, rng),
    ]
    if constrained:
        shapes = _constrained(shapes, constrained, fleet, rng)
    run = mixes.PAI_RUN
    assert isinstance(run, JobMix)
    order = _permutation(count, rng)
    durations = _durations(run, count, rng)
    gpu_s = sum(shapes[place].gpu_milli_total / 1000 * ran for place, ran in zip(order, durations, strict=True))
    submitted = _arrivals(count, _span(gpu_s, load, fleet, durations), rng)
    qualities = _deal([(name, share) for share, name in mixes.QUALITIES], count, rng)
    sets: dict[PodShape, tuple[PodSet, ...]] = {}
    return [
        Workload(
            f"pod-{number + 1:0{len(str(count))}d}",
            sets.setdefault(shapes[place], (PodSet(shapes[place]),)),
            submitted_s=submitted[number],
            duration_s=durations[number],
            quality=qualities[number],
        )
        for number, place in enumerate(order)
    ]


def _jobs(mix: JobMix, options: Options, fleet: Fleet, load: float, rng: Generator) -> list[Workload]:
    for key in ("cpu_pods", "shared", "multi", "constrained"):
        if key in options:
            raise InputError("is an option of the mixes of pods", field=key)
    count = options.integer("pods", DEFAULT_JOBS, 1, MAX_PODS)
    gangs = GangSizes(
        options.integer("gpus_per_pod", 8, 1, 1024),
        round(options.number("cpu_per_gpu", mixes.JOB_CORES_PER_GPU, 0, 1024) * 1000),
        round(options.number("memory_gib_per_gpu", mixes.JOB_MEMORY_GIB_PER_GPU, 0, 65536) * _GIB),
    )
    sizes = _deal(job_sizes(mix), count, rng)
    durations = _durations(mix, count, rng)
    gpu_s = sum(size / 1000 * ran for size, ran in zip(sizes, durations, strict=True))
    submitted = _arrivals(count, _span(gpu_s, load, fleet, durations), rng)
    users = max(1, min(1000, count // 50))
    who = _deal([(user, weight) for user, weight in enumerate(_zipf(users))], count, rng)
    queues = [f"queue-{number + 1:02d}" for number in range(mix.queues)]
    names = [f"user-{number + 1:03d}" for number in range(users)]
    return [
        Workload(
            f"job-{number + 1:0{len(str(count))}d}",
            gangs.pod_sets(sizes[number]),
            submitted_s=submitted[number],
            duration_s=durations[number],
            queue=queues[who[number] % mix.queues],
            user=names[who[number]],
        )
        for number in range(count)
    ]


def job_sizes(mix: JobMix) -> list[tuple[int, float]]:
    """Sizes in thousandths of a GPU and their shares.

    Sizes are powers of two times the smallest; shares change geometrically, the ratio set by the published mean.
    Where that would leave the smallest size too few jobs for the published median, its share is fixed and the ratio
    is set among the others.
    """
    top = int(math.log2(mix.largest_gpus * 1000 / mix.smallest_milli))
    levels = [mix.smallest_milli * 2**power for power in range(top + 1)]
    mean = mix.mean_gpus * 1000
    shares = _geometric(levels, mean)
    if shares[0] < mix.smallest_share or mix.smallest_milli < 1000:
        first = mix.smallest_share
        rest = _geometric(levels[1:], (mean - first * levels[0]) / (1 - first))
        shares = [first, *(share * (1 - first) for share in rest)]
    return list(zip(levels, shares, strict=True))


def _geometric(levels: Sequence[int], mean: float) -> list[float]:
    """Shares proportional to ratio**k with the given mean, found by bisection on the ratio."""
    low, high = 1e-9, 1e3
    shares: list[float] = []
    for _ in range(200):
        ratio = math.sqrt(low * high)
        weights = [ratio ** min(k, 100) for k in range(len(levels))]
        total = sum(weights)
        shares = [weight / total for weight in weights]
        if sum(share * level for share, level in zip(shares, levels, strict=True)) < mean:
            low = ratio
        else:
            high = ratio
    return shares


@lru_cache(maxsize=64)
def lognormal_sigma(mean_s: float, median_s: float, longest_s: float) -> float:
    """Sigma of the lognormal with this median whose values, cut at ``longest_s``, have this mean; by bisection.

    E[min(X, c)] = m exp(s^2/2) Phi(z - s) + c (1 - Phi(z)) with z = ln(c/m) / s.
    """
    normal = NormalDist()

    def mean(sigma: float) -> float:
        z = math.log(longest_s / median_s) / sigma
        return median_s * math.exp(sigma * sigma / 2) * normal.cdf(z - sigma) + longest_s * (1 - normal.cdf(z))

    low, high = 1e-3, 6.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < mean_s else (low, middle)
    return high


def _durations(mix: JobMix, count: int, rng: Generator) -> list[float]:
    """Run times in whole seconds, at least one: one draw from each of ``count`` strata of equal probability."""
    sigma = lognormal_sigma(mix.mean_s, mix.median_s, mix.longest_s)
    normal = NormalDist()
    strata = ((rng.permutation(count) + rng.random(count)) / count).clip(1e-12, 1 - 1e-12)
    drawn = [mix.median_s * math.exp(sigma * normal.inv_cdf(one)) for one in _floats(strata)]
    return [float(max(1, round(min(mix.longest_s, one)))) for one in drawn]


def _arrivals(count: int, span_s: float, rng: Generator) -> list[float]:
    """Sorted arrival times in 0..span of a Poisson process with a daily swing, given that there are ``count``."""
    import numpy as np

    grid = np.linspace(0.0, span_s, max(2, min(200_000, int(span_s / 900) + 2)))
    day = 86400.0
    phase = 2 * np.pi * (grid - mixes.PEAK_HOUR * 3600) / day
    cumulated = grid + mixes.DIURNAL_SWING * day / (2 * np.pi) * (np.sin(phase) - np.sin(phase[0]))
    drawn = np.sort(rng.random(count)) * cumulated[-1]
    return [float(round(second)) for second in _floats(cast("NDArray[np.float64]", np.interp(drawn, cumulated, grid)))]


def _span(gpu_s: float, load: float, fleet: Fleet, durations: Sequence[float]) -> float:
    """Seconds over which this work keeps ``load`` of the fleet's GPUs busy (or 1,000 jobs at once, without GPUs)."""
    if not fleet.gpus or not gpu_s:
        return max(1.0, sum(durations) / 1000 / load)
    return max(1.0, gpu_s / (load * fleet.gpus))


def _pod_count(options: Options, fleet: Fleet, gpus_per_pod: float) -> int:
    """How many pods: as asked, else as many as keep openb's ratio of GPU demand to GPUs."""
    default = 8152
    if fleet.gpus and gpus_per_pod:
        default = max(1, min(MAX_PODS, round(OPENB_DEMAND * fleet.gpus / gpus_per_pod)))
    return options.integer("pods", default, 1, MAX_PODS)


def _cpu_shapes(count: int, rng: Generator) -> list[PodShape]:
    cores = _deal(mixes.CORES_CPU_POD, count, rng)
    memory = _deal(mixes.MEMORY_GIB_PER_CORE, count, rng)
    return [PodShape(round(one * 1000), round(one * gib * _GIB)) for one, gib in zip(cores, memory, strict=True)]


def _gpu_shapes(
    count: int,
    cores_per_gpu: Weighted,
    rng: Generator,
    *,
    gpus: Weighted = ((1, 1.0),),
    shares: Weighted = ((1, 1.0),),
) -> list[PodShape]:
    cores = _deal(cores_per_gpu, count, rng)
    memory = _deal(mixes.MEMORY_GIB_PER_CORE, count, rng)
    return [
        PodShape(round(one * size * 1000), round(one * size * gib * _GIB), int(size), round(share * 1000))
        for one, gib, size, share in zip(cores, memory, _deal(gpus, count, rng), _deal(shares, count, rng), strict=True)
    ]


def _constrained(shapes: list[PodShape], share: float, fleet: Fleet, rng: Generator) -> list[PodShape]:
    """Give a share of the GPU pods the models that they accept: models of which some node can hold the pod."""
    import msgspec

    nodes: dict[str, int] = {}
    widest: dict[str, int] = {}
    for node in fleet:
        for model in node.gpu_models:
            nodes[model] = nodes.get(model, 0) + 1
            widest[model] = max(widest.get(model, 0), sum(device.model == model for device in node.devices))
    with_gpus = [position for position, shape in enumerate(shapes) if shape.gpus]
    chosen = _permutation(len(with_gpus), rng)[: round(share * len(with_gpus))]
    named = _deal(mixes.MODELS_NAMED, len(chosen), rng)
    result = list(shapes)
    for position, count in zip((with_gpus[place] for place in chosen), named, strict=True):
        fitting = [model for model in sorted(nodes) if widest[model] >= shapes[position].gpus]
        if fitting:
            weights = [nodes[model] for model in fitting]
            size = min(int(count), len(fitting))
            picked = rng.choice(len(fitting), size, replace=False, p=[one / sum(weights) for one in weights])
            models = tuple(sorted(fitting[place] for place in cast("list[int]", picked.tolist())))
            result[position] = msgspec.structs.replace(shapes[position], gpu_models=models)
    return result


def _deal(weighted: Sequence[tuple[_T, float]], count: int, rng: Generator) -> list[_T]:
    """``count`` values with exact shares, in random order."""
    dealt: list[_T] = []
    for (value, _), times in zip(weighted, _quota([weight for _, weight in weighted], count), strict=True):
        dealt += [value] * times
    return [dealt[place] for place in _permutation(count, rng)]


def _permutation(count: int, rng: Generator) -> list[int]:
    return cast("list[int]", rng.permutation(count).tolist())


def _floats(values: NDArray[np.float64]) -> list[float]:
    return cast("list[float]", values.tolist())


def _quota(weights: Sequence[float], count: int) -> list[int]:
    """Whole numbers proportional to the weights that add up to ``count``, by largest remainder."""
    total = sum(weights)
    exact = [weight / total * count for weight in weights]
    quota = [int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda place: (quota[place] - exact[place], place))
    for place in order[: count - sum(quota)]:
        quota[place] += 1
    return quota


def _zipf(count: int) -> list[float]:
    return [1 / (rank + 1) for rank in range(count)]


def _mean(weighted: Weighted) -> float:
    return sum(value * weight for value, weight in weighted)
