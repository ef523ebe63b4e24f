"""Muster's cycle beside slurmctld's on one queue: 1,250 nodes of 8 GPUs, 300 arrays of 20 jobs each.

    python benchmarks/slurm.py [--nodes 1250] [--arrays 300] [--tasks 20] [--wait 180]

A real Slurm (`dev/slurm`, State=CLOUD nodes) takes the jobs while its partition is down. They are read by Slurm's
commands, and Muster's cycle decides what would start if the partition were up. Then it is opened, slurmctld decides.
Printed are the times of the cycles (sdiag's for slurmctld), the jobs and GPUs started, and how many that wait have a
start time.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / each) for each in ("dev", "src")]

from msgspec.structs import replace  # noqa: E402

from muster.answers.slurm import reading_of  # noqa: E402
from muster.backends.slurm.commands import Commands  # noqa: E402
from muster.backends.slurm.read import read_commands  # noqa: E402
from muster.engine.config import config_of  # noqa: E402
from muster.engine.scheduler import Scheduler  # noqa: E402
from muster.model.plan import Place  # noqa: E402
from muster.slurm.records import tres_of  # noqa: E402
from muster.slurm.records_tables import sdiag_of  # noqa: E402
from slurmdev import Settings, Slurm  # noqa: E402

NODES = (1, 1, 1, 1, 2, 2, 4, 8, 16)
GPUS = (1, 2, 4, 8, 8, 8)
MINUTES = (30, 60, 240, 720, 1440)
ROUNDS = 3


def submit(slurm: Slurm, arrays: int, tasks: int) -> None:
    """The arrays, the same for the same numbers."""
    draw = random.Random(7)
    for number in range(arrays):
        nodes = draw.choice(NODES)
        gpus = 8 if nodes > 2 else draw.choice(GPUS)
        slurm.submit(
            f"--array=1-{tasks}", f"-N{nodes}", f"--gpus-per-node={gpus}", f"-t{draw.choice(MINUTES)}",
            "-A", ("research", "product")[number % 2], "--cpus-per-gpu=8", "--mem-per-gpu=100G",
        )  # fmt: skip


def ours(slurm: Slurm) -> None:
    """Read it as if the partition were up, and decide."""
    start = time.perf_counter()
    world = read_commands(lambda text: print(f"  {text}"), Commands(str(slurm.conf), within_s=120))
    read_s = time.perf_counter() - start
    world.partitions = [replace(each, state="UP") for each in world.partitions]
    start = time.perf_counter()
    snapshot = reading_of(world).snapshot
    translated_s = time.perf_counter() - start
    config = config_of(dict(snapshot.settings))
    seconds: list[float] = []
    scheduler, plan = Scheduler(snapshot, config), None
    for _ in range(ROUNDS):  # the first compiles
        scheduler = Scheduler(snapshot, config)
        start = time.perf_counter()
        plan = scheduler.cycle(snapshot.taken_s)
        seconds.append(time.perf_counter() - start)
    assert plan is not None
    starts = [each for each in plan.decisions if isinstance(each, Place)]
    gpus = sum(len(pod.devices) for each in starts for pod in each.pods)
    print(f"Muster     read {read_s:.1f} s, translated {translated_s:.1f} s, cycle {min(seconds[1:]) * 1000:,.0f} ms")
    print(f"           {len(starts):,} jobs started, {gpus:,} GPUs; {len(scheduler.slots):,} that wait have a start")


def theirs(slurm: Slurm, wait_s: float) -> None:
    """Open the partition, and wait until slurmctld starts nothing more."""
    slurm.run("sdiag", "-r")
    slurm.run("scontrol", "update", "PartitionName=gpu", "State=UP")
    deadline, before, since = time.monotonic() + wait_s, -1, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < 75:
        started = len(slurm.run("squeue", "-h", "-r", "-t", "R,CF", "-o", "%A").splitlines())
        if started != before:
            before, since = started, time.monotonic()
        time.sleep(5)
    found = sdiag_of(slurm.run("sdiag"))
    used = [
        tres_of(part.partition("=")[2]).get("gres/gpu", 0)
        for line in slurm.run("scontrol", "-o", "show", "nodes").splitlines()
        for part in line.split()
        if part.startswith("AllocTRES=")
    ]
    planned = [line for line in slurm.run("squeue", "-h", "-r", "-t", "PD", "-o", "%S").splitlines() if line != "N/A"]
    backfill = {key.partition(": ")[2]: value for key, value in found.items() if key.startswith("Backfilling stats")}
    loop = {key.partition(": ")[2]: value for key, value in found.items() if key.startswith("Main schedule")}
    mean, most = (backfill.get(f"{each} cycle", 0) / 1000 for each in ("Mean", "Max"))
    cycles, depth = backfill.get("Total cycles", 0), backfill.get("Depth Mean", 0)
    print(f"slurmctld  backfill: {cycles} cycles, mean {mean:,.0f} ms, max {most:,.0f} ms, depth {depth:,}")
    print(
        f"           main loop: {loop.get('Total cycles', 0)} cycles, mean {loop.get('Mean cycle', 0) / 1000:,.0f} ms"
    )
    print(f"           {before:,} jobs started, {sum(used):,} GPUs; {len(planned):,} that wait have a start")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--arrays", type=int, default=300)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--wait", type=float, default=180.0, help="seconds for slurmctld")
    parser.add_argument(
        "--parameters", default="bf_continue,bf_max_job_test=10000,bf_window=10080", help="of slurmctld"
    )
    given = parser.parse_args()
    parameters = (f"SchedulerParameters={given.parameters}",)
    settings = Settings(nodes=given.nodes, cloud=True, per_leaf=25, leafs_per_block=10, parameters=parameters)
    slurm = Slurm(f"bench{os.getpid()}", settings)
    try:
        slurm.up(tied=True)
        slurm.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
        submit(slurm, given.arrays, given.tasks)
        jobs = given.arrays * given.tasks
        print(f"{given.nodes:,} nodes, {8 * given.nodes:,} GPUs, {jobs:,} jobs in {given.arrays} arrays")
        ours(slurm)
        theirs(slurm, given.wait)
    finally:
        slurm.down()


if __name__ == "__main__":
    main()
