"""A verdict as a page that is read in a minute, and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from muster.cli.output import emit_document, tell

if TYPE_CHECKING:
    from muster.doctor.verdict import Finding, Shown, Verdict

SCHEMA = "muster.doctor/v1"
MOST_LINES = 2
"""Lines quoted of each signal."""


def emit_verdict(verdict: Verdict, output: str) -> None:
    """Print a verdict: as a page, or as json or yaml with a schema version."""
    if output in ("json", "yaml"):
        import msgspec

        emit_document({"schema": SCHEMA, **msgspec.to_builtins(verdict)}, output)
        return
    where = f" of {verdict.node}" if verdict.node else ""
    if not verdict.findings and not verdict.unexplained:
        tell(f"Nothing is wrong in what was seen{where}: {', '.join(verdict.seen)}.")
    for number, finding in enumerate(verdict.findings, 1):
        if number > 1:
            click.echo()
        _finding(finding, number, len(verdict.findings), where)
    if verdict.unexplained:
        click.echo()
        tell("Not explained by that:")
        _signals(verdict.unexplained)
    if verdict.healthy:
        click.echo()
        tell("Healthy, so no need to look there:")
        for each in verdict.healthy:
            tell(f"  {each.layer}: {'; '.join(each.says)}")
    if verdict.next:
        click.echo()
        tell("Next, what would separate best what is left:")
        several = len(verdict.findings) > 1
        numbers = {each.id: f" ({at})" for at, each in enumerate(verdict.findings, 1) if several}
        for at, advice in enumerate(verdict.next):
            place = {"node": "   (on the node)", "pod": "   (in the pod)"}.get(advice.command.where, "")
            tell(f"  {at + 1}. {advice.command.run}{place}")
            if len(advice.between) > 1:
                first, *rest = [f"{cause}{numbers.get(cause, '')}" for cause in advice.between]
                tell(f"     tells {first} from {', '.join(rest)}")
    for note in verdict.notes:
        tell(f"({note})")


def _finding(finding: Finding, number: int, of: int, where: str) -> None:
    sure = {"certain": "Certain", "likely": "Likely", "possible": "Possible"}[finding.called]
    head = f"{number}. " if of > 1 else ""
    sure = f"Besides, {sure.lower()}" if finding.besides else sure
    tell(f"{head}{sure} ({100 * finding.share:.0f} %), layer {finding.layer}{where}: {finding.cause}")
    if number > 1 and finding.called == "possible":
        shown = "; ".join(each.says for each in finding.supports) or "nothing seen speaks for it"
        tell(f"   {shown}")
        return
    if finding.why:
        tell(f"   {finding.why}")
    _signals(finding.supports)
    if finding.contradicts:
        tell("   Against it:")
        _signals(finding.contradicts)
    tell("   Fix:")
    for step in finding.fix:
        tell(f"     {step}")
    tell(f"   Risk: {finding.risk}  Source: {finding.source}.")


def _signals(signals: Sequence[Shown]) -> None:
    for each in signals:
        times = f" ({each.count} lines)" if each.count > MOST_LINES else ""
        tell(f"   - {each.says}{times}")
        for quote in each.quotes[:MOST_LINES]:
            tell(f"       {quote.file}:{quote.line}: {' '.join(quote.text.split())[:160]}")
