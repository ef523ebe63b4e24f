"""Notebooks: binomial tails, sessions followed one by one, users who come together, logs, and the command."""

from __future__ import annotations

import csv
import math
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.answers.plan_data.notebooks import read_cells, read_sessions
from muster.cli.main import main
from muster.errors import InputError
from muster.planning.notebooks import Pauses, over, places, policy
from muster.planning.plans.notebooks import Notebooks
from muster.planning.question import derive

WORK, TAIL, ACTIVE, MEDIAN, SHAPE = 10_800.0, 14_400.0, 0.2, 120.0, 1.2
CELLS, CELL = 36, 60.0


@given(st.integers(1, 5000), st.floats(0.001, 0.999), st.floats(0, 1))
def test_tails_of_the_binomial(trials: int, chance: float, at: float) -> None:
    count = int(at * trials)
    assert over(trials, chance, count) == pytest.approx(float(scipy.stats.binom.sf(count, trials, chance)), abs=1e-9)


@settings(deadline=None)
@given(st.integers(1, 2000), st.floats(0.001, 0.999), st.floats(1e-5, 0.5))
def test_places_are_the_quantile(trials: int, chance: float, missed: float) -> None:
    found = places({trials: 1.0}, chance, missed)
    assert over(trials, chance, found) <= missed * (1 + 1e-9)
    assert found == 0 or over(trials, chance, found - 1) > missed * (1 - 1e-9)


@settings(deadline=None, max_examples=40)
@given(st.floats(1, 3600), st.floats(0.2, 2.5), st.floats(1, 90_000))
def test_pauses_beyond_an_idle_time_by_numerical_integration(median: float, shape: float, after: float) -> None:
    """E(P - T)+ is the integral of P(P > x) from T on; scipy's lognormal knows both."""
    law = scipy.stats.lognorm(shape, scale=median)
    pauses = Pauses(median, shape)
    assert pauses.longer(after) == pytest.approx(float(law.sf(after)), rel=1e-6, abs=1e-12)
    grid = after + float(law.ppf(1 - 1e-9)) * 4 * np.linspace(0, 1, 4001) ** 3
    assert pauses.beyond_s(after) == pytest.approx(float(np.trapezoid(law.sf(grid), grid)), rel=0.02, abs=0.01 * median)


def session(rng: random.Random, until: float = math.inf) -> tuple[list[tuple[float, float]], float]:
    """Cells of one session from its start, and when it is closed; ``until``: the user goes home then."""
    clock, cells = 0.0, []
    while len(cells) < CELLS if until == math.inf else clock < until:
        length = rng.expovariate(1 / CELL)
        cells.append((clock, clock + length))
        clock += length + rng.lognormvariate(math.log(MEDIAN), SHAPE)
    return cells, cells[-1][1] + rng.expovariate(1 / TAIL)


def held_of(cells: list[tuple[float, float]], closed: float, after: float) -> tuple[list[tuple[float, float]], int]:
    """Stretches in which a GPU is held if it is taken after an idle time, and how often its user came back too late."""
    stretches, stops = [], 0
    begun = 0.0
    for (_, end), (start, _) in pairwise(cells):
        if start - end > after:
            stretches.append((begun, end + after))
            begun, stops = start, stops + 1
    stretches.append((begun, min(closed, cells[-1][1] + after)))
    return stretches, stops


def followed(after: float, runs: int, until: float = math.inf) -> tuple[float, float, float]:
    """Share of open time with a GPU, false stops of a session, and share of the sessions that met one."""
    rng, held, opened, stops, met = random.Random(7), 0.0, 0.0, 0, 0
    for _ in range(runs):
        cells, closed = session(rng, until)
        stretches, false = held_of(cells, closed, after)
        held += sum(end - start for start, end in stretches)
        opened += closed
        stops += false
        met += false > 0
    return held / opened, stops / runs, met / runs


@pytest.mark.parametrize("after", [600.0, 1200.0, 3600.0])
def test_sessions_followed_one_by_one(after: float) -> None:
    """36 cells of 60 s run a fifth of three hours; agreement within the error of 4,000 sessions."""
    runs = 4000
    held, stops, met = followed(after, runs)
    found = policy(WORK, ACTIVE, TAIL, Pauses(MEDIAN, SHAPE), after)
    assert found.held == pytest.approx(held, rel=0.02)
    assert found.stops == pytest.approx(stops, abs=3 * math.sqrt(stops / runs))
    assert found.met == pytest.approx(met, abs=3 * math.sqrt(met * (1 - met) / runs) + 0.003)


def test_false_stops_are_overstated_where_people_stop_by_the_clock() -> None:
    """Then a long pause at the end is no pause: nobody comes back from it."""
    _, stops, _ = followed(3600.0, 4000, until=WORK)
    assert policy(WORK, ACTIVE, TAIL, Pauses(MEDIAN, SHAPE), 3600.0).stops > 1.5 * stops


def day(rng: random.Random, users: int, hour: int) -> int:
    """Open notebooks at an hour of a day of users who come at nine: 70 % of them from 9 to 18, 5 % at other times."""
    chance = 0.7 if 9 <= hour < 18 else 0.05
    return sum(rng.random() < chance for _ in range(users))


def test_places_hold_where_users_come_independently_and_fail_where_they_come_together() -> None:
    rng, users, missed = random.Random(11), 80, 0.02
    seen = [day(rng, users, hour % 24) for hour in range(24 * 200)]
    mean = sum(seen) / len(seen) / users
    busiest = places({users: 1.0}, 0.7, missed)
    at_work = [each for at, each in enumerate(seen) if 9 <= at % 24 < 18]
    assert sum(each > busiest for each in at_work) / len(at_work) <= missed * 1.3
    by_mean = places({users: 1.0}, mean, missed)  # the binomial of the day's mean: users do not come independently
    assert sum(each > by_mean for each in at_work) / len(at_work) > 0.9
    asked = Notebooks(users=users, seen=tuple(map(float, seen)), missed=missed, never=True)
    told = {str(row[0]): row[2] for row in derive(asked, sensitivity=False).tables[0].rows}
    short = sum(each for each in seen if each > float(told["whole GPU, never taken"])) / sum(seen)  # as users see it
    assert missed / 3 < short <= missed


def test_what_holds_a_place_of_those_seen() -> None:
    """Each of the notebooks seen holds a place with chance f: drawn again, not computed."""
    rng, numbers = random.Random(3), [10, 40, 60]
    found = places(dict.fromkeys(numbers, 1 / 3), 0.5, 0.01)
    drawn = [sum(rng.random() < 0.5 for _ in range(rng.choice(numbers))) for _ in range(30_000)]
    assert sum(each > found for each in drawn) / len(drawn) <= 0.0125
    assert sum(each > found - 1 for each in drawn) / len(drawn) > 0.0085


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 300), st.floats(0.05, 1), st.floats(60, 90_000), st.sampled_from(["H100", "L40S", "T4"]))
def test_what_holds_of_every_answer(users: int, share: float, after: float, gpu: str) -> None:
    asked = Notebooks(users=users, open=share, idle_s=after, gpu=gpu, memory_bytes=7e9)
    trusted = Notebooks(users=users, open=share, idle_s=after, gpu=gpu, memory_bytes=7e9, trusted=True)
    longer = Notebooks(users=users, open=share, idle_s=2 * after, gpu=gpu, memory_bytes=7e9)
    assert 1 <= trusted.headline() <= asked.headline() <= longer.headline() <= users


def test_mig_instances_of_a_gpu() -> None:
    """NVIDIA MIG user guide: seven 1g.10gb or four 1g.20gb on an H100 80GB; an L40S has none."""
    named = {
        memory: [(row[0], row[3]) for row in derive(Notebooks(memory_bytes=memory), sensitivity=False).tables[0].rows]
        for memory in (8e9, 16e9)
    }
    assert ("MIG 1g.10gb", 7) in named[8e9]
    assert ("MIG 1g.20gb", 4) in named[16e9]
    assert "whole GPU," in derive(Notebooks(gpu="L40S"), sensitivity=False).answer


def write(path: Path, rows: list[tuple[object, ...]], titles: str) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([titles.split(","), *rows])
    return str(path)


def test_sessions_of_a_log(tmp_path: Path) -> None:
    """Two users for a day each; by hand: both open from 10 to 12 o'clock, work 2 h and 1 h, tails 4 h and 1 h."""
    rows = [
        ("ann", "2026-11-02T08:00:00", "2026-11-02T14:00:00", "2026-11-02T10:00:00"),
        ("bob", "2026-11-02T10:00:00", "2026-11-02T12:00:00", "2026-11-02T11:00:00"),
        ("", "2026-11-02T10:00:00", "2026-11-02T12:00:00", ""),
    ]
    found = read_sessions(write(tmp_path / "s.csv", rows, "user,start,end,last_active"), {})
    assert found.values["users"] == 2
    assert found.values["open"] == 1.0
    assert found.values["work_s"] == pytest.approx(1.5 * 3600)
    assert found.values["tail_s"] == pytest.approx(2.5 * 3600)
    assert sum(found.values["seen"]) * 600 == pytest.approx(8 * 3600)
    assert "1 row" in found.told[0]


def test_cells_of_a_log(tmp_path: Path) -> None:
    """A cell of 60 s each 300 s, a night between: pauses of 240 s, a fifth of the work runs; overlaps count once."""
    starts = [day * 86400 + each * 300 for day in range(2) for each in range(15)]
    rows = [("ann", at, at + 60) for at in starts] + [("ann", at + 10, at + 50) for at in starts]
    found = read_cells(write(tmp_path / "c.csv", rows, "user,start,end"), {}).values
    assert found["pauses"] == (240.0,) * 28
    assert found["active"] == pytest.approx(30 * 60 / (30 * 60 + 28 * 240))
    asked = Notebooks(pauses=found["pauses"], idle_s=239.0)
    assert asked.work().results[2].value == pytest.approx(1 - math.exp(-10_800 * 0.8 / 240))
    assert Notebooks(pauses=found["pauses"], idle_s=241.0).work().results[2].value == 0


@pytest.mark.parametrize(
    ("rows", "titles"),
    [([("a", 1, 2)], "who,start,end"), ([("a", 5, 2)], "user,start,end"), ([("a", 1, 2)], "user,start,end"), ([], "x")],
)
def test_logs_that_tell_nothing(rows: list[tuple[object, ...]], titles: str, tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", rows, titles)
    for read in (read_sessions, read_cells):
        with pytest.raises(InputError):
            read(path, {})


@pytest.mark.parametrize(
    "line", ["--memory 200GB", "--gpu banana", "--memory 16G", "--users 0", "--open 2", "--idle 0"]
)
def test_bad_input_is_one_line(line: str) -> None:
    found = CliRunner().invoke(main, ["plan", "notebooks", *line.split()])
    assert found.exit_code != 0
    assert isinstance(found.exception, (InputError, SystemExit))
    assert line.split()[0] in str(found.exception) or line.split()[0] in found.output


def test_the_command(tmp_path: Path) -> None:
    rows = [(f"u{each % 7}", each * 900, each * 900 + 7200, each * 900 + 3600) for each in range(60)]
    path = write(tmp_path / "s.csv", rows, "user,start,end,last_active")
    found = CliRunner().invoke(main, ["plan", "notebooks", "--from", path, "--users", "9", "-o", "json"])
    assert found.exit_code == 0, found.output
    assert "binomial of the mean" in found.output
