"""Tables that Slurm's commands print, as records: ``sacctmgr -P``, ``sshare -P``, and the numbers of ``sdiag``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.slurm.records import SlurmAssoc, SlurmQos, number, words


def table_of(text: str, sign: str = "|") -> Iterator[dict[str, str]]:
    """A table with a head, its columns parted by a sign (``-P``): a row as its fields; short rows are passed over."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return
    head = [name.strip() for name in lines[0].split(sign)]
    for line in lines[1:]:
        row = line.split(sign)
        if len(row) >= len(head):
            yield dict(zip(head, row, strict=False))


_ASSOC_OWN = frozenset(("Cluster", "Account", "User", "Partition", "Share", "ParentName", "Par Name", "Priority", "QOS",
                        "Def QOS"))  # fmt: skip
_QOS_OWN = frozenset(("Name", "Priority", "Preempt", "PreemptMode", "Flags", "UsageFactor", "GraceTime", "UsageThres"))


def assocs_of(text: str) -> list[SlurmAssoc]:
    """``sacctmgr -P show assoc tree`` or ``sshare -P -a``: an account's name is indented by its depth in the tree."""
    found: list[SlurmAssoc] = []
    path: list[tuple[int, str]] = []
    for row in table_of(text):
        account = row.get("Account", "")
        name, depth = account.strip(), len(account) - len(account.lstrip())
        user = row.get("User", "").strip()
        parent = (row.get("ParentName") or row.get("Par Name") or "").strip()
        if not user:
            while path and path[-1][0] >= depth:
                path.pop()
            parent = parent or (path[-1][1] if path else "")
            path.append((depth, name))
        limits = {key: value for key, value in row.items() if value.strip() and key not in _ASSOC_OWN}
        shares = row.get("Share") or row.get("RawShares") or ""
        found.append(SlurmAssoc(
            name, user, "" if user else parent, row.get("Partition", "").strip(),
            float(shares) if re.fullmatch(r"\d+(\.\d+)?", shares) else 1.0,
            limits if "RawShares" not in row else {},
        ))  # fmt: skip
    return found


def qos_of(text: str) -> list[SlurmQos]:
    """``sacctmgr -P show qos``."""
    return [
        SlurmQos(
            row["Name"].strip(),
            number(row.get("Priority")),
            words(row.get("Preempt")),
            {key: value for key, value in row.items() if value.strip() and key not in _QOS_OWN},
        )
        for row in table_of(text)
        if row.get("Name", "").strip()
    ]


def sdiag_of(text: str) -> dict[str, int]:
    """``sdiag``: numbers by ``Part: name``, such as ``Backfilling stats: Last cycle`` (microseconds)."""
    found: dict[str, int] = {}
    part = ""
    for line in text.splitlines():
        name, colon, value = line.strip().partition(":")
        if line[:1] not in (" ", "\t") and (not colon or not value.strip()):
            part = re.sub(r"\s*\(.*", "", line.strip().rstrip(":"))
        elif colon and (match := re.match(r"\s*(\d+)\s*$", value)):
            found[f"{part}: {name}" if part else name] = int(match[1])
    return found
