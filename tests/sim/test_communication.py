"""Run times that depend on where a job stands, from a run file on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from muster.errors import InputError
from muster.sim.metrics import measure
from muster.sim.run_file import prepare_run

# Two nodes have 4 GPUs left each, so the first gang that comes is split, unless its ranks are looked at.
TORN = """\
fleet: uniform:nodes=3,gpus=8,model=H200
workload:
  - {name: half, gpus: 4, count: 2, duration_s: 40000}
  - name: tp
    pods: 2
    gpus: 4
    submitted_s: 10
    duration_s: 3600
    checkpointing: {interval_s: 600, restart_s: 60}
    topology: TOPOLOGY
    parallelism: {tensor: 8, parameters: 70e9, layers: 80, hidden: 8192, achieved_tflops: 400}
config: {rank_groups: RANKS, placement: POLICY}
communication: COMMUNICATION
check_every: 1
"""
FACTOR = 1.2038
"""The step's slow-down at 4+4, worked out by hand in tests/planning/test_placed.py."""


def text(ranks: bool, communication: str, topology: str = "{spread: host}") -> str:
    return (
        TORN.replace("RANKS", str(ranks).lower())
        .replace("COMMUNICATION", communication)
        .replace("TOPOLOGY", topology)
        .replace("POLICY", "best-fit")
    )


def run(tmp_path: Path, document: str) -> Any:
    path = tmp_path / "run.yaml"
    path.write_text(document)
    prepared = prepare_run(str(path))
    prepared.run.run()
    return prepared.run


def test_a_torn_group_runs_longer_by_its_slow_down(tmp_path: Path) -> None:
    done = run(tmp_path, text(ranks=False, communication="true"))
    story = done.stories[2]
    assert story.placement == "4+4"
    assert story.slowdown == pytest.approx(FACTOR, abs=5e-5)
    assert story.finished_s - story.started_s == pytest.approx(3600 * story.slowdown)
    assert story.done_s == pytest.approx(3600)
    assert story.slow_s == pytest.approx(3600 * (story.slowdown - 1))
    metrics = measure(done)
    assert metrics.slow_hours == pytest.approx(8 * story.slow_s / 3600)
    parts = metrics.useful_hours + metrics.lost_hours + metrics.restart_hours + metrics.slow_hours + metrics.idle_hours
    assert metrics.allocated_hours == pytest.approx(parts)
    assert metrics.idle_hours == pytest.approx(0, abs=1e-9)
    assert (metrics.slowdowns.jobs, metrics.slowdowns.slowed) == (1, 1)


def test_a_group_that_stays_together_does_not(tmp_path: Path) -> None:
    done = run(tmp_path, text(ranks=True, communication="true"))
    story = done.stories[2]
    assert (story.placement, story.slowdown, story.slow_s) == ("8", 1.0, 0.0)
    assert story.finished_s - story.started_s == 3600


def test_without_communication_it_is_only_told(tmp_path: Path) -> None:
    for communication in ("false", "{stretch: false}"):
        story = run(tmp_path, text(ranks=False, communication=communication)).stories[2]
        assert story.slowdown == pytest.approx(FACTOR, abs=5e-5)
        assert (story.finished_s - story.started_s, story.slow_s) == (3600, 0)


def test_the_network_may_be_said(tmp_path: Path) -> None:
    fast = "{nic: ConnectX-8, nics_per_gpu: 2}"
    story = run(tmp_path, text(ranks=False, communication=fast)).stories[2]
    assert 1 < story.slowdown < 1.1
    given = run(tmp_path, text(ranks=False, communication="{inside_gb_per_s: 367, outside_gb_per_s: 36.5}"))
    assert given.stories[2].slowdown == pytest.approx(FACTOR, abs=5e-5)


def test_an_eviction_loses_what_was_done_at_the_slower_pace(tmp_path: Path) -> None:
    urgent = "  - {name: urgent, pods: 3, gpus: 8, submitted_s: 1510, duration_s: 60, priority: 9}\nconfig:"
    document = text(ranks=False, communication="true").replace("config:", urgent).replace("40000", "1400")
    done = run(tmp_path, document)
    story = done.stories[2]
    assert story.evictions == 1
    # 1,500 s at the pace of 4+4, of which 1,200 are saved; then 60 s of restart
    assert story.lost_s == pytest.approx(300 / FACTOR, rel=1e-3)
    assert story.done_s == pytest.approx(3600)
    assert story.restart_s == 60
    metrics = measure(done)
    assert metrics.idle_hours == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tensor: 8", "tensor: 3", "run.yaml:11: field 'workload[1].parallelism.tensor': 3 GPUs of a group and 4 of a"),
        ("tensor: 8", "tensor: 0", "run.yaml:11: field 'workload[1].parallelism.tensor'"),
        ("tensor: 8", "tensor: 8, data: 2", "field 'workload[1].parallelism.data': 8 x 1 x 2 = 16 GPUs, and the pods"),
        ("tensor: 8", "tensors: 8", "field 'workload[1].parallelism.tensors': is not known"),
        ("achieved_tflops: 400", "overlap: 2", "field 'workload[1].parallelism.overlap'"),
        ("model=H200", "model=T4", "field 'workload[1].parallelism.achieved_tflops': is not given"),
        ("communication: true", "communication: {nic: avian}", "run.yaml:13: field 'communication.nic': unknown NIC"),
        ("communication: true", "communication: {leaf: rack}", "field 'communication.leaf': unknown topology level"),
        ("communication: true", "communication: 3", "field 'communication': must be"),
        ("rank_groups: false", "keep_whole: shelf", "field 'config.keep_whole': unknown topology level 'shelf'"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    document = text(ranks=False, communication="true")
    assert old in document
    document = document.replace(old, new)
    if "T4" in new:
        document = document.replace(", achieved_tflops: 400", "")
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        run(tmp_path, document)
    assert "\n" not in str(caught.value)


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from muster.cli.main import run as muster

    path = tmp_path / "run.yaml"
    path.write_text(text(ranks=False, communication="true"))
    for output in ("json", "table"):
        with pytest.raises(SystemExit):
            muster(["simulate", str(path), "-o", output, "--no-timings"])
    out = capsys.readouterr().out
    document, end = json.JSONDecoder().raw_decode(out)
    assert document["jobs"][2]["placement"] == "4+4"
    assert document["jobs"][2]["slowdown"] == pytest.approx(FACTOR, abs=5e-5)
    assert document["jobs"][0]["slowdown"] is None
    assert document["metrics"]["slowdowns"]["jobs"] == 1
    assert re.search(r"slow-down of a step +1\.204 +mean of 1; most 1\.204; 1 above 1\.05", out[end:])
    assert re.search(r"slow +1\.6 ", out[end:])


def test_levels_of_uniform_fleets(tmp_path: Path) -> None:
    fleet = "uniform:nodes=36,gpus=4,model=GB200,rack=18,nvlink_domain=18"
    done = run(tmp_path, text(ranks=True, communication="true", topology="{required: rack}").replace(
        "uniform:nodes=3,gpus=8,model=H200", fleet))  # fmt: skip
    assert done.fleet.topology.levels == ("rack", "nvlink_domain")
    assert done.fleet.nodes[18].topology == ("rack-2", "nvlink-domain-2")
    assert done.stories[2].placement == "8"
    with pytest.raises(InputError, match="18 nodes of a rack are no multiple of the 4 of a nvlink_domain"):
        run(tmp_path, text(ranks=True, communication="true").replace(
            "uniform:nodes=3,gpus=8,model=H200", fleet.replace("nvlink_domain=18", "nvlink_domain=4")))  # fmt: skip


NVL72 = """\
fleet: uniform:nodes=72,gpus=4,model=GB200,nvlink_domain=18
workload:
  - {name: infer, gpus: 4, count: 30, every_s: 60, duration_s: 3600}
  - name: moe
    pods: 32
    gpus: 4
    submitted_s: 1800
    duration_s: 7200
    parallelism: {tensor: 4, expert: 16, expert_layers: 56, top_k: 8, parameters: 37e9, achieved_tflops: 800}
communication: true
check_every: 1
"""


def test_the_example_of_the_docs_with_nvl72(tmp_path: Path) -> None:
    together = run(tmp_path, NVL72).stories[-1]
    assert (together.placement, together.slowdown) == ("64+64", 1.0)
    torn = run(tmp_path, NVL72 + 'config: {rank_groups: false, keep_whole: ""}\n').stories[-1]
    assert torn.placement == "24+72+32"
    assert torn.slowdown == pytest.approx(4.6, abs=0.05)


def test_an_elastic_gang_has_whole_replicas_and_waits_in_turn(tmp_path: Path) -> None:
    """A replica is two pods of 4 GPUs; seven halves of nodes are free, of which six are in pairs on one node."""
    from muster.engine.config import Config
    from muster.engine.scheduler import Scheduler
    from muster.model.parallelism import Parallelism
    from muster.model.plan import Place, Reserve
    from muster.model.snapshot import Snapshot
    from muster.model.workload import PodSet, PodShape, Workload
    from muster.traces import read_fleet

    fleet, _ = read_fleet("uniform:nodes=4,gpus=8,model=H200")
    scheduler = Scheduler(Snapshot(fleet), Config())
    scheduler.submit(Workload("half", (PodSet(PodShape(gpus=4)),), time_limit_s=100.0))
    pods = PodSet(PodShape(gpus=4), 8, min_count=2)
    scheduler.submit(Workload("tp", (pods,), time_limit_s=50.0, submitted_s=1.0, parallelism=Parallelism(8)))
    scheduler.submit(Workload("next", (PodSet(PodShape(gpus=4), 2),), submitted_s=2.0, parallelism=Parallelism(8)))
    plan = scheduler.cycle(2.0)
    placed = {each.workload: each for each in plan.decisions if isinstance(each, Place)}
    assert len(placed["tp"].pods) == 6
    nodes = [pod.node for pod in placed["tp"].pods]
    assert [nodes[at] == nodes[at + 1] for at in (0, 2, 4)] == [True] * 3
    reserved = [each for each in plan.decisions if isinstance(each, Reserve)]
    assert [(each.workload, each.start_s) for each in reserved] == [("next", 52.0)]
