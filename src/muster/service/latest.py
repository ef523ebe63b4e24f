"""A source that is read anew when it has changed: what services answer from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from muster.answers.sources import open_view
from muster.answers.view import View


class Latest:
    """The view of a source as it is now. Safe to be asked from several threads, of which one reads at a time.

    A file that was replaced is read anew; while it cannot be read, `view` raises what reading it raises.
    """

    def __init__(self, source: str, at_s: float | None, settings: Mapping[str, Any]) -> None:
        self._source, self._at_s, self._settings = source, at_s, dict(settings)
        self._path = Path(source.split(":", 1)[1] if ":" in source else source)
        self._lock = Lock()
        self._read: tuple[object, View] | None = None

    def view(self) -> View:
        """The view; raises `InputError` where the source is wrong."""
        with self._lock:
            stamp = self._stamp()
            if self._read is None or self._read[0] != stamp:
                view, _ = open_view(self._source, self._at_s, self._settings)
                assert view.scheduler is not None  # decided here, not by whoever asks first
                self._read = stamp, view
            return self._read[1]

    def _stamp(self) -> object:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
