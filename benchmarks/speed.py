"""How fast Muster is: whole processes, start-up included, each figure beside the bar that it has to clear.

    .venv/bin/python benchmarks/speed.py [DATA] [--no-peers]

At the end `benchmarks/peers.py` replays beside a peer from PyPI; --no-peers leaves that out (it installs the peer).
DATA is the data folder (default: $MUSTER_DATA, else ../shared/data; without it, it is told where to get it).
Everything runs in a cache folder of its own, so that the first compilation and the fit are measured too; what is
already in the user's cache is neither used nor changed. Runs that take seconds are repeated, and the median is told.
Peak memory is that of the largest process.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench_data import default_data, need

MUSTER = Path(sys.executable).with_name("muster")


class Timed(NamedTuple):
    """A process: wall and CPU seconds, peak memory in MiB, and what it printed."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    printed: str


class Table:
    """Prints figures as they come, and remembers which missed their bar."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        self.peak_mib = 0.0

    def row(self, what: str, value: float, unit: str, bar: float | None = None, *, at_least: bool = False) -> None:
        """One figure; without a bar it is only told."""
        verdict = ""
        if bar is not None:
            good = value >= bar if at_least else value <= bar
            verdict = f"{'at least' if at_least else 'at most':>9} {bar:10,.6g} {unit:13} {'ok' if good else 'MISSED'}"
            if not good:
                self.missed.append(what)
        digits = 2 if value < 1000 else 0
        print(f"{what:62} {value:12,.{digits}f} {unit:13}{verdict}".rstrip(), flush=True)


def run(arguments: list[str], cache: Path) -> Timed:
    """One process of `muster`, with its own figures."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        environment = {**os.environ, "MUSTER_CACHE_DIR": str(cache)}
        child = subprocess.Popen([MUSTER, *arguments], stdout=out, stderr=err, env=environment)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            err.seek(0)
            sys.exit(f"muster {' '.join(arguments)} failed ({child.returncode}):\n{err.read().decode()[-2000:]}")
        out.seek(0)
        unit = 1024 if sys.platform.startswith("linux") else 1024 * 1024
        return Timed(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / unit, out.read().decode())


def median(arguments: list[str], cache: Path, table: Table, runs: int) -> Timed:
    """The medians of several runs."""
    all_runs = [run(arguments, cache) for _ in range(runs)]
    peak = max(each.peak_mib for each in all_runs)
    table.peak_mib = max(table.peak_mib, peak)
    wall_s = statistics.median(each.wall_s for each in all_runs)
    cpu_s = statistics.median(each.cpu_s for each in all_runs)
    return Timed(wall_s, cpu_s, peak, all_runs[-1].printed)


def machine() -> str:
    """Processor, cores that this process may use, and Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0]
    return f"{model}, {cores} cores, load {load:.1f} at the start, Python {platform.python_version()}"


def measure_openb(data: Path, cache: Path, table: Table) -> None:
    """Compilation, fit, and whole runs of the published experiment."""
    fleet = ["--fleet", f"openb:{data}/openb/nodes.csv"]
    work = ["--workload", f"openb:{data}/openb/pods_default.csv"]
    simulate = ["simulate", *fleet, *work, "-o", "json", "--policy"]
    first = run([*simulate, "best-fit"], cache)
    warm = median([*simulate, "best-fit"], cache, table, 3)
    table.row("kernels compiled, once: first run less a later one", first.wall_s - warm.wall_s, "s", 10)
    fit = ["tune", *fleet, *work]
    first = run(fit, cache)
    shutil.rmtree(cache / "tunings")
    fitted = run(fit, cache)
    table.peak_mib = max(table.peak_mib, fitted.peak_mib)
    table.row("kernels of fgd and default compiled, once", first.wall_s - fitted.wall_s, "s")
    table.row("muster tune, openb default: fitted anew", fitted.wall_s, "s", 60)
    table.row("muster tune, openb default: CPU", fitted.cpu_s, "s", 60)
    for policy in ("best-fit", "fgd", "default"):
        run([*simulate, policy], cache)
        whole = median([*simulate, policy], cache, table, 3)
        one = json.loads(whole.printed)["runs"][0]
        name = f"openb default, {one['arrived']:,} pods, {policy}"
        table.row(f"{name}: whole process", whole.wall_s, "s", 2)
        table.row(f"{name}: CPU", whole.cpu_s, "s", 2)
        table.row(f"{name}: placements inside", one["placements_per_s"], "a second", 20_000, at_least=True)


def measure_replays(data: Path, cache: Path, table: Table) -> None:
    """Philly under three policies and RICC, submissions as recorded, first come first served."""
    philly = ["--workload", f"philly:{data}/jobs/philly_sia.csv", "--fleet", "uniform:nodes=312,gpus=8,model=P100"]
    ricc = ["--workload", f"swf:{data}/jobs/RICC-2010-2.swf.gz", "--fleet", "uniform:nodes=1024,gpus=0,cpu=8"]
    runs = [("Philly", philly, policy, 30) for policy in ("best-fit", "fgd", "default")]
    first = run(["simulate", *philly, "-o", "json"], cache)
    warm = run(["simulate", *philly, "-o", "json"], cache)
    table.row("kernels of replays compiled, once", first.wall_s - warm.wall_s, "s")
    for name, inputs, policy, bar in [*runs, ("RICC", ricc, "best-fit", 180)]:
        if policy == "default":
            run(["tune", *inputs[2:], *inputs[:2]], cache)
        whole = median(["simulate", *inputs, "--policy", policy, "-o", "json"], cache, table, 1)
        one = json.loads(whole.printed)["runs"][0]
        name = f"{name}, {one['arrived']:,} jobs replayed, {policy}"
        table.row(f"{name}: whole process", whole.wall_s, "s", bar)
        table.row(f"{name}: CPU", whole.cpu_s, "s")
        table.row(f"{name}: peak memory", whole.peak_mib, "MiB", 1024)


def main() -> None:
    given = [word for word in sys.argv[1:] if word != "--no-peers"]
    data = Path(given[0]) if given else default_data()
    need(*(data / name for name in ("openb/nodes.csv", "jobs/philly_sia.csv", "jobs/RICC-2010-2.swf.gz")))
    print(f"Machine: {machine()}\n")
    table = Table()
    with tempfile.TemporaryDirectory(prefix="muster-speed-") as cache:
        run(["--help"], Path(cache))
        table.row("muster --help, CPU", 1000 * median(["--help"], Path(cache), table, 5).cpu_s, "ms", 250)
        measure_openb(data, Path(cache), table)
        measure_replays(data, Path(cache), table)
    table.row("largest peak memory of all", table.peak_mib, "MiB", 1024)
    if "--no-peers" not in sys.argv:
        print(flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name("peers.py"), data], check=False)
    print(f"\n{'All bars cleared.' if not table.missed else 'Missed: ' + '; '.join(table.missed)}")


if __name__ == "__main__":
    main()
