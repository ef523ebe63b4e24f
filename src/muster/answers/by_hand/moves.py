"""Moves as commands: the nodes that are to become free take nothing new meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.answers.by_hand import kubernetes, slurm
from muster.answers.by_hand.quoting import quoted
from muster.answers.changes import Move
from muster.answers.view import View
from muster.slurm.hostlist import compress


def kubernetes_moves(view: View, moves: Sequence[Move], left: Sequence[str]) -> Iterator[str]:
    """For kubectl; ``left`` are the nodes that something leaves."""
    hand = kubernetes.Hand(view, pods=view.snapshot.source.startswith("kubectl:"))
    nodes = " ".join(map(quoted, left))
    yield f"kubectl cordon {nodes}"
    for each in moves:
        yield from hand.commands(each)
    yield f"# when all of them run again: kubectl uncordon {nodes}"


def slurm_moves(view: View, moves: Sequence[Move], left: Sequence[str], target: str) -> Iterator[str]:
    """For Slurm; ``target`` is what room is made for."""
    hand = slurm.Hand(view)
    hosts = quoted(compress(left))
    yield f"scontrol update NodeName={hosts} State=DRAIN Reason={quoted(f'room for {target}')}"
    for each in moves:
        yield from hand.commands(each)
    yield f"# when all of them run again: scontrol update NodeName={hosts} State=RESUME"
