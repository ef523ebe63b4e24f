"""Tells pods and pod groups why they wait and where they went: conditions and events, within a budget of writes.

What is told is the same sentence that `muster why` begins with, in short. A message that did not change is not written
again; one that changed is, at most so often. Bindings go first: messages are sent while there is budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from muster.backends.kubernetes.api import ApiError, ApiServer, ServerUnreachable
from muster.backends.kubernetes.commit import PodKey, note_event, tell_group, tell_waits
from muster.kube.kinds import POD_GROUPS
from muster.service.scheduler.figures import Figures
from muster.service.scheduler.troubles import Troubles

REPORTER = "muster.dev/scheduler"


class Event(Struct, frozen=True):
    """An event to write on a pod."""

    pod: PodKey
    reason: str
    note: str
    warning: bool = False


class Teller:
    """Keeps what each pod was told last, and what is to be told.

    Args:
        server: where to.
        instance: who reports.
        per_s: writes a second; 0: nothing is told.
        again_s: what a pod was told is not changed before.
        may_write: whether this replica leads.
        figures: counts.
        troubles: told what is refused.
    """

    def __init__(
        self, server: ApiServer, instance: str, per_s: float, again_s: float, may_write: Callable[[], bool],
        figures: Figures, troubles: Troubles,
    ) -> None:  # fmt: skip
        self._server, self._instance, self._per_s, self._again_s = server, instance, per_s, again_s
        self._may_write, self._figures, self._troubles = may_write, figures, troubles
        self._told: dict[PodKey, tuple[str, float]] = {}
        self._wanted: dict[PodKey, str] = {}
        self._events: dict[tuple[PodKey, str], Event] = {}
        self._groups: dict[str, tuple[bool, str]] = {}
        self._told_groups: dict[str, tuple[bool, str, float]] = {}
        self._more = asyncio.Event()
        self._telling = ""

    def waits(self, pods: list[PodKey], message: str) -> None:
        """These pods wait, for this."""
        now_s = time.monotonic()
        for pod in pods:
            told = self._told.get(pod)
            if told is None or (told[0] != message and now_s - told[1] >= self._again_s):
                self._wanted[pod] = message
        if self._wanted:
            self._more.set()

    def group(self, namespace: str, name: str, *, scheduled: bool, message: str) -> None:
        """A native PodGroup waits, for this, or has been scheduled."""
        key, now_s = f"{namespace}/{name}", time.monotonic()
        told = self._told_groups.get(key)
        if told is not None and (told[0] or (told[1] == message and not scheduled)):
            return
        if told is None or scheduled or now_s - told[2] >= self._again_s:
            self._groups[key] = scheduled, message
            self._more.set()

    def forget_group(self, key: str) -> None:
        """A group is there no more."""
        self._told_groups.pop(key, None)
        self._groups.pop(key, None)

    def event(self, event: Event) -> None:
        """Something happened to a pod."""
        if self._per_s:
            self._events[event.pod, event.reason] = event
            self._more.set()

    def forget(self, pod: PodKey) -> None:
        """A pod is bound or gone."""
        self._told.pop(pod, None)
        self._wanted.pop(pod, None)

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            if not (self._wanted or self._events or self._groups) or not self._per_s or not self._may_write():
                self._more.clear()
                await self._more.wait()
                await asyncio.sleep(0.05)
                continue
            began_s = time.monotonic()
            try:
                await self._next()
            except (ApiError, ServerUnreachable, TimeoutError, OSError) as error:
                self._figures.failed(error)
                self._troubles.say(self._telling, error)
                await asyncio.sleep(1.0)
            await asyncio.sleep(max(0.0, 1.0 / self._per_s - (time.monotonic() - began_s)))

    async def _next(self) -> None:
        """Write one message: conditions first, which autoscalers wait for."""
        if self._groups:
            self._telling = "a pod group was not told"
            key = next(iter(self._groups))
            scheduled, message = self._groups.pop(key)
            self._told_groups[key] = scheduled, message, time.monotonic()
            namespace, _, name = key.partition("/")
            path = (await self._server.discover()).path(POD_GROUPS, namespace)
            if path is not None:
                await tell_group(self._server, f"{path}/{name}", scheduled=scheduled, message=message)
            return
        if self._wanted:
            self._telling = "a pod was not told why it waits"
            pod = next(iter(self._wanted))
            message = self._wanted.pop(pod)
            new = pod not in self._told
            self._told[pod] = message, time.monotonic()
            try:
                await tell_waits(self._server, pod, message)
            except (ServerUnreachable, TimeoutError, OSError):
                self._told[pod] = "", time.monotonic()  # told again in a while
                raise
            if new:
                self.event(Event(pod, "FailedScheduling", message, warning=True))
            return
        self._telling = "an event was not written"
        key = next(iter(self._events))
        event = self._events.pop(key)
        regarding = {
            "apiVersion": "v1", "kind": "Pod", "namespace": event.pod.namespace, "name": event.pod.name,
            "uid": event.pod.uid,
        }  # fmt: skip
        await note_event(
            self._server, regarding, event.reason, event.note, reporter=REPORTER, instance=self._instance,
            action="Scheduling" if event.reason != "Evicted" else "Eviction", warning=event.warning,
        )  # fmt: skip
