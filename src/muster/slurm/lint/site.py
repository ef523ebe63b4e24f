"""What a site's configuration tells about a job: its partition, nodes, defaults, and whether cgroups hide GPUs."""

from __future__ import annotations

from msgspec import Struct

from muster.slurm.conf import ConfNode, Partition, SlurmConf
from muster.slurm.conf_gres import CgroupConf
from muster.slurm.conf_lines import Setting
from muster.slurm.lint.job import Job


class Site(Struct, frozen=True):
    """A site for one job.

    Attributes:
        conf: its slurm.conf.
        cgroup: its cgroup.conf; None: there is none.
        partition: the one that the job goes to; None where it names none that is there, or several.
        nodes: NodeName lines with nodes of the partition that may be the job's, by its GPU type.
    """

    conf: SlurmConf
    cgroup: CgroupConf | None
    partition: Partition | None
    nodes: tuple[ConfNode, ...]

    @property
    def gpus_per_node(self) -> int:
        """GPUs of the nodes that have the most; 0: none has any."""
        return max((each.gres_count("gpu") for each in self.nodes), default=0)

    @property
    def gpu_nodes(self) -> tuple[ConfNode, ...]:
        """The lines of nodes with the most GPUs."""
        most = self.gpus_per_node
        return tuple(each for each in self.nodes if most and each.gres_count("gpu") == most)

    @property
    def cpus_per_node(self) -> int:
        """CPUs of the smallest node with the most GPUs."""
        return min((each.cpus for each in self.gpu_nodes or self.nodes), default=0)

    @property
    def memory_mib(self) -> int:
        """Memory of the smallest node with the most GPUs."""
        return min((each.memory_mib for each in self.gpu_nodes or self.nodes), default=0)

    def setting(self, key: str) -> Setting | None:
        """What holds for the job's partition: its own setting, else the cluster's."""
        return self.conf.setting(self.partition, key)

    @property
    def memory_default(self) -> Setting | None:
        """What memory a job has that asks for none; None: a node's whole memory."""
        for key in ("DefMemPerGPU", "DefMemPerCPU", "DefMemPerNode"):
            found = self.setting(key)
            if found is not None and found.value not in ("0", "UNLIMITED"):
                return found
        return None

    @property
    def counts_memory(self) -> bool:
        """Whether memory is given out at all (SelectTypeParameters)."""
        return "memory" in self.conf.settings.text("SelectTypeParameters", "CR_Core_Memory").lower()

    @property
    def hides_gpus(self) -> bool:
        """Whether a job can open only its own GPUs."""
        plugins = self.conf.settings.text("TaskPlugin").lower()
        return "cgroup" in plugins and self.cgroup is not None and self.cgroup.constrains_devices


def site_of(conf: SlurmConf, cgroup: CgroupConf | None, job: Job) -> Site:
    """What holds for a job."""
    named = job.value("partition")
    partition = conf.partition(named) if named else conf.default_partition
    members = set(partition.nodes) if partition is not None else {name for each in conf.nodes for name in each.names}
    kinds = [job.gpus(name) for name in ("gpus", "gpus-per-node", "gpus-per-task")]
    kind = next((each[0] for each in [*kinds, job.gres_gpus] if each is not None and each[0]), "")
    lines = tuple(each for each in conf.nodes if members.intersection(each.names))
    typed = tuple(each for each in lines if any(gres.type.lower() == kind.lower() for gres in each.gres))
    return Site(conf, cgroup, partition, typed if kind and typed else lines)
