"""The page about moving to DRA shows what the command says of the example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "move-to-dra.md"


def test_the_page_shows_what_the_command_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = re.search(r"^\$ muster (k8s dra-check --from examples/\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert shown
    result = CliRunner().invoke(main, shown[1].split())
    assert result.stdout == shown[2]
    assert result.exit_code == 1
