"""A heap of pasted text, taken apart: files, folders, standard input; each part recognised by content, not by name."""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from muster.doctor.evidence import Evidence
from muster.doctor.lines import GATES, LineReader
from muster.errors import InputError

WHOLE_BYTES = 8 << 20
"""Text files up to this size are searched for blocks of all shapes; larger ones are logs, and read line by line."""

DOCUMENT_BYTES = 128 << 20
_CHUNK = 4 << 20
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]")
_ANSI_BYTES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def read_pile(names: Iterable[str]) -> Evidence:
    """All that files, folders and ``-`` (standard input) hold.

    Raises:
        InputError: a name is not there or cannot be read.
    """
    evidence = Evidence()
    for name in names:
        if name == "-":
            _read(evidence, "-", sys.stdin.buffer)
            continue
        path = Path(name)
        if path.is_dir():
            files = sorted(each for each in path.rglob("*") if each.is_file())
            if not files:
                raise InputError("holds no files", file=name, field="--from")
            for each in files:
                _open(evidence, each)
        else:
            _open(evidence, path)
    return evidence


def read_text(text: str, file: str = "-") -> Evidence:
    """The same of a text that is at hand."""
    evidence = Evidence()
    _read(evidence, file, io.BytesIO(text.encode()))
    return evidence


def _open(evidence: Evidence, path: Path) -> None:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.open(raw) as stream:
                    _read(evidence, str(path), cast("IO[bytes]", stream))
            else:
                _read(evidence, str(path), raw)
    except EOFError:
        evidence.unread.append(f"{path}: the compressed data is cut")
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", file=str(path), field="--from") from None


def _read(evidence: Evidence, file: str, stream: IO[bytes]) -> None:
    head = stream.read(WHOLE_BYTES)
    rest = stream.read(1)
    if b"\x00" in head[:4096] and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        evidence.unread.append(f"{file}: is binary")
        return
    if not rest:
        _whole(evidence, file, decoded(head))
        return
    stripped = head[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if stripped[:1] in (b"{", b"[") or stripped.startswith((b"<?xml", b"<nvidia_smi_log", b"apiVersion:")):
        body = head + rest + stream.read(DOCUMENT_BYTES)
        if len(body) > DOCUMENT_BYTES:
            evidence.unread.append(f"{file}: is larger than {DOCUMENT_BYTES >> 20} MiB")
            return
        _whole(evidence, file, decoded(body))
        return
    _stream(evidence, file, head + rest, stream)


def decoded(data: bytes) -> str:
    """Bytes as text: UTF-8, or UTF-16 as some terminals save; colours and other orders to the terminal are left out."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8-sig", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ANSI.sub("", text) if "\x1b" in text else text


def _whole(evidence: Evidence, file: str, text: str) -> None:
    from muster.doctor.shapes import read_blocks, read_document

    lines = text.split("\n")
    evidence.total_lines += len(lines)
    if read_document(evidence, file, text):
        return
    read_blocks(evidence, file, lines)
    reader = LineReader(evidence, file)
    gates = re.compile("|".join(map(re.escape, GATES)))
    for number, line in enumerate(lines, 1):
        if line and gates.search(line):
            reader.take(line, number)


def _stream(evidence: Evidence, file: str, head: bytes, stream: IO[bytes]) -> None:
    """A long log: only lines with a gate are looked at."""
    reader = LineReader(evidence, file)
    number = 0
    for chunk in _chunks(head, stream):
        for line, at in _gated(chunk):
            if b"\x1b" in line:
                line = _ANSI_BYTES.sub(b"", line)
            reader.take(line.rstrip(b"\r").decode("utf-8", "replace"), number + at)
        number += chunk.count(b"\n")
    evidence.total_lines += number


def _chunks(head: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    """Parts that end with whole lines; a line longer than a chunk is cut."""
    carry = b""
    data = head
    while data:
        data = carry + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) < 2 * _CHUNK:
            carry, data = data, stream.read(_CHUNK)
            continue
        end = end or len(data)
        yield data[:end]
        carry, data = data[end:], stream.read(_CHUNK)
    if carry:
        yield carry


def _gated(chunk: bytes) -> Iterator[tuple[bytes, int]]:
    """The lines of a chunk that hold a gate, each with its number in it, from 1."""
    starts: set[int] = set()
    for gate in GATES:
        word = gate.encode()
        at = chunk.find(word)
        while at >= 0:
            starts.add(chunk.rfind(b"\n", 0, at) + 1)
            end = chunk.find(b"\n", at)
            at = chunk.find(word, end) if end >= 0 else -1
    number, last = 1, 0
    for start in sorted(starts):
        number += chunk.count(b"\n", last, start)
        last = start
        end = chunk.find(b"\n", start)
        yield chunk[start : end if end >= 0 else len(chunk)], number
