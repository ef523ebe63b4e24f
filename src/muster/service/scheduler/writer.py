"""Carries out what was decided: many requests at once, the ones that bind first, messages when there is room.

Each write is tried again while whether it was done is not known; what it came to is told back to the state.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from muster.backends.kubernetes.api import ApiError, ApiServer, ServerUnreachable
from muster.backends.kubernetes.commit import Outcome, PodKey, bind, evict
from muster.backends.kubernetes.reflector import Pause
from muster.service.scheduler.claims import ClaimWrite, reserve
from muster.service.scheduler.figures import Figures
from muster.service.scheduler.tracing import Tracing
from muster.service.scheduler.troubles import Troubles
from muster.service.scheduler.volumes import VolumeWrite, provide

TRIES = 8


class Bind(Struct, frozen=True):
    """Bind a pod of a gang to a node, once its claims have their devices."""

    gang: str
    pod: PodKey
    node: str
    claims: tuple[ClaimWrite, ...] = ()


class Stop(Struct, frozen=True):
    """Evict a pod of a gang; ``why`` is for people."""

    gang: str
    pod: PodKey
    why: str


Write = Bind | Stop | VolumeWrite
"""All that is written of a plan."""


_NAMES = {Bind: "bind", Stop: "stop", VolumeWrite: "volume"}


def _about(write: Write) -> dict[str, str]:
    """What a span of a write says."""
    if isinstance(write, VolumeWrite):
        return {"muster.gang": write.gang, "k8s.namespace.name": write.namespace, "muster.claim": write.claim}
    where = {"k8s.node.name": write.node} if isinstance(write, Bind) else {}
    return {
        "muster.gang": write.gang, "k8s.namespace.name": write.pod.namespace, "k8s.pod.name": write.pod.name, **where,
    }  # fmt: skip


class Writer:
    """Sends writes, at most so many at once.

    Args:
        server: where to.
        at_once: requests under way.
        may_write: asked before each request: whether this replica still leads.
        done: told what each write came to.
        figures: counts.
        rng: for jitter.
        troubles: told what is refused.
        tracing: each write is a span of the cycle that decided on it.
    """

    def __init__(
        self, server: ApiServer, at_once: int, may_write: Callable[[], bool],
        done: Callable[[Write, Outcome], None], figures: Figures, rng: random.Random,
        troubles: Troubles, tracing: Tracing,
    ) -> None:  # fmt: skip
        self._tracing = tracing
        self._server, self._may_write, self._done = server, may_write, done
        self._figures, self._rng, self._troubles = figures, rng, troubles
        self._waiting: deque[tuple[Write, Any]] = deque()
        self._more = asyncio.Event()
        self._at_once = at_once
        self.under_way = 0

    def add(self, write: Write) -> None:
        """Enter a write."""
        self._waiting.append((write, self._tracing.context()))
        self._more.set()

    def clear(self) -> None:
        """Forget what has not been sent."""
        self._waiting.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting or under way."""
        return not self._waiting and not self.under_way

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            write, context = self._waiting.popleft()
            self.under_way += 1
            began_s = time.perf_counter()
            try:
                with self._tracing.span(_NAMES[type(write)], context, **_about(write)) as told:
                    outcome = await self._send(write)
                    told["muster.outcome"] = outcome.value
            finally:
                self.under_way -= 1
            self._figures.wrote(write, outcome, time.perf_counter() - began_s)
            self._done(write, outcome)

    async def _send(self, write: Write) -> Outcome:
        if isinstance(write, Bind):
            for claim in write.claims:
                outcome = await self._surely(
                    lambda claim=claim: reserve(self._server, claim, write.pod), "a claim was not allocated"
                )
                if outcome is not Outcome.DONE:
                    return outcome
            return await self._surely(lambda: bind(self._server, write.pod, write.node), "a pod was not bound")
        if isinstance(write, VolumeWrite):
            return await self._surely(lambda: provide(self._server, write), "a volume was not asked for")
        return await self._surely(lambda: evict(self._server, write.pod), "a pod was not evicted")

    async def _surely(self, send: Callable[[], Awaitable[Outcome]], failed: str) -> Outcome:
        """Send until the server has answered; LATER where it never did, or this replica does not lead any more.

        A request without an answer may have been carried out. That is safe to send again: the server refuses to bind a
        bound pod, and what a refused binding means is seen from the pod itself.
        """
        pause = Pause(self._rng)
        for _ in range(TRIES):
            if not self._may_write():
                return Outcome.LATER
            try:
                return await send()
            except ApiError as error:
                self._figures.failed(error)
                self._troubles.say(failed, error)
                if error.status not in (429, 500, 502, 503, 504):
                    return Outcome.TAKEN
            except (ServerUnreachable, TimeoutError, OSError) as error:
                self._figures.failed(error)
                self._troubles.say(failed, error)
            await asyncio.sleep(pause.next_s())
        return Outcome.LATER
