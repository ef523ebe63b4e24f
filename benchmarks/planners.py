"""How long each planner takes with its defaults, as a whole command, beside the start of the interpreter alone.

    .venv/bin/python benchmarks/planners.py [NAME...] [--runs 5]

The bound is one second for a command. `hybrid` simulates by design and has none.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

from muster.cli.plan import COMMANDS

BOUND_S = 1.0


def main() -> None:
    """Measure and print; exit code 1 if a planner is over the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="planners; all but hybrid if none is named")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    names = options.names or [name for name in COMMANDS if name != "hybrid"]
    print(f"Machine: {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    start = median([sys.executable, "-c", "pass"], options.runs)
    print(f"interpreter alone  {start:.2f} s")
    over: list[str] = []
    for name in names:
        code = f"from muster.cli.main import run; run(['plan', {name!r}])"
        took = median([sys.executable, "-c", code], options.runs)
        print(f"{name:18} {took:.2f} s, {took / BOUND_S:.0%} of the bound, {took / start:.0f} x the interpreter")
        if took > BOUND_S:
            over.append(name)
    if over:
        sys.exit(f"over {BOUND_S:g} s: {', '.join(over)}")


def median(command: list[str], runs: int) -> float:
    """Seconds of a command, the median of some runs after one that warms the caches."""
    took: list[float] = []
    for run in range(runs + 1):
        begin = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        if run:
            took.append(time.perf_counter() - begin)
    return statistics.median(took)


if __name__ == "__main__":
    main()
