"""`scontrol show node` and `show job`: state, reason and GRES of a node; GPUs that a job was given."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.doctor.evidence import Evidence, Fact, Piece, Quote
from muster.doctor.lines import LineReader
from muster.doctor.secrets import redact

_GRES = re.compile(r"\bGres=(?:\S*?,)?gpu(?::[\w.-]+)*:(\d+)")


def read(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """The record of one node, on one line (-o) or on several."""
    end = at + 1
    while end < len(lines) and lines[end][:1] == " " and lines[end].strip():
        end += 1
    text = " ".join(line.strip() for line in lines[at:end])
    name = text.split("NodeName=", 1)[1].split()[0]
    quote = Quote(file, at + 1, redact(text)[:400])
    evidence.pieces.append(Piece("slurm-node", file, at + 1, name))
    if state := re.search(r"\bState=(\S+)", text):
        flags = state[1].upper().replace("*", "+NOT_RESPONDING").split("+")
        evidence.add(Fact("slurm.state", flags, quote, name))
        evidence.add(Fact("slurm.drained", bool({"DRAIN", "DRAINED", "DRAINING"} & set(flags)), quote, name))
    if gres := _GRES.search(text):
        evidence.add(Fact("slurm.gpus", int(gres[1]), quote, name))
    if reason := re.search(r"\bReason=(.*?)(?: \[\S+@\S+\]| Comment=|$)", text):
        by = re.search(r"\bReason=.*? \[([\w.-]+)@", text)
        person = by is not None and by[1] not in ("root", "slurm")
        evidence.add(Fact("slurm.by_person", person, quote, name))
        evidence.add(Fact("slurm.reason", reason[1], Quote(file, at + 1, redact(f"Reason={reason[1]}")), name))
    reader = LineReader(evidence, file)  # GATES do not know what Slurm gives as a reason
    for index in range(at, end):
        if "Reason=" in lines[index] and "gres" not in lines[index]:
            reader.take(lines[index], index + 1)
    return end - at


def read_job(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """The record of one job; that it has no GPUs is only said where its resources are in the text."""
    end = at + 1
    while end < len(lines) and lines[end][:1] == " " and lines[end].strip():
        end += 1
    text = " ".join(line.strip() for line in lines[at:end])
    evidence.pieces.append(Piece("slurm-job", file, at + 1))
    if told := re.search(r"\b(?:AllocTRES|ReqTRES|TRES)=(\S+)", text):
        gpus = re.search(r"gres/gpu(?::[\w.-]+)?=(\d+)", told[1])
        evidence.add(Fact("slurm.job_gpus", int(gpus[1]) if gpus else 0, Quote(file, at + 1, told[0])))
    return end - at
