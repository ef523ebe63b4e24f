"""What Muster changed of a job, as a mark in its AdminComment, such as ``muster(nice:0>-5000;exc:>gpu[01-08])``.

Each field has what was, a ``>`` and what Muster wrote. Text of others before or after the mark stays. AdminComment is
chosen because only operators may write it; no ``=`` is in a mark, which a reader of ``scontrol -o`` could take for a
field of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from msgspec.structs import replace

from muster.slurm.hostlist import compress, expand
from muster.slurm.records import SlurmJob

FIELDS = {"nice": "Nice", "exc": "ExcNodeList", "resv": "ReservationName"}
"""The fields that Muster writes of a job: as a mark names them, and as scontrol does."""

PREFIX = "muster_"
"""What the names of all reservations of Muster begin with; no job has one of them by its owner's wish."""

Mark = Mapping[str, tuple[str, str]]
"""By field: what was, and what Muster wrote."""

_MARK = re.compile(r"\s*muster\(([^()]*)\)")
_CHANGE = re.compile(r"(nice|exc|resv):([^;>]*)>([^;>]*)")
_SAFE = "[],-_.+:@/"


def mark_of(comment: str) -> Mark:
    """The mark in an AdminComment; empty where there is none, or somebody wrote into it."""
    found = _MARK.search(comment)
    if found is None:
        return {}
    changes = [_CHANGE.fullmatch(part) for part in found[1].split(";")]
    if not all(changes):
        return {}
    return {each[1]: (unquote(each[2]), unquote(each[3])) for each in changes if each is not None}


def marked(comment: str, mark: Mark) -> str:
    """An AdminComment with this mark instead of the one that it has; an empty mark takes it out."""
    plain = _MARK.sub("", comment).strip()
    if not mark:
        return plain
    text = ";".join(f"{name}:{quote(was, _SAFE)}>{quote(now, _SAFE)}" for name, (was, now) in sorted(mark.items()))
    return f"{plain} muster({text})".strip()


def nodes_in(text: str) -> tuple[str, ...]:
    """The names of a hostlist, which may be empty."""
    return expand(text) if text else ()


def hostlist(names: Iterable[str]) -> str:
    """A hostlist of names in their order, the same for the same names however they were given."""
    return compress(sorted(set(names)))


def values(job: SlurmJob) -> dict[str, str]:
    """The fields that Muster may write, as they are now."""
    return {"nice": str(job.nice), "exc": hostlist(nodes_in(job.exc_nodes)), "resv": job.reservation}


def own_values(job: SlurmJob, remembered: Mark | None = None) -> dict[str, str]:
    """The same as they would be without Muster. What somebody changed after Muster had written it is theirs.

    Args:
        job: as it is.
        remembered: a mark from elsewhere, for a job whose own was overwritten.
    """
    now = values(job)
    mark = mark_of(job.admin_comment) or remembered or {}
    own = {name: mark[name][0] if name in mark and mark[name][1] == now[name] else now[name] for name in now}
    if own["resv"].startswith(PREFIX):
        own["resv"] = ""
    return own


def is_steered(job: SlurmJob, remembered: Mark | None = None) -> bool:
    """Whether anything of it is not as it would be without Muster, or a mark is left."""
    return bool(_MARK.search(job.admin_comment)) or own_values(job, remembered) != values(job)


def unsteered(job: SlurmJob, remembered: Mark | None = None) -> SlurmJob:
    """The job as it would be without Muster: what the engine is to see."""
    if not is_steered(job, remembered):
        return job
    own = own_values(job, remembered)
    nice = int(own["nice"])
    priority = max(1, job.priority + job.nice - nice) if job.priority else 0
    return replace(
        job, nice=nice, priority=priority, exc_nodes=own["exc"], reservation=own["resv"],
        admin_comment=marked(job.admin_comment, {}),
    )  # fmt: skip
