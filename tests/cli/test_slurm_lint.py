"""`muster slurm lint` as a command: where scripts and configurations are from, what it prints, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.errors import InputError

FAULTY = "#!/bin/bash\n#SBATCH --gpus=8\n#SBATCH --time=4:00:00\n#SBATCH --mem=0\nsrun ./train\n"
CLEAN = "#!/bin/bash\n#SBATCH --gpus=1\n#SBATCH --time=4:00:00\n#SBATCH --mem=9G\n#SBATCH --cpus-per-task=8\n./train\n"
CONF = """
NodeName=gpu[1-2] CPUs=96 RealMemory=1024000 Gres=gpu:h100:4
PartitionName=train Nodes=ALL Default=YES MaxTime=1:00:00
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "faulty.sh").write_text(FAULTY)
    (tmp_path / "clean.sh").write_text(CLEAN)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "slurm.conf").write_text(CONF)
    return tmp_path


def muster(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["slurm", "lint", *args], input=stdin)


def test_exit_codes(folder: Path) -> None:
    assert muster("clean.sh").exit_code == 0
    assert muster("faulty.sh").exit_code == 1
    assert muster("faulty.sh", "--", "--nodes", "1", "--cpus-per-gpu=8").exit_code == 0


def test_what_people_see(folder: Path) -> None:
    text = muster("faulty.sh").output
    assert text.startswith("faulty.sh asks for 1 to 8 nodes, 8 GPUs in all, 1 task on each: 1 thing to look at.\n")
    assert "+#SBATCH --gpus-per-node=8" in text
    assert "cuda:$SLURM_LOCALID" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_document(folder: Path) -> None:
    document = json.loads(muster("faulty.sh", "-o", "json").output)
    assert document["schema"] == "muster.slurm.lint/v1"
    assert document["gets"]["nodes_most"] == 8
    found = {each["rule"]: each for each in document["findings"]}
    assert found["gpus-without-nodes"]["line"] == 2
    assert found["gpus-without-nodes"]["source"] == "sbatch(1): -G, --gpus"
    assert document["corrected"].splitlines()[-3:-1] == ["#SBATCH --nodes=1", "#SBATCH --gpus-per-node=8"]
    assert json.loads(muster("clean.sh", "-o", "json").output)["corrected"] is None
    assert muster("faulty.sh", "-o", "name").output.splitlines()[0] == "gpus-without-nodes"
    assert muster("faulty.sh", "-o", "csv").output.startswith("rule,severity,line,what,fix,unsure,source\n")


def test_the_corrected_script_is_written(folder: Path) -> None:
    assert muster("faulty.sh", "--write", "fixed.sh").exit_code == 1
    assert "#SBATCH --nodes=1" in (folder / "fixed.sh").read_text()
    assert muster("fixed.sh", "-o", "name").output.splitlines() == ["one-cpu"]  # a note
    assert muster("-", "--write", "-", stdin=FAULTY).stdout == (folder / "fixed.sh").read_text()
    error = muster("faulty.sh", "--write", "no/such/folder").exception
    assert isinstance(error, InputError)
    assert str(error) == "no/such/folder: cannot be written (No such file or directory)"


def test_the_sites_configuration_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "#SBATCH --nodes=2" in muster("faulty.sh", "--config", "etc").output  # 4 GPUs a node
    found = json.loads(muster("faulty.sh", "--config", "etc/slurm.conf", "-o", "json").output)["findings"]
    assert "--time=4:00:00 is more than the 01:00:00 of partition train" in "".join(each["what"] for each in found)
    monkeypatch.setenv("SLURM_CONF", str(folder / "etc" / "slurm.conf"))
    assert json.loads(muster("faulty.sh", "--cluster", "slurm", "-o", "json").output)["findings"] == found


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "no script is named; muster slurm lint job.sh"),
        (("none.sh",), "none.sh: does not exist"),
        (("clean.sh", "--config", "nowhere"), "nowhere: does not exist"),
        (("clean.sh", "--config", "."), ".: has no slurm.conf; name the folder that has it"),
        (("clean.sh", "--", "--nodes", "x", "--nods=4"), "command line: field '--nods': is no option of sbatch"),
        (("-",), "standard input: is empty; was a script piped in?"),
    ],
)
def test_mistakes_are_one_line(folder: Path, args: tuple[str, ...], said: str) -> None:
    error = muster(*args).exception
    assert isinstance(error, InputError)
    assert said in str(error)


def test_the_rules_are_listed_with_their_sources() -> None:
    listed = json.loads(muster("--rules", "-o", "json").output)["rules"]
    assert len(listed) > 40
    assert all(each["source"] and each["about"] for each in listed)
