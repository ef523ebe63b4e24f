"""The output on the page about `muster catalog` is what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster.cli.main import run

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/catalog.md"
SHOWN = re.findall(r"```\n\$ muster ([^\n]*)\n(.+?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(("line", "expected"), SHOWN, ids=[line for line, _ in SHOWN])
def test_output(line: str, expected: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        run(line.split())
    out, err = capfd.readouterr()
    assert out + err == expected


def test_there_is_output_to_test() -> None:
    assert len(SHOWN) > 4
