"""How long a gang takes to find its place under a topology request, on one core, beside the bar.

    .venv/bin/python benchmarks/topology.py

10,000 nodes of 8 GPUs in 40 blocks of 10 racks of 25 nodes, of which a part is taken at random (a fixed seed). Medians
of 15 calls in this process; the compilation, once, is told apart.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from muster.engine.placement import Placer
from muster.engine.state import Allocation, FleetState
from muster.engine.topology import GangPlacement, Refused, TopologyIndex, place_gang
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.workload import PodShape, TopologyRequest
from muster.policy.registry import find_policy

NODES, RACK, BLOCK = 10_000, 25, 250
WHOLE_NODE = PodShape(cpu_milli=96_000, memory_bytes=2**39, gpus=8)
CALLS = 15


def machine() -> str:
    """Processor, cores that this process may use, load and Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores, load {os.getloadavg()[0]:.1f} at the start, Python {platform.python_version()}"


def fleet() -> Fleet:
    devices = tuple(Device(at, "H100-SXM5-80GB") for at in range(8))
    nodes = (
        Node(f"n{at:05d}", 128_000, 2**40, devices, topology=(f"z{at // 2500}", f"b{at // BLOCK}", f"r{at // RACK}"))
        for at in range(NODES)
    )
    return Fleet(tuple(nodes), Topology(("zone", "block", "rack")))


def take(state: FleetState, share: float, seed: int) -> None:
    """A part of the nodes, at random, runs something on two GPUs."""
    shape = state.shape_id(PodShape(cpu_milli=8000, gpus=2))
    for node in np.random.default_rng(seed).permutation(NODES)[: round(share * NODES)].tolist():
        state.assign(Allocation(node, shape, 3))


Result = GangPlacement | Refused


def timed(state: FleetState, call: Callable[[], Result]) -> tuple[float, float, Result]:
    """The first call, the median of the later ones (both in ms), and what it gave; each is undone."""
    times: list[float] = []
    result = None
    for _ in range(CALLS + 1):
        with state.trial():
            started = time.perf_counter()
            result = call()
            times.append(1000 * (time.perf_counter() - started))
    assert result is not None
    return times[0], statistics.median(times[1:]), result


def main() -> None:
    print(f"Machine: {machine()}\n{NODES:,} nodes, 8 GPUs each; blocks of {BLOCK} nodes, racks of {RACK}\n")
    nodes = fleet()
    started = time.perf_counter()
    index = TopologyIndex(FleetState(nodes))
    print(f"{'index of the topology, once':70} {1000 * (time.perf_counter() - started):8.1f} ms")
    whole, leader = (WHOLE_NODE, 512), (PodShape(cpu_milli=8000), 1)
    cases: list[tuple[str, float, list[tuple[PodShape, int]], TopologyRequest | None, float, bool]] = [
        ("zone required, rack preferred", 0.5, [whole], TopologyRequest("zone", "rack"), 200, True),
        ("zone required, block preferred", 0.0, [whole], TopologyRequest("zone", "block"), 200, True),
        ("the same, with a leader", 0.0, [leader, whole], TopologyRequest("zone", "block"), 200, True),
        ("segments of 16 in a rack, zone preferred", 0.0, [whole], TopologyRequest("rack", "zone", 16), 200, True),
        ("zone required, spread over racks", 0.5, [whole], TopologyRequest("zone", spread="rack"), 200, True),
        ("nothing asked", 0.5, [whole], None, 200, True),
        ("cannot fit: 9 nodes are free", 0.9991, [(WHOLE_NODE, 10)], None, 20, False),
        ("cannot fit: no rack has 10 free", 0.9, [(WHOLE_NODE, 10)], TopologyRequest("rack"), 20, False),
        ("cannot fit: no block has 512 nodes", 0.0, [whole], TopologyRequest("block", "rack"), 20, False),
    ]
    missed = 0
    for name, share, gang, request, bar, fits in cases:
        state = FleetState(nodes)
        take(state, share, seed=7)
        index = TopologyIndex(state)
        placer = Placer(state, find_policy("best-fit").load_score())
        sets = [(state.shape_id(shape), count) for shape, count in gang]
        first, median, result = timed(state, lambda: place_gang(placer, index, sets, request))  # noqa: B023
        assert isinstance(result, GangPlacement) == fits, result
        where = ", ".join(f"{n} {level}" for level, n in result.counts) if isinstance(result, GangPlacement) else ""
        missed += median >= bar
        print(
            f"{sum(count for _, count in gang):3} pods x 8 GPUs, {name:42} {first:6.1f} ms first, then {median:6.2f} ms"
            f"  at most {bar:3.0f} ms {'ok' if median < bar else 'MISSED'}  {where}".rstrip()
        )
    print("\nAll bars cleared." if not missed else f"\nMissed: {missed}")


if __name__ == "__main__":
    main()
