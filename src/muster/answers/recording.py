"""A simulated run put into a history: a snapshot every so often, with all that was decided in between."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from muster.answers.history import Added, History
from muster.answers.sources import without_run_times
from muster.errors import InputError
from muster.sim.run_file import prepare_run

MOST_SNAPSHOTS = 100_000


def record(history: History, path: str, every_s: float, until_s: float | None = None) -> Iterator[tuple[float, Added]]:
    """Simulate a run file and add a snapshot every ``every_s``: when, and what was added, as it goes.

    It goes on until the run ends, or up to ``until_s``. Decisions are those that the simulated cluster carried out.

    Raises:
        InputError: the run file is wrong, or that would be more than `MOST_SNAPSHOTS`.
    """
    if not every_s > 0:
        raise InputError("is not above 0", field="--every", hint="such as 10m")
    prepared = prepare_run(path)
    run, ends_s = prepared.run, prepared.document.until_s
    run.options = replace(run.options, keep_plans=True)
    last_s = min(math.inf if each is None else each for each in (until_s, ends_s))
    if math.isinf(last_s) and run.options.failures.endless:
        raise InputError("failures go on for ever", field="--until", hint="say when the history ends")
    time_s, seen, count = run.first_s, 0, 0
    while time_s <= last_s:
        run.run(time_s)
        done, seen = run.plans[seen:], len(run.plans)
        snapshot = without_run_times(run.snapshot(time_s))
        yield time_s, history.add(replace(snapshot, source=f"simulated:{Path(path).name}"), done)
        count += 1
        if run.next_s == math.inf:
            return  # what still waits does so for ever
        if count >= MOST_SNAPSHOTS:
            raise InputError(f"are more than {MOST_SNAPSHOTS:,} snapshots", field="--every", hint="a longer time")
        time_s = run.first_s + count * every_s
