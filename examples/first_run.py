"""The main job on a bundled, synthetic example: four policies place the same pods on the same fleet."""

from __future__ import annotations

from muster.cli.main import run

if __name__ == "__main__":
    run(
        [
            "simulate",
            "--fleet", "example",
            "--workload", "generate:mix=default",
            "--arrivals", "inflate:1.3",
            "--policy", "random,best-fit,fgd,default",
            "--seeds", "42..44",
        ]
    )  # fmt: skip
