"""Files in, bytes and text out; whatever is wrong with a file is told in one line."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from muster.errors import InputError, near

LIMIT_BYTES = 4 << 30
"""The most that one file may hold once unpacked; more is a mistake or a bomb."""

GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 22


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_bytes(path: str) -> bytes:
    """Contents of a file, unpacked if it is gzip; raises `InputError` if it is unreadable, damaged or empty."""
    data = _read_raw(path)
    if data.startswith(GZIP_MAGIC):
        data = _unpack(data, path)
    elif path.endswith(".gz") and data:
        raise InputError(
            "is not a gzip file although its name ends in .gz", file=path, hint="drop the ending or pack it"
        )
    if not data.strip():
        raise InputError("is empty", file=path, hint="was the download or export cut off?")
    return data


def dump_files(path: str) -> list[str]:
    """The files of a dump: those of a folder, or those that are named with commas between them."""
    if is_dir(path):
        return sorted(str(each) for each in Path(path).iterdir() if each.name.endswith((".json", ".json.gz")))
    parts = path.split(",")
    return parts if len(parts) > 1 and not is_there(path) and all(map(is_there, parts)) else [path]


def is_there(path: str) -> bool:
    """Whether something is at ``path``; False for names that no file can have."""
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):
        return False


def is_dir(path: str) -> bool:
    """Whether a folder is at ``path``."""
    return is_there(path) and Path(path).is_dir()


def read_head(path: str, size: int = 65536) -> bytes:
    """The first bytes of a file, unpacked; empty if it cannot be read or unpacked."""
    with contextlib.suppress(OSError, ValueError, EOFError, zlib.error):
        with Path(path).open("rb") as stream:
            head = stream.read(size)
        if head.startswith(GZIP_MAGIC):
            return zlib.decompressobj(wbits=31).decompress(head, size)
        return head
    return b""


def read_text(path: str) -> str:
    """Contents of a UTF-8 file; a byte order mark is dropped."""
    return decode_text(read_bytes(path), path)


def decode_text(data: bytes, file: str) -> str:
    """Bytes as text; raises `InputError` with the line of the first byte that is no text."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16 or binary", file=file, line=1, hint="save it as UTF-8")
    zero = data.find(b"\0")
    if zero >= 0:
        raise InputError("is not text (it holds a zero byte)", file=file, line=data.count(b"\n", 0, zero) + 1)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise InputError(what, file=file, line=line, hint="is this the right file? text must be UTF-8") from None
    return text.removeprefix("\ufeff")


def check_target(path: str, field: str | None = None) -> None:
    """Raise `InputError` where no file can be put: files are replaced whole, which a device or a pipe must not be."""
    try:
        target = Path(path)
        if not path or "\0" in path:
            raise InputError("no file to write is named", field=field)
        if target.is_dir():
            raise InputError("cannot be written (is a directory)", file=path, field=field)
        if target.exists() and not target.is_file():
            hint = "name a file; what is asked for is always written whole"
            raise InputError("cannot be written (is no regular file)", file=path, field=field, hint=hint)
        if not target.parent.is_dir():
            what = "cannot be written (its folder does not exist)"
            raise InputError(what, file=path, field=field, hint="make it first")
        if not os.access(target.parent, os.W_OK):
            raise InputError("cannot be written (its folder is read-only)", file=path, field=field)
        target.lstat()  # told here where the name is too long
    except FileNotFoundError:
        pass
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise InputError(what, file=path if len(path) <= 200 else f"{path[:197]}...", field=field) from None


def write_together(files: Mapping[str, str], folder: Path) -> None:
    """Write files into a folder, made where it is not there: all of them, or none, and none that is there already.

    They are written aside first, and moved when all are whole. Raises `InputError`.
    """
    there = next((name for name in files if os.path.lexists(folder / name)), None)
    if there is not None:
        raise InputError("is there already", file=str(folder / there), hint="name another folder, or move it away")
    aside: Path | None = None
    moved: list[Path] = []
    done = False
    try:
        made = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            aside = Path(tempfile.mkdtemp(prefix=".muster-", dir=folder))
            for name, text in files.items():
                (aside / name).write_text(text)
            for name in files:
                (aside / name).rename(folder / name)
                moved.append(folder / name)
            done = True
        finally:
            if not done:
                for path in moved:
                    path.unlink(missing_ok=True)
            if aside is not None:
                shutil.rmtree(aside, ignore_errors=True)
            if made and not done:
                with contextlib.suppress(OSError):
                    folder.rmdir()
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror or error})", file=str(folder)) from None


def pack(data: bytes, path: str) -> bytes:
    """``data`` as gzip if ``path`` ends in .gz (always the same bytes for the same data), else as it is."""
    if not path.endswith(".gz"):
        return data
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=6, mtime=0) as stream:
        stream.write(data)
    return buffer.getvalue()


def _read_raw(path: str) -> bytes:
    if not path or "\0" in path:
        raise InputError("no file is named", hint="write KIND:PATH")
    try:
        if Path(path).is_dir():
            raise InputError("is a directory", file=path, hint="name a file in it")
        with Path(path).open("rb") as stream:
            return _read_all(stream, path)
    except FileNotFoundError:
        check_link(path)
        raise InputError("does not exist", file=path, hint=neighbours(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", file=path) from None


def check_link(path: str) -> None:
    """Raise `InputError` if there is a symbolic link by this name that leads nowhere."""
    with contextlib.suppress(ValueError):
        if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114 - these two never raise OSError
            raise InputError("is a symbolic link that leads nowhere", file=path)


def _unpack(data: bytes, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return _read_all(stream, path)
    except EOFError:
        raise InputError("is a gzip file that is cut short", file=path, hint="copy or download it again") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"is a damaged gzip file ({error})", file=path, hint="copy or download it again") from None


def _read_all(stream: _Readable, path: str) -> bytes:
    chunks: list[bytes] = []
    total = 0
    while chunk := stream.read(_CHUNK):
        chunks.append(chunk)
        total += len(chunk)
        if total > LIMIT_BYTES:
            raise InputError(f"holds more than {LIMIT_BYTES >> 30} GiB", file=path, hint="split it")
    return b"".join(chunks)


def neighbours(path: str) -> str | None:
    """A hint with near names in the same directory."""
    target = Path(path)
    with contextlib.suppress(OSError):
        return near(target.name, sorted(entry.name for entry in target.parent.iterdir() if entry.exists()))
    return None
