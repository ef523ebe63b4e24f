"""How fast whole runs are, process start included, and how many placements a second there are inside.

    .venv/bin/python benchmarks/speed.py [DATA]

DATA is the data folder (default ../shared/data). Each command runs three times after a warm-up; the median is told.
"""

from __future__ import annotations

import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

MUSTER = Path(sys.executable).with_name("muster")


def timed(arguments: list[str], runs: int) -> tuple[float, float, str]:
    """Median wall seconds, median CPU seconds, and what the last run printed."""
    walls: list[float] = []
    cpus: list[float] = []
    printed = ""
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        printed = subprocess.run([MUSTER, *arguments], check=True, capture_output=True, text=True).stdout
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls), statistics.median(cpus), printed


def main() -> None:
    data = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")
    print(f"Machine: {platform.processor() or platform.machine()}, Python {platform.python_version()}")
    openb = ["simulate", "--fleet", f"openb:{data}/openb/nodes.csv", "-o", "json"]
    for policy in ("best-fit", "fgd", "default"):
        run = [*openb, "--workload", f"openb:{data}/openb/pods_default.csv", "--policy", policy]
        timed(run, 1)
        wall, cpu, printed = timed(run, 3)
        rate = json.loads(printed)["runs"][0]["placements_per_s"]
        print(f"openb default, {policy:9}: {wall:6.2f} s, {cpu:6.2f} s of CPU, {rate:10,.0f} placements/s inside")
    for name, fleet, work in (
        ("Philly", "uniform:nodes=312,gpus=8,model=P100", f"philly:{data}/jobs/philly_sia.csv"),
        ("RICC", "uniform:nodes=1024,gpus=0,cpu=8", f"swf:{data}/jobs/RICC-2010-2.swf.gz"),
    ):
        run = ["simulate", "--fleet", fleet, "--workload", work, "--arrivals", "replay", "--policy", "best-fit"]
        wall, cpu, _ = timed([*run, "-o", "json"], 1)
        print(f"{name} replayed, first come first served: {wall:6.1f} s, {cpu:6.1f} s of CPU")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"Largest peak memory of these processes: {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
