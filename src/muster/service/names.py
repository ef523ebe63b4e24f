"""Figures that `muster metrics` and `muster scheduler` both serve: called, described and labelled the same."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A figure's name, what it is, and its labels."""

    name: str
    about: str
    labels: tuple[str, ...]


PENDING_GANGS = Figure("muster_pending_gangs", "Gangs that wait, by queue and reason.", ("queue", "reason"))
