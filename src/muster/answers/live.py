"""A live cluster as a source: ``kubernetes:CONTEXT``, read when it is asked, and never written to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from muster.errors import InputError
from muster.model.snapshot import Snapshot
from muster.traces.trace import Skipped

if TYPE_CHECKING:
    from muster.kube.gangs import Seen
    from muster.kube.world import World
    from muster.model.notes import Note

PREFIX = "kubernetes:"
_KEYS = ("kubeconfig", "namespace", "as")


class Live(Struct, frozen=True):
    """Which cluster, as whom.

    Attributes:
        context: of the kubeconfig; empty: the current one.
        kubeconfig: its file; empty: KUBECONFIG, else ~/.kube/config.
        namespace: what may be read at least, where not all namespaces may; empty: the context's.
        as_user: as whom to act; empty: as whom the context says.
    """

    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    as_user: str = ""

    @property
    def source(self) -> str:
        """As a source: ``kubernetes:CONTEXT``, with what else is said after a question mark."""
        values = zip(_KEYS, (self.kubeconfig, self.namespace, self.as_user), strict=True)
        more = "&".join(f"{key}={quote(value, safe='/:@')}" for key, value in values if value)
        return f"{PREFIX}{self.context}{'?' if more else ''}{more}"


def is_live(source: str) -> bool:
    """Whether a source is a live cluster of Kubernetes."""
    return source.startswith(PREFIX)


def is_slurm(source: str) -> bool:
    """Whether a source is a live Slurm: ``slurm`` by its commands, ``slurm+http://HOST:PORT`` by slurmrestd."""
    return source == "slurm" or source.startswith("slurm+")


def goes_on(source: str) -> bool:
    """Whether a source is something live, which is another each time that it is read."""
    return is_live(source) or is_slurm(source)


def live_of(source: str) -> Live:
    """The cluster that a source names; raises `InputError` where what stands after the question mark is wrong."""
    context, mark, more = source.removeprefix(PREFIX).rpartition("?")
    if not mark:
        return Live(more)
    given = dict(parse_qsl(more, keep_blank_values=True))
    unknown = [key for key in given if key not in _KEYS]
    if unknown or not given:
        hint = f"{PREFIX}CONTEXT?kubeconfig=FILE&namespace=NAME&as=USER"
        raise InputError(f"{(unknown or [more])[0][:40]!r} is not known of a live cluster", field="--from", hint=hint)
    return Live(context, given.get("kubeconfig", ""), given.get("namespace", ""), given.get("as", ""))


class Reading(NamedTuple):
    """A live cluster as it was read: ``world`` are its objects, ``seen`` each gang by its workload's name."""

    snapshot: Snapshot
    skipped: tuple[Skipped, ...]
    world: World
    seen: Mapping[str, Seen]


def read_live(source: str, warn: Callable[[str], None]) -> tuple[Snapshot, tuple[Skipped, ...]]:
    """The snapshot of a live cluster as it is now, and what of its objects was not understood; see `open_live`."""
    found = open_live(source, warn)
    return found.snapshot, found.skipped


def open_live(source: str, warn: Callable[[str], None]) -> Reading:
    """Read a live cluster as it is now.

    Args:
        source: ``kubernetes:CONTEXT``.
        warn: is told, in a sentence each, what cannot be read and what that costs, and whether a clock is wrong.

    Raises:
        InputError: the source is wrong, or the package for it is not installed.
        ClusterError: there is no such context, the server does not answer, or it refuses what is needed.
    """
    from muster.kube.translate import Options, Translator

    found = read_objects(source, warn)
    options = Options(name=found.context, source=f"{PREFIX}{found.context}")
    translated = Translator(found.world, options=options).translate(found.now_s)
    left_out = tuple(_left_out(note, options.source) for note in translated.notes)
    return Reading(translated.snapshot, left_out, found.world, translated.seen)


class Objects(NamedTuple):
    """All objects of a live cluster, the context they are of, the server's time and its version (``v1.37.2``)."""

    world: World
    context: str
    now_s: float
    version: str


def read_objects(source: str, warn: Callable[[str], None]) -> Objects:
    """All objects of a live cluster; arguments and errors as of `open_live`."""
    live = live_of(source)
    require_client()
    from muster.backends.kubernetes.api import ApiServer, run
    from muster.backends.kubernetes.lists import read_world

    server = ApiServer.open(live.context, live.kubeconfig, as_user=live.as_user)

    async def read() -> tuple[World, str]:
        async with server:
            world = await read_world(server, namespace=live.namespace or server.access.namespace)
            return world, (await server.discover()).version

    world, version = run(read())
    for each in server.warnings:
        warn(each)
    return Objects(world, server.access.context, server.now_s(), version)


def _left_out(note: Note, source: str) -> Skipped:
    more = f" ({note.count:,} alike)" if note.count > 1 else ""
    return Skipped(source, 0, note.field, f"{note.kind.lower()} {note.name} {note.text}{more}")


def require_client() -> None:
    """Raise `InputError` where what a cluster is reached with is not installed."""
    try:
        import aiohttp
    except ImportError:
        hint = "pip install 'muster-gpu[kubernetes]'"
        raise InputError("the package aiohttp is not installed, by which a cluster is reached", hint=hint) from None
    assert aiohttp
