"""Associations and QOS as Slurm tells them in JSON, with their limits called as ``sacctmgr`` calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec import Struct, convert, field

from muster.slurm.records import SlurmAssoc, SlurmQos, told
from muster.slurm.restful_values import Num, Text, amount, whole
from muster.slurm.sbatch_lines import slurm_time

_ASSOC_LIMITS = {
    "GrpJobs": "jobs.per.count",
    "GrpTRES": "tres.total",
    "GrpSubmit": "jobs.per.submitted",
    "GrpWall": "per.account.wall_clock",
    "GrpTRESMins": "tres.group.minutes",
    "MaxJobs": "jobs.active",
    "MaxTRES": "tres.per.job",
    "MaxTRESPerNode": "tres.per.node",
    "MaxSubmit": "jobs.total",
    "MaxWall": "jobs.per.wall_clock",
    "MaxTRESMins": "tres.minutes.per.job",
    "GrpTRESRunMins": "tres.group.active",
}
_QOS_LIMITS = {
    "GrpTRES": "max.tres.total",
    "GrpTRESMins": "max.tres.minutes.total",
    "GrpTRESRunMins": "max.tres.minutes.per.qos",
    "GrpJobs": "max.active_jobs.count",
    "GrpWall": "max.wall_clock.per.qos",
    "MaxTRES": "max.tres.per.job",
    "MaxTRESPerNode": "max.tres.per.node",
    "MaxTRESMins": "max.tres.minutes.per.job",
    "MaxWall": "max.wall_clock.per.job",
    "MaxTRESPU": "max.tres.per.user",
    "MaxJobsPU": "max.jobs.active_jobs.per.user",
    "MaxSubmitPU": "max.jobs.per.user",
    "MaxTRESPA": "max.tres.per.account",
    "MaxJobsPA": "max.jobs.active_jobs.per.account",
    "MaxSubmitPA": "max.jobs.per.account",
    "MinTRES": "min.tres.per.job",
}


class Association(Struct, frozen=True):
    """As slurmdbd tells it."""

    account: str
    user: Text = ""
    cluster: Text = ""
    partition: Text = ""
    parent_account: Text = ""
    shares_raw: Num = 1
    max: Mapping[str, Any] = {}


class _Preempt(Struct, frozen=True):
    names: list[str] | None = field(default=None, name="list")


class Qos(Struct, frozen=True):
    """As slurmdbd tells it."""

    name: str
    priority: Num = 0
    preempt: _Preempt = _Preempt()
    limits: Mapping[str, Any] = {}


def assocs_of(told_of: Iterable[Association]) -> list[SlurmAssoc]:
    """Associations in the order of ``sacctmgr show assoc tree``."""
    below: dict[str, list[Association]] = {}
    accounts: list[Association] = []
    for each in told_of:
        if each.user:
            below.setdefault(each.account, []).append(each)
        else:
            accounts.append(each)
    children: dict[str, list[Association]] = {}
    for each in sorted(accounts, key=lambda account: account.account, reverse=True):
        children.setdefault(told(each.parent_account), []).append(each)
    named = {each.account for each in accounts}
    stack = [each for parent, some in children.items() if parent not in named for each in some]
    found: list[SlurmAssoc] = []
    while stack:
        account = stack.pop()
        users = sorted(below.pop(account.account, ()), key=lambda each: (each.user or "", each.partition or ""))
        found += [_assoc(each) for each in (account, *users)]
        stack += children.get(account.account, ())
    return found + [_assoc(each) for some in below.values() for each in some]


def _assoc(each: Association) -> SlurmAssoc:
    user = told(each.user)
    shares = amount(each.shares_raw)
    return SlurmAssoc(
        each.account,
        user,
        "" if user else told(each.parent_account),
        told(each.partition),
        shares if shares is not None and 0 <= shares < 2**31 - 1 else 1.0,
        _limits(each.max, _ASSOC_LIMITS),
    )


def qos_of(told_of: Iterable[Qos]) -> list[SlurmQos]:
    """QOS, with their limits."""
    return [
        SlurmQos(each.name, whole(each.priority), tuple(each.preempt.names or ()), _limits(each.limits, _QOS_LIMITS))
        for each in told_of
    ]


def _limits(tree: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    found = {name: _limit(name, tree, path) for name, path in names.items()}
    return {name: text for name, text in found.items() if text}


def _limit(name: str, tree: Mapping[str, Any], path: str) -> str:
    value: object = tree
    for part in path.split("."):
        value = cast("Mapping[str, object]", value).get(part) if isinstance(value, Mapping) else None
    if isinstance(value, list):
        return ",".join(_tres(cast("Mapping[str, object]", each)) for each in cast("list[object]", value))
    limit = amount(convert(value, Num))
    if limit is None or limit == float("inf"):
        return ""
    return slurm_time(60 * int(limit)) if name.endswith("Wall") else str(int(limit))


def _tres(each: Mapping[str, object]) -> str:
    kind, name, count = each.get("type", ""), each.get("name") or "", each.get("count", 0)
    if kind == "mem" and isinstance(count, int):
        return f"mem={count // 1024}G" if count % 1024 == 0 else f"mem={count}M"
    return f"{kind}/{name}={count}" if name else f"{kind}={count}"
