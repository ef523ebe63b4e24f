"""Pages with arithmetic worked by the code itself, so that text and code cannot drift apart.

In a page of docs/ a block between two comments is what a command prints, and a picture is what it draws:

    <!-- worked: muster plan checkpoint --nodes 256 -->
    (what it prints with -o markdown)
    <!-- /worked -->
    <!-- drawn: plan-checkpoint.svg: muster plan checkpoint --nodes 256 -->

`python dev/worked.py` writes them anew, in all pages or in those named; a test compares them.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ASSETS = DOCS / "assets"
WORKED = re.compile(r"<!-- worked: (muster [^\n]*?) -->\n.*?<!-- /worked -->", re.DOTALL)
DRAWN = re.compile(r"<!-- drawn: ([\w.-]+\.svg): (muster [^\n]*?) -->")


def printed(line: str) -> str:
    """What a command prints as Markdown; raises RuntimeError if it fails."""
    return _run([*shlex.split(line)[1:], "-o", "markdown"])


def drawn(line: str) -> str:
    """The SVG that a command draws."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "it.svg"
        _run([*shlex.split(line)[1:], "--no-sensitivity", "--plot", str(target)])
        return target.read_text()


def _run(words: list[str]) -> str:
    from muster.cli.main import main

    done = CliRunner().invoke(main, words, catch_exceptions=False)
    if done.exit_code:
        raise RuntimeError(f"muster {shlex.join(words)}: {done.output}")
    return done.stdout


def worked(text: str) -> str:
    """A page with its blocks written anew."""
    return WORKED.sub(
        lambda found: f"<!-- worked: {found[1]} -->\n{printed(found[1])}<!-- /worked -->", text
    )  # fmt: skip


def pictures(text: str) -> dict[str, str]:
    """File name to SVG of the pictures that a page asks for."""
    return {name: drawn(line) for name, line in DRAWN.findall(text)}


def main(names: list[str]) -> None:
    """Write pages and pictures."""
    pages = [Path(name) for name in names] or sorted(DOCS.rglob("*.md"))
    for page in pages:
        text = page.read_text()
        if not WORKED.search(text) and not DRAWN.search(text):
            continue
        page.write_text(worked(text))
        for name, svg in pictures(text).items():
            (ASSETS / name).write_text(svg)
        print(page)


if __name__ == "__main__":
    main(sys.argv[1:])
