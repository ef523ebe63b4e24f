"""Values in Slurm's JSON, whose form changed with its versions: numbers, and lists of words."""

from __future__ import annotations

import math

from msgspec import Struct

from muster.slurm.hostlist import expand
from muster.slurm.records import told, words


class Number(Struct, frozen=True):
    """A number as v0.0.39 and later have it."""

    set: bool = False
    infinite: bool = False
    number: int | float = 0


Num = int | float | str | Number | None
"""A number: plain (to v0.0.38, and without ``+complex``), null, a word for infinite, or with its marks."""
Text = str | None
Many = str | list[str] | None
"""Words: a list, or with commas between them."""

_NOT_SET = (0xFFFF_FFFE, 0xFFFF_FFFD, 2**64 - 2)
_INFINITE = (0xFFFF_FFFF, 2**64 - 1)
"""NO_VAL and INFINITE of slurm.h, where a version forgets to say so."""


def amount(value: Num) -> float | None:
    """A number; infinite where there is no limit; None: it is not set."""
    if isinstance(value, Number):
        if value.infinite:
            return math.inf
        value = value.number if value.set else None
    if value is None or value in _NOT_SET:
        return None
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return math.inf if value.casefold() in ("unlimited", "infinite") else None
    return math.inf if value in _INFINITE else float(value)


def whole(value: Num, default: int = 0) -> int:
    """A whole number; the default where it is not set or infinite."""
    found = amount(value)
    return int(found) if found is not None and math.isfinite(found) else default


def many(value: Many) -> tuple[str, ...]:
    """Words, from either form."""
    return words(value) if value is None or isinstance(value, str) else tuple(each for each in value if each)


def moment(value: Num) -> float | None:
    """Seconds since 1970; None: not told, or never."""
    found = amount(value)
    return found if found and 0 < found < math.inf else None


def minutes(value: Num) -> float | None:
    """Minutes in seconds; None: not told, or there is no limit."""
    found = amount(value)
    return 60.0 * found if found is not None and 0 < found < math.inf else None


def hosts(text: str | None) -> tuple[str, ...]:
    """The names in a hostlist; none where it is not told."""
    return expand(told(text)) if told(text) else ()
