"""Conditions on facts: what is not known decides nothing, unless the rest decides."""

from __future__ import annotations

from typing import Any

import pytest

from muster.doctor.expressions import facts_in, holds

FACTS: dict[str, Any] = {"gpus.capacity": 8, "gpus.allocatable": 0, "label:a/b": "x", "state": ["DRAIN"]}
CASES = [
    ("gpus.capacity > 0 and gpus.allocatable == 0", True),
    ("gpus.capacity > 0 and not gpus.allocatable", True),
    ("gpus.allocatable > 0", False),
    ("missing > 0", None),
    ("gpus.capacity > 0 or missing > 0", True),
    ("missing > 0 or gpus.capacity > 0", True),
    ("missing > 0 and gpus.allocatable > 0", False),
    ("missing > 0 and gpus.capacity > 0", None),
    ("get('missing', 0) == 0", True),
    ("get('label:a/b') == 'x'", True),
    ("get('label:a/c') == 'x'", None),
    ("known('missing')", False),
    ("'DRAIN' in state", True),
    ("gpus.capacity / 2 == 4", True),
    ("gpus.capacity > 'eight'", None),
    ("0 < gpus.capacity <= 8", True),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_conditions(text: str, expected: bool | None) -> None:
    assert holds(text, FACTS) is expected


@pytest.mark.parametrize("text", ["__import__('os')", "[x for x in y]", "a if b else c", "lambda: 1", "f'{a}'", "a[0]"])
def test_nothing_else_can_be_said(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        holds(text, FACTS)


def test_the_facts_that_a_condition_needs_come_first() -> None:
    assert facts_in("a.b > 0 and get('c', 0) == 0") == ["a.b"]
    assert facts_in("get('c', 0) == 0") == ["c"]
