"""What the pages on scripts and configurations of Slurm show is what their commands print; every rule is listed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from muster.cli.main import run
from muster.slurm.config.check import RULES
from muster.slurm.lint import rules

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINT = (DOCS / "how-to" / "slurm-lint.md").read_text()
CONFIG = (DOCS / "how-to" / "slurm-config.md").read_text()
REFERENCE = (DOCS / "reference" / "slurm-rules.md").read_text()


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def shown(text: str) -> list[tuple[str, str]]:
    """Commands that have an output on the page, with it."""
    found = [block.partition("\n") for block in blocks(text, "console")]
    return [(command, out) for command, _, out in found if out and not out.startswith("$ ")]


@pytest.mark.parametrize("text", [LINT, CONFIG], ids=["lint", "config"])
def test_the_page_shows_what_its_command_prints(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "etc").mkdir()
    for name, content in zip(("etc/slurm.conf", "etc/gres.conf"), blocks(text, "ini"), strict=False):
        Path(name).write_text(content)
    for content in blocks(text, "bash")[:1]:
        Path("job.sh").write_text(content)
    ((command, out),) = shown(text)
    with pytest.raises(SystemExit) as ended:
        run(shlex.split(command)[2:])
    assert capfd.readouterr().out == out
    assert ended.value.code == 1


@pytest.mark.parametrize("rule", [*rules(), *RULES], ids=lambda rule: str(rule.name))
def test_the_reference_has_every_rule_with_its_source(rule: object) -> None:
    name, severity, about, source = (getattr(rule, key) for key in ("name", "severity", "about", "source"))
    assert f"| `{name}` | {severity} | {about} | {source} |\n" in REFERENCE


def test_the_reference_has_no_other_rules() -> None:
    assert len(re.findall(r"^\| `", REFERENCE, re.MULTILINE)) == len(rules()) + len(RULES)
