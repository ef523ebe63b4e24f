"""Lines of logs: the signals that a line shows, and of what command's output it is.

Logs may have hundreds of megabytes. Only lines that hold one of the GATES are looked at more closely, which a search
for bytes finds fast; lines that differ in numbers only and show nothing are matched once.
"""

from __future__ import annotations

import re
from functools import cache

from muster.doctor.evidence import Evidence, Piece, Quote
from muster.doctor.rules import load_rules
from muster.doctor.secrets import redact

GATES = (
    "NVRM", "Xid", "nvidia", "NVIDIA", "NVML", "nvml", "NCCL", "CUDA", "cuda", "CDI", "device", "GPU", "gpu", "gres",
    "Gres", "mlx5", "fabric", "Fabric", "kubelet", "slurm", "AER", "PCIe", "taint", "MPS", "MIG", "ibv_", "uverbs",
    "containerd", "runtime", "Runtime", "plugin", "nvlink", "NVLink", "DCGM", "dcgm", "nouveau", "validat", "ACSCtl",
    "volume-mounts", "compatibility", "systemd", "unsatisfied", "Incompatible", "locked memory", "not yet initialized",
    "NodeCount", "Kubelet", "pod-resources",
)  # fmt: skip
"""Each line that a signal means holds one of these (a test holds it)."""

KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("nccl-log", re.compile(r"NCCL (?:INFO|WARN|DIAG|VERSION|TRACE)\b")),
    ("dmesg", re.compile(r"^\s*(?:<\d+>)?\[\s*\d+\.\d+\]|^\[\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\]|\bkernel: |^NVRM: ")),
    (
        "plugin-log",
        re.compile(
            r"Starting (?:FS|OS) watcher|Running with config|Starting GRPC server for '|Starting to serve '"
            r"|Registered device plugin for '|Retrieving plugins|Loading configuration"
            r"|marking device as unhealthy|Marking all devices as unhealthy|Incompatible (?:strategy|platform) detected"
        ),
    ),
    ("kubelet-log", re.compile(r"\bkubelet\[\d+\]|\bkubelet\b.*\bmanager\.go|device plugin with resource name")),
    ("containerd-log", re.compile(r"\bcontainerd\[\d+\]|\bcrio\[\d+\]|level=(?:info|warning|error|debug) msg=")),
    ("fabricmanager-log", re.compile(r"nv-fabricmanager\[|fabric manager NVIDIA|FabricManager")),
    ("slurmd-log", re.compile(r"\bslurmd(?:\[\d+\])?: |\bslurmd-\w+: ")),
    (
        "driver-manager-log",
        re.compile(r"driver uninstallation process|Auto eviction of GPU pods|Shutting (?:down )?all GPU"),
    ),
    ("operator-log", re.compile(r"controllers\.(?:ClusterPolicy|Upgrade|ClusterPolicyController)|must-gather")),
    ("exporter-log", re.compile(r"Starting dcgm-exporter|Not collecting DCP metrics|DCGM successfully initialized")),
    ("journal", re.compile(r"\bsystemd\[1\]: ")),
    (
        "validator-log",
        re.compile(r"nvidia-validator: |command \w+-validation|for nvidia container stack|GPU resources are not "),
    ),
)  # fmt: skip

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:?\d\d)?")
MOST_TEMPLATES = 50_000


@cache
def patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Each signal that is a line, with its expression."""
    return tuple(
        (signal.id, re.compile(signal.line))
        for signal in load_rules().signals.values()
        if signal.line and not signal.when
    )


class LineReader:
    """Takes lines one by one and notes what they show."""

    def __init__(self, evidence: Evidence, file: str) -> None:
        self._evidence, self._file = evidence, file
        self._known: dict[str, tuple[str, ...]] = {}
        self._kinds: set[str] = set()

    def take(self, line: str, number: int) -> None:
        """A line of the file, without its end."""
        template = _NUMBERS.sub("0", line)
        shown = self._known.get(template)
        if shown is None:
            shown = tuple(name for name, pattern in patterns() if pattern.search(line))
            for kind, pattern in KINDS:
                if kind not in self._kinds and pattern.search(line):
                    self.note_kind(kind, number)
            if len(self._known) < MOST_TEMPLATES:
                self._known[template] = shown
        elif shown:
            # numbers may be what a pattern asks for, such as an Xid: those are looked at each
            shown = tuple(name for name, pattern in patterns() if pattern.search(line))
        if not shown:
            return
        quote = Quote(self._file, number, redact(line.strip())[:400], time_of(line))
        for name in shown:
            self._sight(name, quote, number)

    def note_kind(self, kind: str, number: int) -> None:
        """The file holds output of a kind."""
        self._kinds.add(kind)
        self._evidence.pieces.append(Piece(kind, self._file, number))

    def _sight(self, name: str, quote: Quote, number: int) -> None:
        from muster.doctor.evidence import Sighting

        self._evidence.lines.setdefault(name, Sighting()).add(quote)
        kinds = load_rules().signals[name].kinds
        if len(kinds) == 1 and kinds[0] not in self._kinds:
            self.note_kind(kinds[0], number)


def time_of(line: str) -> float | None:
    """Seconds since 1970 of a line that bears a whole date; None of others."""
    found = _ISO.search(line)
    if found is None:
        return None
    from datetime import UTC, datetime, timedelta, timezone

    zone = UTC
    if found[7] and found[7] != "Z":
        sign = -1 if found[7][0] == "-" else 1
        digits = found[7][1:].replace(":", "")
        zone = timezone(sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:])))
    try:
        return datetime(*(int(found[at]) for at in range(1, 7)), tzinfo=zone).timestamp()  # pyright: ignore[reportArgumentType]
    except ValueError:
        return None
