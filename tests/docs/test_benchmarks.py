"""Benchmarks without the public traces say where to get them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("name", ["speed.py", "openb.py", "unseen.py"])
def test_absent_data_is_told(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / name], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "MUSTER_DATA": str(tmp_path / "none")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not there" in done.stderr
    assert "github.com/alibaba/clusterdata" in done.stderr
