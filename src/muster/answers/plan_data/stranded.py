"""A fleet as it is, with what runs on it and waits, for `muster plan stranded`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.planning.plans.stranded import OWN
from muster.planning.question import FromData
from muster.traces import read_fleet_as_it_is


def read_own(named: str, given: Mapping[str, Any]) -> FromData:
    """The source as the fleet and as its own workload; raises `InputError` if it is none."""
    _, skipped = read_fleet_as_it_is(named)
    told = tuple(f"skipped {each}" for each in skipped[:3])
    return FromData({"fleet": named, "workload": OWN, "pods": ()}, {"pods": named}, told)
