"""LoRA adapters on a shared base: memory, packing, slots against the working set, and a charge that sums to the bill.

With a base of W bytes, rank r, a parameters of an adapter per unit of rank (sum of in + out over its linear layers):

    adapter              P = a r parameters; 2 P bytes to serve, 16 P to train (2 weight, 2 gradient, 4 master, 8 Adam)
    on one GPU           n = floor((V - reserve - W) / (16 P + tokens x A)),   A bytes of activations a token
    apart                each tenant its own base:  W + 16 P + tokens x A      (or all parameters: 16 bytes each)
    to resume            14 P bytes: weights, master, Adam

**Slots.** Requests of adapter i come at rate q p_i; a server keeps s adapters, the least lately used goes. The share
of requests that find theirs is, by Che's approximation, sum p_i (1 - e^(-p_i x)), x such that sum (1 - e^(-p_i x)) = s.
Each miss loads for t_load; with q (1 - hits) t_load above the server's loaders it cannot keep up: that is the cliff.

Sources: E. Hu et al., LoRA, 2021; H. Che et al., Hierarchical Web caching systems, IEEE JSAC 2002.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from muster.errors import InputError

TRAIN_BYTES, SERVE_BYTES, RESUME_BYTES = 16.0, 2.0, 14.0
"""Bytes a parameter: to train, to serve, and of a checkpoint to resume from."""


def adapters_on(memory: float, reserve: float, base: float, each: float) -> int:
    """How many adapters fit beside one base; 0 where the base itself does not."""
    room = memory - reserve - base
    return max(0, math.floor(room / each + 1e-9)) if room > 0 and each > 0 else 0


def zipf(count: int, exponent: float) -> list[float]:
    """Popularity of ``count`` adapters by Zipf's law: shares that sum to 1, the largest first."""
    weights = [1 / (at + 1) ** exponent for at in range(count)]
    total = sum(weights)
    return [each / total for each in weights]


def hit_share(popularity: Sequence[float], slots: int) -> float:
    """The share of requests whose adapter is resident, least recently used replaced; Che's approximation."""
    live = [each for each in popularity if each > 0]
    if slots >= len(live):
        return 1.0
    if slots <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while _resident(live, high) < slots:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _resident(live, middle) < slots else (low, middle)
    return sum(each * -math.expm1(-each * high) for each in live)


def _resident(popularity: Sequence[float], age: float) -> float:
    return sum(-math.expm1(-each * age) for each in popularity)


def charges(
    bill: float, tokens: Mapping[str, float], residency: Mapping[str, float], base_share: float, slot_share: float
) -> dict[str, float]:
    """What each tenant pays of a bill, in whole cents that sum to it exactly.

    The base's share is paid alike by all, the slots' by adapter-seconds of residency, the rest by tokens.

    Args:
        bill: the cost of the period.
        tokens: by tenant.
        residency: adapter-seconds by tenant.
        base_share: of the bill, for memory that the base holds.
        slot_share: of the bill, for memory that adapters hold.

    Raises:
        InputError: there are no tenants, or the shares are above 1.
    """
    if not tokens or base_share < 0 or slot_share < 0 or base_share + slot_share > 1:
        raise InputError("the shares of base and slots are above the bill", hint="together 1 at most")
    all_tokens, all_seconds = sum(tokens.values()), sum(residency.values())
    rest = 1 - base_share - slot_share
    exact = {
        name: 100 * bill * (
            base_share / len(tokens)
            + slot_share * (residency.get(name, 0.0) / all_seconds if all_seconds else 1 / len(tokens))
            + rest * (own / all_tokens if all_tokens else 1 / len(tokens))
        )
        for name, own in tokens.items()
    }  # fmt: skip
    cents = {name: math.floor(each) for name, each in exact.items()}
    left = round(100 * bill) - sum(cents.values())
    for name in sorted(exact, key=lambda each: (cents[each] - exact[each], each))[:left]:
        cents[name] += 1
    return {name: each / 100 for name, each in cents.items()}
