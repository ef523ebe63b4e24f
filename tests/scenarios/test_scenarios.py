"""All scenario files hold, and the reader refuses what it does not understand."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent


def _load(name: str) -> ModuleType:
    """A neighbour by its path: test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"scenarios_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = _load("runner")
FILES = sorted(HERE.glob("*/*.txt"))
READ = {path: runner.load(path) for path in FILES}
SECTIONS = [
    pytest.param(path, at, id=f"{path.stem}-{section.name}")
    for path, scenario in READ.items()
    for at, section in enumerate(scenario.sections)
]


@pytest.mark.parametrize(("path", "at"), SECTIONS)
def test_the_scenario_holds(path: Path, at: int) -> None:
    scenario = READ[path]
    runner.check_warnings(scenario)
    runner.run_section(scenario, scenario.sections[at])


def test_the_page_names_every_scenario_and_no_other() -> None:
    page = (HERE.parents[1] / "docs" / "reference" / "pains.md").read_text()
    assert set(re.findall(r"`(\d\d_\w+)`", page)) == {path.stem for path in FILES if path.parent.name == "pains"}
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == set(range(1, 26))


GOOD = """\
fleet 2 x 8 H100
preset muster
at 0: submit a 2x8 limit=1h; submit b 1x8
expect +a, b@1h, b:CAPACITY
where a: n00 n01
at 10: nothing
expect nothing
"""


def run_text(text: str) -> None:
    scenario = runner.read_scenario("x.txt", text)
    runner.check_warnings(scenario)
    for section in scenario.sections:
        runner.run_section(scenario, section)


def test_a_scenario_that_holds() -> None:
    run_text(GOOD)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("fleet 2 x 8 H100", "fleet 2 of 8", "x.txt:1: a fleet is such as"),
        ("fleet 2 x 8 H100\n", "", "x.txt:1: the fleet comes first"),
        ("preset muster", "preset mustard", "x.txt:2: preset 'mustard' says nothing"),
        ("preset muster", "preset naive: queueing=lifo", "x.txt:2: Invalid enum value 'lifo'"),
        ("preset muster", "preset naive: queue=strict", "x.txt:2: 'queue=strict' is unknown"),
        ("preset muster", "queue a: nominal=x\npreset muster", "x.txt:2: 'nominal=x' makes no sense"),
        ("submit b 1x8", "submit b 1x8 color=red", "x.txt:3: 'color=red' is unknown"),
        ("submit b 1x8", "submit b eight", "x.txt:3: 'eight' is no size"),
        ("submit b 1x8", "explode b", "x.txt:3: 'explode b' is no event"),
        ("at 0:", "at noon:", "x.txt:3: 'noon' is no time"),
        ("at 10:", "at 10: finish a\nexpect nothing\nat 9:", "x.txt:8: a round is such as: .* time does not go back"),
        ("b:CAPACITY", "b:BECAUSE", "x.txt:4: 'BECAUSE' is no reason"),
        ("+a,", "a,", "x.txt:4: 'a' cannot be expected"),
        ("+a,", "+a:QUOTA,", "x.txt:4: '\\+a:QUOTA' cannot be expected"),
        ("where a", "whence a", "x.txt:5: 'whence' is not understood here"),
        ("at 10: nothing", "at 10: finish a", "x.txt:6: in the last round nothing happens"),
        ("expect nothing\n", "", "x.txt:2: preset muster needs two rounds or more"),
        # what is read and does not hold
        ("b@1h", "b@2h", r"x.txt:4: under muster at 0\n  expected \+a, b@7200.*\n  got      \+a, b@3600"),
        ("expect +a, b@1h, b:CAPACITY", "expect nothing", "x.txt:4: under muster"),
        ("where a: n00 n01", "where a: n01 n00", "x.txt:5: a stands on n00 n01"),
        ("at 10: nothing", "at 10: finish c\nexpect +b\nat 10: nothing", "x.txt:6: 'c'"),
        ("preset muster", "warns of fire\npreset muster", "x.txt:2: nobody is warned so"),
        ("preset muster", "queue a: nominal=99\npreset muster", "x.txt: is also warned of"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_file_and_line(old: str, new: str, says: str) -> None:
    assert GOOD.count(old) >= 1
    with pytest.raises(runner.ScenarioError, match=says):
        run_text(GOOD.replace(old, new, 1))
