"""A small client of the API server, on the standard library alone: what tests and benchmarks set up and check with.

It is no part of the product, so that a fault of the product's own client cannot hide itself.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from controlplane.errors import ClusterError

JSON = "application/json"
KEPT_S = 20.0
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(ClusterError):
    """The server refused: its status, reason and message."""

    def __init__(self, method: str, path: str, status: int, body: Any) -> None:
        self.status = status
        said = cast("dict[str, Any]", body) if isinstance(body, dict) else {"message": body}
        self.reason = str(said.get("reason", ""))
        self.message = str(said.get("message", said))
        super().__init__(f"{method} {path}: {status} {self.reason}: {self.message}")


class Api:
    """Requests to one API server as one user, from any number of threads; idle connections are kept for the next."""

    def __init__(
        self,
        server: str,
        ca: Path,
        cert: Path | None = None,
        key: Path | None = None,
        token: str = "",
        timeout_s: float = 60.0,
    ) -> None:
        self.server = server
        self._token = token
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=str(ca))
        if cert:
            self._tls.load_cert_chain(str(cert), str(key) if key else None)
        self._idle: deque[tuple[http.client.HTTPSConnection, float]] = deque()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are idle now."""
        while self._idle:
            self._idle.pop()[0].close()

    def raw(
        self, method: str, path: str, body: bytes | None = None, kind: str = JSON, timeout_s: float = 0.0
    ) -> tuple[int, bytes]:
        """One request: status and body. Connection errors are raised as they are, but for a stale one, tried again."""
        while True:
            kept = self._kept() if not timeout_s else None
            connection = kept or self._new(timeout_s or self._timeout_s)
            try:
                connection.request(method, path, body, self._headers(kind))
                response = connection.getresponse()
                answer = response.status, response.read()
            except (http.client.HTTPException, OSError):
                connection.close()
                # a kept connection that the server closed meanwhile says nothing about the server of now
                if not kept or method == "POST":
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                if timeout_s:
                    connection.close()
                else:
                    self._idle.append((connection, time.monotonic()))
                return answer

    def call(self, method: str, path: str, body: Any = None, kind: str = JSON, **query: Any) -> Any:
        """One request with JSON (or, as text, YAML) in and JSON out. Raises `ApiError` from status 400 on."""
        if query:
            path += ("&" if "?" in path else "?") + urlencode(query)
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        status, answer = self.raw(method, path, data, kind)
        try:
            decoded = json.loads(answer) if answer else None
        except ValueError:
            decoded = answer.decode(errors="replace")
        if status >= 400:
            raise ApiError(method, path, status, decoded)
        return decoded

    def get(self, path: str, **query: Any) -> Any:
        """GET; `query` becomes the query string."""
        return self.call("GET", path, **query)

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """All items of a list, in pages of 500 as kubectl asks for them."""
        found: list[dict[str, Any]] = []
        query = {"limit": 500} | query
        while True:
            page = self.call("GET", path, **query)
            found += page["items"]
            more = page["metadata"].get("continue")
            if not more:
                return found
            query["continue"] = more

    def post(self, path: str, body: Mapping[str, Any], **query: Any) -> Any:
        """POST of one object."""
        return self.call("POST", path, body, **query)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """PUT of one object."""
        return self.call("PUT", path, body)

    def patch(self, path: str, body: Any, how: str = "merge", **query: Any) -> Any:
        """PATCH; ``how`` is merge, strategic, json or apply (which needs ``fieldManager=...``)."""
        return self.call("PATCH", path, body, PATCHES[how], **query)

    def delete(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """DELETE, with options in the body if given."""
        return self.call("DELETE", path, body, **query)

    def watch(self, path: str, timeout_s: int = 30, **query: Any) -> Iterator[dict[str, Any]]:
        """Events of a watch as dictionaries, on a connection of its own, until the server ends it."""
        return (json.loads(line) for line in self.watch_lines(path, timeout_s, **query))

    def watch_lines(self, path: str, timeout_s: int = 30, **query: Any) -> Iterator[bytes]:
        """The same as the server sends them, for those who cannot be slow: the server ends slow watches."""
        connection = self._new(timeout_s + 10)
        words = urlencode({"watch": "true", "timeoutSeconds": timeout_s} | query)
        try:
            connection.request("GET", f"{path}{'&' if '?' in path else '?'}{words}", None, self._headers(JSON))
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError("WATCH", path, response.status, json.loads(response.read()))
            yield from response
        finally:
            connection.close()

    def _headers(self, kind: str) -> dict[str, str]:
        headers = {"Content-Type": kind, "Accept": JSON, "User-Agent": "muster-dev-cluster"}
        return headers | ({"Authorization": f"Bearer {self._token}"} if self._token else {})

    def _kept(self) -> http.client.HTTPSConnection | None:
        """An idle connection; those that are idle for long are closed, as the server may have closed them already."""
        with contextlib.suppress(IndexError):
            while True:
                connection, since_s = self._idle.pop()
                if time.monotonic() - since_s < KEPT_S:
                    return connection
                connection.close()
        return None

    def _new(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(urlsplit(self.server).netloc, context=self._tls, timeout=timeout_s)
