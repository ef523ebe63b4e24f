"""Sweeps: workloads x policies x seeds, in this process or in several; finished runs are kept on disk.

A run is named by a digest of all that it depends on, so `--resume` can only meet its own earlier results.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path

import msgspec
from msgspec import Struct

from muster.cache import forget, keep, kept
from muster.engine.state import FleetState
from muster.kernels import Knowledge, user_cache
from muster.model.workload import ShapeMix
from muster.policy.registry import find_policy
from muster.sim.details import CURVES_AND_NODES, RunDetails, details_of
from muster.sim.inflate import InflationData, InflationRun, run_inflation
from muster.sim.inputs import fleet_of, forget_inputs, workload_of
from muster.sim.processes import Where, running
from muster.sim.warm_up import warm_up


class Task(Struct, frozen=True):
    """One run of a sweep, by the specs that its process reads.

    ``details`` is what to keep beside the figures: nothing, ``curves``, or ``nodes`` (curves and the nodes' end).
    """

    fleet: str
    workload: str
    policy: str
    seed: int
    factor: float
    details: str = ""


class Outcome(Struct, frozen=True):
    """A finished run: what it was, its figures, and the seconds that placing and measuring took."""

    workload: str
    policy: str
    seed: int
    run: InflationRun
    wall_s: float
    details: RunDetails | None = None


def perform(task: Task) -> Outcome:
    """Run one task, and keep the details that it asks for."""
    outcome, data = perform_with_data(task)
    if not task.details:
        return outcome
    details = details_of(data, outcome.run.gpus, nodes=task.details == CURVES_AND_NODES)
    return msgspec.structs.replace(outcome, details=details)


def perform_with_data(task: Task) -> tuple[Outcome, InflationData]:
    """Run one task and keep everything that a report may show."""
    fleet, trace = fleet_of(task.fleet), workload_of(task.workload, task.fleet)
    policy = find_policy(task.policy)
    warm_up(task.policy)
    started = time.perf_counter()
    run, data = run_inflation(fleet, trace.workloads, policy, task.seed, task.factor, _tuned)
    return Outcome(trace.name, task.policy, task.seed, run, time.perf_counter() - started), data


def sweep(
    tasks: Sequence[Task],
    jobs: int,
    *,
    resume: bool,
    digest: str,
    each: Callable[[Outcome], None],
    where: Where = "local",
) -> list[Outcome]:
    """Run all tasks and return their outcomes in the order of ``tasks``; ``each`` is called as they finish.

    They run in ``jobs`` processes of this machine, or on a Ray cluster, whose CPUs then decide how many at a time.

    Finished runs are kept in the user's cache until the whole sweep is done; ``resume`` takes up what an interrupted
    one left.
    """
    folder = user_cache() / "sweeps" / digest
    paths = [folder / f"{index}.json" for index in range(len(tasks))]
    done: dict[int, Outcome] = {}
    for index, (task, path) in enumerate(zip(tasks, paths, strict=True)):
        if not resume:
            forget(path)
        elif (found := kept(path, Outcome)) is not None and _is_of(found, task):
            done[index] = found
            each(found)
    left = [index for index in range(len(tasks)) if index not in done]
    safe = len(done)
    try:
        for index, outcome in _perform_all(tasks, left, jobs, where):
            safe += keep(paths[index], outcome)
            done[index] = outcome
            each(outcome)
    except KeyboardInterrupt:
        again = "; the same command with --resume goes on" if safe else ""
        raise KeyboardInterrupt(f"{safe:,} of {len(tasks):,} runs are kept{again}") from None
    for path in paths:
        forget(path)
    forget(folder)
    return [done[index] for index in range(len(tasks))]


def _is_of(outcome: Outcome, task: Task) -> bool:
    """Whether a kept outcome can be that of the task: rubbish is not."""
    same = (outcome.policy, outcome.seed) == (task.policy, task.seed)
    return same and (outcome.details is not None) == bool(task.details) and outcome.wall_s > 0


def _perform_all(tasks: Sequence[Task], left: Sequence[int], jobs: int, where: Where) -> Iterator[tuple[int, Outcome]]:
    if where == "ray":
        from muster.sim.on_ray import running_on_ray

        if left:
            with running_on_ray(perform, [tasks[index] for index in left]) as futures:
                yield from _as_completed(futures, left)
        return
    if jobs == 1 or len(left) < 2:
        try:
            for index in left:
                yield index, perform(tasks[index])
        finally:
            forget_inputs()
        return
    for name in dict.fromkeys(tasks[index].policy for index in left):
        warm_up(name)  # compiled here, once, and not in every process
    with running(perform, [tasks[index] for index in left], jobs) as futures:
        yield from _as_completed(futures, left)


def _as_completed(futures: Sequence[Future[Outcome]], left: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
    number = dict(zip(futures, left, strict=True))
    for future in as_completed(futures):
        yield number[future], future.result()


def sweep_digest(tasks: Sequence[Task], version: str) -> str:
    """A name for the sweep: changes with its options and with the contents of its files."""
    digest = hashlib.sha256(version.encode())
    for task in tasks:
        digest.update(msgspec.json.encode(task))
    for spec in sorted({task.fleet for task in tasks} | {task.workload for task in tasks}):
        path = Path(spec.partition(":")[2].partition(",")[0] or spec)
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _tuned(state: FleetState, mix: ShapeMix) -> Knowledge | None:
    from muster.planning.tune import knowledge_from, tuned

    tuning = tuned(state.fleet, mix)
    return None if tuning.chosen == "fgd" else knowledge_from(tuning)
