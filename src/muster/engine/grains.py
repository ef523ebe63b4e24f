"""Runs of pods in rank order that stay in one domain, so that groups of ranks are not torn apart.

Pods of one shape take the same wherever they land, so a domain holds as many runs as its room divided by their size,
rounded down, and these numbers just add up over domains. Placing runs is then placing pods with rooms that are
multiples of the run's size. Runs of a narrower level lie within those of a wider one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from muster.engine.domains import Dealing, Depths, TopologyIndex
from muster.kernels import Ints
from muster.model.fleet import HOST
from muster.model.parallelism import RankGroups

NVLINK_DOMAIN = "nvlink_domain"
"""The level within which NVLink reaches; on a fleet without it, each node is such a domain."""


class Grain(Struct, frozen=True):
    """Each run of ``size`` pods stays in one domain of ``depth``."""

    depth: int
    size: int


Grains = tuple[Grain, ...]
"""From the widest level to the narrowest; each size is a multiple of the next."""


def nvlink_depth(index: TopologyIndex) -> int:
    """The depth of NVLink domains."""
    return index.depth_of(NVLINK_DOMAIN if NVLINK_DOMAIN in index.levels else HOST)


def choices_of(index: TopologyIndex, groups: RankGroups, required: int, counts: Sequence[int]) -> Iterator[Grains]:
    """The runs that a gang may be held to, the best first; the last is what it must be held to.

    Tensor parallel groups stand in one NVLink domain, always. What is near stands in one domain of the narrowest level
    at which all of it can, so that it gives way level by level; runs must divide ``counts``, the pods of each unit.
    What ``required`` asks for as a whole needs no runs.
    """
    at = nvlink_depth(index)
    torn = any(count % groups.together for count in counts)  # a single pod that is replaced
    must = (Grain(at, groups.together),) if groups.together > 1 and required < at and not torn else ()
    if groups.near > groups.together and all(count % groups.near == 0 for count in counts):
        for depth in range(max(len(index.levels), at), required, -1):
            yield (Grain(depth, groups.near), *(must if depth < at else ()))
    yield must


def rounded(index: TopologyIndex, rooms: Depths, grains: Grains) -> Depths:
    """Rooms for whole runs only: at each depth down to the narrowest grain a multiple of its size; below as they are.

    Domains without a name hold none.
    """
    for grain in reversed(grains):
        whole = rooms[grain.depth] // grain.size * grain.size * index.real[grain.depth]
        rooms = (*index.sums_above(grain.depth, whole), *rooms[grain.depth + 1 :])
    return rooms


def deal(
    index: TopologyIndex, dealing: Dealing, grains: Grains, depth: int, group: int, amount: int
) -> list[tuple[int, int]]:
    """Deal ``amount`` pods over the domains of ``dealing.bottom`` within one, run by run; in order."""
    parts = [(group, amount)]
    for grain in grains:
        if grain.depth <= depth:
            continue
        runs = Dealing(
            _divided(dealing.rooms, grain.size), _divided(dealing.loads, grain.size), grain.depth,
            dealing.preferred if dealing.preferred <= grain.depth else 0,
            dealing.spread if dealing.spread <= grain.depth else 0,
            dealing.rooms[grain.depth],
        )  # fmt: skip
        parts = [
            (domain, share * grain.size)
            for part, count in parts
            for domain, share in runs.deal(index, depth, part, count // grain.size)
        ]
        depth = grain.depth
    return [piece for part, count in parts for piece in dealing.deal(index, depth, part, count)]


def _divided(values: Depths, size: int) -> tuple[Ints, ...]:
    return tuple(value // size for value in values)
