"""What runs past reserved starts is what it would be if each gang that waits were tried in order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine import scheduler as cycle
from muster.engine.cluster import GangKind
from muster.engine.config import Config
from muster.engine.pending import Claim, Gang, Pending
from muster.engine.predict import surely_s
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Decision, Place, Plan
from muster.model.queue import Queue, Quota
from muster.model.reasons import NO_ROOM, Reason
from muster.model.snapshot import AdvanceReservation, Snapshot
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload
from muster.sim.cluster_run import ClusterRun
from muster.sim.run_inputs import RunOptions
from muster.traces import read_fleet

CPU = (PodShape(1000), PodShape(2000, 1 << 30), PodShape(4000))
WHOLE = (PodShape(1000, 0, 1), PodShape(2000, 0, 2), PodShape(4000, 0, 4))
SHARED = (PodShape(500, 0, 1, 400), PodShape(500, 0, 1, 300, sharing="time-slicing"), PodShape(500, 0, 2, 500))


class Walk:
    """The plain way: the first gangs of all claims and kinds in order, and each gang behind them one by one."""

    def __init__(self, scheduler: Scheduler, now_s: float, decisions: list[Decision]) -> None:
        self.scheduler, self.now_s, self.decisions = scheduler, now_s, decisions

    def run(self) -> None:
        scheduler, passed = self.scheduler, set[tuple[Claim, GangKind]]()
        alive = [
            kind
            for kind in scheduler.pending.kinds
            if not all(scheduler.refused_here(kind.least, flavor) for flavor in scheduler.flavors_of(kind))
        ]
        while True:
            heads = [
                (scheduler.turn(gangs[0]), claim, kind)
                for kind in alive
                for claim, gangs in scheduler.pending.kinds.get(kind, {}).items()
                if (claim, kind) not in passed and kind.least.milli <= scheduler.room_of(claim[0])
            ]
            if not heads:
                return
            _, claim, kind = min(heads, key=lambda head: head[0])
            if not self.starts(scheduler.pending.kinds[kind][claim]):
                passed.add((claim, kind))
            if scheduler.refused_now(kind.least):
                alive.remove(kind)

    def starts(self, gangs: Sequence[Gang]) -> bool:
        refused: tuple[float, float] | None = None
        for gang in gangs:
            lasts = self.scheduler.running.expected_s(gang.workload), surely_s(gang.workload)
            longer = refused is not None and lasts[0] >= refused[0] and lasts[1] >= refused[1]
            if longer or gang.workload.name in self.scheduler.slots:
                continue
            reason = self.scheduler.start(gang, self.now_s, self.decisions)
            if reason is None:
                return True
            if reason is Reason.RESERVED:
                refused = lasts
            elif reason in (*NO_ROOM, Reason.QUOTA, Reason.OVER_QUOTA, Reason.NO_FLAVOR):
                return False
        return False


def fleet_of(rng: random.Random, nodes: int) -> Fleet:
    mixed = rng.random() < 0.3
    return Fleet(
        tuple(
            Node(
                f"n{at}", 16_000, 1 << 40,
                tuple(Device(index, "B" if mixed and at % 3 == 0 else "A") for index in range(4)),
                topology=(f"r{at // 3}",),
            )
            for at in range(nodes)
        ),
        Topology((rng.choice(("rack", "nvlink_domain")),)),
    )  # fmt: skip


def jobs_of(rng: random.Random, fleet: Fleet, *, queues: bool) -> list[Workload]:
    """Much more work than fits, of one shape or of many, with few lengths or many, some of it held or of two parts."""
    shapes = rng.choice((CPU, WHOLE[:1], WHOLE, CPU + WHOLE + SHARED, WHOLE + SHARED[:1]))
    limits = rng.choice(((100.0, 300.0, 900.0), (None, 100.0, 900.0), (100.0, 150.0, 200.0, 400.0, 800.0)))
    users, plain = rng.choice((("u",), ("", "u"), ("u", "v", "w", "x"))), rng.random() < 0.5
    level, now_s = fleet.topology.levels[0], 0.0
    jobs: list[Workload] = []
    for number in range(rng.randrange(15, 60)):
        now_s += rng.choice((0.0, 0.0, 5.0, 17.0, 60.0))
        limit_s = rng.choice(limits)
        lasts_s = rng.choice((10.0, 80.0, limit_s or 200.0, limit_s or 1000.0))
        sets = [PodSet(rng.choice(shapes), rng.choice((1, 1, 2, 3, 6)), None if plain or rng.random() < 0.8 else 1)]
        if not plain and rng.random() < 0.15:
            sets.append(PodSet(rng.choice(shapes), 2, role="other"))
        near = TopologyRequest(required=level), TopologyRequest(preferred=level)
        jobs.append(
            Workload(
                f"{rng.choice(('train', 'eval', 'x'))}-{number}", tuple(sets), now_s,
                duration_s=min(lasts_s, limit_s or lasts_s), time_limit_s=limit_s,
                queue=rng.choice(("a", "a", "b")) if queues else "", user=rng.choice(users),
                priority=0 if plain else rng.choice((0, 0, 0, 5)),
                topology=None if plain or rng.random() < 0.7 else rng.choice(near),
                depends_on=(jobs[-1].name,) if jobs and rng.random() < 0.05 else (),
                not_before_s=now_s + 100.0 if rng.random() < 0.05 else 0.0,
            )
        )  # fmt: skip
    return jobs


def plans_of(seed: int) -> list[tuple[float, Plan]]:
    rng = random.Random(seed)
    fleet = fleet_of(rng, rng.randrange(3, 10))
    queues: tuple[Queue, ...] = ()
    if rng.random() < 0.5:
        quotas = tuple(Quota(flavor, len(fleet) * 1500) for flavor in ("A", "B"))
        most = rng.choice((None, 6000))
        queues = (
            Queue("org"),
            Queue("a", "org", quotas=quotas),
            Queue("b", "org", quotas=quotas, max_running_milli=most),
        )
    jobs = jobs_of(rng, fleet, queues=bool(queues))
    kept = AdvanceReservation("works", 300.0, 700.0, ("n0", "n1"), rng.choice(((), ("a",))), (jobs[3].name,))
    config = Config(
        queueing=rng.choice(("backfill", "backfill", "backfill", "best-effort")),
        reservations=rng.choice((1, 1, 2, 5, 50)),
        ordering=rng.choice(("fifo", "fair-share", "drf", "slurm-fair-tree")),
        predict=rng.choice(("never", "without-limit", "always")),
        usage_period_s=rng.choice((0.0, 300.0)),
        reclaim=rng.random() < 0.5, preempt_lower_priority=rng.random() < 0.5,
    )  # fmt: skip
    snapshot = Snapshot(fleet, queues, reservations=(kept,) if rng.random() < 0.2 else ())
    run = ClusterRun(snapshot, jobs, config, RunOptions(keep_plans=True))
    run.run(20_000.0)
    return run.plans


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_plans_are_those_of_the_plain_way(seed: int) -> None:
    with patch.object(cycle, "Backfill", Walk):
        plain = plans_of(seed)
    assert plans_of(seed) == plain


def crowd(waiting: int) -> Scheduler:
    """Two nodes of 8 cores: one runs on till 1,000 s, a job of 16 is first and has the other kept, many wait behind.

    The others are of one user and size, each of one of three lengths, all too long to end before the reserved start.
    """
    core = PodShape(1000)
    scheduler = Scheduler(Snapshot(read_fleet("uniform:nodes=2,gpus=0,cpu=8")[0]), Config(ordering="fifo"))
    scheduler.submit(Workload("runs", (PodSet(core, 8),), 0.0, time_limit_s=1000.0, user="first"))
    scheduler.cycle(0.0)
    scheduler.submit(Workload("wide", (PodSet(core, 16),), 1.0, time_limit_s=1000.0, user="first"))
    for number in range(waiting):
        limit_s = (5000.0, 3000.0, 2000.0)[min(number % 7, 2)]
        scheduler.submit(Workload(f"w{number:06}", (PodSet(core, 2),), 2.0, time_limit_s=limit_s, user="many"))
    return scheduler


def cycle_of(scheduler: Scheduler, now_s: float) -> tuple[list[str], list[str]]:
    """What was looked at behind what has a reserved start, and what has started."""
    looked: list[str] = []
    start = scheduler.start

    def told(gang: Gang, now_s: float, decisions: list[Decision]) -> Reason | None:
        looked.append(gang.workload.name)
        return start(gang, now_s, decisions)

    with patch.object(scheduler, "start", told):
        plan = scheduler.cycle(now_s)
    return looked, [each.workload for each in plan.decisions if isinstance(each, Place)]


@pytest.mark.parametrize("waiting", [20, 2000])
def test_what_is_looked_at_does_not_grow_with_the_queue(waiting: int) -> None:
    scheduler = crowd(waiting)
    # it is counted that nothing that lasts so long fits beside the reserved start
    assert cycle_of(scheduler, 10.0) == ([], [])
    scheduler.submit(Workload("short", (PodSet(PodShape(1000), 2),), 11.0, time_limit_s=500.0, user="many"))
    # of each length at most the first, and none that is longer than one that was refused
    assert cycle_of(scheduler, 11.0) == (["w000000", "w000001", "w000002", "short"], ["short"])


def test_gangs_by_length_are_kept_as_they_come_and_go() -> None:
    rng = random.Random(7)
    scheduler = Scheduler(Snapshot(read_fleet("uniform:nodes=1,gpus=0,cpu=1")[0]), Config(predict="always"))
    for step in range(400):
        change(rng, scheduler, scheduler.pending, step)
        if rng.random() < 0.3:
            check_lengths(scheduler, scheduler.pending)
    before = {kind: dict(claims) for kind, claims in scheduler.pending.kinds.items()}
    twin = scheduler.pending.copy()
    for step in range(400, 600):
        change(rng, scheduler, twin, step)
        if rng.random() < 0.3:
            check_lengths(scheduler, twin)
    assert scheduler.pending.kinds == before
    check_lengths(scheduler, scheduler.pending)


def change(rng: random.Random, scheduler: Scheduler, pending: Pending, step: int) -> None:
    """A few gangs come, or one goes."""
    if len(pending) and rng.random() < 0.6:
        pending.remove(rng.choice(list(pending)))
        return
    some: list[Gang] = []
    for number in range(rng.choice((1, 1, 2, 6))):
        limit_s, sets = rng.choice((None, 60.0, 90.0)), (PodSet(PodShape(1000), rng.choice((2, 3))),)
        name = f"{rng.choice(('train', 'eval'))}-{step}-{number}"
        workload = Workload(name, sets, float(rng.randrange(9)), time_limit_s=limit_s, user="u")
        some.append(Gang(workload, scheduler.cluster.kind_of(workload)))
    pending.add(some)


def check_lengths(scheduler: Scheduler, pending: Pending) -> None:
    for kind, claims in pending.kinds.items():
        limits = [gang.workload.time_limit_s for gangs in claims.values() for gang in gangs]
        stated = [limit_s for limit_s in limits if limit_s is not None]
        assert pending.shortest(kind) == (min(stated, default=math.inf), None in limits)
        for claim, gangs in claims.items():
            groups = list(pending.by_length(claim, kind))
            assert sorted(gang for group in groups for gang in group) == gangs
            lengths = [{scheduler.running.length(gang.workload) for gang in group} for group in groups]
            assert all(len(each) == 1 for each in lengths)
            assert len({length for each in lengths for length in each}) == len(groups)
            assert all(list(group) == sorted(group) for group in groups)
            assert pending.first(claim) == min(gang for each in pending.of_claim(claim).values() for gang in each)
