"""A contest on a real Slurm: the same jobs with slurmctld alone, and with `muster slurm schedule` beside it.

Sixteen nodes of eight (fake) GPUs in two blocks of two leafs; small jobs and gangs that sleep for some seconds, the
same ones in each round. Needs Slurm (`dev/slurm install`):

    python benchmarks/slurm_steering.py --jobs 60 --seed 1

Start and end are those of Slurm's own records, in whole seconds. It prints a table; where a job ran is told by blocks.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "dev")]

from muster.slurm.hostlist import expand  # noqa: E402
from muster.slurm.records import job_of, lines_of  # noqa: E402
from slurmdev import Settings, Slurm  # noqa: E402

GPUS, NODES = 8, 16
WAYS = {
    "slurmctld alone": None,
    "steered": ("--every=1s",),
    "steered, with a gate": ("--every=1s", "--gate=60s"),
}


class Asked(NamedTuple):
    """A job: when it is submitted, on how many nodes, and how long it sleeps."""

    at_s: float
    nodes: int
    sleep_s: int


class Ran(NamedTuple):
    """What became of one."""

    nodes: int
    wait_s: float
    start_s: float
    end_s: float
    blocks: int
    leafs: int


def mix(jobs: int, seed: int) -> list[Asked]:
    """Three of four jobs are of one node, the others gangs of two to eight; they come over as long as half the work."""
    rng = random.Random(seed)
    sizes = [rng.choice((1, 1, 1, 1, 1, 1, 2, 4, 8)) for _ in range(jobs)]
    sleeps = [rng.randint(4, 20) for _ in sizes]
    work_s = sum(size * sleep for size, sleep in zip(sizes, sleeps, strict=True)) / NODES
    comes = sorted(rng.uniform(0, work_s / 2) for _ in sizes)
    return [Asked(at_s, size, sleep) for at_s, size, sleep in zip(comes, sizes, sleeps, strict=True)]


@contextmanager
def steering(slurm: Slurm, options: tuple[str, ...] | None, folder: Path):
    """`muster slurm schedule` beside a Slurm; ended in order, and all of it released."""
    if options is None:
        yield
        return
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from muster.cli.main import run; run()"
    command = [sys.executable, "-c", start, "slurm", "schedule", "--yes", "--release-on-exit", *options]
    state = f"--state={folder / 'state.json'}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, state], env=slurm.environment(), stdout=log, stderr=log)
        time.sleep(6)  # its first cycle
        try:
            yield
        finally:
            process.terminate()
            if process.wait(60) != 0:
                sys.exit((folder / "log").read_text())


def one_round(slurm: Slurm, asked: list[Asked], options: tuple[str, ...] | None, folder: Path) -> list[Ran]:
    """Submit the jobs in time, wait until all have ended, and look at Slurm's records."""
    slurm.clear()
    numbers: dict[int, Asked] = {}
    with steering(slurm, options, folder):
        began_s = time.monotonic()
        for each in asked:
            time.sleep(max(0.0, began_s + each.at_s - time.monotonic()))
            what = (f"--nodes={each.nodes}", f"--gpus-per-node={GPUS}", "--time=1")
            numbers[slurm.submit(*what, body=f"sleep {each.sleep_s}")] = each
        slurm.wait("all jobs had ended", lambda: not slurm.run("squeue", "-h").strip(), 900, 1.0)
    text = slurm.run("scontrol", "-o", "-d", "show", "jobs")
    leaf = {f"gpu{number:02}": (number - 1) // 4 for number in range(1, NODES + 1)}
    found: list[Ran] = []
    for job in map(job_of, lines_of(text, "JobId")):
        if int(job.id) in numbers:
            if job.state != "COMPLETED" or job.started_s is None or job.end_s is None:
                sys.exit(f"job {job.id} ended as {job.state}")
            leafs = {leaf[node] for node in expand(job.node_list)}
            wait_s = job.started_s - job.submitted_s
            blocks = len({each // 2 for each in leafs})
            found.append(Ran(numbers[int(job.id)].nodes, wait_s, job.started_s, job.end_s, blocks, len(leafs)))
    if len(found) != len(asked):
        sys.exit(f"Slurm remembers {len(found)} of {len(asked)} jobs: fewer jobs, or a larger MinJobAge")
    return found


def told(way: str, ran: list[Ran]) -> str:
    """A line of the table."""
    span_s = max(each.end_s for each in ran) - min(each.start_s - each.wait_s for each in ran)
    used = sum(each.nodes * (each.end_s - each.start_s) for each in ran) / (NODES * span_s)
    gangs = [each for each in ran if each.nodes > 1]
    big = [each.wait_s for each in ran if each.nodes >= 4]
    in_leaf = sum(each.leafs == -(-each.nodes // 4) for each in gangs)
    in_block = sum(each.blocks == 1 for each in gangs)
    return (
        f"| {way} | {statistics.mean(each.wait_s for each in ran):.1f} | {statistics.mean(big):.1f} | {span_s:.0f} "
        f"| {100 * used:.0f} % | {in_block} of {len(gangs)} | {in_leaf} of {len(gangs)} |"
    )


def main() -> None:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asked = mix(given.jobs, given.seed)
    slurm = Slurm("steering-contest", Settings(nodes=NODES, parameters=("MinJobAge=3600",)))
    try:
        slurm.up(tied=True)
        print(
            "| | mean wait s | of gangs of 4 and more s | span s | GPU time used | gangs in one block | fewest leafs |"
        )
        print("|---|---|---|---|---|---|---|")
        for way, options in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                print(told(way, one_round(slurm, asked, options, Path(folder))), flush=True)
    finally:
        slurm.down()


if __name__ == "__main__":
    main()
