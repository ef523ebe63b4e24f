"""`make docs` fails on what mkdocs warns of: it is the gate that `.ci/run` goes through."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "# Home\n\n[There](there.md).\n"


def make_docs(folder: Path, page: str) -> subprocess.CompletedProcess[str]:
    """`make docs` in a project with one page, with our Makefile and mkdocs' settings (but for the nav)."""
    shutil.copy(ROOT / "Makefile", folder)
    settings = (ROOT / "mkdocs.yml").read_text()
    (folder / "mkdocs.yml").write_text(settings[: settings.index("nav:")])
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "index.md").write_text(page)
    (folder / "docs" / "there.md").write_text("# There\n")
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(sys.prefix)
    line = ["make", "-o", ".venv/.installed", "docs"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(not (Path(sys.prefix) / "bin" / "mkdocs").exists(), reason="mkdocs is not in this environment")
def test_a_broken_link_fails(tmp_path: Path) -> None:
    done = make_docs(tmp_path, PAGE)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
    for broken in (PAGE.replace("there.md", "nowhere.md"), PAGE.replace("there.md", "there.md#no-such-heading")):
        done = make_docs(tmp_path, broken)
        assert done.returncode != 0
        assert "nowhere.md" in done.stderr or "no-such-heading" in done.stderr


def test_the_gate_goes_through_it() -> None:
    assert "step make docs" in (ROOT / ".ci" / "run").read_text()
