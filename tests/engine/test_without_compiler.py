"""Without the compiler (``NUMBA_DISABLE_JIT=1``) the same kernels, as plain Python, place the same pods."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.model.fleet import Fleet
from muster.model.workload import ShapeMix
from muster.policy.registry import POLICIES
from muster.sim.inflate import typical_knowledge

PODS = 60

_SCRIPT = """
import json, pickle, sys
from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.policy.registry import find_policy
import numba

assert numba.config.DISABLE_JIT
with open(sys.argv[1], "rb") as file:
    fleet, shapes, stream, knowledge, measure = pickle.load(file)
result = {}
for name, known in knowledge.items():
    entry, state = find_policy(name), FleetState(fleet)
    for shape in shapes:
        state.shape_id(shape)
    placer = Placer(state, entry.load_score(), known, entry.selection, seed=5)
    out, fragments = placer.place_stream(stream, measure)
    result[name] = [out.tolist(), fragments.round(6).tolist()]
print(json.dumps(result))
"""


def test_same_placements(
    small_fleet: Fleet, small_mix: ShapeMix, placer_of: Callable[[str, FleetState], Placer], tmp_path: Path
) -> None:
    counts = np.array(small_mix.counts)
    stream = np.random.default_rng(4).choice(len(counts), PODS, p=counts / counts.sum()).astype(np.int64)
    expected, knowledge = {}, {}
    for name in POLICIES:
        state = FleetState(small_fleet)
        assert [state.shape_id(shape) for shape in small_mix.shapes] == list(range(len(counts)))
        measure = typical_knowledge(state, small_mix)
        placer = placer_of(name, state)
        knowledge[name] = placer.knowledge
        shapes = state.shape_list
        out, fragments = placer.place_stream(stream, measure)
        assert (out[0] >= 0).sum() > PODS / 2
        expected[name] = [out.tolist(), fragments.round(6).tolist()]
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps((small_fleet, shapes, stream, knowledge, measure)))
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", _SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    for name in POLICIES:
        assert found[name] == expected[name], name


def test_shares_of_a_gpu() -> None:
    """What numpy refuses and compiled code does not, such as a difference of two truths."""
    script = """
from muster.engine.config import Config
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, Workload
from muster.sim.cluster_run import ClusterRun, RunOptions

nodes = tuple(Node(f"n{at}", 1000, 1000, (Device(0, "H100"),), topology=(f"d{at}",)) for at in range(2))
shapes = PodShape(1, 1, 1, 300, tenant="a"), PodShape(1, 1, 1, 125, mig_profile="1g.10gb"), PodShape(1, 1, 1)
work = [Workload(f"w{at}", (PodSet(shape, 2),), duration_s=1.0) for at, shape in enumerate(shapes)]
run = ClusterRun(Snapshot(Fleet(nodes, Topology(("nvlink_domain",)))), work, Config(), RunOptions(check_every=1))
assert {story.end for story in run.run()} == {"finished"}
"""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
