"""Run times: how well they are predicted, and what that is worth under EASY backfill.

    .venv/bin/python benchmarks/prediction.py [DATA] [--jobs 20000] [--quantiles 0.5,0.75,0.9]

First each job is predicted when it started, from what had ended by then as recorded: by its owner's limit, by the mean
of its user's last two (Tsafrir et al. 2007), and by `muster.engine.predict` at some quantiles. Then the jobs are worked
through by the cycle, first come first served with one reserved start: with limits, with predictions below them, and
with perfect knowledge. Philly states no limits: there ``run_s``, a day, stands for them. Jobs that outlive their limits
are cut to them first, so that the work is the same in each row.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from bench_data import default_data, need
from muster.engine.config import Config
from muster.engine.predict import RunTimes
from muster.model.fleet import Fleet
from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.sim.cluster_run import ClusterRun
from muster.sim.metrics import measure
from muster.traces import read_fleet, read_workload

Predictor = Callable[[Workload], float | None]


def told_apart(jobs: Sequence[Workload]) -> list[tuple[Workload, dict[str, float]]]:
    """Each job with what each predictor said when it started; jobs of which one of them knew nothing are left out."""
    history, last_two = RunTimes(), dict[str, deque[float]]()
    quantiles = (0.5, 0.75, 0.9, 0.95)

    def mean_of_two(job: Workload) -> float | None:
        known = last_two.get(job.user or job.queue, ())
        return sum(known) / 2 if len(known) == 2 else None

    predictors: dict[str, Predictor] = {"last two": mean_of_two}
    if any(job.time_limit_s is not None for job in jobs):
        predictors = {"limit": lambda job: job.time_limit_s, **predictors}
    for part in quantiles:
        predictors[f"quantile {part:g}"] = lambda job, part=part: history.predicted_s(job, part)
    ends: list[tuple[float, int]] = []
    found: list[tuple[Workload, dict[str, float]]] = []
    started = sorted(range(len(jobs)), key=lambda at: jobs[at].submitted_s + (jobs[at].recorded_wait_s or 0.0))
    for at in started:
        job = jobs[at]
        now_s = job.submitted_s + (job.recorded_wait_s or 0.0)
        while ends and ends[0][0] <= now_s:
            ended = jobs[heapq.heappop(ends)[1]]
            history.record(ended, ended.duration_s or 0.0)
            last_two.setdefault(ended.user or ended.queue, deque(maxlen=2)).append(ended.duration_s or 0.0)
        heapq.heappush(ends, (now_s + (job.duration_s or 0.0), at))
        said = {name: predict(job) for name, predict in predictors.items()}
        known = {name: float(seconds) for name, seconds in said.items() if seconds is not None}
        if len(known) == len(said):
            least = job.time_limit_s or float("inf")
            found.append((job, {name: min(seconds, least) for name, seconds in known.items()}))
    return found


def accuracy(name: str, jobs: Sequence[Workload]) -> None:
    told = told_apart(jobs)
    print(f"\n{name}: {len(told):,} of {len(jobs):,} jobs, predicted when they started")
    print(f"  {'':14}{'ended in time':>14}{'mean error':>12}{'predicted / run':>17}")
    for predictor in told[0][1]:
        pairs = [(said[predictor], job.duration_s or 0.0) for job, said in told]
        in_time = sum(ran <= said for said, ran in pairs) / len(pairs)
        error = statistics.fmean(abs(said - ran) for said, ran in pairs)
        ratio = sum(said for said, _ in pairs) / sum(ran for _, ran in pairs)
        print(f"  {predictor:14}{in_time:>14.1%}{error:>10,.0f} s{ratio:>17.2f}")


def replay(name: str, fleet: Fleet, jobs: Sequence[Workload], quantiles: Sequence[float]) -> None:
    perfect = [replace(job, time_limit_s=job.duration_s) for job in jobs]
    rows: list[tuple[str, Sequence[Workload], Config]] = [
        ("limits", jobs, Config(ordering="fifo", predict="never")),
        *(
            (f"quantile {part:g}", jobs, Config(ordering="fifo", predict="always", predict_quantile=part))
            for part in quantiles
        ),
        ("perfect", perfect, Config(ordering="fifo", predict="never")),
    ]
    print(f"\n{name}: {len(jobs):,} jobs under EASY")
    print(
        f"  {'':14}{'mean wait':>12}{'slowdown':>10}{'p90':>12}{'backfilled':>12}{'starts told':>13}{'missed':>8}"
        f"{'sure':>8}{'missed':>8}{'seconds':>9}"
    )
    for label, work, config in rows:
        began = time.perf_counter()
        run = ClusterRun(Snapshot(fleet), work, config)
        run.run()
        got = measure(run)
        assert set(got.jobs) <= {"finished", "killed"}, f"some never ran: {got.jobs}"
        print(
            f"  {label:14}{got.waits.mean_s:>10,.0f} s{got.waits.slowdown_mean:>10.1f}{got.waits.p90_s:>10,.0f} s"
            f"{got.backfilled:>12,}{got.promised:>13,}{got.promises_broken:>8,}{got.promised_surely:>8,}"
            f"{got.sure_promises_broken:>8,}{time.perf_counter() - began:>9.0f}"
        )


def cut_to_limits(jobs: Sequence[Workload]) -> list[Workload]:
    return [
        job
        if job.time_limit_s is None or (job.duration_s or 0.0) <= job.time_limit_s
        else replace(job, duration_s=job.time_limit_s)
        for job in jobs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=default_data())
    parser.add_argument(
        "--jobs", type=int, default=20_000, help="of each trace, the first so many go through the cycle"
    )
    parser.add_argument("--quantiles", default="0.5,0.75,0.9")
    parser.add_argument("--traces", default="hpc2n,ricc,philly")
    options = parser.parse_args()
    folder = options.data / "jobs"
    traces = {
        "hpc2n": ("swf", folder / "hpc2n.swf", "uniform:nodes=120,gpus=0,cpu=2"),
        "ricc": ("swf", folder / "RICC-2010-2.swf.gz", "uniform:nodes=1024,gpus=0,cpu=8"),
        "philly": ("philly", folder / "philly_sia.csv", "uniform:nodes=56,gpus=8"),
    }
    need(*(path for _, path, _ in traces.values()))
    for name in options.traces.split(","):
        kind, path, spec = traces[name]
        jobs = cut_to_limits(read_workload(f"{kind}:{path}").workloads)
        accuracy(name, jobs)
        jobs = sorted(jobs, key=lambda job: job.submitted_s)[: options.jobs]
        replay(name, read_fleet(spec)[0], jobs, [float(part) for part in options.quantiles.split(",")])


if __name__ == "__main__":
    main()
