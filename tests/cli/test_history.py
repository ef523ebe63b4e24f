from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.cli.main import run

RUN = """
fleet: uniform:nodes=2,gpus=8,model=H100
workload:
  - {name: eval, gpus: 8, duration_s: 3000, time_limit_s: 4000}
  - {name: train, pods: 2, gpus: 8, submitted_s: 100, duration_s: 1000}
"""


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(list(args))
    out, err = capfd.readouterr()
    return ended.value.code, out, err


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history in a folder of its own, which is where commands look for it."""
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(RUN)
    monkeypatch.setenv("MUSTER_STORE", "h.db")
    return Path("h.db")


def test_record_list_show_and_ask(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = muster(capfd, "history", "record", "run.yaml", "--every", "10m")
    assert (code, out) == (0, "")
    assert "run.yaml: 8 snapshots, 8 of them new" in err
    assert store.exists()
    code, out, _ = muster(capfd, "history", "list")
    assert code == 0
    assert ["2", "600", "s", "(10", "min)", "simulated:run.yaml", "2", "1", "1", "1"] in map(
        str.split, out.splitlines()
    )
    assert "8 snapshots in " in out
    code, out, _ = muster(capfd, "history", "show", "--at", "50m")
    assert code == 0
    assert "Snapshot 6, taken at 3000 s (50 min): 2 nodes, 1 running, 0 waiting." in out
    assert "train  starts on node-[1-2] (16 GPUs)" in out
    assert "Then: muster queue --from history:h.db --at 3000" in out
    code, out, _ = muster(capfd, "history", "show", "--job", "train")
    assert [line.partition(")")[2].split()[0] for line in out.splitlines()[1:]] == [
        "submitted", "reserved", "waits", "started", "ended",
    ]  # fmt: skip
    code, out, _ = muster(capfd, "history", "show", "--job", "train", "-o", "json")
    document = json.loads(out)
    assert (document["schema"], document["events"][0]["time_s"]) == ("muster.history.story/v1", 100.0)
    code, out, _ = muster(capfd, "why", "train", "--from", "history:h.db", "--at", "0:20")
    assert code == 1, "it waited"
    assert "train, 2 pods x 8 GPUs, has waited 18 min" in out


def test_add_export_and_prune(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number, at in enumerate(("5m", "60m"), 1):
        muster(capfd, "snapshot", "save", "run.yaml", "--at", at, "-o", f"{number}.snap")
    code, out, err = muster(capfd, "history", "add", "2.snap", "1.snap", "1.snap")
    assert (code, out) == (0, "")
    assert [line.split(": ")[1].split(",")[0] for line in err.splitlines()[:3]] == ["number 1", "number 1", "number 2"]
    assert "it was there already" in err
    assert muster(capfd, "history", "export", "1", "again.snap")[0] == 0
    assert muster(capfd, "snapshot", "diff", "1.snap", "again.snap")[0] == 0
    code, out, _ = muster(capfd, "history", "show", "--at", "5m", "-o", "json")
    document = json.loads(out)
    assert document["schema"] == "muster.history.decisions/v1"
    assert [(each["decision"], each["workload"], each["carried_out"]) for each in document["decisions"]] == [
        ("reserve", "train", False)
    ]
    _, _, err = muster(capfd, "history", "prune", "--keep", "30m")
    assert "1 snapshots removed, 1 left" in err
    assert muster(capfd, "history", "list", "-o", "name")[1] == "2\n"


MISTAKES = [
    (("list", "--store", "no.db"), "no.db: there is no such history; `muster history add` makes one"),
    (("list", "--store", "run.yaml"), "run.yaml: is no history"),
    (("add", "no.snap"), "no.snap: is neither a file nor a kind of snapshot"),
    (("record", "no.yaml"), "no.yaml: does not exist"),
    (("record", "run.yaml", "--every", "0"), "field '--every': is not above 0"),
    (("record", "run.yaml", "--every", "often"), "'often' is no time"),
    (("show", "--at", "noon"), "field '--at': 'noon' is no time; such as 14:03"),
    (("show", "--job", "trian"), "knows no job 'trian'; did you mean train?"),
    (("export", "77", "x.snap"), "has no snapshot 77"),
    (("prune",), "give --keep TIME or --most SIZE ("),
    (("prune", "--most", "much"), "'much' is no size; such as 500MB or 2GB"),
    (("prune", "--keep", "1d", "--store", "no.db"), "no.db: there is no such history"),
]


@pytest.mark.parametrize(("args", "told"), MISTAKES, ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")
def test_each_mistake_is_one_line(
    args: tuple[str, ...], told: str, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    muster(capfd, "history", "record", "run.yaml", "--every", "30m")
    code, _, err = muster(capfd, "history", *args)
    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert not Path("no.db").exists()
