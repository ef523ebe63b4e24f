"""Usage by account and user, and signs of gaming, from what sacct printed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.answers.words import plural
from muster.errors import InputError
from muster.planning.question import FromData
from muster.planning.shares import decayed
from muster.slurm.accounting import JobUse, read_sacct
from muster.traces.files import read_text

LEAST_GPU_HOURS = 1.0
MANY, TOGETHER_S = 10, 600.0
"""So many jobs alike, submitted within so many seconds, are a split."""


def read_fairshare(path: str, given: Mapping[str, Any]) -> FromData:
    """The tree of accounts and users with their usage, and who shows which pattern; raises `InputError`."""
    jobs = [job for job in read_sacct(read_text(path), path) if job.gpus or job.gpu_hours]
    if not jobs:
        raise InputError(
            "has no jobs with GPUs", file=path, hint="sacct --parsable2 with AllocTRES, User, Account, End"
        )
    half_life = given.get("half_life_s")
    from muster.planning.quantities import TIME

    half_life_s = TIME.read(half_life, "--half-life") if half_life is not None else 7 * 86400.0
    newest = max((job.ended_s or job.started_s or 0.0 for job in jobs), default=0.0)
    usage: dict[tuple[str, str], float] = defaultdict(float)
    for job in jobs:
        age = max(0.0, newest - job.ended_s) if job.ended_s else 0.0
        usage[job.account or "none", job.user or "unknown"] += decayed(job.gpu_hours, age, half_life_s)
    source = f"{path}: {plural(len(jobs), 'job')} with GPUs, usage faded to the newest"
    values = {"queue": tuple(_tree(usage)), "sign": tuple(signs(jobs))}
    return FromData(values, {"queue": source, "sign": source})


def _tree(usage: Mapping[tuple[str, str], float]) -> Iterator[str]:
    for account in sorted({account for account, _ in usage}):
        yield f"{_name(account)}:shares=1"
    for (account, user), hours in sorted(usage.items()):
        yield f"{_name(user)}@{_name(account)}:parent={_name(account)},usage={hours:.4g}"


def _name(text: str) -> str:
    return text.replace(":", "_").replace(",", "_").replace("=", "_").replace("|", "_")


def signs(jobs: Sequence[JobUse]) -> list[str]:
    """``PATTERN|WHO|EVIDENCE`` of each user that shows a pattern, those with the most GPU-hours first."""
    by_user: dict[str, list[JobUse]] = defaultdict(list)
    for job in jobs:
        by_user[job.user or "unknown"].append(job)
    order = sorted(by_user.items(), key=lambda each: (-sum(job.gpu_hours for job in each[1]), each[0]))
    return [f"{pattern}|{_name(user)}|{seen}" for user, own in order for pattern, seen in _of_user(own)]


def _of_user(jobs: Sequence[JobUse]) -> Iterator[tuple[str, str]]:
    measured = [job for job in jobs if job.gpu_percent is not None and job.gpu_hours > 0]
    hours = sum(job.gpu_hours for job in measured)
    idle = [job for job in measured if (job.gpu_percent or 0.0) < 1.0]
    idle_hours = sum(job.gpu_hours for job in idle)
    if hours >= LEAST_GPU_HOURS:
        used = sum(job.gpu_hours * (job.gpu_percent or 0.0) for job in measured) / hours
        unused = [job for job in measured if job.gpu_percents and min(each for _, each in job.gpu_percents) < 1.0]
        if used < 30 and idle_hours < hours / 2:
            yield "asks for more than it uses", f"{hours:,.0f} GPU-hours at {used:.0f} %"
        elif unused and idle_hours < hours / 2:
            left = sum(sum(each < 1.0 for _, each in job.gpu_percents) for job in unused)
            yield "asks for more than it uses", f"{plural(len(unused), 'job')} with {plural(left, 'GPU')} at 0 %"
    if idle_hours >= LEAST_GPU_HOURS:
        yield "holds GPUs that do nothing", f"{idle_hours:,.0f} GPU-hours in {plural(len(idle), 'job')} at 0 %"
    if burst := _split(jobs):
        gpus = sum(job.gpus for job in burst)
        yield "splits jobs", f"{len(burst)} alike within 10 min: {gpus} GPUs"
    gone = [job for job in jobs if not job.runs or (job.state.startswith("CANCELLED") and not job.elapsed_s)]
    old = [job for job in gone if job.state.startswith("CANCELLED") and job.submitted_s is not None]
    if len(old) >= MANY and len(old) > len(jobs) / 2:
        yield "placeholders", f"{len(old)} of {len(jobs)} jobs cancelled before they started"


def _split(jobs: Sequence[JobUse]) -> list[JobUse]:
    """The largest group of jobs of the same shape that was submitted together and overlapped in running."""
    groups: dict[tuple[int, int, float | None], list[JobUse]] = defaultdict(list)
    for job in jobs:
        if job.submitted_s is not None and job.started_s is not None and "_" not in job.id:
            groups[job.gpus, job.nodes, job.limit_s].append(job)
    best: list[JobUse] = []
    for some in groups.values():
        some.sort(key=lambda job: job.submitted_s or 0.0)
        start = 0
        for at, job in enumerate(some):
            while (job.submitted_s or 0.0) - (some[start].submitted_s or 0.0) > TOGETHER_S:
                start += 1
            if at - start + 1 >= MANY and at - start + 1 > len(best):
                best = some[start : at + 1]
    return best
