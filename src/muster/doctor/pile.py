"""A heap of pasted text, taken apart: files, folders, standard input; each part recognised by content, not by name."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster.doctor.evidence import Evidence
from muster.doctor.lines import GATES, LineReader
from muster.doctor.packed import MOST_LINE, Gently, decoded, encoding_of, unpacked
from muster.errors import InputError

WHOLE_BYTES = 8 << 20
"""Text files up to this size are searched for blocks of all shapes; larger ones are logs, and read line by line."""

DOCUMENT_BYTES = 128 << 20
_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{|\[\s*[{\[\"]|<\?xml|<nvidia_smi_log|apiVersion:)")
"""How a file begins that is one document; a kernel's log begins with ``[`` and a number."""

_CHUNK = 4 << 20
_ANSI_BYTES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def read_pile(names: Iterable[str]) -> Evidence:
    """All that files, folders and ``-`` (standard input) hold.

    Raises:
        InputError: a name is not there or cannot be read.
    """
    evidence = Evidence()
    for name in names:
        if name == "-":
            _files(evidence, "-", Gently(sys.stdin.buffer))
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
    _read(evidence, file, Gently(io.BytesIO(text.encode(errors="replace"))))
    return evidence


def _open(evidence: Evidence, path: Path) -> None:
    try:
        with path.open("rb") as raw:
            _files(evidence, str(path), Gently(raw))
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", file=str(path), field="--from") from None


def _files(evidence: Evidence, name: str, stream: Gently) -> None:
    """All files of a stream; of one that breaks off, what there is."""
    for file, inner in unpacked(name, stream):
        _read(evidence, file, inner)
        if inner.cut or stream.cut:
            evidence.unread.append(f"{file}: is cut; what stands before counts")


def _read(evidence: Evidence, file: str, stream: Gently) -> None:
    head = stream.read(WHOLE_BYTES)
    encoding = encoding_of(head)
    if not encoding:
        evidence.unread.append(f"{file}: is binary")
        return
    rest = stream.read(1)
    document = _DOCUMENT.match(head) is not None
    if not rest:
        _whole(evidence, file, decoded(head, encoding))
    elif document or encoding.startswith("utf-16"):
        body = head + rest + stream.read(DOCUMENT_BYTES)
        if len(body) > DOCUMENT_BYTES:
            evidence.unread.append(f"{file}: is larger than {DOCUMENT_BYTES >> 20} MiB")
            return
        _whole(evidence, file, decoded(body, encoding))
    else:
        _stream(evidence, file, head + rest, stream)


def _whole(evidence: Evidence, file: str, text: str) -> None:
    from muster.doctor.shapes import read_blocks, read_document

    lines = text.split("\n")
    evidence.total_lines += len(lines)
    if read_document(evidence, file, text):
        return
    lines = [line[:MOST_LINE] for line in lines]
    read_blocks(evidence, file, lines)
    reader = LineReader(evidence, file)
    gates = re.compile("|".join(map(re.escape, GATES)))
    for number, line in enumerate(lines, 1):
        if line and gates.search(line):
            reader.take(line, number)


def _stream(evidence: Evidence, file: str, head: bytes, stream: Gently) -> None:
    """A long log: only lines with a gate are looked at."""
    reader = LineReader(evidence, file)
    number = 0
    for chunk in _chunks(head, stream):
        for line, at in _gated(chunk):
            line = line[:MOST_LINE]
            if b"\x1b" in line:
                line = _ANSI_BYTES.sub(b"", line)
            reader.take(line.rstrip(b"\r").decode("utf-8", "replace"), number + at)
        number += chunk.count(b"\n")
    evidence.total_lines += number


def _chunks(head: bytes, stream: Gently) -> Iterator[bytes]:
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
