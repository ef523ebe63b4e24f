"""What if: changes applied to a snapshot, and all variants run forward by the scheduler's own code.

Every variant gets the same run times, job by job, so that what differs comes from the changes and not from chance.
What will be submitted later is not known; nothing new comes.

With one sample, work runs as long as the scheduler takes it to: to its limit, or as long as work like it. With more,
run times are drawn from what is known of work like it (`muster.answers.lengths`), and figures are means over the draws.
"""

from __future__ import annotations

# numpy's stubs tell arrays from scalars only in part.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.answers.changes import Change, apply_changes
from muster.answers.forward import Forward, RunTimes, lost_work_s
from muster.answers.use import Use, measure_use, steps_in_use
from muster.answers.view import View
from muster.engine.config import settings_of
from muster.errors import InputError, near
from muster.model.fleet import Fleet
from muster.model.snapshot import AdvanceReservation, Snapshot
from muster.model.workload import Workload
from muster.sim.metrics import SIZES, size_of

AS_IT_IS = "as it is"
"""The name of the variant without changes."""

SAME_S = 1.0
"""Starts that differ by less are the same."""

LEAST_S = 3600.0
"""Use of the fleet is measured over an hour at least."""


MARGIN = 1.15
"""Charts go on for so much of the time until the last start."""


class Variant(Struct, frozen=True):
    """Changes with a name."""

    name: str
    changes: tuple[Change, ...]


class Options(Struct, frozen=True):
    """How far and how often the snapshot is run forward.

    Attributes:
        samples: 1: run times as the scheduler takes them; more: so many draws.
        for_s: how far; None: until all that waits has started.
        events: but no further than so many events in a run; None: `most_events`.
        seed: of the draws.
        prices: flavor and US dollars for an hour of one of its GPUs, whether it is used or not.
        pictures: keep what charts are drawn from, of the first sample.
    """

    samples: int = 1
    for_s: float | None = None
    events: int | None = None
    seed: int = 0
    prices: tuple[tuple[str, float], ...] = ()
    pictures: bool = False


def most_events(waiting: int) -> int:
    """How many events a run has where nobody says: 20,000, and fewer where thousands wait, as each costs more."""
    return max(1000, min(20_000, 100_000_000 // max(1, waiting)))


class Waits(Struct, frozen=True):
    """How long the jobs of a group still wait, from now.

    ``mean_s`` is over all of them; those that do not start (``waiting``, a mean over samples) count up to the end of
    the comparison.
    """

    name: str
    jobs: int
    mean_s: float
    waiting: float


class Figures(Struct, frozen=True):
    """A variant in numbers; means over samples.

    Attributes:
        jobs: that wait in it; ``starts_now`` of them start at once, ``waiting`` not up to the end of the comparison.
        waits: of the jobs that wait in all variants; ``by_queue`` and ``by_size`` are the same in groups.
        wait_p90_s: nine in ten of these start within it; infinite where fewer start.
        last_start_s: when the last of those that start does.
        use: what is used of the fleet, and what is of no use.
        stopped, moved: how often running work is stopped or moved, by the changes or by the scheduler.
        lost_gpu_s: what that costs: work since the last checkpoint, and restarts.
        flavors: GPUs of the fleet by flavor; ``usd_per_hour`` what they cost, those without a price for nothing; None:
            no price is known.
    """

    jobs: int
    starts_now: float
    waiting: float
    waits: Waits
    wait_p90_s: float
    last_start_s: float
    by_queue: tuple[Waits, ...]
    by_size: tuple[Waits, ...]
    use: Use
    stopped: float
    moved: float
    lost_gpu_s: float
    flavors: tuple[tuple[str, int], ...]
    usd_per_hour: float | None


class Effect(Struct, frozen=True):
    """What becomes of one job that waits before or after; times in seconds from now, infinite: not in the comparison.

    ``before_s`` and ``after_s`` are medians over the samples; NaN where it does not wait in that variant: it runs, is
    withdrawn, or is new.
    """

    job: str
    queue: str
    gpus: float
    before_s: float
    after_s: float

    @property
    def later_s(self) -> float:
        """How much later it starts; negative is earlier, 0 the same; NaN where there is nothing to compare."""
        if self.before_s == self.after_s or abs(self.before_s - self.after_s) < SAME_S:
            return 0.0
        return self.after_s - self.before_s


class Bar(NamedTuple):
    """A job runs from ``start_s`` to ``end_s``, in seconds from now."""

    job: str
    start_s: float
    end_s: float


class Outcome(Struct, frozen=True):
    """What comes of a variant.

    Attributes:
        same: it changes nothing in the snapshot.
        effects: of all jobs that wait in it or as things are, in the order of the snapshot.
        notes: what its owner should know, a line each.
        bars: when what waits runs, in the first sample; ``in_use``: (seconds from now, GPUs) there.
    """

    variant: Variant
    figures: Figures
    effects: tuple[Effect, ...]
    same: bool = False
    notes: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    in_use: tuple[tuple[float, float], ...] = ()

    @property
    def movers(self) -> tuple[Effect, ...]:
        """The jobs that start at another time, the largest difference first."""
        moved = [each for each in self.effects if each.later_s and not math.isnan(each.later_s)]
        return tuple(sorted(moved, key=lambda each: (-abs(each.later_s), each.job)))


class Comparison(Struct, frozen=True):
    """All variants, the first of them as things are.

    Attributes:
        end_s: how far starts are compared, from now; ``use_s``: how far the use of the fleet. Means over samples.
        cut: a run used up its events: the comparison ends there.
        drawn_s: where the time axis of charts ends.
        unknown: of so many jobs neither a limit nor work like them is known: they are taken to run for ``run_s``.
    """

    outcomes: tuple[Outcome, ...]
    end_s: float
    use_s: float
    cut: bool
    samples: int
    drawn_s: float
    unknown: int


def compare(
    view: View,
    variants: Sequence[Variant],
    options: Options | None = None,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Run a snapshot forward as it is and in each variant.

    Args:
        view: the snapshot, with its settings.
        variants: at least one.
        options: how far, how often.
        progress: told now and then how many runs are done, the present one in part; they are samples x (variants + 1).

    Raises:
        InputError: a change cannot be made, or the snapshot after it makes no sense.
    """
    options, tell = options or Options(), progress or _silent
    names = [AS_IT_IS, *(each.name for each in variants)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two variants are called {name!r}", field="--variant", hint="name each otherwise")
    before = replace(view.snapshot, settings=settings_of(view.config))
    cases = [_case(before, each) for each in (Variant(AS_IT_IS, ()), *variants)]
    _check_prices(cases, options)
    run_times = RunTimes(view, options.samples, options.seed)
    ran: list[list[_Ran]] = [[] for _ in cases]
    spans: list[_Span] = []
    for sample in range(options.samples):
        runs: list[Forward] = []
        for case in cases:
            done = sample * len(cases) + len(runs)
            runs.append(
                _forward(run_times.given_to(case.snapshot, sample), options, lambda part, done=done: tell(done + part))
            )
            tell(done + 1)
        span = _span(runs, options)
        spans.append(span)
        for case, run, found in zip(cases, runs, ran, strict=True):
            found.append(_measure(case, run, span, pictures=options.pictures and sample == 0))
    common = _common(cases)
    told = _Told(run_times, cases[0], ran[0], spans, common, dict(options.prices))
    outcomes = [_outcome(told, case, found) for case, found in zip(cases, ran, strict=True)]
    return Comparison(
        tuple(outcomes), _mean(each.end_s for each in spans), _mean(each.use_s for each in spans),
        any(each.cut for each in spans), options.samples, spans[0].drawn_s, run_times.unknown,
    )  # fmt: skip


def _silent(done: float) -> None:
    """Nobody is told how far the runs are."""


# -- the cases --------------------------------------------------------------------------------------------------------


class _Case(NamedTuple):
    """A variant with its snapshot; ``stopped``, ``moved`` and ``lost_gpu_s`` are what its changes do themselves."""

    variant: Variant
    snapshot: Snapshot
    same: bool
    stopped: int
    moved: int
    lost_gpu_s: float
    reserved: tuple[AdvanceReservation, ...]


def _case(before: Snapshot, variant: Variant) -> _Case:
    try:
        after = apply_changes(before, variant.changes)
    except InputError as error:
        raise InputError(error.what, field=f"--variant {variant.name}", hint=error.hint) from None
    waits = {each.name for each in after.pending}
    places = {each.workload.name: each.pods for each in after.running}
    stopped = [each for each in before.running if each.workload.name in waits]
    moved = [
        each for each in before.running
        if each.pods != places.get(each.workload.name, each.pods) and len(each.pods) == len(places[each.workload.name])
    ]  # fmt: skip
    lost = math.fsum(lost_work_s(each, before.taken_s) * each.workload.gpu_milli / 1000 for each in (*stopped, *moved))
    known = set(before.reservations)
    reserved = tuple(each for each in after.reservations if each not in known)
    return _Case(variant, after, after == before, len(stopped), len(moved), lost, reserved)


def _check_prices(cases: Sequence[_Case], options: Options) -> None:
    known = dict.fromkeys(flavor for case in cases for flavor, _ in _flavors(case.snapshot.fleet))
    for flavor, _ in options.prices:
        if flavor not in known:
            hint = near(flavor, list(known)) or f"there are {', '.join(list(known)[:5])}"
            raise InputError(f"there is no flavor {flavor[:60]!r}", field="--price", hint=hint)


def _flavors(fleet: Fleet) -> tuple[tuple[str, int], ...]:
    counted: dict[str, int] = {}
    for node in fleet:
        if node.devices:
            counted[node.flavor] = counted.get(node.flavor, 0) + len(node.devices)
    return tuple(counted.items())


def _common(cases: Sequence[_Case]) -> tuple[Workload, ...]:
    """What waits in all cases, as it is in the first."""
    names = [{each.name for each in case.snapshot.pending} for case in cases]
    return tuple(each for each in cases[0].snapshot.pending if all(each.name in some for some in names))


# -- the runs ---------------------------------------------------------------------------------------------------------


class _Span(NamedTuple):
    """How far the runs of a sample are compared: their starts, and the use of the fleet."""

    end_s: float
    use_s: float
    cut: bool

    @property
    def drawn_s(self) -> float:
        """Charts go on a little, so that what starts last is seen to run."""
        return max(self.use_s, self.end_s if self.cut else MARGIN * self.end_s)


class _Ran(NamedTuple):
    """What is kept of a run."""

    starts: Mapping[str, float]
    stopped: int
    moved: int
    lost_gpu_s: float
    use: Use
    into: tuple[str, ...]
    bars: tuple[Bar, ...]
    in_use: tuple[tuple[float, float], ...]


def _forward(snapshot: Snapshot, options: Options, progress: Callable[[float], None]) -> Forward:
    run = Forward(snapshot)
    if options.for_s is None:
        run.until_started(options.events or most_events(len(snapshot.pending)), progress)
    else:
        run.until(options.for_s)
    return run


def _span(runs: Sequence[Forward], options: Options) -> _Span:
    """Starts are compared until all that starts has; use while work waits in every variant."""
    if options.for_s is not None:
        return _Span(options.for_s, options.for_s, cut=False)
    lasts = [max((each for each in run.starts.values() if each < math.inf), default=0.0) for run in runs]
    cuts = [run.reached_s for run in runs if run.cut]
    end_s = min(cuts) if cuts else max(lasts)
    use_s = max(LEAST_S, min(*lasts, end_s)) if not cuts else min(cuts)
    return _Span(max(end_s, 1.0), use_s, cut=bool(cuts))


def _measure(case: _Case, run: Forward, span: _Span, *, pictures: bool) -> _Ran:
    run.until(span.use_s)
    starts = {name: start_s if start_s <= span.end_s else math.inf for name, start_s in run.starts.items()}
    did = run.stopped(span.end_s)
    use = measure_use(run.run, case.snapshot.fleet, run.now_s, run.now_s + span.use_s)
    bars: tuple[Bar, ...] = ()
    in_use: tuple[tuple[float, float], ...] = ()
    if pictures:
        run.until(span.drawn_s)
        bars = tuple(_bars(run, span.drawn_s))
        steps = steps_in_use(run.run, run.now_s, run.now_s + span.drawn_s)
        in_use = tuple((time_s - run.now_s, gpus) for time_s, gpus in steps)
    into = tuple(_into(case.reserved, run))
    return _Ran(
        starts, did.evictions + case.stopped, did.moves + case.moved, did.lost_gpu_s + case.lost_gpu_s, use, into, bars,
        in_use,
    )  # fmt: skip


def _bars(run: Forward, end_s: float) -> Iterable[Bar]:
    for spell in run.run.spells:
        if spell.job < len(run.waiting):
            start_s = max(0.0, spell.start_s - run.now_s)
            stop_s = end_s if math.isnan(spell.end_s) else spell.end_s - run.now_s
            if start_s <= end_s:
                yield Bar(run.waiting[spell.job], start_s, min(max(start_s, stop_s), end_s))


def _into(reserved: Sequence[AdvanceReservation], run: Forward) -> Iterable[str]:
    """A line for each new reservation into which work runs that may not use it."""
    workloads = run.run.workloads
    for each in reserved:
        nodes = set(each.nodes)
        jobs = dict.fromkeys(
            workloads[held.job].name
            for held in run.run.holdings
            if held.start_s < each.start_s
            and (math.isnan(held.end_s) or held.end_s > each.start_s)
            and any(pod.node in nodes for pod in held.places)
            and workloads[held.job].queue not in each.queues
            and workloads[held.job].name not in each.workloads
        )
        if jobs:
            named = ", ".join(list(jobs)[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")
            yield (
                f"{named} still run{'s' if len(jobs) == 1 else ''} on nodes of {each.name} when it begins: "
                f"wait for {'it' if len(jobs) == 1 else 'them'}, or stop {'it' if len(jobs) == 1 else 'them'}."
            )


# -- what comes out ---------------------------------------------------------------------------------------------------


class _Told(NamedTuple):
    """What all outcomes are told from: the run times, things as they are, the spans, what waits in all, prices."""

    run_times: RunTimes
    base: _Case
    base_ran: Sequence[_Ran]
    spans: Sequence[_Span]
    common: Sequence[Workload]
    prices: Mapping[str, float]


def _outcome(told: _Told, case: _Case, ran: Sequence[_Ran]) -> Outcome:
    names = [each.name for each in told.common]
    starts = np.array([[each.starts[name] for name in names] for each in ran]).reshape(len(ran), len(names))
    ends = np.array([each.end_s for each in told.spans])
    flavors = _flavors(case.snapshot.fleet)
    figures = Figures(
        jobs=len(case.snapshot.pending),
        starts_now=_mean(sum(start_s < SAME_S for start_s in each.starts.values()) for each in ran),
        waiting=_mean(sum(math.isinf(start_s) for start_s in each.starts.values()) for each in ran),
        waits=_waits("all", starts, ends),
        wait_p90_s=_mean(np.sort(row)[math.ceil(0.9 * len(row)) - 1] for row in starts) if names else 0.0,
        last_start_s=_mean(max((s for s in each.starts.values() if s < math.inf), default=0.0) for each in ran),
        by_queue=_grouped(starts, ends, [each.queue for each in told.common]),
        by_size=_grouped(starts, ends, [size_of(each) for each in told.common]),
        use=Use.mean([each.use for each in ran]),
        stopped=_mean(each.stopped for each in ran),
        moved=_mean(each.moved for each in ran),
        lost_gpu_s=_mean(each.lost_gpu_s for each in ran),
        flavors=flavors,
        usd_per_hour=sum(gpus * told.prices.get(flavor, 0.0) for flavor, gpus in flavors) if told.prices else None,
    )
    effects = tuple(_effects(told.base, told.base_ran, case, ran))
    notes = () if case is told.base else tuple(_notes(told, case, ran))
    return Outcome(case.variant, figures, effects, case.same, notes, ran[0].bars, ran[0].in_use)


def _notes(told: _Told, case: _Case, ran: Sequence[_Ran]) -> Iterable[str]:
    if case.same:
        yield "it changes nothing: the snapshot is as before."
    elif all(one.starts == other.starts for one, other in zip(ran, told.base_ran, strict=True)):
        yield "it makes no difference to when work starts."
    for workload in case.snapshot.pending:
        factor = told.run_times.stretch(workload)
        if factor != 1.0:
            ends = "; its limit ends it before" if told.run_times.outlives(workload) else ""
            yield (
                f"{workload.name} does the same work on {workload.gpu_milli / 1000:g} GPUs: it is taken to run "
                f"{factor:.3g} times as long{ends}."
            )
    yield from ran[0].into


def _effects(base: _Case, base_ran: Sequence[_Ran], case: _Case, ran: Sequence[_Ran]) -> Iterable[Effect]:
    asked = {each.name: each for each in case.snapshot.pending} | {each.name: each for each in base.snapshot.pending}
    order = [*base.snapshot.pending, *(each for each in case.snapshot.pending if each.name not in base_ran[0].starts)]
    for workload in order:
        name = workload.name
        yield Effect(name, asked[name].queue, asked[name].gpu_milli / 1000, _median(name, base_ran), _median(name, ran))


def _median(name: str, ran: Sequence[_Ran]) -> float:
    if name not in ran[0].starts:
        return math.nan
    return float(np.median([each.starts[name] for each in ran]))


def _grouped(told: np.ndarray, ends: np.ndarray, groups: Sequence[str]) -> tuple[Waits, ...]:
    """The waits of each group; sizes in their order, queues by name."""
    order = sorted(set(groups), key=lambda name: (SIZES.index(name) if name in SIZES else len(SIZES), name))
    of = np.array(groups)
    return tuple(_waits(name, told[:, of == name], ends) for name in order)


def _waits(name: str, told: np.ndarray, ends: np.ndarray) -> Waits:
    """Of starts, a row a sample."""
    if not told.shape[1]:
        return Waits(name, 0, 0.0, 0.0)
    counted = np.minimum(told, ends[:, None])
    return Waits(name, told.shape[1], float(counted.mean()), float(np.isinf(told).sum(axis=1).mean()))


def _mean(values: Iterable[float]) -> float:
    values = [float(each) for each in values]
    return sum(values) / len(values)
