"""What a steering process keeps in a file beside the marks that are in Slurm itself, and the lock of the one process.

The file may be lost: then what can be found by marks is undone all the same. It is written before any write is made,
so that whatever comes between, what was is in it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, field

from muster.errors import InputError
from muster.model.snapshot import write_atomically
from muster.slurm.steering.marks import Mark
from muster.slurm.steering.writes import Write

SCHEMA = "muster.slurm.steering/1"


class Memory(Struct):
    """What is kept.

    Attributes:
        cluster: the name of the Slurm.
        marks: what was written to each job: field to what was and what Muster wrote.
        asked_s: since when each job that is steered should have started.
        given_up: jobs that slurmctld does not start for reasons of its own, and until when they are left to it.
        moved: jobs that were requeued for a move and have not started again.
        cycle_s: when the last cycle was; pid, host: whose.
    """

    schema: str = SCHEMA
    cluster: str = ""
    marks: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict[str, dict[str, tuple[str, str]]])
    asked_s: dict[str, float] = field(default_factory=dict[str, float])
    given_up: dict[str, float] = field(default_factory=dict[str, float])
    moved: list[str] = field(default_factory=list[str])
    cycle_s: float = 0.0
    pid: int = 0
    host: str = ""

    def note(self, writes: Iterable[Write]) -> None:
        """Remember the marks that writes are about to make."""
        for write in writes:
            if write.kind == "steer":
                self.marks[write.target] = dict(write.mark)
            elif write.kind == "move":
                self.moved.append(write.target)

    def forget(self, names: Iterable[str]) -> None:
        """Nothing of Muster is left on these jobs, or they are gone."""
        for name in names:
            self.marks.pop(name, None)
            self.asked_s.pop(name, None)


def state_file(cluster: str, given: str = "") -> Path:
    """Where the memory of a cluster is: as given, else in the user's folder for state."""
    if given:
        return Path(given)
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    safe = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in cluster) or "slurm"
    return Path(folder) / "muster" / f"slurm-{safe}.json"


def recall(path: Path, cluster: str) -> Memory:
    """The memory in a file; an empty one where there is no file. Raises `InputError` where it is another cluster's."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Memory)
    except FileNotFoundError:
        return Memory(cluster=cluster)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "move it away: what is marked in Slurm itself is found without it"
        raise InputError(f"cannot be read ({error})", file=str(path), hint=hint) from None
    if found.cluster and cluster and found.cluster != cluster:
        raise InputError(f"is of the cluster {found.cluster}, not of {cluster}", file=str(path), field="--state")
    return found


def keep(path: Path, memory: Memory) -> None:
    """Write the memory, whole or not at all; raises `InputError` where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(memory))
    except OSError as error:
        hint = "name another place with --state"
        raise InputError(f"cannot be written ({error.strerror})", file=str(path), hint=hint) from None


def marks_in(memory: Memory) -> Mapping[str, Mark]:
    """The remembered marks by job."""
    return memory.marks


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Hold the lock of a memory; raises `InputError` naming the process that has it.

    The lock is the kernel's: it ends with the process, however that ends.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        hint = "name another place with --state"
        raise InputError(f"cannot be opened ({error.strerror})", file=str(lock), hint=hint) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            hint = "end it first, or wait; `muster slurm status` tells what it does"
            raise InputError(f"this Slurm is steered already, by {who}", file=str(lock), hint=hint) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(path: Path) -> str:
    """Who holds the lock of a memory: ``process 123 since ...``; empty: nobody."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
    finally:
        os.close(descriptor)
    return ""
