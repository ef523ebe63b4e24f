"""Limits that a cluster's own scheduler puts on users, accounts and single jobs, beside quotas of queues."""

from __future__ import annotations

from msgspec import Struct

GPUS, CPUS, JOBS, SUBMITTED, GPU_MINUTES, SECONDS = "gpus", "cpus", "jobs", "submitted", "gpu-minutes", "seconds"
JOB, USER, ACCOUNT, GROUP = "job", "user", "account", "group"


class Limit(Struct, frozen=True):
    """So much at most, of one thing, for each of some owner.

    Attributes:
        code: the reason by which the cluster's scheduler tells that it holds, such as ``QOSMaxGRESPerUser``.
        owner: whose it is, in words, such as ``QOS small``.
        of: what is counted: GPUs, CPUs, jobs that run (``JOBS``), jobs that wait or run (``SUBMITTED``), GPUs times the
            minutes that running jobs may still run, or the seconds of a time limit.
        per: for whom it is counted: each job, each user, each account, or all of the owner together.
        most: how much there may be.
        quality: it holds for jobs of this quality (a QOS); empty: of any.
        queues: it holds for jobs in these queues (accounts); empty: in any.
        user: it holds for jobs of this user; empty: of any.
        flavor: only GPUs of this model count; empty: all.
    """

    code: str
    owner: str
    of: str
    per: str
    most: int
    quality: str = ""
    queues: tuple[str, ...] = ()
    user: str = ""
    flavor: str = ""
