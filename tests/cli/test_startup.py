"""Start-up is part of the product: heavy libraries are imported where they are used, and not before."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import pytest

HEAVY = ("numpy", "numba", "scipy", "llvmlite")
PRINTING = ("rich", "yaml")
BUDGET_S = 0.25

_SCRIPT = """
import sys
from muster.cli.main import run
try:
    run(sys.argv[1:])
finally:
    print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("--help", HEAVY + PRINTING),
        ("--version", HEAVY + PRINTING),
        ("catalog gpus -o json", HEAVY + PRINTING),
        ("catalog gpus", HEAVY),  # a table for people is what rich is for
        ("simulate --help", HEAVY + PRINTING),
        ("tune --help", HEAVY + PRINTING),
        ("fleet show --help", HEAVY + PRINTING),
        ("trace info --help", HEAVY + PRINTING),
    ],
)
def test_heavy_libraries_are_not_imported(line: str, absent: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, *line.split()], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    loaded = done.stderr.partition("loaded:")[2].split()
    assert "click" in loaded
    assert [name for name in absent if name in loaded] == []


def test_help_stays_in_its_budget() -> None:
    seconds = []
    for _ in range(5):
        before = os.times()
        subprocess.run([sys.executable, "-c", _SCRIPT, "--help"], capture_output=True, check=True, timeout=60)
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert statistics.median(seconds) < BUDGET_S
