"""When will it start: how true the forecasts are, and what they cost.

    .venv/bin/python benchmarks/forecast.py [DATA] [--instants 200] [--traces philly,ricc,gangs] [--part test]

Simulated histories are stopped at random instants. One waiting job is drawn at each, and its start is forecast from the
snapshot alone, which holds no run times; then the history goes on and tells when it really started. Beside it stand two
simple baselines: (a) every job ends at its limit and nothing else comes, as Slurm's `--start` tells it (no limit:
a day), and (b) the median wait of those that started within the last day.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from bench_data import default_data, need
from muster.answers.forecast import Budget, Forecast, forecast
from muster.answers.sources import without_run_times
from muster.answers.view import View
from muster.engine.config import Config
from muster.model.fleet import Fleet
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload
from muster.sim.cluster_run import ClusterRun
from muster.traces import read_fleet, read_workload


class History(NamedTuple):
    """A fleet, its work, and how it is scheduled."""

    name: str
    fleet: Fleet
    jobs: Sequence[Workload]
    config: Config
    queues: tuple[Queue, ...] = ()


class Case(NamedTuple):
    """A job that waited at an instant: what was told, and what came."""

    history: str
    now_s: float
    start_s: float
    told: Forecast
    by_limits_s: float
    by_waits_s: float
    cpu_s: float


def by_limits(view: View, job: Workload) -> float:
    """When it would start if everything ran to its limit and nothing else came."""
    run_s = view.config.run_s
    snapshot, now_s = view.snapshot, view.now_s

    def lasts(work: Workload, elapsed: float) -> float:
        limit_s = run_s if work.time_limit_s is None else work.time_limit_s
        return limit_s if limit_s > elapsed else elapsed + 60.0

    running = tuple(
        replace(each, workload=replace(each.workload, duration_s=lasts(each.workload, now_s - each.started_s)))
        for each in snapshot.running
    )
    pending = tuple(replace(each, duration_s=lasts(each, 0.0)) for each in snapshot.pending)
    run = ClusterRun(replace(snapshot, running=running, pending=pending), (), view.config)
    number = next(at for at, each in enumerate(run.workloads) if each.name == job.name)
    run.run_until_started([number], 200_000)
    start_s = run.stories[number].started_s
    return math.inf if math.isnan(start_s) else start_s


def by_waits(run: ClusterRun, now_s: float, job: Workload) -> float:
    """When it would start if it waited as long as the median of those that started within the last day."""
    waits = [story.started_s - story.submitted_s for story in run.stories if now_s - 86400.0 < story.started_s <= now_s]
    return max(now_s, job.submitted_s + (statistics.median(waits) if waits else 0.0))


def cases(history: History, count: int, seed: int, budget: Budget) -> Iterator[Case]:
    """Jobs that wait at random instants, told and seen."""
    rng = np.random.default_rng(seed)
    first_s, last_s = history.jobs[0].submitted_s, history.jobs[-1].submitted_s
    # the fleet is empty at first: it fills in the first part; instants at which nothing waits are passed over
    instants = iter(sorted(first_s + (last_s - first_s) * float(part) for part in 0.3 + 0.7 * rng.random(5 * count)))
    run = ClusterRun(Snapshot(history.fleet, history.queues), history.jobs, history.config)
    asked: list[tuple[int, float, Forecast, float, float, float]] = []
    steps = sorted(rng.permutation(5 * count)[:count].tolist())
    for at, now_s in enumerate(instants):
        if at not in steps:
            continue
        run.run(now_s)
        snapshot = without_run_times(run.scheduler.snapshot(now_s))
        fresh = [each for each in snapshot.pending if not each.attempts]
        if not fresh:
            steps.append(at + 1)
            continue
        job = fresh[int(rng.integers(len(fresh)))]
        began = time.process_time()
        view = View(snapshot, history.config)
        told = forecast(view, job.name, budget=budget)
        cpu_s = time.process_time() - began
        number = next(at for at, each in enumerate(run.workloads) if each.name == job.name)
        asked.append((number, now_s, told, by_limits(view, job), by_waits(run, now_s, job), cpu_s))
    run.run_until_started([each[0] for each in asked], 10_000_000)
    for number, now_s, told, limits_s, waits_s, cpu_s in asked:
        started_s = run.stories[number].started_s
        yield Case(
            history.name, now_s, math.inf if math.isnan(started_s) else started_s, told, limits_s, waits_s, cpu_s
        )


class Piece(NamedTuple):
    """A piece of a trace: jobs by number, and the nodes of a fleet that is small enough to make them wait."""

    first: int
    last: int
    nodes: int


PHILLY = {"test": (Piece(6_000, 14_000, 60), Piece(48_000, 56_000, 68)), "learn": (Piece(26_000, 36_000, 56),)}
RICC = {"test": (Piece(10_000, 16_000, 512), Piece(72_000, 77_000, 1024)), "learn": (Piece(24_000, 31_000, 840),)}
GANGS = {"test": (1, 2), "learn": (101,)}
"""What is told is learnt from one part only, and the figures are of the other."""


def philly(folder: Path, part: str) -> Iterator[History]:
    """GPU jobs of virtual clusters, which are queues without quota; nobody states limits or names."""
    jobs = sorted(read_workload(f"philly:{folder / 'philly_sia.csv'}").workloads, key=lambda job: job.submitted_s)
    for piece in PHILLY[part]:
        fleet = read_fleet(f"uniform:nodes={piece.nodes},gpus=8")[0]
        yield History("philly", fleet, jobs[piece.first : piece.last], Config())


def ricc(folder: Path, part: str) -> Iterator[History]:
    """CPU jobs of a supercomputer's users, with limits; first come, first served with one reserved start."""
    jobs = sorted(read_workload(f"swf:{folder / 'RICC-2010-2.swf.gz'}").workloads, key=lambda job: job.submitted_s)
    for piece in RICC[part]:
        fleet = read_fleet(f"uniform:nodes={piece.nodes},gpus=0,cpu=8")[0]
        yield History("ricc", fleet, jobs[piece.first : piece.last], Config(ordering="fifo"))


def gangs(_: Path, part: str) -> Iterator[History]:
    """Three teams with quotas on 32 nodes in blocks of 8, fair share, preemption; see `generated`."""
    fleet = read_fleet("uniform:nodes=32,gpus=8,block=8")[0]
    flavor = fleet.nodes[0].flavor
    teams = {"red": 128_000, "green": 64_000, "blue": 64_000}
    queues = (Queue("org"), *(Queue(name, "org", quotas=(Quota(flavor, milli),)) for name, milli in teams.items()))
    for seed in GANGS[part]:
        yield History("gangs", fleet, generated(seed, tuple(teams)), Config(), queues)


SIZES = (*((1, 1),) * 6, *((2, 1),) * 3, *((4, 1),) * 3, *((8, 1),) * 4, *((8, 2),) * 2, (8, 4), (8, 8))
"""GPUs a pod, and pods: as many times as they occur among 20 kinds of work."""


def generated(seed: int, teams: Sequence[str], count: int = 1500) -> list[Workload]:
    """Gangs of up to 8 nodes and single GPUs, from users who run the same things again.

    A user has a few kinds of work, each of one size and with run times around one median (lognormal, sigma 0.3 to 1.2).
    Two in three state a limit: 1.2 to 4 times that median, and what runs longer is killed. Most is submitted in bursts.
    """
    rng = np.random.default_rng(seed)
    shape_of = {gpus: PodShape(gpus=gpus) for gpus in (1, 2, 4, 8)}
    kinds: list[tuple[Workload, float, float]] = []
    for number in range(60):
        gpus, pods = SIZES[int(rng.integers(len(SIZES)))]
        median_s, sigma = float(np.exp(rng.uniform(math.log(300), math.log(6 * 3600)))), float(rng.uniform(0.3, 1.2))
        limit_s = median_s * float(rng.uniform(1.2, 4.0)) if rng.random() < 2 / 3 else None
        kinds.append(
            (
                Workload(
                    f"kind{number}", (PodSet(shape_of[gpus], pods),), time_limit_s=limit_s,
                    queue=teams[number % len(teams)], user=f"user{int(rng.integers(12))}",
                    priority=int(rng.random() < 0.15) * 10,
                    topology=TopologyRequest(required="block") if 1 < pods <= 8 and rng.random() < 0.5 else None,
                    checkpointing=Checkpointing(900.0, 60.0) if pods > 1 else None,
                ),
                median_s, sigma,
            )
        )  # fmt: skip
    jobs: list[Workload] = []
    while len(jobs) < count:
        kind, median_s, sigma = kinds[int(rng.integers(len(kinds)))]
        burst = 1 + int(rng.geometric(0.4)) if kind.pods == 1 else 1
        begin_s = float(rng.random())
        for _ in range(burst):
            ran_s = median_s * float(np.exp(sigma * rng.standard_normal()))
            jobs.append(replace(kind, submitted_s=begin_s + 1e-5 * float(rng.random()), duration_s=ran_s))
    work = sum(each.gpu_milli * min(each.duration_s or 0.0, each.time_limit_s or math.inf) for each in jobs) / 1000
    span_s = work / (32 * 8 * 1.02)
    jobs.sort(key=lambda each: each.submitted_s)
    return [
        replace(each, name=f"{each.name}-{number}", submitted_s=each.submitted_s * span_s)
        for number, each in enumerate(jobs)
    ]


TRACES = {"philly": philly, "ricc": ricc, "gangs": gangs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=default_data())
    parser.add_argument("--instants", type=int, default=70, help="of each trace")
    parser.add_argument("--traces", default="philly,ricc")
    parser.add_argument("--part", choices=("test", "learn"), default="test")
    parser.add_argument("--samples", type=int, default=Budget().samples)
    parser.add_argument("--events", type=int, default=Budget().events)
    parser.add_argument("--verbose", action="store_true", help="print each case")
    options = parser.parse_args()
    folder = options.data / "jobs"
    need(folder / "philly_sia.csv", folder / "RICC-2010-2.swf.gz")
    for name in options.traces.split(","):
        found: list[Case] = []
        made = list(TRACES[name](folder, options.part))
        for history in made:
            count = math.ceil(options.instants / len(made))
            found += cases(history, count, 7, Budget(options.samples, options.events))
        report(name, found)
        if options.verbose:
            for case in sorted(found, key=lambda each: each.now_s):
                told = case.told
                print(
                    f"  {case.now_s:12,.0f} {told.name:14} {told.method:12} {told.samples:3} ahead {told.ahead_count:5}"
                    f" low {told.low_s - case.now_s:10,.0f} mid {told.expected_s - case.now_s:10,.0f}"
                    f" high {told.high_s - case.now_s:10,.0f} real {case.start_s - case.now_s:10,.0f}"
                    f" lim {case.by_limits_s - case.now_s:10,.0f} med {case.by_waits_s - case.now_s:10,.0f}"
                    f" cpu {case.cpu_s:.2f}"
                )


def report(name: str, found: Sequence[Case]) -> None:
    for method in ("all", *sorted({each.told.method for each in found})):
        some = [each for each in found if method in ("all", each.told.method)]
        inside = sum(each.told.low_s <= each.start_s <= each.told.high_s for each in some)
        below = sum(each.start_s < each.told.low_s for each in some)
        errors = {
            "told": [abs(each.told.expected_s - each.start_s) for each in some],
            "limits": [abs(each.by_limits_s - each.start_s) for each in some],
            "waits": [abs(each.by_waits_s - each.start_s) for each in some],
        }
        print(
            f"{name} {method}: {len(some)} cases, inside {inside / len(some):.1%}, below {below / len(some):.1%},"
            f" width {statistics.median(each.told.high_s - each.told.low_s for each in some):,.0f} s,"
            f" wait {statistics.median(each.start_s - each.now_s for each in some):,.0f} s, errors "
            + ", ".join(f"{key} {statistics.median(value):,.0f} s" for key, value in errors.items())
            + f"; CPU median {statistics.median(each.cpu_s for each in some):.2f} s"
            f" most {max(each.cpu_s for each in some):.2f} s"
        )


if __name__ == "__main__":
    main()
