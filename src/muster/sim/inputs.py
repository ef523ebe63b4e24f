"""Fleets and workloads of a sweep, each read once in a process and forgotten when the sweep is over."""

from __future__ import annotations

from functools import lru_cache

from muster.model.fleet import Fleet
from muster.traces import Trace, read_fleet, read_workload

_given: dict[str, tuple[Fleet, dict[str, Trace]]] = {}


def fleet_of(spec: str) -> Fleet:
    """The fleet of a spec; raises `InputError` as the readers do."""
    return _given[spec][0] if spec in _given else _fleet_of(spec)


def workload_of(spec: str, fleet: str) -> Trace:
    """The workload of a spec on a fleet's; the last one is kept. Raises `InputError` as the readers do."""
    given = _given[fleet][1].get(spec) if fleet in _given else None
    return given or _workload_of(spec, fleet)


def give_inputs(fleet_spec: str, fleet: Fleet, workload_spec: str, trace: Trace) -> None:
    """Take these for what the specs name, and nothing else: where the runs are, the files may be missing."""
    _given.clear()
    _given[fleet_spec] = fleet, {workload_spec: trace}


def forget_inputs() -> None:
    """Read again the next time: the files may be others."""
    _given.clear()
    _fleet_of.cache_clear()
    _workload_of.cache_clear()


@lru_cache(maxsize=8)
def _fleet_of(spec: str) -> Fleet:
    return read_fleet(spec)[0]


@lru_cache(maxsize=1)
def _workload_of(spec: str, fleet: str) -> Trace:
    return read_workload(spec, fleet_of(fleet))
