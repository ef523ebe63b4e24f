"""Why the scheduler that a job was read from says that it waits, in plain words, with what is to be done."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.slurm.limits import Limits, Met
from muster.slurm.places import PARTITION
from muster.slurm.reasons import fitted, reason_of


class Said(Struct, frozen=True):
    """A reason of Slurm: its code and what it says, what Slurm adds (such as nodes), what to do, a command."""

    code: str
    text: str
    detail: str
    fix: str
    command: str


def said_of(workload: Workload) -> Said | None:
    """What Slurm says of a job; None where it says nothing, or the job is of something else."""
    if not workload.told:
        return None
    told = reason_of(workload.told)
    keys = [key for pod_set in workload.pod_sets for key, _ in pod_set.shape.node_selector]
    partition = next((key.removeprefix(PARTITION) for key in keys if key.startswith(PARTITION)), "")
    command = fitted(
        told.reason.command, job=workload.name, user=workload.user, account=workload.queue, qos=workload.quality,
        partition=partition,
    )  # fmt: skip
    return Said(told.reason.code, told.reason.text, told.detail, told.reason.fix, command)


def met_by(snapshot: Snapshot, workload: Workload, *, submits: bool = False) -> tuple[Met, ...]:
    """The limits of users, accounts and single jobs that keep work from starting now; ``submits``: it is new."""
    if not snapshot.limits:
        return ()
    models = {node.name: node.flavor for node in snapshot.fleet}
    limits = Limits(snapshot.limits, snapshot.running, snapshot.pending, snapshot.taken_s, models)
    return limits.met(workload, waits=not submits)


def limited(snapshot: Snapshot, workload: Workload, *, submits: bool = False) -> Workload:
    """Work as the scheduler that a snapshot was read from would hold it for a limit; itself where it would not."""
    met = met_by(snapshot, workload, submits=submits)
    if not met:
        return workload
    return replace(workload, told=met[0].told, not_before_s=max(workload.not_before_s, met[0].until_s))


def may_be_released(workload: Workload) -> bool:
    """Whether letting go of a job that is held lets it start; a limit of Slurm stays when it is released."""
    return not workload.told or "release" in reason_of(workload.told).reason.command


def word_of(workload: Workload) -> str:
    """The reason as a table has it: the code alone."""
    return reason_of(workload.told).reason.code if workload.told else ""
