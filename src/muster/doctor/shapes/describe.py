"""`kubectl describe node`: the text of it, whole or cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from muster.doctor.evidence import Evidence, Fact, Piece, Quote
from muster.doctor.secrets import redact
from muster.doctor.shapes.kubernetes import note_amounts, note_labels

_SECTION = re.compile(r"^([A-Z][A-Za-z ]+):(?: {2,}(.*))?$")
_PAIR = re.compile(r"^\s+([\w./-]+):\s+(\S.*)$")


def read(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """The block of one node; a pod's description begins alike and is left to the lines."""
    name = lines[at].split(":", 1)[1].strip()
    end = at + 1
    while end < len(lines) and not re.match(r"Name: {6,}\S+$", lines[end]):
        end += 1
    body = lines[at:end]
    if any(re.match(r"(?:Namespace|Node): {4,}", line) for line in body[:8]):
        evidence.pieces.append(Piece("pod-describe", file, at + 1))
        _pod(evidence, file, body, at)
        return end - at
    sections = _sections(body)
    if not sections.keys() & {"Capacity", "Allocatable", "Taints", "Roles", "Conditions", "Labels"}:
        return 1
    evidence.pieces.append(Piece("kubectl-node", file, at + 1, name))

    def note(key: str, value: Any, told: str) -> None:
        evidence.add(Fact(key, value, Quote(file, where[0], redact(f"{name}: {told}")), name))

    where = [at + 1]
    amounts: dict[str, dict[str, str]] = {}
    for section in ("Capacity", "Allocatable"):
        first, rows = sections.get(section, (0, []))
        pairs = (_PAIR.match(line) for line in rows)
        amounts[section] = {found[1]: found[2].strip() for found in pairs if found}
        where[0] = at + first + 1 if rows else where[0]
    note_amounts(note, amounts["Capacity"], amounts["Allocatable"])
    for line in sections.get("Allocated resources", (0, []))[1]:
        words = line.split()
        if len(words) >= 2 and words[0] == "nvidia.com/gpu" and words[1].isdigit():
            note("gpus.requested", int(words[1]), line.strip())
    _labels(note, sections)
    _state(note, sections)
    return end - at


def _pod(evidence: Evidence, file: str, body: Sequence[str], at: int) -> None:
    """GPUs that a pod requests; only a description that has its end says that there are none."""
    asked = [line for line in body if re.match(r"\s+nvidia\.com/\S+:\s+\d+", line)]
    if asked or any(line.startswith("QoS Class:") for line in body):
        quote = Quote(file, at + 1, asked[0].strip() if asked else "no nvidia.com resource in the pod's description")
        evidence.add(Fact("pod.described", True, quote))
        evidence.add(Fact("pod.gpus", sum(int(line.split()[-1]) for line in asked), quote))


def _sections(body: Sequence[str]) -> dict[str, tuple[int, list[str]]]:
    """Heading to the index of its line, and its lines; what stands beside the heading is the first."""
    found: dict[str, tuple[int, list[str]]] = {}
    name = ""
    for index, line in enumerate(body):
        heading = _SECTION.match(line)
        if heading:
            name = heading[1]
            found[name] = (index, [f" {heading[2]}"] if heading[2] else [])
        elif name and line[:1] == " ":
            found[name][1].append(line)
    return found


def _labels(note: Any, sections: dict[str, tuple[int, list[str]]]) -> None:
    if "Labels" not in sections:
        return
    labels: dict[str, str] = {}
    for line in sections["Labels"][1]:
        key, equals, value = line.strip().partition("=")
        if equals:
            labels[key] = value
    note_labels(note, labels)


def _state(note: Any, sections: dict[str, tuple[int, list[str]]]) -> None:
    if "Unschedulable" in sections:
        value = "".join(sections["Unschedulable"][1]).strip() == "true"
        note("node.unschedulable", value, f"Unschedulable: {str(value).lower()}")
    if "Taints" in sections:
        taints = [line.strip() for line in sections["Taints"][1] if line.strip() not in ("", "<none>")]
        note("node.taints", taints, f"Taints: {', '.join(taints) or '<none>'}")
    for line in sections.get("Conditions", (0, []))[1]:
        words = line.split()
        if len(words) > 1 and words[1] in ("True", "False", "Unknown"):
            key = "node.ready" if words[0] == "Ready" else f"condition:{words[0]}"
            note(key, words[1] == "True", " ".join(words))
