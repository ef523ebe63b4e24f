"""Snapshots run forward: the run times that their work gets, the same for all variants of a snapshot, and the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from muster.answers.lengths import Lengths
from muster.answers.view import View
from muster.engine.config import config_of
from muster.engine.predict import RunTimes as RunTimesLikeIt
from muster.engine.predict import surely_s
from muster.engine.scheduler import Scheduler
from muster.model.plan import Evict, Migrate
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import Workload
from muster.sim.cluster_run import ClusterRun
from muster.sim.run_inputs import RunOptions

EVENTS_AT_ONCE = 500
"""After so many, or more where more waits, it is seen how far a run is."""


class RunTimes:
    """How long the work of a snapshot runs in all, from its start, by name: one table a sample.

    Args:
        view: the snapshot, whose settings say what the scheduler takes work to run.
        samples: 1: what the scheduler takes; more: so many draws.
        seed: of the draws.
    """

    def __init__(self, view: View, samples: int, seed: int) -> None:
        self._snapshot = view.snapshot
        rng = np.random.default_rng(seed)
        self._lengths = Lengths(view.snapshot, view.config.run_s, samples, rng) if samples > 1 else None
        self._scheduler = Scheduler(replace(view.snapshot, pending=()), view.config) if samples == 1 else None
        self._before = {each.workload.name: each for each in view.snapshot.running}
        self._asked = {each.name: each for each in view.snapshot.pending}
        past = RunTimesLikeIt(view.snapshot.run_times)
        self.unknown = sum(
            each.time_limit_s is None
            and (view.config.predict == "never" or past.predicted_s(each, view.config.predict_quantile) is None)
            for each in (*view.snapshot.pending, *(run.workload for run in view.snapshot.running))
        )
        """Of so many jobs neither a limit nor work like them is known."""
        self._tables: list[dict[str, float]] = [{} for _ in range(samples)]
        for run in view.snapshot.running:
            self._enter(run.workload, max(0.0, view.now_s - run.started_s))
        for workload in view.snapshot.pending:
            self._enter(workload, None)

    def _enter(self, workload: Workload, elapsed_s: float | None) -> None:
        if self._lengths is not None:
            drawn = self._lengths.draw(workload, elapsed_s or 0.0)[0].tolist()
        else:
            assert self._scheduler is not None
            running = self._scheduler.running
            if elapsed_s is None:
                drawn = [running.expected_s(workload)]
            else:
                run = running[workload.name]
                drawn = [running.ends_s(run, self._snapshot.taken_s) - run.started_s]
        for table, seconds in zip(self._tables, drawn, strict=True):
            table[workload.name] = seconds

    def given_to(self, snapshot: Snapshot, sample: int) -> Snapshot:
        """A variant of the snapshot in which all work has its run time.

        What was stopped has the rest of its work and a restart before it, what was moved the same on top of what it has
        run. A job that asks for another number of GPUs does the same work on them, in inverse proportion.
        """
        table, now_s = self._tables[sample], self._snapshot.taken_s
        for workload in snapshot.pending:
            if workload.name not in table:  # it is new
                self._enter(workload, None)
        running: list[Running] = []
        for run in snapshot.running:
            name, was = run.workload.name, self._before[run.workload.name]
            lasts_s = table[name] + (lost_work_s(was, now_s) if was.pods != run.pods and not run.missing else 0.0)
            limit_s = surely_s(run.workload)
            if limit_s != surely_s(was.workload) and limit_s >= now_s - run.started_s:
                lasts_s = min(lasts_s, limit_s)  # a new limit ends it; its work is not more or less by that
            running.append(replace(run, workload=replace(run.workload, duration_s=lasts_s)))
        pending: list[Workload] = []
        for workload in snapshot.pending:
            seconds, was = table[workload.name], self._before.get(workload.name)
            if was is not None:
                seconds = max(0.0, seconds - (now_s - was.started_s) + lost_work_s(was, now_s))
            pending.append(replace(workload, duration_s=seconds * self.stretch(workload)))
        return replace(snapshot, running=tuple(running), pending=tuple(pending))

    def stretch(self, workload: Workload) -> float:
        """How many times as long a job runs that asks for another number of GPUs than before; 1 for all others."""
        asked = self._asked.get(workload.name)
        if asked is None or not workload.gpu_milli or not asked.gpu_milli:
            return 1.0
        return asked.gpu_milli / workload.gpu_milli

    def outlives(self, workload: Workload) -> bool:
        """Whether a job that asks for fewer GPUs than before would run for longer than its limit."""
        limit_s = surely_s(workload)
        return any(table[workload.name] * self.stretch(workload) > limit_s for table in self._tables)


def lost_work_s(run: Running, now_s: float) -> float:
    """What running work loses if it is stopped or moved now: since its last checkpoint, and its restart."""
    saved_s = run.started_s if run.checkpointed_s is None else max(run.checkpointed_s, run.started_s)
    saving = run.workload.checkpointing
    return max(0.0, now_s - saved_s) + (saving.restart_s if saving is not None else 0.0)


class Stopped(NamedTuple):
    """What the scheduler did to running work in a run, up to a time."""

    evictions: int
    moves: int
    lost_gpu_s: float


class Forward:
    """A snapshot with run times, run forward by the scheduler's own code."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now_s = snapshot.taken_s
        options = RunOptions(keep_places=True, keep_plans=True)
        self.run = ClusterRun(snapshot, (), config_of(dict(snapshot.settings)), options)
        self.waiting = tuple(each.name for each in snapshot.pending)
        self.cut = False

    def until_started(self, events: int, progress: Callable[[float], None]) -> None:
        """Run until all that waits has started, nothing more happens, or so many events have been handled.

        ``progress`` is told now and then which part is done: of the starts or of the events, whichever is more.
        """
        self.run.run(self.now_s)  # all that waits is looked at once
        stories = self.run.stories
        open_: list[int] = [job for job in range(len(self.waiting)) if math.isnan(stories[job].started_s)]
        at_once, left = max(EVENTS_AT_ONCE, len(open_) // 20), events
        while open_ and left > 0:
            asked = min(at_once, left)
            handled = self.run.run_until_started(open_, asked)
            left -= handled
            open_ = [job for job in open_ if math.isnan(stories[job].started_s)]
            progress(max(1 - len(open_) / len(self.waiting), 1 - left / events))
            if handled < asked:
                return
        self.run.run(self.run.now_s)  # what happens at one instant happens
        self.cut = any(math.isnan(stories[job].started_s) for job in open_)

    def until(self, after_s: float) -> None:
        """Run up to so long after now, unless it has been run further."""
        if self.run.now_s < self.now_s + after_s:
            self.run.run(self.now_s + after_s)

    @property
    def reached_s(self) -> float:
        """How far it was run, from now."""
        return max(0.0, self.run.now_s - self.now_s)

    @property
    def starts(self) -> Mapping[str, float]:
        """When what waits starts, in seconds from now; infinite: it did not."""
        found: dict[str, float] = {}
        for name, story in zip(self.waiting, self.run.stories, strict=False):
            found[name] = math.inf if math.isnan(story.started_s) else max(0.0, story.started_s - self.now_s)
        return found

    def stopped(self, after_s: float) -> Stopped:
        """What was stopped or moved for others up to so long after now."""
        evictions = moves = 0
        lost_gpu_s = 0.0
        for time_s, plan in self.run.plans:
            if time_s > self.now_s + after_s:
                break
            for decision in plan.decisions:
                if isinstance(decision, Evict):
                    evictions += 1
                    lost_gpu_s += decision.lost_gpu_s
                elif isinstance(decision, Migrate):
                    moves += 1
                    lost_gpu_s += decision.cost_gpu_s
        return Stopped(evictions, moves, lost_gpu_s)
