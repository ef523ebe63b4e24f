"""A fix carried out: as changes of a snapshot, and as the commands of Kubernetes and Slurm that do the same by hand.

Commands only tell what to do; nothing is run. Names are quoted for the shell. Where a system has nothing of the kind,
or an object cannot be changed while it is there, a line that starts with ``#`` says so. Field names are those of
Slurm's scontrol(1) and sacctmgr(1), of the Kubernetes API, and of Kueue (``kueue.x-k8s.io``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from muster.answers.by_hand import kubernetes, slurm
from muster.answers.changes import Change, Move, SetJob, Stop, apply_changes
from muster.answers.fixes import Fix
from muster.answers.times import span
from muster.answers.view import View
from muster.answers.words import gpu_hours
from muster.model.snapshot import Snapshot
from muster.traces.snapshots import write_snapshot


class Step(Struct, frozen=True):
    """Commands of one system, in the order in which they are given."""

    system: str
    commands: tuple[str, ...]


class Application(Struct, frozen=True):
    """How a fix is carried out.

    Attributes:
        fix: what is to be done.
        changes: as `muster whatif` takes them, one text each.
        by_hand: the commands of each system that the snapshot may be of.
    """

    fix: Fix
    changes: tuple[str, ...]
    by_hand: tuple[Step, ...]


def application(view: View, fix: Fix) -> Application:
    """How to carry out a fix; of ``wait`` nothing is to be done."""
    changes = tuple(str(change) for change in fix.changes)
    by_hand = (Step(name, tuple(map(_one_line, told(view, fix)))) for name, told in _systems(view.snapshot.source))
    return Application(fix, changes, tuple(by_hand) if changes else ())


def _one_line(text: str) -> str:
    """Nothing in a name may end a comment and begin a command."""
    return text.replace("\r", " ").replace("\n", " ")


def apply_fix(view: View, fix: Fix) -> Snapshot:
    """The snapshot with the fix made; the gang starts in its next cycle."""
    return apply_changes(view.snapshot, fix.changes)


def save_applied(view: View, fix: Fix, path: str | os.PathLike[str]) -> None:
    """Write the snapshot with the fix made to a file; raises `InputError` if it cannot be written."""
    write_snapshot(apply_fix(view, fix), path)


def lines(view: View, fix: Fix, of: str, *, by_hand: bool = True) -> Iterator[str]:
    """The text that `muster why JOB --apply N` prints; ``of`` are the options that name the source of the view.

    ``by_hand``: with the commands of each system.
    """
    told = application(view, fix)
    yield f"{fix.title[0].upper()}{fix.title[1:]}."
    yield cost_text(fix)
    if not told.changes:
        yield "Nothing is to be done."
        return
    yield ""
    yield "As changes of the snapshot, to see what they do to all others:"
    yield f"  muster whatif{of} {shlex.quote('; '.join(told.changes))}"
    for step in told.by_hand if by_hand else ():
        yield ""
        yield f"By hand, on {step.system}:"
        yield from (f"  {command}" for command in step.commands)


def displacement(fix: Fix) -> str:
    """``4.2 GPU-hours lost and 16 GPU-hours later``; empty where it costs others nothing."""
    parts: list[str] = []
    if fix.cost_gpu_s:
        parts.append(f"{gpu_hours(fix.cost_gpu_s)} lost")
    if fix.delayed_gpu_s:
        parts.append(f"{gpu_hours(fix.delayed_gpu_s)} later")
    return " and ".join(parts)


def cost_text(fix: Fix) -> str:
    """``Costs others 4.2 GPU-hours lost; starts in 2 min; its own work takes 1.06 times as long.``"""
    costs = f"Costs others {displacement(fix) or 'nothing'}"
    starts = "its start is not known" if fix.starts_in_s == float("inf") else f"starts in {span(fix.starts_in_s)}"
    if not fix.starts_in_s:
        starts = "starts at once"
    own = f"; its own work takes {fix.slowdown:.2f} times as long" if fix.slowdown and fix.slowdown > 1.005 else ""
    return f"{costs}; {starts}{own}."


Told = Callable[[View, Fix], Iterator[str]]


def _systems(source: str) -> list[tuple[str, Told]]:
    """The systems that a snapshot may be of, by where it comes from."""
    kind = source.partition(":")[0]
    if kind in ("kubernetes", "kubectl"):
        return [("Kubernetes", _kubernetes)]
    if kind == "slurm":
        return [("Slurm", _slurm)]
    return [("Kubernetes", _kubernetes), ("Slurm", _slurm)]


def _kubernetes(view: View, fix: Fix) -> Iterator[str]:
    kind = view.snapshot.source.partition(":")[0]
    read = kind in ("kubernetes", "kubectl")  # then it is known whether anything of Kueue is there
    hand = kubernetes.Hand(view, pods=kind == "kubectl", kueue=not read or bool(view.snapshot.local_queues))
    for change in in_order(fix.changes):
        yield from hand.commands(change)
    yield from hand.afterwards()


def _slurm(view: View, fix: Fix) -> Iterator[str]:
    hand = slurm.Hand(view)
    for change in in_order(fix.changes):
        yield from hand.commands(change)
    yield from hand.afterwards()


def in_order(changes: tuple[Change, ...]) -> list[Change]:
    """What the gang asks for comes first: then room that others leave cannot be taken by somebody behind it."""
    own: list[Any] = [each for each in changes if isinstance(each, SetJob)]
    stops: list[Any] = [each for each in changes if isinstance(each, (Stop, Move))]
    rest: list[Any] = [each for each in changes if not isinstance(each, (SetJob, Stop, Move))]
    return [*own, *rest, *stops]
