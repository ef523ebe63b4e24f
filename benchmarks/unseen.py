"""Muster's default policy against FGD on workloads of the same kind that its design never saw.

    .venv/bin/python benchmarks/unseen.py [DATA] [--seeds 42..51] [--jobs 2] [--only cpu100,gpuspec10]

Each is drawn again from the pods of the Alibaba 2023 trace: another share of CPU pods (cpuN: N/10 % of the pods), of
fractions (gpushareN: N % of the GPU demand), of multi-GPU pods (multigpuN: N % of the GPU demand) or of pods bound to
a GPU model (gpuspecN: N % of the GPU pods). Both policies place the same arrivals. DATA is the folder with nodes.csv
and pods_*.csv (default: openb in $MUSTER_DATA, else in ../shared/data). Prints the default's allocation in percent of
the GPUs, its distance to FGD's in percentage points, and by how much the class of pods that fares worst is rejected
more often than by FGD.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from bench_data import default_data, need
from muster.cli.simulate import parse_seeds, prepare
from muster.model.workload import PodShape, single_pod
from muster.sim.inflate import pods_by_name
from muster.sim.sweep import Outcome, Task, sweep, sweep_digest
from muster.traces import Trace, read_workload, write_trace

MARKS = ("95", "100", "110", "130")
UNSEEN = (
    "cpu50", "cpu100", "cpu200", "gpushare60", "gpushare80", "multigpu20", "multigpu30", "multigpu40",
    "gpuspec10", "gpuspec20", "gpuspec25",
)  # fmt: skip


def gpus(pods: list[PodShape]) -> float:
    return sum(pod.gpu_milli_total for pod in pods) / 1000


def variant(name: str, base: list[PodShape], constrained: list[PodShape]) -> list[PodShape]:
    """The pods of a workload such as ``gpushare60``."""
    rng = np.random.Generator(np.random.PCG64(sum(name.encode())))
    kind = name.rstrip("0123456789")
    share = int(name.removeprefix(kind)) / (1000 if kind == "cpu" else 100)

    def draw(pool: list[PodShape], count: float) -> list[PodShape]:
        return [pool[index] for index in rng.integers(len(pool), size=round(count)).tolist()]

    cpu = [pod for pod in base if not pod.gpus]
    multi = [pod for pod in base if pod.gpus > 1]
    whole = [pod for pod in base if pod.gpus == 1 and pod.gpu_milli == 1000]
    fractions = [pod for pod in base if pod.gpus == 1 and pod.gpu_milli < 1000]
    with_gpu = [pod for pod in base if pod.gpus]
    if kind == "cpu":
        return with_gpu + draw(cpu, len(with_gpu) * share / (1 - share))
    if kind == "gpushare":
        others = whole + multi
        each, other = gpus(fractions) / len(fractions), gpus(others) / len(others)
        count = len(with_gpu) * (share / each) / (share / each + (1 - share) / other)
        return cpu + draw(fractions, count) + draw(others, len(with_gpu) - count)
    if kind == "multigpu":
        wanted = gpus(whole + fractions) * share / (1 - share)
        return cpu + whole + fractions + draw(multi, wanted / (gpus(multi) / len(multi)))
    bound = [index for index, pod in enumerate(constrained) if pod.gpu_models]
    count = round(share * sum(pod.gpus > 0 for pod in constrained))
    keep = {bound[index] for index in rng.permutation(len(bound))[:count].tolist()}
    return [pod if index in keep else replace(pod, gpu_models=()) for index, pod in enumerate(constrained)]


def write_variants(data: Path, folder: Path, names: list[str]) -> None:
    base, constrained = (
        pods_by_name(read_workload(f"openb:{data / f'pods_{name}.csv'}").workloads) for name in ("default", "gpuspec33")
    )
    for name in names:
        pods = variant(name, base, constrained)
        workloads = tuple(single_pod(f"pod-{index:05}", pod) for index, pod in enumerate(pods))
        write_trace(Trace(name, "benchmarks/unseen.py", workloads), folder / f"{name}.jsonl")


def mean(group: list[Outcome], mark: str) -> float:
    return sum(one.run.allocated_percent[mark] for one in group) / len(group)


def worst_class(ours: list[Outcome], theirs: list[Outcome]) -> float:
    """The largest difference of rejected percent over the size classes that ask for GPUs."""

    def percent(group: list[Outcome], size: str) -> float:
        arrived = sum(one.run.arrived_by_size[size] for one in group)
        return 100 * sum(one.run.rejected_by_size[size] for one in group) / arrived

    sizes = [size for size in ours[0].run.arrived_by_size if size != "cpu"]
    return max(percent(ours, size) - percent(theirs, size) for size in sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=default_data() / "openb", type=Path)
    parser.add_argument("--seeds", default="42..51")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default=",".join(UNSEEN))
    options = parser.parse_args()
    need(options.data / "nodes.csv", options.data / "pods_default.csv")
    names = options.only.split(",")
    seeds = parse_seeds(options.seeds)
    with tempfile.TemporaryDirectory() as folder:
        write_variants(options.data, Path(folder), names)
        tasks = [
            Task(f"openb:{options.data / 'nodes.csv'}", f"{Path(folder) / name}.jsonl", policy, seed, 1.3)
            for name in names for policy in ("fgd", "default") for seed in seeds
        ]  # fmt: skip
        prepare(tasks)
        outcomes = sweep(tasks, options.jobs, resume=False, digest=sweep_digest(tasks, "unseen"), each=lambda _: None)
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for task, outcome in zip(tasks, outcomes, strict=True):
        groups[Path(task.workload).stem, task.policy].append(outcome)
    print(f"Machine: {platform.machine()}, Python {platform.python_version()}; {len(seeds)} seeds")
    print(f"{'workload':12}" + "".join(f"{mark + ' %':>15}" for mark in MARKS) + "  unallocated  worst class, pp")
    for name in names:
        ours, theirs = groups[name, "default"], groups[name, "fgd"]
        cells = "".join(f"{mean(ours, mark):8.2f} {mean(ours, mark) - mean(theirs, mark):+5.2f} " for mark in MARKS)
        cut = 100 * ((100 - mean(ours, "100")) / (100 - mean(theirs, "100")) - 1)
        print(f"{name:12}{cells}{cut:+10.1f} % {worst_class(ours, theirs):+14.2f}")


if __name__ == "__main__":
    main()
