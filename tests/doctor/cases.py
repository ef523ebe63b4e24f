"""The cases: public reports, rebuilt as evidence; and what becomes of a verdict when pieces of it are missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from muster.doctor.evidence import Evidence
from muster.doctor.judge import Ranked, decide, explain
from muster.doctor.pile import read_pile
from muster.doctor.rules import Rules, load_rules

FOLDER = Path(__file__).parent / "cases"


class Case(Struct, frozen=True):
    """A report: its evidence, the true cause, others that are true too, and what a missing piece must be sent for."""

    name: str
    report: str
    cause: str
    files: tuple[Path, ...]
    also: tuple[str, ...] = ()
    without: dict[str, str] = {}


def load_cases() -> list[Case]:
    """All of them, by name."""
    found: list[Case] = []
    for folder in sorted(FOLDER.iterdir()):
        said: dict[str, Any] = msgspec.yaml.decode((folder / "case.yaml").read_bytes())
        files = tuple(sorted(each for each in folder.iterdir() if each.name != "case.yaml"))
        found.append(
            Case(
                folder.name, said["report"], said["cause"], files, tuple(said.get("also") or ()),
                said.get("without") or {},
            )
        )  # fmt: skip
    return found


def joined(parts: list[Evidence]) -> Evidence:
    """Evidence of several files, as if they had been read together."""
    whole = Evidence()
    for part in parts:
        whole.pieces.extend(part.pieces)
        for key, facts in part.facts.items():
            whole.facts.setdefault(key, []).extend(facts)
        for name, sighting in part.lines.items():
            for quote in sighting.quotes:
                whole.lines.setdefault(name, type(sighting)()).add(quote)
    return whole


def subsets(case: Case, rules: Rules | None = None) -> Iterator[tuple[tuple[str, ...], list[Ranked]]]:
    """Each part of the evidence that is not empty, with the causes as they are ranked by it."""
    rules = rules or load_rules()
    read = {path.name: read_pile([str(path)]) for path in case.files}
    for count in range(1, len(read) + 1):
        for names in combinations(sorted(read), count):
            yield names, explain(rules, decide(rules, joined([read[name] for name in names])))
