"""The split of a fleet between Slurm and Kubernetes: work that is made, what a run did to it, and the derivation."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from muster.answers.hybrid import CLASSES, KUBERNETES, SIDE, SLURM, Bench, Job, Mix, jobs_of, lives_of, make_jobs
from muster.answers.hybrid_plan import Asked, Money, plan_hybrid
from muster.cli.main import main
from muster.engine.config import config_of
from muster.errors import InputError
from muster.model import PodSet, PodShape, Snapshot, Workload
from muster.sim.cluster_run import ClusterRun
from muster.traces import read_fleet

HOUR = 3600.0
FLEET, _ = read_fleet("uniform:nodes=4,gpus=8")
MIX = Mix(0.3, 0.5, 0.2, 0.8, 2)
CONFIG = config_of({})


def test_made_work_has_the_shares_that_are_asked_for() -> None:
    fleet, _ = read_fleet("uniform:nodes=64,gpus=8")
    jobs = make_jobs(fleet, replace(MIX, days=10), 1)
    hours = {kind: sum(j.work.gpu_milli * (j.work.duration_s or 0) for j in jobs if j.kind == kind) for kind in CLASSES}
    for kind, share in zip(CLASSES, (0.3, 0.5, 0.2), strict=True):
        assert hours[kind] / sum(hours.values()) == pytest.approx(share, abs=0.02)
    assert sum(hours.values()) / 1000 / (512 * 240 * HOUR) == pytest.approx(0.8, abs=0.01)
    assert jobs == make_jobs(fleet, replace(MIX, days=10), 1)
    at_night = [job for job in jobs if job.kind == "notebooks" and not 8 <= job.work.submitted_s % 86400 / HOUR < 18]
    assert len(at_night) / sum(job.kind == "notebooks" for job in jobs) < 0.12


def job(kind: str, name: str, pods: int, gpus: int, at_h: float, hours: float, priority: int = 0) -> Job:
    work = Workload(name, (PodSet(PodShape(gpus=gpus), pods),), submitted_s=at_h * HOUR, duration_s=hours * HOUR,
                    time_limit_s=2 * hours * HOUR, priority=priority)  # fmt: skip
    return Job(work, kind)


def test_what_waits_on_one_side_while_the_other_is_free() -> None:
    """Two gangs of two nodes at 25 h, each 10 h: on two nodes one waits for the other, on four none does."""
    jobs = [job("gangs", "a", 2, 8, 25, 10), job("gangs", "b", 2, 8, 25, 10)]
    bench = Bench(FLEET, [jobs], 2, 10.0, CONFIG)
    split, pool = bench.split(2), bench.pool(4)
    assert pool.score == 0
    assert split.score == pytest.approx(16 * 10)  # 16 GPUs wait for 10 hours
    assert split.stranded == pytest.approx(16 * 10 / 24)  # and 16 are free beside it
    assert bench.pool_like(split.score) == 2  # two nodes less make nobody wait longer than the split does
    assert split.used == pool.used == pytest.approx((2 * 16 * 10) / (32 * 24), rel=0.2)


def test_services_count_by_their_weight() -> None:
    jobs = [job("services", "a", 1, 8, 25, 2), job("services", "b", 1, 8, 25, 2)]
    light, heavy = (Bench(FLEET, [jobs], 2, weight, CONFIG).split(3) for weight in (1.0, 10.0))
    assert (light.score, heavy.score) == (pytest.approx(16), pytest.approx(160))
    assert light.late == 0.5


def test_a_job_that_is_stopped_has_its_lost_time_counted() -> None:
    """A gang runs 1 h, yields 2 h to a service, and has saved nothing: 3 h longer than its work."""
    jobs = [job("gangs", "gang", 4, 8, 0, 10), job("services", "urgent", 1, 8, 1, 2, priority=20)]
    run = ClusterRun(Snapshot(FLEET), [each.work for each in jobs], CONFIG)
    run.run(48 * HOUR)
    gang, urgent = lives_of(run, jobs, 0, 48 * HOUR)
    assert urgent.delay_s == 0
    assert [(each.started_s / HOUR, each.ended_s / HOUR) for each in gang.pieces] == [(0, 1), (3, 13)]
    assert gang.delay_s == pytest.approx(3 * HOUR)
    assert gang.lost_s == pytest.approx(HOUR)


def test_the_days_of_a_trace_with_the_most_work_are_taken() -> None:
    day = 24.0
    works = [job("", "early", 1, 1, 0, 5).work, job("", "big", 2, 8, 3 * day + 1, 5).work,
             job("", "small", 1, 2, 4 * day, 3).work, job("", "late", 1, 1, 9 * day, 2).work]  # fmt: skip
    found, begin_s = jobs_of(works, 8, 2)
    assert begin_s == 3 * 86400
    assert [(each.work.name, each.kind, each.work.submitted_s / HOUR) for each in found] == [
        ("big", "gangs", 1), ("small", "notebooks", 24),
    ]  # fmt: skip
    with pytest.raises(InputError, match="no work with GPUs"):
        jobs_of([replace(works[0], duration_s=None)], 8, 2)


def test_where_nothing_waits_the_split_costs_nothing() -> None:
    found = plan_hybrid(asked(recorded=(job("gangs", "a", 1, 8, 30, 1),)), CONFIG)
    assert "nothing waits" in found.answer
    assert found.results[0].value == 0


def asked(**more: object) -> Asked:
    usual: dict[str, object] = {
        "fleet": FLEET, "fleet_from": "", "mix": MIX, "origins": {}, "money": Money(), "with_sensitivity": False,
    }  # fmt: skip
    return Asked(**{**usual, **more})  # pyright: ignore[reportArgumentType]


def test_the_derivation_is_whole() -> None:
    money = Money(2.0, 200_000.0, 2.0, 3.0, 44.0)
    found = plan_hybrid(asked(money=money, origins={"load": "given"}), CONFIG)
    assert (found.planner, len(found.tables)) == ("hybrid", 1)
    assert all(found.formula)
    assert found.fails_when
    assert found.todo
    origins = {each.option: each.origin for each in found.inputs}
    assert origins["--load"] == "given"
    assert origins["--services"] == "default"
    results = {each.name: each.value for each in found.results}
    slurm = results["nodes for Slurm in the best split"]
    assert isinstance(slurm, int)
    assert 1 <= slurm <= 3
    assert results["nodes for Kubernetes in it"] == 4 - slurm
    cost = results["cost of the split"]
    saved = results["nodes that the split costs"]
    assert cost == pytest.approx(float(saved) * 8 * 8760 * 2.0 + 200_000)
    best = min(row[1] for row in found.tables[0].rows[:-1])
    assert found.steps[0].value == best


def test_other_loads_and_shares_are_tried() -> None:
    mix = replace(MIX, load=0.4)
    found = plan_hybrid(asked(mix=mix, with_sensitivity=True), CONFIG)
    assert [(each.name, each.change) for each in found.sensitivity] == [
        ("as planned", ""), ("load", "0.30"), ("load", "0.50"), ("services", "0.20, gangs 0.60"),
        ("services", "0.40, gangs 0.40"),
    ]  # fmt: skip
    assert found.sensitivity[0].value == found.results[0].value


MISTAKES = [
    ("--services 0.9 --gangs 0.9", "field '--services': the shares sum to"),
    ("--load 7", "field '--load': is 7"),
    ("--nodes 8 --fleet example", "field '--nodes': is given beside --fleet"),
    ("--gpu-hour -1", "field '--gpu-hour': is -1"),
    ("--workload nothing.csv --services 0.2", "field '--services': is of made work"),
]


@pytest.mark.parametrize(("words", "told"), MISTAKES)
def test_mistakes_are_told_in_one_line(words: str, told: str) -> None:
    done = CliRunner().invoke(main, ["plan", "hybrid", *shlex.split(words)])
    assert isinstance(done.exception, InputError)
    assert told in str(done.exception)


def test_the_command_as_a_document_and_a_page() -> None:
    words = ["plan", "hybrid", "--nodes", "4", "--days", "2", "--no-sensitivity"]
    document = json.loads(CliRunner().invoke(main, [*words, "-o", "json"]).output)
    assert document["schema"] == "muster.plan/v1"
    assert document["results"][0]["name"] == "nodes that the split costs"
    page = CliRunner().invoke(main, words).output
    for title in ("Formula", "Put in", "Step", "Result", "It does not hold when", "And now"):
        assert title in page
    assert SIDE["gangs"] == SLURM != KUBERNETES
    assert not math.isnan(document["steps"][0]["value"])


def test_the_page_has_the_figures_of_its_command() -> None:
    """docs/explanation/slurm-or-kubernetes.md shows a run with default settings."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "slurm-or-kubernetes.md").read_text()
    found = json.loads(CliRunner().invoke(main, ["plan", "hybrid", "--no-sensitivity", "-o", "json"]).output)
    shown = re.findall(
        r"^\| \**([\d+ ]+|one pool of 16)(?: nodes)?\** \| \**([\d,]+)\** \| (\d+) % \| (\d+) \|$", page, re.M
    )
    told = [
        (str(row[0]).split(",")[0], f"{row[1]:,.0f}", f"{row[5]:.0f}", f"{row[7]:.0f}")
        for row in found["tables"][0]["rows"]
    ]
    assert [tuple(each.strip() for each in one) for one in shown] == told
