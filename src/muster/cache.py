"""What is kept in the user's cache folder. Nothing there may be trusted or needed: it may be read-only, full, shared
with other processes, or hold rubbish."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec

from muster.errors import InputError
from muster.model.snapshot import write_atomically

_Kept = TypeVar("_Kept")


def keep(path: Path, value: object) -> bool:
    """Write a value as JSON, whole or not at all; False where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(value))
    except (OSError, InputError):
        return False
    return True


def kept(path: Path, kind: type[_Kept]) -> _Kept | None:
    """The value that `keep` wrote; None where there is none, or something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


def forget(path: Path) -> None:
    """Remove a file or an empty folder, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
