"""Shadow mode: what Muster would have done beside what the cluster's own scheduler did.

Each cycle is decided on a twin of the books, which then go on with what really happens. So each decision is compared
with the same cluster as the other scheduler had; it is not told how the days would have gone if Muster had decided all.
"""

from __future__ import annotations

import statistics
from typing import Any

from msgspec import Struct

from muster.engine.scheduler import Scheduler
from muster.model.plan import Evict, Place, Plan
from muster.service.scheduler.state import LiveState

SCHEMA = "muster.shadow/v1"
MOST_RECORDS = 100_000


class Record(Struct):
    """One gang: when it was first seen waiting, when and where Muster would have started it, when and where it ran."""

    name: str
    queue: str
    gpus: float
    pods: int
    waits_since_s: float
    reason: str = ""
    would_start_s: float | None = None
    would_nodes: tuple[str, ...] = ()
    would_stop: tuple[str, ...] = ()
    started_s: float | None = None
    nodes: tuple[str, ...] = ()
    gone_s: float | None = None


class Shadow:
    """Keeps a record of each gang that waited while it looked on.

    Free GPUs that fitted: at each look the gangs that would start without stopping others, over the time to the next.
    """

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self.records: dict[str, Record] = {}
        self._open: dict[str, Record] = {}
        self.begun_s: float | None = None
        self.looked_s = 0.0
        self.left_out = 0
        self._fitting_gpus = self._fitting_gpu_s = 0.0
        self._told: list[tuple[str, dict[str, Any]]] = []

    def news(self, plan: Plan) -> list[tuple[str, dict[str, Any]]]:
        """What the plan starts and stops, as lines of a log, less what the plan before it said as well."""
        lines: list[tuple[str, dict[str, Any]]] = []
        for each in plan.decisions:
            if isinstance(each, Place):
                nodes = list(dict.fromkeys(place.node for place in each.pods))
                lines.append(("would start", {"gang": each.workload, "nodes": nodes}))
            elif isinstance(each, Evict):
                lines.append(("would stop", {"gang": each.workload, "for": each.for_workload, "why": each.why}))
        before, self._told = self._told, lines
        return [line for line in lines if line not in before]

    def decide(self, now_s: float) -> Plan:
        """What Muster would do now; the books stay as the cluster is."""
        scheduler = self._books
        self.begun_s = now_s if self.begun_s is None else self.begun_s
        self._fitting_gpu_s += self._fitting_gpus * max(0.0, now_s - self.looked_s)
        self.looked_s = now_s
        self._note(now_s)
        with scheduler.trial() as twin:
            plan = twin.cycle(now_s)
            self._compare(plan, twin, now_s)
        return plan

    @property
    def _books(self) -> Scheduler:
        assert self._state.scheduler is not None
        return self._state.scheduler

    def _note(self, now_s: float) -> None:
        """Who waits that did not, and what became of those who did."""
        books = self._books
        for name in [name for name in self._open if name not in books.pending.gangs]:
            record = self._open.pop(name)
            if name in books.running:
                run = books.running[name]
                record.started_s = now_s
                record.nodes = tuple(dict.fromkeys(place.node for place in books.cluster.places(run.rows)))
            else:
                record.gone_s = now_s
        for name, gang in books.pending.gangs.items():
            if name in self._open:
                continue
            if len(self.records) >= MOST_RECORDS:
                self.left_out += 1
                continue
            work = gang.workload
            record = Record(name, work.queue, work.gpu_milli / 1000, work.pods, now_s)
            self._open[name] = self.records[name] = record

    def _compare(self, plan: Plan, twin: Scheduler, now_s: float) -> None:
        stopped = tuple(each.workload for each in plan.decisions if isinstance(each, Evict))
        placed = [
            self._open[each.workload]
            for each in plan.decisions
            if isinstance(each, Place) and each.workload in self._open
        ]
        self._fitting_gpus = 0.0 if stopped else sum(each.gpus for each in placed)
        for each in plan.decisions:
            record = self._open.get(each.workload) if isinstance(each, Place) else None
            if record is not None and isinstance(each, Place) and record.would_start_s is None:
                record.would_start_s = now_s
                record.would_nodes = tuple(dict.fromkeys(place.node for place in each.pods))
                record.would_stop = stopped
        for name, record in self._open.items():
            if name in twin.pending.gangs:
                record.reason = twin.waits_for(twin.pending.gangs[name], now_s).name.lower()

    def report(self) -> dict[str, Any]:
        """All records and what they sum up to, for a file."""
        found = list(self.records.values())
        both = [each for each in found if each.would_start_s is not None and each.started_s is not None]
        gains = [(each.started_s or 0.0) - (each.would_start_s or 0.0) for each in both]
        sooner = [each for each, gain in zip(both, gains, strict=True) if gain > 1.0]
        later = [each for each, gain in zip(both, gains, strict=True) if gain < -1.0]
        only_muster = [each for each in found if each.would_start_s is not None and each.started_s is None]
        only_other = [each for each in found if each.would_start_s is None and each.started_s is not None]
        same = sum(each.nodes == each.would_nodes for each in both)
        return {
            "schema": SCHEMA,
            "from_s": self.begun_s,
            "to_s": self.looked_s,
            "gangs": len(found),
            "left_out": self.left_out,
            "both_started": len(both),
            "muster_sooner": len(sooner),
            "muster_later": len(later),
            "only_muster_would_have_started": len(only_muster),
            "only_the_other_started": len(only_other),
            "same_nodes": same,
            "median_s_sooner": round(statistics.median(gains), 3) if gains else None,
            "free_gpu_hours_that_fitted": round(self._fitting_gpu_s / 3600, 3),
            "records": found,
        }
