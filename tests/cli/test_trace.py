from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from muster.model import load_snapshot
from muster.traces import read_fleet, read_workload

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,4000,1024,1,500\nb,4000,1024,8,1000\nc,4000,1024,0,0\n"
SWF = "; c\n1 0 5 10 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n2 9 -1 -1 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    path = tmp_path / "pods.csv"
    path.write_text(PODS)
    return path


def muster(capfd: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    from muster.cli.main import run

    with pytest.raises(SystemExit) as ended:
        run(["trace", *map(str, args)])
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def test_info_for_people(capfd: pytest.CaptureFixture[str], pods: Path, tmp_path: Path) -> None:
    code, out, err = muster(capfd, "info", f"openb:{pods}")
    assert (code, err) == (0, "")
    assert "3 workloads" in out
    assert "demand in all: 8.5 GPUs, 12 cores, 3.0 GiB" in out
    for row in ("no GPU", "part of a GPU", "5-8"):
        assert row in out
    (tmp_path / "jobs.swf").write_text(SWF)
    code, out, _ = muster(capfd, "info", tmp_path / "jobs.swf", pods)
    assert code == 0
    assert "Skipped 1 row" in out
    assert "jobs.swf:3: field 'run': run time is -1" in out
    assert "Size in cores" in out
    assert "Size in GPUs" in out


def test_info_for_machines(capfd: pytest.CaptureFixture[str], pods: Path) -> None:
    code, out, _ = muster(capfd, "info", pods, "generate:mix=philly,pods=50", "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "muster.trace.info/v1")
    first, second = document["traces"]
    assert (first["workloads"], first["gpus"], first["gpu_workloads"], first["skipped"]) == (3, 8.5, 2, 0)
    assert first["run_s"] is None
    assert second["run_s"]["known"] == 50
    assert [size["size"] for size in first["sizes"]] == ["no GPU", "part of a GPU", "5-8"]
    _, out, _ = muster(capfd, "info", pods, "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["name"], row["pods"], row["run_p50_s"]) == ("pods", "3", "")
    assert muster(capfd, "info", pods, "-o", "name")[1] == "pods\n"


def test_convert(capfd: pytest.CaptureFixture[str], pods: Path, tmp_path: Path) -> None:
    code, out, err = muster(capfd, "convert", f"openb:{pods}", tmp_path / "t.gz")
    assert (code, out) == (0, "")
    assert "3 workloads" in err
    assert read_workload(str(tmp_path / "t.gz")).workloads == read_workload(str(pods)).workloads
    assert muster(capfd, "convert", "--fleet", "example", tmp_path / "f")[0] == 0
    assert read_fleet(str(tmp_path / "f"))[0] == read_fleet("example")[0]
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 4, "memory": "1Gi"}}}
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": [node]}))
    assert muster(capfd, "convert", "--snapshot", tmp_path / "dump.json", tmp_path / "s")[0] == 0
    assert load_snapshot(tmp_path / "s").fleet.nodes[0].cpu_milli == 4000


def test_generate(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ("generate", "--mix", "philly", "--pods", 100, "--seed", 3, "--set", "gpus_per_pod=4", "-O")
    assert muster(capfd, *args, tmp_path / "a.gz")[0] == 0
    assert muster(capfd, *args, tmp_path / "b.gz")[0] == 0
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert len(read_workload(str(tmp_path / "a.gz")).workloads) == 100
    code, out, _ = muster(capfd, "generate", "--list", "-o", "name")
    assert (code, out.split()[:2]) == (0, ["default", "cpu-heavy"])
    assert muster(capfd, "generate")[0] == 2


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("info", "opneb:x"), "muster: 'opneb:x': 'opneb' is no kind of workload; did you mean openb?"),
        (("info", "openb:nowhere.csv"), "muster: nowhere.csv: does not exist"),
        (("convert", "openb:nowhere.csv", "out"), "muster: nowhere.csv: does not exist"),
        (("convert", "generate:pods=3", "no/such/folder/out"), "muster: no/such/folder/out: cannot be written"),
        (("generate", "--mix", "nope", "-O", "out"), "'nope' is unknown"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = muster(capfd, *args)
    assert (code, out) == (2, "")
    assert what in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_every_help_has_examples(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("info", "convert", "generate"):
        code, out, _ = muster(capfd, name, "--help")
        assert code == 0
        assert f"muster trace {name}" in out.partition("Examples:")[2]


def test_a_pipe_that_closes_early_is_no_error(pods: Path) -> None:
    code = "import sys; from muster.cli.main import run; run(sys.argv[1:])"
    command = f"'{sys.executable}' -c '{code}' trace info {' '.join([str(pods)] * 200)} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("pods")
    assert done.stderr == ""
