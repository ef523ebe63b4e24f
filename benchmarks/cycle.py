"""The scheduling cycle at scale: 100,000 gangs of 200 shapes wait in 1,000 queues for 10,000 nodes (80,000 GPUs).

    .venv/bin/python benchmarks/cycle.py [--nodes 10000] [--pending 1000,10000,100000] [--cycles 50]

For each number of pending gangs: the first cycle, with nothing kept; how many more until what was lent is where it
belongs; and the cycles after one job ended each. Bars at 100,000: 10 s, and median 50 ms, p99 200 ms.
"""

from __future__ import annotations

import argparse
import platform
import random
import resource
import statistics
import time

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, Workload

SHAPES = 200


def fleet(nodes: int) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(
            Node(
                f"node-{index:05}", 192_000, 2 << 40, devices, topology=(f"block-{index // 512}", f"rack-{index // 16}")
            )
            for index in range(nodes)
        ),
        Topology(("block", "rack")),
    )


def queues(count: int, milli: int) -> tuple[Queue, ...]:
    teams = tuple(
        Queue(f"team-{index:04}", parent="org", quotas=(Quota("H100", milli // count),)) for index in range(count)
    )
    return (Queue("org"), *teams)


def gangs(count: int, queue_count: int, rng: random.Random) -> tuple[Workload, ...]:
    shapes = [
        PodSet(PodShape(4000 * gpus + 1000 * extra, (16 + extra) << 30, gpus), pods)
        for gpus, pods in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (1, 4), (4, 2))
        for extra in range(SHAPES // 10)
    ]
    return tuple(
        Workload(
            f"job-{index:07}",
            (rng.choice(shapes),),
            submitted_s=float(index),
            time_limit_s=rng.choice((3600.0, 14400.0, 86400.0)),
            queue=f"team-{rng.randrange(queue_count):04}",
        )
        for index in range(count)
    )


def measure(nodes: int, pending: int, cycles: int) -> None:
    rng = random.Random(7)
    snapshot = Snapshot(fleet(nodes), queues(1000, nodes * 8000), gangs(pending, 1000, rng))
    started = time.perf_counter()
    scheduler = Scheduler(snapshot, Config())
    built = time.perf_counter()
    plan = scheduler.cycle(float(pending))
    first = time.perf_counter() - built
    now_s = float(pending)
    settling = 0
    while settling < 50 and len(plan.decisions) > 10:  # what was lent in the first cycle is reclaimed in the next ones
        now_s += 10.0
        plan = scheduler.cycle(now_s)
        settling += 1
    times: list[float] = []
    for _ in range(cycles):
        now_s += 10.0
        names = [run.workload.name for run in scheduler.running]
        if not names:
            break
        scheduler.finish(rng.choice(names), now_s)
        before = time.perf_counter()
        scheduler.cycle(now_s)
        times.append(1000 * (time.perf_counter() - before))
    times.sort()
    p99 = times[min(len(times) - 1, round(0.99 * len(times)))]
    print(
        f"{pending:>9,} pending {len(scheduler.running):>7,} running"
        f"  built {built - started:6.2f} s  first cycle {first:6.2f} s"
        f"  settled after {settling}  after one end: median {statistics.median(times):7.1f} ms, p99 {p99:7.1f} ms"
        f"  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pending", default="1000,10000,100000")
    parser.add_argument("--cycles", type=int, default=50)
    options = parser.parse_args()
    print(f"Machine: {platform.machine()}, Python {platform.python_version()}; {options.nodes:,} nodes, one core")
    measure(100, 200, 2)  # compiles
    for pending in options.pending.split(","):
        measure(options.nodes, int(pending), options.cycles)


if __name__ == "__main__":
    main()
