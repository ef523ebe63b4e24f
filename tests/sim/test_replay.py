import copy
import pickle

import numpy as np

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.model.workload import PodSet, PodShape, Workload
from muster.policy.registry import find_policy
from muster.sim.replay import Replay
from muster.traces import read_fleet


def placer(state: FleetState) -> Placer:
    return Placer(state, find_policy("best-fit").load_score())


def job(name: str, at: float, lasts: float | None, gpus: int, pods: int = 1) -> Workload:
    return Workload(name, (PodSet(PodShape(gpus=gpus), pods),), submitted_s=at, duration_s=lasts)


def replay() -> Replay:
    jobs = [job("a", 0, 10, 6), job("b", 1, 5, 4, 2), job("c", 2, 1, 1), job("big", 3, 1, 8, 3), job("d", 4, 2, 4)]
    return Replay(read_fleet("uniform:nodes=1,gpus=8,model=P100")[0], jobs, placer, check_every=1)


def test_head_blocks_and_too_large_is_rejected() -> None:
    result = replay().run()
    np.testing.assert_array_equal(result.start_s, [0, 10, 15, np.nan, 15])
    assert (result.arrived, result.started, result.finished, result.makespan_s) == (5, 4, 4, 17)
    assert [name for name, _ in result.rejected] == ["big"]
    assert result.gpu_utilisation == (60 + 40 + 1 + 8) / (8 * 17)


def test_a_fork_continues_to_the_same_result() -> None:
    whole = replay().run()
    part = replay()
    part.run(4)
    for fork in (copy.deepcopy(part), pickle.loads(pickle.dumps(part))):
        again = fork.run()
        np.testing.assert_array_equal(again.start_s, whole.start_s)
        assert again.series == whole.series
    assert part.state.nodes.pods.sum() == 1
