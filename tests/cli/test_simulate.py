"""`muster simulate`: the contract of its output, determinism, and one clear line for each mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from muster.cli.main import run
from muster.cli.simulate import parse_arrivals, parse_seeds
from muster.errors import InputError

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{index:02d},{cpu},262144,{gpus},{model}\n"
    for index in range(24)
    for cpu, gpus, model in [((96000, 8, "G2"), (64000, 2, "T4"), (32000, 2, "P100"))[index % 3]]
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{index:03d},{cpu},{memory},{gpus},{milli},{spec}\n"
    for index in range(120)
    for cpu, memory, gpus, milli, spec in [
        (
            (8000, 16384, 1, 1000, ""),
            (4000, 8192, 1, 460, ""),
            (2000, 4096, 1, 810, "T4|G2"),
            (16000, 32768, 0, 0, ""),
            (32000, 65536, 4, 1000, "G2"),
        )[index % 5]
    ]
)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return ["simulate", "--fleet", "openb:nodes.csv", "--workload", "openb:pods.csv"]


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_json_contract(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called([*inputs, "--policy", "fgd,best-fit", "--seeds", "42..43", "-o", "json"], capsys)
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "muster.simulate/v1"
    assert [(one["policy"], one["seed"]) for one in document["runs"]] == [
        ("fgd", 42), ("fgd", 43), ("best-fit", 42), ("best-fit", 43),
    ]  # fmt: skip
    for one in document["runs"]:
        assert one["arrived"] == one["placed"] + one["rejected"]
        assert one["gpus"] == 96
        assert one["wall_s"] > 0
        assert {"50", "100"} <= set(one["allocated_percent"])
        for mark, allocated in one["allocated_percent"].items():
            assert 0 < allocated <= min(100.0, float(mark) + 1.5)
            assert 0 <= one["fragmented_percent"][mark] <= 100 - allocated + 0.01


def test_csv_is_the_same_flat(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = called([*inputs, "--no-timings", "-o", "json"], capsys)
    _, flat, _ = called([*inputs, "--no-timings", "-o", "csv"], capsys)
    one = json.loads(text)["runs"][0]
    row = next(csv.DictReader(io.StringIO(flat)))
    assert float(row["allocated_percent_100"]) == one["allocated_percent"]["100"]
    assert int(row["rejected"]) == one["rejected"]


def test_same_input_same_bytes_in_one_process_or_several(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sweep = [*inputs, "--policy", "random,fgd", "--seeds", "1,7", "--no-timings", "-o", "json"]
    first = called(sweep, capsys)
    again = called(sweep, capsys)
    parallel = called([*sweep, "--jobs", "2"], capsys)
    assert first == again == parallel


def test_table_names_its_columns(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called([*inputs, "--policy", "best-fit"], capsys)
    assert code == 0
    assert "best-fit" in out
    assert "100 %" in out
    assert "Next:" in err
    assert max(len(line) for line in out.splitlines()) <= 100


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--policy", "fdg"], "did you mean fgd"),
        (["--policy", ","], "names no policy"),
        (["--seeds", "9..3"], "--seeds"),
        (["--seeds", "x"], "--seeds"),
        (["--arrivals", "inflate:many"], "--arrivals"),
        (["--arrivals", "flood"], "--arrivals"),
        (["--workload", "openb:missing.csv"], "missing.csv"),
        (["--fleet", "uniform:nodes=3,gpus=0,cpu=8"], "no GPUs"),
    ],
)
def test_each_mistake_is_one_line(
    inputs: list[str], extra: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = called([*inputs, *extra], capsys)
    assert code == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_specs_of_arrivals_and_seeds() -> None:
    assert parse_arrivals("inflate") == ("inflate", 1.3)
    assert parse_arrivals("inflate:0.5") == ("inflate", 0.5)
    assert parse_arrivals("replay") == ("replay", 1.0)
    assert parse_seeds("3,1..2,3") == [3, 1, 2]
    with pytest.raises(InputError):
        parse_seeds("1..99999")


@pytest.mark.parametrize(
    "text", ["", "-1", "1,,2", "5..1", "..3", "3..", "1..2..3", "²", "٣", "x", "9" * 5000, "1..1" + "0" * 5000]
)
def test_seeds_that_are_none(text: str) -> None:
    with pytest.raises(InputError) as told:
        parse_seeds(text)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("huge,4000,1024,16,1000,,LS,Running,0,10,0", "16 GPUs"),
        ("thirsty,4000000,1024,1,1000,,LS,Running,0,10,0", "4000 CPU"),
        ("exotic,4000,1024,1,1000,B999,LS,Running,0,10,0", "B999"),
    ],
)
def test_a_pod_that_fits_no_node_is_refused_with_its_line(
    row: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    path = tmp_path / "pods.csv"
    path.write_text(f"{head}\nfine,4000,1024,1,1000,,LS,Running,0,10,0\n{row}\n")
    run = ["simulate", "--fleet", "uniform:nodes=4,gpus=8,model=A100", "--workload", f"openb:{path}", "--policy", "fgd"]
    code, out, err = called(run, capsys)
    assert (code, out) == (2, "")
    assert f"{path}:3" in err
    assert said in err
    assert "--keep-unfit" in err
    assert len(err.strip().splitlines()) == 1
    code, out, _ = called([*run, "--keep-unfit", "-o", "json"], capsys)
    assert code == 0
    assert json.loads(out)["runs"][0]["rejected"] > 0
