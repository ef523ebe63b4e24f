"""Several sites: the golden bandwidth, exchanges played in time, jobs shared out by trying all, the command."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.cli.main import main, run
from muster.planning.plans.multicloud import Multicloud
from muster.planning.question import derive
from muster.planning.sites import Job, Site, outer_bandwidth, share_out, synchronous_s


def test_golden_bandwidth_of_outer_steps() -> None:
    """100 B parameters, 4 bits, each 100 steps of 10 s, 2 sites: 0.4 Gb/s (fact F3)."""
    assert outer_bandwidth(100e9, 2, 10, 100, 4) * 8 / 1e9 == pytest.approx(0.4)
    told = {each.name: each.value for each in derive(Multicloud(), sensitivity=False).results}
    assert told["the same in Gb/s"] == pytest.approx(0.4)


def waits(rates: list[float], sent: float, every_s: float, exchanges: int) -> float:
    """Seconds that outer exchanges, one each ``every_s``, are late in all; ``rates`` of the link second by second."""
    late = 0.0
    clock = 0
    for _ in range(exchanges):
        left = sent
        begun = clock
        while left > 1e-6:
            left -= rates[clock % len(rates)]
            clock += 1
        late += max(0.0, clock - begun - every_s)
        clock = max(clock, begun + round(every_s))
    return late


def test_the_bandwidth_is_just_enough() -> None:
    need = outer_bandwidth(100e9, 2, 10, 100, 4)
    sent = 100e9 * 4 / 8
    assert waits([need], sent, 1000, 50) == 0
    assert waits([need * 0.9], sent, 1000, 50) > 50 * 100


def test_a_link_that_fails_at_times_is_late_though_its_mean_is_enough() -> None:
    rng = random.Random(4)
    need = outer_bandwidth(100e9, 2, 10, 100, 4)
    rates: list[float] = []
    while len(rates) < 100_000:  # outages of ten minutes, a tenth of the time; the mean is a tenth above the need
        rates += [0.0] * 600 if rng.random() < 1 / 10 else [need * 1.25] * 600
    assert sum(rates) / len(rates) > 1.05 * need
    assert waits(rates, 100e9 * 4 / 8, 1000, 80) > 0


def test_a_synchronous_step_played_by_a_ring_of_sites() -> None:
    """Sites send a chunk to the next in 2 (W - 1) rounds, each a chunk over the link and half a round trip."""
    sites, size, link, rtt = 4, 200e9, 1.25e9, 0.08
    clock = sum(size / sites / link + rtt / 2 for _ in range(2 * (sites - 1)))
    assert synchronous_s(100e9, sites, 10, link, rtt, 2) == pytest.approx(10 + clock)


SITES = st.lists(st.tuples(st.integers(8, 64), st.floats(1, 4), st.floats(0, 0.2)), min_size=2, max_size=3)
JOBS = st.lists(
    st.tuples(st.integers(1, 64), st.integers(1, 60), st.floats(0, 1e14), st.integers(0, 1)), min_size=1, max_size=5
)


@settings(max_examples=80, deadline=None)
@given(SITES, JOBS, st.sampled_from([20.0, 60.0]))
def test_no_sharing_out_is_cheaper(
    rows: list[tuple[int, float, float]], work: list[tuple[int, int, float, int]], horizon: float
) -> None:
    sites = [Site(str(at), gpus, price, egress) for at, (gpus, price, egress) in enumerate(rows)]
    jobs = [Job(str(at), gpus, hours, data, str(home)) for at, (gpus, hours, data, home) in enumerate(work)]
    best: tuple[float, float] | None = None
    for choice in product(range(-1, len(sites)), repeat=len(jobs)):
        used = [0.0] * len(sites)
        cost = out = 0.0
        possible = True
        for job, at in zip(jobs, choice, strict=True):
            if at < 0:
                out += job.gpus * job.hours
                continue
            used[at] += job.gpus * job.hours
            possible &= job.gpus <= sites[at].gpus
            cost += job.gpus * job.hours * sites[at].price
            cost += job.data_bytes / 1e9 * sites[int(job.home)].egress if sites[at].name != job.home else 0
        if possible and all(hours <= site.gpus * horizon + 1e-9 for hours, site in zip(used, sites, strict=True)):
            best = min(best or (out, cost), (out, cost))
    assert best is not None
    found = share_out(jobs, sites, horizon, priced=True)
    assert found.exact
    left = sum(job.gpu_hours for job, at in zip(jobs, found.sites, strict=True) if at < 0)
    assert (left, found.cost) == pytest.approx(best, rel=1e-9)


def test_many_jobs_are_shared_out_with_a_bound() -> None:
    rng = random.Random(1)
    sites = [Site(name, 256, 1 + rng.random(), 0.05) for name in "abcd"]
    jobs = [
        Job(str(at), rng.choice([8, 16, 64]), rng.uniform(5, 90), rng.uniform(0, 2e13), rng.choice("abcd"))
        for at in range(80)
    ]
    found = share_out(jobs, sites, 120, priced=True)
    assert found.at_least <= found.cost < 1.08 * found.at_least
    assert -1 not in found.sites


def test_a_move_pays_if_the_gap_is_above_what_is_told() -> None:
    """1,000 GPU-hours and 10 TB at 0.09 a GB: 0.90 a GPU-hour; at a gap of 0.95 it moves, at 0.85 it stays."""

    def moves(price: float) -> bool:
        sites = (f"a:gpus=64,price={1 + price},egress=0.09", "b:gpus=64,price=1")
        found = derive(Multicloud(sites=sites, jobs=("j:gpus=10,hours=100,data=10TB,home=a",)), sensitivity=False)
        assert found.tables[0].rows[0][5] == "0.900"
        return next(each.value for each in found.results if each.name == "jobs that move") == 1

    assert moves(0.95)
    assert not moves(0.85)


def test_prices_and_jobs_of_files(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    words = ["plan", "multicloud", "--site", "a:gpus=640,sku=aws-p5", "--site", "b:gpus=640,sku=nebius-h100"]
    words += ["--prices", f"{root}/examples/prices.yaml", "--from", "generate:mix=helios,pods=50"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "jobs" in done.stderr
    assert "aws-p5 on-demand" in " ".join(done.stdout.split())
    assert "a=6.88, b=2.95" in done.stdout


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--site", "a:gpus=8"], "2 to 12"),
        (["--job", "j:gpus=8,hours=1,home=mars"], "one of east, west"),
        (["--job", "j:gpus=8"], "needs hours"),
        (["--price", "east=2"], "no price of west"),
        (["--price", "mars=2"], "SITE=PRICE"),
        (["--prices", "examples/prices.yaml"], "names no sku"),
        (["--link", "10G"], "Gb/s (bits)"),
    ],
)
def test_bad_input_is_one_line(words: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["plan", "multicloud", *words])
    assert ended.value.code == 2
    assert what in capsys.readouterr().err
