"""What to start, and the configuration files that say it to Slurm."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

USERS = {"research": ("games", "news"), "product": ("mail", "backup")}
"""Account -> users, who are users that every Debian has, so that none must be made. root is in both."""
DATABASE_PASSWORD = "muster"
"""Of a database that listens on loopback and lives as long as its Slurm."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to start."""

    nodes: int = 16
    gpus: int = 8
    """GPUs of a node."""
    model: str = "h100"
    cloud: bool = False
    """Nodes are ``State=CLOUD``: no slurmd runs, jobs that start stay in CONFIGURING."""
    accounting: bool = True
    """slurmdbd and MariaDB run: accounts, QOS, fair share and sacct. Without, Slurm counts no GPUs in AllocTRES."""
    rest: bool = False
    """slurmrestd runs, on a socket in the folder."""
    per_leaf: int = 4
    """Nodes of a leaf switch."""
    leafs_per_block: int = 2
    sockets: int = 2
    cores_per_socket: int = 48
    memory_mib: int = 2_000_000
    parameters: tuple[str, ...] = ()
    """Lines ``Key=Value`` of slurm.conf that replace those of the same key; ``PartitionName=`` adds a partition."""

    def node_names(self) -> list[str]:
        """gpu01, gpu02 ...: as many digits as the last one has, two at least."""
        digits = max(2, len(str(self.nodes)))
        return [f"gpu{number:0{digits}d}" for number in range(1, self.nodes + 1)]

    def hostlist(self, first: int = 1, last: int = 0) -> str:
        """The nodes from number `first` to `last` (0: the last one) as Slurm writes them."""
        names = self.node_names()[first - 1 : last or None]
        return names[0] if len(names) == 1 else f"gpu[{names[0][3:]}-{names[-1][3:]}]"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one Slurm lives: what the files below need to know."""

    name: str
    folder: Path
    ports: dict[str, int]
    settings: Settings

    @property
    def munge_socket(self) -> Path:
        """Where munged listens."""
        return self.folder / "run" / "munge"


def write(place: Place) -> None:
    """Write every configuration file of `place`; the folder exists."""
    etc = place.folder / "etc"
    for folder in (etc, *(place.folder / name for name in ("run", "state", "spool", "log"))):
        folder.mkdir(exist_ok=True, mode=0o755)
    files = {"slurm.conf": slurm_conf(place), "topology.conf": topology_conf(place.settings)}
    if place.settings.gpus:
        files["gres.conf"] = gres_conf(place)
    for name, text in files.items():
        (etc / name).write_text(text)
    if place.settings.accounting:
        secret = etc / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text(slurmdbd_conf(place))


def slurm_conf(place: Place) -> str:
    """slurm.conf; `Settings.parameters` replace lines."""
    lines = dict(line.split("=", 1) for line in _general(place))
    extra: list[str] = []
    for parameter in place.settings.parameters:
        key, _, value = parameter.partition("=")
        if key in ("PartitionName", "NodeName", "NodeSet"):
            extra.append(parameter)
        elif value:
            lines[key] = value
        else:
            lines.pop(key, None)
    body = [f"{key}={value}" for key, value in lines.items()]
    return "\n".join((*body, *_nodes(place), *_partitions(place.settings), *extra)) + "\n"


def _general(place: Place) -> Iterator[str]:
    settings, user = place.settings, getpass.getuser()
    folder = place.folder
    yield f"ClusterName={place.name}"
    yield f"SlurmctldHost={socket.gethostname().split('.')[0]}(127.0.0.1)"
    yield f"SlurmctldPort={place.ports['slurmctld']}"
    yield f"SlurmUser={user}"
    yield f"SlurmdUser={user}"
    yield "AuthType=auth/munge"
    yield f"AuthInfo=socket={place.munge_socket}"
    yield f"StateSaveLocation={folder}/state"
    yield f"SlurmdSpoolDir={folder}/spool/%n"
    yield f"SlurmctldPidFile={folder}/run/slurmctld.pid"
    yield f"SlurmdPidFile={folder}/run/%n.pid"
    yield f"SlurmctldLogFile={folder}/log/slurmctld.log"
    yield f"SlurmdLogFile={folder}/log/%n.log"
    # without cgroups, so that it runs in a container too; the nodes are larger than the machine
    yield "ProctrackType=proctrack/linuxproc"
    yield "TaskPlugin=task/none"
    yield "SlurmdParameters=config_overrides"
    yield "MpiDefault=none"
    yield "SelectType=select/cons_tres"
    yield "SelectTypeParameters=CR_Core_Memory"
    yield "TopologyPlugin=topology/tree"
    if settings.gpus:
        yield "GresTypes=gpu"
    yield "SchedulerType=sched/backfill"
    yield f"SchedulerParameters={'bf_continue,bf_max_job_test=10000,bf_window=10080' if settings.cloud else _EAGER}"
    yield "PriorityType=priority/multifactor"
    yield "PriorityWeightAge=1000"
    yield "PriorityWeightPartition=1000"
    yield "PriorityWeightQOS=10000"
    if settings.accounting:
        yield "PriorityWeightFairshare=5000"
        yield "JobAcctGatherType=jobacct_gather/linux"
        if settings.gpus:
            yield f"AccountingStorageTRES=gres/gpu,gres/gpu:{settings.model}"
        yield "AccountingStorageType=accounting_storage/slurmdbd"
        yield "AccountingStorageHost=127.0.0.1"
        yield f"AccountingStoragePort={place.ports['slurmdbd']}"
        yield f"AccountingStoragePass={place.munge_socket}"  # with munge, it is the socket
        yield "AccountingStorageEnforce=associations,limits,qos"
    yield "PreemptType=preempt/partition_prio"
    yield "PreemptMode=REQUEUE"
    yield "ReturnToService=2"
    yield "KillWait=2"
    yield "MaxArraySize=10001"
    yield "MaxJobCount=50000"
    yield "Licenses=matlab:4"
    if settings.cloud:
        yield "PrivateData=cloud"  # without it, nodes that are powered off are hidden
        yield "SuspendProgram=/bin/true"
        yield "ResumeProgram=/bin/true"
        yield "SuspendTime=60000"
        yield "ResumeTimeout=60000"


_EAGER = "bf_interval=2,sched_interval=2,bf_continue,bf_window=10080,defer_batch=0,batch_sched_delay=0"
"""A test waits for the next cycle: seconds, not half a minute."""


def _nodes(place: Place) -> Iterator[str]:
    settings = place.settings
    gres = f" Gres=gpu:{settings.model}:{settings.gpus}" if settings.gpus else ""
    shape = (
        f"Sockets={settings.sockets} CoresPerSocket={settings.cores_per_socket} ThreadsPerCore=1 "
        f"RealMemory={settings.memory_mib}{gres}"
    )
    if settings.cloud:
        yield f"NodeName={settings.hostlist()} {shape} Feature={settings.model},nvlink State=CLOUD"
        return
    first = place.ports["slurmd"]
    host = socket.gethostname().split(".")[0]
    ports = f"[{first}-{first + settings.nodes - 1}]" if settings.nodes > 1 else str(first)
    yield (
        f"NodeName={settings.hostlist()} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} {shape} "
        f"Feature={settings.model},nvlink State=UNKNOWN"
    )


def _partitions(settings: Settings) -> Iterator[str]:
    gpu = " DefCpuPerGPU=10 DefMemPerGPU=200000" if settings.gpus else ""
    everyone = settings.hostlist()
    yield (
        f"PartitionName=gpu Nodes={everyone} Default=YES DefaultTime=01:00:00 MaxTime=7-00:00:00 "
        f"PriorityTier=10 PreemptMode=OFF State=UP{gpu}"
    )
    yield (
        f"PartitionName=debug Nodes={settings.hostlist(1, min(2, settings.nodes))} DefaultTime=00:10:00 "
        f"MaxTime=00:30:00 MaxNodes=1 PriorityTier=20 PreemptMode=OFF State=UP{gpu}"
    )
    yield (
        f"PartitionName=spot Nodes={everyone} DefaultTime=01:00:00 MaxTime=7-00:00:00 PriorityTier=1 "
        f"PreemptMode=REQUEUE State=UP{gpu}"
    )


def gres_conf(place: Place) -> str:
    """gres.conf: the devices of a node, which all nodes share; CLOUD nodes have none."""
    settings = place.settings
    head = f"NodeName={settings.hostlist()} Name=gpu Type={settings.model}"
    if settings.cloud:
        return f"{head} Count={settings.gpus}\n"
    last = f"[0-{settings.gpus - 1}]" if settings.gpus > 1 else "0"
    return f"{head} File={place.folder}/dev/nvidia{last}\n"


def topology_conf(settings: Settings) -> str:
    """topology.conf: leaf switches of `per_leaf` nodes, blocks of leaf switches, one core."""
    lines: list[str] = []
    leafs: list[str] = []
    for first in range(1, settings.nodes + 1, settings.per_leaf):
        last = min(first + settings.per_leaf - 1, settings.nodes)
        leafs.append(f"leaf{len(leafs) + 1}")
        lines.append(f"SwitchName={leafs[-1]} Nodes={settings.hostlist(first, last)}")
    blocks: list[str] = []
    for first in range(0, len(leafs), settings.leafs_per_block):
        blocks.append(f"block{len(blocks) + 1}")
        lines.append(f"SwitchName={blocks[-1]} Switches={','.join(leafs[first : first + settings.leafs_per_block])}")
    if len(blocks) > 1:
        lines.append(f"SwitchName=core Switches={','.join(blocks)}")
    return "\n".join(lines) + "\n"


def slurmdbd_conf(place: Place) -> str:
    """slurmdbd.conf: the database is this Slurm's own."""
    return "\n".join(
        (
            "AuthType=auth/munge",
            f"AuthInfo=socket={place.munge_socket}",
            f"DbdHost={socket.gethostname().split('.')[0]}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={place.ports['slurmdbd']}",
            f"SlurmUser={getpass.getuser()}",
            f"LogFile={place.folder}/log/slurmdbd.log",
            f"PidFile={place.folder}/run/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={place.ports['mariadbd']}",
            "StorageUser=slurm",
            f"StoragePass={DATABASE_PASSWORD}",
            "StorageLoc=slurm",
            "",
        )
    )
