"""What the server refuses or does not answer, in the log: each kind of it once in a while, not once a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from muster.backends.kubernetes.api import ApiError

log = logging.getLogger("muster.scheduler")
AGAIN_S = 300.0
"""The same trouble is not named again within this time."""
MOST = 1000


class Troubles:
    """Names what goes wrong.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._named_s: dict[str, float] = {}

    def say(self, what: str, error: Exception) -> bool:
        """``what`` failed, such as "a pod was not bound"; whether it was logged.

        Refusals are one trouble by status, whatever object they are about; a server that is away is one for all.
        """
        why = str(error) or type(error).__name__
        key = f"{what} {error.status}" if isinstance(error, ApiError) else why
        now_s = self._clock()
        if now_s - self._named_s.get(key, -AGAIN_S) < AGAIN_S:
            return False
        if len(self._named_s) >= MOST:
            self._named_s.clear()
        self._named_s[key] = now_s
        log.warning(what, extra={"why": why, "again_named_after_s": round(AGAIN_S)})
        return True
