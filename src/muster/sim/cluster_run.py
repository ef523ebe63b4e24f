"""Work through the whole scheduling cycle on a simulated fleet: submissions, starts, checkpoints, evictions, ends.

The scheduler is `muster.engine.scheduler.Scheduler`, the same that live backends use; here its plans are carried out at
once and what runs ends after its recorded run time. A workload that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.plan import Evict, Place, Plan
from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.sim.events import Events


class JobStory(Struct):
    """What became of a workload; times in seconds, NaN where it did not come to that."""

    submitted_s: float
    started_s: float = math.nan
    finished_s: float = math.nan
    starts: int = 0
    lost_s: float = 0.0
    done_s: float = 0.0
    backfilled: bool = False


class ClusterRun:
    """A run that can be stopped at any time, copied and pickled.

    Args:
        snapshot: fleet, queues and what runs or waits at the start.
        workloads: what is submitted, and when.
        config: of the scheduler.

    ``events`` are submissions (payload: index) and ends (payload: -1 - index, with the number of the start that they
    belong to, so that the end of a start that was stopped is nobody's).
    """

    def __init__(self, snapshot: Snapshot, workloads: Sequence[Workload], config: Config) -> None:
        self.scheduler = Scheduler(snapshot, config)
        self.workloads = tuple(workloads)
        self.stories = [JobStory(each.submitted_s) for each in self.workloads]
        self.plans: list[tuple[float, Plan]] = []
        self.now_s = -math.inf
        self._index = {each.name: index for index, each in enumerate(self.workloads)}
        self._events = Events(self._handle)
        self._last: dict[int, float] = {}
        self._due = False
        for index in sorted(range(len(self.workloads)), key=lambda index: (self.workloads[index].submitted_s, index)):
            self._events.schedule(self.workloads[index].submitted_s, index, 1)

    def run(self, until: float | None = None) -> list[JobStory]:
        """Run up to and including ``until`` (to the end if None); the stories in the order of the workloads."""
        self._events.run(until)
        return self.stories

    def _handle(self, time_s: float, payload: int) -> None:
        self.now_s = time_s
        if payload >= 0:
            self.scheduler.submit(self.workloads[payload])
            self._due = True
        else:
            index, start = divmod(-1 - payload, 1 << 20)
            if self.stories[index].starts == start and math.isnan(self.stories[index].finished_s):
                self.scheduler.finish(self.workloads[index].name, time_s)
                self.stories[index].finished_s = time_s
                self._due = True
        if self._due and self._events.peek() != time_s:
            self._due = False
            self._carry_out(time_s, self.scheduler.cycle(time_s))

    def _carry_out(self, now_s: float, plan: Plan) -> None:
        self.plans.append((now_s, plan))
        for decision in plan.decisions:
            if isinstance(decision, Place):
                self._start(self._index[decision.workload], now_s, backfilled=decision.backfilled)
            elif isinstance(decision, Evict):
                self._stop(self._index[decision.workload], now_s)

    def _start(self, index: int, now_s: float, *, backfilled: bool) -> None:
        story, workload = self.stories[index], self.workloads[index]
        if math.isnan(story.started_s):
            story.started_s = now_s
            story.backfilled = backfilled
        story.starts += 1
        self._last[index] = now_s
        duration_s = workload.duration_s
        if duration_s is None or duration_s == math.inf:
            return
        restart_s = workload.checkpointing.restart_s if workload.checkpointing and story.starts > 1 else 0.0
        end_s = now_s + restart_s + max(0.0, duration_s - story.done_s)
        self._events.schedule(end_s, -1 - (index * (1 << 20) + story.starts), 0)

    def _stop(self, index: int, now_s: float) -> None:
        """The work since the last checkpoint is lost; the rest is done."""
        story, workload = self.stories[index], self.workloads[index]
        run_s = now_s - self._last[index]
        kept_s = 0.0
        if workload.checkpointing is not None and workload.checkpointing.interval_s > 0:
            kept_s = run_s // workload.checkpointing.interval_s * workload.checkpointing.interval_s
        story.done_s += kept_s
        story.lost_s += run_s - kept_s
