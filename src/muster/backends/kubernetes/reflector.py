"""Keeps one kind of object up to date in a `World`: list, then watch, again and again.

What goes wrong on the way is normal: the server forgets old versions (410), is slow or away, cuts the stream, or goes
silent. Then it is listed anew, what differs is told as if it had been watched, and nothing is asked in a hot loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from muster.backends.kubernetes.api import ApiError, ApiServer, ServerUnreachable
from muster.backends.kubernetes.rbac import UNKNOWN
from muster.kube.world import Kind, KubeObject, World, key_of

PAGE = 1000
"""Objects a page of a list."""
WATCH_S = (240, 300)
"""How long a watch is asked to last, between these."""
SILENT_S = 90.0
"""The server sends a bookmark about every minute: a stream that is silent for longer is taken to be dead."""
FIRST_WAIT_S, MOST_WAIT_S = 0.1, 30.0
GONE = 410


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class _Event(Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(Struct):
    metadata: _ListMeta


class _Status(Struct):
    code: int = 0
    message: str = ""


class _Gone(Exception):
    """The server does not know the version that was asked for any more."""


Changed = Callable[[Kind, str, "KubeObject | None", "KubeObject | None"], None]
"""``changed(kind, key, before, after)``: None before is new, None after is gone."""


class Pause:
    """Waits longer after each failure in a row, each time a random part of twice as much."""

    def __init__(self, rng: random.Random, first_s: float = FIRST_WAIT_S, most_s: float = MOST_WAIT_S) -> None:
        self._rng, self._first_s, self._most_s = rng, first_s, most_s
        self.failures = 0

    def reset(self) -> None:
        """It went well."""
        self.failures = 0

    def next_s(self) -> float:
        """How long to wait now."""
        most_s = min(self._most_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return most_s * (0.5 + 0.5 * self._rng.random())


class Reflector:
    """Lists and watches one kind.

    Args:
        server: where.
        kind: what; not served kinds are noted in ``world.missing`` and looked for again now and then.
        struct: what its objects are decoded to.
        world: what is kept up to date.
        changed: called after each change of the world.
        rng: for jitter.
        trouble: told what went wrong, and the error; a kind that is not served is none.

    Attributes:
        synced: set once the world holds what the server has, or the kind is not to be had.
        relists, events: how often it was listed and how many events came, for metrics.
        error: what went wrong last; empty while all is well.
    """

    def __init__(
        self, server: ApiServer, kind: Kind, struct: type[KubeObject], world: World, changed: Changed,
        rng: random.Random, trouble: Callable[[str, Exception], object] | None = None,
    ) -> None:  # fmt: skip
        self._trouble = trouble
        self._server, self._kind, self._world, self._changed = server, kind, world, changed
        self._rng, self._struct = rng, struct
        self._pause = Pause(rng)
        self._object = msgspec.json.Decoder(struct)
        self._event = msgspec.json.Decoder(_Event)
        self._list = msgspec.json.Decoder(_list_of(struct))
        self._version = ""
        self.synced = asyncio.Event()
        self.relists = self.events = 0
        self.error = ""
        self.heard_s = 0.0

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            try:
                await self._once()
                self._pause.reset()
                continue
            except _Gone:
                self._version = ""
                if not self._pause.failures:
                    self._pause.failures = 1
                    continue
            except ApiError as error:
                if error.status in (403, 404, 405):
                    self._give_up(error)
                self._version = "" if error.status == GONE else self._version
                self._failed(error)
            except (ServerUnreachable, TimeoutError, OSError) as error:
                self._failed(error)
            except msgspec.DecodeError as error:
                self._failed(error)
                self._version = ""
            await asyncio.sleep(self._pause.next_s())

    def _failed(self, error: Exception) -> None:
        self.error = str(error) or type(error).__name__
        if self._trouble is not None and not (isinstance(error, ApiError) and error.status in (404, 405, GONE)):
            refused = isinstance(error, ApiError) and error.status == 403
            cost = UNKNOWN.get(self._kind.resource, "") if refused else ""
            self._trouble(f"{self._kind.name} were not read{cost and f'; not known: {cost}'}", error)

    def _give_up(self, error: ApiError) -> None:
        """The kind is not to be had now: whoever waits for it goes on without."""
        self._world.missing[self._kind.name] = str(error)
        self.synced.set()
        self._pause.failures = max(self._pause.failures, 9)  # asked again every half minute or so

    async def relist(self) -> None:
        """List anew now; returns when the world holds what the server has. For a new leader."""
        await self._fill()
        self.synced.set()

    async def _once(self) -> None:
        """List if need be, then one watch until its end."""
        if not self._version:
            await self._fill()
            self.synced.set()
            self._pause.reset()
        self.error = ""
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(self._rng.randint(*WATCH_S)),
        }
        path = await self._path()
        stream = cast("AsyncGenerator[bytes]", self._server.stream(path, params))
        async with aclosing(stream) as lines:
            async for line in _not_silent(lines, SILENT_S):
                self._take(line)

    async def _path(self) -> str:
        path = (await self._server.discover()).path(self._kind)
        if path is None:
            raise ApiError(404, "NotFound", f"the server does not serve {self._kind.name}", "list", self._kind.name)
        return path

    async def _fill(self) -> None:
        """List all pages; what differs from the world is told."""
        path = await self._path()
        found: dict[str, KubeObject] = {}
        params = {"limit": str(PAGE)}
        while True:
            page = self._list.decode(await self._server.request("GET", path, params=params))
            for each in page.items or ():
                found[key_of(each)] = each
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        self.relists += 1
        self.heard_s = time.monotonic()
        self._version = page.metadata.resource_version
        self._world.missing.pop(self._kind.name, None)
        before = dict(self._world.of(self._kind, self._struct))
        self._world.put_all(self._kind, found.values())
        for key in [key for key in before if key not in found]:
            self._changed(self._kind, key, before[key], None)
        for key, each in found.items():
            if before.get(key) != each:
                self._changed(self._kind, key, before.get(key), each)

    def _take(self, line: bytes) -> None:
        """One event of a watch."""
        self.heard_s = time.monotonic()
        event = self._event.decode(line)
        if event.type == "BOOKMARK":
            self._version = msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version
            return
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            if status.code == GONE:
                raise _Gone
            raise ApiError(status.code, "", status.message, "watch", self._kind.name)
        self.events += 1
        found: KubeObject = self._object.decode(event.object)
        key = key_of(found)
        before = self._world.of(self._kind, self._struct).get(key)
        self._version = found.metadata.resource_version or self._version
        if before is not None and _older(found.metadata.resource_version, before.metadata.resource_version):
            return  # it was listed meanwhile, and is known as it was later
        if event.type == "DELETED":
            self._world.drop(self._kind, key)
            self._changed(self._kind, key, before, None)
        else:
            self._world.put(self._kind, found)
            self._changed(self._kind, key, before, found)


def _older(version: str, known: str) -> bool:
    """Whether a version came before another: those of Kubernetes are numbers; of others nothing is said."""
    return version.isdigit() and known.isdigit() and int(version) < int(known)


def _list_of(struct: type[KubeObject]) -> Any:
    """The type of a page of a list."""
    fields: list[Any] = [("metadata", _ListMeta), ("items", list[cast("Any", struct)] | None, None)]
    return msgspec.defstruct(f"{struct.__name__}List", fields)


async def _not_silent(lines: AsyncGenerator[bytes], most_s: float) -> AsyncGenerator[bytes]:
    """The lines of a stream; raises `TimeoutError` where none comes for too long."""
    while True:
        async with asyncio.timeout(most_s):
            try:
                line = await anext(lines)
            except StopAsyncIteration:
                return
        yield line
