"""Carries out writes with scontrol, one after the other; one that is refused stops no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from muster.backends.slurm.commands import Answer
from muster.errors import ClusterError
from muster.slurm.steering.writes import Write

Run = Callable[[Sequence[str]], Answer]
"""Runs ``scontrol`` with these arguments; raises `ClusterError` where it cannot be run or does not end in time."""

RIGHTS = "needs the rights of an Operator: sacctmgr modify user where name={user} set AdminLevel=Operator"

_NO_RIGHTS = ("access/permission denied", "permission denied", "access denied")
_NO_CONTROLLER = (
    "unable to contact slurm controller", "connection refused", "socket timed out", "timed out on send/recv",
    "zero bytes were transmitted", "protocol authentication error", "could not establish a configuration source",
    "failed to initialize", "connect failure", "unexpected message received",
)  # fmt: skip
_GONE = (
    "invalid job id specified",
    "job has finished",
    "job has already finished",
    "job/step already completing or completed",
)
_STARTED = ("job is no longer pending execution",)


class Outcome(Struct, frozen=True):
    """What came of a write: ``done``, ``passed`` (the job is gone or has started: nothing is to be done), ``refused``
    with slurmctld's words, or ``skipped``: the reservation that it needs was not made."""

    write: Write
    result: str
    words: str = ""


def carry_out(writes: Sequence[Write], run: Run) -> Iterator[Outcome]:
    """Make the writes in order, and tell of each what came of it.

    Raises:
        ClusterError: slurmctld does not answer, or this user may not do it; the writes before are done.
    """
    missing: set[str] = set()
    for write in writes:
        if write.needs in missing:
            yield Outcome(write, "skipped", f"{write.needs} was not made")
            continue
        answer = run(write.arguments)
        outcome = _outcome(write, answer)
        if outcome.result != "done" and write.kind == "create":
            missing.add(write.target)
        yield outcome


def _outcome(write: Write, answer: Answer) -> Outcome:
    if not answer.code:
        return Outcome(write, "done")
    words = " ".join((answer.complaint or f"exit code {answer.code}").split())
    said = words.casefold()
    if any(text in said for text in _NO_CONTROLLER):
        raise ClusterError(f"slurmctld does not answer: {words[:200]}", hint="scontrol ping tells whether it is up")
    reservation = write.kind in ("create", "update", "delete")
    if any(text in said for text in _NO_RIGHTS) or (reservation and "invalid user id" in said and not _is_root()):
        user = _user()
        raise ClusterError(f"user {user} may not do this: {words[:200]}", hint=f"it {RIGHTS.format(user=user)}")
    if any(text in said for text in (*_GONE, *_STARTED)) or (write.kind == "delete" and "is invalid" in said):
        return Outcome(write, "passed", words)
    return Outcome(write, "refused", words)


def _is_root() -> bool:
    return os.geteuid() == 0


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
