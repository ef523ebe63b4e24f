"""Rules and what they find: a rule is data (severity, what it is about, its source) and a function that looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from muster.slurm.lint.look import Look

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
"""Refused, or something else than was meant, for sure; it may be so, or it costs others; good to know."""


class Edit(Struct, frozen=True):
    """One change to a script.

    Attributes:
        kind: ``set`` (an ``#SBATCH`` option to a value), ``drop`` (an option), ``replace`` (``old`` by ``new`` in a
            line), ``before`` (new lines before a line), ``delete`` (a line), ``unix`` (line ends).
        name: of the option.
        value: of the option, or the new text.
        line: 1-based, of replace, before and delete.
        old: of replace.
    """

    kind: str
    name: str = ""
    value: str = ""
    line: int = 0
    old: str = ""


class Hit(Struct, frozen=True):
    """What a rule finds in one place.

    Attributes:
        what: what happens, in numbers.
        fix: what to do.
        line: 1-based; 0: on the command line, None: the script as a whole.
        edits: changes that do it; empty where that is the author's to decide.
        unsure: what is not known here and would decide it; empty: it is so.
        severity: where it differs from the rule's.
    """

    what: str
    fix: str
    line: int | None = None
    edits: tuple[Edit, ...] = ()
    unsure: str = ""
    severity: str = ""


class Rule(Struct, frozen=True):
    """One rule.

    Attributes:
        name: such as ``gpus-without-nodes``.
        family: the file that it is in.
        severity: one of SEVERITIES.
        about: in a line.
        source: where it is documented.
        check: finds it.
    """

    name: str
    family: str
    severity: str
    about: str
    source: str
    check: Callable[[Look], Iterator[Hit]]


class Finding(Struct, frozen=True):
    """What was found, for people and machines; the fields are those of `Rule` and `Hit`."""

    rule: str
    severity: str
    line: int | None
    what: str
    fix: str
    unsure: str
    source: str
    edits: tuple[Edit, ...] = ()
