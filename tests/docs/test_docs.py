"""The docs name commands and options that exist, files that are there, and every policy."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

from muster.cli.main import COMMANDS, main
from muster.policy.registry import POLICIES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_CONSOLE = re.compile(r"^([ \t]*)```console[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^([ \t]*)```.*?^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands_of(text: str) -> list[str]:
    """The ``$ muster ...`` lines of all console blocks, with continued lines joined."""
    found = []
    for match in _CONSOLE.finditer(text):
        lines = match[2].replace("\\\n", " ").splitlines()
        found += [line.strip()[2:] for line in lines if line.strip().startswith("$ muster ")]
    return found


def check_command(line: str) -> None:
    """Let click parse the line down to its last subcommand; nothing is run. Raises `click.ClickException`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words = []
    for word in lexer:
        if set(word) <= set("|;&<>()"):
            break
        words.append(word)
    command: click.Command = main
    name, args, parent = words[0], words[1:], None
    while True:
        try:
            context = command.make_context(name, list(args), parent=parent)
        except click.exceptions.Exit:  # --help and --version
            return
        if not isinstance(command, click.Group):
            return
        rest = [*context._protected_args, *context.args]
        if command.invoke_without_command and not rest:
            return
        name, found, args = command.resolve_command(context, rest)
        assert found is not None
        command, parent = found, context


CASES = [
    pytest.param(line, id=f"{page.relative_to(ROOT)}: {line}")
    for page in PAGES
    for line in commands_of(page.read_text())
]


@pytest.mark.parametrize("line", CASES)
def test_the_command_exists_with_its_options(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    word = shlex.split(line, comments=True)[1]
    if word in COMMANDS and importlib.util.find_spec(COMMANDS[word][0]) is None:
        pytest.skip(f"{COMMANDS[word][0]} is not written yet")
    check_command(line)


def test_a_wrong_option_or_command_is_found() -> None:
    with pytest.raises(click.ClickException):
        check_command("muster trace info --no-such-option x")
    with pytest.raises(click.ClickException):
        check_command("muster trace no-such-command")
    assert len(CASES) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_resolve(page: Path) -> None:
    text = _FENCED.sub("", page.read_text())
    links = [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:|#", link)]
    missing = [link for link in links if not (page.parent / link.split("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_has_its_section(name: str) -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/reference/policies.md").read_text(), re.MULTILINE)
    assert name in headings
