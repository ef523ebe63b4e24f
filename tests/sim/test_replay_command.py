"""`muster simulate` on recorded jobs: replayed without being told so, the same bytes in one process or several."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from muster.cli.main import run
from muster.cli.replay import default_arrivals
from muster.errors import InputError
from muster.sim.replay_runs import PARTS, ReplayTask, replay_one, replay_tasks

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-03 00:{minute:02d}:00,{600 + 7 * minute},{gpus},0,vc{minute % 2}\n"
    for minute, gpus in enumerate((1, 2, 8, 4, 1, 16, 1, 48, 8, 2) * 4)
)
SWF = "; UnixStartTime: 0\n" + "".join(
    f"{job} {job * 10} -1 {100 + job} {cores} -1 -1 {cores} 999 -1 1 1 1 -1 1 -1 -1 -1\n"
    for job, cores in enumerate((1, 4, 16, 2, 33, 8, 1) * 4, start=1)
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "philly.csv").write_text(PHILLY)
    (tmp_path / "jobs.swf").write_text(SWF)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        run(["simulate", *arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


GPU_RUN = ["--workload", "philly:philly.csv", "--fleet", "uniform:nodes=4,gpus=8,model=P100"]
CPU_RUN = ["--workload", "swf:jobs.swf", "--fleet", "uniform:nodes=4,gpus=0,cpu=8"]


def test_contract_line_replays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called([*GPU_RUN, "--policy", "best-fit,fgd", "-o", "json"], capsys)
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "muster.simulate/v1"
    for one in document["runs"]:
        assert {"workload", "policy", "seed", "gpus", "wall_s", "placements_per_s"} <= set(one)
        assert (one["gpus"], one["arrived"], one["placed"], one["rejected"]) == (32, 40, 36, 4)
        assert one["rejected_by_reason"] == {"gang_size": 4}
        assert one["wait_max_s"] >= one["wait_p99_s"] >= one["wait_p90_s"] >= one["wait_p50_s"] >= 0
        assert one["slowdown_mean"] >= 1
        assert 0 < one["gpu_utilisation"] <= 1


def test_default_policy_on_cpu_only_work_says_that_nothing_was_fitted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = called([*CPU_RUN, "--policy", "default", "-o", "json"], capsys)
    assert code == 0
    assert json.loads(out)["runs"][0]["placed"] == 24
    assert "start weights" in err


def test_same_bytes_in_one_process_or_several(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = [*GPU_RUN, "--policy", "random,best-fit", "--seeds", "1..2", "--no-timings", "-o", "json"]
    first = called(sweep, capsys)
    parallel = called([*sweep, "--jobs", "2"], capsys)
    assert first == parallel
    runs = [(one["policy"], one["seed"]) for one in json.loads(first[1])["runs"]]
    assert runs == [("random", 1), ("random", 2), ("best-fit", 1), ("best-fit", 2)]


def test_csv_is_flat_and_the_table_tells_why_jobs_never_start(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, flat, _ = called([*CPU_RUN, "-o", "csv"], capsys)
    row = next(csv.DictReader(io.StringIO(flat)))
    assert (row["rejected"], row["rejected_by_reason_gang_size"]) == ("4", "4")
    code, out, err = called(CPU_RUN, capsys)
    assert code == 0
    assert "mean wait" in out
    assert (
        "4 jobs can never start (gang_size); job-5 asks for 33 pods of 1 CPU at once: the empty fleet takes 32." in err
    )
    assert "Traceback" not in err


def test_what_is_replayed_by_default(folder: Path) -> None:
    (folder / "plain.swf").write_text(SWF)
    assert default_arrivals(["philly:philly.csv", "jobs.swf"]) == "replay"
    assert default_arrivals(["generate:mix=default"]) == "inflate:1.3"
    with pytest.raises(InputError, match="is needed"):
        default_arrivals(["philly:philly.csv", "generate:mix=default"])


def test_a_converted_trace_is_replayed_as_its_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["trace", "convert", "philly:philly.csv", "philly.trace.gz"])
    capsys.readouterr()
    assert default_arrivals(["muster:philly.trace.gz"]) == "replay"
    assert default_arrivals(["philly.trace.gz"]) == "replay"


@pytest.mark.parametrize(
    ("extra", "said"),
    [(["--resume"], "--resume"), (["--workload", "swf:none.swf"], "none.swf"), (["--seeds", "2..1"], "--seeds")],
)
def test_each_mistake_is_one_line(
    folder: Path, extra: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = called([*CPU_RUN, *extra], capsys)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_progress_is_told_and_changes_nothing(folder: Path) -> None:
    task = ReplayTask("uniform:nodes=4,gpus=0,cpu=8", "swf:jobs.swf", "best-fit", 1)
    told: list[None] = []
    one, other = replay_one(task), replay_one(task, lambda: told.append(None))
    assert len(told) == PARTS
    assert msgspec.structs.replace(one, wall_s=0) == msgspec.structs.replace(other, wall_s=0)
    (again,) = replay_tasks([task], 1)
    assert again.arrived == one.arrived


def test_skipped_rows_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "jobs.swf").write_text(SWF + "99 5 -1 0 1 -1 -1 1 999 -1 1 1 1 -1 1 -1 -1 -1\n")
    code, _, err = called([*CPU_RUN, "-o", "json"], capsys)
    assert code == 0
    assert "jobs: 1 rows skipped" in err
