"""Moves in the simulated cluster: what they cost is counted, and nothing is done twice."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.config import Config
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Migrate
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload
from muster.sim.cluster_run import ClusterRun, RunOptions
from muster.sim.metrics import measure
from muster.sim.run_file import prepare_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "make-room-by-moving.md"


@pytest.mark.parametrize(("more", "moves", "wait_h", "hours"), [("", 2, 0.0, 1.0), ("defragment: false", 0, 7.93, 0.0)])
def test_the_worked_example(tmp_path: Path, more: str, moves: int, wait_h: float, hours: float) -> None:
    text = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text
    path = tmp_path / "run.yaml"
    path.write_text(f"{text[1]}\n    config: {{{more}}}\n")
    run = prepare_run(str(path)).run
    run.run()
    metrics = measure(run)
    assert (metrics.moves, metrics.moved_jobs) == (moves, moves)
    assert metrics.move_hours == pytest.approx(hours, abs=0.05)
    assert metrics.move_hours <= metrics.lost_hours + metrics.restart_hours + 1e-9
    train = next(run.stories[job] for job, each in enumerate(run.workloads) if each.name == "train")
    assert (train.started_s - train.submitted_s) / 3600 == pytest.approx(wait_h, abs=0.01)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), one_by_one=st.booleans())
def test_all_work_is_done_once_and_what_moves_cost_is_lost_or_restart(seed: int, one_by_one: bool) -> None:
    rng = random.Random(seed)
    devices = tuple(Device(index, "H100") for index in range(8))
    nodes = tuple(Node(f"n{i}", 64_000, 1 << 40, devices, topology=(f"r{i // 2}",)) for i in range(6))
    work = tuple(
        Workload(
            f"w{number:02}", (PodSet(PodShape(1000, 0, gpus), pods),), number * 300.0, duration_s, duration_s * 1.5,
            checkpointing=Checkpointing(600.0, 60.0) if rng.random() < 0.9 else None,
            topology=TopologyRequest(required="rack") if pods == 2 and rng.random() < 0.5 else None,
        )
        for number in range(40)
        for gpus, pods in [rng.choice(((1, 1), (2, 1), (4, 1), (4, 2), (8, 1), (8, 2), (8, 3)))]
        for duration_s in [rng.choice((1000.0, 5000.0, 20_000.0))]
    )  # fmt: skip
    config = Config(placement="random", move_limit=2.0, gangs="one-by-one" if one_by_one else "all-or-nothing")
    options = RunOptions(check_every=1, keep_plans=True, at_limit="run-on")
    run = ClusterRun(Snapshot(Fleet(nodes, Topology(("rack",)))), work, config, options)
    run.run(400_000.0)
    moves = [each.workload for _, plan in run.plans for each in plan.decisions if isinstance(each, Migrate)]
    assert sum(story.moves for story in run.stories) == len(moves)
    for workload, story in zip(run.workloads, run.stories, strict=True):
        assert story.move_s <= story.lost_s + story.restart_s + 60.0 + 1e-6, "a restart may be cut short"
        if not math.isnan(story.finished_s):
            assert story.done_s == pytest.approx(workload.duration_s), "what is lost is done again, and nothing twice"
        if not one_by_one:
            assert story.starts in (0, 1 + story.evictions + story.moves)
