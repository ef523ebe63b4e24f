"""Gangs that are about to end: the first of their pods have ended well, and the others will in a moment.

The pods of a gang end together, but a cluster tells so pod by pod, over seconds when it is busy. For that long the rest
is counted as leaving: nobody is stopped to make room for a gang that gets its room by itself when the rest has gone.
"""

from __future__ import annotations

import math

ENDING_S = 10.0
"""So long after its first pods ended the rest of a gang is taken to be about to end; then it is a smaller gang."""


class Endings:
    """Until when the rest of each gang is taken to be about to end."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def leaving_s(self, name: str, now_s: float, *, shrank: bool) -> float | None:
        """When the rest of a gang will have gone; None where it goes on. ``shrank``: pods of it ended well just now."""
        if shrank:
            self._until_s.setdefault(name, now_s + ENDING_S)
        until_s = self._until_s.get(name, -math.inf)
        return until_s if now_s < until_s else None

    def over(self, now_s: float) -> list[str]:
        """The gangs whose rest did not end: from now on they are what is there, and are not taken to end again."""
        names = [name for name, until_s in self._until_s.items() if -math.inf < until_s <= now_s]
        self._until_s.update(dict.fromkeys(names, -math.inf))
        return names

    def forget(self, name: str) -> None:
        """Nothing of the gang is left."""
        self._until_s.pop(name, None)
