"""Pulls of images: a second simulation in small time steps, orders by trying all, manifests, published times."""

from __future__ import annotations

import json
import math
import random
from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.cli.main import main, run
from muster.planning.image_pull import (
    Layer,
    Way,
    best_order,
    bounds,
    expected_bytes,
    peer_to_peer_s,
    pull,
    split,
)
from muster.planning.plans.image import Image
from muster.planning.question import derive

GB = 1e9
WAY = Way(0.1 * GB, 3 * GB, 5 * GB, 1, 3, 1, 0.15 * GB, 1, 2 * GB)


def ticked(layers: list[Layer], way: Way, tick: float = 0.02) -> float:
    """The same pull in small steps of time: no events, no code in common."""
    need = [layer.size_bytes for layer in layers]
    todo = [layer.unpacked_bytes for layer in layers]
    begun = [False] * len(layers)
    clock = 0.0
    while any(left > 1e-3 for left in todo):
        coming = [at for at, left in enumerate(need) if left > 1e-3][: way.downloads]
        there = [left <= 1e-3 for left in need]
        for at in coming:
            need[at] -= tick * min(way.connections * way.connection, way.node_rate / len(coming))
        busy = [at for at in range(len(layers)) if begun[at] and todo[at] > 1e-3]
        for at in range(len(layers)):
            if len(busy) < way.unpacks and not begun[at] and there[at] and all(begun[:at]):
                begun[at] = True
                busy.append(at)
        for at in busy:
            todo[at] -= tick * min(way.unpack, way.disk / way.unpacks)
        clock += tick
    written = sum(layer.size_bytes + layer.unpacked_bytes for layer in layers)
    return max(clock, written / way.disk)


SIZES = st.lists(st.tuples(st.floats(0.05, 3), st.floats(1, 3)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(SIZES, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 30]))
def test_small_steps_of_time_agree(
    sizes: list[tuple[float, float]], downloads: int, unpacks: int, connections: int, nodes: int
) -> None:
    layers = [Layer(str(at), size * GB, size * ratio * GB) for at, (size, ratio) in enumerate(sizes)]
    way = Way(0.3 * GB, 3 * GB, 5 * GB, nodes, downloads, connections, 0.6 * GB, unpacks, 2 * GB)
    found = pull(layers, way).total_s
    assert found == pytest.approx(ticked(layers, way), rel=0.02, abs=0.04 * (2 * len(layers) + 1))
    assert found >= max(bounds(layers, way).values()) - 1e-6


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0.01, 0.99)), min_size=1, max_size=5))
def test_no_order_sends_less(rows: list[tuple[float, float]]) -> None:
    layers = [Layer(str(at), size, 2 * size, share) for at, (size, share) in enumerate(rows)]
    least = min(expected_bytes(order) for order in permutations(layers))
    assert expected_bytes(best_order(layers)) == pytest.approx(least)


def test_the_next_pull_agrees_with_drawn_builds() -> None:
    rng = random.Random(1)
    layers = [Layer("a", 4, 8, 0.05), Layer("b", 2, 4, 0.3), Layer("c", 1, 2, 0.9)]
    total = 0.0
    for _ in range(40_000):
        changed = [rng.random() < layer.changes for layer in layers]
        first = changed.index(True) if any(changed) else len(layers)
        total += sum(layer.size_bytes for layer in layers[first:])
    assert expected_bytes(layers) == pytest.approx(total / 40_000, rel=0.02)


def test_changes_that_come_together_break_the_form() -> None:
    """If one upgrade changes two layers together, the form, which takes them as independent, tells too much."""
    rng = random.Random(1)
    layers = [Layer("a", 4, 8, 0.3), Layer("b", 2, 4, 0.3)]
    drawn = sum(6 for _ in range(20_000) if rng.random() < 0.3) / 20_000
    assert drawn < 0.95 * expected_bytes(layers)


@pytest.mark.parametrize("nodes", [2, 8, 64])
def test_copies_double_as_holders_do(nodes: int) -> None:
    """One layer that is all download: a holder serves one node at a time; the last has it after log2 N copies."""
    layers = [Layer("a", 3 * GB, 0.001)]
    holders, rounds = 1, 0
    while holders < nodes:
        holders += min(holders, nodes - holders)
        rounds += 1
    alone = 3 * GB / WAY.connection
    way = replace(WAY, nodes=nodes)
    assert peer_to_peer_s(layers, way) == pytest.approx(alone + rounds * 3 * GB / WAY.link, rel=1e-3)
    assert rounds == math.ceil(math.log2(nodes))


def test_published_times_of_a_10_gb_image() -> None:
    """10 GB take 4 to 10 minutes (tensorfuse, union.ai); 4.5 at 100 MB/s a thread, 9 at half of that."""
    layers = split([Layer("a", 10 * GB, 25 * GB)], 3 * GB)
    for unpack in (0.05 * GB, 0.1 * GB):
        seen = pull(layers, replace(WAY, unpack=unpack)).total_s
        assert 4 <= seen / 60 <= 10


def test_cached_layers_cost_nothing() -> None:
    found = derive(Image(layers=("a:size=2GB,cached=yes", "b:size=1GB")), sensitivity=False)
    alone = derive(Image(layers=("b:size=1GB",)), sensitivity=False)
    assert found.results[0] == alone.results[0]
    assert "Nothing is pulled" in derive(Image(layers=("a:size=2GB,cached=yes",)), sensitivity=False).answer


def manifest(path: Path) -> Path:
    kind, sizes = "application/vnd.oci.image.layer.v1.tar+gzip", (30_000_000, 4_500_000_000)
    layers = [{"mediaType": kind, "size": size, "digest": f"sha256:{size:064x}"} for size in sizes]
    path.write_text(json.dumps({"schemaVersion": 2, "config": {"size": 7000}, "layers": layers}))
    return path


def test_a_manifest_says_the_layers(tmp_path: Path) -> None:
    words = ["plan", "image", "--from", str(manifest(tmp_path / "m.json")), "-o", "json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    found = json.loads(done.stdout)
    assert "2 layers, sizes as sent" in done.stdout
    written = next(each["value"] for each in found["results"] if each["name"] == "written by each node")
    assert written == pytest.approx(3 * 4.53e9)


def test_a_history_says_sizes_on_disk(tmp_path: Path) -> None:
    """docker history has the newest step first."""
    rows = [{"Size": "1.2GB", "CreatedBy": "RUN pip install x"}, {"Size": "0B", "CreatedBy": "ENV A=1"},
            {"Size": "80MB", "CreatedBy": "/bin/sh -c #(nop) ADD file:1"}]  # fmt: skip
    path = tmp_path / "h.json"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    done = CliRunner().invoke(main, ["plan", "image", "--from", str(path), "--nodes", "1"], catch_exceptions=False)
    assert "2 layers" in done.stdout
    assert done.stdout.index("00-ADD-file1") < done.stdout.index("02-RUN-pip-install")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", "no manifest"),
        ("not json", "is no JSON"),
        ('{"manifests": []}', "platforms"),
        ('{"layers": []}', "has 0 layers"),
        ('{"layers": [{"size": "x"}]}', "no size in bytes"),
        ('{"layers": [3]}', "no size in bytes"),
        ('[{"Size": "1.2G"}]', "1.2GB (powers of ten)"),
    ],
)
def test_bad_files_are_one_line(text: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        run(["plan", "image", "--from", str(path)])
    assert ended.value.code == 2
    assert what in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--layer", "a"], ["--layer", "a:size=3"], ["--connection", "400G/s"], ["--nodes", "0"]]
)
def test_bad_options_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["plan", "image", *words])
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err
