"""Fitting the default policy: the same bytes each time, and an answer for every fleet and mix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.model.fleet import Device, Fleet, Node, Taint
from muster.model.workload import PodShape, ShapeMix
from muster.planning.tune import knowledge_from, tune, tuned
from muster.policy.registry import find_policy

GIB = 2**30


def nodes(count: int, gpus: int, model: str = "A", cpu: int = 96, first: int = 0, **more: object) -> tuple[Node, ...]:
    devices = tuple(Device(index, model) for index in range(gpus))
    return tuple(Node(f"n{first + at}", cpu * 1000, 512 * GIB, devices, **more) for at in range(count))  # type: ignore[arg-type]


MIXED = Fleet((*nodes(3, 4), *nodes(2, 2, "B", first=3), *nodes(1, 0, first=5)))
PART, ONE, TWO, CPU = PodShape(4000, 8 * GIB, 1, 300), PodShape(8000, 9 * GIB, 1), PodShape(9000, 0, 2), PodShape(8000)
USUAL = ShapeMix((PART, ONE, TWO, CPU), (5, 3, 2, 2))


def cold(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(folder))


def test_same_bytes_from_a_cold_cache_and_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    results = []
    for folder in ("one", "two", "two"):
        cold(monkeypatch, tmp_path / folder)
        results.append(msgspec.json.encode(tuned(MIXED, USUAL, said.append)))
    assert results[0] == results[1] == results[2]
    assert len(said) == 2
    kept = [path.read_bytes() for path in sorted(tmp_path.rglob("*.json"))]
    assert len(kept) == 2
    assert kept[0] == kept[1]


def test_a_damaged_cache_is_fitted_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cold(monkeypatch, tmp_path)
    first = tuned(MIXED, USUAL)
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(path.read_bytes()[:100])
    assert tuned(MIXED, USUAL) == first


RUBBISH: dict[str, Callable[[dict[str, Any]], object]] = {
    "no weights": lambda kept: kept.update(weights=[]),
    "a weight more": lambda kept: kept["weights"].append(1.0),
    "short curve": lambda kept: kept.update(curve=kept["curve"][:-1]),
    "a kind less": lambda kept: kept["by_kind"].pop(),
    "ragged kinds": lambda kept: kept["by_kind"][0].pop(),
    "narrow kinds": lambda kept: kept.update(by_kind=[row[:-1] for row in kept["by_kind"]]),
    "unknown choice": lambda kept: kept.update(chosen="best"),
    "unnamed": lambda kept: kept.update(named={}),
}


@pytest.mark.parametrize("spoil", RUBBISH.values(), ids=RUBBISH.keys())
def test_a_kept_tuning_of_another_form_is_fitted_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoil: Callable[[dict[str, Any]], object]
) -> None:
    cold(monkeypatch, tmp_path)
    fleet = Fleet(nodes(1, 1))
    first = tuned(fleet, ShapeMix((ONE,), (1,)))
    (path,) = tmp_path.rglob("*.json")
    whole = path.read_bytes()
    kept = msgspec.json.decode(whole)
    spoil(kept)
    path.write_bytes(msgspec.json.encode(kept))
    assert tuned(fleet, ShapeMix((ONE,), (1,))) == first
    assert path.read_bytes() == whole


@pytest.mark.parametrize("where", ["a file in place of the folder", "a folder in place of the file"])
def test_a_cache_that_cannot_be_written_is_told_and_fitted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    cold(monkeypatch, tmp_path)
    fleet, mix, said = Fleet(nodes(1, 1)), ShapeMix((ONE,), (2,)), []
    if where.startswith("a folder"):
        tuned(fleet, mix)
        (path,) = tmp_path.rglob("*.json")
        path.unlink()
        (path / "full").mkdir(parents=True)
    else:
        (tmp_path / "tunings").write_text("")
    first = tuned(fleet, mix, said.append)
    assert "cannot be written" in said[-1]
    assert tuned(fleet, mix, said.append) == first
    assert len(said) == 2


def test_another_mix_or_fleet_is_fitted_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cold(monkeypatch, tmp_path)
    tuned(MIXED, USUAL)
    tuned(MIXED, ShapeMix(USUAL.shapes, (5, 3, 2, 3)))
    tuned(Fleet(MIXED.nodes[1:]), USUAL)
    assert len(list(tmp_path.rglob("*.json"))) == 3


ODD: dict[str, Callable[[], tuple[Fleet, ShapeMix]]] = {
    "no nodes": lambda: (Fleet(), USUAL),
    "no pods": lambda: (MIXED, ShapeMix((), ())),
    "CPU pods only": lambda: (MIXED, ShapeMix((CPU,), (3,))),
    "no GPUs": lambda: (Fleet(nodes(2, 0)), USUAL),
    "one shape": lambda: (MIXED, ShapeMix((ONE,), (1,))),
    "one fraction": lambda: (MIXED, ShapeMix((PART,), (1,))),
    "one node": lambda: (Fleet(nodes(1, 1)), USUAL),
    "three nodes": lambda: (Fleet(nodes(3, 8)), USUAL),
    "a shape that fits nowhere": lambda: (
        MIXED, ShapeMix((ONE, PodShape(1000, 0, 16), PodShape(10**6, 0, 1)), (3, 1, 1))),
    "no shape fits anywhere": lambda: (MIXED, ShapeMix((PodShape(1000, 0, 16),), (1,))),
    "a model that nobody has": lambda: (MIXED, ShapeMix((ONE, PodShape(8000, 0, 1, 500, ("X",))), (3, 1))),
    "only a model that nobody has": lambda: (MIXED, ShapeMix((PodShape(8000, 0, 1, 1000, ("X",)),), (1,))),
    "all nodes cordoned": lambda: (Fleet(nodes(2, 4, schedulable=False)), USUAL),
    "all nodes tainted": lambda: (Fleet(nodes(2, 4, taints=(Taint("gpu"),))), USUAL),
    "pods without CPU and memory": lambda: (MIXED, ShapeMix((PodShape(0, 0, 1), PodShape(0, 0, 1, 1)), (1, 1))),
    "many small fractions": lambda: (
        Fleet(nodes(2, 2)), ShapeMix(tuple(PodShape(100, 0, 1, 7 + 13 * at) for at in range(75)), (1,) * 75)),
    "ten models": lambda: (
        Fleet(tuple(node for at in range(10) for node in nodes(1, 1, f"M{at}", first=at))), USUAL),
    "nodes without CPU": lambda: (Fleet(nodes(2, 2, cpu=0)), USUAL),
    "more GPUs than usual": lambda: (Fleet(nodes(2, 20)), ShapeMix((ONE, PodShape(1000, 0, 20)), (30, 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_fleets_and_mixes(name: str) -> None:
    fleet, mix = ODD[name]()
    tuning = tune(fleet, mix)
    assert tuning.chosen in ("start", "fitted", "half", "fgd")
    assert np.isfinite([*tuning.weights, *tuning.curve, *(value for row in tuning.by_kind for value in row)]).all()
    assert np.isfinite(list(tuning.gains.values())).all()
    if len(fleet):
        state = FleetState(fleet)
        placer = Placer(state, find_policy("default").load_score(), knowledge_from(tuning))
        placed = [placer.place(state.shape_id(shape)) for shape in mix.shapes]
        state.validate([one for one in placed if one])
