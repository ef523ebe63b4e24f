"""The main job on a bundled, synthetic example: four policies place the same pods on the same fleet.

Prints a table, writes ``build/first-run.html`` in the project's folder, and says what to try next.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from muster.cli.main import run

REPORT = Path("build", "first-run.html")

NEXT = f"""
The report is in {REPORT}: open it in a browser. Now try:

  .venv/bin/muster fleet frag example
  .venv/bin/muster trace generate --mix default --seed 7 -O work.trace.gz
  .venv/bin/muster simulate --fleet example --workload work.trace.gz --policy fgd,default --report work.html
  .venv/bin/muster simulate --help
"""


def main() -> None:
    """Run the example; exits with the command's code if it fails."""
    os.chdir(Path(__file__).resolve().parents[1])
    REPORT.parent.mkdir(exist_ok=True)
    try:
        run(
            [
                "simulate",
                "--fleet", "example",
                "--workload", "generate:mix=default",
                "--arrivals", "inflate:1.3",
                "--policy", "random,best-fit,fgd,default",
                "--seeds", "42..44",
                "--report", str(REPORT),
            ]
        )  # fmt: skip
    except SystemExit as stop:
        if stop.code:
            raise
    sys.stderr.flush()
    print(NEXT, end="")


if __name__ == "__main__":
    main()
