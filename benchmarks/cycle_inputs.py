"""Fleets, queues and work for benchmarks/cycle.py."""

from __future__ import annotations

import random

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload

SHAPES = 200
SIZES = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (1, 4), (4, 2))
"""GPUs of a pod, and pods."""


def fleet(nodes: int) -> Fleet:
    """Nodes of 8 GPUs in racks of 16 and blocks of 512."""
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
    """Teams of one organisation with equal quotas that add up to ``milli``."""
    teams = tuple(
        Queue(f"team-{index:04}", parent="org", quotas=(Quota("H100", milli // count),)) for index in range(count)
    )
    return (Queue("org"), *teams)


def gangs(
    count: int, queue_count: int, rng: random.Random, *, queue: str | None = None, most_gpus: int = 128,
    prefix: str = "job",
) -> tuple[Workload, ...]:  # fmt: skip
    """Gangs of 200 shapes (fewer with ``most_gpus`` a gang), one submitted each second."""
    shapes = [
        PodSet(PodShape(4000 * gpus + 1000 * extra, (16 + extra) << 30, gpus), pods)
        for gpus, pods in SIZES
        if gpus * pods <= most_gpus
        for extra in range(SHAPES // len(SIZES))
    ]
    return tuple(
        Workload(
            f"{prefix}-{index:07}",
            (rng.choice(shapes),),
            submitted_s=float(index),
            time_limit_s=rng.choice((3600.0, 14400.0, 86400.0)),
            queue=f"team-{rng.randrange(queue_count):04}" if queue is None else queue,
        )
        for index in range(count)
    )


def whole_nodes(
    name: str, pods: int, topology: TopologyRequest | None = None, *, queue: str = "", extra_cpu_milli: int = 0
) -> Workload:
    """A gang of pods that each take all GPUs of a node."""
    shape = PodShape(8000 + extra_cpu_milli, 16 << 30, 8)
    return Workload(name, (PodSet(shape, pods),), time_limit_s=3600.0, topology=topology, queue=queue)


def reclaiming(candidates: int) -> Scheduler:
    """A full fleet on which two queues have borrowed nearly everything, with many gangs of 4 or 8 GPUs."""
    rng = random.Random(1)
    sizes = [rng.choice((8, 8, 8, 4, 4)) for _ in range(candidates // 2)]
    gpus = [*sizes, *sizes]  # halves of nodes come in pairs
    nodes = sum(gpus) // 8
    quotas = {"owner": 4 * nodes, "lender": 4 * nodes - 8, "a": 4, "b": 4}
    tree = tuple(Queue(name, parent="org", quotas=(Quota("H100", 1000 * quota),)) for name, quota in quotas.items())
    work = tuple(
        Workload(
            f"loan-{index:05}", (PodSet(PodShape(1000, 0, size)),), submitted_s=float(index), time_limit_s=86400.0,
            queue=rng.choice("ab"), checkpointing=Checkpointing(600.0, 60.0),
        )
        for index, size in enumerate(gpus)
    )  # fmt: skip
    scheduler = Scheduler(Snapshot(fleet(nodes), (Queue("org"), *tree), work), Config())
    scheduler.cycle(4000.0)
    assert len(scheduler.running) == candidates
    for run in scheduler.running:
        run.checkpointed_s = 4000.0 + 900.0 * rng.random()
    return scheduler
