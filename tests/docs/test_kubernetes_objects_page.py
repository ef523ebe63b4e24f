"""The page on Kubernetes objects has all kinds, levels and labels that are read."""

from __future__ import annotations

from pathlib import Path

from muster.kube.claims import QUEUE_LABELS
from muster.kube.kinds import STRUCTS
from muster.kube.nodes import LEVEL_LABELS, PURCHASE_LABELS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "kubernetes-objects.md").read_text()


def test_all_kinds_are_there() -> None:
    all_kinds = PAGE.partition("## All kinds")[2]
    assert [kind.name for kind in STRUCTS if f"`{kind.name}`" not in all_kinds] == []


def test_all_labels_are_there() -> None:
    levels = [label for level, labels in LEVEL_LABELS if level != "zone" for label in labels]
    told = [*levels, *(label for label, _ in PURCHASE_LABELS), *(label for _, label in QUEUE_LABELS)]
    assert [label for label in told if f"`{label}`" not in PAGE] == []
