"""The one error of this package: what was wrong, where, and what to do."""

from __future__ import annotations


class SlurmError(Exception):
    """Said to the developer as it is, without a traceback."""
