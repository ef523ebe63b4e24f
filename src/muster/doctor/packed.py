"""Files as they come: packed with gzip, archives of tar, in any of the encodings that terminals save, cut anywhere."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]")
_BROKEN = (EOFError, OSError, zlib.error, tarfile.TarError, ValueError)
_TAR_MAGIC_AT = 257
MOST_LINE = 16_384
"""Characters of a line that are looked at; no tool writes longer ones but by fault."""


class Gently:
    """A stream that may break off: what was read until then counts, and ``cut`` tells that it broke."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._ahead = stream, b""
        self.cut = False

    def read(self, count: int) -> bytes:
        """Up to so many bytes; fewer only at the end."""
        parts, self._ahead = [self._ahead[:count]], self._ahead[count:]
        left = count - len(parts[0])
        while left > 0 and not self.cut:
            try:
                part = self._stream.read(min(left, 1 << 16))
            except _BROKEN:
                self.cut = True
                break
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def peek(self, count: int) -> bytes:
        """The next bytes, which stay to be read."""
        self._ahead = self.read(count)
        return self._ahead


def unpacked(name: str, stream: Gently) -> Iterator[tuple[str, Gently]]:
    """The files in a stream: of an archive each, of others the one; packed ones unpacked."""
    inner = stream
    if stream.peek(2) == b"\x1f\x8b":
        inner = Gently(cast("IO[bytes]", gzip.GzipFile(fileobj=cast("IO[bytes]", stream))))
    head = inner.peek(_TAR_MAGIC_AT + 5)
    if head[_TAR_MAGIC_AT:] != b"ustar":
        yield name, inner
        return
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", inner), mode="r|") as archive:
            for member in archive:
                if member.isfile() and (data := archive.extractfile(member)) is not None:
                    yield f"{name}:{member.name}", Gently(data)
    except _BROKEN:
        inner.cut = True
        yield f"{name}: the rest of the archive", inner


def encoding_of(head: bytes) -> str:
    """The encoding of a text by its first bytes; empty: it is binary."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    sample = head[:4096]
    if b"\x00" not in sample:
        return "utf-8-sig"
    for name, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if len(sample) > 3 and zeros.count(0) > 0.9 * len(zeros) and sample.count(0) < 1.1 * len(zeros):
            return name
    return ""


def decoded(data: bytes, encoding: str = "") -> str:
    """Bytes as text; what is no character is replaced, colours and other orders to the terminal are left out."""
    text = data.decode(encoding or encoding_of(data) or "utf-8", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ANSI.sub("", text) if "\x1b" in text else text
