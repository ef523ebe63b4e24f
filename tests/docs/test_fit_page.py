"""What the how-to of `muster fit` shows is what its commands print; the reference names all kinds and options."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from muster.answers.specs.kubernetes import READERS
from muster.answers.specs.sbatch import NOTES
from muster.cli.main import run
from muster.slurm.sbatch_lines import READ

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOW_TO = (DOCS / "how-to" / "will-it-fit.md").read_text()
REFERENCE = (DOCS / "reference" / "specs.md").read_text()


def blocks(kind: str) -> list[str]:
    """The fenced blocks of a kind, without their indentation."""
    found = re.findall(rf"^( *)```{kind}\n(.*?)^\1```", HOW_TO, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in found]


def test_the_how_to_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name, text in zip(("cluster.yaml", "llama.yaml"), blocks("yaml"), strict=True):
        Path(name).write_text(text)
    Path("train.sbatch").write_text(blocks("bash")[0])
    shown = [block.partition("\n") for block in blocks("console")]
    asked = [(command, text) for command, _, text in shown if text]
    assert len(asked) == 3
    for command, text in asked:
        with pytest.raises(SystemExit) as ended:
            run(shlex.split(command)[2:])
        out, err = capfd.readouterr()
        # which changes are found is for tests of the fixes; that they are told is shown here
        before, *changes = (out + err).split("\nchange of the work")
        assert before == text.split("\nchange of the work")[0]
        assert bool(changes) == ("--explain" in command)
        assert ended.value.code == (0 if text.startswith("Yes") else 1)


@pytest.mark.parametrize("kind", READERS)
def test_the_reference_names_each_kind(kind: str) -> None:
    assert re.search(rf"\b{kind}\b", REFERENCE.partition("## Of a pod")[0])


@pytest.mark.parametrize("option", [option for option in READ if option not in (*NOTES, "comment", "job-name", "qos")])
def test_the_reference_names_each_option(option: str) -> None:
    assert f"`--{option}" in REFERENCE
