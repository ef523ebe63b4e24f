"""The pure function at the heart: a snapshot in, a plan out."""

from __future__ import annotations

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.plan import Plan, Wait
from muster.model.snapshot import Snapshot


def decide(snapshot: Snapshot, now_s: float, config: Config) -> Plan:
    """What should happen now: the same snapshot, time and config give the same plan, to the byte.

    The plan ends with a `Wait` for each workload that stays, with the reason.
    """
    scheduler = Scheduler(snapshot, config)
    plan = scheduler.cycle(now_s)
    return Plan((*plan.decisions, *(Wait(name, reason) for name, reason in scheduler.waits(now_s))))
