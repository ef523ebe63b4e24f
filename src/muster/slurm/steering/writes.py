"""The least writes from what is to what should be, and back: each with what it changes, in words and for scontrol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from muster.slurm.hostlist import compress
from muster.slurm.records import SlurmJob, SlurmReservation
from muster.slurm.steering.marks import (
    FIELDS,
    PREFIX,
    Mark,
    is_steered,
    mark_of,
    marked,
    nodes_in,
    own_values,
    values,
)
from muster.slurm.steering.scene import Scene
from muster.slurm.steering.target import Kept, Requeue, Target

Stamp = Callable[[float], str]
"""Writes a time, in seconds since 1970, as scontrol takes it where it runs."""

FLAGS = "FLEX,IGNORE_JOBS,NO_HOLD_JOBS_AFTER_END"
"""FLEX: its job may begin before it, on nodes that are free already, and end after it. IGNORE_JOBS: what runs on its
nodes now does not keep it from being made; slurmctld starts nothing there that would not end in time.
NO_HOLD_JOBS_AFTER_END: who still waits for it when it ends goes on to wait like all others, instead of being held."""


class Write(Struct, frozen=True):
    """One request to slurmctld.

    Attributes:
        kind: what it does; jobs are updated (``steer``, ``free``) or requeued (``requeue``; ``move``
            where they are to start again elsewhere).
        target: the job by its workload's name, or the reservation.
        arguments: of scontrol.
        changes: of each field what it is and what it will be.
        why: in words.
        mark: for jobs, the mark that is left on it.
        needs: the reservation that must be there first.
    """

    kind: Literal["free", "delete", "create", "update", "steer", "requeue", "move"]
    target: str
    arguments: tuple[str, ...]
    changes: tuple[tuple[str, str, str], ...]
    why: str = ""
    mark: Mark = {}
    needs: str = ""


def writes_for(wanted: Target, scene: Scene, stamp: Stamp) -> list[Write]:
    """The writes that bring about a target, in the order in which they are to be made.

    First what is steered no more and reservations that go, so that nothing is in the way of the new ones; then
    reservations, the jobs that are pointed at them, and at last jobs are stopped: those that they stop for are ahead.
    """
    free = list(_frees(wanted, scene))
    kept = {each.name: each for each in wanted.reservations}
    gone = [each for each in scene.reservations if each.name.startswith(PREFIX) and each.name not in kept]
    stops = [_requeue(each) for each in wanted.requeues]
    known = {each.name: each for each in scene.reservations}
    made = [write for each in wanted.reservations if (write := _kept(each, known.get(each.name), stamp)) is not None]
    steers = [
        write for name, (change, why) in wanted.jobs.items()
        if (write := _steer(scene, name, change, why)) is not None
    ]  # fmt: skip
    # a reservation that gives nodes away goes before one that takes them
    made.sort(key=lambda write: write.kind == "create" or _grows(kept[write.target], known[write.target]))
    return [*free, *(_delete(each) for each in gone), *made, *steers, *stops]


def _grows(wanted: Kept, known: SlurmReservation) -> bool:
    return not set(wanted.nodes) <= set(known.nodes)


def releases(scene: Scene) -> list[Write]:
    """The writes that put everything back: what jobs were, and no reservation of Muster."""
    return writes_for(Target({}), scene, str)


def left_on_running(scene: Scene) -> list[str]:
    """The running jobs that keep a node list of Muster until they end: slurmctld changes it only of what waits."""
    found: list[str] = []
    for name, job in scene.jobs.items():
        if job.state != "PENDING" and own_values(job, scene.remembered.get(name))["exc"] != values(job)["exc"]:
            found.append(name)
    return found


def _frees(wanted: Target, scene: Scene) -> Iterator[Write]:
    """Jobs that are steered no more, and those that have started: they keep no reservation."""
    for name, job in scene.jobs.items():
        if name in wanted.jobs or not is_steered(job, scene.remembered.get(name)):
            continue
        if job.state == "PENDING":
            write = _steer(scene, name, {}, "is steered no more")
        elif job.state == "RUNNING":
            write = _started(scene, name)
        else:
            continue
        if write is not None:
            yield write


def _steer(scene: Scene, name: str, change: Mapping[str, str], why: str) -> Write | None:
    """Give a job that waits its own values with these changes.

    ExcNodeList is in every request, changed or not: then slurmctld refuses all of it where the job has started.
    """
    job, own = scene.jobs[name], scene.own(name)
    now, then = values(job), own | dict(change)
    mark = {field: (own[field], then[field]) for field in own if own[field] != then[field]}
    changes = tuple((FIELDS[field], now[field], then[field]) for field in FIELDS if now[field] != then[field])
    comment = marked(job.admin_comment, mark)
    if not changes and comment == job.admin_comment:
        return None
    fields = [f"{FIELDS[field]}={then[field]}" for field in FIELDS if field == "exc" or now[field] != then[field]]
    if comment != job.admin_comment:
        fields.append(f"AdminComment={comment}")
    if change and job.reason == "BeginTime":
        fields.append("StartTime=now")  # only what Muster moved is planned although a requeue put it off
    needs = then["resv"] if then["resv"].startswith(PREFIX) and then["resv"] != now["resv"] else ""
    kind = "steer" if change else "free"
    return Write(kind, name, ("update", f"JobId={name}", *fields), changes, why, mark, needs)


def _started(scene: Scene, name: str) -> Write | None:
    """A job that runs gives back its reservation and its place in the queue; its node list stays while it runs."""
    job, own = scene.jobs[name], scene.own(name)
    now = values(job)
    then = own | {"exc": now["exc"]}
    mark = {"exc": (own["exc"], now["exc"])} if own["exc"] != now["exc"] else {}
    changes = tuple((FIELDS[field], now[field], then[field]) for field in FIELDS if now[field] != then[field])
    comment = marked(job.admin_comment, mark)
    if not changes and comment == job.admin_comment:
        return None
    fields = [f"{FIELDS[field]}={then[field]}" for field in FIELDS if now[field] != then[field]]
    arguments = ("update", f"JobId={name}", *fields, f"AdminComment={comment}")
    return Write("free", name, arguments, changes, "has started", mark)


def _requeue(each: Requeue) -> Write:
    kind = "move" if each.moves else "requeue"
    return Write(kind, each.name, ("requeue", each.job.id), (("JobState", "RUNNING", "PENDING"),), each.why)


def _delete(each: SlurmReservation) -> Write:
    return Write(
        "delete", each.name, ("delete", f"ReservationName={each.name}"), (("Nodes", compress(each.nodes), ""),)
    )


def _kept(wanted: Kept, known: SlurmReservation | None, stamp: Stamp) -> Write | None:
    nodes, users = compress(wanted.nodes), ",".join(wanted.users)
    if known is None:
        start, minutes = stamp(wanted.start_s), _minutes(wanted.end_s - wanted.start_s)
        fields = [f"StartTime={start}", f"Duration={minutes}", f"Nodes={nodes}", f"Users={users}", f"Flags={FLAGS}"]
        changes = (("Nodes", "", nodes), ("StartTime", "", start), ("Users", "", users))
        arguments = ("create", "reservation", f"ReservationName={wanted.name}", *fields)
        return Write("create", wanted.name, arguments, changes, wanted.why)
    fields, changes = list[str](), list[tuple[str, str, str]]()
    if set(known.nodes) != set(wanted.nodes):
        fields.append(f"Nodes={nodes}")
        changes.append(("Nodes", compress(known.nodes), nodes))
    if not set(wanted.users) <= set(known.users):
        fields.append(f"Users={users}")
        changes.append(("Users", ",".join(known.users), users))
    if abs(known.start_s - wanted.start_s) > 1.0:
        fields.append(f"StartTime={stamp(wanted.start_s)}")
        changes.append(("StartTime", stamp(known.start_s), stamp(wanted.start_s)))
    if abs(known.end_s - wanted.end_s) > 60.0:
        fields.append(f"Duration={_minutes(wanted.end_s - wanted.start_s)}")
        changes.append(("EndTime", stamp(known.end_s), stamp(wanted.end_s)))
    if not fields:
        return None
    arguments = ("update", f"ReservationName={wanted.name}", *fields)
    return Write("update", wanted.name, arguments, tuple(changes), wanted.why)


def _minutes(span_s: float) -> int:
    return max(1, -int(-span_s // 60))


def marks_of(jobs: Mapping[str, SlurmJob]) -> dict[str, Mark]:
    """The marks of all jobs that have one, by workload."""
    return {name: mark for name, job in jobs.items() if (mark := mark_of(job.admin_comment))}


def faults(jobs: Mapping[str, SlurmJob], scene: Scene, reservations: Sequence[SlurmReservation]) -> list[str]:
    """What must never be, in a sentence each: a job with too few nodes left, reservations of ours that cross."""
    found: list[str] = []
    for name, job in jobs.items():
        if job.state != "PENDING" or not mark_of(job.admin_comment).get("exc"):
            continue
        left = set(scene.nodes_of(job)) - set(nodes_in(job.exc_nodes))
        if len(left) < job.nodes[0]:
            found.append(f"job {name} asks for {job.nodes[0]} nodes and may use {len(left)}")
    ours = [each for each in reservations if each.name.startswith(PREFIX)]
    for at, one in enumerate(ours):
        for other in ours[at + 1 :]:
            if one.start_s < other.end_s and other.start_s < one.end_s and set(one.nodes) & set(other.nodes):
                found.append(f"{one.name} and {other.name} share nodes at one time")
    return found
