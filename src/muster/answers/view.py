"""A snapshot with the engine's state built on it: what all answers are asked of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

from muster.engine.config import Config, config_of
from muster.engine.pending import Gang
from muster.engine.running import RunningGang
from muster.engine.scheduler import Scheduler
from muster.errors import InputError
from muster.model.columns import distinct_of, field_of
from muster.model.plan import Place, Plan
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import Workload


class View:
    """A snapshot at its instant, and what one cycle then makes of it.

    Args:
        snapshot: what there is.
        config: how to decide; None: by the settings that the snapshot holds.

    Raises:
        InputError: the snapshot contradicts itself, or names a setting that there is not.
    """

    def __init__(self, snapshot: Snapshot, config: Config | None = None) -> None:
        check_names(snapshot)
        self.snapshot = snapshot
        self.config = config_of(dict(snapshot.settings)) if config is None else config
        self.now_s = snapshot.taken_s

    @classmethod
    def of(cls, scheduler: Scheduler, plan: Plan, now_s: float) -> View:
        """A view on the books of a scheduler that goes on: those after its cycle. The snapshot is empty."""
        view = cls(Snapshot(scheduler.cluster.fleet, taken_s=now_s), scheduler.config)
        view.__dict__["_decided"] = scheduler, plan
        return view

    @cached_property
    def _decided(self) -> tuple[Scheduler, Plan]:
        scheduler = Scheduler(self.snapshot, self.config)
        return scheduler, scheduler.cycle(self.now_s)

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler after the cycle of this instant. Whoever tries something on it undoes it."""
        return self._decided[0]

    @property
    def plan(self) -> Plan:
        """What the cycle of this instant decides."""
        return self._decided[1]

    @cached_property
    def starts(self) -> dict[str, Place]:
        """What starts in this instant's cycle, by name."""
        return {each.workload: each for each in self.plan.decisions if isinstance(each, Place)}

    def find(self, asked: str) -> Found:
        """The workload of a name, or of ``QUEUE/NAME`` or ``NAMESPACE/NAME``; raises `InputError` with near names."""
        found = self._found(asked)
        if found is None:
            where, _, name = asked.rpartition("/")
            found = self._found(name) if where else None
            if found is not None and where not in (found.workload.queue, found.workload.namespace):
                found = None
            if found is None:
                found = self._of_namespace(where, name)
            if found is None and not where:
                found = self._of_slurm(name)
            if found is None:
                raise self._unknown(asked)
        return found

    def _of_namespace(self, where: str, name: str) -> Found | None:
        """Work of Kubernetes is called NAMESPACE/NAME: the only one that ends in NAME, in a queue if that is said."""
        ends = [each for each in self._named if each.endswith(f"/{name}")]
        found = [each for each in map(self._found, ends) if each and where in ("", each.workload.queue)]
        return found[0] if len(found) == 1 else None

    def _of_slurm(self, name: str) -> Found | None:
        """Of an array by its number the first task that waits, else that runs; or the only job that is called so."""
        tasks = [each for each in self._named if each.startswith(f"{name}_")] if name.isdigit() else []
        if tasks:
            return self._found(tasks[0])
        called: list[str] = [*field_of(self.snapshot.pending, "title")]
        rows = [row for row, title in enumerate(called) if title == name] if name else []
        runs = [run for run in self.snapshot.running if name and run.workload.title == name]
        if len(rows) + len(runs) != 1:
            return None
        return Found(self.snapshot.pending[rows[0]], None) if rows else Found(runs[0].workload, runs[0])

    def _found(self, name: str) -> Found | None:
        run = self._running.get(name)
        if run is not None:
            return Found(run.workload, run)
        row = self._rows.get(name)
        return None if row is None else Found(self.snapshot.pending[row], None)

    @cached_property
    def _running(self) -> dict[str, Running]:
        return {each.workload.name: each for each in self.snapshot.running}

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Where in ``snapshot.pending`` work is."""
        names: Sequence[str] = field_of(self.snapshot.pending, "name")
        return dict(zip(names, range(len(names)), strict=True))

    @property
    def _named(self) -> list[str]:
        """The names of all work."""
        return [*self._rows, *(name for name in self._running if name not in self._rows)]

    def waiting(self, names: Collection[str]) -> list[Workload]:
        """Those of some names that wait in the snapshot, in its order."""
        return [self.snapshot.pending[row] for row in sorted(self._rows[name] for name in names if name in self._rows)]

    def _unknown(self, asked: str) -> InputError:
        from muster.errors import near

        names = self._named
        if not names:
            hint = "nothing waits or runs there"
        elif asked in self.snapshot.finished:
            hint = "it has ended"
        else:
            short = asked.rpartition("/")[2]
            there = self._found(short)
            if there is not None:
                return InputError(
                    f"there is no job {asked[:80]!r}", hint=f"{short} is in queue {there.workload.queue or '(none)'}"
                )
            hint = near(short, names) or self._elsewhere(short) or "`muster queue` lists what waits and runs"
        return InputError(f"there is no job {asked[:80]!r}", hint=hint)

    def _elsewhere(self, short: str) -> str | None:
        """Near names without their namespaces: `bigg`, or one that is of another namespace than was said."""
        from muster.errors import near

        ends = {name.rpartition("/")[2]: name for name in self._named}
        found = near(short, list(ends))
        if found is None:
            return None
        words = found.removeprefix("did you mean ").removesuffix("?").split(" or ")
        return f"did you mean {' or '.join(ends[word] for word in words)}?"

    def gang(self, name: str) -> Gang | RunningGang:
        """The engine's object of a workload, waiting or running, after the cycle."""
        scheduler = self.scheduler
        return scheduler.running[name] if name in scheduler.running else scheduler.pending.gangs[name]


def check_names(snapshot: Snapshot) -> None:
    """Raise `InputError` for a name that a terminal or a shell would not take as text: with control characters."""
    pending, running = snapshot.pending, [run.workload for run in snapshot.running]
    parts = ("queue", "user", "namespace")
    owners = {part for work in (pending, running) for name in parts for part in distinct_of(work, name)}
    jobs: list[str] = [*field_of(pending, "name"), *field_of(running, "name")]
    names = {"node": [node.name for node in snapshot.fleet.nodes], "job": jobs}
    for what, some in {**names, "queue, user or namespace": sorted(owners)}.items():
        if "".join(some).isprintable():
            continue
        name = next(name for name in some if not name.isprintable())
        raise InputError(f"the {what} {name[:60]!r} has control characters in its name", hint="rename it")


class Found(NamedTuple):
    """A workload of a snapshot; ``running`` is None where it waits."""

    workload: Workload
    running: Running | None
