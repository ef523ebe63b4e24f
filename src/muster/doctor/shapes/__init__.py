"""Shapes of output that are read into facts, one file each.

`DOCUMENTS` read a whole file (JSON, YAML, XML); `BLOCKS` are parts of a text: where a line matches ``start``, the
reader gets the lines from there on and says how many it took. A new shape is one file and one entry here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from muster.doctor.evidence import Evidence
from muster.doctor.shapes import describe, host, kubernetes, measured, pci, pods, slurm, smi, smi_xml

Reader = Callable[[Evidence, str, Sequence[str], int], int]
"""``read(evidence, file, lines, at)``: read the block that begins at index ``at``; the number of lines that it has."""


class Block(Struct, frozen=True):
    """A shape within a text: the expression that its first line matches, and its reader."""

    start: str
    read: Reader


DOCUMENTS: tuple[Callable[[Evidence, str, str], bool], ...] = (host.read_checkpoint, smi_xml.read, kubernetes.read)

BLOCKS: tuple[Block, ...] = (
    Block(r"Name: {6,}\S+$", describe.read),
    Block(r"\s*NAME\s+READY\s+STATUS\s+RESTARTS", pods.read),
    Block(r"\s*NAMESPACE\s+NAME\s+READY\s+STATUS", pods.read),
    Block(r"\s*NAME\s+DESIRED\s+CURRENT", pods.read_sets),
    Block(r"\s*NAMESPACE\s+NAME\s+DESIRED\s+CURRENT", pods.read_sets),
    Block(r"\| NVIDIA-SMI \d", smi.read_table),
    Block(r"=+NVSMI LOG=+", smi.read_query),
    Block(r"GPU \d+: .*\(UUID: GPU-", smi.read_list),
    Block(r"(?:index|uuid|name|pci\.bus_id|gpu_bus_id)\s*,", smi.read_csv),
    Block(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (?:3D|VGA|Bridge|\[?030)", pci.read),
    Block(r"NodeName=\S+", slurm.read),
    Block(r"JobId=\d+ ", slurm.read_job),
    Block(r"apiVersion: ", kubernetes.read_block),
    Block(r"(?:[●○×*] |Unit )nvidia-fabricmanager\.service", host.read_fabric_manager),
    Block(r"\s*\[+plugins\.|\s*version = [23]$", host.read_containerd),
    Block(r".*Found \d+ CDI devices", host.read_cdi),
    Block(r"cdiVersion: ", host.read_cdi_spec),
    Block(r".*\bls .*/run/nvidia/validations|\s*(?:\.?[a-z-]+-ready|workload-type)(?:\s|$)", host.read_validations),
    Block(r"#\s*Avg bus bandwidth", measured.read_nccl_tests),
    Block(r"\s*#bytes\s+#iterations\s+BW peak", measured.read_perftest),
    Block(r"\s+GPU0\s+(?:GPU1|NIC0|mlx5|CPU)", measured.read_topo),
    Block(r"\| Diagnostic\s+\| Result", measured.read_dcgmi),
    Block(r"DCGM_(?:FI|EXP)_\w+\{", measured.read_exporter),
    Block(r"\s*(?:NAMESPACE\s+)?LAST SEEN\s+TYPE\s+REASON", measured.read_events),
    Block(r"devicePlugin:\s*$|USER-SUPPLIED VALUES:|COMPUTED VALUES:|deviceListStrategy:", measured.read_values),
)

_STARTS = re.compile("|".join(f"(?P<b{at}>{block.start})" for at, block in enumerate(BLOCKS)))


def read_document(evidence: Evidence, file: str, text: str) -> bool:
    """Read a file that is one document; False if it is none."""
    return any(read(evidence, file, text) for read in DOCUMENTS)


def read_blocks(evidence: Evidence, file: str, lines: Sequence[str]) -> None:
    """Read all blocks of a text."""
    at = 0
    while at < len(lines):
        found = _STARTS.match(lines[at])
        if found is None:
            at += 1
            continue
        block = BLOCKS[int((found.lastgroup or "b0")[1:])]
        at += max(1, block.read(evidence, file, lines, at))
