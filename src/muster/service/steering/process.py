"""Goes on steering until it is told to stop: a cycle, the writes, a pause; what fails once is tried again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType

from muster.backends.slurm.writes import Outcome
from muster.errors import ClusterError
from muster.service.steering.steer import Cycle, Steering
from muster.slurm.steering.writes import Write

Agree = Callable[[Cycle], bool]
Tell = Callable[[Cycle, Sequence[Outcome]], None]


@contextmanager
def stops() -> Generator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, instead of ending the process in the midst of a write."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C means it
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keep_steering(
    steering: Steering, every_s: float, stopped: threading.Event, agree: Agree, tell: Tell,
    trouble: Callable[[str], None],
) -> None:  # fmt: skip
    """Make a cycle every so many seconds until it is stopped.

    Args:
        steering: what makes them.
        every_s: from the beginning of one to that of the next.
        stopped: ends it between two cycles, or between two writes.
        agree: is shown what a cycle wants, and says whether it is done.
        tell: is told what came of a cycle.
        trouble: is told, in a sentence, what went wrong with one: slurmctld did not answer. The next tries again.
    """
    said = ""
    while not stopped.is_set():
        began_s = time.monotonic()
        try:
            one_cycle(steering, stopped, agree, tell)
            said = ""
        except ClusterError as error:
            if "may not do this" in str(error):
                raise
            if str(error) != said:
                said = str(error)
                trouble(f"{said}; the next cycle tries again")
        stopped.wait(max(0.05, every_s - (time.monotonic() - began_s)))


def one_cycle(steering: Steering, stopped: threading.Event, agree: Agree, tell: Tell) -> Sequence[Outcome]:
    """Plan, ask, and carry out; what came of it. Raises `ClusterError`."""
    cycle = steering.plan()
    outcomes: list[Outcome] = []
    if cycle.writes and not agree(cycle):
        return outcomes
    try:
        for outcome in steering.carry_out(cycle):
            outcomes.append(outcome)
            if stopped.is_set():
                break
    finally:
        tell(cycle, outcomes)
    return outcomes


def shown(write: Write) -> str:
    """A write in a line: ``ExcNodeList nothing -> gpu[01-08], Nice 0 -> -1000``."""
    return ", ".join(f"{field} {was or 'nothing'} -> {then or 'nothing'}" for field, was, then in write.changes)
