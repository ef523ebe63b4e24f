"""The loan rule against the event simulator: the engine's own cycle, quotas, evictions and services, GPU by GPU."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from muster.engine.config import Config
from muster.model.fleet import Device, Fleet, Node
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, Workload
from muster.planning.lending import Lent, lend, slack_for
from muster.planning.plans.pool import usual_day
from muster.sim.cluster_run import ClusterRun, RunOptions
from muster.sim.metrics import measure
from muster.sim.services import Service

GPUS, STEP_S, STOP_S, COLD_S = 40, 300.0, 100.0, 200.0
DAY = [float(round(each / 2.5)) for each in usual_day()[48:216]]
"""From four in the morning to six in the evening, on a smaller scale."""


def wanted(slack: float) -> tuple[tuple[float, int], ...]:
    """A replica of one GPU each: as many as demand says, and the slack; an entry where the number changes."""
    found: list[tuple[float, int]] = []
    for at, each in enumerate(DAY):
        count = math.ceil(each + slack)
        if not found or found[-1][1] != count:
            found.append((at * STEP_S, count))
    return tuple(found)


@cache
def simulated(slack: float, ramp: float = 0.0) -> tuple[Lent, float]:
    """Held, short and taken back in a day in which training wants every GPU; and hours in which replicas start."""
    gpu, reclaim_s = PodShape(0, 0, 1), STOP_S + COLD_S if ramp else 0.0
    fleet = Fleet(
        tuple(Node(f"n{at}", 64_000, 1 << 40, tuple(Device(i, "H100") for i in range(8))) for at in range(GPUS // 8))
    )
    queues = (
        Queue("org"),
        Queue("serve", "org", quotas=(Quota("H100", GPUS * 1000),), reclaim_s=reclaim_s, ramp_milli_per_s=ramp),
        Queue("train", "org", quotas=(Quota("H100", 0),)),
    )
    end_s = len(DAY) * STEP_S
    work = [
        Workload(f"t{at}", (PodSet(gpu),), submitted_s=1.0, duration_s=10 * end_s, queue="train",
                 checkpointing=Checkpointing(1800.0, 300.0))
        for at in range(GPUS)
    ]  # fmt: skip
    service = Service("chat", gpu, 1, wanted(slack), "serve", start_s=COLD_S)
    options = RunOptions(services=(service,), services_until_s=end_s)
    run = ClusterRun(Snapshot(fleet, queues), work, Config(stop_s=STOP_S), options)
    run.run(end_s)
    grid = np.arange(STEP_S, end_s, 10.0) + 5.0  # instants: the first step fills the pool
    serves, holds = np.zeros(len(grid)), np.zeros(len(grid))
    for replica, story in zip(run.replicas, run.stories[run._first_replica :], strict=True):
        placed = story.started_s if not math.isnan(story.started_s) else math.inf
        asked = replica.workload.submitted_s
        holds += (grid >= asked) & (grid < replica.until_s)
        serves += (grid >= placed + COLD_S) & (grid < replica.until_s)
    short = np.maximum(0.0, np.array([DAY[int(at // STEP_S)] for at in grid]) - serves)
    evictions = sum(story.evictions for story in run.stories)
    hours = (end_s - STEP_S) / 3600
    cold = measure(run).services[0].cold_hours
    return Lent(float(holds.mean()), float(short.mean()), float((short > 0).mean()), evictions / hours), cold


@pytest.mark.parametrize("slack", [0.0, 1.0, 3.0])
def test_a_warm_slack_is_short_as_often_as_the_engine_is(slack: float) -> None:
    """Replicas for demand and slack; what is asked for has its place after 100 s and serves after 200 s more."""
    found, _ = simulated(slack)
    told = lend(DAY, 1, slack, 0.0, STEP_S)
    assert found.short_share == pytest.approx(told.short_share, abs=0.01)
    assert found.short == pytest.approx(told.short, abs=0.05)
    assert found.held == pytest.approx(told.held, rel=0.01)
    assert found.risen == pytest.approx(told.risen, rel=0.1)


def test_the_slack_of_the_rule_is_enough_in_the_engine() -> None:
    slack = math.ceil(slack_for(DAY, 1, 0.005))
    assert simulated(float(slack))[0].short_share <= 0.01
    assert simulated(float(slack - 2))[0].short_share > 0.05


def test_a_slack_that_is_only_free_waits_for_cold_starts() -> None:
    """Headroom keeps GPUs free, not replicas warm: each that is added then starts for 200 s before it serves."""
    slack = math.ceil(slack_for(DAY, 1, 0.005))
    free, cold = simulated(0.0, ramp=1000 * slack / (STOP_S + COLD_S))
    assert cold > 5
    assert free.short_share > 10 * max(0.004, simulated(float(slack))[0].short_share)
