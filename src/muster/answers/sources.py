"""Where a view comes from: a live cluster, a snapshot file, a dump, a history, or a simulated run at an instant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from muster.answers.live import is_live, is_slurm, read_live
from muster.answers.view import View
from muster.engine.config import config_of
from muster.errors import InputError
from muster.model.snapshot import Snapshot
from muster.traces import read_snapshot_and_skipped
from muster.traces.files import read_head
from muster.traces.snapshots import holds_document
from muster.traces.trace import Skipped

_MOST_SAID = 8
"""So many things that are not read are said one by one."""


def _unheard(text: str) -> None:
    """Nobody listens."""


def open_view(
    source: str, at_s: float | None = None, settings: Mapping[str, Any] | None = None,
    warn: Callable[[str], None] = _unheard,
) -> tuple[View, tuple[Skipped, ...]]:  # fmt: skip
    """Read a snapshot and build a view on it; also what was left out of the source.

    Args:
        source: a snapshot file (also one as JSON or YAML), a kubectl dump (``kubectl:DUMP.json``), or a run file
            (``.yaml``), a history (``history:FILE`` or ``history:FILE@TIME``), files that Slurm's commands wrote
            (``slurm:DIR``), or a live cluster (``kubernetes:CONTEXT``, ``slurm``), which is read as it is now.
        at_s: of a run file or a history, the instant; None: its end.
        settings: instead of those of the source.
        warn: is told what the user should know of a live cluster besides, such as what must not be read.

    Raises:
        InputError: something is wrong with the source, an instant or a setting.
        ClusterError: a live cluster is not reached, or refuses what is needed.
    """
    if settings:
        config_of(settings)  # what is wrong with one is told of it, not of the source
    snapshot, skipped = read_source(source, at_s, settings, warn)
    config = config_of({**dict(snapshot.settings), **(settings or {})}) if settings else None
    return View(snapshot, config), skipped


def read_source(
    source: str, at_s: float | None = None, settings: Mapping[str, Any] | None = None,
    warn: Callable[[str], None] = _unheard,
) -> tuple[Snapshot, tuple[Skipped, ...]]:  # fmt: skip
    """The snapshot of a source, as `open_view` takes it, and what was left out.

    Runs go by the settings from the start.
    """
    if is_history(source):
        return _remembered(source, at_s), ()
    if is_run_file(source):
        return simulated(source, at_s, settings), ()
    if at_s is not None:
        hint = "a snapshot is of one"
        raise InputError("only a run file or a history has instants to choose from", field="--at", hint=hint)
    if is_live(source):
        return read_live(source, warn)
    if is_slurm(source):
        from muster.answers.slurm import open_slurm

        return open_slurm(source, warn)[:2]
    if files := slurm_source(source):
        return _shown(files, warn)
    return read_snapshot_and_skipped(source)


def _shown(files: str, warn: Callable[[str], None]) -> tuple[Snapshot, tuple[Skipped, ...]]:
    """The snapshot of files that Slurm's commands wrote; what of them is not read is said, or else is left out."""
    from muster.answers.slurm import reading_of
    from muster.traces.slurm import read_slurm_files

    world = read_slurm_files(files)
    snapshot, skipped = reading_of(world)[:2]
    if warn is _unheard:
        return snapshot, (*skipped, *(Skipped(files, 0, "not read", each) for each in world.unread))
    for each in world.unread[:_MOST_SAID]:
        warn(f"not read: {each}")
    if len(world.unread) > _MOST_SAID:
        warn(f"not read: {len(world.unread) - _MOST_SAID:,} more such things")
    return snapshot, skipped


def slurm_source(source: str) -> str:
    """The path of a source of files that Slurm's commands wrote; empty if it is none."""
    from muster.traces.slurm import holds_slurm, slurm_files

    if source.startswith("slurm:"):
        return source.removeprefix("slurm:")
    found = slurm_files(source)
    texts = (read_head(each).decode(errors="replace") for each in found[:20])
    return source if any(holds_slurm(text) for text in texts) else ""


def is_history(source: str) -> bool:
    """Whether a source is a history."""
    return source.startswith("history:")


def instant_in(source: str, text: str) -> float:
    """An instant of a history, such as ``14:03``, as `muster.answers.times.parse_instant` reads it."""
    from muster.answers.history import History
    from muster.answers.times import parse_instant

    with History(source.removeprefix("history:")) as history:
        return parse_instant(text, history.newest_s())


def _remembered(source: str, at_s: float | None) -> Snapshot:
    """The last snapshot that a history has up to an instant."""
    from muster.answers.history import History
    from muster.answers.times import parse_instant

    path, asked = source.removeprefix("history:"), ""
    if not Path(path).exists() and "@" in path:
        path, _, asked = path.rpartition("@")
    with History(path) as history:
        if asked and at_s is not None:
            raise InputError("the instant is given twice", field="--at", hint=f"leave out @{asked}")
        time_s = parse_instant(asked, history.newest_s(), source) if asked else at_s
        return history.snapshot(history.at(time_s).id)


def is_run_file(source: str) -> bool:
    """Whether a source is a run file: YAML by its ending, and not a snapshot written as YAML."""
    return source.endswith((".yaml", ".yml")) and not holds_document(read_head(source))


def simulated(path: str, at_s: float | None = None, settings: Mapping[str, Any] | None = None) -> Snapshot:
    """The snapshot of a run file's simulation at an instant: what its scheduler knows, and not how long work will run.

    Raises `InputError` for a run file that is wrong, and where the run ends before the instant.
    """
    from muster.sim.run_file import prepare_run

    run = prepare_run(path, settings).run
    run.run(at_s)
    if at_s is not None and not math.isclose(run.now_s, at_s) and run.now_s < at_s:
        what = f"the run ends at {run.now_s:g} s, before {at_s:g} s"
        raise InputError(what, file=path, field="--at", hint="an earlier instant")
    found = without_run_times(run.snapshot())
    return replace(found, source=f"simulated:{Path(path).name}")


def without_run_times(snapshot: Snapshot) -> Snapshot:
    """A snapshot without the recorded run times, which no scheduler knows."""
    running = (replace(each, workload=replace(each.workload, duration_s=None)) for each in snapshot.running)
    pending = (replace(each, duration_s=None) for each in snapshot.pending)
    return replace(snapshot, running=tuple(running), pending=tuple(pending))
