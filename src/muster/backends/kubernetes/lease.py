"""One of several replicas leads, by a Lease of coordination.k8s.io/v1: the others stand by.

As client-go does it: whoever leads renews; who stands by takes over when the lease was not renewed for its duration as
seen by its own clock, so that clocks of different machines need not agree. All writes carry the version that was read,
so that of two that try at once one is refused. A leader that cannot renew in time stops before another may start.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.backends.kubernetes.api import ApiError, ApiServer, ServerUnreachable

DURATION_S, RENEW_WITHIN_S, RETRY_S = 15.0, 10.0, 2.0
"""How long a lease holds; within how long a leader must have renewed it to go on; how often both try."""


class _Meta(Struct, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    resource_version: str = ""


class _Spec(Struct, rename="camel", omit_defaults=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class _Lease(Struct, rename="camel"):
    metadata: _Meta
    spec: _Spec
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


def micro_time(now: datetime) -> str:
    """A time as Kubernetes writes those with microseconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Leadership:
    """Whether this replica leads.

    Args:
        server: where the lease is.
        namespace, name: which lease.
        identity: who this replica is; unique among all.
        rng: for jitter.
        clock: monotonic seconds.
        trouble: told what went wrong, and the error.

    Attributes:
        holder: who leads, as far as is known.
        leading: set while this replica leads.
        lost: set when it led and may not go on.
    """

    def __init__(
        self, server: ApiServer, namespace: str, name: str, identity: str, rng: random.Random,
        clock: Callable[[], float] = time.monotonic, duration_s: float = DURATION_S,
        trouble: Callable[[str, Exception], object] | None = None,
    ) -> None:  # fmt: skip
        self._server, self._rng, self._clock = server, rng, clock
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name, self.identity = namespace, name, identity
        self._duration_s, self._trouble = duration_s, trouble
        self._seen: tuple[str, str] = ("", "")
        self._seen_s = -1e18
        self._renewed_s = -1e18
        self.holder = ""
        self.leading = asyncio.Event()
        self.lost = asyncio.Event()
        self.error = ""

    @property
    def valid(self) -> bool:
        """Whether it may write now: it leads, and no other can have taken over."""
        within_s = self._duration_s * RENEW_WITHIN_S / DURATION_S
        return self.leading.is_set() and self._clock() - self._renewed_s < within_s

    async def run(self) -> None:
        """Tries to lead, then renews; returns when it led and lost that."""
        retry_s = self._duration_s * RETRY_S / DURATION_S
        while True:
            began_s = self._clock()
            try:
                async with asyncio.timeout(retry_s * 2):
                    held = await self._try()
                self.error = ""
            except (ApiError, ServerUnreachable, TimeoutError, OSError) as error:
                held, self.error = None, str(error) or type(error).__name__
                if self._trouble is not None:
                    self._trouble(f"the lease {self._namespace}/{self._name} was not had or renewed", error)
            if held:
                self._renewed_s = began_s
                self.leading.set()
            elif self.leading.is_set() and (held is False or not self.valid):
                self.leading.clear()
                self.lost.set()
                return
            await asyncio.sleep(retry_s * (1.0 + 0.2 * self._rng.random()))

    async def release(self) -> None:
        """Give the lease up at an orderly end, so that another takes over at once."""
        if not self.leading.is_set():
            return
        self.leading.clear()
        found = await self._read()
        if found is not None and found.spec.holder_identity == self.identity:
            await self._write(replace(found, spec=replace(found.spec, holder_identity="", lease_duration_seconds=1)))

    async def _try(self) -> bool:
        """Whether it leads now."""
        now = micro_time(datetime.now(UTC))
        found = await self._read()
        mine = _Spec(self.identity, max(1, round(self._duration_s)), now, now)
        if found is None:
            created = _Lease(_Meta(self._name, self._namespace), mine)
            return await self._first(self._server.request("POST", self._path, body=msgspec.json.encode(created)))
        spec = found.spec
        self.holder = spec.holder_identity
        if spec.holder_identity == self.identity:
            return await self._write(replace(found, spec=replace(spec, renew_time=now)))
        seen = spec.holder_identity, spec.renew_time
        if seen != self._seen:
            self._seen, self._seen_s = seen, self._clock()
        free = not spec.holder_identity or self._clock() - self._seen_s > (
            spec.lease_duration_seconds or self._duration_s
        )
        if not free:
            return False
        taken = replace(mine, lease_transitions=spec.lease_transitions + 1)
        return await self._write(replace(found, spec=taken))

    async def _read(self) -> _Lease | None:
        try:
            return msgspec.json.decode(await self._server.request("GET", f"{self._path}/{self._name}"), type=_Lease)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, lease: _Lease) -> bool:
        """Whether it was the first to write."""
        return await self._first(
            self._server.request("PUT", f"{self._path}/{self._name}", body=msgspec.json.encode(lease))
        )

    async def _first(self, request: Awaitable[bytes]) -> bool:
        try:
            await request
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        self.holder = self.identity
        return True
