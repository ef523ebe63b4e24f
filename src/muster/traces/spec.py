"""Where work and fleets come from: ``KIND:PATH``, ``KIND:key=value,...`` or ``KIND:PATH,key=value``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.errors import InputError, near
from muster.traces.files import is_there
from muster.traces.tables import parse_integer, parse_number

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_OPTION = re.compile(r"\s*([A-Za-z][A-Za-z0-9_-]*)=(.*)", re.DOTALL)


class Spec(Struct, frozen=True):
    """A parsed spec; ``kind`` is empty for a plain path."""

    text: str
    kind: str
    path: str
    options: tuple[tuple[str, str], ...]

    def checked(self, known: Sequence[str], *, path: bool) -> Options:
        """The options, of which only ``known`` names are allowed; ``path`` tells whether the kind reads a file."""
        if path and not self.path:
            raise InputError(f"'{self.text}' names no file", hint=f"write {self.kind}:PATH")
        if not path and self.path:
            hint = f"options are {', '.join(known)}, written {self.kind}:key=value,key=value" if known else None
            raise InputError(f"'{self.path}' in '{self.text}' is not understood", field=self.kind, hint=hint)
        given: dict[str, str] = {}
        for key, value in self.options:
            if key not in known:
                hint = near(key, known) or (f"known: {', '.join(known)}" if known else "it has no options")
                raise InputError(f"'{self.text}': unknown option", field=key, hint=hint)
            if key in given:
                raise InputError(f"'{self.text}': option is given twice", field=key)
            given[key] = value
        return Options(self.text, given)


class Options:
    """Options of a spec with checked values."""

    def __init__(self, text: str, given: Mapping[str, str]) -> None:
        self._text = text
        self._given = given

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def text(self, key: str, default: str, choices: Sequence[str] = ()) -> str:
        """A word; one of ``choices`` where there are any."""
        value = self._given.get(key, default).strip()
        if not value:
            raise self._error(key, "is empty")
        if choices and value not in choices:
            raise self._error(key, f"{value!r} is unknown", near(value, choices) or f"known: {', '.join(choices)}")
        return value

    def integer(self, key: str, default: int | None, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``; without a default it must be given."""
        if key not in self._given:
            if default is None:
                raise self._error(key, "is missing", f"add {key}=NUMBER")
            return default
        try:
            value = parse_integer(self._given[key].strip())
        except (ValueError, OverflowError):
            raise self._error(key, f"{self._given[key]!r} is not a whole number") from None
        if not low <= value <= high:
            raise self._error(key, f"is {self._given[key]}", f"from {low:,} to {high:,}")
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number from ``low`` to ``high``."""
        try:
            value = parse_number(self._given.get(key, str(default)).strip())
        except (ValueError, OverflowError):
            value = math.nan
        if not low <= value <= high:
            raise self._error(key, f"{self._given[key]!r} is not a number from {low:g} to {high:g}")
        return value

    def _error(self, key: str, what: str, hint: str | None = None) -> InputError:
        return InputError(f"'{self._text}': {what}", field=key, hint=hint)


def parse_spec(text: str) -> Spec:
    """Split a spec into kind, path and options. A path that exists as it stands is never split at its commas."""
    kind, colon, rest = text.partition(":")
    if not colon:
        bare, options = _split_options(text)
        return Spec(text, "", bare, options)
    if not _KIND.fullmatch(kind) or is_there(text):
        return Spec(text, "", text, ())
    path, options = _split_options(rest)
    return Spec(text, kind, path, options)


def _split_options(rest: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The longest beginning that is a path, or all up to the trailing ``key=value`` parts; and these parts."""
    parts = rest.split(",")
    options: list[tuple[str, str]] = []
    while parts and not is_there(",".join(parts)) and (match := _OPTION.fullmatch(parts[-1])):
        options.insert(0, (match[1], match[2]))
        parts.pop()
    return ",".join(parts), tuple(options)
