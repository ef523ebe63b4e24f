"""Sharing GPUs: NVIDIA's layouts, packings against brute force, slow-downs against drawn processes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.catalog.mig import mig_table
from muster.catalog.mig_layouts import can_add, check_layout
from muster.cli.main import main, run
from muster.errors import InputError
from muster.planning.plans.sharing import Sharing, read_job
from muster.planning.question import derive
from muster.planning.sharing import Shared, over_asked, pack_mig, pack_shared, slow_down, smallest_profile

GB = 1e9
H100 = mig_table("H100")
NEEDS = {"1g": (8, 0.1), "1g.20gb": (18, 0.1), "2g": (18, 0.25), "3g": (35, 0.4), "4g": (35, 0.5), "7g": (60, 0.5)}


def of(*names: str) -> tuple[Shared, ...]:
    """One process each, that needs just this profile of H100."""
    return tuple(Shared(f"{name}-{at}", NEEDS[name][0] * GB, NEEDS[name][1]) for at, name in enumerate(names))


# NVIDIA's MIG guide, as in node-layer.md B1: legal mixes come from placements, not from adding slices.
@pytest.mark.parametrize(
    ("names", "gpus"),
    [
        (["3g", "3g"], 1),
        (["3g", "3g", "1g"], 2),
        (["4g", "3g"], 1),
        (["4g", "4g"], 2),
        (["2g", "2g", "3g"], 1),
        (["1g", "1g", "2g", "3g"], 1),
        (["3g", *["1g"] * 4], 1),
        (["3g", *["1g"] * 5], 2),
        (["1g"] * 7, 1),
        (["1g"] * 8, 2),
        (["1g.20gb"] * 4, 1),
        (["2g"] * 3, 1),
        (["2g"] * 4, 2),
        (["7g", "1g"], 2),
    ],
)
def test_golden_layouts(names: list[str], gpus: int) -> None:
    found = pack_mig("H100", H100, of(*names))
    assert found.packing.bins == gpus
    assert found.packing.exact
    for layout, _ in found.layouts("H100"):
        assert check_layout("H100", layout) == layout


def fewest_by_hand(gpu: str, names: Sequence[str], at_most: int) -> int:
    """Every process placed on every GPU at every start: no code shared with the search."""

    def place(rest: Sequence[str], gpus: tuple[tuple[tuple[str, int], ...], ...]) -> bool:
        if not rest:
            return True
        for at, layout in enumerate(gpus):
            starts = can_add(gpu, layout, rest[0])
            if any(place(rest[1:], (*gpus[:at], (*layout, (rest[0], start)), *gpus[at + 1 :])) for start in starts):
                return True
            if not layout:
                break  # empty GPUs are alike
        return False

    return next(gpus for gpus in range(1, at_most + 1) if place(names, ((),) * gpus))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["1g", "1g.20gb", "2g", "3g", "4g"]), min_size=1, max_size=6))
def test_no_placement_takes_fewer_gpus(names: list[str]) -> None:
    jobs = of(*names)
    profiles = [smallest_profile(H100, job) for job in jobs]
    asked = sorted((each.name for each in profiles if each), reverse=True)
    packing = pack_mig("H100", H100, jobs).packing
    assert packing.exact
    assert packing.bins == fewest_by_hand("H100", asked, len(names))


def fewest_sets(jobs: Sequence[Shared], memory: float, target: float) -> int:
    """Processes one by one into every GPU that takes them."""

    def place(rest: Sequence[Shared], gpus: list[tuple[float, float]], most: int) -> bool:
        if not rest:
            return True
        size, use = rest[0].memory_bytes, min(target, rest[0].compute * rest[0].busy)
        for at, (held, used) in enumerate(gpus):
            fits = held + size <= memory and used + use <= target + 1e-9
            if fits and place(rest[1:], [*gpus[:at], (held + size, used + use), *gpus[at + 1 :]], most):
                return True
        return len(gpus) < most and place(rest[1:], [*gpus, (size, use)], most)

    return next(most for most in range(1, len(jobs) + 1) if place(jobs, [], most))


KINDS = st.builds(
    Shared, st.just("a"), st.sampled_from([9 * GB, 20 * GB, 35 * GB, 50 * GB]), st.sampled_from([0.1, 0.3, 0.55, 1.0]),
    st.sampled_from([0.2, 0.5, 1.0]), st.integers(1, 2),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS, min_size=1, max_size=4))
def test_no_sharing_takes_fewer_gpus(jobs: list[Shared]) -> None:
    packing = pack_shared(tuple(jobs), 80 * GB, 0.8, mps=True)
    assert packing.exact
    each = [job for job in jobs for _ in range(job.count)]
    assert packing.bins == fewest_sets(each, 80 * GB, 0.8)
    assert [sum(fill[at] * times for fill, times in packing.fills) for at in range(len(jobs))] == [
        job.count for job in jobs
    ]


def test_a_gpu_has_at_most_48_mps_clients() -> None:
    tiny = (Shared("tiny", 0.5 * GB, 0.01, 0.1, 100),)
    assert pack_shared(tiny, 80 * GB, 0.8, mps=True).bins == 3


JOBS = (Shared("a", GB, 0.5, 0.6, 2), Shared("b", GB, 0.3, 0.5, 3))


def drawn(fill: tuple[int, int], together: bool) -> tuple[float, float]:
    """Slow-down of an ``a`` by MPS and share of the time over 1; ``together``: all of a kind work at once."""
    rng = random.Random(5)
    slowed: list[float] = []
    over = 0
    runs = 40_000
    for _ in range(runs):
        load = 0.0
        working = 0.0
        for at, (job, count) in enumerate(zip(JOBS, fill, strict=True)):
            one = rng.random() < job.busy
            for number in range(count):
                works = one if together else (rng.random() < job.busy)
                load += job.compute * works
                working += works if at == 0 and number == 0 else 0
        over += load > 1 + 1e-9
        if working:
            slowed.append(max(1.0, load))
    return sum(slowed) / len(slowed), over / runs


def test_slow_down_agrees_with_drawn_processes() -> None:
    mean, over = drawn((2, 3), together=False)
    assert slow_down(JOBS, (2, 3), mps=True)[0] == pytest.approx(mean, rel=0.01)
    assert over_asked(JOBS, (2, 3)) == pytest.approx(over, abs=0.01)
    assert slow_down(JOBS, (2, 3), mps=False)[0] == pytest.approx(1 + 0.6 + 3 * 0.5)


def test_work_that_comes_together_is_slowed_more_than_told() -> None:
    mean, over = drawn((2, 3), together=True)
    assert mean > slow_down(JOBS, (2, 3), mps=True)[0] + 0.03
    assert over < over_asked(JOBS, (2, 3)) + 0.1  # it is over less often, and by more


def test_tenants_share_by_mig_only() -> None:
    """Two tenants with a small process each: one GPU by MIG, two by MPS; a common tenant shares one by either."""
    small = "memory=8GB,compute=0.1"
    apart = derive(Sharing(jobs=(f"x:{small},tenant=a", f"y:{small},tenant=b")), sensitivity=False)
    told = {each.name: each.value for each in apart.results}
    assert (told["GPUs"], told["MIG alone"], told["MPS alone"]) == (1, 1, 2)
    same = derive(Sharing(jobs=(f"x:{small}", f"y:{small}")), sensitivity=False)
    assert {each.name: each.value for each in same.results}["MPS alone"] == 1


def test_a_gpu_without_mig_leaves_the_other_ways() -> None:
    found = derive(Sharing(gpu="L40S", jobs=("x:memory=8GB,compute=0.1,count=3",)), sensitivity=False)
    assert {each.name: each.value for each in found.results}["MIG alone"] == "cannot be"
    with pytest.raises(InputError, match="cannot be split by MIG"):
        derive(Sharing(gpu="L40S", jobs=("x:memory=8GB,compute=0.1",), isolate="everything"))


def test_a_thousand_processes_are_bounded() -> None:
    jobs = tuple(f"j{at}:memory={3 + 2.7 * at:.1f}GB,compute={0.05 + 0.031 * at:.3f},busy=0.37" for at in range(12))
    found = derive(Sharing(jobs=jobs, times=20), sensitivity=False)
    assert found.results[0].value


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x", "such as chat"),
        ("x:memory=10G,compute=0.1", "10GB (powers of ten) or 10GiB"),
        ("x:memory=10GB,compute=2", "above 0 to 1"),
        ("x:memory=10GB", "needs compute"),
        ("x:memory=10GB,compute=0.1,cuont=3", "count"),
        ("x:memory=200GB,compute=0.1", "a H100-SXM5-80GB has"),
    ],
)
def test_bad_jobs_are_one_line(text: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["plan", "sharing", "--job", text])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "--job" in told
    assert what in told
    assert len(told.strip().splitlines()) <= 2


def test_workloads_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.csv"
    text = "name,memory,compute,count\nchat,30GB,0.4,4\nembed,6GB,10%,12\n"
    path.write_text(text)
    done = CliRunner().invoke(main, ["plan", "sharing", "--from", str(path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "2 workloads" in done.stdout
    path.write_text(f"{text}bad,6,10%,12\n")
    with pytest.raises(SystemExit):
        run(["plan", "sharing", "--from", str(path)])
    assert "jobs.csv:4" in capsys.readouterr().err


def test_read_job() -> None:
    assert read_job("a:memory=1GiB,compute=25%,busy=0.5,count=2,tenant=t") == Shared("a", 2.0**30, 0.25, 0.5, 2, "t")
