"""Replay beside a peer in the same run: AccaSim from PyPI, first come first served on the same SWF jobs and nodes.

    .venv/bin/python benchmarks/peers.py [DATA]

DATA is the data folder (default: $MUSTER_DATA, else ../shared/data); without the files there, synthetic jobs are
taken. AccaSim is installed into an environment of its own in a temporary folder, and is never a dependency of Muster.

Both get the same file: jobs that ran, their processors, submission and run times. The memory columns are blanked, for
AccaSim turns jobs away that name memory on a system without. Both start jobs strictly in order, one core a processor,
on any node with a free core, so the start of every job must be the same; that is checked. What differs: AccaSim
allocates first-fit and writes the nodes of each job, Muster scores nodes (best-fit) and keeps a series and percentiles;
AccaSim reads the file as it goes, Muster at once. AccaSim 1.1.3 needs two shims on Python 3.11: names that left
`collections` and `numpy`.

hpcsim, the other peer on PyPI, cannot do the same work: it imports no traces, and its jobs have iterations and a
throughput model, not a recorded run time.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from bench_data import default_data

PEER = "accasim==1.1.3"

RUN_PEER = """
import collections, collections.abc, json, sys, time
import numpy
for name in ("Mapping", "MutableMapping", "Iterable", "Sequence", "Callable"):
    setattr(collections, name, getattr(collections.abc, name))
for name, kind in (("int", int), ("float", float), ("bool", bool), ("object", object)):
    if name not in numpy.__dict__:
        setattr(numpy, name, kind)
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import FirstInFirstOut
from accasim.base.simulator_class import Simulator

trace, nodes, cores, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with open(folder + "/system.json", "w") as file:
    json.dump({"system_name": "same", "start_time": 0, "equivalence": {"processor": {"core": 1}},
               "groups": {"node": {"core": cores}}, "resources": {"node": nodes}}, file)
plan = {"format": "{job};{start}", "attributes": {"job": ("id", "str"), "start": ("start_time", "int")}}
begun = time.perf_counter()
Simulator(trace, folder + "/system.json", FirstInFirstOut(FirstFit()), statistics_output=False, show_statistics=False,
          SCHEDULE_OUTPUT=plan, RESULTS_FOLDER_PATH=folder).start_simulation()
wall_s = time.perf_counter() - begun
with open(folder + "/sched-" + trace.rsplit("/", 1)[-1]) as file:
    starts = dict(line.strip().split(";") for line in file if line.strip())
with open(folder + "/peer.json", "w") as file:
    json.dump({"wall_s": wall_s, "starts": {f"job-{job}": float(start) for job, start in starts.items()}}, file)
"""

RUN_MUSTER = """
import json, sys, time
import numpy as np
from muster.policy.registry import find_policy
from muster.sim.replay import Replay
from muster.sim.replay_runs import PlacerMaker
from muster.traces import read_fleet, read_workload

trace, nodes, cores, folder = sys.argv[1:5]
begun = time.perf_counter()
fleet = read_fleet(f"uniform:nodes={nodes},gpus=0,cpu={cores}")[0]
jobs = read_workload(f"swf:{trace}", fleet).workloads
result = Replay(fleet, jobs, PlacerMaker(find_policy("best-fit"), fleet, jobs, 0)).run()
wall_s = time.perf_counter() - begun
starts = {job.name: start for job, start in zip(jobs, result.start_s.tolist()) if start == start}
with open(folder + "/muster.json", "w") as file:
    json.dump({"wall_s": wall_s, "starts": starts}, file)
"""


def same_jobs(source: Path, most: int, target: Path) -> int:
    """Write up to ``most`` jobs that ran, without memory; returns how many. Synthetic ones if there is no source."""
    rows: list[list[str]] = []
    if source.exists():
        text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
        for line in text.decode().splitlines():
            parts = line.split()
            if not line.startswith(";") and len(parts) >= 18 and float(parts[3]) > 0 and len(rows) < most:
                rows.append(parts)
    else:
        print(f"{source} is not here: synthetic jobs instead")
        draw = random.Random(7)
        at = 0
        for job in range(1, most + 1):
            at += draw.randrange(120)
            ran, cores = str(draw.randrange(1, 20000)), str(2 ** draw.randrange(7))
            rows.append(
                [str(job), str(at), "-1", ran, cores, "-1", "-1", cores, ran, "-1", "1", *["1"] * 5, "-1", "-1"]
            )
    for row in rows:
        row[6] = row[9] = "-1"
    target.write_text("".join(" ".join(row[:18]) + "\n" for row in rows))
    return len(rows)


def timed(python: Path | str, program: str, arguments: list[str]) -> float:
    """Wall seconds of a whole process."""
    started = time.perf_counter()
    done = subprocess.run([python, "-c", program, *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program.strip().splitlines()[0]} ... failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - started


def compare(name: str, python: Path, source: Path, most: int, nodes: int, cores: int, folder: Path) -> None:
    """Both on the same jobs: figures, ratio, and whether all starts agree."""
    trace = folder / f"{name}.swf"
    count = same_jobs(source, most, trace)
    arguments = [str(trace), str(nodes), str(cores), str(folder)]
    timed(sys.executable, RUN_MUSTER, arguments)  # kernels are compiled, once
    whole = {"muster": timed(sys.executable, RUN_MUSTER, arguments), "peer": timed(python, RUN_PEER, arguments)}
    told = {who: json.loads((folder / f"{who}.json").read_text()) for who in whole}
    print(f"{name}: {count:,} jobs on {nodes:,} nodes of {cores} cores, first come first served")
    for who in whole:
        inside = told[who]["wall_s"]
        title = {"muster": "Muster", "peer": PEER}[who]
        print(f"  {title:15} {inside:7.2f} s reading and replaying, {count / inside:9,.0f} jobs/s; ", end="")
        print(f"{whole[who]:6.2f} s with process start")
    inside, outside = told["peer"]["wall_s"] / told["muster"]["wall_s"], whole["peer"] / whole["muster"]
    print(f"  ratio: {inside:.1f} x as fast inside, {outside:.1f} x with process start")
    ours, theirs = told["muster"]["starts"], told["peer"]["starts"]
    differ = [job for job in ours if ours[job] != theirs.get(job)]
    if not differ and len(ours) == len(theirs):
        print(f"  starts: all {len(ours):,} agree")
    else:
        print(f"  starts: {len(ours) - len(differ):,} of {len(ours):,} agree; the peer started {len(theirs):,}")
        for job in differ[:3]:
            print(f"    {job}: {ours[job]:.0f} here, {theirs.get(job)} there")


def main() -> None:
    data = (Path(sys.argv[1]) if len(sys.argv) > 1 else default_data()) / "jobs"
    with tempfile.TemporaryDirectory(prefix="muster-peers-") as made:
        folder = Path(made)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER]
        done = subprocess.run(install, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{PEER} cannot be installed here, so nothing is compared:\n{done.stderr[-2000:]}")
        compare("hpc2n", python, data / "hpc2n.swf", 3500, 120, 2, folder)
        compare("RICC-begin", python, data / "RICC-2010-2.swf.gz", 8000, 1024, 8, folder)


if __name__ == "__main__":
    main()
