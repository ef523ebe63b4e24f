"""A real Slurm for tests: `slurm` has sixteen nodes of eight GPUs each, accounts and QOS; `slurm_empty` has no jobs.

It is started once a session, when the first test asks. Tests that use it are marked ``slurm``; they are skipped, with
the command that installs it, where Slurm is not there (and fail under ``MUSTER_SLURM=required``).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from slurmdev import Settings, Slurm, missing, sweep

REQUIRED = os.environ.get("MUSTER_SLURM") == "required"
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a Slurm, and skip it where none can be started: one line a file says why."""
    lacking = _missing()
    for item in items:
        if isinstance(item, pytest.Function) and "slurm_programs" in item.fixturenames:
            item.add_marker(pytest.mark.slurm)
            if lacking and not REQUIRED:
                item.add_marker(pytest.mark.skip(reason=lacking))


def _missing() -> str:
    lacking = missing()
    return f"not installed: {', '.join(lacking)}; `dev/slurm install` installs them" if lacking else ""


@pytest.fixture(scope="session")
def slurm_programs() -> None:
    """Slurm's programs are installed."""
    if lacking := _missing():
        pytest.fail(lacking)
    sweep()


@pytest.fixture(scope="session")
def slurm(slurm_programs: None) -> Iterator[Slurm]:
    """Sixteen nodes of eight GPUs with accounting and slurmrestd, shared by the session."""
    yield from _started(Settings(rest=os.geteuid() == 0))


@pytest.fixture
def slurm_empty(slurm: Slurm) -> Slurm:
    """`slurm` without jobs and reservations, every node idle."""
    slurm.clear()
    return slurm


@pytest.fixture
def start_slurm(slurm_programs: None) -> Iterator[Callable[[Settings], Slurm]]:
    """``start_slurm(Settings(...))``: a Slurm of this test's own."""
    started: list[Slurm] = []

    def start(settings: Settings) -> Slurm:
        started.append(Slurm(_name(), settings))
        return started[-1].up(tied=True)

    yield start
    for one in started:
        one.down()


def _name() -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


def _started(settings: Settings) -> Iterator[Slurm]:
    one = Slurm(_name(), settings)
    try:
        yield one.up(tied=True)
    finally:
        one.down()
