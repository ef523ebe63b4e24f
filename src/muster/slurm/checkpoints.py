"""When a job saves its work, as its Comment says: ``checkpoint:30m restart:2m checkpointed:2026-11-30T21:00:00``.

``checkpoint`` is the interval, ``restart`` how long it takes to go on from one, ``checkpointed`` when the last was
written (in UTC, or as seconds since 1970). The words may stand anywhere in the Comment, which a job may write of
itself: ``scontrol update JobId=$SLURM_JOB_ID Comment="checkpoint:30m checkpointed:$(date +%s)"``.
"""

from __future__ import annotations

import re

from muster.model.workload import Checkpointing
from muster.slurm.records import moment_s

_UNITS_S = {"": 60.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_INTERVAL = re.compile(r"(?:^|[\s,;])(checkpoint|restart):(\d{1,9}(?:\.\d+)?)(s|m|min|h|d|)(?=$|[\s,;])")
_LAST = re.compile(r"(?:^|[\s,;])checkpointed:([0-9T:.+Z-]+)(?=$|[\s,;])")


def checkpointing_of(comment: str) -> Checkpointing | None:
    """How often it saves its work; None: it does not say. A number without a unit is minutes, as Slurm's limits are."""
    found = {name: float(amount) * _UNITS_S[unit] for name, amount, unit in _INTERVAL.findall(comment)}
    if not found.get("checkpoint"):
        return None
    return Checkpointing(found["checkpoint"], found.get("restart", 0.0))


def checkpointed_s(comment: str) -> float | None:
    """When it saved its work last, in seconds since 1970; None: it does not say."""
    found = _LAST.search(comment)
    return moment_s(found[1]) if found else None


def last_checkpoint_s(comment: str, started_s: float, now_s: float) -> float | None:
    """When a running job saved its work last: as it says, else as its interval has it since its start."""
    told = checkpointed_s(comment)
    saving = checkpointing_of(comment)
    if told is not None and started_s <= told <= now_s:
        return told
    if saving is None or now_s < started_s + saving.interval_s:
        return None
    return started_s + (now_s - started_s) // saving.interval_s * saving.interval_s
