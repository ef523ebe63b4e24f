"""A snapshot: fleet, queues, pending and running work at one instant. It can be saved, sent and compared."""

from __future__ import annotations

import gc
import os
import tempfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from muster.errors import InputError
from muster.model.columns import Columns, from_columns, table_of, to_columns
from muster.model.fleet import Fleet, Node
from muster.model.limit import Limit
from muster.model.plan import PodPlacement
from muster.model.queue import Queue
from muster.model.workload import Workload

SNAPSHOT_VERSION = 2
_MAGIC = b"MUSTERSNAP"


class Running(Struct, frozen=True):
    """A workload that runs: since when, and where its pods are, in the order of its pod sets.

    ``checkpointed_s`` is when its work was last saved; None: never, or it does not save. ``counts`` are the pods of
    each pod set of an elastic workload; ``missing`` the ranks of pods that were lost with their nodes and are not
    replaced yet (they have no placement). ``resized_s`` is when its size changed last,
    ``idle_since_s`` since when it has used none of its GPUs. ``expected_end_s`` is when it was last taken to end; None:
    that is still to be told, from its limit or from what ran before.

    ``leaving_s`` is when work that was told to stop will have gone: until then it holds its devices, but no more quota.
    ``leaving_for`` is the workload for which it was stopped; empty: for none, or nobody knows. None: it stays.
    """

    workload: Workload
    started_s: float
    pods: tuple[PodPlacement, ...]
    checkpointed_s: float | None = None
    counts: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    resized_s: float | None = None
    idle_since_s: float | None = None
    expected_end_s: float | None = None
    leaving_s: float | None = None
    leaving_for: str = ""


class AdvanceReservation(Struct, frozen=True):
    """Nodes kept for some work, or for none (maintenance), from ``start_s`` to ``end_s``.

    ``queues`` and ``workloads`` may use them in that time; both empty: nobody.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    queues: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


class Usage(Struct, frozen=True):
    """What a queue or user has used up to the snapshot, decayed: in GPU-seconds (of whole GPUs)."""

    queue: str
    user: str
    gpu_s: float


class NodeFailure(Struct, frozen=True):
    """A workload that failed by itself on a node."""

    node: str
    workload: str
    time_s: float


class MoveSearch(Struct, frozen=True):
    """At ``time_s`` moves that would let a workload start were looked for and not found."""

    workload: str
    time_s: float


Key = tuple[str | int | float, ...]
"""Which kind of work: what the kinds of a level have in common, such as user and name."""


class PastRuns(Struct, frozen=True):
    """How long the last work of one kind ran, in seconds, the last at the end.

    ``level`` and ``key`` say which kind: those of `muster.engine.predict.LEVELS`. Other levels are passed over.
    """

    level: str
    key: Key
    seconds: tuple[float, ...]


Setting = bool | int | float | str


class Snapshot(Struct, frozen=True):
    """An immutable view of everything that a decision may depend on.

    Attributes:
        pending: a tuple, or of a file a `muster.model.columns.Table`, which is equal to one.
        reservations: advance reservations.
        usage: decayed use of the past, for fair share.
        finished: workloads that have ended well and that pending ones depend on.
        searches: for which pending workloads moves were looked for in vain of late.
        failures: of late, on which nodes work failed; several on one node put it into quarantine.
        taken_s: the instant, in seconds since the source's epoch.
        source: where it comes from, such as ``simulated`` or ``kubernetes:CONTEXT``.
        run_times: how long what ended had run, for predictions.
        settings: of the scheduler that it comes from, those that differ from Muster's defaults, sorted by name.
        local_queues: by which other names work may name its queue, as (``NAMESPACE/NAME``, queue): LocalQueues.
        limits: of users, accounts and single jobs, which its own scheduler holds besides.
    """

    fleet: Fleet
    queues: tuple[Queue, ...] = ()
    pending: tuple[Workload, ...] = ()
    running: tuple[Running, ...] = ()
    reservations: tuple[AdvanceReservation, ...] = ()
    usage: tuple[Usage, ...] = ()
    finished: tuple[str, ...] = ()
    failures: tuple[NodeFailure, ...] = ()
    taken_s: float = 0.0
    source: str = ""
    searches: tuple[MoveSearch, ...] = ()
    run_times: tuple[PastRuns, ...] = ()
    settings: tuple[tuple[str, Setting], ...] = ()
    local_queues: tuple[tuple[str, str], ...] = ()
    limits: tuple[Limit, ...] = ()


class _File(Struct, array_like=True):
    """A snapshot of version 2: ``rest`` is all of it but nodes, waiting and running work, which are columns.

    ``places`` are those of all running work, ``pods`` how many of them each has.
    """

    rest: Snapshot
    nodes: Columns
    pending: Columns
    running: Columns
    workloads: Columns
    places: Columns
    pods: list[int]


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Bytes of a snapshot file: ``MUSTERSNAP``, one version byte, then msgpack compressed by zlib."""
    rest = msgspec.structs.replace(
        snapshot, fleet=msgspec.structs.replace(snapshot.fleet, nodes=()), pending=(), running=()
    )
    file = _File(
        rest,
        to_columns(snapshot.fleet.nodes, Node),
        to_columns(snapshot.pending, Workload),
        to_columns(snapshot.running, Running, ("workload", "pods")),
        to_columns([run.workload for run in snapshot.running], Workload),
        to_columns([place for run in snapshot.running for place in run.pods], PodPlacement),
        [len(run.pods) for run in snapshot.running],
    )
    return _MAGIC + bytes([SNAPSHOT_VERSION]) + zlib.compress(msgspec.msgpack.encode(file), 6)


def decode_snapshot(data: bytes, *, file: str = "snapshot") -> Snapshot:
    """Read what `encode_snapshot` wrote, or an older version of it; raises `InputError` on anything else."""
    if not data.startswith(_MAGIC) or len(data) <= len(_MAGIC):
        raise InputError("is not a Muster snapshot", file=file, hint="write one with `muster snapshot save`")
    version = data[len(_MAGIC)]
    if version > SNAPSHOT_VERSION:
        raise InputError(
            f"is a snapshot of version {version}; this Muster reads up to {SNAPSHOT_VERSION}",
            file=file,
            hint="read it with a newer Muster",
        )
    try:
        raw = zlib.decompress(data[len(_MAGIC) + 1 :])
        with collector_paused():
            if version == 1:
                return msgspec.msgpack.decode(raw, type=Snapshot)
            return _joined(msgspec.msgpack.decode(raw, type=_File))
    except zlib.error as error:
        raise InputError(f"is cut short or damaged ({error})", file=file, hint="copy it again") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"does not hold a snapshot: {error}", file=file) from None


def _joined(file: _File) -> Snapshot:
    places, pods, end = from_columns(file.places, PodPlacement), list[tuple[PodPlacement, ...]](), 0
    for count in file.pods:
        pods.append(tuple(places[end : end + count]))
        end += count
    if end != len(places) or min(file.pods, default=0) < 0:
        raise msgspec.ValidationError("places and pods do not agree")
    workloads = from_columns(file.workloads, Workload)
    running = from_columns(file.running, Running, {"workload": workloads, "pods": pods})
    fleet = msgspec.structs.replace(file.rest.fleet, nodes=tuple(from_columns(file.nodes, Node)))
    pending = cast("tuple[Workload, ...]", table_of(file.pending, Workload))
    return msgspec.structs.replace(file.rest, fleet=fleet, pending=pending, running=tuple(running))


@contextmanager
def collector_paused() -> Generator[None]:
    """Make many objects without the garbage collector looking at all of them again and again meanwhile."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all: to a temporary neighbour, then rename."""
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=str(path)) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_snapshot(snapshot: Snapshot, path: str | os.PathLike[str]) -> None:
    """Write a snapshot to a file, whole or not at all."""
    write_atomically(path, encode_snapshot(snapshot))


def load_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read a snapshot from a file; raises `InputError` if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", file=str(path)) from None
    return decode_snapshot(data, file=str(path))


class Change(Struct, frozen=True):
    """One difference between two snapshots: a dotted path, the value before and after (None: not there)."""

    path: str
    before: object
    after: object

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.path}: {_short(self.after)}"
        if self.after is None:
            return f"- {self.path}: {_short(self.before)}"
        return f"~ {self.path}: {_short(self.before)} -> {_short(self.after)}"


def diff_snapshots(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """What differs, named by object (``fleet.nodes.gpu01.schedulable``) and not by position, in a stable order."""
    changes: list[Change] = []
    _compare("", _plain(before), _plain(after), changes)
    return tuple(changes)


def _plain(snapshot: Snapshot) -> dict[str, Any]:
    whole = msgspec.structs.replace(snapshot, pending=tuple(snapshot.pending))
    plain = cast("dict[str, Any]", msgspec.to_builtins(whole))
    plain["fleet"]["nodes"] = _by_name(plain["fleet"]["nodes"])
    for node in plain["fleet"]["nodes"].values():
        node["devices"] = {str(device["index"]): device for device in node["devices"]}
        node["labels"] = dict(cast("list[tuple[str, str]]", node["labels"]))
    plain["queues"] = _by_name(plain["queues"])
    plain["pending"] = _by_name(plain["pending"])
    plain["reservations"] = _by_name(plain["reservations"])
    plain["usage"] = {f"{use['queue']}/{use['user']}": use for use in plain["usage"]}
    plain["run_times"] = {_kind_path(past): past["seconds"] for past in plain["run_times"]}
    plain["settings"] = dict(plain["settings"])
    plain["local_queues"] = dict(plain["local_queues"])
    plain["running"] = {run["workload"]["name"]: run for run in plain["running"]}
    return plain


def _kind_path(past: dict[str, Any]) -> str:
    """``job/ann//train/1/8000/3600`` for a kind of work."""
    return "/".join([past["level"], *(f"{part:g}" if isinstance(part, float) else str(part) for part in past["key"])])


def _by_name(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {item["name"]: item for item in items}


def _compare(path: str, before: Any, after: Any, changes: list[Change]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        for key in [*old, *(key for key in new if key not in old)]:
            _compare(f"{path}.{key}" if path else key, old.get(key), new.get(key), changes)
    elif before != after:
        changes.append(Change(path, cast("object", before), cast("object", after)))


def _short(value: object, limit: int = 60) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= limit else text[: limit - 3] + "..."
