"""The planner of spares: published tables, a fleet that fails hour by hour, and failures that come together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from muster.answers.plan_data.spares import read_nodes
from muster.planning.plans.spares import Spares
from muster.planning.question import derive

DAY = 86400.0
# nodes, failures of 1,000 in a day, repair in days: spares by Poisson for 95, 99 and 99.9 %
POISSON = [
    (128, 6.5, 3, (5, 7, 9)), (128, 6.5, 14, (18, 20, 24)), (1250, 6.5, 3, (33, 37, 41)), (2048, 6.5, 3, (51, 55, 61)),
    (2048, 3.79, 3, (31, 35, 40)), (1000, 2.34, 7, (23, 26, 30)),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "rate", "days", "spares"), POISSON)
def test_the_published_table(nodes: int, rate: float, days: float, spares: tuple[int, ...]) -> None:
    for target, count in zip((0.95, 0.99, 0.999), spares, strict=True):
        asked = Spares(nodes=nodes, rate=rate, repair_s=days * DAY, target=target)
        found = {each.name: each.value for each in derive(asked, sensitivity=False).results}
        assert found["by Poisson's rule"] == count


def result(asked: Spares, name: str) -> float:
    found = {each.name: each.value for each in derive(asked, sensitivity=False).results}[name]
    assert not isinstance(found, str)
    return found


def test_a_minute_at_16k_gpus_is_a_hundredth_of_the_fleet() -> None:
    """Published: at 1.8 h between failures each minute of recovery costs 0.93 % of the fleet."""
    asked = Spares(nodes=2048, rate=6.5)
    assert 24 / result(asked, "stops of the job") == pytest.approx(1.8, abs=0.01)
    assert result(asked, "a minute of recovery costs") / (2048 * 8 * 24) == pytest.approx(0.0093, abs=1e-4)


def replaced_share(nodes: int, spares: int, rate: float, repair_h: float, size: int, rng: random.Random) -> float:
    """Hour by hour: nodes fail (``size`` at a time), are away for the repair, and spares stand in."""
    back: list[float] = []
    whole = 0
    hours = 120_000
    for hour in range(hours):
        back = [each for each in back if each > hour]
        chance = (nodes + spares - len(back)) * rate / 24 / size
        events = int(rng.random() < chance)
        for _ in range(events):
            back += [hour + rng.expovariate(1 / repair_h)] * size
        whole += len(back) <= spares
    return whole / hours


def test_a_fleet_that_fails_hour_by_hour() -> None:
    asked = Spares()
    need = int(asked.headline())
    assert replaced_share(128, need, 0.0065, 72, 1, random.Random(2)) == pytest.approx(0.9954, abs=0.004)
    assert replaced_share(128, need - 2, 0.0065, 72, 1, random.Random(3)) < 0.985


def test_where_it_fails_racks_that_fail_as_one() -> None:
    """The same failures, four nodes at a time: the spares are short several times as often."""
    need = int(Spares().headline())
    assert 1 - replaced_share(128, need, 0.0065, 72, 4, random.Random(4)) > 5 * (1 - 0.9954)


def test_domains_need_more_than_one_pool() -> None:
    pools = [result(Spares(nodes=288, domain=size), "spares if each domain keeps its own") for size in (288, 72, 18)]
    assert pools == sorted(pools)
    assert pools[0] == Spares(nodes=288).headline()


def test_elastic_or_replace_by_the_rule() -> None:
    """Waiting costs the wait, going on smaller costs wait/p + 2 e: they cross at 2 e p / (p - 1)."""
    for replicas in (2, 16, 128):
        least = 2 * 300 * replicas / (replicas - 1)
        assert least == pytest.approx(least / replicas + 2 * 300)
        for wait, word in ((least * 0.99, "wait for it"), (least * 1.01, "go on smaller")):
            table = derive(Spares(replicas=replicas, cold_s=wait), sensitivity=False).tables[1]
            assert next(row[3] for row in table.rows if row[0] == "cold spare") == word


def test_a_fleet_of_ones_own(tmp_path: Path) -> None:
    from muster.cli.main import run

    snap = tmp_path / "fleet.snap"
    with pytest.raises(SystemExit):
        run(["snapshot", "save", "--fleet", "uniform:nodes=12,gpus=4,model=H100", "-o", str(snap)])
    found = read_nodes(str(snap), {})
    assert (found.values["nodes"], found.values["gpus"]) == (12, 4)
    assert "rate" not in found.values
    assert found.told
