"""What is read on the node itself: a service, containerd's configuration, CDI, validation files, checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from muster.doctor.evidence import Evidence, Fact, Piece, Quote
from muster.doctor.shapes.plain import mapping, sequence

_ACTIVE = re.compile(r"\s+Active: (\S+)")
_HEADER = re.compile(r"\s*\[+(.+?)\]+\s*$")
_TOML = re.compile(r"\s*(?:\[.*\]|[\w.\"-]+\s*=.*|#.*|\]|[\"'].*,?)?\s*$")
_NVIDIA = re.compile(r"runtimes\.[\"']?nvidia[\"']?$")
_READY = re.compile(r"\.?[a-z-]+-ready|workload-type")


def read_fabric_manager(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """`systemctl status nvidia-fabricmanager`: whether it is active.

    That there is no such unit says nothing: many GPUs have no NVSwitch, and it may run in the driver's container.
    """
    if "could not be found" in lines[at]:
        evidence.add(Fact("fm.unit", False, Quote(file, at + 1, lines[at].strip()[:200])))
        return 1
    evidence.pieces.append(Piece("fabricmanager-log", file, at + 1))
    for index in range(at, min(at + 8, len(lines))):
        if found := _ACTIVE.match(lines[index]):
            quote = Quote(file, index + 1, f"nvidia-fabricmanager.service {lines[index].strip()[:150]}")
            evidence.add(Fact("fm.active", found[1] == "active", quote))
            return index - at + 1
    return 1


def read_containerd(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """containerd's configuration: whether it has the runtime nvidia, and with a type.

    That it has none is only said where the runtimes are in the text: a part that was cut out says nothing.
    """
    end, whole, header = at, False, ""
    runtime, typed, modern = 0, False, False
    while end < len(lines) and _TOML.match(lines[end]):
        if found := _HEADER.match(lines[end]):
            header = found[1]
            whole |= ".runtimes" in header or header.endswith("containerd")
            if _NVIDIA.search(header):
                runtime = runtime or end + 1
        elif "runtime_type" in lines[end] and _NVIDIA.search(header):
            typed = True
        modern |= "io.containerd.cri.v1" in lines[end] or bool(re.match(r"version\s*=\s*3", lines[end].strip()))
        end += 1
    if not runtime and not whole:
        return max(1, end - at)
    evidence.pieces.append(Piece("containerd-config", file, at + 1))
    there = bool(runtime)
    quote = Quote(file, runtime or at + 1, lines[runtime - 1].strip() if there else "no [...runtimes.nvidia] in it")
    evidence.add(Fact("containerd.nvidia_runtime", there, quote))
    evidence.add(Fact("containerd.nvidia_no_type", there and modern and not typed, quote))
    return max(1, end - at)


def read_cdi(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """`nvidia-ctk cdi list`: how many devices there are."""
    evidence.pieces.append(Piece("cdi", file, at + 1))
    found = re.search(r"Found (\d+) CDI devices", lines[at])
    count, end = int(found[1]) if found else 0, at + 1
    evidence.add(Fact("cdi.devices", count, Quote(file, at + 1, lines[at].strip()[:200])))
    return end - at


def read_cdi_spec(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """A CDI specification (YAML): its kind, and how many devices it has."""
    end = at + 1
    while end < len(lines) and (lines[end][:1] in (" ", "-", "") or re.match(r"\w+:", lines[end])):
        end += 1
    body = "\n".join(lines[at:end])
    if "nvidia.com/" not in body:
        return end - at
    devices = re.search(r"^devices:\n((?:[ -].*\n?)+)", body, re.MULTILINE)
    count = len(re.findall(r"^(?:- |  )name: |^-? +name: ", devices[1], re.MULTILINE)) if devices else 0
    evidence.pieces.append(Piece("cdi", file, at + 1))
    evidence.add(Fact("cdi.devices", count, Quote(file, at + 1, f"a CDI specification with {count} devices")))
    return end - at


def read_validations(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """`ls /run/nvidia/validations`, with or without the command: which of the operator's stages passed."""
    end = at + 1 if "/run/nvidia/validations" in lines[at] else at
    names: list[str] = []
    while end < len(lines) and (found := _READY.findall(lines[end])):
        names.extend(found)
        end += 1
    evidence.pieces.append(Piece("validations", file, at + 1))
    quote = Quote(file, at + 1, f"validation files: {', '.join(names) or 'none'}")
    for stage in ("driver", "toolkit", "cuda", "plugin"):
        evidence.add(Fact(f"validation.{stage}", f"{stage}-ready" in names, quote))
    return max(1, end - at)


def read_checkpoint(evidence: Evidence, file: str, text: str) -> bool:
    """The kubelet's checkpoint of devices (JSON): how many GPUs it holds for pods."""
    if '"PodDeviceEntries"' not in text[:4096]:
        return False
    try:
        data = mapping(mapping(msgspec.json.decode(text)).get("Data"))
    except (msgspec.DecodeError, RecursionError):
        return False
    held = [
        device for each in map(mapping, sequence(data.get("PodDeviceEntries")))
        if str(each.get("ResourceName", "")).startswith("nvidia.com/") for device in _ids(each.get("DeviceIDs"))
    ]  # fmt: skip
    quote = Quote(file, 1, f"the checkpoint holds {len(held)} GPUs for pods")
    evidence.pieces.append(Piece("kubelet-checkpoint", file, 1))
    evidence.add(Fact("checkpoint.held", len(held), quote))
    return True


def _ids(value: Any) -> list[Any]:
    """Devices as a list, or by NUMA node."""
    if isinstance(value, list):
        return sequence(value)
    return [each for some in mapping(value).values() for each in sequence(some)]
