"""The reference of snapshots has every field, and its example is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
from msgspec import Struct

from muster.answers.sources import read_source
from muster.answers.view import View
from muster.model.parallelism import Parallelism
from muster.model.snapshot import Snapshot

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "snapshot.md"


def structs(kind: type[Struct], found: dict[str, type[Struct]]) -> dict[str, type[Struct]]:
    """All structs that a struct holds, itself included."""
    found[kind.__name__] = kind
    todo = list(get_type_hints(kind).values())
    while todo:
        each = todo.pop()
        if isinstance(each, type) and issubclass(each, Struct) and each.__name__ not in found:
            structs(each, found)
        todo += get_args(each)
    return found


KINDS = [kind for kind in structs(Snapshot, {}).values() if kind is not Parallelism]  # those are in run-file.md


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_is_told(kind: type[Struct]) -> None:
    words = set(re.findall(r"`(?:[\w\[\]]+\.)?(\w+)`", PAGE.read_text()))
    assert {each.name for each in msgspec.structs.fields(kind)} - words == set()


def test_the_example_is_a_snapshot(tmp_path: Path) -> None:
    text = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text
    path = tmp_path / "example.yaml"
    path.write_text(text[1])
    snapshot, _ = read_source(str(path))
    assert [each.name for each in snapshot.pending] == ["train"]
    assert list(View(snapshot).starts) == [], "eval stands on its node"
