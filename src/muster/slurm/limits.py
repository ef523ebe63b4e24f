"""Limits of QOS and of associations: what they are of, and whether a job would meet one, with the code of Slurm for it.

They count where AccountingStorageEnforce has ``limits`` or ``safe``, or where the configuration is not known. A limit
of the job's QOS takes the place of the association's of the same kind. Source: https://slurm.schedmd.com/resource_limits.html
(the hierarchy), sacctmgr(1); the codes are those of `muster.slurm.reasons`.

Counted: GPUs (``gres/gpu``, by type too), CPUs, jobs, submitted jobs, GPU-minutes that running jobs may still run,
and time limits. Not counted: memory, nodes, licences, limits per node, minutes of past use, the QOS of a partition;
GPUs of an account as a whole are its queue's quota.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from muster.model.limit import ACCOUNT, CPUS, GPU_MINUTES, GPUS, GROUP, JOB, JOBS, SECONDS, SUBMITTED, USER, Limit
from muster.model.snapshot import Running
from muster.model.workload import Workload
from muster.slurm.records import SlurmAssoc, number, span_s, told, tres_of
from muster.slurm.world import SlurmWorld

DEFAULT_QOS = "normal"
"""The QOS of a job that names none, where nothing else is told; slurmdbd makes it."""

_JOBS: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "QOS": {
        "GrpJobs": ("QOSGrpJobsLimit", JOBS, GROUP), "GrpSubmit": ("QOSGrpSubmitJobsLimit", SUBMITTED, GROUP),
        "MaxJobsPU": ("QOSMaxJobsPerUserLimit", JOBS, USER), "MaxJobsPA": ("MaxJobsPerAccount", JOBS, ACCOUNT),
        "MaxSubmitPU": ("QOSMaxSubmitJobPerUserLimit", SUBMITTED, USER),
        "MaxSubmitPA": ("MaxSubmitJobsPerAccount", SUBMITTED, ACCOUNT),
        "MaxWall": ("QOSMaxWallDurationPerJobLimit", SECONDS, JOB),
    },
    "Assoc": {
        "GrpJobs": ("AssocGrpJobsLimit", JOBS, GROUP), "GrpSubmit": ("AssocGrpSubmitJobsLimit", SUBMITTED, GROUP),
        "MaxJobs": ("AssocMaxJobsLimit", JOBS, USER), "MaxSubmit": ("AssocMaxSubmitJobLimit", SUBMITTED, USER),
        "MaxWall": ("AssocMaxWallDurationPerJobLimit", SECONDS, JOB),
    },
}  # fmt: skip
_TRES: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "QOS": {
        "GrpTRES": ("QOSGrpGRES", "QOSGrpCpuLimit", GROUP),
        "MaxTRES": ("QOSMaxGRESPerJob", "QOSMaxCpuPerJobLimit", JOB),
        "MaxTRESPU": ("QOSMaxGRESPerUser", "QOSMaxCpuPerUserLimit", USER),
        "MaxTRESPA": ("MaxGRESPerAccount", "MaxCpuPerAccount", ACCOUNT),
    },
    "Assoc": {
        "GrpTRES": ("AssocGrpGRES", "AssocGrpCpuLimit", GROUP),
        "MaxTRES": ("AssocMaxGRESPerJob", "AssocMaxCpuPerJobLimit", JOB),
    },
}  # fmt: skip
_COUNTED = frozenset(key for table in (*_JOBS.values(), *_TRES.values()) for key in table) | {"GrpTRESRunMins"}


_WORDS = {
    GPUS: "GPUs", CPUS: "CPUs", JOBS: "running jobs", SUBMITTED: "jobs that wait or run",
    GPU_MINUTES: "GPU-minutes still to run",
}  # fmt: skip


class Met(Struct, frozen=True):
    """A limit that a job would meet: how much there is of it, how much the job adds, until when at the latest."""

    limit: Limit
    has: float
    asks: float
    until_s: float

    @property
    def told(self) -> str:
        """Slurm's code, and the numbers."""
        return f"{self.limit.code}, {self.words}"

    @property
    def words(self) -> str:
        """Whose limit it is, and the numbers."""
        limit = self.limit
        whose = {JOB: "a job", USER: "its user", ACCOUNT: "its account", GROUP: "all together"}[limit.per]
        if limit.of == SECONDS:
            return f"{limit.owner}: {whose} may run {limit.most / 3600:,.4g} h, this asks for {_hours(self.asks)}"
        kind = f" ({limit.flavor})" if limit.flavor else ""
        has = "" if limit.per == JOB else f"has {self.has:,.0f}, "
        asks = "no end" if math.isinf(self.asks) else f"{self.asks:,.0f}"
        most = f"{limit.most:,} {_WORDS[limit.of]}{kind}"
        return f"{limit.owner}: {whose} may have {most}, {has}and this asks for {asks}"


def _hours(seconds: float) -> str:
    return "no limit" if math.isinf(seconds) else f"{seconds / 3600:,.4g} h"


# -- reading ----------------------------------------------------------------------------------------------------------


def enforced(world: SlurmWorld) -> bool:
    """Whether limits hold at all, as far as the configuration tells."""
    asked = world.config.get("AccountingStorageEnforce")
    words = {part.strip().casefold() for part in (asked or "").split(",")}
    return asked is None or bool(words & {"limits", "safe", "all", "1"})


def limits_of(world: SlurmWorld) -> tuple[Limit, ...]:
    """All limits of QOS and associations that are counted."""
    if not enforced(world):
        return ()
    found: list[Limit] = []
    for each in world.qos:
        found += _read("QOS", f"QOS {each.name}", each.limits, quality=each.name)
    below = _below(world.associations)
    for each in world.associations:
        if each.user:
            owner = f"association {each.account}/{each.user}"
            found += _read("Assoc", owner, each.limits, queues=(each.account,), user=each.user)
        else:
            # Max... of an account is what its users' associations inherit, and slurmdbd tells it of them
            limits = {key: value for key, value in each.limits.items() if key.startswith("Grp")}
            mine = _read("Assoc", f"account {each.account}", limits, queues=below.get(each.account, (each.account,)))
            found += [limit for limit in mine if limit.of != GPUS]
    return tuple(found)


def uncounted(limits: Mapping[str, str]) -> dict[str, str]:
    """Those limits of an association or QOS that are not counted, by their names."""
    left: dict[str, str] = {}
    for key, text in limits.items():
        if key not in _COUNTED:
            left[key] = text
        elif "TRES" in key:
            counts = ("gres/gpu",) if key == "GrpTRESRunMins" else ("gres/gpu", "cpu")
            others = [part for part in text.split(",") if part and not part.startswith(counts)]
            if others:
                left[key] = ",".join(others)
    return left


def _below(associations: Sequence[SlurmAssoc]) -> dict[str, tuple[str, ...]]:
    """Of each account itself and all accounts below it."""
    parents = {each.account: each.parent for each in associations if not each.user}
    found: dict[str, list[str]] = {}
    for account in parents:
        at, seen = account, set[str]()
        while at and at not in seen:
            seen.add(at)
            found.setdefault(at, []).append(account)
            at = parents.get(at, "")
    return {account: tuple(names) for account, names in found.items()}


def _read(
    whose: str, owner: str, limits: Mapping[str, str], quality: str = "", queues: tuple[str, ...] = (), user: str = ""
) -> Iterator[Limit]:
    for key, (code, of, per) in _JOBS[whose].items():
        text = told(limits.get(key))
        most = span_s(text) if of == SECONDS else float(text) if text.isdecimal() else None
        if most is not None:
            yield Limit(code, owner, of, per, int(most), quality, queues, user)
    for key, (gpu_code, cpu_code, per) in _TRES[whose].items():
        for name, most in tres_of(limits.get(key)).items():
            if name == "cpu":
                yield Limit(cpu_code, owner, CPUS, per, most, quality, queues, user)
            elif name.startswith("gres/gpu"):
                kind = name.removeprefix("gres/gpu").removeprefix(":")
                yield Limit(gpu_code, owner, GPUS, per, most, quality, queues, user, kind)
    minutes = tres_of(limits.get("GrpTRESRunMins")).get("gres/gpu")
    if minutes is not None:
        yield Limit(f"{whose}GrpGRESRunMinutes", owner, GPU_MINUTES, GROUP, number(str(minutes)), quality, queues, user)


# -- asking -----------------------------------------------------------------------------------------------------------


class Limits:
    """Asks limits for jobs, among what runs and waits.

    Args:
        models: the GPU model of each node, for limits of a type.
        pending: of what waits only limits of submitted jobs know.
    """

    def __init__(
        self, limits: Iterable[Limit], running: Sequence[Running], pending: Sequence[Workload], now_s: float,
        models: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._limits = tuple(limits)
        self._running, self._now_s, self._models = running, now_s, models
        self._pending = pending if any(each.of == SUBMITTED for each in self._limits) else ()

    def __bool__(self) -> bool:
        return bool(self._limits)

    def met(self, work: Workload, *, waits: bool = False) -> tuple[Met, ...]:
        """The limits that a job would meet if it were to start now, that which holds longest first.

        ``waits``: it is submitted already, so that limits of submission are behind it.
        """
        mine = [each for each in self._limits if _holds(each, work)]
        of_qos = {(each.of, each.per) for each in mine if each.quality}
        found: list[Met] = []
        for limit in mine:
            overruled = not limit.quality and (limit.of, limit.per) in of_qos
            if overruled or (waits and limit.of == SUBMITTED):
                continue
            if (met := self._met(limit, work)) is not None:
                found.append(met)
        return tuple(sorted(found, key=lambda each: (-each.until_s, each.limit.code)))

    def _met(self, limit: Limit, work: Workload) -> Met | None:
        asks = self._asks(limit, work)
        if limit.per == JOB or asks > limit.most:
            return Met(limit, 0, asks, math.inf) if asks > limit.most else None
        same = [run for run in self._running if _holds(limit, run.workload) and _alike(limit, run.workload, work)]
        has = sum(self._has(limit, run) for run in same)
        if limit.of == SUBMITTED:
            has += sum(_holds(limit, each) and _alike(limit, each, work) for each in self._pending)
        if has + asks <= limit.most:
            return None
        left = has
        for run in sorted(same, key=self._ends_s):
            left -= self._has(limit, run)
            if left + asks <= limit.most:
                return Met(limit, has, asks, self._ends_s(run))
        return Met(limit, has, asks, math.inf)

    def _ends_s(self, run: Running) -> float:
        limit_s = run.workload.time_limit_s
        end = math.inf if limit_s is None else max(self._now_s, run.started_s + limit_s)
        return min(end, run.leaving_s if run.leaving_s is not None else math.inf)

    def _has(self, limit: Limit, run: Running) -> float:
        if limit.of == GPUS and limit.flavor:
            return sum(len(p.devices) for p in run.pods if _is(self._models.get(p.node, ""), limit.flavor))
        if limit.of == GPU_MINUTES:
            left_s = self._ends_s(run) - self._now_s
            return _whole(run.workload.gpu_milli) * left_s / 60 if run.workload.gpu_milli else 0.0
        return self._asks(limit, run.workload)

    def _asks(self, limit: Limit, work: Workload) -> float:
        if limit.of == GPUS and limit.flavor:
            everywhere = bool(self._models) and all(_is(each, limit.flavor) for each in self._models.values() if each)
            sets = (each for each in work.pod_sets if everywhere or _names(each.shape.gpu_models, limit.flavor))
            return _whole(sum(each.count * each.shape.gpu_milli_total for each in sets))
        if limit.of == GPU_MINUTES:
            limit_s = math.inf if work.time_limit_s is None else work.time_limit_s
            return _whole(work.gpu_milli) * limit_s / 60 if work.gpu_milli else 0.0
        if limit.of == SECONDS:
            return math.inf if work.time_limit_s is None else work.time_limit_s
        return {GPUS: _whole(work.gpu_milli), CPUS: math.ceil(work.cpu_milli / 1000)}.get(limit.of, 1)


def _whole(milli: int) -> int:
    return math.ceil(milli / 1000)


def _is(model: str, flavor: str) -> bool:
    return model.casefold() == flavor.casefold()


def _names(models: Sequence[str], flavor: str) -> bool:
    return bool(models) and all(_is(each, flavor) for each in models)


def _holds(limit: Limit, work: Workload) -> bool:
    return (
        (not limit.quality or limit.quality == (work.quality or DEFAULT_QOS))
        and (not limit.queues or work.queue in limit.queues)
        and (not limit.user or limit.user == work.user)
    )


def _alike(limit: Limit, run: Workload, work: Workload) -> bool:
    """Whether a job counts for the same owner as another."""
    return {USER: run.user == work.user, ACCOUNT: run.queue == work.queue}.get(limit.per, True)
