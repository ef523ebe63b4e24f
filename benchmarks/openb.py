"""Muster against the published results of the FGD paper, on the Alibaba 2023 GPU trace.

    .venv/bin/python benchmarks/openb.py [DATA] [--policies fgd,default] [--seeds 42..51] [--jobs 2]

DATA is a folder with nodes.csv, pods_*.csv and published_allocation.csv (default: openb in $MUSTER_DATA, else in
../shared/data). Prints, for each workload and policy, the mean over the seeds of the GPUs allocated when 95, 100, 110
and 130 % have arrived, the published mean of the same policy (of FGD for Muster's default), and the difference in
percentage points.
"""

from __future__ import annotations

import argparse
import csv
import platform
from collections import defaultdict
from pathlib import Path

from bench_data import default_data, need
from muster.cli.simulate import parse_seeds, prepare
from muster.sim.sweep import Outcome, Task, sweep, sweep_digest

MARKS = ("95", "100", "110", "130")
PUBLISHED = {
    "random": "01-Random", "dot-product": "02-DotProd", "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking", "best-fit": "05-BestFit", "fgd": "06-FGD", "default": "06-FGD",
}  # fmt: skip


def published(data: Path, seeds: list[int]) -> dict[tuple[str, str], dict[str, float]]:
    """Mean over the seeds of the published allocation, by workload and policy."""
    sums: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with (data / "published_allocation.csv").open() as file:
        for row in csv.DictReader(file):
            if int(row["seed"]) in seeds:
                key = row["workload"].removeprefix("openb_pod_list_"), row["sc_policy"]
                sums[key].append({mark: float(row[mark]) for mark in MARKS})
    return {key: {mark: sum(run[mark] for run in runs) / len(runs) for mark in MARKS} for key, runs in sums.items()}


def rejected(outcomes: list[Outcome], size: str) -> float:
    arrived = sum(outcome.run.arrived_by_size.get(size, 0) for outcome in outcomes)
    return 100 * sum(outcome.run.rejected_by_size.get(size, 0) for outcome in outcomes) / arrived if arrived else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=default_data() / "openb", type=Path)
    parser.add_argument("--policies", default="dot-product,gpu-packing,best-fit,fgd,default")
    parser.add_argument("--seeds", default="42..51")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    need(options.data / "nodes.csv", options.data / "pods_default.csv", options.data / "published_allocation.csv")
    seeds = parse_seeds(options.seeds)
    names = sorted(path.stem.removeprefix("pods_") for path in options.data.glob("pods_*.csv"))
    fleet = f"openb:{options.data / 'nodes.csv'}"
    tasks = [
        Task(fleet, f"openb:{options.data / f'pods_{name}.csv'}", policy, seed, 1.3)
        for name in names for policy in options.policies.split(",") for seed in seeds
    ]  # fmt: skip
    prepare(tasks)
    outcomes = sweep(tasks, options.jobs, resume=False, digest=sweep_digest(tasks, "benchmark"), each=lambda _: None)
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for task, outcome in zip(tasks, outcomes, strict=True):
        groups[Path(task.workload.partition(":")[2]).stem.removeprefix("pods_"), task.policy].append(outcome)
    truth = published(options.data, seeds)
    print(
        f"Machine: {platform.processor() or platform.machine()}, Python {platform.python_version()}; {len(seeds)} seeds"
    )
    print(
        f"{'workload':12} {'policy':14}" + "".join(f"{mark + ' %':>15}" for mark in MARKS) + "   unallocated at 100 %"
    )
    cuts: list[float] = []
    for (workload, policy), group in groups.items():
        want = truth[workload, PUBLISHED[policy]]
        mean = {mark: sum(one.run.allocated_percent[mark] for one in group) / len(group) for mark in MARKS}
        cut = 100 * (1 - (100 - mean["100"]) / (100 - want["100"]))
        cells = "".join(f"{mean[mark]:8.2f} {mean[mark] - want[mark]:+5.2f} " for mark in MARKS)
        sizes = ", ".join(f"{size}: {rejected(group, size):.2f} %" for size in ("1", "2-4", "5-8"))
        print(f"{workload:12} {policy:14}{cells}  {-cut:+6.1f} %   rejected at 130 % by GPUs {sizes}")
        if policy == "default":
            cuts.append(cut)
    if cuts:
        print(f"default: {sum(cuts) / len(cuts):.1f} % fewer GPUs unallocated at 100 % than published FGD (mean)")


if __name__ == "__main__":
    main()
