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
