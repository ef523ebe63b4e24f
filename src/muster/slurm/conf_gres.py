"""gres.conf and cgroup.conf as values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from muster.errors import InputError
from muster.slurm.conf import counted
from muster.slurm.conf_keys import CGROUP, GRES
from muster.slurm.conf_lines import Entry, Read, Settings, Unknown, read_lines
from muster.slurm.hostlist import expand

AUTO_DETECT = ("nvml", "nvidia", "rsmi", "oneapi", "nrt", "off")
"""What AutoDetect may be: slurm.conf of 22.05 knows nvml, rsmi and off; the others came later."""
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


class GresLine(Struct, frozen=True):
    """One line of gres.conf.

    Attributes:
        name: ``gpu``, ``mps`` ...; empty on a line that only says AutoDetect.
        type: such as ``h100``; empty where none is told.
        nodes: the nodes of NodeName; empty: all that have the file.
        files: device files, ranges resolved, in their order.
        count: how many there are: Count, or a file each; None where neither is told.
        cores: the cores that each is near to; None where none is told.
        auto_detect: ``nvml`` and so on in small letters; empty where it is not told.
        entry: the line.
    """

    name: str
    type: str
    nodes: tuple[str, ...]
    files: tuple[str, ...]
    count: int | None
    cores: tuple[int, ...] | None
    auto_detect: str
    entry: Entry


class GresConf(Struct, frozen=True):
    """A gres.conf: its lines, and the keys that are not known."""

    path: str
    lines: tuple[GresLine, ...]
    unknown: tuple[Unknown, ...]

    @property
    def auto_detect(self) -> str:
        """What holds for nodes of no line of their own: the last AutoDetect on a line of its own; empty: none."""
        found = [each.auto_detect for each in self.lines if each.auto_detect and not each.name and not each.nodes]
        return found[-1] if found else ""

    def of_node(self, node: str) -> tuple[GresLine, ...]:
        """The lines with resources that hold for a node."""
        return tuple(each for each in self.lines if each.name and (not each.nodes or node in each.nodes))

    def detects(self, node: str) -> bool:
        """Whether slurmd of a node looks for GPUs itself."""
        own = [each.auto_detect for each in self.lines if each.auto_detect and node in each.nodes]
        return (own[-1] if own else self.auto_detect) not in ("", "off")


class CgroupConf(Struct, frozen=True):
    """A cgroup.conf: its settings, and the keys that are not known."""

    path: str
    settings: Settings
    unknown: tuple[Unknown, ...]

    @property
    def constrains_devices(self) -> bool:
        """Whether a job sees only its own GPUs, with task/cgroup."""
        return self.settings.flag("ConstrainDevices")


def read_gres_conf(path: str, read: Read, *, cluster: str = "") -> GresConf:
    """Read a gres.conf; raises `InputError` with file and line."""
    unknown: list[Unknown] = []
    lines: list[GresLine] = []
    for line in read_lines(path, read, cluster=cluster):
        pairs = [GRES.check(pair, unknown) for pair in line.pairs]
        first = pairs[0]
        entry = Entry(first.key, first.value, Settings({each.key.lower(): each for each in pairs}), path, first.line)
        lines.append(_gres_line(entry))
    return GresConf(path, tuple(lines), tuple(unknown))


def _gres_line(entry: Entry) -> GresLine:
    settings = entry.settings
    detect = settings.get("AutoDetect")
    if detect is not None and detect.value.lower() not in AUTO_DETECT:
        raise detect.error(f"is {detect.value[:40]!r}", f"one of {', '.join(AUTO_DETECT)}")
    name = settings.text("Name")
    if not name and detect is None:
        raise entry.error("the line names no resource", "add Name=gpu")
    nodes = settings.get("NodeName")
    given = settings.get("File", "Files", "MultipleFiles")
    files: tuple[str, ...] = ()
    if given is not None:
        try:
            files = expand(given.value)
        except InputError as error:
            raise given.error(error.what, "such as /dev/nvidia[0-7]") from None
    count = settings.get("Count")
    number: int | None = len(files) or None
    if given is not None and given.key == "MultipleFiles":
        number = 1
    if count is not None:
        try:
            number = counted(count.value)
        except ValueError:
            raise count.error(f"is {count.value[:40]!r}", "a whole number") from None
    elif name and not files and detect is None:
        number = 1
    try:
        listed = expand(nodes.value) if nodes is not None else ()
    except InputError as error:
        assert nodes is not None
        raise nodes.error(error.what, error.hint) from None
    cores = tuple(_cores(settings)) if "Cores" in settings else None
    return GresLine(name, settings.text("Type"), listed, files, number, cores,
                    detect.value.lower() if detect is not None else "", entry)  # fmt: skip


def _cores(settings: Settings) -> Iterator[int]:
    setting = settings.get("Cores")
    assert setting is not None
    for part in setting.value.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise setting.error(f"is {setting.value[:40]!r}", "such as 0-47 or 0-15,32-47")
        yield from range(int(match[1]), int(match[2] or match[1]) + 1)


def read_cgroup_conf(path: str, read: Read) -> CgroupConf:
    """Read a cgroup.conf; raises `InputError` with file and line."""
    unknown: list[Unknown] = []
    settings = {
        found.key.lower(): found
        for line in read_lines(path, read)
        for found in (CGROUP.check(pair, unknown) for pair in line.pairs)
    }
    return CgroupConf(path, Settings(settings), tuple(unknown))
