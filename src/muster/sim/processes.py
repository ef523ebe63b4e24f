"""Runs in several processes: none outlives its parent, none talks to the user, and an interrupt ends all at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Literal, TypeVar

from muster.errors import InputError

Where = Literal["local", "ray"]
"""Where runs are: in processes of this machine, or on a Ray cluster."""

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@contextmanager
def running(
    function: Callable[[_Task], _Result], tasks: Sequence[_Task], jobs: int
) -> Generator[list[Future[_Result]]]:
    """Start ``function`` on all tasks in at most ``jobs`` processes; the futures are in the order of ``tasks``.

    If the block ends by an exception, such as Ctrl-C, the processes are ended too. Raises `InputError` if one of them
    was killed from outside.
    """
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context, initializer=_end_with_parent)
    try:
        with _interrupts_held():
            futures = [pool.submit(function, task) for task in tasks]
        yield futures
    except BaseException as error:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            hint = "is the memory full? try fewer; finished runs of a sweep are kept for --resume"
            raise InputError("a process was killed from outside", field="--jobs", hint=hint) from None
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Processes started meanwhile never see Ctrl-C, which the terminal sends to all; this one sees it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """In a worker: leave as soon as the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_after, args=(parent.join,), daemon=True).start()


def _leave_after(wait: Callable[[], None]) -> None:
    wait()
    os._exit(1)
