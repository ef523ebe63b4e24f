"""What holds of every planner: its declaration, its defaults, its errors, its documents."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

import pytest
from click.testing import CliRunner

from muster.cli.main import main, run
from muster.cli.plan import COMMANDS
from muster.planning.derivation import Derivation
from muster.planning.quantities import BYTES, RATE, SHARE
from muster.planning.question import Field, Question, derive, fields_of

NAMES = [name for name in COMMANDS if name != "hybrid"]


def planner_of(name: str) -> type[Question]:
    module = importlib.import_module(f"muster.planning.plans.{name}")
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Question) and each is not Question and each.planner == name
    ]
    assert len(found) == 1, f"{module.__name__} has {len(found)} questions named {name}"
    return found[0]


def defaults_of(name: str) -> Derivation:
    planner = planner_of(name)
    missing = [field for field in fields_of(planner) if field.required]
    assert not missing, f"{name} answers nothing by default: {[field.option for field in missing]} have no default"
    return derive(planner())


@pytest.mark.parametrize("name", NAMES)
def test_the_declaration_is_whole(name: str) -> None:
    fields = fields_of(planner_of(name))
    symbols = [field.ask.symbol for field in fields if field.ask.symbol]
    assert len(set(symbols)) == len(symbols)
    assert len({field.option for field in fields}) == len(fields)
    for field in fields:
        assert field.ask.name, field.option
        if field.ask.kind is not None:
            assert field.ask.usual, f"{field.option} tells no usual range"
            assert field.ask.least <= field.ask.most


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_answer(name: str) -> None:
    found = defaults_of(name)
    assert found.planner == name
    assert found.answer
    assert found.formula
    assert found.source
    assert found.steps
    assert found.results
    assert found.fails_when
    assert found.todo
    numbers = [each.value for each in (*found.steps, *found.results) if not isinstance(each.value, str)]
    assert not any(math.isnan(value) for value in numbers)
    assert found.sensitivity
    assert any(each.value != found.results[0].value for each in found.sensitivity), "nothing that is put in matters"
    for table in found.tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title


@pytest.mark.parametrize("name", NAMES)
def test_the_same_question_has_the_same_answer(name: str) -> None:
    assert defaults_of(name) == defaults_of(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_document_is_json_with_every_input(name: str) -> None:
    done = CliRunner().invoke(main, ["plan", name, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schema"] == "muster.plan/v1"
    assert [each["option"] for each in document["inputs"]] == [field.option for field in fields_of(planner_of(name))]
    assert {each["origin"] for each in document["inputs"]} == {"default"}


def lines_of_mistakes() -> list[Any]:
    """A word, a number beyond the bounds and a missing unit, where they are mistakes."""
    found: list[Any] = []
    for name in NAMES:
        for field in fields_of(planner_of(name)):
            found += [pytest.param(name, field, text, id=f"{name} {field.option}={text}") for text in mistakes(field)]
    return found


def mistakes(field: Field) -> list[str]:
    kind = field.ask.kind
    if kind is None or isinstance(field.default, bool):
        return []
    texts = ["rubbish", "nan", "-1" if field.ask.least >= 0 else str(field.ask.least - 1)]
    if kind in (BYTES, RATE):
        texts += ["80G", "80"]
    if kind is SHARE and field.ask.most <= 1:
        texts += ["120%"]
    return texts


@pytest.mark.parametrize(("name", "field", "text"), lines_of_mistakes())
def test_a_mistake_is_one_line_that_names_the_option(
    name: str, field: Field, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["plan", name, field.option, text])
    told = capfd.readouterr()
    assert caught.value.code == 2
    assert not told.out
    assert len(told.err.splitlines()) == 1
    assert field.option in told.err


@pytest.mark.parametrize("name", NAMES)
def test_the_page_fits_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for words in (["plan", name], ["plan", name, "--help"]):
        done = CliRunner().invoke(main, words, catch_exceptions=False)
        assert done.exit_code == 0
        assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_every_source_of_data_is_there_and_refuses_what_is_not(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Sources name their reader by text: each must be importable, and tell a file that is not there in one line."""
    command = importlib.import_module(f"muster.cli.plan.{name}").command
    declared = {field.option for field in fields_of(planner_of(name))}
    own = [each.opts[0] for each in command.params if each.opts[0] not in declared]
    sources = [each for each in own if each in ("--from", "--requests", "--cells", "--prices")]
    for option in sources:
        with pytest.raises(SystemExit) as caught:
            run(["plan", name, option, "nowhere/it.csv", *(["--per-gpu", "1/s"] if option == "--requests" else [])])
        told = capfd.readouterr()
        assert caught.value.code == 2, (option, told.err)
        assert "nowhere/it.csv" in told.err
    for option in set(own) & {"--sku", "--per-gpu"}:
        with pytest.raises(SystemExit) as caught:
            run(["plan", name, option, "1/s"])
        assert caught.value.code == 2
        assert "says nothing by itself" in capfd.readouterr().err
