"""The ordering policies by name. A policy is one file with a class, and one entry here."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from msgspec import Struct

from muster.errors import InputError
from muster.policy.ordering.decayed_fair_share import DecayedFairShare
from muster.policy.ordering.drf import DominantResourceFairness
from muster.policy.ordering.fifo import Fifo
from muster.policy.ordering.protocol import OrderingPolicy
from muster.policy.ordering.slurm_classic import SlurmClassic
from muster.policy.ordering.slurm_fair_tree import SlurmFairTree

DEFAULT_ORDERING = DecayedFairShare.name


class OrderingEntry(Struct, frozen=True):
    """A name, how to make the policy with its defaults, and one line for help and docs."""

    name: str
    make: Callable[[], OrderingPolicy]
    summary: str


ORDERINGS = {
    entry.name: entry
    for entry in (
        OrderingEntry(Fifo.name, Fifo, "arrival only"),
        OrderingEntry(
            DominantResourceFairness.name, DominantResourceFairness, "least weighted dominant share of what runs now"
        ),
        OrderingEntry(
            DecayedFairShare.name, DecayedFairShare, "least decayed use and running share over weight; the default"
        ),
        OrderingEntry(SlurmClassic.name, SlurmClassic, "Slurm's fair-share factor before Fair Tree"),
        OrderingEntry(SlurmFairTree.name, SlurmFairTree, "Slurm's default since 19.05: users ranked by Fair Tree"),
    )
}


def find_ordering(name: str) -> OrderingPolicy:
    """The ordering policy called ``name``, with its defaults; raises `InputError` with the nearest names."""
    entry = ORDERINGS.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, ORDERINGS, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise InputError(f"unknown order {name!r}", field="order", hint=f"{hint}known: {', '.join(ORDERINGS)}")
    return entry.make()
