"""Quantities as people write them: `80GB` is not `80GiB`, `400Gb/s` is `50GB/s`, `30m` is `1800s`.

A kind reads a text into its base unit and writes a value back; what could be meant in two ways (`80G`, `400G/s`) is
refused with both readings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct

from muster.errors import InputError

_NUMBER = re.compile(r"[+-]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_LEAST = 1e-12
"""What is nearer 0 than that and not 0 is a slip; its square or cube would vanish."""
_TIMES = {
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 7 * 86400.0,
    "y": 365.25 * 86400,
}
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_BYTES = {f"{prefix}B": factor for prefix, factor in {**_DECIMAL, **_BINARY}.items()}
_BITS = {
    f"{prefix}{bit}": factor / 8 for prefix, factor in {**_DECIMAL, **_BINARY}.items() for bit in ("b", "bit", "bits")
}
_RATES = {f"{name}{per}": factor for name, factor in {**_BYTES, **_BITS}.items() for per in ("/s", "ps")}


class Kind(Struct, frozen=True):
    """A kind of quantity.

    Attributes:
        name: what one is, with its article, such as ``a time``.
        base: the unit of values, as documents name it.
        units: what may follow a number, and how much of the base it is; of none, only the number may stand.
        bare: what a number without a unit counts in; None: it is refused.
        whole: only whole numbers.
        most: beyond it nothing is meant, and sums of squares and exponentials are not what they should be.
        example: how one is written.
        shown: units for people, largest first; a value is shown in the first that it reaches.
    """

    name: str
    base: str
    units: Mapping[str, float]
    bare: float | None
    example: str
    shown: tuple[str, ...] = ()
    whole: bool = False
    most: float = 1e21

    def read(self, text: str | float, field: str = "") -> float:
        """The value in the base unit.

        Args:
            text: what was given; numbers are taken to be in the base unit.
            field: the option or field that is named in the error.

        Raises:
            InputError: it is no quantity of this kind.
        """
        value = float(text) if isinstance(text, (int, float)) else self.of_text(text.strip(), field)
        if not math.isfinite(value) or abs(value) > self.most:
            bound = "" if self.most >= 1e21 else f"at most {self.show(self.most)}, "
            raise InputError(f"{str(text)[:40]!r} is beyond all bounds", field=field or None, hint=bound + self.hint)
        if 0 < abs(value) < _LEAST:
            raise InputError(f"{str(text)[:40]!r} is too near 0 to calculate with", field=field or None, hint=self.hint)
        if self.whole and value != int(value):
            raise InputError(f"{str(text)[:40]!r} is no whole number", field=field or None, hint=self.hint)
        return value

    def of_text(self, text: str, field: str) -> float:
        """The value of a text in the base unit, whatever its size; raises `InputError`."""
        if self is TIME and len(parts := re.findall(r"[\d.]+(?:e\d+)?[a-z]+", text)) > 1 and "".join(parts) == text:
            return sum(self.of_text(part, field) for part in parts)
        match = _NUMBER.match(text)
        if match is None:
            raise InputError(f"{text[:40]!r} is not {self.name}", field=field or None, hint=self.hint)
        number, unit = float(match[0].replace(",", "").replace("_", "")), text[match.end() :].strip()
        factor = self.bare if not unit else self.units.get(unit)
        if factor is None:
            raise InputError(self._unknown(text, unit), field=field or None, hint=self._meant(match[0], unit))
        return number * factor

    def _unknown(self, text: str, unit: str) -> str:
        if not unit:
            return f"{text[:40]!r} has no unit"
        return f"{text[:40]!r} is not {self.name}"

    def _meant(self, number: str, unit: str) -> str:
        """What to write instead: both readings where there are two."""
        stem = unit.removesuffix("/s").removesuffix("ps")
        if self is BYTES and stem[:1] in "KMGTPkmgtp" and stem:
            big = stem[0].upper()
            return f"{number}{big}B (powers of ten) or {number}{big}iB (powers of two)"
        if self is RATE and stem[:1] in "KMGTPkmgtp" and stem:
            big = stem[0].upper()
            return f"{number}{big}b/s (bits) or {number}{big}B/s (bytes)"
        return self.hint

    @property
    def hint(self) -> str:
        """How one is written."""
        return f"such as {self.example}"

    def show(self, value: float) -> str:
        """A value for people, in the unit that suits it; a dash where there is none."""
        if math.isnan(value):
            return "-"
        for unit in self.shown:
            size = self.units[unit]
            if abs(value) >= size * 0.9995:
                return f"{figure(value / size)} {unit}"
        if self.shown and not value:
            return f"0 {self.base}"
        if self.shown:
            return f"{figure(value / self.units[self.shown[-1]])} {self.shown[-1]}"
        if self is SHARE:
            return _percent(100 * value)
        return f"{figure(value)} {self.base}".strip()


def _percent(value: float) -> str:
    """Near 100 as many decimals as tell what is missing."""
    if 90 <= value < 100 - 1e-7:
        return f"{value:.{min(6, max(1, 1 - math.floor(math.log10(100 - value))))}f} %"
    return f"{figure(value)} %"


def figure(value: float) -> str:
    """A number as people read it: three figures, thousands apart; a dash where there is none."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "no limit" if value > 0 else "-no limit"
    if abs(value) >= 1e15:
        return f"{value:.2e}".replace("e+", "e")
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    if 0 < abs(value) < 1e-4:
        return f"{value:.1e}"
    return f"{value:.3g}"


def numbers(base: str, example: str, name: str = "a number") -> Kind:
    """Plain numbers of a unit that people do not convert, such as failures of each 1,000 nodes in a day."""
    return Kind(name, base, {}, 1.0, example)


def counts(base: str, example: str) -> Kind:
    """Whole numbers of something."""
    return Kind("a whole number", base, {"k": 1e3, "M": 1e6}, 1.0, example, whole=True)


TIME = Kind("a time", "s", _TIMES, 1.0, "45s, 30m, 2.5h, 1h30m or 3d", ("d", "h", "min", "s", "ms"), most=1e12)
BYTES = Kind("an amount of bytes", "B", _BYTES, None, "80GB or 80GiB", ("TB", "GB", "MB", "kB", "B"))
RATE = Kind("a rate of bytes", "B/s", _RATES, None, "400Gb/s or 50GB/s", ("GB/s", "MB/s", "kB/s", "B/s"))
SHARE = Kind("a share", "", {"%": 0.01}, 1.0, "0.3 or 30%")
FLOPS = Kind(
    "a rate of operations", "FLOP/s", {f"{p}{u}": f for p, f in _DECIMAL.items() if p for u in ("FLOPS", "FLOP/s")},
    None, "400TFLOPS", ("PFLOPS", "TFLOPS", "GFLOPS"),
)  # fmt: skip
PER_HOUR = Kind("a rate of events", "/h", {"/s": 3600.0, "/min": 60.0, "/h": 1.0, "/d": 1 / 24}, 1.0, "0.5/h or 12/d")
MONEY = numbers("", "2.95", "an amount of money")
NUMBER = numbers("", "1.5")
COUNT = counts("", "64")


def seconds(text: str, field: str | None = None) -> float:
    """A span such as ``90m``, ``2.5h``, ``1h30m``, ``1d``, ``45s`` or plain seconds; raises `InputError`."""
    try:
        value = TIME.of_text(text.strip(), "")  # an instant may be as near 0 as it likes
    except InputError:
        value = -1.0
    if not 0 <= value <= 1e12:
        raise InputError(f"{text[:40]!r} is no time", field=field, hint="such as 45s, 90m, 2.5h, 1d or 5400")
    return value
