"""The work that runs: when it should end, what stopping it would lose, and who holds what."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter, is_

import numpy as np
from msgspec.structs import replace

from muster.engine.cluster import GangKind
from muster.engine.config import Config
from muster.engine.predict import RunTimes, Span, name_stem, surely_s
from muster.engine.sizes import Counts
from muster.kernels import Ints
from muster.model.workload import Workload

LEAST_OVERRUN_S = 60.0
"""Work that outlived its limit, and all that is known of work like it, is taken to run at least so much longer."""


class RunningGang:
    """A workload that runs: ``rows`` are node, shape and device mask, a column a pod, set by set.

    ``kind`` is of its present size; an elastic gang may be smaller than what it asked for. ``missing`` are the ranks
    of pods that were lost with their nodes and that nothing has replaced yet: they are counted in ``kind`` and have no
    column; the others keep their ranks. ``resized_s`` is when its size changed last, its start at first;
    ``idle_since_s`` since when it has used none of its GPUs. ``limit_s`` is when it is taken to end (NaN: that is told
    when it is entered); that is ``sure`` if it is its owner's limit. ``leaving_s`` is when a gang that was stopped will
    have gone, ``leaving_for`` for whom: till then it holds its places, and nothing else.
    """

    __slots__ = (
        "checkpointed_s", "flavor", "idle_since_s", "kind", "leaving_for", "leaving_s", "limit_s", "missing", "nodes",
        "resized_s", "rows", "started_s", "sure", "workload",
    )  # fmt: skip

    def __init__(
        self, workload: Workload, kind: GangKind, flavor: str, rows: Ints, started_s: float,
        checkpointed_s: float | None = None, missing: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.workload = workload
        self.missing = missing
        self.resized_s = started_s
        self.idle_since_s: float | None = None
        self.leaving_s: float | None = None
        self.leaving_for = ""
        self.kind = kind
        self.flavor = flavor
        self.rows = rows
        self.nodes: frozenset[int] = frozenset(rows[0].tolist())
        self.started_s = started_s
        self.checkpointed_s = checkpointed_s
        self.limit_s = math.nan
        self.sure = False

    @property
    def counts(self) -> Counts:
        """Pods of each pod set, with those that are missing."""
        return tuple(each.count for each in self.kind.asked)

    @property
    def present(self) -> Counts:
        """Pods of each pod set that are there."""
        return tuple(map(int.__sub__, self.counts, self.per_set(self.missing)))

    def per_set(self, ranks: Sequence[int]) -> Counts:
        """How many pods of each pod set some ranks are."""
        sets = np.repeat(np.arange(len(self.counts)), self.counts)
        return tuple(np.bincount(sets[list(ranks)], minlength=len(self.counts)).tolist())

    def stand_on(self, rows: Ints) -> None:
        """Its pods have other places now."""
        self.rows = np.ascontiguousarray(rows)
        self.nodes = frozenset(rows[0].tolist())

    @property
    def surely_s(self) -> float:
        """When it has ended at the latest: by its limit, or as it leaves; infinite if nobody said."""
        return self.started_s + surely_s(self.workload) if self.leaving_s is None else self.leaving_s

    def unsaved_s(self, now_s: float) -> float:
        """How long it has worked since its last checkpoint, or its start."""
        saved_s = self.started_s if self.checkpointed_s is None else max(self.checkpointed_s, self.started_s)
        return max(0.0, now_s - saved_s)

    def lost_gpu_s(self, now_s: float) -> float:
        """GPU-seconds that are lost if it is stopped now: since the last checkpoint, and those of its restart."""
        restart = self.workload.checkpointing.restart_s if self.workload.checkpointing else 0.0
        return (self.unsaved_s(now_s) + restart) * self.kind.milli / 1000.0

    def again(self) -> Workload:
        """The workload as it goes back to its queue; it has started, so its start deadline is met."""
        return replace(self.workload, attempts=self.workload.attempts + 1, start_deadline_s=None)


_ALL_OF = attrgetter(*RunningGang.__slots__)


class RunningSet:
    """All running gangs by name, and in the order in which they should end; ``run_times`` are what predicts it."""

    def __init__(self, config: Config, run_times: RunTimes) -> None:
        self._config = config
        self.run_times = run_times
        self._by_name: dict[str, RunningGang] = {}
        self._ends: list[tuple[float, str]] = []
        self._held: dict[tuple[str, str], int] = {}
        self._by_queue: dict[str, dict[str, RunningGang]] = {}
        self._by_node: dict[int, dict[str, RunningGang]] = {}
        self._shares = False
        self._entered: dict[str, frozenset[int]] = {}
        self.saving = 0
        """How many save their work."""
        self._priorities: dict[int, int] = {}
        self._milli: dict[str, dict[int, int]] = {}
        self._elastic: dict[str, dict[str, RunningGang]] = {}
        self._idle: dict[str, None] = {}
        self._leaving: dict[str, RunningGang] = {}
        self.journal: list[tuple[RunningGang, Ints | None]] | None = None
        """What came (with its places) and went (None) since somebody set it empty; None: nobody did, or it overran."""

    def copy(self) -> RunningSet:
        """What may be changed while this one is not, and nobody follows yet; the gangs are shared: see `memory`.

        What ends in it teaches nothing about run times.
        """
        twin = object.__new__(RunningSet)
        twin.__dict__.update(self.__dict__)
        twin.run_times = self.run_times.frozen()
        twin._by_name, twin._ends, twin._held = dict(self._by_name), list(self._ends), dict(self._held)
        twin._entered, twin._priorities, twin._idle = dict(self._entered), dict(self._priorities), dict(self._idle)
        twin._by_queue = {queue: dict(runs) for queue, runs in self._by_queue.items()}
        twin._by_node, twin._shares = dict(self._by_node), True
        twin._leaving = dict(self._leaving)
        twin._milli = {queue: dict(held) for queue, held in self._milli.items()}
        twin._elastic = {queue: dict(runs) for queue, runs in self._elastic.items()}
        twin.journal = None
        return twin

    def memory(self) -> Callable[[], None]:
        """What brings all gangs back to as they are now."""
        kept = [(run, _ALL_OF(run)) for run in self._by_name.values()]

        def recall() -> None:
            for run, values in kept:
                if not all(map(is_, _ALL_OF(run), values)):
                    for name, value in zip(RunningGang.__slots__, values, strict=True):
                        setattr(run, name, value)

        return recall

    def _on(self, node: int) -> dict[str, RunningGang]:
        """What has a pod on a node, to be changed."""
        if self._shares:
            self._by_node[node] = dict(self._by_node.get(node, {}))
        return self._by_node.setdefault(node, {})

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[RunningGang]:
        return iter(self._by_name.values())

    def get(self, name: str) -> RunningGang | None:
        """The gang of a name; None where none of it runs."""
        return self._by_name.get(name)

    def __getitem__(self, name: str) -> RunningGang:
        return self._by_name[name]

    def expected_s(self, workload: Workload) -> float:
        """How long a workload is taken to run, from its start: its limit, or what is predicted."""
        limit_s, predict = workload.time_limit_s, self._config.predict
        if predict == "never" or (predict == "without-limit" and limit_s is not None):
            return self._config.run_s if limit_s is None else limit_s
        predicted_s = self.run_times.predicted_s(workload, self._config.predict_quantile)
        if predicted_s is None:
            return self._config.run_s if limit_s is None else limit_s
        return predicted_s if limit_s is None else min(predicted_s, limit_s)

    def least_expected_s(self, limit_s: float, *, unlimited: bool) -> float:
        """The least `expected_s` of work whose least limit is ``limit_s``, of which some may have none."""
        predict = self._config.predict
        if predict == "always" or (predict == "without-limit" and unlimited):
            return 0.0
        return min(limit_s, self._config.run_s) if unlimited else limit_s

    def length(self, workload: Workload) -> Hashable:
        """The same for all work of a claim and kind that is `expected_s` to run equally long, now and later."""
        limit_s, predict = workload.time_limit_s, self._config.predict
        predicted = predict == "always" or (predict == "without-limit" and limit_s is None)
        return limit_s, name_stem(workload.title or workload.name) if predicted else ""

    @staticmethod
    def span(run: RunningGang) -> Span:
        """When a gang runs."""
        return Span(run.started_s, run.limit_s, run.surely_s)

    def add(self, run: RunningGang) -> None:
        """Enter a gang that starts or runs already."""
        self._note(run, run.rows)
        if math.isnan(run.limit_s):
            run.limit_s = run.started_s + self.expected_s(run.workload)
        run.sure = run.limit_s == run.surely_s
        self._by_name[run.workload.name] = run
        insort(self._ends, (run.limit_s, run.workload.name))
        self._by_queue.setdefault(run.workload.queue, {})[run.workload.name] = run
        self._entered[run.workload.name] = run.nodes
        self.saving += run.workload.checkpointing is not None
        for node in run.nodes:
            self._on(node)[run.workload.name] = run
        if run.leaving_s is not None:
            self._leaving[run.workload.name] = run
            return
        self._priorities[run.workload.priority] = self._priorities.get(run.workload.priority, 0) + 1
        self._hold(run, run.kind.milli)
        if run.idle_since_s is not None:
            self._idle[run.workload.name] = None
        if run.workload.elastic:
            self._elastic.setdefault(run.workload.queue, {})[run.workload.name] = run
        key = run.workload.queue, run.workload.user
        self._held[key] = self._held.get(key, 0) + run.kind.milli

    def remove(self, name: str) -> RunningGang:
        """Take out a gang that ends."""
        run = self._by_name.pop(name)
        self._note(run, None)
        del self._ends[bisect_left(self._ends, (run.limit_s, name))]
        del self._by_queue[run.workload.queue][name]
        self.saving -= run.workload.checkpointing is not None
        for node in self._entered.pop(name):  # it may have lost some since
            del self._on(node)[name]
        if self._leaving.pop(name, None) is not None:
            return run
        self._elastic.get(run.workload.queue, {}).pop(name, None)
        self._idle.pop(name, None)
        self._hold(run, -run.kind.milli)
        self._priorities[run.workload.priority] -= 1
        if not self._priorities[run.workload.priority]:
            del self._priorities[run.workload.priority]
        self._held[run.workload.queue, run.workload.user] -= run.kind.milli
        return run

    def _note(self, run: RunningGang, rows: Ints | None) -> None:
        if self.journal is not None:
            self.journal.append((run, rows))
            if len(self.journal) > 1000 + 2 * len(self):
                self.journal = None

    def _hold(self, run: RunningGang, milli: int) -> None:
        held = self._milli.setdefault(run.workload.queue, {})
        held[run.workload.priority] = held.get(run.workload.priority, 0) + milli
        if not held[run.workload.priority]:
            del held[run.workload.priority]

    def idle(self, queue: str | None, now_s: float) -> list[RunningGang]:
        """What runs, of a queue or of all, and has used none of its GPUs for too long."""
        runs = (self._by_name[name] for name in self._idle)
        return [run for run in runs if (queue is None or run.workload.queue == queue) and self.is_idle(run, now_s)]

    def note_idle(self, name: str, since_s: float | None) -> None:
        """A gang has used none of its GPUs since a time; None: it uses them."""
        self._by_name[name].idle_since_s = since_s
        if since_s is None:
            self._idle.pop(name, None)
        else:
            self._idle[name] = None

    def is_idle(self, run: RunningGang, now_s: float) -> bool:
        """Whether a gang has used none of its GPUs for too long."""
        return run.idle_since_s is not None and now_s - run.idle_since_s >= self._config.idle_after_s

    def may_yield(self, queue: str, below: int | None, priority: int, now_s: float) -> int:
        """The most GPU (milli) that running work of a queue could give up to work of a priority.

        That is all that work of a priority ``below`` holds (None: none of it), and what elastic or idle work of at most
        ``priority`` holds.
        """
        held = self._milli.get(queue, {})
        milli = sum(each for of, each in held.items() if below is not None and of < below)
        elastic = self.elastic(queue)
        for run in (*elastic, *(run for run in self.idle(queue, now_s) if not run.workload.elastic)):
            of = run.workload.priority
            if of <= priority and (below is None or of >= below):
                milli += run.kind.milli
        return milli

    def elastic(self, queue: str | None = None) -> list[RunningGang]:
        """The elastic gangs that run, of a queue or of all."""
        queues = self._elastic.values() if queue is None else (self._elastic.get(queue, {}),)
        return [run for runs in queues for run in runs.values()]

    @property
    def leaving(self) -> Iterable[RunningGang]:
        """What was stopped and has not gone yet."""
        return self._leaving.values()

    def in_queue(self, queue: str) -> Iterable[RunningGang]:
        """What runs of a queue."""
        return self._by_queue.get(queue, {}).values()

    def on_node(self, node: int) -> Iterable[RunningGang]:
        """What has a pod on a node, first come first."""
        return [run for run in self._by_node.get(node, {}).values() if node in run.nodes]

    @property
    def lowest_priority(self) -> float:
        """The lowest priority of all that runs; infinite if nothing does."""
        return min(self._priorities, default=float("inf"))

    @property
    def may_shrink_or_idle(self) -> bool:
        """Whether anything runs that could yield to work of its own priority."""
        return bool(self._idle) or any(self._elastic.values())

    def held_by(self, queue: str, user: str) -> int:
        """GPU that a user's running work in a queue holds, in milli."""
        return self._held.get((queue, user), 0)

    def outlived(self, now_s: float) -> list[RunningGang]:
        """The gangs that should have ended by now; they are given a new time, later than now."""
        late = [self._by_name[name] for _, name in self._ends[: bisect_left(self._ends, (now_s, "\U0010ffff"))]]
        for run in late:
            del self._ends[bisect_left(self._ends, (run.limit_s, run.workload.name))]
            run.limit_s = self.ends_s(run, now_s)
            run.sure = run.limit_s == run.surely_s
            insort(self._ends, (run.limit_s, run.workload.name))
        return late

    def ends_s(self, run: RunningGang, now_s: float) -> float:
        """When a gang should end: later than now, also if it has outlived what was expected of it."""
        return run.limit_s if run.limit_s > now_s else now_s + self._rest_s(run, now_s - run.started_s)

    def _rest_s(self, run: RunningGang, elapsed_s: float) -> float:
        """How much longer work is taken to run that outlived what was expected of it."""
        rest_s: float | None = None
        if not run.sure and self._config.predict != "never":
            rest_s = self.run_times.remaining_s(run.workload, elapsed_s, self._config.predict_quantile)
        if rest_s is None:
            rest_s = max(LEAST_OVERRUN_S, self._config.overrun * elapsed_s)
        left_s = surely_s(run.workload) - elapsed_s
        # a second at least, for a time that is not later than now in the end would be asked for again and again
        return max(1.0, min(rest_s, left_s) if left_s >= 1.0 else rest_s)
