"""The main job on a bundled, synthetic example: four policies place the same pods on the same fleet."""

from __future__ import annotations

from pathlib import Path

from muster.cli.main import run

REPORT = Path("muster-run") / "report.html"

if __name__ == "__main__":
    REPORT.parent.mkdir(exist_ok=True)
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
