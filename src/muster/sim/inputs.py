"""Fleets and workloads of a sweep, each read once in a process and forgotten when the sweep is over."""

from __future__ import annotations

from functools import lru_cache

from muster.model.fleet import Fleet
from muster.traces import Trace, read_fleet, read_workload


@lru_cache(maxsize=8)
def fleet_of(spec: str) -> Fleet:
    """The fleet of a spec; raises `InputError` as the readers do."""
    return read_fleet(spec)[0]


@lru_cache(maxsize=1)
def workload_of(spec: str, fleet: str) -> Trace:
    """The workload of a spec on a fleet's; the last one is kept. Raises `InputError` as the readers do."""
    return read_workload(spec, fleet_of(fleet))


def forget_inputs() -> None:
    """Read again the next time: the files may be others."""
    fleet_of.cache_clear()
    workload_of.cache_clear()
