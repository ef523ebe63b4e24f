"""`muster why`, `queue` and `metrics` as they are typed: what is printed, exit codes, and a line for each mistake."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from muster.answers.sources import read_source
from muster.cli.main import run
from muster.model.snapshot import encode_snapshot, save_snapshot

RUN = """
fleet: uniform:nodes=4,gpus=8,model=H100-SXM5-80GB,cpu=192,memory_gib=2048,rack=2
queues:
  - name: org
  - {name: research, parent: org, quotas: [{flavor: H100-SXM5-80GB, nominal_gpus: 16}]}
  - {name: product, parent: org, weight: 3, quotas: [{flavor: H100-SXM5-80GB, nominal_gpus: 16}]}
workload:
  - {name: small, count: 4, every_s: 1, gpus: 6, cpu: 8, queue: research, user: ann, time_limit_s: 43200,
     checkpointing: {interval_s: 600, restart_s: 120}}
  - {name: train, pods: 3, gpus: 8, cpu: 128, queue: product, user: cyd, submitted_s: 7200, time_limit_s: 86400}
until_s: 90000
config: {reclaim: false, defragment: false}
"""
"""research has borrowed 8 GPUs, and 2 are free on each node."""

Called = tuple[int, str, str]


@pytest.fixture(scope="module")
def snap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The snapshot of the run at 3 h."""
    folder = tmp_path_factory.mktemp("why")
    (folder / "run.yaml").write_text(RUN)
    save_snapshot(read_source(str(folder / "run.yaml"), 10_800.0)[0], folder / "now.snap")
    return folder / "now.snap"


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> Called:
    with pytest.raises(SystemExit) as stop:
        run([str(each) for each in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_why_for_people(snap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys, "why", "product/train", "--from", snap)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "train, 3 pods x 8 GPUs, has waited 1 h in queue product."
    assert lines[1].startswith("It needs 24 GPUs of H100-SXM5-80GB; product uses 0 GPUs of 16 GPUs nominal")
    assert "8 GPUs of its own are lent (research 8 GPUs).  [quota]" in out
    assert "nodes 4 > H100-SXM5-80GB 4 > all 8 free 0" in out
    assert "8 GPUs free there, of which 8 GPUs are of no use to such pods" in out
    assert re.search(r"^Starts in about .+; 80%: .+ \(\d+ runs into", out, re.MULTILINE)
    assert "[shortage]" in out
    assert max(map(len, lines)) <= 100


def test_why_as_data_and_by_hand(snap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "why", "train", "--from", snap, "-o", "json", "--how")
    told = json.loads(out)
    assert (code, told["schema"], told["state"]) == (1, "muster.why/v1", "waits")
    assert [each["dominant"] for each in told["blockers"]].count(True) == 1
    steps = told["funnels"][0]["steps"]
    assert steps[0]["nodes"] == 4
    assert all(before["nodes"] - after["nodes"] == len(after["lost"]) for before, after in itertools.pairwise(steps))
    assert [step["title"][:2] for step in told["by_hand"]] == ["Wh", "1.", "2.", "3.", "4."]
    assert all(step["kubectl"] and step["slurm"] and step["read"] for step in told["by_hand"])
    assert told["start"]["low_s"] <= told["start"]["expected_s"] <= told["start"]["high_s"]


def test_the_nodes_behind_a_number(snap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "why", "train", "--from", snap, "--nodes", "gpus")
    assert (code, out.split()) == (1, ["node-1", "node-2", "node-3", "node-4"])


def test_why_of_what_runs(snap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "why", "small-1", "--from", snap)
    assert code == 0
    assert out.startswith(
        "small-1, 1 pod x 6 GPUs, has run for 3 h in queue research.\nIt should end in 9 h (its limit)."
    )


def test_queue(snap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "queue", "--from", snap)
    assert code == 0
    for line in (
        "org         H100-SXM5-80GB          32    32    24         0     0          8   1 (24)",
        "  research  H100-SXM5-80GB          16     8    24         8     0          8",
        "  product   H100-SXM5-80GB          16    24     0         0     8          8   1 (24)",
        "Running: 4 gangs",
    ):
        assert line in out
    assert max(map(len, out.splitlines())) <= 100
    _, out, _ = called(capsys, "queue", "--from", snap, "-o", "json")
    told = json.loads(out)
    assert [each["job"] for each in told["waiting"]] == ["train"]
    assert {each["job"]: (each["progress"], each["borrowing"]) for each in told["running"]} == {
        f"small-{at}": (pytest.approx(0.25, abs=1e-3), True) for at in range(1, 5)
    }
    assert all(0 <= each["unsaved_s"] <= 600 for each in told["running"])
    _, out, _ = called(capsys, "queue", "--from", snap, "--queue", "product", "--running")
    assert out == "Nothing runs.\n"
    _, out, _ = called(capsys, "queue", "--from", snap, "-o", "name")
    assert out == "train\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["why", "tran"], "there is no job 'tran'; did you mean train?"),
        (["why", "train", "--nodes", "gpu"], "there is no step 'gpu'; the steps are nodes, flavor, gpus"),
        (["why", "train", "--apply", "99"], "there is no fix 99; there are 1 to"),
        (["why", "train", "--write", "x.snap"], "--write needs --apply N"),
        (["why", "train", "--at", "1h"], "has instants to choose from"),
        (["why", "train", "--set", "reservation=4"], "there is no setting 'reservation'"),
        (["why", "train", "--set", "reservations=many"], "field 'reservations': expected `int`, got `str`"),
        (["why", "train", "--set", "reservations"], "is not NAME=VALUE"),
        (["queue", "--queue", "resarch"], "there is no queue 'resarch'; did you mean research?"),
        (["metrics", "--listen", "9400"], "'9400' is not HOST:PORT"),
        (["metrics", "--write", "/"], "is a directory"),
    ],
)
def test_each_mistake_is_one_line(
    snap: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    code, out, err = called(capsys, *arguments, "--from", snap)
    assert (code, out) == (2, "")
    assert words in err
    assert len([line for line in err.splitlines() if line and not line.startswith(("Usage", "Try"))]) == 1


def test_files_that_are_no_snapshot(snap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = snap.read_bytes()
    cases = {
        "cut.snap": (data[: len(data) // 2], "is cut short or damaged"),
        "newer.snap": (data[:10] + bytes([99]) + data[11:], "is a snapshot of version 99"),
        "empty.snap": (b"", "is empty"),
        "text.snap": (b"hello\n", "text.snap"),
    }
    for name, (content, words) in cases.items():
        (tmp_path / name).write_bytes(content)
        code, _, err = called(capsys, "why", "train", "--from", tmp_path / name)
        assert (code, words in err, err.count("\n")) == (2, True, 1), err
    code, _, err = called(capsys, "why", "train", "--from", snap.with_name("nov.snap"))
    assert (code, "did you mean now.snap?" in err) == (2, True)
    assert encode_snapshot(read_source(str(snap))[0])[:10] == b"MUSTERSNAP"


def test_metrics_to_a_file(snap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "metrics", "--from", snap, "--write", tmp_path / "muster.prom")
    assert (code, out) == (0, "")
    text = (tmp_path / "muster.prom").read_text()
    assert 'muster_gpus{flavor="H100-SXM5-80GB",state="free"} 8.0' in text
    assert text.endswith("# EOF\n")
