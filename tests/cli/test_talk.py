"""What is said, how wide and where: sentences are broken on terminals only, data is on stdout, talk on stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli.main import run
from muster.cli.output import Column, print_table, say, wrapped
from muster.policy.fragmentation import CAUSES
from muster.report.causes import CAUSE_WORDS

LAUNCH = [sys.executable, "-c", "from muster.cli.main import run; run()"]
SMALL = ["--fleet", "uniform:nodes=1,gpus=2,model=T4", "--workload", "generate:mix=default,pods=30,seed=1"]
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-03 00:{minute:02d}:00,90,2,0,vc\n" for minute in range(40)
)


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(list(args))
    out, err = capfd.readouterr()
    return ended.value.code, out, err


@pytest.mark.parametrize("width", [40, 80, 100, 200, 0])
def test_sentences_are_broken_between_words(width: int) -> None:
    text = "muster: " + "a word and " * 30 + "x" * 130
    lines = wrapped(text, width).split("\n")
    assert max(len(line) for line in lines[:-1]) <= min(width or 100, 100)
    assert " ".join(line.strip() for line in lines) == text
    assert "x" * 130 in lines[-1]


def test_an_error_is_one_line_unless_stderr_is_a_terminal(tmp_path: Path) -> None:
    line = [*LAUNCH, "simulate", "--fleet", "example", "--workload", "nosuch:" + "long/" * 9, "--seeds", "1"]
    piped = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (piped.returncode, piped.stderr.count("\n")) == (2, 1)
    assert len(piped.stderr) > 80
    outer, inner = pty.openpty()
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=inner)
    assert child.wait(timeout=60) == 2
    os.close(inner)
    shown = os.read(outer, 10_000).decode().replace("\r\n", "\n")
    os.close(outer)
    assert shown.count("\n") > 1
    assert " ".join(shown.split()) == " ".join(piped.stderr.split())
    assert max(len(row) for row in shown.split("\n")) <= 100


def test_no_line_of_a_table_ends_in_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("a", "a"), Column("b", "b")], [["x", "yyy"], ["x", ""]], "title")
    assert capsys.readouterr().out == "title\na  b\nx  yyy\nx\n"


@pytest.mark.parametrize(
    ("width", "heading"), [(29, "job  submitted  starts at"), (22, " starts\njob  submitted      at"), (15, "")]
)
def test_words_of_a_heading_stay_whole_where_there_is_room(
    width: int, heading: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    columns = [Column("job", "job"), Column("s", "submitted", right=True), Column("at", "starts at", right=True)]
    print_table(columns, [["a", "2.5 min", "3 h"]])
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= width
    assert heading in out


@pytest.mark.parametrize(("width", "is_whole"), [(34, True), (24, False)])
def test_codes_stay_whole_and_other_cells_give_way_where_there_is_room(
    width: int, is_whole: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code = "QOSMaxGRESPerUserLimit"
    print_table([Column("at", "at"), Column("says", "says", code=True)], [["Tue 03:37 to Wed 04:30", code]])
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= width
    assert (code in out) is is_whole


def test_talk_of_programs_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    say("word " * 50)
    assert capsys.readouterr().err == "word " * 50 + "\n"


def test_every_cause_has_its_words() -> None:
    assert tuple(CAUSE_WORDS) == CAUSES


def test_an_empty_fleet_is_not_told_to_move_pods(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = muster(capfd, "fleet", "frag", "uniform:nodes=3,gpus=8,cpu=8,model=T4", "--workload",
                       "generate:mix=default,pods=200", "-o", "json")  # fmt: skip
    advice = json.loads(out)["advice"]
    assert "lack of CPU" in advice
    assert not re.search(r"\b(move|drain)\b", advice)


def test_a_fleet_where_work_is_asked_for(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,8000,1024,2,T4\n")
    code, out, err = muster(capfd, "trace", "convert", f"openb:{nodes}", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert err == f"muster: openb:{nodes} is a fleet, not work; add --fleet to convert it\n"
    code, _, err = muster(capfd, "trace", "info", f"openb:{nodes}")
    assert code == 2
    assert f"`muster fleet show openb:{nodes}`" in err
    nodes.write_text("what,is,this\n1,2,3\n")
    code, _, err = muster(capfd, "trace", "info", f"openb:{nodes}")
    assert code == 2
    assert "column is missing" in err


def test_runs_have_names(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    jobs = tmp_path / "p.csv"
    jobs.write_text(PHILLY)
    code, out, _ = muster(capfd, "simulate", *SMALL, "--policy", "best-fit,random", "--seeds", "1,2", "-o", "name")
    assert code == 0
    assert [line.split("/", 1)[1] for line in out.splitlines()] == [
        "best-fit/1", "best-fit/2", "random/1", "random/2",
    ]  # fmt: skip
    fleet = "uniform:nodes=1,gpus=2,model=T4"
    _, out, _ = muster(
        capfd, "simulate", "--fleet", fleet, "--workload", f"philly:{jobs}", "--policy", "fgd", "-o", "name"
    )
    assert out == "p/fgd/42\n"


def test_idle_gpus_are_those_at_100_percent_or_none(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    pods = tmp_path / "pods.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,3,1000\nb,1,1,3,1000\nc,1,1,3,1000\n")
    small = ["simulate", "--fleet", "uniform:nodes=1,gpus=4,model=T4", "--workload", f"openb:{pods}"]
    _, out, _ = muster(capfd, *small, "--policy", "best-fit", "--arrivals", "inflate:2")
    assert "100 %" not in out
    assert "idle GPUs" not in out
    _, out, _ = muster(
        capfd, "simulate", "--fleet", "example", "--workload", "generate:mix=default", "--policy", "best-fit"
    )
    assert "100 %" in out
    assert "idle GPUs" in out


def test_titles_of_ten_runs_stay_on_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = muster(capfd, "simulate", *SMALL, "--policy", "best-fit", "--seeds", "1..10")
    assert out.splitlines()[0].endswith("(mean of 10 runs)")
    assert len(out.splitlines()[0]) <= 80


def test_in_80_columns_no_policy_is_broken(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = muster(capfd, "simulate", "--fleet", "example", "--workload", "generate:mix=default", "--policy",
                       "best-fit")  # fmt: skip
    assert "default   best-fit  " in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_replay_says_what_next_and_where_nothing_waits(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    jobs = tmp_path / "p.csv"
    jobs.write_text(PHILLY)
    work = ["--workload", f"philly:{jobs}", "--policy", "best-fit"]
    _, _, err = muster(capfd, "simulate", "--fleet", "uniform:nodes=9,gpus=2,model=T4", *work)
    assert "p, best-fit: nothing waited; at most 4 of 18 GPUs were in use at once." in err
    assert "try --fleet uniform:nodes=1,gpus=2,model=T4." in err
    assert "Next: " in err
    _, _, err = muster(capfd, "simulate", "--fleet", "uniform:nodes=1,gpus=2,model=T4", *work)
    assert "nothing waited" not in err
    assert "Next: " in err
    _, _, err = muster(capfd, "simulate", "--fleet", "uniform:nodes=1,gpus=2,model=T4", *work, "-o", "csv")
    assert "Next: " not in err


def test_what_tune_chose_is_where_its_table_is(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path))
    muster(capfd, "tune", *SMALL)
    _, out, err = muster(capfd, "tune", *SMALL, "--bound")
    assert "Chosen: " in out
    assert "No placement allocates more" in out
    assert err == ""
    assert max(len(line) for line in out.splitlines()) <= 100
    _, out, err = muster(capfd, "tune", *SMALL, "--bound", "-o", "json")
    assert {"chosen", "bound_percent"} <= set(json.loads(out))
    assert err == ""
    _, out, err = muster(capfd, "tune", *SMALL, "--bound", "-o", "csv")
    assert {row["weight"] for row in csv.DictReader(io.StringIO(out))} >= {"hole", "price"}
    assert "Chosen: " in err
    assert "No placement" in err


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"contexts": [{"name": "\x1b]0;owned\x07a\rb", "context": {"cluster": "none", "user": ""}}]}
    (tmp_path / "config").write_text(json.dumps({**config, "current-context": "\x1b]0;owned\x07a\rb"}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    code, out, err = muster(capfd, "queue", "--context", "\x1b]0;owned\x07a\rb")
    assert (code, out) == (3, "")
    assert "owned" in err
    assert err.strip().isprintable()
