"""lspci: how many GPUs of NVIDIA the bus has."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.doctor.evidence import Evidence, Fact, Piece, Quote

_DEVICE = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (.*)")
_GPU = re.compile(
    r"(?:3D controller|VGA compatible controller)(?: \[03\w\w\])?: NVIDIA|\b(?:0302|0300): 10de:", re.IGNORECASE
)


def read(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """A listing, whole or only of NVIDIA's devices; lines of ``-v`` between devices are passed."""
    end, gpus, broken, first = at, 0, 0, at
    while end < len(lines) and (_DEVICE.match(lines[end]) or lines[end][:1] in "\t " or not lines[end].strip()):
        if _GPU.search(lines[end]):
            gpus += 1
            broken += "(rev ff)" in lines[end]
            first = end
        end += 1
    if gpus:
        evidence.pieces.append(Piece("lspci", file, at + 1))
        evidence.add(Fact("lspci.gpus", gpus, Quote(file, first + 1, f"lspci lists {gpus} GPUs of NVIDIA")))
        evidence.add(Fact("lspci.broken", broken, Quote(file, first + 1, f"{broken} of them as (rev ff)")))
    return end - at
