"""Go's random numbers and the published streams; the golden numbers were printed by Go 1.26."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from muster.sim import published_stream
from muster.sim.published_stream import GoRandom, published_arrivals

# seed, three of int63, a shuffle of 10, a perm of 10, intn(3 << 40), intn(1 << 20), intn(2_000_000_000), and int63
# after 100,000 more.
GO = [
    (
        42,
        [3440579354231278675, 608747136543856411, 5571782338101878760],
        [4, 8, 7, 6, 1, 9, 5, 3, 0, 2],
        [7, 3, 4, 6, 9, 5, 0, 8, 1, 2],
        [845150358765, 153435, 1401366544],
        5970255451420985889,
    ),
    (
        0,
        [8717895732742165505, 2259404117704393152, 6050128673802995827],
        [7, 6, 5, 9, 4, 8, 1, 2, 3, 0],
        [2, 6, 5, 1, 0, 8, 7, 4, 9, 3],
        [3205682899309, 424188, 449257601],
        2295642745494451325,
    ),
    (
        -7,
        [747107023976529931, 7084732931963018726, 6995717851144434728],
        [9, 8, 5, 1, 7, 3, 4, 6, 2, 0],
        [3, 7, 2, 6, 0, 8, 9, 4, 1, 5],
        [3217026101037, 815959, 1331785291],
        5499626747809603167,
    ),
    (
        (1 << 40) + 3,
        [2135166860968657419, 8094514319442986078, 7504656442604868299],
        [6, 7, 4, 8, 0, 3, 5, 2, 9, 1],
        [4, 2, 6, 7, 5, 0, 3, 1, 9, 8],
        [759454542859, 77033, 739103624],
        5558572283290198284,
    ),
    (
        -(1 << 63),
        [7681445645332086223, 6777158040660201103, 8748006033234207912],
        [2, 7, 1, 5, 9, 6, 4, 0, 3, 8],
        [6, 0, 5, 7, 8, 1, 4, 2, 3, 9],
        [1593828096266, 217141, 1011536793],
        1296151543736230138,
    ),
]


@pytest.mark.parametrize(("seed", "first", "shuffled", "perm", "below", "late"), GO, ids=[str(row[0]) for row in GO])
def test_draws_are_those_of_go(
    seed: int, first: list[int], shuffled: list[int], perm: list[int], below: list[int], late: int
) -> None:
    random = GoRandom(seed)
    assert [random.int63() for _ in range(3)] == first
    items = list(range(10))
    random.shuffle(items)
    assert items == shuffled
    assert random.perm(10) == perm
    assert [random.intn(3 << 40), random.intn(1 << 20), random.intn(2_000_000_000)] == below
    for _ in range(100_000):
        random.int63()
    assert random.int63() == late


def test_damaged_cache_is_computed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path))
    kept = tmp_path / "go-rand-607.bin"
    start = published_stream._start_words.__wrapped__
    words = start()
    assert hashlib.sha256(words).hexdigest() == published_stream._START_SHA256
    assert kept.read_bytes() == words
    kept.write_bytes(words[:-1] + b"?")
    assert start() == words
    assert kept.read_bytes() == words


def test_bounds_are_checked() -> None:
    with pytest.raises(ValueError, match="bound"):
        GoRandom(1).intn(0)
    with pytest.raises(ValueError, match="bound"):
        GoRandom(1).int31n(1 << 31)


def test_pods_follow_the_trace_until_the_target() -> None:
    order, nodes = published_arrivals([500, 1000, 0], [500, 2000, 0], 5, 9000, 3)
    assert sorted(order[:3].tolist()) == [0, 1, 2]
    assert 7000 < sum((500, 2000, 0)[pod] for pod in order.tolist()) <= 10000
    assert sorted(nodes.tolist()) == [0, 1, 2, 3, 4]


def test_pods_are_removed_down_to_the_target() -> None:
    order, _ = published_arrivals([1000] * 10, [1000] * 10, 0, 3500, 3)
    assert len(order) == len(set(order.tolist())) == 3


def test_cpu_only_pods_never_reach_a_target() -> None:
    with pytest.raises(ValueError, match="no pod asks for a GPU"):
        published_arrivals([0], [0], 1, 1, 42)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("default", "bb3dd668483a8b0a3ab0e9ef2f77a136"),
        ("multigpu50", "33027cf48898a7241b70dacc2063471d"),
    ],
)
def test_seed_42_is_the_published_run(shared_data: Callable[[str], Path], workload: str, expected: str) -> None:
    with shared_data(f"openb/pods_{workload}.csv").open(newline="") as file:
        pods = sorted(csv.DictReader(file), key=lambda row: row["name"])
    with shared_data("openb/nodes.csv").open(newline="") as file:
        nodes = sum(1 for _ in csv.DictReader(file))
    per_gpu = [int(pod["gpu_milli"]) for pod in pods]
    total = [int(pod["gpu_milli"]) * int(pod["num_gpu"]) for pod in pods]
    order, node_order = published_arrivals(per_gpu, total, nodes, 1.3 * 6212000, 42)
    text = np.concatenate((order, node_order)).astype("<i8").tobytes()
    assert hashlib.sha256(text).hexdigest()[:32] == expected
