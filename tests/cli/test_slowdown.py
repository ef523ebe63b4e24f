"""`muster slowdown`: the standard question, machine formats, and one line for each mistake."""

from __future__ import annotations

import csv
import io
import json

import pytest

from muster.cli.main import run

ASKED = ["slowdown", "--gpu", "H200", "--parameters", "70e9", "--layers", "80", "--hidden", "8192", "--tensor", "8"]
EXACT = [*ASKED, "--achieved-tflops", "400"]


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_four_and_four_against_eight(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called([*EXACT, "--placement", "8", "--placement", "4+4"], capsys)
    assert code == 0
    assert "slow-down          1.000    1.204" in out
    assert "A GPU reaches inside 367 GB/s (all-reduce 8 H200, measured); outside 36.5 GB/s (ConnectX-7 x 0.73)." in out
    assert "= 11.4 us + 201 MB / 367 GB/s + 8 us + 33.6 MB / 36.5 GB/s = 1.49 ms" in out
    assert "step: (compute + tensor and expert) (1 + bubble) + exposed pipeline and data" in out
    assert max(len(line) for line in out.splitlines()) <= 100


def test_one_placement_is_compared_with_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called([*EXACT, "--placement", "4+4", "-o", "csv"], capsys)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [row["placement"] for row in rows] == ["8", "4+4"]
    assert float(rows[1]["slowdown"]) == pytest.approx(1.2038, abs=5e-5)
    assert called([*EXACT, "--placement", "4+4", "-o", "name"], capsys)[1] == "8\n4+4\n"


def test_json_holds_the_derivation(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = called([*EXACT, "--placement", "8", "--placement", "4+4", "-o", "json"], capsys)
    document = json.loads(out)
    assert document["schema"] == "muster.slowdown/v1"
    assert document["job"]["hidden"] == 8192
    assert document["fabric"]["outside_gb_per_s"] == 36.5
    worse = document["placements"][1]
    assert worse["step_s"] == worse["derivation"][-1]["value"] == pytest.approx(1.5511, abs=5e-5)
    assert worse["derivation"][0] == {
        "what": "compute",
        "formula": "passes 2 P T / (n F)",
        "numbers": "3 x 2 x 7e10 x 8,192 / (8 x 400e12)",
        "result": "1.08 s",
        "value": pytest.approx(1.0752),
    }


def test_uplinks_and_pipelines(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--pipeline", "2", "--placement", "4x8", "--placement", "2x8/2x8", "--overlap", "0"]
    _, out, _ = called([*EXACT, *options, "--oversubscription", "4"], capsys)
    assert "pipeline transfers" in out
    assert "across leaves" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--placement", "4y4"], "field '--placement': '4y4' is no placement"),
        (["--placement", "8", "--placement", "4"], "the placements differ in GPUs: 8 has 8, 4 has 4"),
        (["--placement", "4+4", "--tensor", "3"], "field '--tensor': 3 x 1 = 3 GPUs do not divide the 8"),
        (["--placement", "4+4", "--pipeline", "3"], "field '--pipeline': 8 x 3 = 24 GPUs do not divide the 8"),
        (["--placement", "4+4", "--tensor", "0"], "field '--tensor': is 0, not within 1 to"),
        (["--placement", "4+4", "--parameters", "nan"], "field '--parameters': is nan"),
        (["--placement", "4+4", "--parameters", "0"], "field '--parameters': is not given or 0"),
        (["--placement", "4+4", "--gpu", "H2OO"], "field '--gpu': unknown GPU model 'H2OO'"),
        (["--placement", "4+4", "--gpu", "T4"], "field '--achieved-tflops': is not given, and what training reaches"),
        (["--placement", "4+4", "--nic", "avian"], "field '--nic': unknown NIC 'avian'; known:"),
        (["--placement", "4+4", "--expert", "3"], "field '--expert': 3 does not divide the data parallel degree 1"),
        (["--placement", "4+4", "--overlap", "2"], "field '--overlap': is 2.0, not within 0 to 1"),
        (["--placement", "4+4", "--oversubscription", "0"], "field '--oversubscription': is 0, not above 0"),
        (["--placement", "4+4", "--nics-per-gpu", "-1"], "field '--nics-per-gpu': is -1, not above 0"),
        (["--placement", "4+4", "--domain", "-1"], "field '--domain': is -1"),
    ],
)
def test_mistakes_are_one_line(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = called([*ASKED, *options], capsys)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1
