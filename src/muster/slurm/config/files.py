"""The files of one cluster's configuration, as one value."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.errors import InputError
from muster.slurm.conf import SlurmConf, read_slurm_conf
from muster.slurm.conf_gres import CgroupConf, GresConf, read_cgroup_conf, read_gres_conf
from muster.slurm.conf_lines import Read, Unknown
from muster.slurm.conf_topology import TopologyConf, read_topology_conf, read_topology_yaml

NAMES = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", "topology.yaml")
"""The files that are read, by their names."""


class Config(Struct, frozen=True):
    """A cluster's configuration.

    Attributes:
        conf: slurm.conf.
        gres: gres.conf; None: there is none.
        cgroup: cgroup.conf; None: there is none.
        topologies: of topology.yaml, else the one of topology.conf; empty: there is neither file.
    """

    conf: SlurmConf
    gres: GresConf | None = None
    cgroup: CgroupConf | None = None
    topologies: tuple[TopologyConf, ...] = ()

    @property
    def topology(self) -> TopologyConf | None:
        """The one that partitions have which name none."""
        return next((each for each in self.topologies if each.default), self.topologies[0] if self.topologies else None)

    @property
    def unknown(self) -> tuple[Unknown, ...]:
        """Keys of all files that are not known."""
        found = [*self.conf.unknown]
        for each in (self.gres, self.cgroup, *self.topologies):
            found += each.unknown if each is not None else ()
        return tuple(found)


def read_config(paths: Mapping[str, str], read: Read) -> Config:
    """Read the files.

    Args:
        paths: name of each file (one of NAMES) to its path.
        read: gives the text of a file by its path.

    Raises:
        InputError: there is no slurm.conf, or a file is wrong; with file and line.
    """
    if "slurm.conf" not in paths:
        raise InputError("no slurm.conf is named", hint="name it, or the folder that has it")
    conf = read_slurm_conf(paths["slurm.conf"], read)
    cluster = conf.settings.text("ClusterName").lower()
    topologies: tuple[TopologyConf, ...] = ()
    if "topology.yaml" in paths:
        topologies = read_topology_yaml(paths["topology.yaml"], read)
    elif "topology.conf" in paths:
        topologies = (read_topology_conf(paths["topology.conf"], read),)
    return Config(
        conf,
        read_gres_conf(paths["gres.conf"], read, cluster=cluster) if "gres.conf" in paths else None,
        read_cgroup_conf(paths["cgroup.conf"], read) if "cgroup.conf" in paths else None,
        topologies,
    )
