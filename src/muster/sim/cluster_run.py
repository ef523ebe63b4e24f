"""Work through the whole scheduling cycle on a simulated fleet: submissions, starts, checkpoints, evictions, ends.

The scheduler is `muster.engine.scheduler.Scheduler`, the same that live backends use; here its plans are carried out at
once and what runs ends after its recorded run time. A workload that was stopped goes on from its last checkpoint.

With ``Config.gangs`` one-by-one each pod of a gang is submitted, placed and held alone, and the gang begins only when
all its pods have a place: the teaching baseline, which deadlocks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Any

from msgspec.structs import replace

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.engine.state import Allocation
from muster.errors import InputError
from muster.model.plan import Evict, Migrate, Place, Plan, Quarantine, Reserve, Resize
from muster.model.reasons import Reason
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, Workload
from muster.sim.carrier import END, LEAVE, NODES, SUBMIT, TIMEOUT, WAKE, WHOLE, Carrier, payload_of, pod_name
from muster.sim.failures import check_failures
from muster.sim.lives import JobStory
from muster.sim.run_inputs import POD_BITS, RunOptions, check_workloads
from muster.sim.services import ServiceFigures, figures_of, replicas_of

LOOKS_PER_EVENT = 16
"""What an event costs apart from the places that are looked for, in such looks: for budgets of simulated futures."""


class ClusterRun(Carrier):
    """A run that can be stopped at any time, copied and pickled.

    Args:
        snapshot: fleet, queues and what runs or waits at the start.
        workloads: what is submitted, and when.
        config: of the scheduler.
        options: of the simulated cluster.
        scheduler: one that holds what the snapshot says already, which it then works with; None: a new one.

    Raises:
        InputError: the queues, a workload or its time make no sense; the field is given as ``workloads[3].topology``.

    ``workloads``, ``stories`` and the numbers of jobs are those of the given workloads, then of the services' replicas,
    then of what waits in the snapshot, then of what runs in it. What runs there and has no recorded run time stays.
    """

    def __init__(
        self, snapshot: Snapshot, workloads: Sequence[Workload], config: Config, options: RunOptions | None = None,
        *, scheduler: Scheduler | None = None,
    ) -> None:  # fmt: skip
        options = options or RunOptions()
        self.replicas = replicas_of(options.services, options.services_until_s)
        workloads = (*workloads, *(each.workload for each in self.replicas))
        everything = (*workloads, *snapshot.pending, *(each.workload for each in snapshot.running))
        check_workloads(snapshot, everything if scheduler is None else workloads)
        check_failures(options.failures, snapshot.fleet)
        super().__init__(
            snapshot.fleet, everything, len(workloads), options,
            Scheduler(snapshot, config) if scheduler is None else scheduler,
        )  # fmt: skip
        self.plans: list[tuple[float, Plan]] = []
        self.cycles = self.events = 0
        self._check_pod_names()
        self._first_replica = len(workloads) - len(self.replicas)
        self._lenders = [queue.name for queue in snapshot.queues if queue.headroom_milli]
        self._lent, self._lent_since_s = 0, self.first_s
        self.lent_milli_s = 0.0
        self._due = bool(snapshot.pending or snapshot.running)
        self._adopted = bool(snapshot.running)
        self._woken_s = -math.inf
        self._feed()
        self.node_losses = self.quarantined = 0
        self._expect_failures()
        for number, replica in enumerate(self.replicas, self._first_replica):
            self._queue.schedule(replica.until_s, payload_of(LEAVE, number, 0), 0)
        for number, workload in enumerate(snapshot.pending, self._given):
            self._units[workload.name] = number, WHOLE
            self._queue.schedule(max(self.first_s, snapshot.taken_s), payload_of(WAKE, number, 0), 1)
            self._wake_for(workload, snapshot.taken_s)
        if snapshot.running and not snapshot.pending:
            self._wake(max(self.first_s, snapshot.taken_s))
        for number, run in enumerate(snapshot.running, self._given + len(snapshot.pending)):
            self._adopt(number, run, snapshot.taken_s)
        for each in snapshot.reservations:
            for time_s in (each.start_s, each.end_s):
                if max(self.first_s, snapshot.taken_s) <= time_s < math.inf:
                    self._queue.schedule(time_s, payload_of(WAKE, 0, 0), 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> ClusterRun:
        """A fork; what never changes (fleet, workloads) is shared."""
        state = self.scheduler.cluster.state
        for shared in (self.workloads, self.fleet, state.fleet, state.node_list, *self.workloads):
            memo[id(shared)] = shared
        fork = memo[id(self)] = type(self).__new__(type(self))
        fork.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return fork

    def run(self, until: float | None = None) -> list[JobStory]:
        """Run up to and including ``until`` (until nothing more happens if None); the stories of all jobs so far.

        Where something still waits or runs, ``now_s`` is ``until`` afterwards: what is held then is counted up to it.
        """
        if until is None and self.options.failures.endless:
            raise InputError("failures go on for ever", field="until_s", hint="say when the run ends")
        self._queue.run(until)
        if until is not None and until > self.now_s and self.busy:
            self.now_s = until
        return self.stories

    def run_until_started(self, jobs: Iterable[int], most_events: int) -> int:
        """Run until the jobs have started, nothing more happens, or so many events have been handled.

        How many were handled; `LOOKS_PER_EVENT` places that the scheduler looks for count as an event more.
        """
        waiting = {job for job in jobs if math.isnan(self.stories[job].started_s)}
        events, handled, seen, before = 0, 0, 0, self.scheduler.cluster.looks
        while waiting and handled < most_events and self._queue.step():
            events += 1
            handled = events + int(self.scheduler.cluster.looks - before) // LOOKS_PER_EVENT
            if len(self.spells) > seen:
                waiting.difference_update(spell.job for spell in self.spells[seen:])
                seen = len(self.spells)
        return handled

    def snapshot(self, time_s: float | None = None) -> Snapshot:
        """All that a decision depends on: also when running work was saved last, and which of it is idle.

        ``time_s`` is now (None), or later where nothing happens until then.
        """
        time_s = self.now_s if time_s is None else time_s
        self._note_checkpoints(time_s)
        self._note_idle(time_s)
        return self.scheduler.snapshot(time_s)

    @property
    def next_s(self) -> float:
        """When something happens next; infinite if nothing does."""
        return math.inf if (next_s := self._queue.peek()) is None else next_s

    def step(self) -> None:
        """Handle the next event; a cycle follows the last one of an instant."""
        self._queue.step()

    @property
    def busy(self) -> bool:
        """Whether anything runs, waits or is still to be submitted."""
        return bool(len(self.scheduler.running) or len(self.scheduler.pending) or self._queue.peek() is not None)

    # -- what it shows ------------------------------------------------------------------------------------------------

    def state_of(self, job: int) -> str:
        """``to-come``, ``waiting``, ``running``, ``finished``, ``killed``, ``failed`` (too often) or ``given-up``.

        A workload is given up if it missed its start deadline.

        A one-by-one gang is ``waiting`` until all its pods are placed.
        """
        story = self.stories[job]
        if story.end:
            return story.end
        if job in self.lives:
            return "running"
        if story.submitted_s > self.now_s:
            return "to-come"
        names = self._names(job)
        if all(name in self.scheduler.running or name in self.scheduler.pending.gangs for name in names):
            return "waiting"
        return "given-up"

    def reasons(self) -> dict[int, Reason]:
        """Why each job that waits does so; of a gang that holds some pods, why the first of the others waits."""
        found: dict[int, Reason] = {}
        for name, reason in self.scheduler.waits(self.now_s):
            found.setdefault(self._units[name][0], reason)
        return found

    def reserved_s(self, job: int) -> float:
        """The reserved start that a job has now; NaN if none."""
        slot = self.scheduler.slots.get(self.workloads[job].name)
        return math.nan if slot is None else slot.start_s

    def check(self) -> None:
        """Raise `AssertionError` or `CapacityError` where an invariant does not hold.

        No device over-committed and use the sum of its parts; gangs whole; no queue above what it may use; what the
        scheduler holds for running is what the run holds.
        """
        scheduler = self.scheduler
        scheduler.cluster.state.validate(self._allocations())
        names = {run.workload.name for run in scheduler.running}
        assert names == set(self._held), "scheduler and run hold different work"
        for run in scheduler.running:
            least = sum(each.required for each in run.workload.pod_sets)
            there = run.rows.shape[1] + len(run.missing)
            assert least <= there == run.kind.count <= run.workload.pods, f"{run.workload.name} runs in part"
        if self._adopted:
            return  # what ran before may be above its quota
        for queue in scheduler.queues:
            for flavor in scheduler.cluster.flavors:
                assert scheduler.quota.available(queue, flavor) >= 0, f"{queue} is above its quota of {flavor}"

    # -- events -------------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        due: list[tuple[float, int]] = []
        for index, workload in enumerate(self.workloads[: self._given]):
            for pod in range(self._units_of(workload)):
                due.append((workload.submitted_s + pod * self.options.pod_every_s, payload_of(SUBMIT, index, pod)))
        due.sort(key=lambda each: each[0])
        self._queue.feed([time_s for time_s, _ in due], [payload for _, payload in due], 1)

    def _handle(self, time_s: float, payload: int) -> None:
        kind, index, number = payload & 7, payload >> 3 >> POD_BITS, payload >> 3 & (1 << POD_BITS) - 1
        if kind == WAKE and not len(self.scheduler.running) and not len(self.scheduler.pending):
            return  # it was for work that has ended meanwhile: the run is not longer for it
        self.now_s = time_s
        if kind == SUBMIT:
            self._submit(index, number, time_s)
        elif kind == WAKE:
            self._due = True
        elif kind == NODES:
            self._nodes_change(time_s)
        elif kind == LEAVE:
            self._leave(index, time_s)
        elif kind == TIMEOUT:
            self._give_up_waiting(index, number, time_s)
        elif index in self.lives and self.stories[index].starts == number:
            self._end(index, time_s) if kind == END else self._fail(index, time_s)
        self.events += 1
        # all that happens at one instant is seen before anything is decided
        if self._due and self._queue.peek() != time_s:
            self._due = False
            self._cycle(time_s)
        if self.options.check_every and self.events % self.options.check_every == 0:
            self.check()

    def _submit(self, index: int, pod: int, now_s: float) -> None:
        if self.stories[index].end:
            return  # a replica that was withdrawn before all its pods were created
        workload = self.workloads[index]
        if self._units_of(workload) == 1:
            pod, unit = WHOLE, workload
        else:
            unit = self._pod(workload, pod, now_s)
        self._units[unit.name] = index, pod
        self.scheduler.submit(unit)
        self._due = True
        if pod > 0:
            return
        self._wake_for(workload, now_s)

    def _wake_for(self, workload: Workload, now_s: float) -> None:
        """Look again when work that waits is no longer held, and when its deadline has passed."""
        if workload.not_before_s > now_s:
            self._wake(workload.not_before_s)
        if workload.start_deadline_s is not None:
            self._wake(math.nextafter(max(workload.start_deadline_s, now_s), math.inf))

    def _pod(self, workload: Workload, pod: int, now_s: float) -> Workload:
        """One pod of a gang as a workload without end, which knows nothing of the others."""
        ends = accumulate(each.count for each in workload.pod_sets)
        shape = next(each.shape for each, end in zip(workload.pod_sets, ends, strict=True) if pod < end)
        depends = [name for other in workload.depends_on for name in self._names_of(other)]
        return replace(
            workload,
            name=pod_name(workload, pod),
            pod_sets=(PodSet(shape),),
            submitted_s=now_s,
            duration_s=None,
            time_limit_s=None,
            topology=None,
            parallelism=None,
            depends_on=tuple(depends),
        )

    def _check_pod_names(self) -> None:
        """Raise `InputError` where a workload has the name of a pod of another."""
        for index, workload in enumerate(self.workloads):
            gang = workload.name.rpartition("/")[0]
            if gang in self._index and workload.name in self._names(self._index[gang]):
                what = f"{workload.name!r} is the name of a pod of {gang!r}"
                raise InputError(what, field=f"workloads[{index}].name", hint="another name")

    def _names_of(self, name: str) -> list[str]:
        job = self._index.get(name)
        return [name] if job is None else self._names(job)

    def _end(self, index: int, now_s: float) -> None:
        spell = self.lives.spell_of(index)
        assert spell is not None
        if spell.hangs_s <= now_s:
            return  # it does nothing, and whoever finds out decides what becomes of it
        killed = spell.killed
        self._halt(index, now_s, keep_all=not killed)
        story = self.stories[index]
        story.finished_s, story.end = now_s, "killed" if killed else "finished"
        for name in self._names(index):
            # a pod of a gang that runs is held, so all its names are running
            self.scheduler.finish(name, now_s, well=not killed)
            self._let_go(name, now_s)
        self._placed.pop(index, None)
        self._due = True

    def _leave(self, index: int, now_s: float) -> None:
        """A replica is not wanted any more, whether it runs or waits."""
        story = self.stories[index]
        story.end = "finished" if index in self.lives else "withdrawn"
        story.finished_s = now_s
        if index in self.lives:
            self._halt(index, now_s, keep_all=True)
        for name in self._names(index):
            if name in self.scheduler.running:
                self.scheduler.finish(name, now_s)
                self._let_go(name, now_s)
            elif name in self.scheduler.pending.gangs:
                self.scheduler.cancel(name)
        self._placed.pop(index, None)
        self._due = True

    def lent_s(self, end_s: float) -> float:
        """GPU milli-seconds that queues with headroom have lent up to a time."""
        return self.lent_milli_s + self._lent * max(0.0, end_s - self._lent_since_s)

    def service_figures(self, end_s: float) -> tuple[ServiceFigures, ...]:
        """How each service fared up to a time."""
        places = [
            (replica, self.stories[index].started_s) for index, replica in enumerate(self.replicas, self._first_replica)
        ]
        queues, services = self.scheduler.queues, self.options.services
        reclaim_s = [queues[each.queue].reclaim_s if each.queue in queues else 0.0 for each in services]
        return figures_of(services, places, reclaim_s, end_s)

    # -- what breaks --------------------------------------------------------------------------------------------------

    def _expect_failures(self) -> None:
        """An event at the time at which a node changes next."""
        if self.failures.next_s < math.inf:
            self._queue.schedule(max(self.failures.next_s, self.first_s), payload_of(NODES, 0, 0), 0)

    def _nodes_change(self, now_s: float) -> None:
        """Nodes break, are seen to be gone, and come back."""
        if self.failures.next_s > now_s:
            return
        for change in self.failures.advance(now_s):
            node = self.scheduler.cluster.fleet.nodes[change.node]
            if change.what == "back":
                self.scheduler.set_node(self.fleet.nodes[change.node], now_s)
            else:
                for run in self.scheduler.running:
                    if change.node in run.nodes:
                        self.lives.hang(self._units[run.workload.name][0], now_s)
            if change.what == "seen":
                self.node_losses += 1
                self.scheduler.set_node(replace(node, schedulable=False, reason="failed"), now_s, lost=True)
            self._due = self._due or change.what != "fails"
        self._expect_failures()

    def _fail(self, index: int, now_s: float) -> None:
        """A gang fails by itself, or because it stands on a black hole."""
        story, cluster = self.stories[index], self.scheduler.cluster
        bad = ""
        for name in self._names(index):
            nodes = sorted(self.scheduler.running[name].nodes)
            bad = bad or next(
                (cluster.state.node_names[node] for node in nodes if node in self.failures.black_holes), ""
            )
        self._halt(index, now_s, keep_all=False, failed=not bad)
        story.failures += 1
        for name in self._names(index):
            self._let_go(name, now_s)
            if self.scheduler.fail(name, now_s, bad):
                self._wake(self.scheduler.pending.gangs[name].workload.not_before_s)
            else:
                story.finished_s, story.end = now_s, "failed"
        self._placed.pop(index, None)
        self._due = True

    def _give_up_waiting(self, index: int, number: int, now_s: float) -> None:
        """A one-by-one gang that has not all its pods in time gives back those that it has, and waits its back-off."""
        if index in self.lives or self._timeouts[index] != number or not self._placed.get(index):
            return
        self._placed.pop(index)
        self._timeouts[index] += 1
        until_s = now_s
        for name in self._names(index):
            if name in self.scheduler.running:
                self._let_go(name, now_s)
                if self.scheduler.fail(name, now_s):
                    until_s = max(until_s, self.scheduler.pending.gangs[name].workload.not_before_s)
        for name in self._names(index):
            if (gang := self.scheduler.pending.gangs.get(name)) is not None:
                self.scheduler.cancel(name)
                self.scheduler.submit(replace(gang.workload, not_before_s=until_s))
        self._wake(until_s)
        self._due = True

    # -- plans --------------------------------------------------------------------------------------------------------

    def _cycle(self, now_s: float) -> None:
        if self.lives.saving and (len(self.scheduler.pending) or self.scheduler.broken):
            self._note_checkpoints(now_s)
        if self.options.busy:
            self._note_idle(now_s)
        plan = self.scheduler.cycle(now_s)
        self.cycles += 1
        if plan.decisions and self.options.keep_plans:
            self.plans.append((now_s, plan))
        evicted = False
        for decision in plan.decisions:
            match decision:
                case Place():
                    self._place(decision, now_s)
                case Evict():
                    evicted = True
                    self._evict(decision, now_s)
                case Reserve():
                    index, pod = self._units[decision.workload]
                    if pod == WHOLE:
                        self.stories[index].note_promise(decision.start_s, sure=decision.sure)
                case Migrate() | Resize():
                    self._go_on(decision, now_s)
                case Quarantine():
                    self.quarantined += 1
                    self.failures.repair(self.scheduler.cluster.position[decision.node], now_s)
                    self._expect_failures()
                case _:
                    pass
        if self._lenders:
            self._count_loans(now_s)
        if evicted:  # those who were stopped may find room elsewhere at once
            self._wake(now_s)
        next_s = self.scheduler.next_s(now_s)
        if self._queue.peek() is not None or not len(self.scheduler.running):  # else what runs stays for ever
            next_s = min(next_s, self.scheduler.next_start_s(now_s))
        if next_s != self._woken_s:
            self._woken_s = next_s
            self._wake(next_s)

    def _count_loans(self, now_s: float) -> None:
        """What is lent by queues that keep headroom, as GPU time."""
        self.lent_milli_s += self._lent * (now_s - self._lent_since_s)
        quota, flavors = self.scheduler.quota, self.scheduler.cluster.flavors
        self._lent = sum(
            borrower.milli
            for queue in self._lenders
            for flavor in flavors
            for borrower in quota.borrowers(queue, flavor)
        )
        self._lent_since_s = now_s

    def _note_idle(self, now_s: float) -> None:
        """Tell the scheduler which running work uses none of its GPUs, and since when."""
        for name, steps in self.options.busy.items():
            if name in self.scheduler.running and (index := self._index[name]) in self.lives:
                begun_s = self.stories[index].started_s
                past = [(begun_s + from_s, gpus) for from_s, gpus in steps if begun_s + from_s <= now_s]
                unused = list(takewhile(lambda step: not step[1], reversed(past)))
                self.scheduler.note_idle(name, unused[-1][0] if unused else None)

    def _note_checkpoints(self, now_s: float) -> None:
        """Tell the scheduler when running work was saved last: it chooses by that whom to stop."""
        for index in self.lives.saving:
            saved_s = self.lives.saved_s(index, now_s)
            for name in self._names(index):
                self.scheduler.running[name].checkpointed_s = saved_s

    def _allocations(self) -> Iterator[Allocation]:
        for run in self.scheduler.running:
            rows: list[list[int]] = run.rows.T.tolist()
            for node, shape, devices in rows:
                yield Allocation(node, shape, devices)
