"""All objects of a live cluster, read once: kinds side by side, in pages; what may not be read is named."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, field

from muster.backends.kubernetes.api import ApiError, ApiServer
from muster.backends.kubernetes.discovery import Discovery
from muster.backends.kubernetes.rbac import READ_VERBS, UNKNOWN
from muster.errors import ClusterError
from muster.kube.kinds import STRUCTS
from muster.kube.world import Kind, KubeObject, World

PAGE = 1000
"""Objects in one answer."""

PAGE_S = 60.0

_T = TypeVar("_T")
_USER = re.compile(r'User "([^"]+)"')


class _Meta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class _Page(Struct, Generic[_T]):
    metadata: _Meta = field(default_factory=_Meta)
    items: list[_T] | None = None


class Denied(Struct, frozen=True):
    """A kind that must not be read; ``namespace`` is the only one of which it was, empty where none was."""

    kind: Kind
    user: str
    namespace: str = ""


async def read_world(
    server: ApiServer, kinds: Mapping[Kind, type[KubeObject]] = STRUCTS, *, namespace: str = ""
) -> World:  # fmt: skip
    """All objects of some kinds, in all namespaces.

    What must not be read in all of them is read in ``namespace`` alone, if one is given. `World.missing` says what was
    not read, ``server.warnings`` what the user should know of that. Kinds that the server does not have are missing
    without a warning: most clusters lack most of them.

    Raises:
        ClusterError: a kind without which nothing can be said must not be read, or the server does not answer.
    """
    discovery = await server.discover()
    world = World()
    denied: list[Denied] = []
    understood = {kind.group for kind in kinds if discovery.find(kind) is not None}
    """Groups of which a version is known; what is left out of them is of another version, and has its like there."""

    async def read(kind: Kind, struct: type[KubeObject]) -> None:
        found = discovery.find(kind)
        if found is None:
            known = ", ".join(discovery.versions(kind))
            world.missing[kind.name] = f"served only as {known}, which is not known" if known else "not served"
            if known and kind.group not in understood:
                server.warnings.append(f"{kind.name} is {world.missing[kind.name]}: it is left out.")
            return
        try:
            world.put_all(kind, await list_kind(server, discovery, kind, struct))
        except ApiError as error:
            if error.status == 404:
                world.missing[kind.name] = "not served"
                server.forget_discovery()
            elif error.status == 403:
                inside = namespace if found.namespaced else ""
                denied.append(await _denied(server, discovery, kind, struct, inside, world, error))
            elif kind.needed:
                raise
            else:
                world.missing[kind.name] = f"the server fails to list it ({error.status})"
                server.warnings.append(f"{kind.name} cannot be read: {error}.")

    await asyncio.gather(*(read(kind, struct) for kind, struct in kinds.items()))
    _tell(server, [each for kind in kinds for each in denied if each.kind is kind])
    return world


async def _denied(
    server: ApiServer, discovery: Discovery, kind: Kind, struct: type[KubeObject], namespace: str, world: World,
    error: ApiError,
) -> Denied:  # fmt: skip
    """Read a kind in one namespace, where it must not be read in all; what is missing is noted."""
    found = _USER.search(error.message)
    user = found[1] if found else ""
    if namespace:
        try:
            world.put_all(kind, await list_kind(server, discovery, kind, struct, namespace))
        except ApiError as inner:
            if inner.status != 403:
                raise
        else:
            world.missing[kind.name] = f"not allowed beyond namespace {namespace}"
            return Denied(kind, user, namespace)
    world.missing[kind.name] = "not allowed"
    return Denied(kind, user)


async def list_kind(
    server: ApiServer, discovery: Discovery, kind: Kind, struct: type[_T], namespace: str = ""
) -> list[_T]:  # fmt: skip
    """All objects of a kind, page by page; what cannot be read of one object leaves that out, with a warning.

    Where the pages take so long that the server has forgotten the list's version, it is read anew, whole.
    """
    path = discovery.path(kind, namespace)
    assert path is not None
    of: Any = _Page
    decoder = cast("msgspec.json.Decoder[_Page[_T]]", msgspec.json.Decoder(of[struct]))
    found: list[_T] = []
    params = {"limit": str(PAGE)}
    while True:
        try:
            raw = await server.request("GET", path, params=params, timeout_s=PAGE_S)
        except ApiError as error:
            if error.status != 410 or "continue" not in params:
                raise
            found, params = [], {}
            continue
        try:
            page = decoder.decode(raw)
        except (msgspec.DecodeError, ValueError):
            page = _one_by_one(server, kind, raw, struct)
        found += page.items or ()
        if not page.metadata.continue_:
            return found
        params = {"limit": str(PAGE), "continue": page.metadata.continue_}


def _one_by_one(server: ApiServer, kind: Kind, raw: bytes, struct: type[_T]) -> _Page[_T]:
    """A page of which some object is not as it should be."""
    try:
        page = msgspec.json.decode(raw, type=_Page[Raw])
    except (msgspec.DecodeError, ValueError):
        raise ClusterError(f"the server's list of {kind.name} cannot be read") from None
    found: list[_T] = []
    wrong = 0
    first = ""
    for each in page.items or ():
        try:
            found.append(msgspec.json.decode(each, type=struct))
        except (msgspec.DecodeError, ValueError) as error:
            wrong, first = wrong + 1, first or str(error)
    server.warnings.append(f"{wrong:,} {kind.name} cannot be read and are left out: {first}.")
    return _Page(page.metadata, found)


# -- what must not be read --------------------------------------------------------------------------------------------


def _tell(server: ApiServer, denied: list[Denied]) -> None:
    """Warn of what must not be read, with what that costs and the command that allows it; raise where it is needed."""
    if not denied:
        return
    user = next((each.user for each in denied if each.user), "")
    if lacking := [each for each in denied if each.kind.needed and not each.namespace]:
        names = ", ".join(each.kind.name for each in lacking)
        hint = f"allow it: {allowing(denied, user)}"
        raise ClusterError(f"{user or 'this user'} must not list {names}, without which nothing can be said", hint=hint)
    who = f"{user or 'This user'} must not list"
    inside = next((each.namespace for each in denied if each.namespace), "")
    if any(each.kind.needed for each in denied):
        server.warnings.append(f"{who} pods of other namespaces than {inside}: what they hold looks free.")
    rest = [each for each in denied if not each.kind.needed]
    nowhere = ", ".join(each.kind.name for each in rest if not each.namespace)
    there = ", ".join(each.kind.name for each in rest if each.namespace)
    if rest:
        names = " and ".join(filter(None, (nowhere, f"outside of {inside} {there}" if there else "")))
        unknown = ", ".join(dict.fromkeys(UNKNOWN[each.kind.resource] for each in rest))
        server.warnings.append(f"{who} {names}: it is not known {unknown}.")
    server.warnings.append(f"What allows it: {allowing(denied, user)}")


def allowing(denied: Iterable[Denied], user: str) -> str:
    """The commands by which an administrator lets a user read some kinds."""
    names = ",".join(each.kind.name for each in denied)
    account = user.removeprefix("system:serviceaccount:")
    who = "--serviceaccount=" + account if account != user else "--user=" + shlex.quote(user or "USER")
    role = f"kubectl create clusterrole muster-read --verb={','.join(READ_VERBS)} --resource={names}"
    return f"{role} && kubectl create clusterrolebinding muster-read --clusterrole=muster-read {who}"
