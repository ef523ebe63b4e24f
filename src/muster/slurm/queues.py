"""Accounts as a tree of queues, with the GPUs that their associations limit; partitions, where there are no accounts.

A limit of GPUs (``GrpTRES=gres/gpu=64``) is what an account may use of all that there is: nothing is guaranteed to it,
and it borrows that much of the root, which has all GPUs: without limits jobs wait for nodes, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.notes import Notes
from muster.model.queue import ALL_THERE_IS_MILLI, Queue, Quota
from muster.slurm.limits import enforced, uncounted
from muster.slurm.records import SlurmAssoc, tres_of
from muster.slurm.world import SlurmWorld

ROOT = "root"


def queues_of(world: SlurmWorld, capacity_milli: Mapping[str, int], notes: Notes) -> tuple[Queue, ...]:
    """The tree of queues. ``capacity_milli`` is what there is of each GPU model."""
    accounts = {each.account: each for each in world.associations if not each.user}
    used = {job.account for job in world.jobs if job.account}
    everything = tuple(Quota(flavor, ALL_THERE_IS_MILLI) for flavor in capacity_milli)
    if not accounts and not used:
        names = [each.name for each in world.partitions] or sorted({job.partition for job in world.jobs})
        below = [Queue(name, ROOT) for name in names if name and name != ROOT]
        return (Queue(ROOT, quotas=everything), *below) if below else ()
    found = {ROOT: Queue(ROOT, quotas=everything)}
    for name, each in accounts.items():
        _note_limits(each, notes)
        if name != ROOT:
            parent = each.parent if each.parent in accounts else ROOT
            found[name] = Queue(name, parent, max(0.001, each.shares), _limits(each, capacity_milli))
    for name in sorted(used - found.keys()):
        found[name] = Queue(name, ROOT)
    for each in world.associations:
        if each.user:
            _note_limits(each, notes)
    asked = {job.qos for job in world.jobs}
    for each in world.qos:
        if (limits := uncounted(each.limits)) and each.name in asked and enforced(world):
            text = ", ".join(f"{key}={value}" for key, value in limits.items())
            notes.add(
                "QOS", each.name, "limits", f"{text}: told where Slurm says that it holds, not counted beforehand"
            )
    return tuple(found.values())


def queue_of(world: SlurmWorld, account: str, partition: str) -> str:
    """The queue of a job."""
    return account or ("" if any(not each.user for each in world.associations) else partition)


def gpu_limits(limits: Mapping[str, str]) -> dict[str, int]:
    """The GPUs of a ``GrpTRES``, by type; the empty type is all of them together."""
    found: dict[str, int] = {}
    for name, count in tres_of(limits.get("GrpTRES", "")).items():
        if name == "gres/gpu" or name.startswith("gres/gpu:"):
            found[name.removeprefix("gres/gpu").removeprefix(":")] = count
    return found


def _limits(each: SlurmAssoc, capacity_milli: Mapping[str, int]) -> tuple[Quota, ...]:
    limits = gpu_limits(each.limits)
    quotas: list[Quota] = []
    for flavor in capacity_milli if limits else ():
        counts = [count for kind, count in limits.items() if not kind or kind.casefold() == flavor.casefold()]
        if counts:
            quotas.append(Quota(flavor, 0, WHOLE_GPU_MILLI * min(counts)))
    return tuple(quotas)


def _note_limits(each: SlurmAssoc, notes: Notes) -> None:
    if limits := uncounted(each.limits):
        name = f"{each.account}/{each.user}" if each.user else each.account
        text = ", ".join(f"{key}={value}" for key, value in limits.items())
        notes.add("association", name, "limits", f"{text}: told where Slurm says that it holds, not counted beforehand")
