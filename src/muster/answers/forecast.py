"""When waiting work will start: an interval with its confidence, what it waits for, and what is ahead of it.

The snapshot is run forward by the simulator with the scheduler's own code, some tens of times. Each time run times are
drawn from what is known of work like it (`muster.answers.lengths`), and the arrivals of the recent past come again
(`muster.answers.arrivals`). The starts that come out are the forecast. Where that would cost more than the budget, the
work ahead is put against what running work gives back (`muster.answers.turnover`).

Same snapshot, settings and budget: same answer. The budget counts events, not seconds.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Sequence
from itertools import islice
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.answers.arrivals import Arrivals, named
from muster.answers.lengths import Floats, Lengths
from muster.answers.turnover import turnover
from muster.answers.view import View
from muster.engine.ahead import names_ahead
from muster.engine.pending import Gang
from muster.engine.predict import keys_of
from muster.errors import InputError
from muster.model.reasons import Reason, Tier
from muster.model.snapshot import Key, Snapshot
from muster.model.workload import Workload

MOST_AHEAD = 1000
"""So many names of gangs ahead are told at most; ``ahead_count`` counts them all."""

MOST_WAITS_FOR = 50

MOST_CUT = 0.3
"""Of so large a part of the futures the budget may end before the start: then no latest end is told."""


class Budget(Struct, frozen=True):
    """What a forecast may cost.

    Attributes:
        samples: how often the snapshot is run forward at most.
        events: so many events are handled in all of them together. An event counts once more for every
            `NODES_PER_EVENT` nodes, and to begin counts, too: an event for every `READ_PER_EVENT` nodes and gangs.
        least_samples: with fewer the starts say too little, and what is ahead is counted instead.
        arrivals: whether the work of the recent past comes again; else nothing more comes.
    """

    samples: int = 24
    events: int = 4_000
    least_samples: int = 8
    arrivals: bool = True


READ_PER_EVENT = 200
NODES_PER_EVENT = 250

SEARCH_MOVES_EVERY_S = 3600.0
"""In simulated futures moves to make room are looked for no more often than so: that is most of the cost."""

DRAWN_AT_ONCE = 8

MOST_COMING = 300
"""So much work that comes and goes first counts at most where the queue is only counted."""


LEARNT_AT = 0.8
"""The confidence at which `WIDER` was learnt; see docs/explanation/forecasts.md."""


class Wider(NamedTuple):
    """How an end is moved away from what is expected: its distance times ``factor``, and ``more`` beyond that."""

    factor: float
    more: float


WIDER = {"simulated": (Wider(1.6, 0.0), Wider(1.8, 0.0)), "queue ahead": (Wider(1.0, 1.75), Wider(1.0, 2.0))}
"""For the low and the high end, on a scale of the natural logarithm of the wait and `OFFSET_S`."""

OFFSET_S = 60.0


class WaitsFor(NamedTuple):
    """Running work whose end a start waits for: when it is expected to end, and how many of its nodes matter."""

    job: str
    ends_s: float
    nodes: int


class Forecast(Struct, frozen=True):
    """When a workload will start; times in seconds of the snapshot's epoch, infinite for never.

    Attributes:
        expected_s: it is as likely to start before as after.
        low_s, high_s: between them it starts with ``confidence``.
        method: ``now`` (it starts in the cycle of now), ``simulated``, ``queue ahead`` (by what is ahead and what
            running work gives back), or ``never``.
        samples: how many simulated starts it rests on.
        why: where it never starts, or is held, the reason.
        waits_for: running work that it waits for, the first to end first.
        ahead: names of gangs that wait before it now, in no order; ``ahead_count`` is how many there are in all.
        sure_s: the reserved start that rests on stated limits alone; it starts no later unless somebody goes
            first by rank. NaN if there is none.
    """

    name: str
    now_s: float
    expected_s: float
    low_s: float
    high_s: float
    confidence: float
    method: Literal["now", "simulated", "queue ahead", "never"]
    samples: int = 0
    why: Reason | None = None
    waits_for: tuple[WaitsFor, ...] = ()
    ahead: tuple[str, ...] = ()
    ahead_count: int = 0
    sure_s: float = math.nan


def forecast(view: View, name: str, *, budget: Budget | None = None, confidence: float = 0.8) -> Forecast:
    """When a workload that waits will start.

    Raises:
        InputError: there is no such workload, or it runs already.
    """
    found = view.find(name)
    if found.running is not None:
        what = f"{found.workload.name} runs since {found.running.started_s:g} s"
        raise InputError(what, hint="`muster queue` lists what waits")
    return _forecasts(view, [found.workload.name], budget or Budget(), confidence)[found.workload.name]


def forecast_all(
    view: View, budget: Budget | None = None, *, confidence: float = 0.8, first: int = 200
) -> dict[str, Forecast]:
    """A forecast for each waiting workload, all from the same simulated futures.

    The runs end when the ``first`` in the order of now have started; of the others those are simulated that started
    by then in every run.
    """
    return _forecasts(view, [each.name for each in view.snapshot.pending], budget or Budget(), confidence, first)


def forecasts(
    view: View, names: Sequence[str], *, budget: Budget | None = None, confidence: float = 0.8
) -> dict[str, Forecast]:
    """A forecast for each of some waiting workloads, all from the same simulated futures, which end with the last."""
    return _forecasts(view, names, budget or Budget(), confidence, len(names))


def _forecasts(
    view: View, names: Sequence[str], budget: Budget, confidence: float, first: int = 1
) -> dict[str, Forecast]:
    told: dict[str, Forecast] = {}
    open_: list[Gang] = []
    for name in names:
        at_once = _at_once(view, name, confidence)
        if at_once is not None:
            told[name] = at_once
        else:
            open_.append(view.scheduler.pending.gangs[name])
    if open_:
        told.update(_Forecaster(view, budget, confidence).tell(open_, first))
    return {name: told[name] for name in names}


def _at_once(view: View, name: str, confidence: float) -> Forecast | None:
    """The forecast of what starts now or never; None for the rest."""
    now_s = view.now_s
    if name in view.starts:
        return Forecast(name, now_s, now_s, now_s, now_s, confidence, "now")
    gang = view.scheduler.pending.gangs.get(name)
    if gang is None:  # its start deadline has passed
        return Forecast(name, now_s, math.inf, math.inf, math.inf, confidence, "never", why=Reason.HELD)
    reason = view.scheduler.waits_for(gang, now_s)
    if reason.tier <= Tier.IMPOSSIBLE or reason is Reason.OVER_QUOTA:
        return Forecast(name, now_s, math.inf, math.inf, math.inf, confidence, "never", why=reason)
    if reason is Reason.DEPENDENCY and _is_missing(view, gang.workload):
        return Forecast(name, now_s, math.inf, math.inf, math.inf, confidence, "never", why=reason)
    return None


def _is_missing(view: View, workload: Workload) -> bool:
    """Whether it depends on work that is not there and has not finished."""
    scheduler = view.scheduler
    return any(
        each not in scheduler.finished and each not in scheduler.running and each not in scheduler.pending.gangs
        for each in workload.depends_on
    )


class _Future(NamedTuple):
    """One way in which things may go: when work started, when what runs ended, on which nodes each started.

    ``cut``: the budget was used up, and what has not started might have later.
    """

    starts: dict[str, float]
    ends: dict[str, float]
    nodes: dict[str, frozenset[str]]
    cut: bool


class _Forecaster:
    """Simulated futures of a snapshot, and what they tell."""

    def __init__(self, view: View, budget: Budget, confidence: float) -> None:
        self._view = view
        self._budget = budget
        self._confidence = confidence
        self._rng = np.random.default_rng(_seed(view.snapshot))
        self._lengths = Lengths(view.snapshot, view.config.run_s, budget.samples, self._rng)
        self._arrivals = Arrivals(view.scheduler, view.now_s, self._lengths.mean_s)
        self._taken: set[str] = set()
        self._bags: dict[str, list[list[float]]] = {}

    def tell(self, gangs: Sequence[Gang], first: int) -> dict[str, Forecast]:
        """The forecasts of gangs that wait and are not hopeless; the runs end when the first of them have started."""
        wanted = heapq.nsmallest(first, gangs, key=self._view.scheduler.turn) if len(gangs) > first else gangs
        futures = self._futures([each.workload.name for each in wanted])
        told: dict[str, Forecast] = {}
        for gang in gangs:
            name = gang.workload.name
            # a future that was cut before the start says that it is late; the middle must be seen
            late = sum(each.cut and name not in each.starts for each in futures)
            known = futures and late <= MOST_CUT * len(futures)
            told[name] = self._simulated(gang, futures) if known else self._by_turnover(gang)
        return told

    # -- running forward ----------------------------------------------------------------------------------------------

    def _futures(self, names: Sequence[str]) -> list[_Future]:
        """As many futures as the budget allows in which the work starts; none if those would be too few."""
        snapshot, budget = self._view.snapshot, self._budget
        reading = (len(snapshot.fleet.nodes) + len(snapshot.running) + len(snapshot.pending)) // READ_PER_EVENT
        price = 1 + len(snapshot.fleet.nodes) // NODES_PER_EVENT
        most = (budget.events // max(1, budget.least_samples) - reading) // price
        if most <= 0:
            return []
        after = self._view.scheduler.snapshot(self._view.now_s)
        self._taken = {each.name for each in (*after.pending, *(run.workload for run in after.running))}
        run_times = self._run_times(after)
        futures: list[_Future] = []
        left = budget.events
        while len(futures) < budget.samples and left >= most * price + reading:
            future, handled = self._future(after, len(futures), run_times, names, most)
            futures.append(future)
            left -= handled * price + reading
            if len(names) == 1 and len(futures) == 2 and all(each.cut for each in futures):
                return []  # it is too far away
        return futures if len(futures) >= budget.least_samples else []

    def _run_times(self, after: Snapshot) -> tuple[Floats, Floats]:
        """Run times of what runs and of what waits: a row each, a column a sample."""
        count = self._budget.samples
        runs = np.empty((len(after.running), count))
        for row, each in enumerate(after.running):
            runs[row] = self._lengths.draw(each.workload, max(0.0, after.taken_s - each.started_s))[0]
        waits = np.empty((len(after.pending), count))
        alike: dict[Key, list[int]] = {}
        for row, each in enumerate(after.pending):
            alike.setdefault(next(keys_of(each)), []).append(row)
        for rows in alike.values():
            waits[rows] = self._lengths.draw(after.pending[rows[0]], 0.0, len(rows))
        return runs, waits

    def _future(
        self, after: Snapshot, world: int, run_times: tuple[Floats, Floats], names: Sequence[str], most: int
    ) -> tuple[_Future, int]:
        """The future in one of the worlds, and how many events it took."""
        from muster.sim.cluster_run import ClusterRun
        from muster.sim.run_inputs import RunOptions

        runs_s, waits_s = (each[:, world].tolist() for each in run_times)
        running = tuple(
            replace(each, workload=replace(each.workload, duration_s=seconds))
            for each, seconds in zip(after.running, runs_s, strict=True)
        )
        pending = tuple(replace(each, duration_s=seconds) for each, seconds in zip(after.pending, waits_s, strict=True))
        most_coming = most // 2 if self._budget.arrivals else 0
        arrivals = self._arrivals.draw(most_coming, self._rng)  # each that comes is an event, and its end another one
        lasts_s = [self._run_time_of(like, world) for _, like in arrivals]
        coming = named(arrivals, lasts_s, self._taken)
        first, options = len(coming), RunOptions(keep_places=True)
        with self._view.scheduler.trial(after.searches) as twin:
            search_s = max(twin.config.search_moves_every_s, SEARCH_MOVES_EVERY_S)
            twin.config = replace(twin.config, search_moves_every_s=search_s)
            begun = replace(after, running=running, pending=pending)
            run = ClusterRun(begun, coming, self._view.config, options, scheduler=twin)
            waiting = {each.name: number for number, each in enumerate(pending, first)}
            handled = run.run_until_started([waiting[name] for name in names], most)
        starts = {
            name: run.stories[number].started_s
            for name, number in waiting.items()
            if not math.isnan(run.stories[number].started_s)
        }
        nodes: dict[str, frozenset[str]] = {}
        for holding in run.holdings:
            if first <= holding.job < first + len(pending):
                nodes.setdefault(pending[holding.job - first].name, frozenset(place.node for place in holding.places))
        ends = {
            each.workload.name: each.started_s + seconds for each, seconds in zip(after.running, runs_s, strict=True)
        }
        return _Future(starts, ends, nodes, handled >= most), handled

    def _run_time_of(self, like: Workload, world: int) -> float:
        """A run time for work that comes."""
        bags = self._bags.get(like.name)
        if bags is None or not bags[world]:
            bags = self._bags[like.name] = self._lengths.draw(like, 0.0, DRAWN_AT_ONCE).T.tolist()
        return bags[world].pop()

    # -- what they tell -----------------------------------------------------------------------------------------------

    def _simulated(self, gang: Gang, futures: Sequence[_Future]) -> Forecast:
        name = gang.workload.name
        starts = np.array([each.starts.get(name, math.inf) for each in futures])
        nearest = min(futures, key=lambda each: abs(each.starts.get(name, math.inf) - _quantile(starts, 0.5)))
        waits_for = self._waits_for(gang, nearest, futures)
        return self._told(gang, starts, "simulated", waits_for)

    def _by_turnover(self, gang: Gang) -> Forecast:
        scheduler = self._view.scheduler
        mine = scheduler.turn(gang)

        def goes_first(queue: str, priority: int) -> bool:
            known = not scheduler.queues or queue in scheduler.queues
            return known and -priority < mine[0]

        # by rank, who is ahead of it now falls behind with what it is given, and others come: that is left out
        first = self._arrivals.only(goes_first)

        def coming(world: int) -> list[tuple[float, Workload, float]]:
            arrivals = first.draw(MOST_COMING, self._rng) if self._budget.arrivals else []
            return [(time_s, like, self._run_time_of(like, world)) for time_s, like in arrivals]

        starts = turnover(self._view, gang, self._lengths, coming, self._budget.samples)
        return self._told(gang, starts, "queue ahead", ())

    def _told(
        self, gang: Gang, starts: Floats, method: Literal["simulated", "queue ahead"], waits_for: tuple[WaitsFor, ...]
    ) -> Forecast:
        scheduler, now_s, name = self._view.scheduler, self._view.now_s, gang.workload.name
        slot = scheduler.slots.get(name)
        sure_s = slot.start_s if slot is not None and slot.sure else math.nan
        # by rank, somebody else who waits may still go first; first come, first served nobody can
        alone = self._view.config.ordering == "fifo" or len(scheduler.pending) == 1
        kept = slot is not None and slot.sure and alone
        if slot is not None and kept:
            starts = np.minimum(starts, slot.start_s)
        low_s, expected_s, high_s = (now_s + each for each in interval(starts - now_s, self._confidence, WIDER[method]))
        high_s = min(high_s, sure_s) if kept else high_s
        names = tuple(islice(names_ahead(scheduler, gang), MOST_AHEAD))
        why = scheduler.waits_for(gang, now_s)
        return Forecast(
            name, now_s, expected_s, low_s, high_s, self._confidence, method, len(starts), why, waits_for, names,
            scheduler.ahead_of(gang), sure_s,
        )  # fmt: skip

    def _waits_for(self, gang: Gang, nearest: _Future, futures: Sequence[_Future]) -> tuple[WaitsFor, ...]:
        """What runs on the nodes that it waits for, and ends before its start.

        The nodes are those of its reserved start; where it has none, those on which it starts in the future that is
        nearest to what is expected.
        """
        scheduler, name = self._view.scheduler, gang.workload.name
        slot, start_s = scheduler.slots.get(name), nearest.starts.get(name, math.inf)
        if slot is not None:
            nodes = set[int](slot.nodes.tolist())
            runs = [scheduler.running[each] for each in slot.waits_for]
        else:
            nodes = {scheduler.cluster.position[each] for each in nearest.nodes.get(name, ())}
            on = {run.workload.name: run for node in nodes for run in scheduler.running.on_node(node)}
            runs = [run for each, run in on.items() if nearest.ends.get(each, math.inf) <= start_s]
        found: list[WaitsFor] = []
        for run in runs:
            ends_s = [each.ends[run.workload.name] for each in futures if run.workload.name in each.ends]
            if ends_s:  # else it has just started
                ends_s = float(np.median(ends_s))
                found.append(WaitsFor(run.workload.name, ends_s, len(nodes & run.nodes)))
        return tuple(sorted(found, key=lambda each: (each.ends_s, each.job))[:MOST_WAITS_FOR])


def interval(waits_s: Floats, confidence: float, wider: tuple[Wider, Wider]) -> tuple[float, float, float]:
    """From simulated waits (seconds from now): the low end, what is expected, and the high end.

    Simulated futures know less than they seem to: their quantiles for `LEARNT_AT` are moved away from what is expected.
    Where only distances are multiplied, what is certain stays. Other confidences are in proportion to the quantiles of
    a normal distribution.
    """
    normal = NormalDist()
    reach = normal.inv_cdf((1.0 + confidence) / 2) / normal.inv_cdf((1.0 + LEARNT_AT) / 2)
    half = (1.0 - LEARNT_AT) / 2
    low_s, middle_s, high_s = (max(0.0, _quantile(waits_s, part)) for part in (half, 0.5, 1.0 - half))
    if math.isinf(middle_s):
        return low_s, math.inf, math.inf
    middle = math.log(middle_s + OFFSET_S)
    below = ((middle - math.log(low_s + OFFSET_S)) * wider[0].factor + wider[0].more) * reach
    above = ((math.log(high_s + OFFSET_S) - middle) * wider[1].factor + wider[1].more) * reach
    # what does not move is told to the last bit
    lower_s = max(0.0, math.exp(middle - below) - OFFSET_S) if below else middle_s
    upper_s = (
        max(middle_s, math.exp(min(middle + above, 700.0)) - OFFSET_S) if 0 < above < math.inf else (middle_s + above)
    )
    return min(lower_s, middle_s), middle_s, upper_s


def _quantile(values: Floats, part: float) -> float:
    """A quantile, between the two nearest values; infinite where one of these is."""
    ordered = np.sort(values)
    at = part * (len(ordered) - 1)
    below, above = float(ordered[math.floor(at)]), float(ordered[math.ceil(at)])
    return below if below == above else below + (at - math.floor(at)) * (above - below)


def _seed(snapshot: Snapshot) -> int:
    """The same for the same snapshot."""
    text = f"{snapshot.taken_s!r} {len(snapshot.pending)} {[each.workload.name for each in snapshot.running]!r}"
    return zlib.crc32(text.encode())
