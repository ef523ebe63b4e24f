"""A history of snapshots and decisions in one SQLite file, so that "why did it do that at 14:03" has an answer.

A snapshot is cut into chunks by name, so that a change of one node or job changes one chunk; chunks are compressed and
kept once, whichever snapshots hold them. Beside it are the decisions with their numbers, and the events of each job
since the snapshot before: submitted, waits (each time that the reason changes), started, stopped, ended.

Each snapshot is added in one transaction (write-ahead log): several processes may write and read at once, and one that
is killed leaves nothing half done.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from muster.answers.decisions import record_of, text_of
from muster.answers.history_parts import Cutter, Manifest, digest_of, happened, put_together, waits_of
from muster.answers.view import View
from muster.errors import InputError
from muster.model.fleet import Fleet
from muster.model.plan import Plan
from muster.model.reasons import Reason
from muster.model.snapshot import Snapshot

APPLICATION_ID = 0x4D535452
VERSION = 1
LOCKED_AFTER_S = 10.0
_TABLES = """
CREATE TABLE chunk (hash BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE snapshot (
  id INTEGER PRIMARY KEY AUTOINCREMENT, taken_s REAL NOT NULL, source TEXT NOT NULL, digest BLOB NOT NULL UNIQUE,
  manifest BLOB NOT NULL, carried_out INTEGER NOT NULL, nodes INTEGER NOT NULL,
  running INTEGER NOT NULL, pending INTEGER NOT NULL);
CREATE INDEX snapshot_taken ON snapshot (taken_s);
CREATE TABLE decision (
  snapshot INTEGER NOT NULL REFERENCES snapshot ON DELETE CASCADE, number INTEGER NOT NULL, time_s REAL NOT NULL,
  kind TEXT NOT NULL, workload TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (snapshot, number)) WITHOUT ROWID;
CREATE INDEX decision_time ON decision (time_s);
CREATE TABLE event (
  snapshot INTEGER NOT NULL REFERENCES snapshot ON DELETE CASCADE, workload TEXT NOT NULL, time_s REAL NOT NULL,
  number INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX event_workload ON event (workload, time_s, number);
CREATE INDEX event_snapshot ON event (snapshot);
"""


_ORDER = (
    "submitted", "withdrawn", "ended", "stopped", "started", "moved", "resized", "reserved", "proposed", "waits",
)  # fmt: skip
"""Kinds of events, as they follow each other at one instant."""


class Kept(Struct, frozen=True):
    """A snapshot in the history; ``carried_out`` says that its decisions are what was done, else only proposed."""

    id: int
    taken_s: float
    source: str
    nodes: int
    running: int
    pending: int
    decisions: int
    carried_out: bool


class Decided(Struct, frozen=True):
    """A decision in the history, with the snapshot that it belongs to."""

    snapshot: int
    time_s: float
    record: dict[str, Any]
    carried_out: bool


class Event(Struct, frozen=True):
    """Something that happened to a job; ``snapshot`` is the first one that shows it."""

    snapshot: int
    time_s: float
    kind: str
    text: str


class Added(Struct, frozen=True):
    """What was added: the snapshot's number, whether it was new, and the bytes that its chunks took."""

    id: int
    new: bool
    bytes: int


class History:
    """The history in a file; use it as a context manager.

    Args:
        path: the file; it is made where ``write`` and it does not exist.
        write: whether it may be changed.

    Raises:
        InputError: it does not exist, is locked, is none of ours, or of a newer version.
    """

    def __init__(self, path: str, *, write: bool = False) -> None:
        self.path = path
        if not write and not Path(path).is_file():
            raise InputError("there is no such history", file=path, hint="`muster history add` makes one")
        with self._told():
            mode = "rwc" if write else "ro"
            uri = f"{Path(path).absolute().as_uri()}?mode={mode}"
            self._db = sqlite3.connect(uri, uri=True, timeout=LOCKED_AFTER_S, isolation_level=None)
            try:
                self._open(write=write)
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> History:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    @contextmanager
    def _told(self) -> Generator[None]:
        """Tell what SQLite found in one line."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            hint = None
            if "locked" in text or "busy" in text:
                text, hint = "is locked by another process", f"tried for {LOCKED_AFTER_S:g} s; try again"
            elif "not a database" in text:
                text, hint = "is no history", "name a file that `muster history add` made"
            elif "malformed" in text:
                text, hint = "is damaged", "restore it from a copy, or begin a new one"
            elif "unable to open" in text:
                text, hint = "cannot be opened", "does its folder exist, and may you write there?"
            elif "readonly" in text:
                text, hint = "may not be written", "name another file with --store"
            raise InputError(text, file=self.path, hint=hint) from None

    def _open(self, *, write: bool) -> None:
        self._db.execute("BEGIN")  # all of it as of one instant: somebody else may be making the file now
        try:
            ours, version = self._one("PRAGMA application_id"), self._one("PRAGMA user_version")
            tables = self._one("SELECT count(*) FROM sqlite_master")
        finally:
            self._db.execute("ROLLBACK")
        if ours != APPLICATION_ID:
            if tables or not write:
                raise InputError("is a database of another program", file=self.path, hint="name another file")
            self._create()
        elif version > VERSION:
            what = f"is a history of version {version}; this Muster reads up to {VERSION}"
            raise InputError(what, file=self.path, hint="read it with a newer Muster")
        self._db.execute("PRAGMA foreign_keys = ON")
        if write:
            self._db.execute("PRAGMA synchronous = NORMAL")

    def _create(self) -> None:
        self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._db.execute("PRAGMA journal_mode = WAL")
        with self._transaction():
            if self._one("PRAGMA application_id") == APPLICATION_ID:
                return  # somebody else was faster
            for statement in _TABLES.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _one(self, query: str, *values: object) -> Any:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # -- adding -------------------------------------------------------------------------------------------------------

    def add(self, snapshot: Snapshot, done: Sequence[tuple[float, Plan]] | None = None) -> Added:
        """Add a snapshot; what is there already is not added again.

        ``done`` is what was decided since the snapshot before it, with the times; None: what Muster decides at its
        instant is kept beside it, as a proposal. Raises `InputError` for a snapshot that contradicts itself.
        """
        view = View(snapshot)
        waits = [(name, reason.name) for name, reason in view.scheduler.waits(view.now_s)]
        plans = [(snapshot.taken_s, view.plan)] if done is None else list(done)
        cutter = Cutter()
        manifest = cutter.cut(snapshot)
        digest = digest_of(msgspec.msgpack.encode(manifest))
        manifest.waits = cutter.waits(waits)
        with self._told(), self._transaction():
            known = self._one("SELECT id FROM snapshot WHERE digest = ?", digest)
            if known is not None:
                return Added(known, new=False, bytes=0)
            size = 0
            for name, data in cutter.chunks.items():
                if self._one("SELECT 1 FROM chunk WHERE hash = ?", name) is None:
                    small = zlib.compress(data, 6)
                    size += len(small)
                    self._db.execute("INSERT INTO chunk VALUES (?, ?)", (name, small))
            packed = zlib.compress(msgspec.msgpack.encode(manifest))
            row = (
                snapshot.taken_s, snapshot.source, digest, packed, done is not None,
                len(snapshot.fleet), len(snapshot.running), len(snapshot.pending),
            )  # fmt: skip
            number = self._db.execute(
                "INSERT INTO snapshot (taken_s, source, digest, manifest, carried_out, nodes, running, pending) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
            assert number is not None
            self._note_decisions(number, plans)
            self._note_events(number, snapshot)
            after = self._one(
                "SELECT id FROM snapshot WHERE (taken_s, id) > (?, ?) ORDER BY taken_s, id LIMIT 1",
                snapshot.taken_s, number,
            )  # fmt: skip
            if after is not None:
                self._db.execute("DELETE FROM event WHERE snapshot = ?", (after,))
                self._note_events(after, self._read(after))
        return Added(number, new=True, bytes=size)

    def _note_decisions(self, number: int, plans: Iterable[tuple[float, Plan]]) -> None:
        records = ((time_s, record_of(each)) for time_s, plan in plans for each in plan.decisions)
        self._db.executemany(
            "INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?)",
            [
                (number, at, time_s, record["decision"], record["workload"], msgspec.json.encode(record))
                for at, (time_s, record) in enumerate(records)
            ],
        )

    def _note_events(self, number: int, snapshot: Snapshot) -> None:
        """What happened to jobs since the snapshot before."""
        before = self._db.execute(
            "SELECT id FROM snapshot WHERE (taken_s, id) < (?, ?) ORDER BY taken_s DESC, id DESC LIMIT 1",
            (snapshot.taken_s, number),
        ).fetchone()
        old = Snapshot(Fleet()) if before is None else self._read(before[0])
        events = list(self._decided(number))
        told = {(name, kind) for _, name, kind, _ in events}
        waits = waits_of(self._manifest(number), self._chunk)
        waited = {} if before is None else waits_of(self._manifest(before[0]), self._chunk)
        events += happened(old, snapshot, told, first=before is None)
        events += [
            (snapshot.taken_s, name, "waits", Reason[reason].text)
            for name, reason in waits.items()
            if waited.get(name) != reason
        ]
        order = (
            "submitted",
            "withdrawn",
            "ended",
            "stopped",
            "started",
            "moved",
            "resized",
            "reserved",
            "proposed",
            "waits",
        )
        events.sort(key=lambda each: (each[0], order.index(each[2])))
        self._db.executemany(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)",
            [(number, name, time_s, at, kind, text) for at, (time_s, name, kind, text) in enumerate(events)],
        )

    def _decided(self, number: int) -> Iterator[tuple[float, str, str, str]]:
        """Events that a snapshot's decisions tell."""
        done = self._one("SELECT carried_out FROM snapshot WHERE id = ?", number)
        kinds = {"place": "started", "evict": "stopped", "migrate": "moved", "resize": "resized", "reserve": "reserved"}
        rows = self._db.execute(
            "SELECT time_s, kind, workload, record FROM decision WHERE snapshot = ? ORDER BY number", (number,)
        )
        for time_s, kind, name, record in rows:
            if kind not in kinds:
                continue
            text = text_of(msgspec.json.decode(record), time_s)
            if done or kind == "reserve":
                yield time_s, name, kinds[kind], text
            else:
                yield time_s, name, "proposed", f"Muster decides: it {text}"

    # -- reading ------------------------------------------------------------------------------------------------------

    def kept(self) -> list[Kept]:
        """All snapshots in the order of their times."""
        with self._told():
            rows = self._db.execute(
                "SELECT id, taken_s, source, nodes, running, pending, "
                "(SELECT count(*) FROM decision WHERE snapshot = snapshot.id), carried_out "
                "FROM snapshot ORDER BY taken_s, id"
            ).fetchall()
        return [Kept(*row[:-1], carried_out=bool(row[-1])) for row in rows]

    @property
    def bytes(self) -> int:
        """How large the history is, without pages that are free."""
        with self._told():
            pages = self._one("PRAGMA page_count") - self._one("PRAGMA freelist_count")
            return pages * self._one("PRAGMA page_size")

    def newest_s(self) -> float:
        """The time of the newest snapshot; raises `InputError` where there is none."""
        with self._told():
            found = self._one("SELECT max(taken_s) FROM snapshot")
        if found is None:
            raise InputError("holds no snapshot", file=self.path, hint="add one with `muster history add`")
        return found

    def at(self, time_s: float | None = None) -> Kept:
        """The last snapshot that was taken up to a time (None: the newest); raises `InputError` if there is none."""
        kept = self.kept()
        found = [each for each in kept if time_s is None or each.taken_s <= time_s]
        if not found:
            from muster.answers.times import instant

            if not kept:
                self.newest_s()
            what = f"has nothing up to {instant(time_s or 0.0)}"
            raise InputError(what, file=self.path, field="--at", hint=f"it begins at {instant(kept[0].taken_s)}")
        return found[-1]

    def snapshot(self, number: int) -> Snapshot:
        """The snapshot of a number; raises `InputError` where there is none."""
        with self._told():
            return self._read(number)

    def _read(self, number: int) -> Snapshot:
        return put_together(self._manifest(number), self._chunk)

    def _manifest(self, number: int) -> Manifest:
        packed = self._one("SELECT manifest FROM snapshot WHERE id = ?", number)
        if packed is None:
            raise InputError(
                f"has no snapshot {number}", file=self.path, hint="`muster history list` has their numbers"
            )
        return msgspec.msgpack.decode(zlib.decompress(packed), type=Manifest)

    def _chunk(self, name: bytes) -> bytes:
        data = self._one("SELECT data FROM chunk WHERE hash = ?", name)
        if data is None:
            raise InputError("is damaged (a part of a snapshot is gone)", file=self.path)
        return zlib.decompress(data)

    def decisions(self, from_s: float, to_s: float) -> list[Decided]:
        """The decisions between two times, both included."""
        with self._told():
            rows = self._db.execute(
                "SELECT snapshot, time_s, record, carried_out FROM decision JOIN snapshot ON snapshot.id = snapshot "
                "WHERE time_s BETWEEN ? AND ? ORDER BY time_s, snapshot, number",
                (from_s, to_s),
            ).fetchall()
        return [Decided(row[0], row[1], msgspec.json.decode(row[2]), carried_out=bool(row[3])) for row in rows]

    def story(self, job: str) -> list[Event]:
        """What happened to a job, in order; a start is told again only where it is another. Raises `InputError`."""
        with self._told():
            rows = self._db.execute(
                "SELECT event.snapshot, time_s, kind, text FROM event JOIN snapshot ON snapshot.id = event.snapshot "
                "WHERE workload = ? ORDER BY time_s, taken_s, event.snapshot, number",
                (job,),
            ).fetchall()
            if not rows:
                names = [row[0] for row in self._db.execute("SELECT DISTINCT workload FROM event")]
        if not rows:
            from muster.errors import near

            hint = near(job, names) or "`muster history show --at TIME` tells what was decided"  # pyright: ignore[reportPossiblyUnboundVariable]
            raise InputError(f"knows no job {job[:80]!r}", file=self.path, hint=hint)
        told: dict[str, str] = {}
        found: list[Event] = []
        for row in rows:
            event = Event(*row)
            if event.kind in ("reserved", "proposed", "waits") and told.get(event.kind) == event.text:
                continue
            if event.kind in ("started", "stopped"):
                told.clear()
            told[event.kind] = event.text
            found.append(event)
        return found

    # -- retention ----------------------------------------------------------------------------------------------------

    def prune(self, *, keep_s: float | None = None, most_bytes: int | None = None) -> list[int]:
        """Remove snapshots taken more than ``keep_s`` before the newest, and the oldest beyond ``most_bytes``.

        The newest stays. The numbers of those that were removed.
        """
        gone: list[int] = []
        with self._told():
            gone += self._remove(keep_s, most_bytes)
            aim = most_bytes
            while most_bytes is not None and aim is not None and self.bytes > most_bytes:
                # what rows and indexes take beside their contents is only known afterwards
                aim = min(aim - 1, aim * most_bytes // self.bytes)
                more = self._remove(None, aim)
                if not more and self._one("SELECT count(*) FROM snapshot") <= 1:
                    break
                gone += more
        return gone

    def _remove(self, keep_s: float | None, most_bytes: int | None) -> list[int]:
        with self._transaction():
            gone = self._too_old(keep_s, most_bytes)
            self._db.executemany("DELETE FROM snapshot WHERE id = ?", [(number,) for number in gone])
            used = {name for manifest in self._manifests().values() for name in manifest.hashes()}
            dead = [row for row in self._db.execute("SELECT hash FROM chunk") if row[0] not in used]
            self._db.executemany("DELETE FROM chunk WHERE hash = ?", dead)
        self._db.executescript("PRAGMA incremental_vacuum")  # a single execute would free one page
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone

    def _manifests(self) -> dict[int, Manifest]:
        rows = self._db.execute("SELECT id, manifest FROM snapshot ORDER BY taken_s, id")
        return {number: msgspec.msgpack.decode(zlib.decompress(packed), type=Manifest) for number, packed in rows}

    def _too_old(self, keep_s: float | None, most_bytes: int | None) -> list[int]:
        rows = self._db.execute("SELECT id, taken_s FROM snapshot ORDER BY taken_s, id").fetchall()
        if not rows:
            return []
        newest_s = rows[-1][1]
        gone = [number for number, taken_s in rows[:-1] if keep_s is not None and taken_s < newest_s - keep_s]
        if most_bytes is None:
            return gone
        sizes = dict(self._db.execute("SELECT hash, length(data) + 32 FROM chunk"))
        manifests = self._manifests()
        count: dict[bytes, int] = {}
        for manifest in manifests.values():
            for name in manifest.hashes():
                count[name] = count.get(name, 0) + 1
        own = dict(self._db.execute(
            "SELECT id, length(manifest) + 200"
            " + (SELECT coalesce(sum(length(record) + 80), 0) FROM decision WHERE snapshot = snapshot.id)"
            " + (SELECT coalesce(sum(length(text) + 2 * length(workload) + 60), 0)"
            " FROM event WHERE snapshot = snapshot.id)"
            " FROM snapshot"
        ))  # fmt: skip
        total = sum(sizes.values()) + sum(own.values())
        for number, _ in rows[:-1]:
            if number not in gone and total <= most_bytes:
                break
            total -= own[number]
            for name in manifests[number].hashes():
                count[name] -= 1
                total -= 0 if count[name] else sizes[name]
            if number not in gone:
                gone.append(number)
        return gone
