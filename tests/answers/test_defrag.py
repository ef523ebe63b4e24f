"""Moves that make room: each plan is applied to a copy, and the gang then starts, or the nodes are whole."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.changes import apply_changes, parse_change
from muster.answers.defrag import RoomPlan, room_for_job, room_for_nodes, whole_nodes
from muster.answers.sources import read_source
from muster.answers.view import View
from muster.cli.main import run
from muster.engine.config import config_of
from muster.engine.state import Allocation
from muster.errors import InputError
from muster.model.fleet import Fleet, Node
from muster.model.snapshot import Snapshot

Make = Callable[[int], Snapshot]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "make-room-by-moving.md"


def check(view: View, plan: RoomPlan) -> Snapshot:
    """The snapshot after the moves: whole, nothing given out twice, and at the price that was told."""
    after = apply_changes(view.snapshot, [line.change for line in plan.moves])
    scheduler = View(after, view.config).scheduler
    rows = (row for run in scheduler.running for row in run.rows.T.tolist())
    scheduler.cluster.state.validate(Allocation(*row) for row in rows)
    assert plan.cost_gpu_s == pytest.approx(sum(line.cost_gpu_s for line in plan.moves))
    before = {run.workload.name: run for run in view.snapshot.running}
    for line in plan.moves:
        now = next(run for run in after.running if run.workload.name == line.job)
        was = before[line.job]
        assert was.workload.checkpointing is not None, "what does not save its work is not moved"
        moved = sum(old != new for old, new in zip(was.pods, now.pods, strict=True))
        assert (moved, len(was.pods)) == (line.pods, line.of_pods)
        saved_s = was.started_s if was.checkpointed_s is None else max(was.checkpointed_s, was.started_s)
        milli = sum(len(pod.devices) * pod.gpu_milli for pod in was.pods)
        lost_s = view.now_s - saved_s + was.workload.checkpointing.restart_s
        assert line.cost_gpu_s == pytest.approx(lost_s * milli / 1000)
    changes = tuple(line.change for line in plan.moves)
    if changes:
        assert parse_change("; ".join(map(str, changes)), view.snapshot) == changes, "what is printed can be read"
    return after


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), count=st.integers(1, 4), level=st.sampled_from(["", "rack", "block"]))
@example(seed=184320, count=1, level="rack")  # a whole node of another flavor with the same GPU model
def test_nodes_are_whole_after_the_moves(seed: int, count: int, level: str, random_snapshot: Make) -> None:
    snapshot = random_snapshot(seed)
    view = View(snapshot, config_of({**dict(snapshot.settings), "move_every_s": 0}))
    plan = room_for_nodes(view, count, "", level)
    before = whole_nodes(snapshot, plan.flavor)
    assert plan.whole_before == len(before)
    if plan.outcome == "none":
        assert plan.why
        return
    after = check(view, plan)
    whole = whole_nodes(after, plan.flavor)
    assert plan.whole_after == len(whole)
    assert set(plan.nodes) <= set(whole)
    if plan.outcome == "moves":
        assert plan.moves
        assert len(plan.nodes) == count
    depth = snapshot.fleet.topology.levels.index(level) if level else 0
    domains = [node.topology[depth] for node in snapshot.fleet if node.name in whole]
    assert not level or max(map(domains.count, domains)) >= count


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_gang_starts_after_the_moves(seed: int, random_snapshot: Make) -> None:
    snapshot = random_snapshot(seed)
    view = View(snapshot, config_of({**dict(snapshot.settings), "move_every_s": 0, "defragment": seed % 2 == 0}))
    for name in [each.name for each in snapshot.pending if each.gpu_milli][:3]:
        plan = room_for_job(view, name)
        if plan.outcome == "none":
            assert plan.why
            continue
        after = check(view, plan)
        place = View(after, view.config).starts[name]
        assert {pod.node for pod in place.pods} == set(plan.nodes)


@pytest.fixture
def worked(tmp_path: Path) -> str:
    """The run file of the page, without moves by itself."""
    text = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text
    path = tmp_path / "run.yaml"
    path.write_text(textwrap.dedent(text[1]) + "config: {defragment: false}\n")
    return str(path)


def test_the_worked_example(worked: str) -> None:
    view = View(read_source(worked, 7600.0)[0])
    plan = room_for_job(view, "train")
    assert (plan.outcome, [line.job for line in plan.moves], plan.nodes) == (
        "moves", ["long-4", "long-3"], ("node-3", "node-4"),
    )  # fmt: skip
    assert (plan.whole_before, plan.whole_after, plan.by_itself) == (0, 2, False)
    assert plan.sooner_s == pytest.approx(9.9 * 3600, rel=0.02)
    by_itself = room_for_job(View(view.snapshot, replace(view.config, defragment=True)), "train")
    assert (by_itself.by_itself, by_itself.moves, by_itself.nodes) == (True, plan.moves, plan.nodes)
    check(view, plan)


def test_a_checkpoint_counts_where_nothing_waits(worked: str) -> None:
    """The scheduler is told of checkpoints only where it needs them; a snapshot always has the last ones."""
    view = View(read_source(worked, 7200.0)[0])
    saved = {run.workload.name: run.checkpointed_s for run in view.snapshot.running}
    assert saved == {"long-1": 7200.0, "long-2": 5460.0, "long-3": 5520.0, "long-4": 5580.0}
    assert room_for_nodes(view, 1).cost_gpu_s == pytest.approx((0 + 300) * 4)


WHY = [
    ({"at": 7600.0, "count": 3}, "none", "16 GPUs are free in all and it takes 24 GPUs: moves free nothing"),
    ({"at": 7600.0, "count": 2, "saves": False}, "none", "nothing that runs saves its work (checkpointing)"),
    ({"at": 7600.0, "count": 2, "stopped": False}, "none", "16 GPUs are free, but no moves were found"),
    ({"at": 50_000.0, "count": 2}, "nothing to do", "nodes are whole already"),
]


@pytest.mark.parametrize(("given_", "outcome", "why"), WHY)
def test_why_there_is_nothing_to_move(given_: dict[str, float], outcome: str, why: str, worked: str) -> None:
    snapshot = read_source(worked, given_["at"])[0]
    running = tuple(
        replace(run, workload=replace(
            run.workload, preemptible=bool(given_.get("stopped", True)),
            checkpointing=run.workload.checkpointing if given_.get("saves", True) else None,
        ))
        for run in snapshot.running
    )  # fmt: skip
    plan = room_for_nodes(View(replace(snapshot, running=running, pending=())), int(given_["count"]))
    assert (plan.outcome, why in plan.why) == (outcome, True), plan.why


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["defrag", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


def test_the_command(worked: str, capfd: pytest.CaptureFixture[str]) -> None:
    where = ("--from", worked, "--at", "7600")
    code, out, _ = muster(capfd, *where, "--for", "train")
    assert code == 0
    assert "train: move 2 jobs, at 1.2 GPU-hours of lost work and restarts." in out
    assert ["long-3", "1", "of", "1", "4", "GPUs", "node-3", "node-1", "0.64"] in map(str.split, out.splitlines())
    assert "It then starts at once on node-[3-4], about 9 h 54 min sooner." in out
    code, out, _ = muster(capfd, *where, "--for", "train", "-o", "json")
    document = json.loads(out)
    assert (document["schema"], document["outcome"], document["whole_nodes_after"]) == ("muster.defrag/v1", "moves", 2)
    assert document["moves"][0]["change"] == "move long-4 to node-2:4-7"
    code, out, _ = muster(capfd, "--from", worked, "--at", "2h", "--whole-nodes", "2", "--commands", "whatif")
    assert (code, out) == (0, "move long-1 to node-2:4-7; move long-4 to node-3:4-7\n")
    _, out, _ = muster(capfd, *where, "--for", "train", "--commands", "kubectl")
    assert out.splitlines()[0] == "kubectl cordon node-4 node-3"
    _, out, _ = muster(capfd, *where, "--for", "train", "--commands", "slurm")
    assert "scontrol update JobId=$(squeue -h -o %A --name=long-4) ReqNodeList=node-2" in out
    code, out, err = muster(capfd, *where, "--whole-nodes", "4", "--commands", "slurm")
    assert (code, out, "moves free nothing" in err) == (1, "", True)


MISTAKES = [
    ((), "give --for JOB or --whole-nodes N ("),
    (("--for", "train", "--whole-nodes", "2"), "give --for JOB or --whole-nodes N ("),
    (("--for", "train", "--in", "rack"), "--flavor and --in go with --whole-nodes"),
    (("--for", "trian"), "there is no job 'trian'; did you mean train?"),
    (("--for", "long-1"), "long-1 runs already"),
    (("--whole-nodes", "2", "--flavor", "H10"), "there is no flavor 'H10'; did you mean H100?"),
    (("--whole-nodes", "2", "--in", "rack"), "there is no topology level 'rack'; known: none"),
]


@pytest.mark.parametrize(("args", "told"), MISTAKES)
def test_each_mistake_is_one_line(
    args: tuple[str, ...], told: str, worked: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = muster(capfd, "--from", worked, "--at", "7600", *args)
    assert (code, out) == (2, "")
    assert told in err


def test_a_fleet_without_gpus_has_no_whole_nodes() -> None:
    with pytest.raises(InputError, match="the fleet has no GPUs"):
        room_for_nodes(View(Snapshot(Fleet((Node("n1", 8000, 1 << 30),)))), 1)
