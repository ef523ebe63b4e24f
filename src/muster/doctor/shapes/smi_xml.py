"""nvidia-smi -q -x: the same facts as of -q, out of XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from muster.doctor.evidence import Evidence, Fact, Piece, Quote

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_OF_GPU = {
    "smi.remap_failure": "remapped_rows/remapped_row_failure",
    "smi.remap_pending": "remapped_rows/remapped_row_pending",
    "smi.recovery_action": "gpu_recovery_action",
    "smi.sram_threshold": "ecc_errors/aggregate/sram_threshold_exceeded",
    "smi.fabric_state": "fabric/state",
    "smi.mig_mode": "mig_mode/current_mig",
}
_WELL = ("No", "None", "Completed", "N/A", "Disabled", "0", "")


def read(evidence: Evidence, file: str, text: str) -> bool:
    """A file that is nvidia-smi's XML; False if it is none. Entities are not expanded: a file that has any is left."""
    if "<nvidia_smi_log" not in text[:4096]:
        return False
    from xml.etree import ElementTree

    body = text[text.index("<nvidia_smi_log") :]
    if "<!ENTITY" in text[:4096]:
        return False
    try:
        root = ElementTree.fromstring(body[: body.rindex("</nvidia_smi_log>") + 17])
    except (ElementTree.ParseError, ValueError):
        evidence.unread.append(f"{file}: nvidia-smi's XML is cut")
        return True
    for kind in ("nvidia-smi-q", "nvidia-smi"):
        evidence.pieces.append(Piece(kind, file, 1))
    gpus = root.findall("gpu")
    _fact(evidence, file, text, "smi.gpus", len(gpus), f"nvidia-smi -x has {len(gpus)} GPUs")
    for key, path in (("smi.driver", "driver_version"), ("smi.cuda", "cuda_version")):
        if value := root.findtext(path):
            _fact(evidence, file, text, key, value, value)
    for key, path in _OF_GPU.items():
        values = [(gpu.get("id", ""), (gpu.findtext(path) or "").strip()) for gpu in gpus]
        told = [(name, value) for name, value in values if value]
        if told:
            name, value = next((each for each in told if each[1] not in _WELL), told[0])
            _fact(evidence, file, text, key, value, f"{name}: {path.rpartition('/')[2]} {value}", name)
    _width(evidence, file, text, gpus)
    return True


def _width(evidence: Evidence, file: str, text: str, gpus: list[Element]) -> None:
    """The GPU whose PCIe link has the fewest of its lanes."""
    found: list[tuple[int, int, str]] = []
    for gpu in gpus:
        widths = gpu.find("pci/pci_gpu_link_info/link_widths")
        now, most = (
            (widths.findtext(key) or "").rstrip("x") if widths is not None else ""
            for key in ("current_link_width", "max_link_width")
        )
        if now.isdigit() and most.isdigit():
            found.append((int(now), int(most), gpu.get("id", "")))
    if found:
        now, most, name = min(found, key=lambda each: each[0] / max(each[1], 1))
        _fact(evidence, file, text, "smi.pcie_width", now, f"{name}: {now} of {most} lanes", name)
        _fact(evidence, file, text, "smi.pcie_width_max", most, f"{name}: {now} of {most} lanes", name)


def _fact(evidence: Evidence, file: str, text: str, key: str, value: Any, told: str, near: str = "") -> None:
    found = re.search(re.escape(near), text) if near else None
    line = text.count("\n", 0, found.start()) + 1 if found else 1
    evidence.add(Fact(key, value, Quote(file, line, told[:300])))
