"""Replays over workloads x policies x seeds, in this process or in several, under every policy of the registry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from msgspec import Struct

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.model.fleet import Fleet
from muster.model.workload import ShapeMix, Workload
from muster.policy.registry import PolicyEntry, find_policy
from muster.sim.inflate import typical_knowledge
from muster.sim.inputs import fleet_of, forget_inputs, workload_of
from muster.sim.processes import Where, running
from muster.sim.replay import Replay, ReplayFigures
from muster.sim.warm_up import warm_up
from muster.traces import Trace

PARTS = 100
"""In how many parts the progress of a replay is told."""


class ReplayTask(Struct, frozen=True):
    """One replay, by the specs that its process reads."""

    fleet: str
    workload: str
    policy: str
    seed: int


class ReplayOutcome(ReplayFigures, frozen=True, kw_only=True):
    """A finished replay: what it was, its figures, and the seconds that it took without reading.

    Attributes:
        gpus: healthy GPUs of the fleet.
        rejected: jobs that can never start.
        scored_by: the policy whose score was used: `default` may find that FGD is better for a mix.
        skipped: rows that the reader left out.
        gpu_most, cpu_most: the largest shares in use at one time, from 0 to 1.
    """

    workload: str
    policy: str
    seed: int
    gpus: int
    rejected: int
    scored_by: str
    wall_s: float
    skipped: int
    gpu_most: float
    cpu_most: float


class PlacerMaker:
    """Makes the placers of one replay: the policy, with what it may know of the mix of shapes, and the seed.

    ``scored_by`` is the policy whose score is used in the end. A policy that needs tuning is fitted to the fleet and
    the mix (or taken from the cache); without GPUs, or without demand for them, there is nothing to fit and its start
    weights place CPU pods.
    """

    def __init__(self, policy: PolicyEntry, fleet: Fleet, workloads: Sequence[Workload], seed: int) -> None:
        self._seed = seed
        self._mix = ShapeMix.of(workloads) if policy.needs_typical or policy.needs_tuning else ShapeMix((), ())
        self._knowledge = None
        if policy.needs_tuning:
            from muster.planning.tune import knowledge_from, tuned

            tuning = tuned(fleet, self._mix)
            if tuning.chosen == "fgd":
                policy = find_policy("fgd")
            else:
                self._knowledge = knowledge_from(tuning)
        self._policy = policy
        self.scored_by = policy.name

    def __call__(self, state: FleetState) -> Placer:
        """The placer of a fleet state."""
        knowledge = typical_knowledge(state, self._mix) if self._policy.needs_typical else self._knowledge
        return Placer(state, self._policy.load_score(), knowledge, self._policy.selection, self._seed)


def read_inputs(fleet: str, workload: str) -> tuple[Fleet, Trace]:
    """Read a fleet and a workload; the last of each is kept. Raises `InputError` as the readers do."""
    return fleet_of(fleet), workload_of(workload, fleet)


def fit_for(fleet: Fleet, workloads: Sequence[Workload], say: Callable[[str], None]) -> bool:
    """Fit the default policy, or find its tuning in the cache; False where there is nothing to fit (no GPUs)."""
    from muster.planning.tune import tuned

    return tuned(fleet, ShapeMix.of(workloads), say=say).generations > 0


def replay_one(task: ReplayTask, progress: Callable[[], None] | None = None) -> ReplayOutcome:
    """Run one task; ``progress`` is called PARTS times on the way. Raises `InputError` as the readers do."""
    fleet, trace = read_inputs(task.fleet, task.workload)
    policy = find_policy(task.policy)
    warm_up(task.policy, replay=True)
    gpus = sum(node.healthy_gpus for node in fleet.nodes)
    started = time.perf_counter()
    maker = PlacerMaker(policy, fleet, trace.workloads, task.seed)
    replay = Replay(fleet, trace.workloads, maker)
    if progress is not None:
        _run_in_parts(replay, progress)
    result = replay.run()
    return ReplayOutcome(
        workload=trace.name,
        policy=task.policy,
        seed=task.seed,
        gpus=gpus,
        rejected=len(result.rejected),
        scored_by=maker.scored_by,
        wall_s=time.perf_counter() - started,
        skipped=len(trace.skipped),
        gpu_most=result.gpu_most_milli / gpus / 1000 if gpus else 0.0,
        cpu_most=result.cpu_most_milli / fleet.cpu_milli if fleet.cpu_milli else 0.0,
        **{name: getattr(result, name) for name in ReplayFigures.__struct_fields__},
    )


def _run_in_parts(replay: Replay, progress: Callable[[], None]) -> None:
    """Run up to the last submission, in parts with as many submissions each; running in parts changes nothing."""
    submitted = sorted(job.submitted_s for job in replay.workloads)
    for part in range(1, PARTS + 1):
        done = len(submitted) * part // PARTS
        if done:
            replay.events.run(submitted[done - 1])
        progress()


def replay_tasks(
    tasks: Sequence[ReplayTask], jobs: int, progress: Callable[[], None] | None = None, where: Where = "local"
) -> Iterator[ReplayOutcome]:
    """Run all tasks in ``jobs`` processes, or on a Ray cluster; outcomes in the order of ``tasks``, as they get ready.

    ``progress`` is called PARTS times a task, in this process (at once for a task that ran in another).
    """
    if where == "ray":
        from muster.sim.on_ray import running_on_ray

        with running_on_ray(replay_one, tasks) as futures:
            yield from _in_order(futures, progress)
        return
    if jobs == 1 or len(tasks) < 2:
        try:
            for task in tasks:
                yield replay_one(task, progress)
        finally:
            forget_inputs()
        return
    for name in dict.fromkeys(task.policy for task in tasks):
        warm_up(name, replay=True)  # compiled here, once, and not in every process
    with running(replay_one, tasks, jobs) as futures:
        yield from _in_order(futures, progress)


def _in_order(futures: Sequence[Future[ReplayOutcome]], progress: Callable[[], None] | None) -> Iterator[ReplayOutcome]:
    for future in futures:
        outcome = future.result()
        if progress is not None:
            for _ in range(PARTS):
                progress()
        yield outcome
