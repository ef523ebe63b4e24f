"""Apply edits to a script: options of ``#SBATCH`` lines, lines replaced, added and taken out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from muster.errors import InputError
from muster.slurm.lint.findings import Edit
from muster.slurm.lint.job import Job
from muster.slurm.sbatch_lines import ALONE, Option, read_options

_COMMENT = re.compile(r"\s#.*$")


def apply_edits(job: Job, edits: Iterable[Edit]) -> str:
    """The script with the edits, and with what was on the command line as ``#SBATCH`` lines."""
    text = job.text
    wanted = list(edits)
    if any(edit.kind == "unix" for edit in wanted):
        text = text.replace("\r\n", "\n")
    lines: list[str | None] = list(text.split("\n"))
    before: dict[int, list[str]] = {}
    options = [Edit("set", option.name, option.value) for option in job.given if not option.line]
    last = max((option.line for option in job.given), default=0)
    for edit in wanted:
        at = edit.line - 1
        if edit.kind == "replace" and lines[at] is not None:
            lines[at] = str(lines[at]).replace(edit.old, edit.value, 1)
        elif edit.kind == "delete":
            lines[at] = None
        elif edit.kind == "delete-option":
            lines[at] = _rewritten(str(lines[at]), {edit.name: None})
        elif edit.kind == "before":
            new = before.setdefault(edit.line, [])
            if edit.value not in new:
                new.append(edit.value)
        elif edit.kind in ("set", "drop"):
            options.append(edit)
    changes: dict[str, str | None] = {edit.name: edit.value if edit.kind == "set" else None for edit in options}
    for number in sorted({option.line for option in job.given if option.line and option.name in changes}):
        if lines[number - 1] is None:
            continue
        mine = {name: value for name, value in changes.items() if _counts(job, name, number) or value is None}
        lines[number - 1] = _rewritten(str(lines[number - 1]), mine)
        for name, value in mine.items():
            if value is not None and any(each.name == name and each.line == number for each in job.given):
                changes.pop(name)
    added = [_line(name, value) for name, value in changes.items() if value is not None]
    return "\n".join(_joined(lines, before, added, last))


def _counts(job: Job, name: str, line: int) -> bool:
    """Whether an option of this line is the last of its name in the script."""
    return max((option.line for option in job.given if option.name == name), default=0) == line


def _joined(lines: list[str | None], before: dict[int, list[str]], added: list[str], last: int) -> Iterable[str]:
    """All lines in order: new options behind the last ``#SBATCH`` line, others in front of their lines."""
    if lines and lines[-1] == "" and len(lines) in before:  # what is to be the last line stands before the end of file
        before[len(lines)] = before.pop(len(lines))
    for number, line in enumerate(lines, 1):
        yield from before.pop(number, [])
        if line is not None:
            yield line
        if added and number == max(1, last):
            yield from added
    for more in before.values():
        yield from more


def _line(name: str, value: str | None) -> str:
    return f"#SBATCH {_option(name, value or '')}"


def _option(name: str, value: str) -> str:
    return f"--{name}" if name in ALONE or not value else f"--{name}={shlex.quote(value)}"


def _rewritten(line: str, changes: dict[str, str | None]) -> str | None:
    """An ``#SBATCH`` line with other values; None where nothing is left of it."""
    comment = _COMMENT.search(line[7:])
    kept = comment[0] if comment else ""
    body = line[7 : len(line) - len(kept)] if kept else line[7:]
    try:
        found = read_options(shlex.split(body), "", 0)
    except (InputError, ValueError):
        return line
    if not any(option.name in changes for option in found):
        return line
    words = [_word(option, changes) for option in found if changes.get(option.name, "") is not None]
    return f"#SBATCH {' '.join(words)}{kept}" if words else None


def _word(option: Option, changes: dict[str, str | None]) -> str:
    value = changes.get(option.name, option.value)
    if option.written.startswith("--") or option.name in changes:
        return _option(option.name, value or "")
    return f"{option.written} {shlex.quote(value or '')}" if value else option.written
