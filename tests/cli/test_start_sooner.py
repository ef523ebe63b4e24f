"""The page on starting sooner: its example says what it says."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from muster.cli.main import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "start-sooner.md").read_text()


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["why", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


@pytest.fixture(autouse=True)
def sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's run file, in the directory that the commands are given in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    found = re.search(r"    ```yaml\n    # sooner.yaml\n(.*?)    ```", PAGE, re.DOTALL)
    assert found
    Path("sooner.yaml").write_text(textwrap.dedent(found[1]))


def test_the_table_is_what_the_command_prints(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = muster(capfd, "llama", "--from", "sooner.yaml", "--at", "8000")
    assert (code, err) == (1, "")
    rows = re.findall(r"^    \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    told = " ".join(out.split())
    assert len(rows) == 5
    for number, (title, cost, starts) in enumerate(rows, 1):
        assert f"{number} {title} {cost} {starts}" in told
    assert "fragmentation" in told


def test_a_fix_is_carried_out_and_written(capfd: pytest.CaptureFixture[str]) -> None:
    here = ("llama", "--from", "sooner.yaml", "--at", "8000")
    code, out, err = muster(capfd, *here, "--apply", "3", "--write", "after.snap")
    assert (code, err) == (0, "after.snap: the snapshot with it.\n")
    assert "scontrol requeuehold $(squeue -h -o %A --name=eval-14)" in out
    assert "kubectl delete pod -l job-name=eval-14" in out
    code, out, _ = muster(capfd, "llama", "--from", "after.snap")
    assert (code, out.splitlines()[0]) == (0, "llama, 8 pods x 8 GPUs, has waited 13 min, and starts now.")


def test_a_fix_as_data(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = muster(capfd, "llama", "--from", "sooner.yaml", "--at", "8000", "--apply", "1", "-o", "json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["schema"] == "muster.apply/v1"
    assert told["changes"] == ["job llama pods=16 gpus=4"]
    assert [step["system"] for step in told["by_hand"]] == ["Kubernetes", "Slurm"]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--apply", "9"), "there is no fix 9"),
        (("--apply", "0"), "there are 1 to 5"),
        (("--write", "x.snap"), "--write needs --apply N"),
    ],
)
def test_likely_mistakes_are_told_in_a_line(
    capfd: pytest.CaptureFixture[str], more: tuple[str, ...], line: str
) -> None:
    code, out, err = muster(capfd, "llama", "--from", "sooner.yaml", "--at", "8000", *more)
    assert (code, out) == (2, "")
    assert line in err
