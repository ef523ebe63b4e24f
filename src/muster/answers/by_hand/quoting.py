"""Names in commands that people paste into a shell."""

from __future__ import annotations

import shlex

REFUSED = "NAME"
"""Stands where a name cannot be put into a command: it would be read as an option, or as several names."""


def quoted(name: str) -> str:
    """A name as one word of the shell; `REFUSED` where a program would take it for an option, or it is empty."""
    return shlex.quote(name) if name and not name.startswith("-") and name.isprintable() else REFUSED


def quoted_one(name: str) -> str:
    """As `quoted`, where the program takes a list with commas."""
    return REFUSED if "," in name else quoted(name)
