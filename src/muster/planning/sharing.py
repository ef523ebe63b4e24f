"""GPUs that processes share by MIG, MPS or time-slicing: how many they need, and how much they slow each other down.

Of a process are known: m bytes of memory, c the share of a GPU's compute that it uses when it works, u the share of the
time in which it works.

    MIG           an instance of s of S memory slices and k of K compute slices: memory >= m and k/K >= c, reserved
    MPS           sum of m <= memory, sum of c u <= target, at most 48 processes; kernels run side by side
    time-slicing  sum of m <= memory, sum of u <= target; kernels take turns, and a turn has the whole GPU

Slow-down of a process while it works, if processes work independently of each other:

    MPS           E max(1, c + sum over the others of c_j x_j),  x_j = 1 with probability u_j, else 0
    time-slicing  1 + sum over the others of u_j

MIG profiles of one model form a chain: each that is larger in memory is not smaller in compute. So a process that fits
an instance fits every larger one, and of what a layout could take, the largest processes first is never worse.

Sources: NVIDIA MIG User Guide (layouts: muster.catalog.mig_layouts); NVIDIA MPS guide; NVIDIA k8s-device-plugin.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache

from msgspec import Struct

from muster.catalog.mig import MigProfile, MigTable
from muster.catalog.mig_layouts import Layout, legal_layouts
from muster.catalog.mps import MOST_MPS_CLIENTS
from muster.planning.packing import Counts, Packing, TooLong, pack

MOST_STEPS = 8_000
"""Steps of looking for ways to fill a GPU before a search is given up."""


class Shared(Struct, frozen=True):
    """Processes of one kind.

    Attributes:
        memory_bytes: of one process, its CUDA context included.
        compute: share of a GPU's compute that it uses when it works, above 0 to 1.
        busy: share of the time in which it works, above 0 to 1.
        count: how many.
        tenant: whom they belong to.
    """

    name: str
    memory_bytes: float
    compute: float
    busy: float = 1.0
    count: int = 1
    tenant: str = ""


# MIG


def profile_bytes(profile: MigProfile) -> float:
    """Memory of an instance; what its name says, in powers of ten, where no source has the MiB."""
    if profile.memory_mib is not None:
        return profile.memory_mib * 2.0**20
    found = re.search(r"\.(\d+)gb", profile.name)
    return float(found[1]) * 1e9 if found else 0.0


def plain_profiles(table: MigTable) -> tuple[MigProfile, ...]:
    """The profiles without variants, smallest first: the chain."""
    plain = [each for each in table.profiles if not each.variant]
    return tuple(sorted(plain, key=lambda each: (each.memory_slices, each.compute_slices)))


def smallest_profile(table: MigTable, job: Shared) -> MigProfile | None:
    """The smallest profile that has the memory and the compute; None: not even the whole GPU has."""
    for each in plain_profiles(table):
        if profile_bytes(each) >= job.memory_bytes and each.compute_slices >= job.compute * table.compute_slices - 1e-9:
            return each
    return None


class MigPacking(Struct, frozen=True):
    """GPUs split by MIG.

    Attributes:
        profiles: of the chain, smallest first; fills of ``packing`` count processes by the profile they need.
        packing: fills count from the largest profile down.
    """

    profiles: tuple[MigProfile, ...]
    packing: Packing

    def layouts(self, gpu: str) -> tuple[tuple[Layout, int], ...]:
        """For each fill a legal layout that holds it, with the starts, and on how many GPUs."""
        return tuple((self._layout(gpu, fill), times) for fill, times in self.packing.fills)

    def _layout(self, gpu: str, fill: Counts) -> Layout:
        levels = {each.name: at for at, each in enumerate(reversed(self.profiles))}
        for layout in _sorted_layouts(gpu):
            if _filled(tuple(sorted(levels[name] for name, _ in layout)), fill) == fill:
                return layout
        raise AssertionError("a fill came from a layout")


@cache
def _sorted_layouts(gpu: str) -> tuple[Layout, ...]:
    """All maximal layouts; first those with most instances, so that a fill leaves the smallest instances empty."""
    return tuple(sorted(legal_layouts(gpu), key=lambda each: (-len(each), each)))


def _filled(instances: Sequence[int], rest: Counts) -> Counts:
    """Processes that a layout takes out of what is left: the largest first, each into the smallest that holds it.

    Both are by level, 0 the largest profile; ``instances`` ascending, so the largest first.
    """
    free = list(instances)
    taken = [0] * len(rest)
    for level, left in enumerate(rest):
        for _ in range(left):
            at = next((at for at in range(len(free) - 1, -1, -1) if free[at] <= level), None)
            if at is None:
                break
            del free[at]
            taken[level] += 1
    return tuple(taken)


@lru_cache(512)
def pack_mig(gpu: str, table: MigTable, jobs: tuple[Shared, ...]) -> MigPacking:
    """The fewest GPUs on which all processes have an instance of their own, by exact search over legal layouts.

    Every process must fit some profile (`smallest_profile`).
    """
    profiles = plain_profiles(table)
    chain = tuple(reversed(profiles))
    level = {each.name: at for at, each in enumerate(chain)}
    counts = [0] * len(chain)
    for job in jobs:
        needed = smallest_profile(table, job)
        assert needed is not None
        counts[level[needed.name]] += job.count
    kinds = sorted({tuple(sorted(level[name] for name, _ in layout)) for layout in legal_layouts(gpu)})

    @cache
    def fills(rest: Counts) -> tuple[Counts, ...]:
        first = next(at for at, left in enumerate(rest) if left)
        found = {_filled(kind, rest) for kind in kinds if kind[0] <= first}
        slices = [each.memory_slices for each in chain]
        ways = sorted(found, key=lambda fill: (-sum(map(int.__mul__, fill, slices)), tuple(-one for one in fill)))
        return _undominated([way for way in ways if way[first]])

    most = [max(sum(one <= at for one in kind) for kind in kinds) for at in range(len(chain))]

    def lower_bound(rest: Counts) -> int:
        bounds = [
            sum(left * each.memory_slices for left, each in zip(rest, chain, strict=True)) / table.memory_slices,
            sum(left * each.compute_slices for left, each in zip(rest, chain, strict=True)) / table.compute_slices,
        ]
        total = 0
        for left, at_most in zip(rest, most, strict=True):
            total += left
            bounds.append(total / at_most)
        return math.ceil(max(bounds) - 1e-9)

    return MigPacking(profiles, pack(tuple(counts), fills, lower_bound))


def _undominated(ways: Sequence[Counts]) -> tuple[Counts, ...]:
    """Without those that take no more of any size-or-larger than another one does."""
    kept: list[tuple[Counts, Counts]] = []
    for way in ways:
        sums = tuple(sum(way[: at + 1]) for at in range(len(way)))
        if not any(all(a <= b for a, b in zip(sums, other, strict=True)) for _, other in kept):
            kept.append((way, sums))
    return tuple(way for way, _ in kept)


# MPS and time-slicing


@lru_cache(512)
def pack_shared(jobs: tuple[Shared, ...], memory_bytes: float, target: float, *, mps: bool) -> Packing:
    """The fewest GPUs whose memory holds the processes and whose average use stays within ``target``.

    A process that alone is over the target has a GPU for itself. Fills count processes in the order of ``jobs``. Every
    process must fit the memory.
    """
    order = sorted(range(len(jobs)), key=lambda at: (-_size(jobs[at], memory_bytes, target, mps), at))
    uses = [min(target, _use(jobs[at], mps)) for at in order]
    sizes = [jobs[at].memory_bytes for at in order]
    most = MOST_MPS_CLIENTS if mps else 10**6
    steps = 0

    def fills(rest: Counts) -> Iterator[Counts]:
        first = next(at for at, left in enumerate(rest) if left)
        chosen = [0] * len(rest)

        def room(at: int, memory: float, use: float, clients: int) -> int:
            by_use = (use + 1e-9) / uses[at]
            return max(0, int(min(rest[at], (memory + 1e-3) / sizes[at], by_use, clients)))

        def ways(at: int, memory: float, use: float, clients: int) -> Iterator[Counts]:
            nonlocal steps
            if at == len(rest):
                yield tuple(chosen)
                return
            steps += 1
            high = room(at, memory, use, clients)
            for count in range(high, 0 if at == first else -1, -1):
                chosen[at] = count
                yield from ways(at + 1, memory - count * sizes[at], use - count * uses[at], clients - count)
            chosen[at] = 0

        for way in ways(first, memory_bytes, target, most):
            left = memory_bytes - sum(map(float.__mul__, map(float, way), sizes))
            use = target - sum(map(float.__mul__, map(float, way), uses))
            clients = most - sum(way)
            if all(rest[at] == way[at] or not room(at, left, use, clients) for at in range(len(rest))):
                yield way
            if steps > MOST_STEPS:
                raise TooLong

    def lower_bound(rest: Counts) -> int:
        memory = sum(map(float.__mul__, map(float, rest), sizes)) / memory_bytes
        use = sum(map(float.__mul__, map(float, rest), uses)) / target
        alone = sum(left for left, size in zip(rest, sizes, strict=True) if size > memory_bytes / 2)
        return max(math.ceil(max(memory, use, sum(rest) / most) - 1e-9), alone)

    packing = pack(tuple(jobs[at].count for at in order), fills, lower_bound)
    back = sorted(range(len(order)), key=lambda at: order[at])
    return Packing(
        tuple((tuple(fill[at] for at in back), times) for fill, times in packing.fills), packing.at_least
    )  # fmt: skip


def _use(job: Shared, mps: bool) -> float:
    return job.busy * (job.compute if mps else 1.0)


def _size(job: Shared, memory_bytes: float, target: float, mps: bool) -> float:
    return max(job.memory_bytes / memory_bytes, _use(job, mps) / target)


def slow_down(jobs: Sequence[Shared], fill: Counts, *, mps: bool) -> tuple[float, ...]:
    """How many times longer work takes beside the others of a GPU, for each kind; NaN for those that are not there."""
    found: list[float] = []
    for at, job in enumerate(jobs):
        if not fill[at]:
            found.append(float("nan"))
            continue
        others = [(other, fill[i] - (i == at)) for i, other in enumerate(jobs)]
        if not mps:
            found.append(1 + sum(other.busy * count for other, count in others))
            continue
        wanted = _wanted((other.compute, other.busy) for other, count in others for _ in range(count))
        found.append(sum(chance * max(1.0, job.compute + load) for load, chance in wanted.items()))
    return tuple(found)


def over_asked(jobs: Sequence[Shared], fill: Counts) -> float:
    """The share of the time in which the processes of a GPU together want more than all of its compute."""
    wanted = _wanted((job.compute, job.busy) for job, count in zip(jobs, fill, strict=True) for _ in range(count))
    return sum(chance for load, chance in wanted.items() if load > 1 + 1e-9)


def _wanted(each: Iterable[tuple[float, float]]) -> dict[float, float]:
    """The distribution of the compute that is wanted at once, in steps of a thousandth of a GPU."""
    chances = {0.0: 1.0}
    for compute, busy in each:
        following: dict[float, float] = {}
        for load, chance in chances.items():
            more = round(load + compute, 3)
            following[load] = following.get(load, 0.0) + chance * (1 - busy)
            following[more] = following.get(more, 0.0) + chance * busy
        chances = following
    return chances
