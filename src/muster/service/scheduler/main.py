"""Starts one replica and ends it in order: on SIGTERM it gives up the lease, so that another goes on at once."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import socket
import sys
import time
from contextlib import suppress

import msgspec

from muster.backends.kubernetes.api import ApiServer
from muster.errors import ClusterError, InputError
from muster.model.snapshot import write_atomically
from muster.service.scheduler.http import serve
from muster.service.scheduler.process import Clock, SchedulerProcess
from muster.service.scheduler.settings import SchedulerSettings

_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and what was given besides."""

    def format(self, record: logging.LogRecord) -> str:
        """As a line."""
        given = {key: value for key, value in vars(record).items() if key not in _RECORD}
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        told = {"ts": at, "level": record.levelname.lower(), "logger": record.name, "msg": record.getMessage(), **given}
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class Words(logging.Formatter):
    """The same for people."""

    def format(self, record: logging.LogRecord) -> str:
        """As a line."""
        given = " ".join(f"{key}={value}" for key, value in vars(record).items() if key not in _RECORD)
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{at} {record.levelname.lower():7} {record.getMessage()}{'  ' + given if given else ''}"


def set_up_logs(form: str, level: str) -> None:
    """Logs go to stderr, as ``json`` or ``text``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Words())
    root = logging.getLogger("muster")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


async def run(
    server: ApiServer, settings: SchedulerSettings, http: tuple[str, int] | None, report: str | None = None
) -> bool:  # fmt: skip
    """Run one replica until it is told to end (True), or has lost the lease (False); raises `ClusterError`."""
    identity = f"{socket.gethostname()}_{os.getpid()}_{random.SystemRandom().randrange(16**8):08x}"
    async with server:
        process = SchedulerProcess(server, settings, identity, random.Random(), Clock())
        listening = None
        if http is not None:
            try:
                listening = await serve(process, *http)
            except OSError as error:
                what = f"cannot listen on {http[0]}:{http[1]} ({error.strerror})"
                raise InputError(what, field="--http") from None
        task = asyncio.ensure_future(process.run())
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        waiter = asyncio.ensure_future(told.wait())
        try:
            await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                _raise_one(task)
                return False
        finally:
            waiter.cancel()
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
            process.tracing.end()
            if listening is not None:
                await listening.cleanup()
            if process.shadow is not None and report is not None:
                data = msgspec.json.format(msgspec.json.encode(process.shadow.report()), indent=1) + b"\n"
                write_atomically(report, data)
    return True


def _raise_one(task: asyncio.Future[None]) -> None:
    """What the process ended with, as one error."""
    error = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(error, ClusterError):
        raise error
    if error is not None:
        raise error
