"""What jobs have done, lost and waited for: their stories, and the spells in which they run.

Work is counted in seconds of the whole gang at its best: an elastic gang at half its size does half a second's work in
a second, and one that stands badly less than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from muster.model.plan import PodPlacement
from muster.model.workload import Workload
from muster.planning.placed import Placements, text_of


class JobStory(Struct):
    """What became of a workload; times in seconds, NaN where it did not come to that.

    Attributes:
        started_s, finished_s: its first start, and its end (by itself, killed or given up after failures).
        promised_s: the reserved start that it was told first.
        surely_s: the first one that rests on stated limits alone.
        starts: how often it began to run: from the queue, moved, at another size, or with another node.
        evictions: how often it was stopped for other work.
        moves, resizes: how often it was moved to make room, and had its size changed.
        failures, node_losses: how often it failed by itself, and lost pods with a node.
        done_s: work that is done and kept.
        lost_s: work that was done and lost, since the last checkpoint before it stopped.
        restart_s: time spent in restarts.
        stall_s: time in which it hung, as a node of it was gone.
        move_s: what moves cost it: lost work and restarts, as counted above.
        slow_s: time lost by standing worse than at best, where run times are stretched by that.
        slowdown: of a step at its last start, by the communication model; NaN where it is not told.
        placement: GPUs in each NVLink domain at its last start, in the order of ranks; empty where it is not told.
        backfilled: its first start ran past others with a reserved start.
        end: how it ended: ``finished``, ``killed`` at its time limit, ``failed`` too often, or ``withdrawn`` as nobody
            wanted it any more; empty before.
    """

    submitted_s: float
    started_s: float = math.nan
    finished_s: float = math.nan
    promised_s: float = math.nan
    surely_s: float = math.nan
    starts: int = 0
    evictions: int = 0
    moves: int = 0
    resizes: int = 0
    failures: int = 0
    node_losses: int = 0
    done_s: float = 0.0
    lost_s: float = 0.0
    restart_s: float = 0.0
    stall_s: float = 0.0
    move_s: float = 0.0
    slow_s: float = 0.0
    slowdown: float = math.nan
    placement: str = ""
    backfilled: bool = False
    end: Literal["", "finished", "killed", "failed", "withdrawn"] = ""

    def note_promise(self, start_s: float, *, sure: bool) -> None:
        """It was told a reserved start: the first counts, and the first that is sure."""
        if math.isnan(self.promised_s):
            self.promised_s = start_s
        if sure and math.isnan(self.surely_s):
            self.surely_s = start_s


class Spent(Struct, frozen=True):
    """What became of the time of a spell, in seconds of the whole gang at its best."""

    restart_s: float
    work_s: float
    slow_s: float
    stall_s: float

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            self.restart_s + other.restart_s, self.work_s + other.work_s, self.slow_s + other.slow_s,
            self.stall_s + other.stall_s,
        )  # fmt: skip


class Spell(Struct):
    """A time in which a gang runs as it is; ``end_s`` is NaN while it does.

    The first ``restart_s`` are its restart; ``until_s`` is when it will end by itself, or be ``killed``. A second of
    work takes ``pace`` seconds; ``size`` is the part of the whole gang that runs, on so many ``nodes``. From
    ``hangs_s`` on nothing is done. ``saved_s`` is when it was saved last before the simulation began, which was before
    ``next_save_s``; NaN where it began to run later.
    """

    job: int
    start_s: float
    restart_s: float
    until_s: float
    killed: bool
    end_s: float = math.nan
    pace: float = 1.0
    size: float = 1.0
    nodes: int = 0
    hangs_s: float = math.inf
    saved_s: float = math.nan
    next_save_s: float = math.nan

    def ran_s(self, now_s: float) -> float:
        """How long it has worked up to a time, as the clock goes."""
        return max(0.0, min(now_s, self.hangs_s) - self.start_s - self.restart_s)

    def spent(self, from_s: float, now_s: float) -> Spent:
        """What became of the time from ``from_s``, or its start, to ``now_s``."""
        start_s = max(self.start_s, from_s)
        works_s = max(self.start_s + self.restart_s, start_s)
        stops_s = max(start_s, min(now_s, self.hangs_s))
        ran_s = max(0.0, stops_s - works_s)
        work_s = ran_s / self.pace
        return Spent(
            self.size * max(0.0, min(works_s, stops_s) - start_s),
            self.size * work_s,
            self.size * (ran_s - work_s),
            self.size * max(0.0, now_s - stops_s),
        )


class Lives:
    """The lives of all jobs; a job is its number in ``workloads``.

    Args:
        workloads: all jobs.
        placements: what tells slow-downs of where they stand; None: nothing does.
        stretch: whether these make them run longer.
        kill: whether they are killed at their time limit.
    """

    def __init__(
        self, workloads: Sequence[Workload], placements: Placements | None, *, stretch: bool, kill: bool
    ) -> None:
        self.workloads = workloads
        self.stories = [JobStory(each.submitted_s) for each in workloads]
        self.spells: list[Spell] = []
        self.saving: dict[int, None] = {}
        self._now: dict[int, int] = {}
        self._placements = placements
        self._stretch = stretch
        self._kill = kill

    def __contains__(self, job: int) -> bool:
        return job in self._now

    def spell_of(self, job: int) -> Spell | None:
        """The spell in which a job runs now."""
        number = self._now.get(job)
        return None if number is None else self.spells[number]

    def adopt(
        self, job: int, started_s: float, saved_s: float | None, now_s: float, leaving_s: float | None = None
    ) -> Spell:
        """Work that runs at the beginning, ``now_s``; its earlier life is not known, so it is on its first start.

        ``saved_s`` is when it was saved last; it goes on from there, each interval. ``leaving_s`` is when work that was
        told to stop will have gone.
        """
        story, workload = self.stories[job], self.workloads[job]
        story.started_s, story.starts = started_s, 1
        if leaving_s is not None:
            return self._enter(Spell(job, started_s, 0.0, leaving_s, killed=True))
        until_s = math.inf if workload.duration_s is None else started_s + workload.duration_s
        spell = Spell(job, started_s, 0.0, until_s, killed=False)
        saving = workload.checkpointing
        if saving is not None and saving.interval_s > 0:
            spell.saved_s = started_s if saved_s is None else max(saved_s, started_s)
            passed = math.floor(max(0.0, now_s - spell.saved_s) / saving.interval_s) + 1
            spell.next_save_s = spell.saved_s + passed * saving.interval_s
        return self._enter(spell)

    def begin(
        self, job: int, now_s: float, pods: Sequence[PodPlacement], gpu_milli: int, *, since_s: float,
        delay_s: float, backfilled: bool,
    ) -> Spell:  # fmt: skip
        """A gang begins to run, or goes on in another way: with so much GPU, on ``pods`` where they are known.

        ``since_s`` is when it started from its queue: its time limit counts from then. For ``delay_s`` it waits for
        others to leave its GPUs, which is counted with restarts.
        """
        story, workload = self.stories[job], self.workloads[job]
        pace = self._pace(job, pods)
        if math.isnan(story.started_s):
            story.started_s, story.backfilled = now_s + delay_s, backfilled
        story.starts += 1
        saved = workload.checkpointing
        restart_s = delay_s
        restart_s += saved.restart_s if saved is not None and story.starts > 1 else 0.0
        duration_s = math.inf if workload.duration_s is None else workload.duration_s
        size = gpu_milli / workload.gpu_milli if workload.gpu_milli else len(pods) / workload.pods if pods else 1.0
        until_s = now_s + restart_s + max(0.0, duration_s - story.done_s) * pace / size
        killed = False
        if self._kill and workload.time_limit_s is not None:
            killed = since_s + workload.time_limit_s < until_s
            until_s = max(now_s, min(until_s, since_s + workload.time_limit_s))
        nodes = len({pod.node for pod in pods})
        return self._enter(Spell(job, now_s, restart_s, until_s, killed, pace=pace, size=size, nodes=nodes))

    def _enter(self, spell: Spell) -> Spell:
        self._now[spell.job] = len(self.spells)
        self.spells.append(spell)
        if self.workloads[spell.job].checkpointing is not None:
            self.saving[spell.job] = None
        return spell

    def _pace(self, job: int, pods: Sequence[PodPlacement]) -> float:
        """How long a second of work takes where a job stands; its slow-down is noted."""
        told = self._placements.slowdown(self.workloads[job], pods) if self._placements and pods else None
        if self._placements is None or told is None:
            return 1.0
        story = self.stories[job]
        story.slowdown, story.placement = told.factor, text_of(self._placements.spots(pods))
        return told.factor if self._stretch else 1.0

    def hang(self, job: int, now_s: float) -> None:
        """A running gang does nothing from now on."""
        spell = self.spell_of(job)
        if spell is not None:
            spell.hangs_s = min(spell.hangs_s, now_s)

    def halt(self, job: int, now_s: float, *, keep_all: bool) -> Spell:
        """A gang stops; its work since the last checkpoint is lost, unless it is all kept."""
        story, spell = self.stories[job], self.spells[self._now.pop(job)]
        self.saving.pop(job, None)
        spell.end_s = now_s
        spent = spell.spent(spell.start_s, now_s)
        kept_s = spent.work_s if keep_all else self._kept_s(spell, now_s) / spell.pace * spell.size
        story.restart_s += spent.restart_s
        story.slow_s += spent.slow_s
        story.stall_s += spent.stall_s
        story.done_s += kept_s
        story.lost_s += spent.work_s - kept_s
        return spell

    def saved_s(self, job: int, now_s: float) -> float:
        """Since when a running gang's work is not saved: its last checkpoint, or the beginning of this spell."""
        spell = self.spells[self._now[job]]
        kept_s = self._kept_s(spell, now_s)
        return spell.start_s + spell.restart_s + kept_s if kept_s else spell.start_s

    def _kept_s(self, spell: Spell, now_s: float) -> float:
        """How much of the time that it ran was saved by checkpoints, as the clock goes."""
        saved, ran_s = self.workloads[spell.job].checkpointing, spell.ran_s(now_s)
        if saved is None or not saved.interval_s > 0 or ran_s <= 0:
            return 0.0
        if not math.isnan(spell.saved_s):
            until_s = spell.start_s + spell.restart_s + ran_s
            past = math.floor((until_s - spell.next_save_s) / saved.interval_s + 1e-9)
            saved_s = spell.saved_s if past < 0 else spell.next_save_s + past * saved.interval_s
            return min(ran_s, max(0.0, saved_s - spell.start_s - spell.restart_s))
        return min(ran_s, math.floor(ran_s / saved.interval_s + 1e-9) * saved.interval_s)
