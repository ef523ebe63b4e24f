"""Writes that a person asked for, sent one after another; the server can be asked only to check them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from muster.backends.kubernetes.api import ApiError, ApiServer
from muster.errors import ClusterError
from muster.kube.world import Kind

JSON_PATCH = "application/json-patch+json"


class Write(Protocol):
    """What is written: a patch of an object, or a subresource of it that is posted."""

    @property
    def kind(self) -> Kind: ...  # noqa: D102
    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def body(self) -> Any: ...  # noqa: D102
    @property
    def content_type(self) -> str: ...  # noqa: D102
    @property
    def sub(self) -> str: ...  # noqa: D102


async def carry_out(server: ApiServer, writes: Sequence[Write], *, dry_run: bool) -> AsyncIterator[int]:
    """Send writes in order, and tell of each that the server has taken it, by its index.

    With ``dry_run`` the server checks each, rights and validation and all, and keeps none.

    Raises:
        ClusterError: one is refused, with what that means; those before it are done.
    """
    discovery = await server.discover()
    for index, write in enumerate(writes):
        path = discovery.path(write.kind, write.namespace)
        if path is None:
            raise ClusterError(f"the server has no {write.kind.name}")
        path += f"/{write.name}" + (f"/{write.sub}" if write.sub else "")
        params = {"dryRun": "All"} if dry_run else {}
        if not write.sub:
            params["fieldManager"] = "muster"
        body = msgspec.json.encode(write.body)
        method = "POST" if write.sub else "PATCH"
        try:
            await server.request(method, path, params=params, body=body, content_type=write.content_type)
        except ApiError as error:
            raise ClusterError(_refusal(error, write)) from None
        yield index


def _refusal(error: ApiError, write: Write) -> str:
    where = f"{write.kind.kind.lower()} {write.namespace}/{write.name}" if write.namespace else f"node {write.name}"
    if error.status == 403:
        return f"{where}: {error.message}"
    if error.status == 429:
        return f"{where} must not be evicted now: a disruption budget allows no more; {error.message}"
    if error.status == 404:
        return f"{where} is there no more; ask anew"
    if error.status == 409 or (error.status == 422 and write.content_type == JSON_PATCH):  # what it tests is not so
        return f"{where} has changed meanwhile; ask anew"
    return f"{where}: the server refuses it: {' '.join(error.message.split())[:400]}"
