"""Rules about a configuration and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from msgspec import Struct

from muster.slurm.conf import ConfNode, Partition
from muster.slurm.conf_lines import Entry, Setting
from muster.slurm.config.files import Config

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
"""It does not start or does not do what it says; it costs GPUs or time; good to know."""


class Workload(Struct, frozen=True):
    """The shape of a queue, from a snapshot.

    Attributes:
        waiting: jobs that wait.
        running: jobs that run.
        most_of_a_user: the most that one owner has waiting.
        longest_s: the longest time limit of all; 0: none is told.
        unlimited: how many have no limit.
    """

    waiting: int
    running: int
    most_of_a_user: int
    longest_s: float
    unlimited: int


class Hit(Struct, frozen=True):
    """What a rule finds: where, what happens, and what to do."""

    place: Setting | Entry | None
    what: str
    fix: str
    severity: str = ""


class Rule(Struct, frozen=True):
    """One rule: its name, how bad what it finds is, what it is about, and where that is documented."""

    name: str
    family: str
    severity: str
    about: str
    source: str
    check: Callable[[Look], Iterator[Hit]]


class Finding(Struct, frozen=True):
    """What was found; ``file`` and ``line`` are of the setting, or of the file in which one is missing (line 0)."""

    rule: str
    severity: str
    file: str
    line: int
    key: str
    what: str
    fix: str
    source: str


class Look:
    """A configuration, the shape of the queue where it is known, and what follows."""

    def __init__(self, config: Config, workload: Workload | None = None) -> None:
        self.config, self.workload = config, workload
        self.conf = config.conf
        self.settings = config.conf.settings

    @cached_property
    def nodes(self) -> int:
        """How many nodes there are."""
        return sum(len(each.names) for each in self.conf.nodes)

    @cached_property
    def gpu_lines(self) -> tuple[ConfNode, ...]:
        """The lines of nodes with GPUs."""
        return tuple(each for each in self.conf.nodes if each.gres_count("gpu"))

    @cached_property
    def line_of(self) -> dict[str, ConfNode]:
        """Node to its NodeName line."""
        return {name: each for each in self.conf.nodes for name in each.names}

    @cached_property
    def named_in_gres(self) -> dict[str, tuple[int, ...]]:
        """Node to the lines of gres.conf that name it, by their places."""
        found: dict[str, tuple[int, ...]] = {}
        for at, each in enumerate(self.config.gres.lines if self.config.gres is not None else ()):
            for name in each.nodes:
                found[name] = (*found.get(name, ()), at)
        return found

    @cached_property
    def scheduler(self) -> dict[str, str]:
        """SchedulerParameters, options in small letters."""
        return dict(self.settings.options("SchedulerParameters"))

    def lines_of(self, partition: Partition) -> tuple[ConfNode, ...]:
        """The NodeName lines with nodes of a partition."""
        names = set(partition.nodes)
        return tuple(each for each in self.conf.nodes if names.intersection(each.names))

    def gpu_partitions(self) -> Iterator[tuple[Partition, tuple[ConfNode, ...]]]:
        """Partitions that have nodes with GPUs, and the lines of those."""
        for each in self.conf.partitions:
            lines = tuple(line for line in self.lines_of(each) if line.gres_count("gpu"))
            if lines:
                yield each, lines

    def scheduler_number(self, name: str, default: int) -> int:
        """A number of SchedulerParameters; the default where it is not given or is none."""
        value = self.scheduler.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default
