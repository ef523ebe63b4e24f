"""A Kubernetes API server: requests, streams and discovery over kept connections, its errors in clear words."""

from __future__ import annotations

import asyncio
import email.utils
import random
import ssl
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from muster import __version__
from muster.backends.kubernetes.config import Access, read_access
from muster.backends.kubernetes.credentials import Credential
from muster.backends.kubernetes.discovery import ACCEPT, Discovery, discovery_of
from muster.backends.kubernetes.failures import ApiError, ServerUnreachable, clock_skew, unauthorized, unreachable
from muster.backends.kubernetes.tls import tls_for
from muster.errors import ClusterError

__all__ = ["ApiError", "ApiServer", "ServerUnreachable", "run"]

CONNECTIONS = 64
"""Most connections at once."""

CONNECT_S = 10.0
TIMEOUT_S = 30.0
TRIES = 4
"""How often a GET is sent until it is given up."""

GIVE_UP_S = 20.0
"""After so long none is sent again."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.25, 8.0
_AGAIN = frozenset({429, 500, 502, 503, 504})

_T = TypeVar("_T")


class _Status(Struct):
    reason: str = ""
    message: str = ""
    details: Any = None


class _Version(Struct, rename="camel"):
    git_version: str = ""


class ApiServer:
    """One server, asked as one user. Use it as ``async with ApiServer.open(context) as server``.

    Attributes:
        access: how it is reached.
        warnings: what the user should know besides the answers, such as a clock that is wrong.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.warnings: list[str] = []
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[tuple[str, str], ssl.SSLContext | None] | None = None
        self._discovery: Discovery | None = None
        self._dated = False
        self._ahead_s = 0.0

    @classmethod
    def open(cls, context: str = "", kubeconfig: str = "", *, as_user: str = "") -> ApiServer:
        """The server of a context, as `read_access` finds it; raises `ClusterError`. Nothing is sent yet."""
        return cls(read_access(context, kubeconfig, as_user=as_user))

    async def __aenter__(self) -> ApiServer:
        if self.access.proxy.startswith("socks"):
            raise ClusterError(
                f"the proxy of context {self.access.context!r} is SOCKS", hint="only HTTP ones are known"
            )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ttl_dns_cache=30),
            headers={
                "User-Agent": f"muster/{__version__}",
                "Accept": "application/json",
                "Accept-Encoding": "gzip" if self.access.compress else "identity",
            },
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None,
        content_type: str = "application/json", timeout_s: float = TIMEOUT_S, tries: int | None = None,
        accept: str | None = None,
    ) -> bytes:  # fmt: skip
        """Send one request and return the answer's body.

        A GET is sent up to TRIES times, with growing pauses of random length, where the server is busy or away; others
        once, as they may have had their effect. ``tries`` says otherwise.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: with a slash before it, such as ``/api/v1/pods``.
            params: the query.
            body: what is sent; content_type: as what (PATCH: ``application/merge-patch+json`` or another).
            timeout_s: for the whole answer, each time.
            tries: how often at most.
            accept: another form of answer than plain JSON.

        Raises:
            ApiError: the server answers with an error.
            ServerUnreachable: it does not answer, or cannot be trusted.
            ClusterError: the credentials are not to be had, or not accepted.
        """
        left = tries if tries is not None else TRIES if method == "GET" else 1
        pause_s, end_s = FIRST_PAUSE_S, time.monotonic() + GIVE_UP_S
        headers = {"Content-Type": content_type} if body is not None else {}
        if accept:
            headers["Accept"] = accept
        limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        while True:
            left -= 1
            try:
                async with await self._send(method, path, params, body, headers, limit) as answer:
                    return await self._body(answer, method, path)
            except (ApiError, ServerUnreachable) as error:
                again = error.status in _AGAIN if isinstance(error, ApiError) else error.again
                if left <= 0 or not again or time.monotonic() > end_s:
                    raise
                asked_s = error.retry_after_s if isinstance(error, ApiError) else None
            await asyncio.sleep(max(min(asked_s or 0.0, MOST_PAUSE_S), random.uniform(0.5, 1.0) * pause_s))
            pause_s = min(pause_s * 2, MOST_PAUSE_S)

    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, idle_s: float | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of an answer as they come, such as the events of a watch, until the server ends it.

        ``idle_s``: after so long without a byte the server counts as unreachable. Raises as `request` does.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s)
        async with await self._send("GET", path, params, None, {"Accept-Encoding": "identity"}, limit) as answer:
            if answer.status >= 400:
                await self._body(answer, "GET", path)
            begun: list[bytes] = []
            try:
                async for chunk in answer.content.iter_any():
                    *lines, last = chunk.split(b"\n")
                    for line in lines:
                        begun.append(line)
                        whole = b"".join(begun)
                        begun.clear()
                        if whole:
                            yield whole
                    if last:
                        begun.append(last)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise unreachable(error, self.access) from None
            if begun:
                raise ServerUnreachable(f"the server of context {self.access.context!r} broke off within a line")

    async def discover(self) -> Discovery:
        """Which kinds the server has; asked once."""
        if self._discovery is None:
            core, groups, version = await asyncio.gather(
                self.request("GET", "/api", accept=ACCEPT), self.request("GET", "/apis", accept=ACCEPT), self._version()
            )
            self._discovery = discovery_of((core, groups), version)
        return self._discovery

    def forget_discovery(self) -> None:
        """Ask anew what the server has, as after a CRD came."""
        self._discovery = None

    def now_s(self) -> float:
        """Seconds since 1970 by the server's clock, where it differs from ours by more than a little."""
        return time.time() - self._ahead_s

    async def _version(self) -> str:
        """The server's version; empty where it must not be read, which few servers forbid."""
        try:
            return msgspec.json.decode(await self.request("GET", "/version"), type=_Version).git_version
        except (ApiError, msgspec.DecodeError):
            return ""

    async def _send(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None,
        headers: Mapping[str, str], limit: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:  # fmt: skip
        """The answer's head, errors among them; a 401 is tried once more where other credentials can be had."""
        credential = await self.access.credentials.current()
        answer = await self._send_as(credential, method, path, params, body, headers, limit)
        if answer.status == 401 and self.access.credentials.renewable:
            answer.release()
            credential = await self.access.credentials.current(refused=credential)
            answer = await self._send_as(credential, method, path, params, body, headers, limit)
        if answer.status == 401:
            answer.release()
            raise unauthorized(self.access, credential.certificate, token=bool(credential.authorization))
        self._look_at_clock(answer)
        return answer

    async def _send_as(
        self, credential: Credential, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None,
        headers: Mapping[str, str], limit: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:  # fmt: skip
        assert self._session is not None, "use it as `async with`"
        shown = credential.certificate, credential.key
        if self._tls is None or self._tls[0] != shown:
            self._tls = shown, tls_for(self.access, credential)
        tls = self._tls[1]
        full: list[tuple[str, str]] = [*headers.items(), *self.access.impersonate]
        if credential.authorization:
            full.append(("Authorization", credential.authorization))
        url = URL(self.access.server + path, encoded=True)
        try:
            return await self._session.request(
                method, url, params=params, data=body, headers=full, timeout=limit, allow_redirects=False,
                ssl=tls or True, server_hostname=(tls and self.access.server_name) or None,
                proxy=self.access.proxy or None,
            )  # fmt: skip
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(error, self.access) from None

    async def _body(self, answer: aiohttp.ClientResponse, method: str, path: str) -> bytes:
        try:
            raw = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(error, self.access) from None
        if answer.status < 300:
            return raw
        try:
            said = msgspec.json.decode(raw, type=_Status)
        except (msgspec.DecodeError, ValueError):
            said = _Status(
                "", "".join(letter for letter in raw[:200].decode("utf-8", "replace") if letter.isprintable())
            )
        after = answer.headers.get("Retry-After", "")
        raise ApiError(
            answer.status, said.reason or answer.reason or "", said.message, method, path,
            retry_after_s=float(after) if after.isascii() and after.isdigit() and len(after) < 6 else None,
            details=said.details,
        )  # fmt: skip

    def _look_at_clock(self, answer: aiohttp.ClientResponse) -> None:
        """Compare the clocks once: the server's, which has whole seconds, with ours."""
        if self._dated or not (text := answer.headers.get("Date")):
            return
        self._dated = True
        try:
            date_s = email.utils.parsedate_to_datetime(text).timestamp()
        except ValueError:
            return
        now_s = time.time()
        if warning := clock_skew(date_s, now_s, self.access):
            self.warnings.append(warning)
            self._ahead_s = now_s - date_s


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end, on the faster loop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
