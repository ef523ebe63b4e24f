"""`muster slurm lint` as a command: where scripts and configurations are from, what it prints, its exit codes."""

from __future__ import annotations

import json
import time
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
    assert str(error).startswith("no/such/folder: field '--write': cannot be written (its folder does not exist)")


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


NO_SCRIPTS = [
    (b"\x7fELF\x02\x01\x01\0\0", "job.sh:1: is not text (it holds a zero byte)"),
    (FAULTY.encode("utf-16"), "job.sh:1: is UTF-16 or binary"),
    (FAULTY.encode() + b"echo caf\xe9\n", "job.sh:6: is not UTF-8 text"),
    (FAULTY.replace("\n", "\r").encode(), "job.sh: has lines that end in CR alone"),
    (b"#!/bin/bash\n" + b"#" * (17 << 20), "job.sh: holds 17 MiB, and is no batch script"),
]


@pytest.mark.parametrize(("data", "said"), NO_SCRIPTS)
def test_what_is_no_script_is_told_in_one_line(folder: Path, data: bytes, said: str) -> None:
    (folder / "job.sh").write_bytes(data)
    with pytest.raises(InputError) as error:
        CliRunner().invoke(main, ["slurm", "lint", "job.sh"], catch_exceptions=False)
    assert said in str(error.value)


def test_a_byte_order_mark_is_passed_over_and_not_moved(folder: Path) -> None:
    (folder / "job.sh").write_bytes(b"\xef\xbb\xbf" + FAULTY.encode())
    found = json.loads(muster("job.sh", "-o", "json").stdout)
    assert found["corrected"].startswith("#!/bin/bash\n")
    assert found["findings"] == json.loads(muster("faulty.sh", "-o", "json").stdout)["findings"]


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_lines_are_counted_as_shells_do(folder: Path, end: str) -> None:
    (folder / "job.sh").write_text(FAULTY.replace("srun ./train", f"echo 'a{end}b'\nsrun ./train"))
    found = json.loads(muster("job.sh", "-o", "json").stdout)
    assert f"echo 'a{end}b'\n" in found["corrected"]
    plain = json.loads(muster("faulty.sh", "-o", "json").stdout)
    assert [each["line"] for each in found["findings"]] == [
        each["line"] + 1 if each["line"] == 5 else each["line"] for each in plain["findings"]
    ]


def test_a_terminal_obeys_nothing_of_a_script(folder: Path) -> None:
    (folder / "job.sh").write_text(FAULTY.replace("#SBATCH --mem=0\n", "#SBATCH --mem=0\necho '\x1b]0;mine\x07'\n"))
    shown = muster("job.sh").stdout
    assert "\\x1b]0;mine\\x07" in shown
    assert not [each for each in shown if not each.isprintable() and each != "\n"]


@pytest.mark.parametrize("data", ["echo {}", "echo '{}' | base64 -d", 'echo "{}" > x', "python -c '{}'"])
def test_data_in_a_script_takes_no_longer_than_its_length(folder: Path, data: str) -> None:
    (folder / "job.sh").write_text(FAULTY + data.format("QUJD" * 250_000) + "\n")
    before = time.process_time()
    assert json.loads(muster("job.sh", "-o", "json").stdout)["gets"]["gpus"] == 8
    assert time.process_time() - before < 20  # by the square of the length it was minutes


def test_the_input_may_be_written_over_and_keeps_its_mode(folder: Path) -> None:
    (folder / "faulty.sh").chmod(0o750)
    (folder / "link.sh").symlink_to("faulty.sh")
    muster("link.sh", "--write", "link.sh")
    assert (folder / "link.sh").is_symlink()
    assert (folder / "faulty.sh").stat().st_mode & 0o777 == 0o750
    assert "#SBATCH --nodes=1" in (folder / "faulty.sh").read_text()
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]
