"""The script that gathers on a node: its pile is read by the doctor; what hangs is left; secrets are hidden."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from click.testing import CliRunner
from tests.doctor.healthy import dmesg, node_of, smi

from muster.cli.main import main
from muster.doctor.pile import read_text
from muster.doctor.verdict import judge


def test_the_pile_of_a_node(tmp_path: Path) -> None:
    node = node_of(0)
    tools = {"nvidia-smi": smi(node), "dmesg": dmesg(node), "containerd": 'auth = "S3cretS3cret9"\n'}
    for name, text in tools.items():
        (tmp_path / f"{name}.out").write_text(text)
        (tmp_path / name).write_text(f"#!/bin/sh\ncat {tmp_path / name}.out\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nvidia-ctk").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "nvidia-ctk").chmod(0o755)
    script = CliRunner().invoke(main, ["doctor", "script"]).output
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MUSTER_LIMIT_S": "0.2"}
    done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, env=env, timeout=30, check=True)
    assert "S3cret" not in done.stdout
    assert {"nvidia-smi", "dmesg"} <= read_text(done.stdout).kinds


def test_a_node_without_the_tools_is_no_finding() -> None:
    script = CliRunner().invoke(main, ["doctor", "script"]).output
    env = {**os.environ, "MUSTER_LIMIT_S": "0.5"}
    done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, env=env, timeout=30, check=True)
    assert not judge(read_text(done.stdout)).findings
