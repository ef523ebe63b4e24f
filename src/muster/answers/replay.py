"""The next cycles of a snapshot: what the scheduler decides if running work ends when it is taken to end."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.answers.decisions import counted, record_of
from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.errors import InputError
from muster.model.plan import Plan
from muster.model.snapshot import Snapshot, load_snapshot, save_snapshot
from muster.sim.cluster_run import ClusterRun
from muster.sim.run_inputs import RunOptions

MOST_CYCLES = 1_000_000


class Cycle(Struct, frozen=True):
    """One cycle: its number (from 1), when, what was decided, and who then waits, counted by reason."""

    number: int
    time_s: float
    plan: Plan
    waits: tuple[dict[str, Any], ...]

    def records(self) -> Iterator[dict[str, Any]]:
        """A record a decision, then one a reason for which work waits."""
        for record in (*map(record_of, self.plan.decisions), *self.waits):
            yield {"cycle": self.number, "time_s": self.time_s, **record}


def replay(snapshot: Snapshot, config: Config, *, cycles: int | None = None, for_s: float = math.inf) -> list[Cycle]:
    """The next ``cycles`` cycles, or those of the next ``for_s`` seconds; fewer where nothing more happens.

    Work that runs ends when the scheduler takes it to end, and work that starts as long after its start as it is taken
    to run. The same snapshot and config give the same cycles.
    """
    if cycles is None and math.isinf(for_s):
        raise InputError("the replay has no end", field="--cycles", hint="a number of cycles, or --for TIME")
    run = ClusterRun(with_expected_run_times(snapshot, config), (), config, RunOptions(keep_plans=True))
    found: list[Cycle] = []
    most = MOST_CYCLES if cycles is None else cycles
    until_s = min(snapshot.taken_s + for_s, sys.float_info.max)
    while len(found) < most and run.next_s <= until_s:
        before = run.cycles, len(run.plans)
        run.step()
        if run.cycles > before[0]:
            plan = run.plans[-1][1] if len(run.plans) > before[1] else Plan()
            waits = tuple(counted(run.scheduler.waits(run.now_s)))
            found.append(Cycle(len(found) + 1, run.now_s, plan, waits))
    return found


def with_expected_run_times(snapshot: Snapshot, config: Config) -> Snapshot:
    """A snapshot in which all work has the run time that the scheduler takes it to have."""
    scheduler = Scheduler(replace(snapshot, pending=()), config)
    running, now_s = scheduler.running, snapshot.taken_s
    return replace(
        snapshot,
        running=tuple(
            replace(run, workload=replace(run.workload, duration_s=ends_s - run.started_s))
            for run in snapshot.running
            for ends_s in [running.ends_s(running[run.workload.name], now_s)]
        ),
        pending=tuple(replace(each, duration_s=running.expected_s(each)) for each in snapshot.pending),
    )  # fmt: skip


def fingerprint(found: list[Cycle]) -> str:
    """A digest of all plans with their times, to the byte."""
    return hashlib.sha256(msgspec.msgpack.encode([(each.time_s, each.plan) for each in found])).hexdigest()


def verify(snapshot: Snapshot, config: Config, *, cycles: int | None = None, for_s: float = math.inf) -> bool:
    """Whether another process, with another order of its sets, makes the same plans to the byte."""
    found = fingerprint(replay(snapshot, config, cycles=cycles, for_s=for_s))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "verify.snap"
        save_snapshot(snapshot, path)
        until = None if math.isinf(for_s) else for_s
        settings = msgspec.json.encode({"config": config, "cycles": cycles, "for_s": until})
        seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        code = "import sys; from muster.answers.replay import fingerprint_of; print(fingerprint_of(*sys.argv[1:]))"
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), settings.decode()],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise InputError(f"the second replay failed: {lines[-1]}", field="--verify")
    return done.stdout.strip() == found


def fingerprint_of(path: str, settings: str) -> str:
    """The fingerprint of what `verify` asks another process for."""
    asked = msgspec.json.decode(settings)
    config = msgspec.convert(asked["config"], Config)
    for_s = math.inf if asked["for_s"] is None else asked["for_s"]
    return fingerprint(replay(load_snapshot(path), config, cycles=asked["cycles"], for_s=for_s))
