"""Changes to a snapshot: values that can be written, read and applied.

`parse_change` reads what an engineer types; ``str`` of a change writes it; `apply_changes` makes another snapshot.
"""

from muster.answers.changes.apply import apply_changes, changed
from muster.answers.changes.text import parse_change
from muster.answers.changes.values import (
    AddDomains,
    AddNodes,
    Cancel,
    Change,
    EndReservation,
    Mark,
    Move,
    RemoveNodes,
    Reserve,
    SetConfig,
    SetJob,
    SetLimit,
    SetNodes,
    SetPolicy,
    SetQuota,
    SetWeight,
    Stop,
    Submit,
    Wave,
)
from muster.planning.quantities import seconds

__all__ = [
    "AddDomains",
    "AddNodes",
    "Cancel",
    "Change",
    "EndReservation",
    "Mark",
    "Move",
    "RemoveNodes",
    "Reserve",
    "SetConfig",
    "SetJob",
    "SetLimit",
    "SetNodes",
    "SetPolicy",
    "SetQuota",
    "SetWeight",
    "Stop",
    "Submit",
    "Wave",
    "apply_changes",
    "changed",
    "parse_change",
    "seconds",
]
