"""What a history keeps of a snapshot: chunks that many snapshots have in common, and what happened to jobs."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from muster.answers.snapshots import job_differences
from muster.model.fleet import Node
from muster.model.snapshot import PastRuns, Running, Snapshot
from muster.model.workload import Workload

_CHUNK = 64
"""Objects a chunk in the mean."""

_Item = TypeVar("_Item")


class Manifest(Struct, array_like=True):
    """The chunks that a snapshot is made of, and who waits in it for which reason."""

    rest: bytes
    nodes: list[bytes]
    pending: list[bytes]
    running: list[bytes]
    run_times: list[bytes]
    waits: list[bytes] = []

    def hashes(self) -> Iterator[bytes]:
        """All its chunks."""
        yield self.rest
        for each in (self.nodes, self.pending, self.running, self.run_times, self.waits):
            yield from each


class Cutter:
    """Cuts into chunks; ``chunks`` are all by their hashes."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, bytes] = {}

    def cut(self, snapshot: Snapshot) -> Manifest:
        """The chunks of a snapshot; who waits in it is not known yet."""
        rest = msgspec.structs.replace(
            snapshot, fleet=msgspec.structs.replace(snapshot.fleet, nodes=()), pending=(), running=(), run_times=()
        )
        return Manifest(
            self._put(rest),
            self._list(snapshot.fleet.nodes, lambda node: node.name),
            self._list(snapshot.pending, lambda work: work.name),
            self._list(snapshot.running, lambda run: run.workload.name),
            self._list(snapshot.run_times, lambda past: f"{past.level}{past.key}"),
        )

    def waits(self, waits: Sequence[tuple[str, str]]) -> list[bytes]:
        """The chunks of who waits, and the reasons."""
        return self._list(waits, lambda each: each[0])

    def _list(self, items: Sequence[_Item], name_of: Callable[[_Item], str]) -> list[bytes]:
        return [self._put(part) for part in _parts(items, name_of)]

    def _put(self, value: object) -> bytes:
        data = msgspec.msgpack.encode(value)
        name = digest_of(data)
        self.chunks[name] = data
        return name


def digest_of(data: bytes) -> bytes:
    """What tells one chunk from another."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _parts(items: Sequence[_Item], name_of: Callable[[_Item], str]) -> Iterator[list[_Item]]:
    """Runs of items that end at those whose names say so: what comes or goes changes only the part that it is in."""
    part: list[_Item] = []
    for item in items:
        part.append(item)
        if zlib.crc32(name_of(item).encode()) % _CHUNK == 0:
            yield part
            part = []
    if part:
        yield part


def put_together(manifest: Manifest, chunk: Callable[[bytes], bytes]) -> Snapshot:
    """The snapshot of its chunks."""
    rest = msgspec.msgpack.decode(chunk(manifest.rest), type=Snapshot)
    nodes = _joined(manifest.nodes, chunk, msgspec.msgpack.Decoder(list[Node]))
    return msgspec.structs.replace(
        rest,
        fleet=msgspec.structs.replace(rest.fleet, nodes=nodes),
        pending=_joined(manifest.pending, chunk, msgspec.msgpack.Decoder(list[Workload])),
        running=_joined(manifest.running, chunk, msgspec.msgpack.Decoder(list[Running])),
        run_times=_joined(manifest.run_times, chunk, msgspec.msgpack.Decoder(list[PastRuns])),
    )


def waits_of(manifest: Manifest, chunk: Callable[[bytes], bytes]) -> dict[str, str]:
    """Who waits, with the reason."""
    return dict(_joined(manifest.waits, chunk, msgspec.msgpack.Decoder(list[tuple[str, str]])))


def _joined(
    names: Iterable[bytes], chunk: Callable[[bytes], bytes], decoder: msgspec.msgpack.Decoder[list[_Item]]
) -> tuple[_Item, ...]:
    return tuple(item for name in names for item in decoder.decode(chunk(name)))


def happened(
    old: Snapshot, new: Snapshot, told: set[tuple[str, str]], *, first: bool
) -> Iterator[tuple[float, str, str, str]]:
    """Events that two snapshots tell; what decisions have told already is left out."""
    submitted = {each.name: each.submitted_s for each in new.pending}
    submitted.update((run.workload.name, run.workload.submitted_s) for run in new.running)
    started = {run.workload.name: run.started_s for run in new.running}
    kinds = ("submitted", "started", "stopped", "ended", "withdrawn", "moved")
    for each in job_differences(old, new):
        if each.group not in kinds or (each.name, each.group) in told:
            continue
        if first and each.group in ("ended", "withdrawn"):
            continue
        time_s = new.taken_s
        if each.group == "submitted":
            time_s = submitted[each.name]
        elif each.group in ("started", "moved"):
            time_s = started[each.name]
        yield time_s, each.name, each.group, each.text
