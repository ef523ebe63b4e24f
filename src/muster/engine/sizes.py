"""The sizes of an elastic gang: between its minimum and its count a pod set may have any number of pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from muster.model.workload import PodSet

Counts = tuple[int, ...]
"""Pods of each pod set."""

MOST_SIZES = 1024


@lru_cache(maxsize=4096)
def sizes_of(pod_sets: tuple[PodSet, ...], segment: int, near: int = 1) -> tuple[Counts, ...]:
    """The counts with which a gang may run, from its minimum to full size; one entry if it is not elastic.

    From one to the next one pod is added, to the set of which the least part is there (the first of equals), so that
    no set ever has fewer pods in a larger size. Where that would be more than MOST_SIZES, only so many of them are
    taken. With segments only sizes of whole segments are taken, and full size; with ranks only those in which each set
    with GPUs has a multiple of ``near`` pods: whole replicas.
    """
    counts = [each.required for each in pod_sets]
    sizes = [tuple(counts)]
    ranges = [each.count - each.required for each in pod_sets]
    for _ in range(sum(ranges)):
        parts = (
            ((count - each.required) / span, index)
            for index, (count, each, span) in enumerate(zip(counts, pod_sets, ranges, strict=True))
            if count < each.count
        )
        counts[min(parts)[1]] += 1
        sizes.append(tuple(counts))
    if near > 1:
        ranked = [index for index, each in enumerate(pod_sets) if each.shape.gpus]
        sizes = [size for size in sizes if all(size[index] % near == 0 for index in ranked)]
    if len(sizes) > MOST_SIZES:
        sizes = [sizes[at * (len(sizes) - 1) // (MOST_SIZES - 1)] for at in range(MOST_SIZES)]
    if segment:
        full = sizes[-1]
        sizes = [size for size in sizes if size == full or (sum(size) % segment == 0 and sum(size))]
    return tuple(sizes)


def largest(sizes: Sequence[Counts], fits: Callable[[Counts], bool]) -> Counts | None:
    """The largest size that ``fits``, by halving; None if the least does not. Sizes that fit are taken to be below."""
    if not sizes or not fits(sizes[0]):
        return None
    low, high = 0, len(sizes)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(sizes[middle]):
            low = middle
        else:
            high = middle
    return sizes[low]
