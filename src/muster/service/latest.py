"""A source that is read anew when it has changed: what services answer from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from muster.answers.live import goes_on
from muster.answers.sources import open_view
from muster.answers.view import View
from muster.traces.files import dump_files

AGAIN_S, SHARE = 15.0, 10.0
"""A live cluster is read anew after so long, or where reading it takes long, after so many times that."""


class Latest:
    """The view of a source as it is now. Safe to be asked from several threads, of which one reads at a time.

    A file that was replaced is read anew, and a live cluster after a while; while it cannot be read, `view` raises
    what reading it raises.
    """

    def __init__(
        self, source: str, at_s: float | None, settings: Mapping[str, Any], warn: Callable[[str], None] | None = None
    ) -> None:
        self._source, self._at_s, self._settings = source, at_s, dict(settings)
        self._warn = warn
        self._warned: set[str] = set()
        self._until_s = 0.0
        self._path = source.split(":", 1)[1] if ":" in source else source
        self._lock = Lock()
        self._read: tuple[object, View] | None = None

    def view(self) -> View:
        """The view; raises `InputError` where the source is wrong."""
        with self._lock:
            stamp = self._stamp()
            if self._read is None or self._read[0] != stamp:
                begun_s = time.monotonic()
                view, _ = open_view(self._source, self._at_s, self._settings, self._tell)
                assert view.scheduler is not None  # decided here, not by whoever asks first
                now_s = time.monotonic()
                self._until_s = now_s + max(AGAIN_S, SHARE * (now_s - begun_s))
                self._read = self._stamp() if goes_on(self._source) else stamp, view
            return self._read[1]

    def _tell(self, text: str) -> None:
        """Warn of each thing once."""
        if self._warn is not None and text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def _stamp(self) -> object:
        if goes_on(self._source):
            return self._until_s if time.monotonic() < self._until_s else None
        try:
            found = [Path(file).stat() for file in dump_files(self._path)]
        except OSError:
            return None
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)
