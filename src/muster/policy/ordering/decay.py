"""Use of the past counts less with time: it halves each half-life (Slurm's PriorityDecayHalfLife)."""

from __future__ import annotations

import math

from muster.errors import InputError

WEEK_S = 7 * 86400.0
"""Slurm's default half-life (slurm.conf, PriorityDecayHalfLife)."""


def checked_half_life(half_life_s: float, field: str = "half_life_s") -> float:
    """Return it if it is above 0 (infinite: nothing is forgotten), else raise `InputError`."""
    if not half_life_s > 0:
        raise InputError(f"is {half_life_s:g}", field=field, hint="seconds, above 0")
    return half_life_s


def decay(usage: float, seconds: float, half_life_s: float) -> float:
    """What ``usage`` counts ``seconds`` (0 or more) later: ``usage * 2^(-seconds / half_life_s)``, in its own unit."""
    return usage * 2.0 ** (-seconds / checked_half_life(half_life_s))


def decayed_use(gpus: float, seconds: float, half_life_s: float) -> float:
    """GPU-seconds that ``gpus``, held for the last ``seconds``, count at the end of them.

    The integral of `decay`: ``gpus * T / ln 2 * (1 - 2^(-seconds / T))``; ``gpus * T / ln 2`` after a long time.
    """
    if math.isinf(checked_half_life(half_life_s)):
        return gpus * seconds
    return gpus * half_life_s / math.log(2) * -math.expm1(-math.log(2) * seconds / half_life_s)
