"""Public traces through the whole scheduling cycle: EASY backfill beside first come first served.

    .venv/bin/python benchmarks/backfill.py [DATA] [--traces hpc2n,RICC] [--jobs N] [--runs strict,EASY,limits]

DATA is a folder with jobs/hpc2n.swf and jobs/RICC-2010-2.swf.gz (default: $MUSTER_DATA, else ../shared/data). Each
trace is run three times: strict, EASY (one reserved start), and EASY with each job running to its limit. Jobs are
killed at their limits. In the last run no reserved start may be delayed, which is checked for each job: exit code 1 if
one is. With --every N it is told on stderr, after each N cycles, what waits and what a cycle cost.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from bench_data import default_data, need
from muster.engine.config import Config
from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.sim.cluster_run import ClusterRun
from muster.traces import read_fleet, read_workload

TRACES = {
    "hpc2n": ("jobs/hpc2n.swf", "uniform:nodes=120,gpus=0,cpu=2"),
    "RICC": ("jobs/RICC-2010-2.swf.gz", "uniform:nodes=1024,gpus=0,cpu=8"),
}
SLACK_S = 1e-3


def run(name: str, fleet: str, jobs: Sequence[Workload], queueing: str, every: int = 0) -> int:
    """One run and its line; how many reserved starts were missed."""
    started = time.process_time()
    config = Config(ordering="fifo", queueing=queueing, reclaim=False, preempt_lower_priority=False)  # pyright: ignore[reportArgumentType]
    cluster = ClusterRun(Snapshot(read_fleet(fleet)[0]), jobs, config)
    if every:
        step(cluster, every)
    stories = cluster.run()
    waits = [story.started_s - story.submitted_s for story in stories if not math.isnan(story.started_s)]
    late = [story.started_s - story.promised_s for story in stories if not math.isnan(story.promised_s)]
    missed = sum(each > SLACK_S for each in late)
    print(
        f"{name:24} {len(jobs):>8,} jobs  wait: mean {statistics.fmean(waits):10,.0f} s, median"
        f" {statistics.median(waits):9,.0f} s  {len(late):>7,} had a reserved start, {missed:,} missed it"
        f"  {cluster.cycles:>8,} cycles in {time.process_time() - started:6.1f} s of CPU",
        flush=True,
    )
    return missed


def step(cluster: ClusterRun, every: int) -> None:
    """Run to the end, and tell after each ``every`` cycles how many jobs wait and run, and what a cycle cost since."""
    before_s, told = time.process_time(), 0
    while cluster.next_s < math.inf:
        cluster.step()
        if cluster.cycles == told + every:
            now_s, scheduler = time.process_time(), cluster.scheduler
            claims, cycle_ms = len(list(scheduler.pending.claims)), (now_s - before_s) / every * 1000
            print(
                f"  {cluster.cycles:>8,} cycles, {cluster.now_s:>12,.0f} s: {len(scheduler.pending):>8,} jobs of"
                f" {claims:>4,} users wait, {len(scheduler.running):>6,} run; {cycle_ms:6.2f} ms of CPU a cycle",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            before_s, told = now_s, cluster.cycles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=default_data(), type=Path)
    parser.add_argument("--traces", default="hpc2n,RICC")
    parser.add_argument("--jobs", type=int, help="only so many jobs of each trace")
    parser.add_argument("--runs", default="strict,EASY,limits")
    parser.add_argument("--every", type=int, default=0, help="tell how it goes after so many cycles")
    options = parser.parse_args()
    if unknown := sorted(set(options.runs.split(",")) - {"strict", "EASY", "limits"}):
        parser.error(f"there is no run {', '.join(unknown)}; there are strict, EASY, limits")
    chosen = {name: TRACES[name] for name in options.traces.split(",")}
    need(*(options.data / path for path, _ in chosen.values()))
    print(f"Machine: {platform.processor() or platform.machine()}, Python {platform.python_version()}, one core")
    missed = 0
    for name, (path, fleet) in chosen.items():
        jobs = tuple(islice(read_workload(f"swf:{options.data / path}", read_fleet(fleet)[0]).workloads, options.jobs))
        limited = tuple(replace(job, duration_s=job.time_limit_s or job.duration_s) for job in jobs)
        if "strict" in options.runs:
            run(f"{name}, strict", fleet, jobs, "strict", options.every)
        if "EASY" in options.runs:
            run(f"{name}, EASY", fleet, jobs, "backfill", options.every)
        if "limits" in options.runs:
            missed += run(f"{name}, EASY, to limits", fleet, limited, "backfill", options.every)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
