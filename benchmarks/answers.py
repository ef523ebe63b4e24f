"""How long an answer takes on a big snapshot: whole commands, start-up included, beside a bound in the same run.

    .venv/bin/python benchmarks/answers.py [--nodes 10000] [--gangs 115000] [--runs 5] [--snapshot FILE]

The snapshot is made once (some minutes; kept in FILE, by default in the temporary folder): gangs of 200 shapes in 200
queues after one cycle. Each command runs once before it is timed, so that its kernels are compiled, and its modules, as
those of an installed package are. The bound is to import NumPy, without which there is no answer. Then what the library
calls inside take, as CPU time of one process.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

QUEUES = 200
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
MUSTER = "from muster.cli.main import run; run()"


def make(path: Path, nodes: int, gangs: int) -> None:
    """The snapshot, if it is not there."""
    if path.exists():
        return
    import cycle_inputs
    from muster.engine.config import Config
    from muster.engine.scheduler import Scheduler
    from muster.model.snapshot import Snapshot, save_snapshot

    print(f"Making {path} ...", file=sys.stderr, flush=True)
    work = cycle_inputs.gangs(gangs, QUEUES, random.Random(7))
    snapshot = Snapshot(cycle_inputs.fleet(nodes), cycle_inputs.queues(QUEUES, nodes * 8000), work)
    scheduler = Scheduler(snapshot, Config())
    scheduler.cycle(float(gangs))
    save_snapshot(scheduler.snapshot(float(gangs)), path)


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a process, which may end with 0 (yes) or 1 (no)."""
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, text=True, env=ENVIRONMENT)
    wall_s, after = time.perf_counter() - started, os.times()
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return wall_s, cpu_s


def commands(snapshot: Path, job: str, runs: int) -> None:
    """Whole commands, the bound first."""
    python = sys.executable
    source = ("--from", str(snapshot))
    rows: list[tuple[str, list[str], float | None]] = [
        ("import NumPy", [python, "-c", "import numpy"], None),
        ("muster --help", [python, "-c", MUSTER, "--help"], None),
        ("muster why JOB", [python, "-c", MUSTER, "why", job, *source], 1.0),
        (
            "muster fit",
            [python, "-c", MUSTER, "fit", "--pods", "4", "--gpus", "8", "--queue", "team-0001", *source],
            0.5,
        ),
    ]
    print(f"{'':24} {'wall':>8} {'CPU':>8} {'bar':>7}")
    for name, command, bar_s in rows:
        timed(command)
        times = [timed(command) for _ in range(runs)]
        wall_s, cpu_s = (statistics.median(each) for each in zip(*times, strict=True))
        verdict = "" if bar_s is None else f"{bar_s:5.1f} s  {'ok' if wall_s < bar_s else 'MISSED'}"
        print(f"{name:24} {wall_s:6.2f} s {cpu_s:6.2f} s {verdict}".rstrip(), flush=True)


def inside(snapshot: Path) -> None:
    """What the calls inside take."""
    last = time.process_time()

    def lap(name: str, call: Callable[[], object]) -> None:
        nonlocal last
        call()
        now = time.process_time()
        print(f"  {name:40} {now - last:6.2f} s", flush=True)
        last = now

    print("inside, CPU:")
    lap("import the engine", lambda: __import__("muster.answers.view"))
    from muster.answers.view import View
    from muster.engine.scheduler import Scheduler
    from muster.model.snapshot import load_snapshot

    last = time.process_time()
    views: list[View] = []
    schedulers: list[Scheduler] = []
    lap("read the snapshot", lambda: views.append(View(load_snapshot(snapshot))))
    view = views[0]
    lap("build the engine's state", lambda: schedulers.append(Scheduler(view.snapshot, view.config)))
    lap("one cycle", lambda: schedulers[0].cycle(view.now_s))
    lap("the reason of each that waits", lambda: list(schedulers[0].waits(view.now_s)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--gangs", type=int, default=115_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--snapshot", type=Path)
    asked = parser.parse_args()
    kept = Path(tempfile.gettempdir()) / f"muster-answers-{asked.nodes}-{asked.gangs}.snap"
    snapshot: Path = asked.snapshot or kept
    make(snapshot, asked.nodes, asked.gangs)
    from muster.model.snapshot import load_snapshot

    read = load_snapshot(snapshot)
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}")
    print(f"{len(read.fleet):,} nodes, {len(read.running):,} running, {len(read.pending):,} waiting")
    job = read.pending[len(read.pending) // 2].name
    del read
    commands(snapshot, job, asked.runs)
    subprocess.run([sys.executable, __file__, "--inside", str(snapshot)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(Path(sys.argv[2]))
    else:
        main()
