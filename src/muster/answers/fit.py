"""Whether work would fit if it were submitted now: where, what it displaces, and else why not and when.

The work is put into the snapshot, and the scheduler's own cycle decides; a second cycle without it, on a twin, tells
what would have happened else. So the answer is yes exactly if `muster.engine.decide.decide` of the snapshot with the
work starts all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.forecast import Budget, Forecast, forecast
from muster.answers.specs.base import Note, Specs
from muster.answers.told import limited
from muster.answers.view import View
from muster.answers.why import Blocker, why
from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.errors import InputError, near
from muster.model.columns import field_of, followed_by
from muster.model.fleet import HOST
from muster.model.parallelism import Parallelism, check_parallelism
from muster.model.plan import Decision, Evict, Migrate, Place, Plan, Quarantine, Resize
from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.slurm.hostlist import compress

if TYPE_CHECKING:
    from muster.answers.fixes import Fix

OWN_KINDS = frozenset(
    ("topology", "limit", "flavor", "selector", "taint", "host", "shape", "smaller", "queue", "hold", "labels")
)
"""Kinds of `muster.answers.fixes.Fix` that change the work itself and nothing else."""

MOST_CHANGES = 12

MOST_EXPLAINED = 3
"""Of so many gangs of a spec that do not start it is told why, and when they would: others are mostly like them."""


class Displaced(Struct, frozen=True):
    """Running work that gives way.

    Attributes:
        how: ``stopped``, ``moved`` or ``resized``.
        why: as the plan has it, such as ``reclaim``, ``priority`` or ``room``.
        gpu_milli: GPU that it held.
        lost_gpu_s: GPU-seconds of work that it loses, with its restart.
    """

    job: str
    how: str
    why: str
    gpu_milli: int
    lost_gpu_s: float


class Delayed(Struct, frozen=True):
    """Waiting work that would start earlier without this: when, and when with it (infinite: no start is told)."""

    job: str
    was_s: float
    starts_s: float


class Domains(Struct, frozen=True):
    """In which domains of a level pods stand, and how many in each, in the order of ranks."""

    level: str
    pods: tuple[tuple[str, int], ...]


class Answer(Struct, frozen=True):
    """What becomes of one gang.

    Attributes:
        place: where it starts now; None if it does not.
        nodes: the same as a hostlist, in the order of ranks.
        domains: for each level of the fleet, widest first.
        slowdown: how many times as long a step takes there as at best; None where that is not known.
        blockers: what keeps it from starting now, the dominant one first; of the first gangs of a spec that wait.
        forecast: when it starts, if not now; likewise.
    """

    workload: Workload
    place: Place | None = None
    nodes: str = ""
    domains: tuple[Domains, ...] = ()
    slowdown: float | None = None
    blockers: tuple[Blocker, ...] = ()
    forecast: Forecast | None = None

    @property
    def pods(self) -> int:
        """How many of its pods start now; an elastic gang may start with fewer than all."""
        return len(self.place.pods) if self.place else 0


class Fit(Struct, frozen=True):
    """The answer: gangs in the order of the spec, what gives way, and what is to be known besides."""

    answers: tuple[Answer, ...]
    displaced: tuple[Displaced, ...]
    delayed: tuple[Delayed, ...]
    notes: tuple[Note, ...]

    @property
    def fits(self) -> bool:
        """Whether all of it starts now."""
        return all(each.place is not None for each in self.answers)


class Changes(Struct, frozen=True):
    """By what a gang would start sooner: ``own`` are changes of the work itself, ``others`` all else."""

    job: str
    own: tuple[Fix, ...]
    others: tuple[Fix, ...]


class Asked(Struct, frozen=True):
    """What goes before the spec; None: as the spec says."""

    queue: str | None = None
    priority: int | None = None
    time_limit_s: float | None = None
    flavors: tuple[str, ...] = ()
    parallelism: Parallelism | None = None
    user: str = ""


class FitView(View):
    """A snapshot with new work in it, and what the cycle of its instant makes of both; ``names`` are the new work's.

    Ideally there are two cycles, with the new work and without. Where the one without starts and stops nothing, the
    nodes are as they were: then the other goes on from what it learned, and looks at hardly more than the new work.
    """

    def __init__(self, snapshot: Snapshot, workloads: Sequence[Workload], config: Config) -> None:
        pending = cast("tuple[Workload, ...]", followed_by(snapshot.pending, workloads))
        super().__init__(replace(snapshot, pending=pending), config)
        self.names = tuple(each.name for each in workloads)
        self._before = snapshot
        self._new = workloads
        self._stack = ExitStack()

    @cached_property
    def _all(self) -> tuple[Scheduler, Plan, Plan, dict[str, float]]:
        scheduler = Scheduler(self._before, self.config)
        twin = self._stack.enter_context(scheduler.trial(self._before.searches))
        without = twin.cycle(self.now_s)
        slots = {name: slot.start_s for name, slot in twin.slots.items()}
        if any(isinstance(each, (Place, Evict, Migrate, Resize, Quarantine)) for each in without.decisions):
            self._stack.close()  # the twin is no more: what it shares with the other is as it was
        else:
            twin.slots.clear()
            scheduler = twin
        for workload in self._new:
            scheduler.submit(workload)
        return scheduler, scheduler.cycle(self.now_s), without, slots

    @cached_property
    def _decided(self) -> tuple[Scheduler, Plan]:
        return self._all[:2]

    @property
    def without(self) -> Plan:
        """What the cycle would decide without the new work."""
        return self._all[2]

    @property
    def starts_without(self) -> dict[str, float]:
        """When work would start without the new work: now, or at its reserved start."""
        now = {each.workload: self.now_s for each in self.without.decisions if isinstance(each, Place)}
        return {**self._all[3], **now}


def fit(
    snapshot: Snapshot, specs: Specs, config: Config, asked: Asked | None = None, budget: Budget | None = None
) -> tuple[Fit, FitView]:
    """Whether the gangs of a spec would start now; the view is that on the snapshot with them in it.

    Raises:
        InputError: a queue that there is not, or work that contradicts itself.
    """
    workloads, notes = submitted(snapshot, specs, asked or Asked())
    view = FitView(replace(snapshot, fleet=specs.fleet), workloads, config)
    placements = None
    if any(each.parallelism for each in workloads):
        from muster.planning.placed import Placements

        placements = Placements(specs.fleet)
        for workload in workloads:
            placements.check(workload)
    answers: list[Answer] = []
    explained = 0
    for workload in workloads:
        place = view.starts.get(workload.name)
        if place is None:
            explained += 1
            waits = explained <= MOST_EXPLAINED
            answers.append(_waits(view, workload, specs, budget) if waits else Answer(workload))
        else:
            slowdown = placements and placements.slowdown(workload, place.pods)
            nodes = compress(pod.node for pod in place.pods)
            factor = slowdown.factor if slowdown else None
            answers.append(Answer(workload, place, nodes, domains_of(snapshot, place), factor))
    return Fit(tuple(answers), _displaced(view), _delayed(view), notes), view


def submitted(snapshot: Snapshot, specs: Specs, asked: Asked) -> tuple[tuple[Workload, ...], tuple[Note, ...]]:
    """The gangs as they would be submitted now, and all notes that still hold, in the order of the spec's lines.

    Raises:
        InputError: a queue or flavor that the snapshot does not have, or a parallelism that does not suit the pods.
    """
    running = {each.workload.name for each in snapshot.running}
    taken = set(field_of(snapshot.pending, "name")) | running | set(snapshot.finished)
    found: list[Workload] = []
    notes: list[Note] = []
    for each in specs.workloads:
        name = each.name
        if name in taken:
            number = next(number for number in range(2, len(taken) + 3) if f"{name}-{number}" not in taken)
            state = "runs" if name in running else "has ended" if name in snapshot.finished else "waits"
            notes.append(Note("name", f"{name} {state} already: this is asked as a new job beside it, {name}-{number}"))
            name = f"{name}-{number}"
        taken.add(name)
        queue = each.queue if asked.queue is None else asked.queue
        _check_queue(snapshot, queue, asked)
        workload = replace(
            each,
            name=name,
            queue=queue,
            user=asked.user or each.user,
            submitted_s=snapshot.taken_s,
            priority=each.priority if asked.priority is None else asked.priority,
            time_limit_s=each.time_limit_s if asked.time_limit_s is None else asked.time_limit_s,
            flavors=asked.flavors or each.flavors,
            parallelism=asked.parallelism or each.parallelism,
        )
        workload = limited(snapshot, workload, submits=True)
        _check_flavors(snapshot, workload)
        check_parallelism(workload, "parallelism")
        found.append(workload)
    notes += [note for note in specs.notes if not note.unless or getattr(asked, note.unless) is None]
    return tuple(found), tuple(sorted(notes, key=lambda note: note.line or 0))


def _check_queue(snapshot: Snapshot, queue: str, asked: Asked) -> None:
    names = [each.name for each in snapshot.queues]
    if not names or queue in names:
        return
    known = near(queue, names) or f"it has {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}"
    hint = known if asked.queue is not None else f"{known}; --queue QUEUE asks in another"
    what = f"the snapshot has no queue {queue[:60]!r}" if queue else "the spec names no queue"
    raise InputError(what, field="--queue" if asked.queue is not None else "queue", hint=hint)


def _check_flavors(snapshot: Snapshot, workload: Workload) -> None:
    flavors = dict.fromkeys(node.flavor for node in snapshot.fleet) if workload.flavors else {}
    for flavor in workload.flavors:
        if flavor not in flavors:
            hint = near(flavor, list(flavors)) or f"it has {', '.join(flavors)}"
            raise InputError(f"the fleet has no flavor {flavor[:60]!r}", field="--flavor", hint=hint)


def _waits(view: FitView, workload: Workload, specs: Specs, budget: Budget | None) -> Answer:
    blockers = why(view, workload.name).blockers
    told = tuple(replace(each, text=in_words(each.text, specs)) for each in blockers)
    return Answer(workload, blockers=told, forecast=forecast(view, workload.name, budget=budget))


def changes_that_fit(view: FitView, answer: Answer, specs: Specs) -> Changes:
    """By which changes a gang that waits would start now: first those of the work itself, then those of others' or of
    the fleet; each tried with the scheduler's own cycle (`muster.answers.fixes`)."""
    from muster.answers.fixes import find_fixes

    start_s = answer.forecast.expected_s if answer.forecast else None
    found = find_fixes(view, answer.workload.name, limit=MOST_CHANGES, start_s=start_s).fixes
    told = [replace(each, title=in_words(each.title, specs)) for each in found if each.changes]
    own = tuple(each for each in told if each.kind in OWN_KINDS)
    return Changes(answer.workload.name, own, tuple(each for each in told if each.kind not in OWN_KINDS))


def in_words(text: str, specs: Specs) -> str:
    """A sentence in which marks of nodes are said as what they stand for."""
    for mark, words in specs.marks:
        text = text.replace(mark, words)
    return text


def domains_of(snapshot: Snapshot, place: Place) -> tuple[Domains, ...]:
    """In how many domains of each level the pods stand."""
    nodes = {node.name: node for node in snapshot.fleet}
    found: list[Domains] = []
    for depth, level in enumerate(snapshot.fleet.topology.levels):
        paths = (nodes[pod.node].topology for pod in place.pods)
        counts = Counter(path[depth] if depth < len(path) else "" for path in paths)
        found.append(Domains(level, tuple(counts.items())))
    if HOST not in snapshot.fleet.topology.levels:
        found.append(Domains(HOST, tuple(Counter(pod.node for pod in place.pods).items())))
    return tuple(found)


def _displaced(view: FitView) -> tuple[Displaced, ...]:
    """Running work that gives way, and would not without the new work."""
    usual = {(type(each), _job(each)) for each in view.without.decisions}
    found: list[Displaced] = []
    for each in view.plan.decisions:
        if isinstance(each, (Evict, Migrate, Resize)) and (type(each), each.workload) not in usual:
            how = {Evict: "stopped", Migrate: "moved", Resize: "resized"}[type(each)]
            lost = each.lost_gpu_s if isinstance(each, Evict) else each.cost_gpu_s
            milli = view.find(each.workload).workload.gpu_milli
            found.append(Displaced(each.workload, how, each.why, milli, lost))
    return tuple(found)


def _job(decision: Decision) -> str:
    return getattr(decision, "workload", "")


def _delayed(view: FitView) -> tuple[Delayed, ...]:
    """Waiting work that would start earlier without the new work."""
    slots = {name: slot.start_s for name, slot in view.scheduler.slots.items()}
    found: list[Delayed] = []
    for name, was_s in view.starts_without.items():
        starts_s = view.now_s if name in view.starts else slots.get(name, math.inf)
        if starts_s > was_s:
            found.append(Delayed(name, was_s, starts_s))
    return tuple(found)
