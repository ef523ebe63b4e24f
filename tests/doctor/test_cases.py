"""Public reports as evidence: the right cause first; with any part of it missing never a wrong one called certain."""

from __future__ import annotations

import pytest
from tests.doctor.cases import Case, joined, load_cases, subsets

from muster.doctor.judge import decide, explain
from muster.doctor.pile import read_pile, read_text
from muster.doctor.rules import load_rules
from muster.doctor.verdict import judge

CASES = load_cases()
WANTED = 0.95
"""Share of the parts of the evidence that show a fault in which the true cause is among the first three."""


def of_case(case: Case) -> str:
    """The name that pytest prints."""
    return case.name


@pytest.mark.parametrize("case", CASES, ids=of_case)
def test_whole_evidence_names_the_cause(case: Case) -> None:
    verdict = judge(read_pile([str(path) for path in case.files]))
    assert verdict.findings[0].id == case.cause
    assert verdict.findings[0].called in ("certain", "likely")
    assert all(shown.quotes for shown in verdict.findings[0].supports), "each sign is quoted by line"


@pytest.mark.parametrize("case", [case for case in CASES if case.without], ids=of_case)
def test_missing_piece_is_asked_for(case: Case) -> None:
    for name, kind in case.without.items():
        verdict = judge(read_pile([str(path) for path in case.files if path.name != name]))
        if verdict.findings and verdict.findings[0].called == "certain":
            continue  # the rest is proof enough
        assert kind in [advice.command.kind for advice in verdict.next], f"without {name}"


def test_every_part_of_the_evidence() -> None:
    """Less evidence makes the verdict less certain, never certain of what is wrong."""
    told = found = 0
    for case in CASES:
        for names, ranked in subsets(case):
            wrong = [each.cause.id for each in ranked if each.called == "certain"]
            assert set(wrong) <= {case.cause, *case.also}, f"{case.name}, of {names} alone"
            told += bool(ranked)
            found += case.cause in [each.cause.id for each in ranked[:3]]
    assert found / told >= WANTED, f"{found} of {told}"


def test_cut_logs() -> None:
    """With any one piece cut in half, its head or its tail left, no wrong cause is called certain."""
    rules = load_rules()
    for case in CASES:
        texts = {path.name: path.read_text() for path in case.files}
        whole = {name: read_text(text, name) for name, text in texts.items()}
        for name, text in texts.items():
            lines = text.split("\n")
            for part in (lines[: len(lines) // 2], lines[len(lines) // 2 :]):
                evidence = joined([*(each for key, each in whole.items() if key != name), read_text("\n".join(part))])
                ranked = explain(rules, decide(rules, evidence))
                certain = {each.cause.id for each in ranked if each.called == "certain"}
                assert certain <= {case.cause, *case.also}, f"{case.name} with {name} cut"


def test_cases_are_what_they_say() -> None:
    causes = {cause.id for cause in load_rules().causes}
    kinds = set(load_rules().commands)
    assert len(CASES) >= 20
    for case in CASES:
        assert {case.cause, *case.also} <= causes
        assert set(case.without) <= {path.name for path in case.files}
        assert set(case.without.values()) <= kinds
