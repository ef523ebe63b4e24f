"""Sweeps keep what is finished, in a cache folder that may hold anything and that others may use at the same time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from muster.sim.sweep import Outcome, Task, sweep

TASKS = [Task("uniform:nodes=2,gpus=2", "generate:mix=default,pods=30", "best-fit", seed, 1.0) for seed in range(4)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path))
    return tmp_path / "sweeps" / "name"


def swept(*, resume: bool = False, each: Callable[[Outcome], None] = lambda _: None) -> list[Outcome]:
    return [untimed(one) for one in sweep(TASKS, 1, resume=resume, digest="name", each=each)]


def untimed(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(outcome, wall_s=1.0)


def stop_after(count: int) -> Callable[[Outcome], None]:
    def each(_: Outcome) -> None:
        nonlocal count
        count -= 1
        if not count:
            raise KeyboardInterrupt

    return each


@pytest.mark.parametrize("count", range(1, len(TASKS) + 1))
def test_an_interrupted_sweep_goes_on(folder: Path, count: int) -> None:
    whole = swept()
    with pytest.raises(KeyboardInterrupt, match=f"{count} of 4 runs are kept; the same command with --resume goes on"):
        swept(each=stop_after(count))
    assert len(list(folder.iterdir())) == count
    assert swept(resume=True, each=lambda _: None) == whole
    assert not folder.exists()


def _directory(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


RUBBISH: dict[str, Callable[[Path], object]] = {
    "no JSON": lambda path: path.write_bytes(b"\xff garbage"),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "another thing": lambda path: path.write_text("{}"),
    "too deep": lambda path: path.write_text("[" * 100000),
    "another run": lambda path: shutil.copy(path.with_name("0.json"), path),
    "a folder": _directory,
}


@pytest.mark.parametrize("spoil", RUBBISH.values(), ids=RUBBISH.keys())
@pytest.mark.parametrize("resume", [True, False])
def test_rubbish_in_the_cache_is_run_again(folder: Path, spoil: Callable[[Path], object], resume: bool) -> None:
    whole = swept()
    with pytest.raises(KeyboardInterrupt):
        swept(each=stop_after(3))
    spoil(folder / "1.json")
    (folder / "unknown").write_text("x")
    assert swept(resume=resume) == whole


@pytest.mark.parametrize("where", ["", "sweeps", "sweeps/name"])
def test_a_cache_that_takes_nothing_stops_nothing(folder: Path, where: str, tmp_path: Path) -> None:
    whole = swept()
    shutil.rmtree(tmp_path)
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).write_text("a file where the folder belongs")
    with pytest.raises(KeyboardInterrupt, match=r"0 of 4 runs are kept$"):
        swept(each=stop_after(2))
    assert swept() == whole


def test_another_sweep_of_the_same_name_may_end_meanwhile(folder: Path) -> None:
    whole = swept()
    assert swept(each=lambda _: shutil.rmtree(folder)) == whole
    inner: list[list[Outcome]] = []
    assert swept(each=lambda _: inner.append(swept())) == whole
    assert inner == [whole] * 4
