from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from muster.cli.main import run

RUN = """
fleet: uniform:nodes=2,gpus=8,model=H100,rack=1
queues: [{name: research, quotas: [{flavor: H100, nominal_gpus: 24}]}]
default_queue: research
config: {reservations: 4}
workload:
  - {name: eval, gpus: 8, duration_s: 1000, time_limit_s: 2000, user: ann}
  - {name: train, pods: 2, gpus: 8, submitted_s: 100, duration_s: 1000, user: bob}
"""


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["snapshot", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    return str(path)


def test_save_show_edit_and_compare(run_file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snap, edited = str(tmp_path / "now.snap"), tmp_path / "edited.yaml"
    code, out, err = muster(capfd, "save", run_file, "--at", "10m", "-o", snap)
    assert (code, out) == (0, "")
    assert "2 nodes, 16 GPUs, 1 running, 1 waiting." in err
    code, out, _ = muster(capfd, "show", snap)
    assert code == 0
    assert "Taken at 600 s (10 min) from simulated:run.yaml" in out
    assert "Settings that differ: reservations=4." in out
    assert "1 running on 8 GPUs; 1 waiting (1 of several pods) for 16 GPUs." in out
    rows = [line.split() for line in out.splitlines()]
    assert ["H100", "2", "0", "0", "1", "16", "0", "8", "8"] in rows
    assert ["research", "1", "24", "1", "8", "1", "16"] in rows
    code, out, _ = muster(capfd, "show", snap, "-o", "yaml")
    assert code == 0
    edited.write_text(out)
    assert muster(capfd, "diff", snap, str(edited))[:2] == (0, "They are the same.\n")
    edited.write_text(out.replace("  user: bob", "  user: bob\n  priority: 7"))
    code, out, _ = muster(capfd, "diff", snap, str(edited), "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"], document["same"]) == (1, "muster.snapshot.diff/v1", False)
    assert document["differences"] == [{
        "group": "jobs changed", "name": "train", "text": "~ priority: 0 -> 7", "path": "pending.train.priority",
        "before": 0, "after": 7,
    }]  # fmt: skip


def test_the_whole_document_and_its_lists(run_file: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muster(capfd, "show", run_file, "--at", "600", "-o", "json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "muster.snapshot/v1"
    assert "duration_s" not in out, "no answer may know how long work will really run"
    assert document["settings"] == {"reservations": 4}
    _, out, _ = muster(capfd, "show", run_file, "--at", "600", "-o", "yaml")
    assert yaml.safe_load(out) == document
    _, out, _ = muster(capfd, "show", run_file, "--at", "600", "-o", "csv")
    assert [(row["workload"], row["state"], row["gpus"]) for row in csv.DictReader(io.StringIO(out))] == [
        ("train", "pending", "16.0"), ("eval", "running", "8.0"),
    ]  # fmt: skip
    assert muster(capfd, "show", run_file, "--at", "600", "-o", "name")[1] == "train\neval\n"


def test_a_fleet_and_its_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.json"
    options = (
        "--fleet",
        "uniform:nodes=2,gpus=8",
        "--workload",
        "generate:mix=philly,pods=5",
        "--set",
        "reservations=2",
    )
    code, _, err = muster(capfd, "save", *options, "-o", str(out))
    assert (code, "0 running, 5 waiting" in err) == (0, True)
    document = json.loads(out.read_text())
    assert (len(document["pending"]), document["settings"]) == (5, {"reservations": 2})
    assert "duration_s" not in out.read_text()


def test_anonymize_and_the_map_of_names(run_file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snap, out, names = str(tmp_path / "now.snap"), tmp_path / "anon.json", tmp_path / "names.json"
    muster(capfd, "save", run_file, "--at", "10m", "-o", snap)
    code, _, err = muster(capfd, "anonymize", snap, str(out), "--map", str(names), "--key", "k")
    assert code == 0
    assert "1 running, 1 waiting, without names." in err
    assert "Keep it." in err
    text, document = out.read_text(), json.loads(names.read_text())
    assert not [word for word in ("train", "eval", "research", "ann", "bob", "run.yaml") if word in text]
    work = json.loads(text)["pending"][0]
    assert document["schema"] == "muster.snapshot.names/v1"
    assert document["names"]["jobs"][work["name"]] == "train"
    assert document["names"]["users"][work["user"]] == "bob"


def test_replay_tells_each_decision(run_file: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = muster(capfd, "replay", run_file, "--at", "10m", "--cycles", "3", "--verify")
    assert code == 0
    assert "Verified: another process makes the same 3 plans, to the byte." in err
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "1 600 s (10 min) train will start in 23 min on node-[1-2]" in rows
    assert "train waits: its pods do not all fit at once" in rows
    assert "2 2000 s (33 min) train starts on node-[1-2] (16 GPUs)" in rows
    code, out, _ = muster(capfd, "replay", run_file, "--at", "10m", "--for", "1d", "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"], document["steady"]) == (0, "muster.snapshot.replay/v1", False)
    placed = [each for each in document["decisions"] if each["decision"] == "place"]
    assert [(each["workload"], each["time_s"], each["gpu_milli"]) for each in placed] == [("train", 2000.0, 16000)]


def test_a_steady_state_is_said(run_file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muster(capfd, "replay", run_file, "--at", "10m", "--set", "queueing=strict", "--cycles", "1")
    assert code == 0
    assert out.endswith("Steady state: nothing is decided in 1 cycle.\n")
    empty = str(tmp_path / "empty.snap")
    muster(capfd, "save", "--fleet", "example", "-o", empty)
    code, out, _ = muster(capfd, "replay", empty)
    assert (code, "Nothing more happens" in out) == (0, True)


MISTAKES = [
    (("replay", "RUN", "--set", "reservation=3"), "there is no setting 'reservation'"),
    (("replay", "RUN", "--for", "soon"), "'soon' is no time"),
    (("anonymize", "RUN", "no/such/x.snap"), "its folder does not exist"),
    (("anonymize", "RUN", "y.snap", "--map", "no/such/x"), "its folder does not exist"),
    (("save", "-o", "x.snap"), "give SOURCE or --context, or --fleet and --workload ("),
    (("save", "RUN", "--fleet", "example", "-o", "x.snap"), "give SOURCE or --context, or --fleet and --workload ("),
    (("save", "--workload", "generate:mix=philly", "-o", "x.snap"), "--workload needs --fleet"),
    (("save", "--fleet", "example", "--at", "5m", "-o", "x.snap"), "--at is an instant of a run file"),
    (("save", "RUN", "--at", "tomorrow", "-o", "x.snap"), "'tomorrow' is no time"),
    (("save", "RUN", "--set", "reservation=2", "-o", "x.snap"), "there is no setting 'reservation'"),
    (("save", "RUN", "-o", "no/such/x.snap"), "its folder does not exist"),
    (("save", "nothing.snap", "-o", "x.snap"), "is neither a file nor a kind of snapshot"),
    (("show", "kubectl"), "kubectl"),
    (("show", "trace.csv"), "trace.csv: holds a workload, not a snapshot"),
    (("show", "newer.snap"), "newer.snap: is a snapshot of version 9; this Muster reads up to 2; read it with a newer"),
    (("show", "cut.snap"), "cut.snap: is cut short or damaged"),
    (("diff", "RUN", "cut.snap"), "cut.snap: is cut short or damaged"),
]


@pytest.mark.parametrize(("args", "told"), MISTAKES, ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")
def test_each_mistake_is_one_line(
    args: tuple[str, ...], told: str, run_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text("name,cpu_milli,num_gpu\n")
    Path("newer.snap").write_bytes(b"MUSTERSNAP\x09x")
    muster(capfd, "save", run_file, "-o", "whole.snap")
    Path("cut.snap").write_bytes(Path("whole.snap").read_bytes()[:-20])
    code, out, err = muster(capfd, *(run_file if each == "RUN" else each for each in args))
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert not Path("x.snap").exists()
