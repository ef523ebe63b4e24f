"""How often to save: the interval between checkpoints, and what failures then cost. Closed forms.

With C seconds to save, M the mean time between failures of the job, R to restart, t of work between two saves:

    efficiency         E(t) = t / (M e^(R/M) (e^((t + C)/M) - 1))       failures at a constant rate, also while it saves
    Young              t = sqrt(2 C M)
    Daly               t = sqrt(2 C M) (1 + x/3 + x^2/9) - C,  x = sqrt(C / 2M)          (C < 2 M; else t = M)
    exact              t = M (1 + W(-e^(-C/M - 1)))                     W: the main branch of Lambert's function

The last one is where E is largest; R does not move it. Saving in the background stops the work for s < C only. Then a
failure also loses the C - s in which a save was under way, and a save must end before the next begins, so t >= C - s:

    waste(t) = s / (t + s) + ((t + s)/2 + (C - s) + R) / M              first order; t = max(C - s, sqrt(2 s M) - s)

Sources: J. Young, CACM 17(9), 1974; J. Daly, FGCS 22(3), 2006.
"""

from __future__ import annotations

import math

from muster.errors import InputError


def young_s(save_s: float, mttf_s: float) -> float:
    """Young's interval."""
    return math.sqrt(2 * save_s * mttf_s)


def daly_s(save_s: float, mttf_s: float) -> float:
    """Daly's interval of higher order."""
    if save_s >= 2 * mttf_s:
        return mttf_s
    x = math.sqrt(save_s / (2 * mttf_s))
    return math.sqrt(2 * save_s * mttf_s) * (1 + x / 3 + x * x / 9) - save_s


def best_interval_s(save_s: float, mttf_s: float) -> float:
    """The interval of the largest efficiency; 0 where saving costs nothing."""
    if save_s <= 0:
        return 0.0
    if save_s < 1e-9 * mttf_s:  # there the exact form is a difference of near equals, and Young's is as near
        return young_s(save_s, mttf_s)
    from scipy.special import lambertw  # pyright: ignore[reportUnknownVariableType]

    return mttf_s * (1 + float(lambertw(-math.exp(-save_s / mttf_s - 1)).real))


def efficiency(interval_s: float, save_s: float, mttf_s: float, restart_s: float) -> float:
    """Share of the time that becomes work that lasts; 0 where failures leave nothing.

    Raises:
        InputError: the interval is not above 0.
    """
    if interval_s <= 0:
        raise InputError(f"is {interval_s:g} s", field="interval", hint="above 0, such as 20m")
    exponent = (interval_s + save_s) / mttf_s
    if exponent + restart_s / mttf_s > 700:
        return 0.0
    return interval_s / (mttf_s * math.exp(restart_s / mttf_s) * math.expm1(exponent))


def background_interval_s(stall_s: float, save_s: float, mttf_s: float) -> float:
    """The interval of the least waste when saving runs beside the work."""
    return max(save_s - stall_s, young_s(stall_s, mttf_s) - stall_s)


def background_efficiency(
    interval_s: float, stall_s: float, save_s: float, mttf_s: float, restart_s: float
) -> float:  # fmt: skip
    """Share of the time that becomes work that lasts when saving runs beside the work; first order, 0 at least."""
    lost = (interval_s + stall_s) / 2 + (save_s - stall_s) + restart_s
    return max(0.0, 1 - stall_s / (interval_s + stall_s) - lost / mttf_s)
