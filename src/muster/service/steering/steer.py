"""One cycle: read, decide, plan the writes, make them, remember. Nothing is kept between cycles but the memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from muster.backends.slurm.writes import Outcome, Run, carry_out
from muster.engine.config import Config
from muster.engine.decide import decide
from muster.model.notes import Note
from muster.model.plan import Evict, Migrate, Place, Plan, Reserve
from muster.model.snapshot import Snapshot
from muster.service.steering.memory import Memory, keep, recall
from muster.slurm.steering.scene import Scene, scene_of, without_muster
from muster.slurm.steering.seen import for_slurm, for_the_engine
from muster.slurm.steering.target import How, Target, target
from muster.slurm.steering.writes import Stamp, Write, left_on_running, releases, writes_for
from muster.slurm.translate import translate
from muster.slurm.world import SlurmWorld

_SOON = ("", "None", "Priority", "Resources", "Prolog", "BeginTime", "Cleaning", "Dependency")
"""Reasons for which a job may still start soon where it was sent."""
_GIVEN_UP_S = 600.0
_PASSES = 4


class Cycle(Struct):
    """What one cycle found and wants: nothing is written yet."""

    world: SlurmWorld
    scene: Scene
    snapshot: Snapshot
    plan: Plan
    wanted: Target
    writes: list[Write]
    notes: tuple[Note, ...] = ()
    given_up: tuple[str, ...] = ()

    def counts(self) -> tuple[int, int, int, int]:
        """How many jobs the plan starts, promises a start, stops, and moves."""
        kinds = (Place, Reserve, Evict, Migrate)
        made = [sum(isinstance(each, kind) for each in self.plan.decisions) for kind in kinds]
        return made[0], made[1], made[2], made[3]


class Steering:
    """Steers one Slurm.

    Args:
        read: reads its records; raises `ClusterError`.
        run: runs scontrol.
        stamp: writes times as scontrol takes them.
        state: the file of the memory.
        how: see `How`.
        config: of the engine.
        patience_s: a job that should have started and has not for so long is left to slurmctld for ten minutes.
    """

    def __init__(
        self, read: Callable[[], SlurmWorld], run: Run, stamp: Stamp, state: Path, how: How, config: Config,
        patience_s: float = 60.0,
    ) -> None:  # fmt: skip
        self._read, self._run, self._stamp, self._state = read, run, stamp, state
        self.how, self.config, self._patience_s = how, config, patience_s

    def look(self) -> tuple[SlurmWorld, Scene, Memory, Snapshot, tuple[Note, ...]]:
        """What there is, and the snapshot of it as it would be without Muster."""
        world = self._read()
        memory = recall(self._state, world.cluster)
        found = translate(without_muster(world, memory.marks, memory.moved))
        scene = scene_of(world, found, memory.marks)
        return world, scene, memory, found.snapshot, found.notes

    def plan(self) -> Cycle:
        """Look, decide, and find the writes."""
        world, scene, memory, snapshot, notes = self.look()
        now_s = snapshot.taken_s
        given_up = self._given_up(scene, memory, now_s)
        shown = for_the_engine(snapshot, scene, world, self.how, given_up)
        plan = decide(shown, now_s, for_slurm(self.config, shown.fleet))
        wanted = target(plan, shown, scene, self.how, now_s)
        writes = writes_for(wanted, scene, self._stamp)
        return Cycle(world, scene, shown, plan, wanted, writes, notes, tuple(given_up))

    def _given_up(self, scene: Scene, memory: Memory, now_s: float) -> dict[str, float]:
        """The jobs that are left to slurmctld for now: it had them at their place and did not start them."""
        found = {name: until_s for name, until_s in memory.given_up.items() if until_s > now_s and name in scene.jobs}
        for name, asked_s in memory.asked_s.items():
            job = scene.jobs.get(name)
            waits = job is not None and job.state == "PENDING" and job.reason.split(",")[0] not in _SOON
            if waits and now_s - asked_s >= self._patience_s and name not in found:
                found[name] = now_s + _GIVEN_UP_S
        return found

    def carry_out(self, cycle: Cycle) -> Iterator[Outcome]:
        """Make the writes of a cycle; what was is in the memory before the first of them.

        Raises:
            ClusterError: slurmctld does not answer, or does not let this user do it.
        """
        memory = recall(self._state, cycle.world.cluster)
        now_s, jobs = cycle.snapshot.taken_s, cycle.scene.jobs
        starts = {each.workload for each in cycle.plan.decisions if isinstance(each, Place)}
        memory.cluster, memory.cycle_s = cycle.world.cluster, now_s
        memory.pid, memory.host = os.getpid(), socket.gethostname()
        memory.asked_s = {name: memory.asked_s.get(name, now_s) for name in cycle.wanted.jobs if name in starts}
        memory.given_up = {name: memory.given_up.get(name, now_s + _GIVEN_UP_S) for name in cycle.given_up}
        memory.forget([name for name in memory.marks if name not in jobs])
        memory.moved = [name for name in memory.moved if name in jobs and jobs[name].state != "RUNNING"]
        memory.note(cycle.writes)
        keep(self._state, memory)
        yield from self._make(cycle.writes, memory)

    def _make(self, writes: Iterable[Write], memory: Memory) -> Iterator[Outcome]:
        freed: list[str] = []
        try:
            for outcome in carry_out(list(writes), self._run):
                if outcome.write.kind == "free" and outcome.result == "done" and not outcome.write.mark:
                    freed.append(outcome.write.target)
                yield outcome
        finally:
            memory.forget(freed)
            keep(self._state, memory)

    def release(self) -> Iterator[list[Write] | Outcome | list[str]]:
        """Put everything back, in several passes: jobs may start between one and the next.

        Yields the writes of a pass, then what came of each; at last the running jobs that keep their node list.
        """
        for _ in range(_PASSES):
            _, scene, memory, _, _ = self.look()
            writes = releases(scene)
            if not writes:
                break
            yield writes
            yield from self._make(writes, memory)
        _, scene, memory, _, _ = self.look()
        left = left_on_running(scene)
        memory.forget([name for name in memory.marks if name not in left])
        memory.given_up.clear()
        if left:
            keep(self._state, memory)
        else:
            self._state.unlink(missing_ok=True)
        yield left
