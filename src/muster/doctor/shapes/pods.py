"""Pods of the node's components: tables of `kubectl get pods` and `kubectl get daemonsets`, and pods as objects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster.doctor.evidence import Evidence, Fact, Piece, Quote
from muster.doctor.secrets import redact
from muster.doctor.shapes.plain import mapping, sequence, whole

COMPONENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("plugin", re.compile(r"device-plugin(?!-mps)")),
    ("driver", re.compile(r"nvidia-driver|driver-daemonset|vgpu-manager")),
    ("toolkit", re.compile(r"container-toolkit")),
    ("validator", re.compile(r"operator-validator")),
    ("gfd", re.compile(r"gpu-feature-discovery")),
    ("nfd", re.compile(r"node-feature-discovery|\bnfd-")),
    ("mig_manager", re.compile(r"mig-manager")),
    ("dcgm", re.compile(r"dcgm")),
    ("cuda_validator", re.compile(r"cuda-validator")),
    ("operator", re.compile(r"^gpu-operator-[0-9a-f]{6,}|gpu-operator$")),
)
"""Component to what its pods are called; the first that fits."""

_AGE = re.compile(r"(\d+)([smhdy])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "y": 365 * 86400.0}


def component_of(name: str) -> str:
    """Which component a pod or DaemonSet is of; empty: none that is known."""
    return next((component for component, pattern in COMPONENTS if pattern.search(name)), "")


def read(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """A table of pods, up to the first line that is no row of it."""
    titles = lines[at].split()
    end = at + 1
    while end < len(lines) and len(lines[end].split()) >= len(titles) - 3 and lines[end].strip():
        row = _row(titles, lines[end])
        if row is None:
            break
        _pod(evidence, file, end + 1, row, lines[end])
        end += 1
    evidence.pieces.append(Piece("component-pods", file, at + 1))
    return end - at


def _row(titles: Sequence[str], line: str) -> dict[str, str] | None:
    """Cells by title; a restart count may be followed by when, in brackets."""
    cells = re.sub(r"(\d+) \(([^)]*) ago\)", r"\1", line).split()
    if len(cells) < 4:
        return None
    row = dict(zip(titles, cells, strict=False))
    return row if re.fullmatch(r"\d+/\d+", row.get("READY", "")) else None


def _pod(evidence: Evidence, file: str, number: int, row: Mapping[str, str], line: str) -> None:
    component = component_of(row["NAME"])
    if not component:
        return
    node = row.get("NODE", "")
    quote = Quote(file, number, redact(line.strip())[:300])
    ready, of = map(int, row["READY"].split("/"))
    facts: dict[str, Any] = {
        "status": row.get("STATUS", ""),
        "ready": ready == of,
        "restarts": whole(row.get("RESTARTS")),
    }
    if age := _AGE.findall(row.get("AGE", "")):
        facts["age_s"] = sum(int(count) * _UNITS[unit] for count, unit in age)
    _note(evidence, component, facts, quote, "" if node in ("<none>", "") else node)


def _note(evidence: Evidence, component: str, facts: Mapping[str, Any], quote: Quote, node: str) -> None:
    evidence.add(Fact(f"{component}.there", True, quote, node))
    for key, value in facts.items():
        evidence.add(Fact(f"{component}.{key}", value, quote, node))


def read_sets(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """A table of DaemonSets: how many pods each should have and has."""
    titles = lines[at].replace("NODE SELECTOR", "NODE_SELECTOR").split()
    end = at + 1
    while end < len(lines) and lines[end].strip():
        row = dict(zip(titles, lines[end].split(), strict=False))
        if not row.get("DESIRED", "").isdigit():
            break
        if component := component_of(row["NAME"]):
            quote = Quote(file, end + 1, lines[end].strip()[:300])
            evidence.add(Fact(f"{component}.desired", int(row["DESIRED"]), quote))
            if row.get("READY", "").isdigit():
                evidence.add(Fact(f"{component}.set_ready", int(row["READY"]), quote))
        end += 1
    evidence.pieces.append(Piece("daemonsets", file, at + 1))
    return end - at


def read_pod(evidence: Evidence, file: str, pod: Mapping[str, Any], line: int) -> None:
    """A pod as an object; only those of components are facts, of others their messages count."""
    meta, spec, status = (mapping(pod.get(key)) for key in ("metadata", "spec", "status"))
    name = str(meta.get("name") or "")
    component = component_of(name)
    if not component:
        evidence.pieces.append(Piece("pod-describe", file, line))
        return
    states = list(map(mapping, sequence(status.get("containerStatuses"))))
    phase = str(status.get("phase") or "")
    waiting = [str(mapping(mapping(each.get("state")).get("waiting")).get("reason", "")) for each in states]
    told = next((reason for reason in waiting if reason), phase)
    facts: dict[str, Any] = {
        "status": told,
        "ready": bool(states) and all(each.get("ready") for each in states),
        "restarts": sum(whole(each.get("restartCount")) for each in states),
    }
    quote = Quote(file, line, f"pod {name}: {told}, {facts['restarts']} restarts")
    evidence.pieces.append(Piece("component-pods", file, line))
    _note(evidence, component, facts, quote, str(spec.get("nodeName") or ""))
