"""Slurm's feature expressions (``--constraint``) over the labels and GPU models of nodes."""

from __future__ import annotations

from collections.abc import Callable

from muster.answers.specs.places import Places, is_model
from muster.errors import InputError
from muster.model.fleet import Node
from muster.slurm.features import feature_test


def feature_mark(places: Places, text: str) -> dict[str, str]:
    """The label of the nodes that an expression such as ``h100&ib|gpu`` takes.

    A node has a feature that is the name of one of its labels, the value of one, or its GPU model.

    Raises:
        InputError: an expression that is not read, or a feature that no node has, which Slurm refuses too.
    """

    def one(token: str) -> Callable[[Node], bool]:
        def has(node: Node) -> bool:
            return any(token in pair for pair in node.labels) or is_model(node, token)

        if not any(map(has, places.nodes)):
            raise InputError(f"no node has a feature {token[:40]!r}", hint="a label, its value, or a GPU model")
        return has

    return places.mark(f"--constraint={text}", feature_test(text, one))
