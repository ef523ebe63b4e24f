"""Pods that must stand apart: which domains the pods of each shape may take when a domain takes one pod at most.

With one shape, rooms add up. Pods of several shapes compete for domains: a worker's node may be the only one left for
the leader. That is a matching, found exactly by augmenting paths over classes of domains that take the same shapes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from muster.engine.domains import Flags


def one_each(takes: Flags, counts: Sequence[int]) -> Flags | None:
    """Give ``counts[i]`` domains to each shape i, none to two; None if that cannot be.

    Args:
        takes: shapes x domains, whether a domain has room for a pod of the shape.
        counts: pods of each shape; those given first choose first.

    Returns:
        shapes x domains. A shape takes those domains first that the fewest other shapes could use, then the first.
    """
    columns, of_domain = np.unique(takes, axis=1, return_inverse=True)
    of_domain = of_domain.reshape(-1)
    spare = np.bincount(of_domain, minlength=columns.shape[1]).tolist()
    order = np.argsort(columns.sum(axis=0), kind="stable").tolist()
    given = np.zeros(columns.shape, np.int64)
    for shape, count in enumerate(counts):
        left = count
        while left:
            path = _path(columns, order, given, spare, shape)
            if path is None:
                return None
            amount = min([left, spare[path[-1][1]], *(int(given[other, old]) for other, old, _ in _moves(path))])
            for other, old, new in _moves(path):
                given[other, old] -= amount
                given[other, new] += amount
            given[shape, path[0][1]] += amount
            spare[path[-1][1]] -= amount
            left -= amount
    found = np.zeros_like(takes)
    for number in range(columns.shape[1]):
        domains = np.flatnonzero(of_domain == number)
        shapes = np.repeat(np.arange(len(counts)), given[:, number])
        found[shapes, domains[: len(shapes)]] = True
    return found


_Path = list[tuple[int, int]]
"""(shape, class): the first takes of a class; each of the others moves to a class from that of the one before."""


def _moves(path: _Path) -> list[tuple[int, int, int]]:
    """(shape, from, to) of those that make room."""
    return [(shape, before, new) for (_, before), (shape, new) in pairwise(path)]


def _path(columns: Flags, order: Sequence[int], given: np.ndarray, spare: Sequence[int], shape: int) -> _Path | None:
    """The shortest chain by which one more pod of ``shape`` gets a domain: breadth first."""
    came: dict[int, tuple[int, int | None]] = {}
    queue: deque[tuple[int, int | None]] = deque([(shape, None)])
    while queue:
        mover, before = queue.popleft()
        for number in order:
            if number in came or not columns[mover, number]:
                continue
            came[number] = mover, before
            if spare[number]:
                path: _Path = []
                at: int | None = number
                while at is not None:
                    who, previous = came[at]
                    path.append((who, at))
                    at = previous
                return path[::-1]
            queue.extend((int(other), number) for other in np.flatnonzero(given[:, number]))
    return None
