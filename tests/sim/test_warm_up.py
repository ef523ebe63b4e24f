"""Compilation is told on a terminal whenever something is compiled, and is no part of a run's seconds."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from muster.policy.registry import POLICIES
from muster.sim import replay_runs, sweep
from muster.sim.replay_runs import ReplayTask, replay_one
from muster.sim.sweep import Task, perform
from muster.sim.warm_up import warm_up

LAUNCH = [sys.executable, "-c", "from muster.cli.main import run; run()"]
FLEET, WORK = "uniform:nodes=2,gpus=2,model=T4", "generate:mix=default,pods=20,seed=1"
WORD = "muster: compiling kernels, once"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("replay", [False, True])
def test_every_policy_can_be_warmed_up(policy: str, replay: bool) -> None:
    warm_up(policy, replay=replay)


def test_it_is_done_before_the_clock_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for module in (sweep, replay_runs):
        monkeypatch.setattr(module, "warm_up", lambda name, **_: seen.append("warm"))
        monkeypatch.setattr(module.time, "perf_counter", lambda: seen.append("clock") or float(len(seen)))
    perform(Task(FLEET, WORK, "best-fit", 1, 1.0))
    assert seen[:2] == ["warm", "clock"]
    seen.clear()
    replay_one(ReplayTask(FLEET, WORK, "best-fit", 1))
    assert seen[:2] == ["warm", "clock"]


def said_on_a_terminal(cache: Path, *more: str) -> str:
    """What a command says on stderr, which is a terminal."""
    outer, inner = pty.openpty()
    line = [*LAUNCH, "simulate", "--fleet", FLEET, "--workload", WORK, "--policy", "best-fit", "-o", "json", *more]
    environment = {**os.environ, "MUSTER_CACHE_DIR": str(cache)}
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=inner, env=environment)
    os.close(inner)
    text = b""
    while True:
        try:
            part = os.read(outer, 4096)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(outer)
    assert child.wait(timeout=300) == 0, text
    return text.decode()


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")
def test_first_uses_are_told_once_also_where_a_part_is_there(tmp_path: Path) -> None:
    assert said_on_a_terminal(tmp_path).count(WORD) == 1
    assert WORD not in said_on_a_terminal(tmp_path)
    # another command needs other kernels
    assert said_on_a_terminal(tmp_path, "--arrivals", "replay").count(WORD) == 1
    # several processes: who starts them compiles, and says so
    for kept in tmp_path.rglob("place.place_stream*"):
        kept.unlink()
    assert said_on_a_terminal(tmp_path, "--seeds", "1..2", "--jobs", "2").count(WORD) == 1


KEPT_ONLY = """
import sys
from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model import Device, Fleet, Node, PodSet, PodShape, Snapshot, Workload
node = Node("n", 8000, 0, tuple(Device(index, "T4") for index in range(2)))
work = tuple(Workload(f"w{at}", (PodSet(PodShape(gpus=1)),), time_limit_s=60.0) for at in range(3))
scheduler = Scheduler(Snapshot(Fleet((node,)), pending=work), Config())
print([type(each).__name__ for each in scheduler.cycle(0.0).decisions], "numba.np.arraymath" in sys.modules)
"""


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")
def test_kept_kernels_are_loaded_without_what_the_compiler_compiles_with(tmp_path: Path) -> None:
    environment = {**os.environ, "MUSTER_CACHE_DIR": str(tmp_path)}
    compiled, kept = (
        subprocess.run([sys.executable, "-c", KEPT_ONLY], capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    )
    assert compiled.stdout == "['Place', 'Place', 'Reserve'] True\n"
    assert kept.stdout == "['Place', 'Place', 'Reserve'] False\n"
    # one that is damaged, and one that is not there, are compiled again beside those that are kept
    for name, damage in (("any_takes", b""), ("place_pods", b"rubbish"), ("place_gang", b"rubbish")):
        for file in [*tmp_path.rglob(f"*.{name}-*.nbc")]:
            file.write_bytes(damage)
    again = subprocess.run(
        [sys.executable, "-c", KEPT_ONLY], capture_output=True, text=True, check=True, env=environment
    )
    assert again.stdout == "['Place', 'Place', 'Reserve'] True\n"
