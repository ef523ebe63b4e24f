"""Fair share and waiting lines: Slurm's worked examples, Erlang's tables, and simulations that know neither."""

from __future__ import annotations

import csv
import heapq
import math
import random
import statistics
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.model.queue import Queue
from muster.model.snapshot import Usage
from muster.planning.queueing import erlang_b, erlang_c, mean_wait, servers_for_loss, servers_for_wait
from muster.planning.shares import Entity, decayed, shares_of
from muster.policy.ordering.protocol import OrderingView
from muster.policy.ordering.slurm_fair_tree import SlurmFairTree

# Slurm, classic fair share: shares A 40 {B 30 {u1}, C 10 {u2, u3}}, D 60 {E 25 {u4}, F 35 {u5}}
SLURM = [
    Entity("A", "", 40), Entity("B", "A", 30), Entity("C", "A", 10), Entity("D", "", 60), Entity("E", "D", 25),
    Entity("F", "D", 35), Entity("u1", "B", 1, 0.2), Entity("u2", "C", 1, 0.25), Entity("u3", "C", 1, 0.0),
    Entity("u4", "E", 1, 0.25), Entity("u5", "F", 1, 0.0), Entity("other", "", 0, 0.3),
]  # fmt: skip
GOLDEN = {"u1": 0.408479, "u2": 0.022097, "u3": 0.125, "u4": 0.5, "u5": 0.749154}


def test_the_example_of_slurms_documentation() -> None:
    """Usage there is a part of what the machine could have given: here the rest is used by nobody's account."""
    found = {each.entity.name: each.classic for each in shares_of(SLURM)}
    for name, factor in GOLDEN.items():
        assert found[name] == pytest.approx(factor, abs=2e-6)


def test_fair_tree_compares_siblings_only() -> None:
    tree = [Entity("a", "", 1), Entity("b", "", 1), Entity("a1", "a", 1, 10), Entity("a2", "a", 1, 90),
            Entity("b1", "b", 1, 500)]  # fmt: skip
    factors = {each.entity.name: each.factor for each in shares_of(tree) if each.leaf}
    assert factors == {"a1": pytest.approx(1), "a2": pytest.approx(2 / 3), "b1": pytest.approx(1 / 3)}


def test_classic_and_fair_tree_may_disagree() -> None:
    """A light user of a heavy account: classic mixes the account's usage in, Fair Tree puts the account first."""
    tree = [
        Entity("a", "", 1),
        Entity("b", "", 1),
        Entity("a1", "a", 1, 0),
        Entity("a2", "a", 1, 60),
        Entity("b1", "b", 1, 40),
    ]
    found = {each.entity.name: each for each in shares_of(tree)}
    assert found["b1"].factor > found["a1"].factor
    assert found["a1"].classic == pytest.approx(2 ** (-0.3 / 0.25))


def test_usage_halves() -> None:
    assert decayed(100, 7 * 86400, 7 * 86400) == pytest.approx(50)
    assert decayed(100, 0, 0) == 100


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 100)), min_size=1, max_size=8))
def test_who_used_less_of_its_share_is_never_behind(some: list[tuple[float, float]]) -> None:
    tree = [Entity(f"u{at}", "", shares, usage) for at, (shares, usage) in enumerate(some)]
    found = shares_of(tree)
    for one in found:
        for other in found:
            if one.level > other.level:
                assert one.factor > other.factor
                assert one.classic >= other.classic - 1e-12


@pytest.mark.parametrize(
    "tree",
    [
        [Entity("a"), Entity("a")],
        [Entity("a", "nobody")],
        [Entity("a", "b"), Entity("b", "a")],
    ],
)
def test_trees_that_are_none(tree: list[Entity]) -> None:
    with pytest.raises(InputError):
        shares_of(tree)


# servers, utilisation: share that waits, mean wait over the service time
ERLANG = [(1, 0.8, 0.8, 4.0), (8, 0.8, 0.4576, 0.2860), (8, 0.9, 0.7015, 0.8769), (32, 0.9, 0.4582, 0.1432),
          (64, 0.95, 0.5880, 0.1838), (128, 0.95, 0.4578, 0.0715)]  # fmt: skip


@pytest.mark.parametrize(("servers", "rho", "waits", "wait"), ERLANG)
def test_erlang_c(servers: int, rho: float, waits: float, wait: float) -> None:
    assert erlang_c(rho * servers, servers) == pytest.approx(waits, abs=6e-5)
    assert mean_wait(rho * servers, servers, 1.0) == pytest.approx(wait, abs=6e-5)


# load: servers for 1 % and 0.1 % of misses
LOSS = [(3, 8, 10), (5, 11, 14), (15, 24, 28), (30, 42, 47), (90, 107, 117), (100, 117, 128), (495, 522, 549)]


@pytest.mark.parametrize(("load", "one", "tenth"), LOSS)
def test_erlang_b(load: float, one: int, tenth: int) -> None:
    assert servers_for_loss(load, 0.01) == one
    assert servers_for_loss(load, 0.001) == tenth
    assert erlang_b(load, one) <= 0.01 < erlang_b(load, one - 1)


def simulated(load: float, servers: int, times: random.Random, heavy: bool) -> float:
    """The mean wait of a first-come line with c servers, in mean times of service."""
    free = [0.0] * servers
    heapq.heapify(free)
    clock = total = 0.0
    count = 120_000
    for _ in range(count):
        clock += times.expovariate(load)
        begin = max(clock, heapq.heappop(free))
        length = times.lognormvariate(-2.0, 2.0) if heavy else times.expovariate(1.0)
        heapq.heappush(free, begin + length)
        total += begin - clock
    return total / count


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.7), (8, 0.8), (32, 0.9)])
def test_a_simulated_line_agrees(servers: int, rho: float) -> None:
    seen = simulated(rho * servers, servers, random.Random(servers), heavy=False)
    assert seen == pytest.approx(mean_wait(rho * servers, servers, 1.0), rel=0.15)


def test_heavy_tails_wait_far_longer_than_erlang_says() -> None:
    """Log-normal times of the same mean, sigma 2 (as Philly's jobs): Cs^2 is 54, and Erlang tells a small part."""
    seen = simulated(0.8 * 8, 8, random.Random(1), heavy=True)
    told = mean_wait(0.8 * 8, 8, 1.0)
    assert seen > 4 * told
    assert mean_wait(0.8 * 8, 8, 1.0, (1 + math.exp(4) - 1) / 2) > seen / 3


@given(st.floats(0.1, 200), st.floats(0.01, 10))
def test_servers_for_a_wait_are_the_least(load: float, wait: float) -> None:
    count = servers_for_wait(load, 1.0, wait)
    assert mean_wait(load, count, 1.0) <= wait
    assert count - 1 <= load or mean_wait(load, count - 1, 1.0) > wait


def test_real_arrivals_come_in_campaigns(shared_data: Callable[[str], Path]) -> None:
    """Philly's single-GPU jobs at a mean utilisation of 0.9: the line waits thousands of times longer than Erlang says,
    and 20 times longer than Allen-Cunneen does with the measured variations. Means of months plan no queue."""
    rows: list[tuple[float, float]] = []
    with shared_data("jobs/philly_sia.csv").open() as file:
        for row in csv.DictReader(file):
            if row["num_gpus"] == "1":
                rows.append((datetime.fromisoformat(row["timestamp"]).timestamp(), float(row["duration"])))
    rows.sort()
    mean = sum(length for _, length in rows) / len(rows)
    load = len(rows) / (rows[-1][0] - rows[0][0]) * mean
    servers = round(load / 0.9)
    free, total = [rows[0][0]] * servers, 0.0
    for arrives, length in rows:
        begin = max(arrives, heapq.heappop(free))
        heapq.heappush(free, begin + length)
        total += begin - arrives
    gaps = [later - before for (before, _), (later, _) in pairwise(rows)]
    times = [length for _, length in rows]
    variation = (statistics.pvariance(gaps) / statistics.mean(gaps) ** 2 + statistics.pvariance(times) / mean**2) / 2
    seen = total / len(rows)
    assert seen > 1000 * mean_wait(load, servers, mean)
    assert seen / mean_wait(load, servers, mean, variation) == pytest.approx(23, abs=2)


hours_of_users = st.lists(st.sampled_from([0.0, 1.0, 2.0, 4.0]), min_size=1, max_size=4)
tree_of_teams = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0]), hours_of_users), min_size=1, max_size=5)


@given(tree_of_teams)
def test_fair_tree_is_the_scheduler_s_own_with_its_ties(teams: list[tuple[float, list[float]]]) -> None:
    """Another implementation, the one that schedules: the same ranks, ties included."""
    entities = [Entity(f"q{at}", "", weight) for at, (weight, _) in enumerate(teams)]
    use: list[Usage] = []
    for at, (_, users) in enumerate(teams):
        for number, hours in enumerate(users):
            entities.append(Entity(f"q{at}/u{number}", f"q{at}", 1.0, hours))
            use.append(Usage(f"q{at}", f"u{number}", hours))
    queues = tuple(Queue(f"q{at}", weight=weight) for at, (weight, _) in enumerate(teams))
    claimants = tuple((each.queue, each.user) for each in use)
    live = SlurmFairTree().factors(OrderingView(queues, claimants, tuple(each for each in use if each.gpu_s)))
    own = {each.entity.name: each.factor for each in shares_of(entities) if each.leaf}
    assert own == {f"{queue}/{user}": pytest.approx(factor) for (queue, user), factor in live.items()}


def test_who_has_no_shares_is_last() -> None:
    found = {each.entity.name: each.factor for each in shares_of([Entity("a", "", 1, 50), Entity("b", "", 0, 0)])}
    assert found["a"] > found["b"]
