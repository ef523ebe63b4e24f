"""nvidia-smi: its table, its list, -q, and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any

from muster.doctor.evidence import Evidence, Fact, Piece, Quote

_ROW = re.compile(
    r"\|\s+(\d+)\s+(\S.*?)\s{2,}(?:On|Off|N/A)?\s*\|\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
_MIG_ROW = re.compile(r"\|\s+\d+\s+\d+\s+\d+\s+\d+\s+\|")
_HEAD = re.compile(r"NVIDIA-SMI (\S+).*Driver Version: (\S+).*CUDA Version: (\S+)")


def _note(evidence: Evidence, file: str, line: int, text: str, key: str, value: Any) -> None:
    evidence.add(Fact(key, value, Quote(file, line, text.strip()[:300])))


def read_table(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """The table that nvidia-smi prints without options."""
    evidence.pieces.append(Piece("nvidia-smi", file, at + 1))
    head = _HEAD.search(lines[at])
    if head:
        _note(evidence, file, at + 1, lines[at], "smi.driver", head[2])
        _note(evidence, file, at + 1, lines[at], "smi.cuda", head[3].rstrip("|"))
    count, end, errors, mig, exclusive = 0, at + 1, 0, 0, 0
    while end < len(lines) and (not lines[end].strip() or lines[end].lstrip()[:1] in "|+-"):
        if "Processes:" in lines[end]:
            break
        if _ROW.search(lines[end]):
            count += 1
        errors += "ERR!" in lines[end]
        exclusive += "E. Process" in lines[end]
        mig += bool(re.search(r"\|\s+Enabled\s*\|?\s*$", lines[end]))
        end += 1
    last = end - 1
    _mig_devices(evidence, file, lines[at:end], at)
    if (end < len(lines) and count) or _closed(lines, end):
        _note(evidence, file, last + 1, f"nvidia-smi lists {count} GPUs", "smi.gpus", count)
    _note(evidence, file, last + 1, f"{errors} lines with ERR!", "smi.errors", errors)
    _note(evidence, file, last + 1, f"MIG is on in {mig} GPUs", "smi.mig_on", mig)
    _note(evidence, file, last + 1, f"{exclusive} GPUs take one process only", "smi.exclusive", exclusive)
    return end - at


def _mig_devices(evidence: Evidence, file: str, rows: Sequence[str], at: int) -> None:
    """The MIG devices that a table lists; a table that was cut before them says nothing of them."""
    heads = [index for index, row in enumerate(rows) if "MIG devices:" in row or "No MIG devices found" in row]
    if heads:
        count = sum(bool(_MIG_ROW.match(row)) for row in rows[heads[0] :])
        _note(evidence, file, at + heads[0] + 1, f"nvidia-smi lists {count} MIG devices", "smi.mig_devices", count)


def _closed(lines: Sequence[str], end: int) -> bool:
    """Whether the table ends as it should: it is not cut."""
    return end > 0 and lines[end - 1].lstrip().startswith("+")


def read_list(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """nvidia-smi -L."""
    end, gpus, slices = at, 0, 0
    while end < len(lines) and re.match(r"GPU \d+: |\s+MIG ", lines[end]):
        gpus += lines[end].startswith("GPU ")
        slices += lines[end].lstrip().startswith("MIG ")
        end += 1
    evidence.pieces.append(Piece("nvidia-smi", file, at + 1))
    _note(evidence, file, end, f"nvidia-smi -L lists {gpus} GPUs", "smi.gpus", gpus)
    if slices:
        _note(evidence, file, end, f"and {slices} MIG devices", "smi.mig_devices", slices)
    return end - at


_QUERY = {
    "Driver Version": "smi.driver", "CUDA Version": "smi.cuda", "Attached GPUs": "smi.gpus",
    "Remapping Failure Occurred": "smi.remap_failure", "Pending": "smi.remap_pending",
    "GPU Recovery Action": "smi.recovery_action", "SRAM Threshold Exceeded": "smi.sram_threshold",
}  # fmt: skip


def read_query(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """nvidia-smi -q: of all GPUs what says that something is wrong."""
    evidence.pieces.append(Piece("nvidia-smi-q", file, at + 1))
    evidence.pieces.append(Piece("nvidia-smi", file, at + 1))
    end, section = at + 1, ""
    worst: dict[str, tuple[Any, int, str]] = {}
    while end < len(lines) and not re.match(r"[^\s=].*:$|\S+@\S+[#$]", lines[end]):
        name, colon, value = (part.strip() for part in lines[end].partition(" : "))
        if not colon:
            section = name or section
            if name == "MIG Device":
                worst["smi.mig_devices"] = worst.get("smi.mig_devices", (0,))[0] + 1, end, lines[end]
        elif (key := _QUERY.get(name)) is not None:
            _keep(worst, key, value, end, lines[end])
        elif section == "Fabric" and name == "State":
            _keep(worst, "smi.fabric_state", value, end, lines[end])
        elif (name, value) == ("MIG Devices", "None"):
            worst.setdefault("smi.mig_devices", (0, end, lines[end]))
        elif section == "MIG Mode" and name == "Current":
            _keep(worst, "smi.mig_mode", value, end, lines[end])
        elif section == "Max" or name in ("Max", "Current"):
            pass
        end += 1
    for key, (value, index, text) in worst.items():
        _note(evidence, file, index + 1, text, key, value)
    return end - at


_BETTER = ("No", "None", "Completed", "N/A", "Disabled", "0")


def _keep(worst: dict[str, tuple[Any, int, str]], key: str, text: str, index: int, line: str) -> None:
    """Of several GPUs the one that is not as it should be."""
    value: Any = int(text) if text.isdigit() else text
    known = worst.get(key)
    if known is None or str(known[0]) in _BETTER:
        worst[key] = value, index, line


def read_csv(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """nvidia-smi --query-gpu=... --format=csv with its header."""
    titles = [each.strip().split(" [")[0] for each in next(csv.reader([lines[at]]))]
    if not {"uuid", "pci.bus_id", "driver_version", "gpu_bus_id", "memory.total"} & set(titles):
        return 1
    end, lost, narrow = at + 1, 0, False
    while end < len(lines) and lines[end].count(",") == len(titles) - 1:
        lost += "GPU is lost" in lines[end] or "Unknown Error" in lines[end]
        row = dict(zip(titles, (each.strip() for each in next(csv.reader([lines[end]]))), strict=True))
        now, most = row.get("pcie.link.width.current", ""), row.get("pcie.link.width.max", "")
        if now.isdigit() and most.isdigit() and (int(now) < int(most) or not narrow):
            narrow = int(now) < int(most)
            _note(evidence, file, end + 1, lines[end], "smi.pcie_width", int(now))
            _note(evidence, file, end + 1, lines[end], "smi.pcie_width_max", int(most))
        if version := row.get("driver_version"):
            _note(evidence, file, end + 1, lines[end], "smi.driver", version)
        end += 1
    evidence.pieces.append(Piece("nvidia-smi", file, at + 1))
    _note(evidence, file, end, f"nvidia-smi lists {end - at - 1} GPUs", "smi.gpus", end - at - 1)
    _note(evidence, file, end, f"{lost} of them lost", "smi.errors", lost)
    return end - at
