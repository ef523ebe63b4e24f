"""Lint a script: all rules, and the script with their edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from muster.slurm.lint import binding, launching, limits, memory, options, scatter
from muster.slurm.lint.edits import apply_edits
from muster.slurm.lint.findings import SEVERITIES, Finding, Rule
from muster.slurm.lint.job import Job, read_job
from muster.slurm.lint.look import Look, Shape
from muster.slurm.lint.ranks import Ranks, ranks_of
from muster.slurm.lint.site import Site

_RULES = (
    *options.RULES, *scatter.RULES, *binding.RULES, *memory.RULES, *limits.RULES, *launching.RULES,
)  # fmt: skip
_MOST_ROUNDS = 4
"""Edits may lay open what another rule sees; after so many rounds what is left is left."""


class Lint(Struct, frozen=True):
    """What was found in a script.

    Attributes:
        job: the script and its command line.
        shape: what it gets.
        node_gpus: GPUs of a node, of the site or assumed.
        findings: the worst first, then by line.
        ranks: how each rank finds its GPU.
        corrected: the script that does what was meant; the script itself where nothing is to be changed.
    """

    job: Job
    shape: Shape
    node_gpus: int
    findings: tuple[Finding, ...]
    ranks: tuple[Ranks, ...]
    corrected: str


def rules() -> tuple[Rule, ...]:
    """All rules."""
    return _RULES


def lint(text: str, path: str, command_line: Sequence[str] = (), site: Callable[[Job], Site] | None = None) -> Lint:
    """Look at an sbatch script.

    Args:
        text: the script.
        path: of the script.
        command_line: options that sbatch is given besides.
        site: what the site's configuration says about the job; None: it is not known.

    Raises:
        InputError: an option of the command line is none of sbatch.
    """
    look = _look(text, path, command_line, site)
    found = tuple(_findings(look))
    corrected = apply_edits(look.job, (edit for each in found for edit in each.edits))
    for _ in range(_MOST_ROUNDS):
        again = _look(corrected, path, (), site)
        edits = [edit for each in _findings(again) for edit in each.edits]
        if not edits:
            break
        corrected = apply_edits(again.job, edits)
    ranks = tuple(ranks_of(_look(corrected, path, (), site)))
    return Lint(look.job, look.shape, look.node_gpus, found, ranks, corrected)


def _look(text: str, path: str, command_line: Sequence[str], site: Callable[[Job], Site] | None) -> Look:
    job = read_job(text, path, command_line)
    return Look(job, site(job) if site is not None else None)


def _findings(look: Look) -> Iterator[Finding]:
    found = [
        Finding(
            rule.name, hit.severity or rule.severity, hit.line, hit.what, hit.fix, hit.unsure, rule.source, hit.edits
        )
        for rule in _RULES
        for hit in rule.check(look)
    ]
    order = {name: at for at, name in enumerate(SEVERITIES)}
    yield from sorted(found, key=lambda each: (order[each.severity], each.line if each.line is not None else 10**9))
