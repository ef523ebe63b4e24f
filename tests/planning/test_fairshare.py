"""The planner of fair share: pooling against a simulation, and patterns in accounting that was made to show them."""

from __future__ import annotations

import heapq
import random
from pathlib import Path

import pytest

from muster.answers.plan_data.fairshare import read_fairshare
from muster.errors import InputError
from muster.planning.plans.fairshare import PATTERNS, Fairshare
from muster.planning.question import derive

TEAMS = tuple(f"{name}:gpus=8,jobs=2.5/h,time=2h,quota=64" for name in ("a", "b", "c"))


def mean_wait_s(servers: int, per_hour: float, seed: int) -> float:
    """A line of jobs of 2 hours in the mean, first come first served."""
    rng, clock, total = random.Random(seed), 0.0, 0.0
    free = [0.0] * servers
    for _ in range(60_000):
        clock += rng.expovariate(per_hour / 3600)
        begin = max(clock, heapq.heappop(free))
        heapq.heappush(free, begin + rng.expovariate(1 / 7200))
        total += begin - clock
    return total / 60_000


def test_the_pool_waits_no_longer_than_the_quotas_and_one_job_less_does() -> None:
    asked = Fairshare(team=TEAMS)
    pooled = int(float(derive(asked, sensitivity=False).results[1].value) / 8)
    alone = mean_wait_s(8, 2.5, 1)
    assert mean_wait_s(pooled, 7.5, 2) <= 1.1 * alone
    assert mean_wait_s(pooled - 1, 7.5, 3) > 1.1 * alone


def test_the_more_teams_the_more_a_pool_saves() -> None:
    saved = [Fairshare(team=TEAMS[:count]).headline() for count in (1, 2, 3)]
    assert saved[0] == 0
    assert saved[0] < saved[1] < saved[2]


def test_a_quota_that_is_too_small_is_told_without_an_end() -> None:
    found = derive(Fairshare(team=("a:gpus=8,jobs=10/h,time=2h,quota=64",)), sensitivity=False)
    assert found.tables[1].rows[0][4] == "without end"


def test_usage_fades() -> None:
    now, later = (derive(Fairshare(idle_s=days * 86400.0), sensitivity=False).tables[0].rows for days in (0, 70))
    assert [row[5] for row in now] == pytest.approx([row[5] for row in later])  # all fade alike: parts stay
    one = derive(Fairshare(queue=("a:usage=100", "b:usage=0")), sensitivity=False)
    assert one.results[3].value == "b"


HEAD = "JobID|User|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NNodes|TRESUsageInAve|AdminComment"


def job(number: str, user: str, state: str = "COMPLETED", gpus: int = 8, hours: float = 2, minute: int = 0) -> str:
    begin = f"2026-11-01T{10 + minute // 60:02d}:{minute % 60:02d}:00"
    if not hours:
        return f"{number}|{user}|lab|{state}|{begin}|Unknown|2026-11-01T12:00:00|0||gres/gpu={gpus}|1||"
    end = f"2026-11-02T{int(hours) % 24:02d}:00:00"
    tres = f"billing=8,cpu=64,gres/gpu={gpus},mem=512G,node=1"
    return f"{number}|{user}|lab|{state}|{begin}|2026-11-02T00:00:00|{end}|{int(hours * 3600)}|{tres}|{tres}|1||"


def step(number: str, percent: float) -> str:
    start = "2026-11-02T00:00:00"
    return f"{number}.0||lab|COMPLETED|{start}|{start}||60|||1|gres/gpuutil={percent:g},gres/gpumem=1G|"


@pytest.fixture
def accounting(tmp_path: Path) -> Path:
    lines = [HEAD, job("1", "honest"), step("1", 90)]
    lines += [job("2", "idler", hours=20), step("2", 0)]
    lines += [job("3", "wasteful", hours=20), step("3", 12)]
    lines += [job(str(100 + at), "splitter", gpus=4, minute=at // 4) for at in range(20)]
    lines += [job(str(200 + at), "holder", "CANCELLED by 5", hours=0) for at in range(15)]
    lines += [job("300", "holder")]
    file = tmp_path / "sacct.txt"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_patterns_are_found_and_the_honest_are_left_alone(accounting: Path) -> None:
    found = read_fairshare(str(accounting), {})
    seen = {(text.split("|")[1], text.split("|")[0]) for text in found.values["sign"]}
    assert seen == {
        ("splitter", "splits jobs"), ("idler", "holds GPUs that do nothing"),
        ("wasteful", "asks for more than it uses"), ("holder", "placeholders"),
    }  # fmt: skip
    assert {pattern for _, pattern in seen} <= set(PATTERNS)


def test_usage_of_accounting_becomes_the_tree(accounting: Path) -> None:
    found = read_fairshare(str(accounting), {})
    asked = Fairshare(queue=found.values["queue"], sign=found.values["sign"])
    derived = derive(asked, sensitivity=False)
    names = [row[0] for row in derived.tables[0].rows]
    assert "lab" in names
    assert "honest@lab" in names
    assert any(table.title == "Signs of gaming" for table in derived.tables)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Fairshare(queue=("a:shares=x",)), "no number"),
        (Fairshare(queue=("a:colour=red",)), "not understood"),
        (Fairshare(team=("a:gpus=8",)), "lacks jobs"),
        (Fairshare(team=("a:gpus=8,jobs=1/h,time=1h,quota=4",)), "holds none"),
        (Fairshare(sign=("loud|a|b",)), "one of"),
        (Fairshare(queue=()), "names no queue"),
    ],
)
def test_what_cannot_be_is_told(asked: Fairshare, told: str) -> None:
    with pytest.raises(InputError, match=told):
        derive(asked)


def test_what_nobody_gave_is_told_as_an_example() -> None:
    teams = derive(Fairshare(team=TEAMS[:2]), sensitivity=False).answer
    assert "example of Slurm's documentation" in teams
    assert "example's teams" not in teams
    tree = derive(Fairshare(queue=("a:shares=1", "ann:parent=a,shares=1,usage=5")), sensitivity=False).answer
    assert "example's teams" in tree
    assert "documentation" not in tree
