"""How well jobs used what they asked for: of one job, or of all of a user, an account or a partition; and advice.

Efficiencies as seff has them: CPU time over CPUs x time, the most memory of a step over the memory that was allocated.
GPU utilisation counts only where somebody measured it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from muster.answers.times import span
from muster.answers.words import plural
from muster.slurm.accounting import FAILED, JobUse
from muster.slurm.sbatch_lines import slurm_time

BY: dict[str, Callable[[JobUse], str]] = {
    "job": lambda job: job.id,
    "user": lambda job: job.user,
    "account": lambda job: job.account,
    "partition": lambda job: job.partition,
}
"""By what jobs are brought together."""
LEAST_S = 60.0
"""Of shorter jobs nothing is advised: they tell too little."""
LOW_GPU = 15.0
LOW_MEMORY = 0.25
LONG_LIMIT = 4.0


class Use(Struct, frozen=True):
    """What some jobs asked for and used; None: not told for any of them.

    Attributes:
        name: of the user, account, partition or job.
        jobs: how many; ``started`` of them have run.
        gpu_hours: allocated, in all runs; ``measured_gpu_hours`` of them were measured, ``busy_gpu_hours`` did work.
        lost_gpu_hours: of runs that failed or were requeued; ``held_gpu_hours`` of the time limits nobody used.
        cpu: part of the CPU time that was used; ``memory`` the same of memory, weighed by time.
        wait_s: in the mean; ``longest_s`` at most. Of those that have started.
        limit_used: part of their time limits that jobs that ended well took.
        requeues: in all.
        failed: jobs that ended in a failure.
    """

    name: str
    jobs: int
    started: int
    gpu_hours: float
    measured_gpu_hours: float
    busy_gpu_hours: float
    lost_gpu_hours: float
    held_gpu_hours: float
    cpu: float | None
    memory: float | None
    wait_s: float | None
    longest_s: float | None
    limit_used: float | None
    requeues: int
    failed: int

    @property
    def gpu(self) -> float | None:
        """Utilisation of the GPUs where it was measured, 0 to 1."""
        return self.busy_gpu_hours / self.measured_gpu_hours if self.measured_gpu_hours else None


class Advice(Struct, frozen=True):
    """What a job, or several alike, should ask for: in words with its number, and the GPU-hours at stake."""

    text: str
    gpu_hours: float
    jobs: tuple[str, ...]


def efficiency(jobs: Sequence[JobUse], by: str = "user") -> tuple[Use, ...]:
    """Jobs brought together, those with the most GPU-hours first, then by name."""
    groups: dict[str, list[JobUse]] = {}
    for job in jobs:
        groups.setdefault(BY[by](job) or "(none)", []).append(job)
    found = [use_of(name, mine) for name, mine in groups.items()]
    return tuple(sorted(found, key=lambda use: (-use.gpu_hours, use.name)))


def use_of(name: str, jobs: Sequence[JobUse]) -> Use:
    """What some jobs used, as one."""
    ran = [job for job in jobs if job.runs]
    measured = [job for job in ran if job.gpu_percent is not None and job.gpus]
    waits = [job.wait_s for job in ran if job.wait_s is not None]
    ended = [job for job in ran if job.state == "COMPLETED" and job.limit_s]
    limits = math.fsum(job.limit_s or 0.0 for job in ended)
    return Use(
        name, len(jobs), len(ran), math.fsum(job.gpu_hours for job in ran),
        math.fsum(job.gpu_hours for job in measured),
        math.fsum(job.gpu_hours * (job.gpu_percent or 0.0) / 100 for job in measured),
        math.fsum(job.lost_gpu_hours for job in ran), math.fsum(map(held_gpu_hours, ran)),
        _part([(job.cpu_s, job.cpus * job.elapsed_s) for job in ran]),
        _part([(_memory_s(job), job.memory_bytes * job.elapsed_s) for job in ran]),
        math.fsum(waits) / len(waits) if waits else None, max(waits, default=None),
        math.fsum(job.elapsed_s for job in ended) / limits if limits else None,
        sum(job.requeues for job in ran), sum(job.state in FAILED for job in jobs),
    )  # fmt: skip


def held_gpu_hours(job: JobUse) -> float:
    """GPU-hours of the time limit that a job that ended did not use: backfill could count on its nodes only later."""
    if job.limit_s is None or job.is_running or not job.runs:
        return 0.0
    return job.gpus * max(0.0, job.limit_s - job.elapsed_s) / 3600


def _memory_s(job: JobUse) -> float | None:
    return None if job.used_bytes is None else job.used_bytes * job.elapsed_s


def _part(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(used, had) for used, had in pairs if used is not None and had > 0]
    had = math.fsum(each for _, each in known)
    return math.fsum(used for used, _ in known) / had if had else None


def cores_used(job: JobUse) -> float | None:
    """Cores that were busy in the mean."""
    return None if job.cpu_s is None or not job.elapsed_s else job.cpu_s / job.elapsed_s


# -- advice


def advice(jobs: Sequence[JobUse], most: int = 10) -> tuple[Advice, ...]:
    """What to ask for instead, the most GPU-hours first; jobs of one user and name that get the same words are one."""
    found: dict[tuple[str, str, str], list[tuple[JobUse, str, float]]] = {}
    for job in jobs:
        for kind, text, hours in advice_of(job):
            found.setdefault((kind, job.user, _stem(job)), []).append((job, text, hours))
    told: list[Advice] = []
    for several in found.values():
        job, text, _ = max(several, key=lambda each: each[2])
        more = f" (and {len(several) - 1} more like it)" if len(several) > 1 else ""
        who = f"{job.name or 'job'} {job.id}" + (f" of {job.user}" if job.user else "")
        hours = math.fsum(each[2] for each in several)
        told.append(Advice(f"{who}{more}: {text}", hours, tuple(each[0].id for each in several)))
    return tuple(sorted(told, key=lambda each: -each.gpu_hours)[:most])


def _stem(job: JobUse) -> str:
    return f"{job.name} {job.gpus}" if job.name else job.id.partition("_")[0]


def advice_of(job: JobUse) -> Iterator[tuple[str, str, float]]:
    """What one job should ask for: the kind of advice, its words, and the GPU-hours that it is about."""
    if job.elapsed_s < LEAST_S and job.state not in FAILED:
        return
    yield from _gpus(job)
    if job.state == "TIMEOUT":
        lost = job.runs[-1].gpu_hours if job.runs else 0.0
        yield (
            "timeout",
            f"was stopped at its limit of {span(job.limit_s or job.elapsed_s)} with {lost:,.2g} GPU-hours of work: "
            "save it before (--signal=B:USR1@300), or ask for more time",
            lost,
        )
    if job.state == "OUT_OF_MEMORY":
        lost = job.runs[-1].gpu_hours if job.runs else 0.0
        yield "memory", f"ran out of its {size(job.memory_bytes)} of memory: ask for more (--mem)", lost
    if job.requeues:
        lost = math.fsum(run.gpu_hours for run in job.runs if run.lost and run.state != job.state)
        text = f"was started again {times(job.requeues)}, and {lost:,.2g} GPU-hours ran in vain: save work often"
        yield "requeue", text, lost
    if job.state == "COMPLETED" and job.limit_s and job.limit_s > LONG_LIMIT * job.elapsed_s and job.limit_s > 3600:
        held = held_gpu_hours(job)
        ask = 600 * max(1, math.ceil(1.5 * job.elapsed_s / 600))
        text = (
            f"asks for {span(job.limit_s)} and took {span(job.elapsed_s)}: --time={slurm_time(ask)} would let backfill "
            "start it sooner"
        )
        yield "limit", text, held
    if job.used_bytes is not None and job.memory_bytes > 2**33 and job.used_bytes < LOW_MEMORY * job.memory_bytes:
        ask = max(2**30, 1.3 * job.used_bytes)
        had, used = size(job.memory_bytes), size(job.used_bytes)
        text = f"has {had} of memory and used {used}: --mem={math.ceil(ask / 2**30)}G is enough"
        yield "memory", text, 0.0


def _gpus(job: JobUse) -> Iterator[tuple[str, str, float]]:
    """GPUs without work: measured ones, or those for which there is no process or no CPU time."""
    if not job.gpus:
        return
    hours = job.gpu_hours
    if job.gpu_percents:
        idle = [name for name, value in job.gpu_percents if value < 1]
        if idle:
            shown = ", ".join(idle[:4]) + (" ..." if len(idle) > 4 else "")
            text = f"{len(idle)} of its {job.gpus} GPUs did nothing ({shown})"
            yield "idle", text, hours * len(idle) / job.gpus
            return
    if job.gpu_percent is not None:
        if job.gpu_percent < LOW_GPU:
            text = f"its {job.gpus} GPUs were busy {job.gpu_percent:.0f} % of the time: fewer, or faster input"
            yield "idle", text, hours * (1 - job.gpu_percent / 100)
        return
    cores = cores_used(job)
    if cores is not None and cores < 0.05 and not job.is_running:
        held = f"held {plural(job.gpus, 'GPU')} for {span(job.elapsed_s)}"
        text = f"{held} and used {cores * 100:.1f} % of one core: nothing ran"
        yield "idle", text, hours
    elif job.gpus > 1 and job.tasks == 1 and cores is not None and cores < 1.2:
        text = (
            f"asks {job.gpus} GPUs, used 1 process and {cores:.1f} cores: unless that process drives all of them, ask "
            "for 1 GPU, or start a process a GPU (--ntasks-per-node)"
        )
        yield "process", text, hours * (job.gpus - 1) / job.gpus


# -- words


def times(count: int) -> str:
    """once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def size(count: float) -> str:
    """Memory in words."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"
