"""`muster whatif` from the outside."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from muster.cli.main import run

RUN = """
fleet: uniform:nodes=4,gpus=8,model=H100,rack=2
queues:
  - {name: research, quotas: [{flavor: H100, nominal_gpus: 32}]}
  - {name: product, quotas: [{flavor: H100, nominal_gpus: 8}]}
workload:
  - {name: train, pods: 4, gpus: 8, time_limit_s: 7200, duration_s: 7000, queue: research}
  - {name: eval, pods: 2, gpus: 8, submitted_s: 600, time_limit_s: 3600, duration_s: 3000, queue: research}
  - {name: tune, gpus: 8, submitted_s: 1200, count: 3, time_limit_s: 3600, duration_s: 3600, queue: product}
"""


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["whatif", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    monkeypatch.setenv("MUSTER_FROM", str(path))
    return path


def test_tables_for_people(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = muster(capfd, "--at", "30m", "add 1 rack", "--variant", "quota=quota product +24")
    assert (code, err) == (0, "")
    rows = {" ".join(line.split()) for line in out.splitlines()}
    assert f"{source} at 30 min: 1 running, 4 waiting." in " ".join(out.split())
    assert "as it is add 1 rack quota" in rows
    assert "start at once 0 1 0" in rows
    assert "GPUs, healthy and open 32 48 32" in rows
    assert "tune-1 product 8 in 1 h 30 min now 1 h 30 min earlier" in rows
    assert "quota: 2 jobs start earlier, 0 later." in rows
    assert "quota: quota product +24 H100" in rows
    assert "What will be submitted later is not known: nothing new comes." in rows


def test_changes_need_no_quotes(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quoted = muster(capfd, "--at", "30m", "drain rack rack-1 evict", "quota product +24", "-o", "json")
    words = ["drain", "rack", "rack-1", "evict", "quota", "product", "+24"]
    plain = muster(capfd, "--at", "30m", *words, "-o", "json")
    assert quoted == plain
    document = json.loads(plain[1])
    assert document["variants"][1]["changes"] == ["drain node-[1-2] evict", "quota product +24 H100"]
    assert document["variants"][1]["stopped"] == 1


def test_for_programs(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muster(capfd, "--at", "30m", "add 1 rack", "-o", "json", "--price", "H100=2")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "muster.whatif/v1")
    assert [each["name"] for each in document["variants"]] == ["as it is", "add 1 rack"]
    assert [each["usd_per_hour"] for each in document["variants"]] == [64.0, 96.0]
    assert document["variants"][1]["jobs_moved"][0]["job"] == "tune-1"
    assert yaml.safe_load(muster(capfd, "--at", "30m", "add 1 rack", "-o", "yaml", "--price", "H100=2")[1]) == document
    rows = list(csv.DictReader(io.StringIO(muster(capfd, "--at", "30m", "add 1 rack", "-o", "csv")[1])))
    assert [row["job"] for row in rows] == ["eval", "tune-1", "tune-2", "tune-3"]
    assert (rows[1]["before_s"], rows[1]["after_s"], rows[1]["later_s"]) == ("5400.0", "0.0", "-5400.0")
    assert muster(capfd, "--at", "30m", "add 1 rack", "-o", "name")[1].split() == ["tune-1", "tune-2", "tune-3"]


def test_the_report_has_the_table_and_the_chart(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "whatif.html"
    code, _, err = muster(capfd, "--at", "30m", "add 1 rack", "--samples", "3", "--report", str(page))
    text = page.read_text()
    assert (code, err) == (0, f"{page} is written.\n")
    assert "add 1 rack: when jobs run" in text
    assert "<td>tune-1</td>" in text
    assert "<title>tune-1, 8 GPUs, product: in " in text
    assert "drawn 3 times" in text
    first = text
    muster(capfd, "--at", "30m", "add 1 rack", "--samples", "3", "--report", str(page))
    assert page.read_text() == first


MISTAKES = (
    ((), "no change is given; such as: muster whatif"),
    (("add 2 rcks",), "'rcks' cannot be added; did you mean rack"),
    (("--variant", "x=drain nobody"), "there is no node 'nobody'"),
    (("add 1 rack", "--price", "2"), "'2' is not FLAVOR=USD"),
    (("add 1 rack", "--price", "H10=2"), "there is no flavor 'H10'; did you mean H100"),
    (("add 1 rack", "--for", "soon"), "'soon' is no time"),
    (("add 1 rack", "--report", "x.pdf"), "unknown kind (.pdf)"),
    (("add 1 rack", "--variant", "add 1 rack"), "two variants are called 'add 1 rack'"),
    (("job tune-1 topology=rack", "--set", "queueing=fast"), "queueing"),
)


@pytest.mark.parametrize(("args", "what"), MISTAKES)
def test_mistakes_are_told_in_one_line(
    args: tuple[str, ...], what: str, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = muster(capfd, "--at", "30m", *args)
    assert (code, out) == (2, "")
    assert what in err
    assert err.count("\n") == 1
