"""Xids: what the NVIDIA driver reports about a GPU, what the catalogue says to do, and what other programs do instead.

One policy: the catalogue's action. Where the device plugin or a provider's agent differs, the table says so, because
that is what takes a GPU away, or leaves it in, against the catalogue. Sources: `SOURCES_OF`.
"""

from __future__ import annotations

from msgspec import Struct

SOURCES_OF = {
    "meaning": "xid-catalogue",
    "action": "xid-catalogue",
    "plugin": "xid-plugin",
    "eks": "xid-eks",
    "azure": "xid-azure",
}
"""Column to key in `muster.catalog.sources.SOURCES`."""

ACTIONS = {
    "IGNORE": "go on",
    "RESTART_APP": "restart the application",
    "RESET_GPU": "reset the GPU",
    "RESTART_BM": "power-cycle the machine",
    "RESTART_VM": "restart the virtual machine",
    "CHECK_MECHANICALS": "check power cables and seating",
    "WORKFLOW": "follow the catalogue's workflow",
    "READ": "do what the message says",
    "": "not in the catalogue that was read",
}
"""Action to what it asks for."""

PLUGIN_IGNORES = frozenset({13, 31, 43, 45, 68, 109})
"""Xids for which the device plugin v0.20.0 leaves a GPU healthy; every other marks it, without a way back."""

EKS_FATAL = frozenset(
    {46, 48, 54, 62, 63, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158}
)  # fmt: skip
"""Xids for which the EKS agent takes the node as broken; others are a warning event."""

AZURE = {63: "fatal", 94: "not listed", 109: "not listed", 149: "not listed"}
"""What is known of Azure's node health checks; of other numbers it was not read."""


class Xid(Struct, frozen=True):
    """One number.

    Attributes:
        number: as after the bus id in the kernel's line.
        meaning: what it reports.
        action: key of `ACTIONS`.
        note: a condition, or a next step.
        source: key in `muster.catalog.sources.SOURCES`.
    """

    number: int
    meaning: str
    action: str
    note: str = ""
    source: str = "xid-catalogue"

    @property
    def plugin(self) -> str:
        """What the device plugin v0.20.0 does."""
        return "ignores" if self.number in PLUGIN_IGNORES else "marks unhealthy"

    @property
    def eks(self) -> str:
        """What the EKS node monitoring agent does."""
        return "fatal" if self.number in EKS_FATAL else "event"

    @property
    def azure(self) -> str:
        """What Azure's node health checks do; empty: not known."""
        return AZURE.get(self.number, "")

    @property
    def disagrees(self) -> str:
        """Where a program does other than the catalogue asks, as a sentence; empty: nowhere."""
        harmless = self.action in ("IGNORE", "RESTART_APP")
        found: list[str] = []
        if harmless and self.plugin != "ignores":
            found.append("the device plugin takes the GPU away until its pod is restarted")
        if self.action == "RESET_GPU" and self.plugin == "ignores":
            found.append("the device plugin ignores it")
        if harmless and self.eks == "fatal":
            found.append("the EKS agent takes the node as broken")
        if harmless and self.azure == "fatal":
            found.append("Azure's checks take it as fatal")
        return ", ".join(found)


def _rows(action: str, meaning: str, *numbers: int, note: str = "") -> tuple[Xid, ...]:
    return tuple(Xid(number, meaning, action, note) for number in numbers)


_LINK5 = "NVLink 5 event (NETIR)"
_NEWER = "newer than the catalogue that was read"

XIDS: tuple[Xid, ...] = tuple(
    sorted(
        (
            *_rows("RESTART_APP", "error of the application", 13, 31, 39, 40, 41, 68, 69),
            *_rows("IGNORE", "informational, or a consequence", 43, 93, 121, 137, 141, 157, 160),
            *_rows("WORKFLOW", "clean-up after another error", 45, note="look for the Xid before it"),
            *_rows("RESET_GPU", "the GPU or its GSP hangs", 46, 62, 109, 110, 119, 120),
            *_rows("WORKFLOW", "double-bit ECC error", 48, note="reset, then look at the SRAM threshold"),
            *_rows("CHECK_MECHANICALS", "auxiliary power is missing", 54),
            *_rows("IGNORE", "a row of memory is to be remapped", 63, note="reset when it suits"),
            *_rows("RESET_GPU", "a row of memory could not be remapped", 64, note="replace if it fails again"),
            *_rows("WORKFLOW", "NVLink error", 74, note="look at both ends of the link"),
            *_rows("RESTART_BM", "the GPU has fallen off the bus", 79),
            *_rows("IGNORE", "many single-bit ECC errors", 92),
            *_rows("RESTART_APP", "contained ECC error", 94),
            *_rows("RESET_GPU", "uncontained ECC error", 95, note="drain the node unless MIG is on"),
            *_rows("RESET_GPU", "uncorrected ECC error", 140),
            *_rows("RESET_GPU", "start, link, resource or time-out error", 136, 143, 155, 156, 158),
            *_rows("WORKFLOW", _LINK5, 144, 145, 146, 147, 148, 149, 150, note="decoded otherwise since driver R575"),
            *_rows("RESTART_VM", "a key was rotated", 151),
            *_rows("READ", "the recovery action has changed", 154, note="also nvidia-smi's GPU Recovery Action"),
            Xid(167, "PCIe fatal time-out", "", _NEWER, "xid-kernel"),
            Xid(168, "memory was reduced", "", _NEWER, "xid-kernel"),
            Xid(171, "uncorrectable DRAM error", "", _NEWER, "xid-kernel"),
            Xid(172, "uncorrectable SRAM error", "", _NEWER, "xid-kernel"),
            Xid(173, "C2C link error", "", _NEWER, "xid-kernel"),
            Xid(176, "PCIe correctable errors", "", _NEWER, "xid-kernel"),
        ),
        key=lambda each: each.number,
    )
)
"""All that are known here, by number."""


def find_xid(number: int) -> Xid | None:
    """The entry of a number; None: not known here."""
    return next((each for each in XIDS if each.number == number), None)
