"""How often a gang on spot breaks, when instances are not lost alone: shared shocks.

Shocks come at a rate m; a shock takes each instance with a chance q of its own, q ~ Beta(a, b). Then

    losses of one instance      l = m E[q]
    both of two are lost        m E[q^2] = l r,  r = (a + 1) / (a + b + 1): the part of one's losses that another shares
    a gang of n breaks          B(n) = m (1 - E[(1 - q)^n]),   E[(1 - q)^n] = prod over i < n of (b + i) / (a + b + i)

r = 0 is independence, B(n) = n l (the rate of 1 - (1 - p)^n); r = 1 is one fate for all, B(n) = l. Fitted from a trace
by l, r and the breaks that were seen at one size. Source: the beta-binomial (Skellam 1948) as a Marshall-Olkin process.
"""

from __future__ import annotations

import math

from msgspec import Struct

from muster.errors import InputError


class Shocks(Struct, frozen=True):
    """``rate`` of shocks an hour, q's ``mean``, and ``spread``, the sum of Beta's parameters; inf: q is its mean."""

    rate: float
    mean: float
    spread: float

    def breaks(self, nodes: int) -> float:
        """Breaks an hour of a gang of so many."""
        if self.rate <= 0:
            return 0.0
        if math.isinf(self.spread):
            return self.rate * -math.expm1(nodes * math.log1p(-self.mean)) if self.mean < 1 else self.rate
        b = (1 - self.mean) * self.spread
        kept = 1.0
        for each in range(nodes):
            kept *= (b + each) / (self.spread + each)
        return self.rate * (1 - kept)


def fitted(losses: float, together: float, seen: float, nodes: int) -> Shocks:
    """The process with these losses of one instance an hour, this r, and these breaks of a gang of ``nodes``.

    What was seen of the whole gang goes before r, which counts losses of parts of it, too: where even shocks that all
    have the same q break it more often than was seen, r is raised until they do not. Breaks beyond independence (n l)
    or below one fate (l) are taken as those.

    Raises:
        InputError: a number is out of its range.
    """
    if losses <= 0 or nodes < 1:
        raise InputError(f"is {losses:g}", field="--losses", hint="above 0")
    if not 0 <= together <= 1:
        raise InputError(f"is {together:g}", field="--together", hint="0 to 1")
    if nodes == 1 or together >= 1 - 1e-9:
        return Shocks(losses, 1.0, math.inf)
    if together <= 2e-7:  # the search below needs room between its least mean of q and r
        return Shocks(losses * 1e6, 1e-6, math.inf)
    if _all_alike(losses, together).breaks(nodes) > seen:
        low, high = together, 1.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if _all_alike(losses, middle).breaks(nodes) > seen else (low, middle)
        return _all_alike(losses, high)
    low, high = 1e-7, together - 1e-9  # the mean of q: the rarer shocks are, the fewer breaks
    for _ in range(80):
        middle = math.sqrt(low * high)
        more = _with_mean(losses, together, middle).breaks(nodes) > seen
        low, high = (middle, high) if more else (low, middle)
    return _with_mean(losses, together, low)


def _all_alike(losses: float, chance: float) -> Shocks:
    """Each shock takes each instance with the same chance, which is then r."""
    return Shocks(losses / chance, chance, math.inf)


def _with_mean(losses: float, together: float, mean: float) -> Shocks:
    """r fixes the spread: (mean s + 1) / (s + 1) = r; where r is the mean, q does not vary."""
    if together - mean <= 1e-12:
        return _all_alike(losses, mean)
    return Shocks(losses / mean, mean, (1 - together) / (together - mean))
