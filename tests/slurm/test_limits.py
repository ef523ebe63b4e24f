"""Limits of QOS and associations: what is read, and which of them a job meets."""

from __future__ import annotations

import math

import pytest

from muster.model.plan import PodPlacement
from muster.model.snapshot import Running
from muster.model.workload import PodSet, PodShape, Workload
from muster.slurm.limits import Limits, enforced, limits_of, uncounted
from muster.slurm.reasons import REASONS, reason_of
from muster.slurm.records import SlurmAssoc, SlurmQos
from muster.slurm.world import SlurmWorld

HOUR = 3600.0


def work(
    gpus: int = 8, user: str = "ann", qos: str = "small", hours: float | None = 1.0, account: str = "ml"
) -> Workload:
    limit_s = None if hours is None else hours * HOUR
    shape = PodShape(cpu_milli=10_000, gpus=gpus)
    return Workload("new", (PodSet(shape),), queue=account, user=user, quality=qos, time_limit_s=limit_s)


def runs(gpus: int, user: str = "ann", qos: str = "small", hours: float | None = 2.0, account: str = "ml") -> Running:
    """It has started an hour ago."""
    place = PodPlacement("n1", tuple(range(gpus)))
    return Running(work(gpus, user, qos, hours, account), -HOUR, (place,))


def qos(**limits: str) -> SlurmWorld:
    return SlurmWorld(qos=[SlurmQos("small", limits=limits), SlurmQos("normal")])


def assoc(user: str = "ann", **limits: str) -> SlurmWorld:
    tree = [SlurmAssoc("root"), SlurmAssoc("lab", parent="root"), SlurmAssoc("ml", parent="lab")]
    return SlurmWorld(associations=[*tree, SlurmAssoc("lab" if not user else "ml", user, limits=limits)])


TWO = [runs(8), runs(4, hours=3.0)]
"""Twelve GPUs of ann; the first job ends in an hour, the other in two."""

CASES: tuple[tuple[SlurmWorld, list[Running], Workload, str, float], ...] = (
    # GPUs of a user: 12 of 16, and 8 more are too many until the first ends
    (qos(MaxTRESPU="gres/gpu=16"), TWO, work(8), "QOSMaxGRESPerUser", HOUR),
    (qos(MaxTRESPU="gres/gpu=16"), TWO, work(4), "", 0),
    (qos(MaxTRESPU="gres/gpu=16"), TWO, work(16), "QOSMaxGRESPerUser", 2 * HOUR),
    (qos(MaxTRESPU="gres/gpu=16"), TWO, work(17), "QOSMaxGRESPerUser", math.inf),
    (qos(MaxTRESPU="gres/gpu=16"), TWO, work(16, user="bob"), "", 0),
    (qos(MaxTRESPU="gres/gpu=16"), TWO, work(16, qos="normal"), "", 0),
    (qos(MaxTRESPU="gres/gpu=16"), TWO, work(99, qos=""), "", 0),
    (qos(MaxTRESPU="gres/gpu=8"), [runs(8, hours=None)], work(8), "QOSMaxGRESPerUser", math.inf),
    # of an account, of all together, of a job; CPUs
    (qos(MaxTRESPA="gres/gpu=16"), TWO, work(8, user="bob"), "MaxGRESPerAccount", HOUR),
    (qos(MaxTRESPA="gres/gpu=16"), TWO, work(8, account="lab"), "", 0),
    (qos(GrpTRES="gres/gpu=16"), TWO, work(8, user="bob", account="lab"), "QOSGrpGRES", HOUR),
    (qos(MaxTRES="gres/gpu=4"), [], work(8), "QOSMaxGRESPerJob", math.inf),
    (qos(MaxTRESPU="cpu=25"), TWO, work(8), "QOSMaxCpuPerUserLimit", HOUR),
    (qos(MaxTRESPU="gres/gpu:h100=16"), TWO, work(8), "QOSMaxGRESPerUser", HOUR),
    (qos(MaxTRESPU="gres/gpu:a100=16"), TWO, work(17), "", 0),
    # jobs
    (qos(MaxJobsPU="2"), TWO, work(1), "QOSMaxJobsPerUserLimit", HOUR),
    (qos(MaxJobsPU="3"), TWO, work(1), "", 0),
    (qos(GrpJobs="2"), TWO, work(1, user="bob"), "QOSGrpJobsLimit", HOUR),
    (qos(MaxSubmitPU="2"), TWO, work(1), "QOSMaxSubmitJobPerUserLimit", HOUR),
    # time: a limit of a day, and GPU-minutes that may still run: 8 x 60 + 4 x 120 = 960 of 1,200
    (qos(MaxWall="1-00:00:00"), [], work(hours=25), "QOSMaxWallDurationPerJobLimit", math.inf),
    (qos(MaxWall="1-00:00:00"), [], work(hours=None), "QOSMaxWallDurationPerJobLimit", math.inf),
    (qos(MaxWall="1-00:00:00"), [], work(hours=24), "", 0),
    (qos(GrpTRESRunMins="gres/gpu=1200"), TWO, work(4), "", 0),
    (qos(GrpTRESRunMins="gres/gpu=1200"), TWO, work(5), "QOSGrpGRESRunMinutes", HOUR),
    # associations: of a user, and of all accounts below one
    (assoc(GrpTRES="gres/gpu=16"), TWO, work(8), "AssocGrpGRES", HOUR),
    (assoc(MaxTRES="gres/gpu=4"), [], work(8), "AssocMaxGRESPerJob", math.inf),
    (assoc(MaxJobs="2"), TWO, work(1), "AssocMaxJobsLimit", HOUR),
    (assoc(MaxJobs="2"), TWO, work(1, user="bob"), "", 0),
    (assoc(user="", GrpJobs="2"), TWO, work(1, user="bob"), "AssocGrpJobsLimit", HOUR),
    (assoc(user="", GrpJobs="2"), TWO, work(1, account="other"), "", 0),
)  # fmt: skip


@pytest.mark.parametrize(("world", "running", "asked", "code", "until_s"), CASES)
def test_which_limit_is_met_and_until_when(
    world: SlurmWorld, running: list[Running], asked: Workload, code: str, until_s: float
) -> None:
    found = Limits(limits_of(world), running, [], 0.0, {"n1": "h100"}).met(asked)
    assert [(each.limit.code, each.until_s) for each in found] == ([(code, until_s)] if code else [])
    if code:
        assert reason_of(found[0].told).reason.code == code


def test_every_code_is_one_of_slurms() -> None:
    known = {each.code for each in REASONS.values()}
    every = ",".join(("gres/gpu=1", "cpu=1"))
    names = ("GrpTRES", "MaxTRES", "MaxTRESPU", "MaxTRESPA", "GrpTRESRunMins")
    jobs = ("GrpJobs", "GrpSubmit", "MaxJobsPU", "MaxJobsPA", "MaxSubmitPU", "MaxSubmitPA", "MaxJobs", "MaxSubmit")
    limits = {**dict.fromkeys(names, every), **dict.fromkeys(jobs, "1"), "MaxWall": "1:00:00"}
    found = {each.code for each in (*limits_of(qos(**limits)), *limits_of(assoc(**limits)))}
    assert len(found) >= 24
    assert found <= known, found - known


def test_a_qos_takes_the_place_of_the_association() -> None:
    world = assoc(MaxJobs="2")
    world.qos = qos(MaxJobsPU="9").qos
    assert not Limits(limits_of(world), TWO, [], 0.0, {}).met(work(1))
    assert Limits(limits_of(world), [runs(1, qos="normal")] * 2, [], 0.0, {}).met(work(1, qos="normal"))


def test_what_waits_counts_for_submission_and_is_past_it() -> None:
    limits = limits_of(qos(MaxSubmitPU="3"))
    asked = Limits(limits, TWO, [work()], 0.0, {})
    assert [each.limit.code for each in asked.met(work(1))] == ["QOSMaxSubmitJobPerUserLimit"]
    assert not asked.met(work(1), waits=True)


@pytest.mark.parametrize(
    ("told", "holds"),
    [("associations,limits,qos", True), ("safe", True), ("associations", False), ("", False), (None, True)],
)
def test_limits_count_where_slurm_enforces_them(told: str | None, holds: bool) -> None:
    world = qos(MaxJobsPU="1")
    world.config = {} if told is None else {"AccountingStorageEnforce": told}
    assert enforced(world) is holds
    assert bool(limits_of(world)) is holds


def test_what_is_not_counted_is_left() -> None:
    limits = {"GrpTRES": "cpu=4,mem=5G,gres/gpu=1", "MaxTRESPerNode": "cpu=2", "MaxJobs": "4"}
    assert uncounted(limits) == {"GrpTRES": "mem=5G", "MaxTRESPerNode": "cpu=2"}
