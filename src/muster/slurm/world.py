"""All that was read of a Slurm, whatever it was read from."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.slurm.records import (
    SlurmAssoc,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmQos,
    SlurmReservation,
    SlurmSwitch,
)


def _nothing() -> dict[str, str]:
    return {}


class SlurmWorld(Struct):
    """The records of a Slurm at one instant.

    Attributes:
        cluster: its name.
        now_s: the instant; 0: not told.
        nodes, jobs, partitions, reservations, associations, qos, switches: its records; empty where they were not read.
        config: parameters of ``scontrol show config`` or slurm.conf by name.
        missing: what could not be read, and why.
        unread: of files, what is damaged or no output of Slurm: file, line and why.
        version: such as ``22.05.8``; empty: not told.
    """

    cluster: str = ""
    now_s: float = 0.0
    nodes: list[SlurmNode] = field(default_factory=list[SlurmNode])
    jobs: list[SlurmJob] = field(default_factory=list[SlurmJob])
    partitions: list[SlurmPartition] = field(default_factory=list[SlurmPartition])
    reservations: list[SlurmReservation] = field(default_factory=list[SlurmReservation])
    associations: list[SlurmAssoc] = field(default_factory=list[SlurmAssoc])
    qos: list[SlurmQos] = field(default_factory=list[SlurmQos])
    switches: list[SlurmSwitch] = field(default_factory=list[SlurmSwitch])
    config: Mapping[str, str] = field(default_factory=_nothing)
    missing: dict[str, str] = field(default_factory=_nothing)
    version: str = ""
    unread: list[str] = field(default_factory=list[str])

    def option(self, parameter: str, name: str) -> str | None:
        """The value of ``name=`` within a parameter such as SchedulerParameters; empty for a flag; None: not set."""
        for part in self.config.get(parameter, "").split(","):
            key, _, value = part.partition("=")
            if key.strip().casefold() == name.casefold():
                return value.strip()
        return None
