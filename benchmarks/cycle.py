"""The scheduling cycle at scale, each row beside its bar.

    .venv/bin/python benchmarks/cycle.py [--nodes 10000] [--curve 1000,10000,100000,1000000] [--cycles 100] [--rows ...]

Rows (all by default): ``curve`` (gangs of 200 shapes wait in 1,000 queues: the first cycle with nothing kept, and the
cycles after one job ended each, for ever more that wait), ``cannot-fit``, ``topology``, ``reclaim``, ``plan`` and
``memory`` (in a process of its own). Times are CPU time of this one process: it does not wait for anything.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import random
import resource
import statistics
import time
from collections.abc import Callable, Sequence

from cycle_inputs import fleet, gangs, queues, reclaiming, whole_nodes
from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.plan import Evict, Place, Plan, Reserve
from muster.model.snapshot import Snapshot
from muster.model.workload import TopologyRequest

ROWS = ("curve", "cannot-fit", "topology", "reclaim", "plan", "memory")
QUEUES = 1000


def timed(cycle: Callable[[], Plan]) -> tuple[float, Plan]:
    """CPU time of a cycle in milliseconds, and its plan."""
    started = time.process_time()
    plan = cycle()
    return 1000 * (time.process_time() - started), plan


def show(what: str, ms: float, bar_ms: float, more: str = "") -> None:
    verdict = "ok" if ms < bar_ms else "MISSED"
    print(f"{what:62} {ms:9,.1f} ms  bar {bar_ms:8,.0f} ms  {verdict:6}  {more}".rstrip(), flush=True)


def curve(nodes: int, counts: Sequence[int], cycles: int) -> None:
    for pending in counts:
        rng = random.Random(7)
        snapshot = Snapshot(fleet(nodes), queues(QUEUES, nodes * 8000), gangs(pending, QUEUES, rng))
        scheduler = Scheduler(snapshot, Config())
        now_s = float(pending)
        first, plan = timed(lambda: scheduler.cycle(now_s))  # noqa: B023
        settling = 0
        while settling < 50 and len(plan.decisions) > 10:  # what was lent in the first cycle is reclaimed in the next
            now_s += 10.0
            plan = scheduler.cycle(now_s)
            settling += 1
        times: list[float] = []
        for _ in range(cycles):
            now_s += 10.0
            names = [run.workload.name for run in scheduler.running]
            scheduler.finish(rng.choice(names), now_s)
            times.append(timed(lambda: scheduler.cycle(now_s))[0])  # noqa: B023
        times.sort()
        what = f"{pending:,} pending, {len(scheduler.running):,} running:"
        show(f"{what} first cycle", first, 10_000)
        show(f"{what} after one end, median", statistics.median(times), 50)
        show(f"{what} after one end, p99", times[min(cycles - 1, round(0.99 * cycles))], 200)


def cannot_fit(nodes: int) -> None:
    scheduler = Scheduler(Snapshot(fleet(nodes)), Config(queueing="strict"))
    for number in range(nodes - 9):
        scheduler.submit(whole_nodes(f"busy-{number}", 1))
    scheduler.cycle(0.0)
    times: list[float] = []
    for number in range(15):
        scheduler.submit(whole_nodes(f"waits-{number}", 10, extra_cpu_milli=number))
        ms, plan = timed(lambda: scheduler.cycle(1.0))
        assert not plan.decisions
        times.append(ms)
        scheduler.cancel(f"waits-{number}")
    show("that 10 pods x 8 GPUs cannot fit", statistics.median(times), 20)


def topology(nodes: int) -> None:
    scheduler = Scheduler(Snapshot(fleet(nodes)), Config())
    times: list[float] = []
    for number in range(8):
        work = whole_nodes(f"gang-{number}", 512, TopologyRequest("block", "rack"), extra_cpu_milli=number)
        scheduler.submit(work)
        ms, plan = timed(lambda: scheduler.cycle(1.0))
        assert isinstance(plan.decisions[0], Place)
        times.append(ms)
        scheduler.finish(work.name, 2.0)
    show("512 pods, a block required and racks preferred", statistics.median(times[1:]), 200)


def reclaim() -> None:
    scheduler = reclaiming(4000)
    scheduler.submit(whole_nodes("owner", 500, queue="owner"))
    ms, plan = timed(lambda: scheduler.cycle(5000.0))
    stopped = sum(isinstance(each, Evict) for each in plan.decisions)
    assert isinstance(plan.decisions[-1], Place)
    show("reclaim for a gang of 500 pods among 4,000 candidates", ms, 1000, f"{stopped} are stopped")


def plan() -> None:
    nodes, waiting = 1300, 536
    scheduler = Scheduler(Snapshot(fleet(nodes)), Config(reservations=1000))
    work = iter(gangs(4 * nodes, 1, random.Random(3), queue=""))
    now_s = 0.0
    while len(scheduler.pending) < waiting:
        for _ in range(100):
            scheduler.submit(next(work))
        now_s += 100.0
        if len(scheduler.running) == 0 or not scheduler.pending:
            scheduler.config = Config(queueing="best-effort")
        scheduler.cycle(now_s)
    for name in [gang.workload.name for gang in scheduler.pending][waiting:]:
        scheduler.cancel(name)
    scheduler.config = Config(reservations=1000)
    ms, made = timed(lambda: scheduler.cycle(now_s + 1.0))
    starts = sum(isinstance(each, Reserve) for each in made.decisions)
    what = f"a reserved start for each of {starts} gangs, 1,300 nodes"
    show(what, ms, 1000, f"{len(scheduler.running)} run")


def memory(nodes: int) -> None:
    """100,000 gangs wait and 40,000 run, in this process alone."""
    rng = random.Random(7)
    small = gangs(40_000, QUEUES, rng, most_gpus=1)
    scheduler = Scheduler(Snapshot(fleet(nodes), queues(QUEUES, nodes * 8000), small), Config())
    scheduler.cycle(40_000.0)
    for work in gangs(100_000, QUEUES, rng, prefix="later"):
        scheduler.submit(work)
    scheduler.cycle(100_000.0)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    verdict = "ok" if mib < 1024 else "MISSED"
    what = f"memory for {len(scheduler.pending):,} pending, {len(scheduler.running):,} running, {nodes:,} nodes"
    print(f"{what:62} {mib:9,.1f} MiB bar    1,024 MiB {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--curve", default="1000,10000,100000,1000000")
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--rows", default=",".join(ROWS))
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"Machine: {platform.machine()}, Python {platform.python_version()}, load {load:.1f}; {options.nodes:,} nodes"
    )
    rows = options.rows.split(",")
    warm = Scheduler(Snapshot(fleet(64), queues(10, 64 * 8000), gangs(400, 10, random.Random(1))), Config())
    for step in range(3):
        warm.cycle(1000.0 * step)  # compiles
    counts = [int(each) for each in options.curve.split(",")]
    todo: dict[str, Callable[[], None]] = {
        "curve": lambda: curve(options.nodes, counts, options.cycles),
        "cannot-fit": lambda: cannot_fit(options.nodes),
        "topology": lambda: topology(options.nodes),
        "reclaim": reclaim,
        "plan": plan,
    }
    for row in ROWS:
        if row in rows and row in todo:
            todo[row]()
    if "memory" in rows:
        alone = multiprocessing.get_context("spawn").Process(target=memory, args=(options.nodes,))
        alone.start()
        alone.join()


if __name__ == "__main__":
    main()
