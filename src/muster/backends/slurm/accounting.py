"""Asks sacct for jobs, with the fields that this Slurm has."""

from __future__ import annotations

from collections.abc import Sequence

from muster.backends.slurm.commands import Commands
from muster.errors import ClusterError
from muster.slurm.accounting import FIELDS

DELIMITER = "\x1f"
"""Names of jobs may hold a bar."""
WITHIN_S = 300.0
"""So long sacct may take: a month of a large cluster is much."""


def ask_sacct(jobs: Sequence[str] = (), since: str = "", until: str = "", commands: Commands | None = None) -> str:
    """What sacct prints of some jobs, or of all since a time; every run of a job that was requeued.

    Raises:
        ClusterError: there is no sacct, it does not answer, or it refuses, with its own words.
    """
    asked = commands or Commands(within_s=WITHIN_S)
    asked.check()
    known = set(asked.run("sacct", "--helpformat").split())
    fields = [field for field in FIELDS if field in known]
    words = ["sacct", "--parsable2", f"--delimiter={DELIMITER}", "--duplicates", f"--format={','.join(fields)}"]
    words += [f"--jobs={','.join(jobs)}"] if jobs else ["--allusers"]
    words += [f"--starttime={since}"] if since else []
    words += [f"--endtime={until}"] if until else []
    answer = asked.ask(*words)
    if answer.code or (answer.complaint and not answer.output.strip()):
        complaint = answer.complaint.strip().splitlines()[-1][:200] if answer.complaint.strip() else "it says nothing"
        if "disabled" in complaint.casefold():
            raise ClusterError(
                "Slurm keeps no accounting here", hint="AccountingStorageType=accounting_storage/slurmdbd"
            )
        raise ClusterError(f"sacct: {complaint}", hint="sacctmgr ping; --since takes what sacct -S takes")
    return answer.output
