"""The process: watch, enter, decide, write, again; who leads decides and writes, who stands by watches only."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from muster.answers.view import View
from muster.answers.why import blocked
from muster.backends.kubernetes.api import ApiError, ApiServer, ServerUnreachable
from muster.backends.kubernetes.commit import Outcome, PodKey
from muster.backends.kubernetes.lease import Leadership
from muster.backends.kubernetes.reflector import Reflector
from muster.engine.pending import Gang, Pending
from muster.engine.scheduler import Scheduler
from muster.errors import MusterError
from muster.kube.claims import MUSTER_QUEUE
from muster.kube.kinds import NODES, POD_GROUPS, PODS, STRUCTS
from muster.kube.objects import KubePod
from muster.kube.world import Kind, KubeObject, World
from muster.model.plan import Place, Plan, Reserve
from muster.model.reasons import Reason
from muster.service.scheduler.figures import Figures
from muster.service.scheduler.settings import SchedulerSettings
from muster.service.scheduler.shadow import Shadow
from muster.service.scheduler.state import LiveState
from muster.service.scheduler.teller import Event, Teller
from muster.service.scheduler.tracing import Tracing, tracing_of
from muster.service.scheduler.troubles import Troubles
from muster.service.scheduler.usage import write_statuses
from muster.service.scheduler.writer import Bind, Stop, Write, Writer

log = logging.getLogger("muster.scheduler")
MOST_TOLD = 20
"""Distinct kinds of gangs that are told why they wait, a cycle."""
MOST_QUEUES = 12
"""Names of queues that a pod is told that names none."""
IDLE_S = 5.0
"""With nothing new, what is overdue is looked for so often."""


class Clock(Struct, frozen=True):
    """Where time comes from: seconds since 1970."""

    now_s: Callable[[], float] = time.time


class SchedulerProcess:
    """One replica of the scheduler.

    Args:
        server: the cluster.
        settings: see `SchedulerSettings`.
        identity: who it is, in the lease and in events.
        rng: for jitter.
        clock: see `Clock`.
        tracing: makes traces; None: as the settings say.

    Raises:
        InputError: telemetry is on, and its packages are not installed.
    """

    def __init__(
        self, server: ApiServer, settings: SchedulerSettings, identity: str, rng: random.Random, clock: Clock,
        tracing: Tracing | None = None,
    ) -> None:  # fmt: skip
        self._server, self.settings, self.identity, self._rng, self._clock = server, settings, identity, rng, clock
        self.figures, self._troubles = Figures(), Troubles()
        self.tracing = tracing or tracing_of(settings.telemetry, identity)
        self.world = World()
        self.state = LiveState(self.world, settings.config, settings.scheduler_name, all_pods=settings.shadow)
        self._wake = asyncio.Event()
        self.reflectors = {
            kind: Reflector(server, kind, struct, self.world, self._changed, rng, self._troubles.say)
            for kind, struct in STRUCTS.items()
        }
        election = settings.leader_election
        self.leadership = Leadership(
            server, election.namespace, election.name, identity, rng, duration_s=election.duration_seconds,
            trouble=self._troubles.say,
        )  # fmt: skip
        self._writer = Writer(
            server, settings.writes_at_once, self._may_write, self._done, self.figures, rng, self._troubles,
            self.tracing,
        )  # fmt: skip
        self._teller = Teller(
            server, identity, settings.writes_of_messages_per_second, settings.message_seconds, self._may_write,
            self.figures, self._troubles,
        )  # fmt: skip
        self.shadow = Shadow(self.state) if settings.shadow else None
        self.leads = False
        self.beat_s = time.monotonic()
        self.figures.leads.labels(election.name).set(0)
        self._next_s = 0.0
        self._usage_s = -1e18
        self._told_s = -1e18
        self._binding: dict[str, tuple[float, int]] = {}

    @property
    def ready(self) -> bool:
        """Whether all kinds that are needed have been read."""
        return all(each.synced.is_set() for each in self.reflectors.values())

    def _may_write(self) -> bool:
        return not self.settings.shadow and (not self.settings.leader_election.enabled or self.leadership.valid)

    def _changed(self, kind: Kind, key: str, before: KubeObject | None, after: KubeObject | None) -> None:
        self.state.changed(kind, key, before, after)
        if kind is POD_GROUPS and after is None:
            self._teller.forget_group(key)
        if kind is PODS and before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._teller.forget(PodKey(before.metadata.namespace, before.metadata.name, before.metadata.uid))
        if self.state.has_news:
            self._wake.set()

    async def run(self) -> None:
        """Goes on until it is cancelled, or led and lost that; raises what makes going on impossible."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in self.reflectors.values()]
            tasks += [group.create_task(self._writer.run()), group.create_task(self._teller.run())]
            try:
                await self._lead(group, tasks)
            finally:
                for task in tasks:
                    task.cancel()

    async def _lead(self, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]) -> None:
        for kind in (NODES, PODS):
            await self.reflectors[kind].synced.wait()
            if kind.name in self.world.missing:
                raise MusterError(f"cannot schedule without {kind.name}: {self.world.missing[kind.name]}")
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        log.info("synced", extra={"nodes": len(self.world.of(NODES, STRUCTS[NODES]))})
        if self.settings.leader_election.enabled and not self.settings.shadow:
            tasks.append(group.create_task(self.leadership.run()))
            await self.leadership.leading.wait()
            log.info("leads", extra={"identity": self.identity})
            await self.reflectors[PODS].relist()  # what the leader before bound last
        self.leads, self.beat_s = True, time.monotonic()
        self.figures.leads.labels(self.settings.leader_election.name).set(0 if self.settings.shadow else 1)
        self.state.relead()
        try:
            await self._cycles()
        finally:
            self.leads = False
            self.figures.leads.labels(self.settings.leader_election.name).set(0)
            self._writer.clear()
            if self.leadership.leading.is_set():
                with suppress(ApiError, ServerUnreachable, TimeoutError, OSError):
                    await asyncio.shield(self.leadership.release())

    async def _cycles(self) -> None:
        while not self.leadership.lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
                    await asyncio.sleep(self.settings.batch_milliseconds / 1000)
            self._wake.clear()
            await self.cycle()
        log.error("lost the lease", extra={"holder": self.leadership.holder})

    def _pause_s(self) -> float:
        """Until when nothing new can be decided if nothing happens."""
        return min(IDLE_S, max(0.02, self._next_s - self._clock.now_s()))

    async def cycle(self) -> None:
        """Enter what changed, decide, and send what is to be written."""
        with self.tracing.span("cycle") as told:
            await self._cycle(told)

    async def _cycle(self, told: dict[str, Any]) -> None:
        now_s, state, span = self._clock.now_s(), self.state, self.tracing.span
        self.beat_s = time.monotonic()
        with self.figures.refresh_s.time(), span("refresh"):
            late = state.overdue(
                now_s, self.settings.partial_timeout_seconds, self.settings.volume_timeout_seconds
            )  # fmt: skip
            state.refresh(now_s)
        scheduler = state.scheduler
        assert scheduler is not None
        with self.figures.cycle_s.time(), span("plan", **{"muster.waiting": len(scheduler.pending)}):
            # the books are changed only here and in `refresh`; what is watched meanwhile waits for the next
            plan = await asyncio.to_thread(self.shadow.decide if self.shadow is not None else scheduler.cycle, now_s)
        if self.shadow is not None:
            self._next_s = now_s + IDLE_S  # nothing is carried out: until something happens it would decide the same
            for message, extra in self.shadow.news(plan):
                log.info(message, extra=extra)
            return
        self._next_s = min(scheduler.next_s(now_s), scheduler.next_start_s(now_s))
        with span("commit"):
            writes = [*late, *state.act(plan, now_s)]
            for write in writes:
                self._writer.add(write)
        told["muster.decisions"], told["muster.writes"] = len(plan.decisions), len(writes)
        self._report(plan, writes, now_s)
        if state.has_news:
            self._wake.set()
        if now_s - self._usage_s >= self.settings.usage_seconds and self._may_write():
            self._usage_s = now_s
            await self.write_usage(now_s)

    async def write_usage(self, now_s: float) -> None:
        """Keep what queues have used, and what they hold, in their status."""
        assert self.state.scheduler is not None
        try:
            await write_statuses(self._server, self.world, self.state.scheduler, now_s)
        except (ApiError, ServerUnreachable, TimeoutError, OSError) as error:
            self.figures.failed(error)
            self._troubles.say("the status of a queue was not written", error)

    def note_watches(self) -> None:
        """Figures of the watches, for a scrape."""
        now_s = time.monotonic()
        for kind, each in self.reflectors.items():
            self.figures.relists.labels(kind.name).set(each.relists)
            if each.heard_s:
                self.figures.watch_s.labels(kind.name).set(now_s - each.heard_s)

    def _done(self, write: Write, outcome: Outcome) -> None:
        self.state.done(write, outcome)
        if isinstance(write, Bind):
            self._note_bound(write.gang, outcome)
        if isinstance(write, Stop) and outcome is Outcome.DONE:
            self._teller.event(Event(write.pod, "Evicted", write.why))
        elif isinstance(write, Bind) and outcome is Outcome.DONE:
            self._teller.forget(write.pod)
            if self.settings.events_of_bindings:
                pod = write.pod
                note = f"Successfully assigned {pod.namespace}/{pod.name} to {write.node}"
                self._teller.event(Event(pod, "Scheduled", note))
        if self.state.has_news:
            self._wake.set()

    def _note_bound(self, gang: str, outcome: Outcome) -> None:
        """Of a gang that was placed, one binding more is done; with the last one it is known how long it took."""
        began_s, left = self._binding.pop(gang, (0.0, 0))
        if outcome is Outcome.DONE and left > 1:
            self._binding[gang] = began_s, left - 1
        elif outcome is Outcome.DONE and left == 1:
            self.figures.gang_s.observe(self._clock.now_s() - began_s)

    # -- what is told

    def _report(self, plan: Plan, writes: list[Write], now_s: float) -> None:
        """Figures, the log, and what gangs that wait are told."""
        scheduler = self.state.scheduler
        assert scheduler is not None
        placed = [each for each in plan.decisions if isinstance(each, Place)]
        bindings = Counter(each.gang for each in writes if isinstance(each, Bind))
        for place in placed:
            self._tell_group(place.workload, scheduled=True, message=f"{len(place.pods)} pods have their nodes")
            began_s = self.state.complete_s.pop(place.workload, now_s)
            if bindings[place.workload]:
                self._binding[place.workload] = began_s, bindings[place.workload]
        self.figures.attempts.labels("scheduled").inc(len(placed))
        self.figures.partial.set(len(self.state.partial))
        self.figures.rebuilds.set(self.state.rebuilds)
        if placed or writes:
            log.info(
                "cycle",
                extra={
                    "placed": len(placed), "binds": sum(isinstance(each, Bind) for each in writes),
                    "stops": sum(isinstance(each, Stop) for each in writes), "waiting": len(scheduler.pending),
                },
            )  # fmt: skip
        if now_s - self._told_s >= 1.0:
            self._told_s = now_s
            self._tell(plan, now_s)

    def _tell(self, plan: Plan, now_s: float) -> None:
        """What waits is told why: those of one kind and claim the same, the first kinds in order first."""
        scheduler = self.state.scheduler
        assert scheduler is not None
        starts = {each.workload: each for each in plan.decisions if isinstance(each, Reserve)}
        view: View | None = None
        counted: dict[tuple[str, str], int] = {}
        for told, gangs in enumerate(_kinds(scheduler.pending)):
            reason = scheduler.waits_for(gangs[0], now_s)
            key = gangs[0].workload.queue, reason.name.lower()
            counted[key] = counted.get(key, 0) + len(gangs)
            if told >= MOST_TOLD or not self.settings.writes_of_messages_per_second:
                continue
            if view is None:
                view = View.of(scheduler, plan, now_s)
            text = blocked(view, gangs[0]).blockers[0].text
            if reason is Reason.UNKNOWN_QUEUE:
                text += _queues_to_name(scheduler)
            for gang in gangs:
                slot = starts.get(gang.workload.name)
                more = f" Its start is reserved for {_clock(slot.start_s)}." if slot is not None else ""
                self._teller.waits(self._pods(gang), f"{reason.name}: {text}{more}")
                self._tell_group(gang.workload.name, scheduled=False, message=f"{reason.name}: {text}{more}")
        for name, note in self.state.notes.items():  # what could not even be entered
            seen = self.state.seen.get(name)
            if seen is not None and seen.running is None and not seen.absent:
                self._teller.waits([PodKey(ref.namespace, ref.name, ref.uid) for ref in seen.refs], note)
        for name in self.state.volumes.providing:
            self._teller.waits(self._unbound(name), f"VOLUMES: {self.state.awaits(name)}")
        self.figures.pending.clear()
        for key, count in counted.items():
            self.figures.pending.labels(*key).set(count)

    def _tell_group(self, name: str, *, scheduled: bool, message: str) -> None:
        group = self.state.group_of(name)
        if group is not None:
            self._teller.group(*group, scheduled=scheduled, message=message)

    def _unbound(self, name: str) -> list[PodKey]:
        seen = self.state.seen.get(name)
        refs = seen.refs if seen is not None else ()
        pods = self.world.of(PODS, KubePod)
        return [
            PodKey(ref.namespace, ref.name, ref.uid) for ref in refs
            if (pod := pods.get(f"{ref.namespace}/{ref.name}")) is not None and not pod.spec.node_name
        ]  # fmt: skip

    def _pods(self, gang: Gang) -> list[PodKey]:
        seen = self.state.seen.get(gang.workload.name)
        return [PodKey(ref.namespace, ref.name, ref.uid) for ref in seen.refs] if seen is not None else []


def _kinds(pending: Pending) -> list[list[Gang]]:
    """The gangs of each kind and claim, those kinds first whose first gang is."""
    groups = [gangs for claim in list(pending.claims) for gangs in pending.of_claim(claim).values() if gangs]
    return sorted(groups, key=lambda gangs: gangs[0].order)


def _queues_to_name(scheduler: Scheduler) -> str:
    """How work says its queue, and which ones it may: those that no others are below."""
    parents = {queue.parent for queue in scheduler.queues.values()}
    leaves = [name for name in scheduler.queues if name not in parents]
    more = f" (and {len(leaves) - MOST_QUEUES} more)" if len(leaves) > MOST_QUEUES else ""
    return (
        f" Set the label {MUSTER_QUEUE} on the pods, in the template of what makes them, to one of: "
        f"{', '.join(leaves[:MOST_QUEUES])}{more}. Or make a Queue called default, for all that names none."
    )


def _clock(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
