"""Defragmentation: gangs that need whole nodes on a fleet of fragments, and how far the moves are from the best.

    .venv/bin/python benchmarks/defrag.py [--nodes 500] [--large 10000] [--cases 200]

1. 41 gangs of 10 pods x 8 GPUs wait on 500 nodes with small work on each: one cycle. Bar: 5 s. Twice: a job of 1 GPU a
   node, and a mix of jobs and gangs that holds a sixth of all GPUs.
2. The same fleet, larger: the longest search that finds nothing, as each job is dear; and one that finds moves.
3. Small random cases, moves of the engine beside those of the exact solver (skipped without ortools).
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import random
import statistics
import time

from muster.engine.config import Config
from muster.engine.defrag import plan_moves
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Migrate, Place, Plan, PodPlacement
from muster.model.reasons import Reason
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload

NOW_S = 86_400.0
SAVED = Checkpointing(1800.0, 300.0)
GANGS, PODS = 41, 10
MIX = ((1, 1), (1, 1), (1, 1), (1, 2), (1, 4), (2, 1), (4, 1))
"""Pods and GPUs of each of small work."""


def fleet(nodes: int, rack: int = 16) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(8))
    return Fleet(
        tuple(Node(f"n{i:05}", 192_000, 2 << 40, devices, topology=(f"r{i // rack}",)) for i in range(nodes)),
        Topology(("rack",)),
    )


def workload(name: str, pods: int, gpus: int, topology: TopologyRequest | None = None) -> Workload:
    shape = PodShape(4000 * gpus, gpus << 34, gpus)
    return Workload(name, (PodSet(shape, pods),), 0.0, None, 172_800.0, checkpointing=SAVED, topology=topology)


def one_a_node(nodes: int, rng: random.Random) -> Snapshot:
    running = tuple(
        Running(
            workload(f"s{i:05}", 1, 1), rng.uniform(0, NOW_S - SAVED.interval_s),
            (PodPlacement(f"n{i:05}", (rng.randrange(8),), 1000),), NOW_S - rng.uniform(0, SAVED.interval_s),
        )
        for i in range(nodes)
    )  # fmt: skip
    return Snapshot(fleet(nodes), running=running, taken_s=NOW_S)


def mixed(
    nodes: int, rng: random.Random, part: float, rack: int = 16, mix: tuple[tuple[int, int], ...] = MIX
) -> Snapshot:
    """Small work at random places that holds a part of all GPUs; what was beside it has ended."""
    config = Config(placement="random", queueing="best-effort", defragment=False)
    scheduler = Scheduler(Snapshot(fleet(nodes, rack)), config)
    asked = 0
    number = 0
    while asked < part * nodes * 8:
        pods, gpus = rng.choice(mix)
        asked += pods * gpus
        number += 1
        request = TopologyRequest(required="rack") if pods > 1 and rng.random() < 0.5 else None
        scheduler.submit(workload(f"s{number:05}", pods, gpus, request))
    scheduler.cycle(0.0)
    for run in scheduler.running:
        run.checkpointed_s = NOW_S - rng.uniform(0, SAVED.interval_s)
    for name in list(scheduler.pending.gangs):
        scheduler.cancel(name)
    return scheduler.snapshot(NOW_S)


def cycle(snapshot: Snapshot, gangs: int, pods: int, config: Config) -> tuple[Plan, float]:
    scheduler = Scheduler(snapshot, config)
    for number in range(gangs):
        scheduler.submit(workload(f"gang-{number:02}", pods, 8))
    began = time.perf_counter()
    plan = scheduler.cycle(NOW_S)
    return plan, time.perf_counter() - began


def show(name: str, plan: Plan, wall_s: float) -> None:
    moves = [each for each in plan.decisions if isinstance(each, Migrate)]
    started = sum(isinstance(each, Place) for each in plan.decisions)
    hours = sum(each.cost_gpu_s for each in moves) / 3600
    print(f"{name:<44} {wall_s:7.2f} s  {started:3} start  {len(moves):5} moves  {hours:8.1f} GPU-hours")


def forty_one(nodes: int) -> None:
    print(f"{GANGS} gangs of {PODS} pods x 8 GPUs on {nodes} nodes x 8 GPUs, one cycle")
    cycle(one_a_node(8, random.Random(0)), 1, 6, Config())  # compiles
    show("one job of 1 GPU a node", *cycle(one_a_node(nodes, random.Random(1)), GANGS, PODS, Config()))
    show("a mix that holds a sixth", *cycle(mixed(nodes, random.Random(1), 1 / 6), GANGS, PODS, Config()))
    show("the mix, no moves", *cycle(mixed(nodes, random.Random(1), 1 / 6), GANGS, PODS, Config(defragment=False)))


def large(nodes: int) -> None:
    print(f"\n{nodes} nodes, a mix that holds three quarters: one search for a gang of 512 pods x 8 GPUs, and one for")
    print("64 pods in segments of 8, each in one rack of 16 nodes")
    scheduler = Scheduler(mixed(nodes, random.Random(1), 0.75), Config())
    scheduler.submit(workload("gang", 512, 8))
    scheduler.submit(workload("racks", 64, 8, TopologyRequest(required="rack", segment=8)))
    for name in ("gang", "racks"):
        for words, budget in (("at any price", float("inf")), ("for nothing", 0.0)):
            began = time.perf_counter()
            found = plan_moves(scheduler, scheduler.pending.gangs[name], NOW_S, budget)
            wall_s = time.perf_counter() - began
            what = "none" if found is None else f"{len(found.moved)} moves, {found.cost_gpu_s / 3600:.1f} GPU-hours"
            print(f"{name:<8} {words:<14} {wall_s * 1000:9.0f} ms  {len(scheduler.running):6,} running  {what}")


def beside_the_best(cases: int) -> None:
    if importlib.util.find_spec("ortools") is None:
        print("\nortools is not installed: the engine's moves are not compared with the best")
        return
    from muster.planning.exact import move_problem
    from muster.planning.exact_solver import solve  # in this process: starting another takes longer than solving

    ratios: list[float] = []
    both = missed = neither = unproven = 0
    for seed in range(cases):
        rng = random.Random(seed)
        nodes = rng.randint(4, 12)
        snapshot = mixed(nodes, rng, rng.uniform(0.3, 0.7), 4, (*MIX, (2, 3), (1, 6)))
        free = nodes * 8 - sum(each.workload.gpu_milli for each in snapshot.running) // 1000
        gpus = rng.choice((4, 8, 8))
        scheduler = Scheduler(snapshot, Config())
        request = rng.choice(
            (None, None, TopologyRequest(required="rack"), TopologyRequest(required="rack", segment=2))
        )
        scheduler.submit(workload("gang", max(1, int(free / gpus * rng.uniform(0.3, 1.0))), gpus, request))
        gang = scheduler.pending.gangs["gang"]
        if not isinstance(scheduler.cluster.place(gang.kind, ""), Reason):
            continue  # it fits without any move
        found = plan_moves(scheduler, gang, NOW_S, float("inf"))
        problem, _ = move_problem(scheduler, gang, "", NOW_S)
        best = solve(problem, 10.0)
        unproven += best.status not in ("optimal", "infeasible")
        if best.status == "optimal":
            both += found is not None
            missed += found is None
            if found is not None:
                ratios.append(found.cost_gpu_s / best.cost_gpu_s)
        neither += best.status == "infeasible"
    ratios.sort()
    print(f"\nSmall cases, 4 to 12 nodes, in which a gang does not fit: {both + missed + neither + unproven}")
    print(f"moves exist: {both + missed}; the engine found some in {both}; none exist: {neither}; unproven: {unproven}")
    best = sum(ratio < 1 + 1e-9 for ratio in ratios)
    at90 = ratios[int(0.9 * (len(ratios) - 1))]
    print(f"the engine's are the cheapest in {best} of {both}")
    print(f"its price over the least: median {statistics.median(ratios):.3f}, p90 {at90:.2f}, worst {ratios[-1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--large", type=int, default=10_000)
    parser.add_argument("--cases", type=int, default=200)
    given = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, one core")
    forty_one(given.nodes)
    large(given.large)
    beside_the_best(given.cases)


if __name__ == "__main__":
    main()
