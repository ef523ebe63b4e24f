"""`muster fit`: yes and no with their exit codes, for people and machines; mistakes in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from muster.answers.sources import simulated
from muster.cli.main import run
from muster.model.snapshot import save_snapshot

SPECS = Path(__file__).parents[1] / "answers" / "specs"
RUN = """\
fleet: uniform:nodes=32,gpus=8,model=H100,block=16,rack=4,cpu=128,memory_gib=1024,prefix=gpu
queues:
  - name: org
  - {name: research, parent: org, quotas: [{flavor: H100, nominal_gpus: 128}]}
  - {name: serving, parent: org, quotas: [{flavor: H100, nominal_gpus: 128}]}
workload:
  - {name: infer, queue: serving, gpus: 4, cpu: 16, count: 40, duration_s: 20000, time_limit_s: 30000,
     checkpointing: {interval_s: 600, restart_s: 60}}
  - {name: big, queue: research, pods: 9, gpus: 8, cpu: 16, duration_s: 9000, time_limit_s: 10000}
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run after half an hour."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "run.yaml").write_text(RUN)
    save_snapshot(simulated(str(folder / "run.yaml"), 1800.0), folder / "now.snap")
    return folder / "now.snap"


@pytest.fixture
def source(snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the snapshot and some specs."""
    monkeypatch.chdir(tmp_path)
    for path in (snapshot, *(SPECS / name for name in ("job.yaml", "nodes.sbatch", "deployment.yaml"))):
        shutil.copy(path, tmp_path)


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        run(["fit", *arguments, "--from", "now.snap"])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.mark.usefixtures("source")
def test_yes_with_nodes_and_domains(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(["job.yaml", "--tensor", "8", "--parameters", "70e9"], capsys)
    assert (code, err) == (0, "")
    begin = "Yes: research/llama-70b, 8 pods x 8 GPUs, would start now in queue research on H100.\n"
    assert out.startswith(begin)
    assert "  nodes      gpu-[01-08]\n" in out
    assert "  domains    1 block: block-1; 2 racks: rack-1 (4) and rack-2 (4); 8 nodes\n" in out
    assert "  slow-down  1.000: a step takes as long as at best\n" in out
    assert "big, 72 GPUs   is stopped (priority)  36.00 GPU-hours\n" in out  # the class in the file has priority 1000


@pytest.mark.usefixtures("source")
def test_no_with_the_reason_and_when(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["--pods", "16", "--gpus", "8", "--queue", "research", "--topology", "block"], capsys)
    assert code == 1
    assert out.startswith("No: asked, 16 pods x 8 GPUs, would not start now in queue research.\n")
    assert "[quota]" in out
    assert "It would start in " in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.usefixtures("source")
def test_the_same_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["job.yaml", "-o", "json"], capsys)
    told = json.loads(out)
    assert code == 0
    assert (told["schema"], told["fits"], told["notes"]) == ("muster.fit/v1", True, [])
    (job,) = told["jobs"]
    assert (job["job"], job["pods"], job["pods_now"], job["gpu_milli"]) == ("research/llama-70b", 8, 8, 64_000)
    assert [each["node"] for each in job["placement"]] == [f"gpu-{at:02d}" for at in range(1, 9)]
    assert job["domains"]["rack"] == {"rack-1": 4, "rack-2": 4}
    (gone,) = told["displaced"]
    assert gone == {"job": "big", "how": "stopped", "why": "priority", "gpu_milli": 72_000, "lost_gpu_s": 129_600.0}
    code, out, _ = called(["--pods", "16", "--gpus", "8", "--queue", "research", "-o", "json"], capsys)
    (job,) = json.loads(out)["jobs"]
    assert code == 1
    assert (job["nodes"], job["placement"], job["blockers"][0]["reason"]) == ("", None, "quota")
    assert job["start"]["low_s"] <= job["start"]["expected_s"] <= job["start"]["high_s"]


@pytest.mark.usefixtures("source")
def test_explain_tells_changes_that_were_tried(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--pods", "6", "--gpus", "8", "--queue", "research", "--topology", "rack"]
    code, out, _ = called(asked, capsys)
    assert (code, out.splitlines()[-1]) == (1, "Add --explain for the smallest changes by which it would start.")
    code, out, _ = called([*asked, "--explain"], capsys)
    assert code == 1
    assert "change of the work" in out
    code, out, _ = called([*asked, "--explain", "-o", "json"], capsys)
    (changes,) = json.loads(out)["changes"]
    assert changes["job"] == "asked"
    fewer = next(each for each in changes["of_the_work"] if each["kind"] == "smaller")
    pods = int(fewer["changes"][0].removeprefix("job asked pods="))
    assert called(["--pods", str(pods), *asked[2:]], capsys)[0] == 0
    assert called(["--pods", str(pods + 1), *asked[2:]], capsys)[0] == 1


@pytest.mark.usefixtures("source")
def test_notes_and_several_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["deployment.yaml", "--queue", "serving"], capsys)
    assert code == 1
    assert out.startswith("No: 1 of 2 jobs of deployment.yaml would start now.\n")
    assert "at most 1 on one host; there is room for 3.  [topology]" in out
    assert "To be known:\n  line 11, spec.replicas: its pods start one by one" in out


@pytest.mark.usefixtures("source")
def test_what_an_option_answers_is_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    Path("short.sbatch").write_text("#!/bin/sh\n#SBATCH -A research --mem=1G --qos=high\n")
    told = [json.loads(called(["short.sbatch", *more, "-o", "json"], capsys)[1])["notes"] for more in (
        [], ["--time", "2h"], ["--priority", "5"], ["--time", "2h", "--priority", "5"],
    )]  # fmt: skip
    assert [[note["field"] for note in notes] for notes in told] == [["--time", "--qos"], ["--qos"], ["--time"], []]


@pytest.mark.usefixtures("source")
def test_nodes_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["nodes.sbatch", "-o", "name"], capsys)
    assert code == 0
    assert len(out.split()) == 4
    assert all(name.startswith("gpu-") for name in out.split())


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "muster: nothing is asked for; name a SPEC file, or say --pods and --gpus"),
        (
            ["job.yaml", "--gpus", "4"],
            "muster: field '--gpus': cannot be given beside job.yaml; it is for work",
        ),
        (["jobs.yaml"], "muster: jobs.yaml: does not exist; did you mean job.yaml?"),
        (["deployment.yaml"], "muster: field 'queue': the spec names no queue; it has org, research, serving; --queue"),
        (["job.yaml", "--queue", "researsh"], "the snapshot has no queue 'researsh'; did you mean research?"),
        (["job.yaml", "--tensor", "0"], "muster: field '--tensor': is 0, not within 1 to 10^15"),
        (["job.yaml", "--tensor", "3"], "field 'parallelism.tensor': 3 GPUs of a group and 8 of a pod"),
        (["job.yaml", "--time", "soon"], "muster: field '--time': 'soon' is no time; such as 45s"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(arguments, capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
