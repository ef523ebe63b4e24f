"""Limits beforehand against a real Slurm: what `muster fit` says of a job is what squeue says once it is submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.main import main
from slurmdev import Slurm


@pytest.fixture
def here(slurm_empty: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The commands of this process ask that Slurm, whose QOS spot has the limits that a test gives it."""
    for name, value in slurm_empty.environment().items():
        monkeypatch.setenv(name, value)
    yield slurm_empty
    cleared = ("MaxTRESPerUser=gres/gpu=-1", "MaxTRESPerJob=gres/gpu=-1", "GrpTRES=gres/gpu=-1", "MaxJobsPerUser=-1",
               "MaxTRESPerAccount=gres/gpu=-1", "GrpTRESRunMins=gres/gpu=-1")  # fmt: skip
    slurm_empty.run("sacctmgr", "-i", "modify", "qos", "spot", "set", *cleared)


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("MaxTRESPerUser=gres/gpu=12", "QOSMaxGRESPerUser"),
        ("MaxTRESPerAccount=gres/gpu=12", "MaxGRESPerAccount"),
        ("GrpTRES=gres/gpu=12", "QOSGrpGRES"),
        ("MaxTRESPerJob=gres/gpu=4", "QOSMaxGRESPerJob"),
        ("MaxJobsPerUser=1", "QOSMaxJobsPerUserLimit"),
        ("GrpTRESRunMins=gres/gpu=300", "QOSGrpGRESRunMinutes"),
    ],
)
def test_fit_says_beforehand_what_squeue_says_then(here: Slurm, tmp_path: Path, limit: str, code: str) -> None:
    options = ("-A", "research", "--qos=spot", "-t", "30", "--mem=1G")
    here.submit("-N1", "--gpus-per-node=8", *options, user="games")
    here.wait("it ran", lambda: here.run("squeue", "-h", "-t", "R"), 30)
    here.run("sacctmgr", "-i", "modify", "qos", "spot", "set", limit)
    script = tmp_path / "job.sh"
    lines = (
        f"#SBATCH {each}" for each in ("-N1", "--gpus-per-node=8", "-A research", "--qos=spot", "-t 30", "--mem=1G")
    )
    script.write_text("\n".join(("#!/bin/sh", *lines, "sleep 600\n")))
    done = CliRunner().invoke(main, ["fit", str(script), "--cluster", "slurm", "--user", "games", "-o", "json"])
    (job,) = json.loads(done.stdout)["jobs"]
    assert (done.exit_code, job["fits"], job["slurm"]["code"]) == (1, False, code)
    number = here.submit("-N1", "--gpus-per-node=8", *options, user="games")

    def says() -> str:
        return here.run("squeue", "-h", "-j", str(number), "-o", "%r").strip()

    here.wait("Slurm said why", lambda: says() not in ("None", "Priority", ""), 60)
    assert says() == code
    why = CliRunner().invoke(main, ["why", str(number), "--cluster", "slurm"])
    assert f"Slurm says {code}: " in why.stdout
    assert "QOS spot: " in why.stdout
