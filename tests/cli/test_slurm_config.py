"""`muster slurm config` as a command: what it reads, prints and writes, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.errors import InputError

FLEET = "uniform:nodes=16,model=H100-SXM5-80GB,cpu=96,memory_gib=1000,block=8,rack=4,prefix=gpu"
FAULTY = """
ClusterName=prod
SlurmctldHost=head1
SelectType=select/cons_tres
GresTypes=gpu
NodeName=gpu[1-2] CPUs=96 RealMemory=1024000 Gres=gpu:h100:8
PartitionName=train Nodes=ALL Default=YES MaxTime=2-0 DefaultTime=60
"""
JOB = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n#SBATCH --time=1:00:00\n#SBATCH --mem=9G\nsrun ./x\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "faulty").mkdir()
    (tmp_path / "faulty" / "slurm.conf").write_text(FAULTY)
    return tmp_path


def muster(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def test_a_faulty_configuration(folder: Path) -> None:
    done = muster("slurm", "config", "check", "faulty")
    assert done.exit_code == 1
    assert done.output.startswith("prod: 2 nodes with 16 GPUs in 1 partition: ")
    assert "slurm.conf:7" in done.output
    assert max(map(len, done.output.splitlines())) <= 100
    document = json.loads(muster("slurm", "config", "check", "faulty/slurm.conf", "-o", "json").output)
    assert document["schema"] == "muster.slurm.config-check/v1"
    found = {each["rule"]: each for each in document["findings"]}
    assert found["memory-default"]["line"] == 7
    assert found["memory-default"]["fix"] == "DefMemPerGPU=128000"
    assert found["gres-counts"]["severity"] == "error"
    assert "gres-counts" in muster("slurm", "config", "check", "faulty", "-o", "name").output.splitlines()
    assert muster("slurm", "config", "check", "faulty", "-o", "csv").output.startswith("rule,severity,file,line,key")


def test_this_machines_configuration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(folder / "faulty" / "slurm.conf"))
    assert muster("slurm", "config", "check", "--cluster", "slurm").output.startswith("prod: ")


def test_generate_check_and_use(folder: Path) -> None:
    done = muster("slurm", "config", "generate", FLEET, "--out", "etc", "--name", "prod", "--set", "TreeWidth=64")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.endswith("next: muster slurm config check etc\n")
    assert sorted(each.name for each in (folder / "etc").iterdir()) == [
        "cgroup.conf", "gres.conf", "slurm.conf", "topology.conf",
    ]  # fmt: skip
    assert muster("slurm", "config", "check", "etc").exit_code == 0
    shown = json.loads(muster("fleet", "show", "slurm-conf:etc", "-o", "json").output)
    assert sum(each["gpus"] for each in shown["groups"]) == 128
    (folder / "job.sh").write_text(JOB)
    fits = muster("fit", "job.sh", "--from", "slurm-conf:etc")
    assert fits.output.startswith("Yes: job, 4 pods x 8 GPUs, would start now."), fits.output
    error = muster("slurm", "config", "generate", FLEET, "--out", "etc").exception
    assert isinstance(error, InputError)
    assert str(error) == "etc/slurm.conf: is there already; name another folder, or move it away"
    done = muster(
        "slurm", "config", "generate", "slurm-conf:etc", "-o", "json", "--name", "prod", "--set", "TreeWidth=64"
    )
    again = json.loads(done.output)["files"]
    assert again == {name: (folder / "etc" / name).read_text() for name in again}


def test_generated_files_are_printed(folder: Path) -> None:
    done = muster(
        "slurm", "config", "generate", FLEET, "--topology", "block", "--max-time", "2-0", "--database", "none"
    )
    assert done.exit_code == 0
    assert "# ---- topology.conf\nBlockName=block-1 Nodes=gpu-[01-08]\n" in done.output
    assert "bf_window=2880," in done.output
    assert "slurmdbd" not in done.output


def test_a_simulation_runs_on_a_configuration(folder: Path) -> None:
    assert muster("slurm", "config", "generate", FLEET, "--out", "etc").exit_code == 0
    done = muster("simulate", "--fleet", "slurm-conf:etc", "--workload", "generate:mix=default,pods=50", "-o", "json")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("check",), "no configuration is named; muster slurm config check /etc/slurm, or --cluster slurm"),
        (("check", "faulty", "--cluster", "slurm"), "files are named, and --cluster; one of them"),
        (("check", "nowhere"), "nowhere: does not exist"),
        (("check", "."), ".: has no slurm.conf"),
        (("generate",), "no fleet is named"),
        (("generate", FLEET, "--max-time", "soon"), "field '--max-time': is 'soon'; minutes, or D-HH:MM:SS"),
        (("generate", FLEET, "--max-time", "UNLIMITED"), "field '--max-time': is no limit"),
        (("generate", FLEET, "--set", "TreeWidht=3"), "did you mean TreeWidth?"),
        (("generate", "slurm-conf:nowhere"), "nowhere: does not exist"),
    ],
)
def test_mistakes_are_one_line(folder: Path, args: tuple[str, ...], said: str) -> None:
    error = muster("slurm", "config", *args).exception
    assert error is not None
    assert said in str(error)


def test_the_rules_are_listed_with_their_sources() -> None:
    listed = json.loads(muster("slurm", "config", "check", "--rules", "-o", "json").output)["rules"]
    assert len(listed) > 30
    assert all(each["source"] and each["about"] for each in listed)


NO_VALUES = [
    ("--name", "a b", "field '--name': is 'a b'"),
    ("--name", "", "field '--name': is empty"),
    ("--name", "x\nPluginDir=/tmp", "field '--name': is"),
    ("--controller", "$(id)", "field '--controller': is '$(id)'"),
    ("--database", "a\nb", "field '--database': is"),
    ("--devices", "/dev/x Foo=1", "field '--devices': is"),
    ("--set", "TreeWidth=1\nProlog=/x", "holds a line end or another control character"),
    ("--out", "", "field '--out': names no folder"),
]


@pytest.mark.parametrize(("option", "value", "said"), NO_VALUES)
def test_a_value_stays_a_value_of_its_line(folder: Path, option: str, value: str, said: str) -> None:
    arguments = ["slurm", "config", "generate", FLEET, option, value]
    with pytest.raises(InputError) as error:
        CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert said in str(error.value)
    assert sorted(each.name for each in folder.iterdir()) == ["faulty"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xef\xbb\xbf" + FAULTY.encode(), "slurm.conf:1: begins with a byte order mark"),
        (FAULTY.strip().encode("utf-16"), "slurm.conf:1: is not text"),
        (FAULTY.encode() + b"a\0b\n", "slurm.conf:8: is not text"),
    ],
)
def test_what_slurm_cannot_read_is_told_with_its_line(folder: Path, data: bytes, said: str) -> None:
    (folder / "faulty" / "slurm.conf").write_bytes(data)
    error = muster("slurm", "config", "check", "faulty").exception
    assert isinstance(error, InputError)
    assert said in str(error)
