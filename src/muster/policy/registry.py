"""The policies by name. A policy is one file with a `score` kernel, and one entry here."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.errors import InputError

if TYPE_CHECKING:
    from muster.kernels import Scores

SELECT_FIRST, SELECT_RANDOM = 0, 1


class PolicyEntry(Struct, frozen=True):
    """What the registry knows of a policy.

    Attributes:
        name: as on the command line.
        module: the file, which defines ``score``.
        summary: one line for help and docs.
        needs_typical: whether the engine must give it the typical shapes of the mix.
        selection: how a node is selected among the best.
        needs_tuning: whether it must be fitted to the fleet and the mix first.
    """

    name: str
    module: str
    summary: str
    needs_typical: bool = False
    selection: int = SELECT_FIRST
    needs_tuning: bool = False

    def load_score(self) -> Scores:
        """The policy's compiled score function (compiles or loads it on the first call)."""
        return importlib.import_module(self.module).score


POLICIES = {
    entry.name: entry
    for entry in (
        PolicyEntry("random", "muster.policy.random", "any feasible node", selection=SELECT_RANDOM),
        PolicyEntry("dot-product", "muster.policy.dot_product", "free resources that match the pod least in direction"),
        PolicyEntry("gpu-clustering", "muster.policy.gpu_clustering", "nodes that run pods of the same GPU class"),
        PolicyEntry("gpu-packing", "muster.policy.gpu_packing", "shared GPUs, then used nodes, then empty nodes"),
        PolicyEntry("best-fit", "muster.policy.best_fit", "least CPU and GPU left"),
        PolicyEntry("fgd", "muster.policy.fgd", "least growth of fragments (USENIX ATC'23)", needs_typical=True),
        PolicyEntry("default", "muster.policy.default", "least value lost; fitted to the mix", needs_tuning=True),
    )
}


def find_policy(name: str) -> PolicyEntry:
    """The policy called ``name``; raises `InputError` with the nearest names."""
    entry = POLICIES.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"unknown policy {name!r}", field="policy", hint=f"{hint}known: {', '.join(POLICIES)}")
    return entry
