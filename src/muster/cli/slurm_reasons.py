"""`muster slurm reasons`: every reason code of Slurm in plain words, with what is to be done about it."""

from __future__ import annotations

import click

from muster.cli.output import Column, emit, emit_document, output_option, tell
from muster.errors import InputError, near

SCHEMA = "muster.slurm-reasons/v1"

EPILOG = """\b
Examples:
  muster slurm reasons                          all of them
  muster slurm reasons ReqNodeNotAvail
  muster slurm reasons Assoc                    those that begin so
  muster slurm reasons QOSMaxGRESPerUser -o json
  squeue -h -j 4711 -o %r | xargs muster slurm reasons

\b
`muster why JOB --cluster slurm` tells the same of a job, and what Muster's own cycle says of it.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("code", required=False)
@output_option
def command(code: str | None, output: str) -> None:
    """Explain why jobs wait, as `squeue` shows it (NODELIST(REASON)): CODE, codes that begin so, or all.

    What Slurm prints behind a code, such as the nodes of ReqNodeNotAvail, may stand there too.
    """
    from muster.slurm.reasons import REASONS, fitted, reason_of

    if code is not None:
        told = reason_of(code)
        if told.known:
            reason = told.reason
            if output in ("json", "yaml"):
                record = {"code": reason.code, "kind": reason.kind.value, "text": reason.text, "fix": reason.fix,
                          "command": fitted(reason.command), "detail": told.detail}  # fmt: skip
                emit_document({"schema": SCHEMA, "reasons": [record]}, output)
                return
            if output == "table":
                tell(f"{reason.code}: {reason.text}  [{reason.kind.value}]")
                if told.detail:
                    tell(f"  Slurm adds: {told.detail}")
                tell(f"  {reason.fix}{f'  {fitted(reason.command)}' if reason.command else ''}")
                return
    begin = (code or "").casefold()
    found = [each for each in REASONS.values() if each.code.casefold().startswith(begin)]
    if not found:
        hint = near(code or "", list(REASONS)) or "`muster slurm reasons` lists them; squeue -o %r prints one"
        raise InputError(f"Slurm has no reason {(code or '')[:60]!r} that is known here", hint=hint)
    columns = [
        Column("code", "code"),
        Column("kind", "kind"),
        Column("text", "what it says"),
        Column("fix", "what to do"),
    ]
    records = [
        {
            "code": each.code,
            "kind": each.kind.value,
            "text": each.text,
            "fix": each.fix,
            "command": fitted(each.command),
        }
        for each in found
    ]
    emit(records, columns, output=output, schema=SCHEMA, list_key="reasons")
