"""Hosts for sandboxes: published densities, limits by scenario, and starts against a simulated host."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.catalog.sandboxes import RUNTIMES, runtime
from muster.errors import InputError
from muster.planning.plans.sandboxes import Sandboxes
from muster.planning.question import derive

# measured on 8 cores, 30 GB with a browser each: held steadily, and hosts for 50,000 (kubernetes-sigs/agent-sandbox)
MEASURED = [("runc", 120, 417, 0.20), ("gvisor", 80, 625, 0.05), ("kata-clh", 40, 1250, 0.10)]


@pytest.mark.parametrize(("name", "held", "hosts", "error"), MEASURED)
def test_published_densities(name: str, held: int, hosts: int, error: float) -> None:
    found = derive(Sandboxes(mix=(f"{name}=1",)), sensitivity=False)
    assert 50_000 / float(found.results[0].value) == pytest.approx(held, rel=error)
    assert next(row[2] for row in found.tables[2].rows if row[0] == name) == hosts


def test_where_the_arithmetic_fails() -> None:
    """QEMU held 20 where memory lets 40: a lock, not memory. The page shows both."""
    rows = {row[0]: row for row in derive(Sandboxes(), sensitivity=False).tables[2].rows}
    assert float(rows["kata-qemu"][3]) > 1.5 * float(rows["kata-qemu"][1])


SCENARIOS = [
    ("memory", Sandboxes()),
    ("CPU", Sandboxes(cpu=0.5)),
    ("pods", Sandboxes(memory_bytes=1e12, cores=256)),
    ("starts", Sandboxes(mix=("kata-clh=1",), length_s=20, memory_bytes=2e11, pods=500)),
]


@pytest.mark.parametrize(("binds", "asked"), SCENARIOS, ids=[each[0] for each in SCENARIOS])
def test_the_tightest_limit_is_named(binds: str, asked: Sandboxes) -> None:
    found = derive(asked, sensitivity=False)
    assert found.tables[0].rows[0][6] == binds
    assert f"{binds} binds first" in found.answer


@given(st.integers(1, 10**6), st.floats(0, 1), st.sampled_from([each.name for each in RUNTIMES[:5]]))
def test_hosts_are_enough_and_not_one_too_many(sessions: int, headroom: float, name: str) -> None:
    asked = Sandboxes(sessions=sessions, headroom=headroom, mix=(f"{name}=1",))
    hosts, wanted = asked.headline(), sessions * (1 + headroom)
    holds = derive(asked, sensitivity=False).tables[0].rows[0][7]
    assert not isinstance(holds, str)
    assert (hosts - 1) * holds < wanted <= hosts * holds


def waits(rate: float, cost: float, cores: float, rng: random.Random) -> float:
    """Mean wait in seconds of starts that take ``cost`` core-seconds, one core each, arriving at random."""
    free = [0.0] * int(cores)
    clock = total = 0.0
    for _ in range(20_000):
        clock += rng.expovariate(rate)
        at = min(range(len(free)), key=free.__getitem__)
        begin = max(clock, free[at])
        free[at] = begin + cost
        total += begin - clock
    return total / 20_000


def test_starts_below_the_limit_wait_little_and_above_it_without_end() -> None:
    kind = runtime("kata-clh")
    assert kind is not None
    asked = Sandboxes(mix=("kata-clh=1",), length_s=20, memory_bytes=2e11, pods=500, busy=0.7)
    holds = float(derive(asked, sensitivity=False).tables[0].rows[0][7])
    rate = holds / 20
    assert waits(rate, kind.start_cpu_s, 8, random.Random(1)) < kind.start_cpu_s
    assert waits(1.6 * rate, kind.start_cpu_s, 8, random.Random(1)) > 20 * kind.start_cpu_s


def test_a_mix_is_the_sum_of_its_parts() -> None:
    parts = [
        Sandboxes(sessions=count, mix=(f"{name}=1",)).headline()
        for count, name in ((40_000, "gvisor"), (10_000, "kata-clh"))
    ]
    assert Sandboxes(mix=("gvisor=0.8", "kata-clh=20%")).headline() == sum(parts)


def test_a_wall_of_ones_own() -> None:
    assert Sandboxes(mix=("vm=1:600MB",)).headline() > Sandboxes(mix=("kata-clh=1",)).headline()


@pytest.mark.parametrize(
    ("mix", "told"),
    [
        (("gvisr=1",), "gvisor"),
        (("gvisor=0.5",), "sum to"),
        (("gvisor=x",), "share"),
        (("kata-qemu-gpu=1",), "too small"),
    ],
)
def test_what_cannot_be_is_told(mix: tuple[str, ...], told: str) -> None:
    memory = 8e9 if mix[0].startswith("kata-qemu-gpu") else 30e9
    with pytest.raises(InputError, match=told):
        derive(Sandboxes(mix=mix, memory_bytes=memory))
