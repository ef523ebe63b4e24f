"""Who has had how much: the ranks of queues, from what runs now and what was used in the past."""

from __future__ import annotations

from muster.engine.config import Config
from muster.model.queue import Queue
from muster.model.workload import Workload


class Shares:
    """Ranks queues by what they use."""

    def __init__(self, queues: tuple[Queue, ...], config: Config, now_s: float) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._running: dict[str, int] = {}

    def add_past(self, queue: str, user: str, gpu_s: float) -> None:
        """Use of the past."""

    def advance(self, now_s: float) -> None:
        """Go on to a time."""

    def start(self, workload: Workload, flavor: str, milli: int, now_s: float) -> None:
        """Work starts."""
        self._running[workload.queue] = self._running.get(workload.queue, 0) + milli

    def stop(self, workload: Workload, flavor: str, milli: int, now_s: float) -> None:
        """Work ends."""
        self._running[workload.queue] -= milli

    def rank(self, queue: str) -> tuple[float, ...]:
        """Smaller goes first."""
        weight = self._queues[queue].weight if queue in self._queues else 1.0
        return (self._running.get(queue, 0) / weight,)
