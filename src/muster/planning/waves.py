"""Rolling something out over nodes in waves: canaries, waves, draining gangs, what is at stake when it goes wrong.

    canaries      n = ln(1 - c) / ln(1 - f)           so many nodes show a fault of a share f with confidence c
    drain         the nodes of a wave hold m gangs that end by themselves, each in a time of mean T: the last one ends
                  after T (1 + 1/2 + ... + 1/m) in the mean, if their times are exponential; a node idles for that
                  less its own T
    a wave        drain + change + validation + soak
    all           canaries first, then ceil((N - n) / w) waves of w nodes

Stopping gangs at a checkpoint instead costs each half its interval and a restart, and no wait. Source: order statistics
of the exponential distribution; the rule of three (Hanley and Lippman-Hand, JAMA 1983) is canaries with c = 0.95.
"""

from __future__ import annotations

import math

from muster.errors import InputError


def canaries(fault_share: float, confidence: float) -> int:
    """The least number of nodes of which one shows a fault of a share, with a confidence.

    Raises:
        InputError: a share is not between 0 and 1.
    """
    for field, value in (("--fault", fault_share), ("--confidence", confidence)):
        if not 0 < value < 1:
            raise InputError(f"is {value:g}", field=field, hint="above 0 and below 1")
    return math.ceil(math.log(1 - confidence) / math.log(1 - fault_share))


def seen_by_then(fault_share: float, nodes: int) -> float:
    """The chance that at least one of so many nodes has shown a fault of a share."""
    return 1 - (1 - fault_share) ** nodes


def last_end_s(gangs: float, mean_s: float) -> float:
    """When the last of some gangs ends, in the mean; ``gangs`` may be a fraction (harmonic number of it)."""
    return mean_s * harmonic(gangs)


def harmonic(count: float) -> float:
    """1 + 1/2 + ... + 1/n; between whole numbers in proportion."""
    if count <= 0:
        return 0.0
    low = math.floor(count)
    if low > 10_000:
        return math.log(count) + 0.5772156649015329 + 1 / (2 * count)
    total = sum(1 / each for each in range(1, low + 1))
    return total + (count - low) / (low + 1)
