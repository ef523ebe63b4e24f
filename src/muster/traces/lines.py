"""The frame of Muster's own files: JSON Lines, first a header with a schema, then sections as long as it promises."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from muster.errors import InputError
from muster.model.snapshot import write_atomically
from muster.traces.files import check_target, decode_text, pack, read_bytes

_Row = TypeVar("_Row")


class _Schema(Struct):
    """The only field of a header that every version will have."""

    schema: str


class Lines:
    """Reads a file line by line as JSON of a known type; counts lines and ignores blank ones."""

    def __init__(self, path: str) -> None:
        self.path = path
        data = read_bytes(path)
        decode_text(data, path)
        self._lines = iter(enumerate(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")), start=1))
        self.number = 0

    def header(self, schema: str, version: int, type_: type[_Row]) -> _Row:
        """The first line, if its schema is ``schema/vN`` with N up to ``version``."""
        line = self._next()
        if line is None:
            raise InputError("is empty", file=self.path)
        try:
            found = msgspec.json.decode(line, type=_Schema).schema
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            hint = f'the first line must be {{"schema":"{schema}/v{version}", ...}}'
            raise InputError("is not one of Muster's own files", file=self.path, line=self.number, hint=hint) from None
        match = re.fullmatch(rf"{re.escape(schema)}/v([0-9]{{1,9}})", found)
        if not match:
            what = f"is {found[:60]!r}, not '{schema}/v{version}'"
            raise InputError(what, file=self.path, line=self.number, field="schema", hint=_other_kind(found))
        if int(match[1]) > version:
            what = f"is {found}; this Muster reads up to v{version}"
            raise InputError(what, file=self.path, line=self.number, field="schema", hint="read it with a newer Muster")
        return self._decode(line, msgspec.json.Decoder(type_))

    def section(self, count: int, type_: type[_Row], what: str) -> Iterator[_Row]:
        """The next ``count`` lines."""
        if count < 0:
            raise InputError(f"is {short(count)}", file=self.path, line=1, field=what)
        decoder = msgspec.json.Decoder(type_)
        for done in range(count):
            line = self._next()
            if line is None:
                message = f"ends after {done:,} of {short(count)} {what.replace('_', ' ')}"
                raise InputError(message, file=self.path, line=self.number, field=what, hint="copy it again")
            yield self._decode(line, decoder)

    def end(self) -> None:
        """Nothing may follow."""
        if self._next() is not None:
            what = "is more than the header promises"
            raise InputError(what, file=self.path, line=self.number, hint="the counts in the first line must fit")

    def error(self, field: str, what: str, hint: str | None = None) -> InputError:
        """The error for a field of the line read last."""
        return InputError(what, file=self.path, line=self.number, field=field, hint=hint)

    def item(self, items: list[_Row], index: int, field: str) -> _Row:
        """``items[index]`` for an index from the file."""
        if not 0 <= index < len(items):
            raise self.error(field, f"is {short(index)}; there are {len(items)}, counted from 0")
        return items[index]

    def _next(self) -> bytes | None:
        for number, line in self._lines:
            self.number = number
            if not line.isspace():
                return line
        return None

    def _decode(self, line: bytes, decoder: msgspec.json.Decoder[_Row]) -> _Row:
        try:
            return decoder.decode(line)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            field = where.rstrip("`").lstrip(".") or None
            if unknown := re.search("unknown field `(.*)`", message):
                message, field = "is unknown", ascii(unknown[1][:40])[1:-1]
            elif missing := re.search("missing required field `(.*)`", message):
                message, field = "is missing", missing[1]
            raise InputError(message, file=self.path, line=self.number, field=field) from None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise InputError(f"is not valid JSON ({error})", file=self.path, line=self.number) from None


def short(number: int) -> str:
    """A number for an error message; one of thousands of digits is not told in full."""
    return f"{number:,}" if abs(number) < 10**15 else "a number beyond all measure"


def write_lines(rows: list[Any], path: str) -> None:
    """Write rows as JSON Lines, gzip where the name ends in .gz; whole or not at all."""
    check_target(str(path))
    encoder = msgspec.json.Encoder()
    try:
        data = b"".join(encoder.encode(row) + b"\n" for row in rows)
    except UnicodeEncodeError:
        raise InputError("a text cannot be written as UTF-8", file=path) from None
    try:
        write_atomically(path, pack(data, path))
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror or error})", file=path) from None


def _other_kind(found: str) -> str | None:
    for schema, what in (("muster.trace/", "work"), ("muster.fleet/", "a fleet")):
        if found.startswith(schema):
            return f"this file holds {what}"
    return None
