"""Imports between the rooms of the package point one way, as CONTRIBUTING.md draws it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "muster"

ORDER = (
    ("cli",),
    ("service", "report"),
    ("answers",),
    ("backends",),
    ("sim",),
    ("planning", "doctor"),
    ("traces",),
    ("kube", "slurm"),
    ("engine",),
    ("policy", "cache"),
    ("model", "catalog", "kernels"),
    ("errors",),
)
"""A room may import those after its own group, and nothing of its group or before. A new room is entered here."""

PURE = ("engine", "policy", "model")
"""Rooms that know no clock, no network, no random numbers of their own and no logging."""
IMPURE = ("time", "datetime", "random", "secrets", "socket", "logging", "subprocess", "urllib", "http", "asyncio")

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Dotted names of the modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            found.update(
                [f"muster.{alias.name}" for alias in node.names] if node.module == "muster" else [node.module or ""]
            )
    return found


def wrong(path: Path, imported: set[str]) -> list[str]:
    """The imports that point the wrong way."""
    level = {room: number for number, group in enumerate(ORDER) for room in group}
    own = room_of(path)
    rooms = {name: name.split(".")[1] for name in imported if name.startswith("muster.")}
    return sorted(
        name
        for name, room in rooms.items()
        if room not in (own, "__version__") and (room not in level or level[room] <= level[own])
    )


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_one_way(path: Path) -> None:
    if path.name == "__init__.py" and len(path.parts) == 1:
        assert not wrong(Path("errors.py"), imports(path))  # the package itself imports no room
        return
    assert room_of(path) in {room for group in ORDER for room in group}, f"{room_of(path)} has no place in ORDER"
    assert wrong(path, imports(path)) == []


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in PURE], ids=str)
def test_the_core_is_pure(path: Path) -> None:
    assert {name for name in imports(path) if name.split(".")[0] in IMPURE} == set()


def test_numba_is_known_in_one_place() -> None:
    assert [str(path) for path in FILES if any(name.split(".")[0] == "numba" for name in imports(path))] == [
        "kernels.py"
    ]


def test_a_wrong_import_is_found() -> None:
    assert wrong(Path("policy/x.py"), {"muster.engine.state", "muster.model.fleet", "numpy"}) == ["muster.engine.state"]
    assert wrong(Path("engine/x.py"), {"muster.traces", "muster.nowhere"}) == ["muster.nowhere", "muster.traces"]


def test_contributing_draws_this_order() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    drawn = re.search(r"^Imports point one way: (.+?)\.$", text, re.MULTILINE)
    assert drawn
    assert drawn[1] == " → ".join(", ".join(group) for group in ORDER)
    rooms = {
        Path(path).name.removesuffix(".py")
        for path in re.findall(r"^\| `src/muster/([^`]+?)/?` \|", text, re.MULTILINE)
    }
    assert rooms == {room for group in ORDER for room in group}
