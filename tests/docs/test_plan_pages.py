"""Each planner has its page, worked by the code as it is, its picture where it draws one, and its how-to."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from muster.cli.plan import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PLANNERS = [name for name in COMMANDS if name != "hybrid"]
PAGES = sorted(page for page in DOCS.rglob("*.md") if "<!-- worked: " in page.read_text())


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worked", ROOT / "dev" / "worked.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_is_what_the_code_works_out(page: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # commands name files of examples/
    text = page.read_text()
    assert tool.worked(text) == text, f"run: python dev/worked.py {page.relative_to(ROOT)}"
    for name, svg in tool.pictures(text).items():
        assert (DOCS / "assets" / name).read_text() == svg, name
        assert name in tool.DRAWN.sub("", text), f"{name} is drawn and not shown"


@pytest.mark.parametrize("planner", PLANNERS)
def test_each_planner_has_its_pages(planner: str) -> None:
    explained = (DOCS / "explanation" / f"plan-{planner}.md").read_text()
    assert f"<!-- worked: muster plan {planner}" in explained
    assert f"muster plan {planner} " in (DOCS / "how-to" / f"plan-{planner}.md").read_text()


def test_a_page_that_drifted_is_found(tool: ModuleType) -> None:
    text = "<!-- worked: muster plan checkpoint --nodes 64 -->\nold\n<!-- /worked -->\n"
    assert "64" in tool.worked(text)
    assert tool.worked(text) != text


def test_the_list_of_planners_is_whole() -> None:
    listed = re.findall(r"^\| ([a-z]+) \| ", (DOCS / "reference" / "plan.md").read_text(), re.MULTILINE)
    assert [name for name in listed if name in COMMANDS] == sorted(COMMANDS)


def test_the_library_does_what_its_page_says() -> None:
    block = re.search(r"```python\n(.*?)```", (DOCS / "reference" / "plan.md").read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)
    assert names["found"].results[0].name == "save every"
