"""Placing pods on a fleet state under a policy, and telling why a pod does not fit."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from muster.engine.kernels import place
from muster.engine.kernels.domains import fill_spans
from muster.engine.state import Allocation, FleetState
from muster.errors import StateError
from muster.kernels import Floats, Ints, Knowledge, Scores, direct
from muster.model.reasons import Refusal, Verdict, reasons_of

_fill_spans = direct(fill_spans)
_place_pods, _place_stream, _refresh = direct(place.place_pods), direct(place.place_stream), direct(place.refresh)

EXAMPLES = 3
"""How many node names a refusal in a verdict carries."""


def empty_knowledge() -> Knowledge:
    """Knowledge of nothing, for policies that need none."""
    none = np.zeros(0)
    return Knowledge(none, none, np.zeros((0, 1)), np.zeros(0, np.int64), none)


class Placer:
    """Places pods of a `FleetState` under one policy.

    The scores of each shape on each node are kept and only refreshed on nodes that changed. Nodes in the same state
    are evaluated once when a shape is new.

    Args:
        state: the fleet; several placers may share one.
        scores: the policy's score kernel; `PolicyEntry.load_score`.
        knowledge: what the policy knows; from `muster.policy`.
        selection: `place.FIRST` or `place.RANDOM`.
        seed: for random selection.
    """

    def __init__(
        self,
        state: FleetState,
        scores: Scores,
        knowledge: Knowledge | None = None,
        selection: int = place.FIRST,
        seed: int = 0,
    ) -> None:
        self.state = state
        self.knowledge = knowledge or empty_knowledge()
        self.selection = selection
        self._scores = scores
        self._cache = new_cache(0, len(state.node_list), seed)
        self._out = np.zeros((3, 64), np.int64)

    def __getstate__(self) -> dict[str, object]:
        """Compiled functions can be neither pickled nor copied: the policy's is kept by its name."""
        function = getattr(self._scores, "_pyfunc", self._scores)
        return {**self.__dict__, "_scores": (function.__module__, function.__name__)}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        module, name = kept["_scores"]
        self.__dict__.update(kept)
        self._scores = getattr(importlib.import_module(module), name)

    def fresh(self, state: FleetState) -> Placer:
        """The same placer on another state, which knows nothing of it yet."""
        return Placer(state, self._scores, self.knowledge, self.selection)

    def copy(self, state: FleetState) -> Placer:
        """The same placer on a copy of its state."""
        twin = Placer.__new__(Placer)
        twin.__dict__.update(self.__dict__)
        twin.state = state
        twin._cache = place.ScoreCache._make(array.copy() for array in self._cache)
        twin._out = self._out.copy()
        return twin

    def place(self, shape: int) -> Allocation | None:
        """Place one pod; None if no node takes it."""
        placed = self.place_pods(shape, 1)
        return placed[0] if placed else None

    def place_pods(self, shape: int, count: int) -> tuple[Allocation, ...]:
        """Place ``count`` pods of one shape, all or none; the empty tuple if they do not all fit."""
        if count > self._out.shape[1]:
            self._out = np.zeros((3, count), np.int64)
        out = self._out
        placed = _place_pods(shape, count, self.scene(), out)
        if placed < count:
            return ()
        pods: list[list[int]] = out[:, :count].T.tolist()
        allocations = tuple(Allocation(node, row, mask) for node, mask, row in pods)
        self.state.note_assigned(allocations)
        return allocations

    def place_gang(self, pods: Sequence[tuple[int, int]]) -> tuple[Allocation, ...]:
        """Place ``(shape, count)`` for each pod set, all or none; the empty tuple if they do not all fit."""
        if len(pods) == 1:
            return self.place_pods(*pods[0])
        allocations: list[Allocation] = []
        with self.state.trial() as trial:
            for shape, count in pods:
                placed = self.place_pods(shape, count)
                if len(placed) < count:
                    return ()
                allocations.extend(placed)
            trial.keep()
        return tuple(allocations)

    def place_in_spans(self, shape: int, spans: Ints, order: Ints) -> Ints | None:
        """Place pods of one shape span by span, all or none; not entered into the undo log.

        Args:
            shape: its row.
            spans: a column a span: start and end in ``order``, and how many pods.
            order: node positions.

        Returns:
            Rows node, shape and device mask, a column a pod; None, with nothing changed, if they do not all fit.
        """
        count = int(spans[2].sum())
        out = np.zeros((3, count), np.int64)
        if _fill_spans(shape, spans, order, self.scene(), out) < count:
            return None
        return np.ascontiguousarray(out[[0, 2, 1]])

    def place_stream(self, stream: Ints, measure: Knowledge | None = None) -> tuple[Ints, Floats]:
        """Place pods in turn, without departures, in one call of the compiled code.

        Args:
            stream: shape ids in the order of arrival.
            measure: typical shapes for which fragments are measured after each arrival; None: not measured.

        Returns:
            ``(2, arrivals)`` ints: node (-1: refused) and device mask; ``(arrivals, causes)`` fragment in milli GPU.
        """
        from muster.policy.fragmentation import CAUSES

        out = np.zeros((2, len(stream)), np.int64)
        fragments = np.zeros((len(stream) if measure else 0, len(CAUSES)))
        of_node = np.zeros((len(self.state.node_list) + 1, len(CAUSES)))
        _place_stream(stream, self.scene(), measure or self.knowledge, of_node, out, fragments)
        return out, fragments

    def verdict(self, shape: int) -> Verdict:
        """Why each node that refuses the shape refuses it: counted by combination of reasons, most nodes first."""
        state = self.state
        row = self.refusals(shape)
        masks, first, counts = np.unique(row, return_index=True, return_counts=True)
        refusals: list[Refusal] = []
        feasible = 0
        for mask, _, count in sorted(zip(masks.tolist(), first.tolist(), counts.tolist(), strict=True), key=_by_count):
            if mask == 0:
                feasible = count
                continue
            positions = np.flatnonzero(row == mask)[:EXAMPLES]
            names = tuple(state.node_names[int(position)] for position in positions)
            refusals.append(Refusal(reasons_of(mask), count, names))
        return Verdict(len(state.node_names), feasible, tuple(refusals))

    def refusals(self, shape: int) -> Ints:
        """Why each node refuses the shape as it is now, as a mask of `Reason` bits; 0 where it takes it. A copy."""
        _refresh(shape, self.scene())
        return self._cache.refusals[shape].astype(np.int64)

    def scores(self, shape: int) -> Floats:
        """The score of the shape on each node, -inf where the node refuses it; a copy."""
        _refresh(shape, self.scene())
        return self._cache.scores[shape].copy()

    def scene(self) -> place.Scene:
        """What the placement kernels work on."""
        state = self.state
        return place.Scene(
            self._scores, self.selection, state.nodes, state.shapes, self.knowledge, self._cache_for_all()
        )

    def _cache_for_all(self) -> place.ScoreCache:
        """The score cache, grown to the number of shapes that the state knows by now."""
        rows = self.state.shape_capacity
        if self._cache.scores.shape[0] < rows:
            grown = new_cache(rows, len(self.state.node_list), 0)
            for name in ("scores", "refusals", "seen", "position", "devices"):
                old = getattr(self._cache, name)
                getattr(grown, name)[: old.shape[0]] = old
            self._cache = grown._replace(marks=self._cache.marks)
        return self._cache


def _by_count(item: tuple[int, int, int]) -> tuple[int, int]:
    return -item[2], item[1]


def new_cache(rows: int, nodes: int, seed: int) -> place.ScoreCache:
    """An empty score cache for so many shapes and nodes."""
    if seed < 0:
        raise StateError("seeds are not negative")
    return place.ScoreCache(
        scores=np.full((rows, nodes), -np.inf),
        refusals=np.zeros((rows, nodes), np.uint16),
        seen=np.full((rows, nodes), -1, np.int32),
        position=np.full(rows, -1, np.int64),
        scratch=np.zeros(1 << (2 * max(nodes, 1)).bit_length(), np.int64),
        work=np.zeros((3, nodes), np.int64),
        marks=np.array([(seed * 2654435761 + 97) & 0x7FFFFFFF, 0, 0], np.int64),
        devices=np.zeros((rows, nodes), np.int8),
    )
