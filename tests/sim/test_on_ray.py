"""`--on ray`: the same sweep on a real Ray cluster of two nodes, one CPU each; and what is told where it cannot be.

The cluster is started by this file and takes a while: `make test-ray` runs it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.cli.main import run
from muster.errors import BackendError, InputError
from muster.sim.on_ray import running_on_ray
from muster.sim.replay_runs import ReplayTask, replay_tasks
from muster.sim.sweep import Outcome, Task, sweep

FLEET = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},64000,262144,4,T4\n" for i in range(4))
SIMULATE = ["simulate", "--fleet", "openb:nodes.csv", "--workload", "generate:mix=default,pods=60", "--no-timings"]


def called(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        run(list(arguments))
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nodes.csv").write_text(FLEET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


# -- a cluster that is there ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[sweep]'")
    if " " in sys.executable:
        pytest.skip("Ray starts no workers from a folder whose path has a space; run it from another")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(num_cpus=1, include_dashboard=False)
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def cluster(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RAY_ADDRESS", address)
    return address


def on_ray(*markers: pytest.MarkDecorator) -> Callable[[Any], Any]:
    def marked(test: Any) -> Any:
        for each in (pytest.mark.slow, pytest.mark.filterwarnings("ignore"), *markers):
            test = each(test)
        return test

    return marked


@on_ray()
def test_the_same_bytes(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SIMULATE, "--policy", "random,best-fit", "--seeds", "1..4", "-o", "json"]
    local = called(arguments, capsys)
    assert local[0] == 0
    assert called([*arguments, "--on", "ray"], capsys) == local


@on_ray()
def test_a_fitted_policy_is_sent(cluster: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    arguments = [*SIMULATE, "--policy", "default", "-o", "json"]
    local = called(arguments, capsys)
    before = sorted((folder / "cache" / "tunings").iterdir())
    there = called([*arguments, "--on", "ray"], capsys)
    assert (there[0], there[1]) == (0, local[1])
    assert sorted((folder / "cache" / "tunings").iterdir()) == before


@on_ray()
def test_replays(cluster: str, folder: Path) -> None:
    rows = "".join(f"2017-10-03 00:{i % 60:02}:00,{600 + i},{1 + i % 8},0,vc0\n" for i in range(80))
    (folder / "jobs.csv").write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + rows)
    tasks = [ReplayTask("uniform:nodes=2,gpus=8", "philly:jobs.csv", "best-fit", seed) for seed in (1, 2, 3)]

    def untimed(outcomes: Iterator[Any]) -> list[Any]:
        return [msgspec.structs.replace(each, wall_s=0.0) for each in outcomes]

    assert untimed(replay_tasks(tasks, 1, where="ray")) == untimed(replay_tasks(tasks, 1))


TASKS = [Task("uniform:nodes=2,gpus=2", "generate:mix=default,pods=30", "best-fit", seed, 1.0) for seed in range(6)]


def swept(each: Callable[[Outcome], None], *, resume: bool = False) -> list[Outcome]:
    outcomes = sweep(TASKS, 1, resume=resume, digest="name", each=each, where="ray")
    return [msgspec.structs.replace(one, wall_s=0.0) for one in outcomes]


@on_ray()
def test_an_interrupted_sweep_goes_on(cluster: str, folder: Path) -> None:
    whole = swept(lambda _: None)
    left = 2

    def stop(_: Outcome) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="2 of 6 runs are kept; the same command with --resume goes on"):
        swept(stop)
    seen: list[Outcome] = []
    assert swept(seen.append, resume=True) == whole
    assert len(seen) == 6
    assert all(outcome.wall_s > 0 for outcome in seen)


@dataclass(frozen=True)
class Grim:
    """A task whose worker dies while ``file`` counts fewer than ``deaths``."""

    file: str
    deaths: int
    fleet: str = "uniform:nodes=1,gpus=1"
    workload: str = "generate:mix=default,pods=3"
    policy: str = "best-fit"


def die(task: Grim) -> int:
    path = Path(task.file)
    died = path.stat().st_size if path.exists() else 0
    if died < task.deaths:
        path.write_bytes(b"x" * (died + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return died


def wait(futures: Sequence[Future[int]]) -> None:
    for future in futures:
        future.result()


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of this file are sent whole: the workers cannot import it."""
    import ray.cloudpickle

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@on_ray()
@pytest.mark.usefixtures("importable")
def test_a_worker_that_dies_in_the_middle(cluster: str, folder: Path) -> None:
    tasks = [Grim(str(folder / "a"), 2), Grim(str(folder / "b"), 0)]
    with running_on_ray(die, tasks) as futures:
        assert [future.result() for future in futures] == [2, 0]


@on_ray()
@pytest.mark.usefixtures("importable")
def test_workers_that_always_die(cluster: str, folder: Path) -> None:
    with pytest.raises(BackendError, match=r"lost with its worker, and again 3 times .*--resume"):  # noqa: SIM117
        with running_on_ray(die, [Grim(str(folder / "a"), 99)]) as futures:
            wait(futures)


def refuse(task: Grim) -> int:
    raise InputError("is wrong", file=task.file, line=3, field="gpus")


@on_ray()
@pytest.mark.usefixtures("importable")
def test_an_error_of_a_run_is_told_as_elsewhere(cluster: str, folder: Path) -> None:
    with pytest.raises(InputError, match=r"^a\.csv:3: field 'gpus': is wrong$"):  # noqa: SIM117
        with running_on_ray(refuse, [Grim("a.csv", 0)]) as futures:
            wait(futures)


# -- none that can be used --------------------------------------------------------------------------------------------


def test_ray_is_not_installed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, out, err = called([*SIMULATE, "--policy", "best-fit", "--on", "ray"], capsys)
    assert (code, out) == (2, "")
    assert "field '--on': ray needs Ray, which is not installed; pip install '.[sweep]'" in err


@pytest.mark.filterwarnings("ignore")
def test_nobody_answers(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[sweep]'")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    began = time.monotonic()
    code, out, err = called([*SIMULATE, "--policy", "best-fit", "--on", "ray"], capsys)
    assert (code, out) == (3, "")
    assert f"muster: no Ray cluster answers at 127.0.0.1:{port} (Connection refused); start one with" in err
    assert time.monotonic() - began < 30


def test_jobs_are_not_for_ray(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called([*SIMULATE, "--on", "ray", "--jobs", "2"], capsys)
    assert code == 2
    assert "field '--jobs': cannot be given with --on ray; there it is the CPUs of the cluster" in err
