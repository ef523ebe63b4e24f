"""A fleet as the configuration of a Slurm: slurm.conf, gres.conf, cgroup.conf and topology.conf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from muster.errors import InputError, near
from muster.model.fleet import Fleet, Node
from muster.slurm.conf_keys import SLURM
from muster.slurm.conf_topology import BLOCK, TREE
from muster.slurm.hostlist import compress

_MIB = 1 << 20
_NO_NAME = re.compile(r"[^a-z0-9_]+")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
FLAT = "none"


class Wanted(Struct, frozen=True):
    """What the fleet does not tell.

    Attributes:
        cluster: name of the cluster.
        controller: the host of slurmctld.
        database: the host of slurmdbd; empty: none, and then no accounts, QOS and fair share.
        topology: TREE, BLOCK, FLAT (no file), or empty: a tree where the fleet has levels.
        max_time_s: the longest time limit of a job.
        default_time_s: of a job that asks for none.
        devices: where the GPUs' device files are; a node's number follows.
        settings: lines ``Key=Value`` of slurm.conf that take the place of the generated ones.
    """

    cluster: str = "gpu"
    controller: str = "controller"
    database: str = "controller"
    topology: str = ""
    max_time_s: float = 7 * 86400.0
    default_time_s: float = 3600.0
    devices: str = "/dev/nvidia"
    settings: tuple[str, ...] = ()


def generate(fleet: Fleet, wanted: Wanted) -> dict[str, str]:
    """File name to its text.

    Raises:
        InputError: the fleet has no nodes, a name that Slurm does not take, GPUs of several models or carved by MIG on
            one node, or a setting is none.
    """
    _check(fleet)
    _check_words(wanted)
    types = gpu_types(fleet)
    groups = list(_groups(fleet, types))
    topology = _topology(fleet, wanted)
    files = {"slurm.conf": "\n".join(_slurm_conf(fleet, groups, types, wanted, bool(topology))) + "\n"}
    gpus = [group for group in groups if group.gpus]
    if gpus:
        lines = [
            f"NodeName={compress(each.names)} Name=gpu Type={each.kind} File={_files(wanted.devices, each.gpus)}"
            for each in gpus
        ]
        files["gres.conf"] = "\n".join(["# add Cores= as nvidia-smi topo -m says, or AutoDetect=nvml", *lines]) + "\n"
    files["cgroup.conf"] = "ConstrainCores=yes\nConstrainDevices=yes\nConstrainRAMSpace=yes\n"
    if topology:
        files["topology.conf"] = "\n".join(topology) + "\n"
    return files


class _Group(Struct, frozen=True):
    """Nodes of one NodeName line."""

    names: tuple[str, ...]
    cpus: int
    memory_mib: int
    kind: str
    gpus: int
    state: str


def _check(fleet: Fleet) -> None:
    if not fleet.nodes:
        raise InputError("the fleet has no nodes", hint="name one that has some, such as example")
    for node in fleet.nodes:
        if not _NODE_NAME.fullmatch(node.name) or node.name.upper() in ("DEFAULT", "ALL"):
            raise InputError(
                f"node {node.name[:60]!r} has a name that Slurm does not take", hint="letters, digits, . _ -"
            )
        if len(node.gpu_models) > 1:
            what = f"node {node.name} has GPUs of several models, {', '.join(node.gpu_models)}"
            raise InputError(what, hint="one model a node is generated")
        if any(device.mig_profiles for device in node.devices):
            raise InputError(f"GPUs of node {node.name} are carved by MIG", hint="AutoDetect=nvml finds MIG instances")


def _check_words(wanted: Wanted) -> None:
    """Raise `InputError` for a value that would not be one of slurm.conf: it may not break its line, nor be empty."""
    named = (("--name", wanted.cluster), ("--controller", wanted.controller), ("--database", wanted.database or "none"),
             ("--devices", wanted.devices))  # fmt: skip
    for field, value in named:
        if not re.fullmatch(r"[\w.:/()\[\],-]+", value, re.ASCII):
            what = f"is {value[:40]!r}" if value else "is empty"
            raise InputError(what, field=field, hint="letters, digits, . _ - and such, in one word")
    for line in wanted.settings:
        if not line.isprintable():
            raise InputError(f"{line[:40]!r} holds a line end or another control character", field="--set",
                             hint="one --set a line")  # fmt: skip


def gpu_types(fleet: Fleet) -> dict[str, str]:
    """GPU model to Slurm's type: its first word in small letters, more of it where two models begin alike."""
    models = list(fleet.gpus_by_model)
    short = {model: _NO_NAME.sub("_", re.split(r"[-_ ]", model.lower())[0]).strip("_") or "gpu" for model in models}
    full = {model: _NO_NAME.sub("_", model.lower()).strip("_") or "gpu" for model in models}
    alike = {kind for kind in short.values() if list(short.values()).count(kind) > 1}
    return {model: full[model] if short[model] in alike else short[model] for model in models}


def _groups(fleet: Fleet, types: Mapping[str, str]) -> Iterator[_Group]:
    """Nodes that are alike, in the order of the first of each."""
    found: dict[tuple[int, int, str, int, str], list[str]] = {}
    for node in fleet.nodes:
        found.setdefault(_shape(node, types), []).append(node.name)
    for (cpus, memory, kind, gpus, state), names in found.items():
        yield _Group(tuple(names), cpus, memory, kind, gpus, state)


def _shape(node: Node, types: Mapping[str, str]) -> tuple[int, int, str, int, str]:
    healthy = node.healthy_gpus
    kind = types[node.devices[0].model] if healthy else ""
    reason = f' Reason="{node.reason or "not schedulable"}"'.replace("#", "") if not node.schedulable else ""
    state = f"DRAIN{reason}" if not node.schedulable else "UNKNOWN"
    return max(1, node.cpu_milli // 1000), max(1, node.memory_bytes // _MIB), kind, healthy, state


def _files(prefix: str, count: int) -> str:
    return f"{prefix}0" if count == 1 else f"{prefix}[0-{count - 1}]"


def _slurm_conf(
    fleet: Fleet, groups: Sequence[_Group], types: Mapping[str, str], wanted: Wanted, has_topology: bool
) -> Iterator[str]:
    chosen = dict(line.split("=", 1) for line in _general(fleet, types, wanted, has_topology))
    for line in wanted.settings:
        key, equals, value = line.partition("=")
        spelled = SLURM.spelled(key.strip())
        if not equals or spelled is None:
            hint = near(key.strip(), SLURM.names) or "such as TreeWidth=64"
            raise InputError(f"{line[:60]!r} is no setting of slurm.conf", field="--set", hint=hint)
        chosen[spelled] = value.strip()
    yield from (f"{key}={value}" for key, value in chosen.items() if value)
    yield ""
    for each in groups:
        gres = f" Gres=gpu:{each.kind}:{each.gpus} Feature={each.kind}" if each.gpus else ""
        yield f"NodeName={compress(each.names)} CPUs={each.cpus} RealMemory={each.memory_mib}{gres} State={each.state}"
    yield ""
    yield from _partitions(groups, wanted)


def _general(fleet: Fleet, types: Mapping[str, str], wanted: Wanted, has_topology: bool) -> Iterator[str]:
    count = len(fleet.nodes)
    yield f"ClusterName={wanted.cluster}"
    yield f"SlurmctldHost={wanted.controller}"
    yield "AuthType=auth/munge"
    yield "SlurmUser=slurm"
    yield "StateSaveLocation=/var/spool/slurmctld"
    yield "SlurmdSpoolDir=/var/spool/slurmd"
    yield "SlurmctldLogFile=/var/log/slurm/slurmctld.log"
    yield "SlurmdLogFile=/var/log/slurm/slurmd.log"
    yield "ProctrackType=proctrack/cgroup"
    yield "TaskPlugin=task/affinity,task/cgroup"
    yield "ReturnToService=1"
    yield "SlurmdTimeout=300"
    yield f"MessageTimeout={60 if count > 500 else 20}"
    yield "UnkillableStepTimeout=180"
    if count > 2500:
        yield f"TreeWidth={max(50, int(count ** (1 / 2)) + 1)}"
    if types:
        yield "GresTypes=gpu"
    yield "SelectType=select/cons_tres"
    yield "SelectTypeParameters=CR_Core_Memory"
    yield "EnforcePartLimits=ALL"
    if has_topology:
        yield f"TopologyPlugin=topology/{wanted.topology or TREE}"
    minutes = min(43200, max(1440, int(wanted.max_time_s // 60)))
    resolution = max(60, minutes // 1440 * 60)
    yield "SchedulerType=sched/backfill"
    yield (
        f"SchedulerParameters=bf_continue,bf_window={minutes},bf_resolution={resolution},bf_max_job_test=2000,"
        "bf_max_job_user=100"
    )
    if wanted.database:  # without slurmdbd the weights of age, fair share and QOS are ignored: first come, first served
        yield "PriorityType=priority/multifactor"
        yield "PriorityMaxAge=7-0"
        yield "PriorityWeightAge=10000"
        yield "PriorityWeightJobSize=10000"
        yield "PriorityWeightFairshare=100000"
        yield "PriorityWeightQOS=1000000"
        yield "AccountingStorageType=accounting_storage/slurmdbd"
        yield f"AccountingStorageHost={wanted.database}"
        yield "AccountingStorageEnforce=associations,limits,qos,safe"
        yield "JobAcctGatherType=jobacct_gather/cgroup"
    if types and wanted.database:  # without slurmdbd, slurmctld does not start with a TRES of its own
        yield f"AccountingStorageTRES={','.join(['gres/gpu', *(f'gres/gpu:{kind}' for kind in types.values())])}"


def _partitions(groups: Sequence[_Group], wanted: Wanted) -> Iterator[str]:
    """One partition a GPU type, and one for nodes without GPUs; the one with the most GPUs is the default."""
    by_kind: dict[str, list[_Group]] = {}
    for each in groups:
        by_kind.setdefault(each.kind if each.gpus else "", []).append(each)
    largest = max(by_kind, key=lambda kind: sum(each.gpus * len(each.names) for each in by_kind[kind]))
    minutes = f"MaxTime={_limit(wanted.max_time_s)} DefaultTime={_limit(min(wanted.default_time_s, wanted.max_time_s))}"
    for kind, mine in by_kind.items():
        nodes = compress([name for each in mine for name in each.names])
        default = " Default=YES" if kind == largest else ""
        if kind:
            memory = min(each.memory_mib // each.gpus for each in mine)
            memory = memory // 1000 * 1000 or memory
            cpus = min(each.cpus // each.gpus for each in mine)
            share = f" DefMemPerGPU={max(1, memory)}" + (f" DefCpuPerGPU={cpus}" if cpus else "")
        else:
            share = f" DefMemPerCPU={max(1, min(each.memory_mib // each.cpus for each in mine))}"
        yield f"PartitionName={kind or 'cpu'} Nodes={nodes}{default} {minutes}{share} State=UP"


def _limit(seconds: float) -> str:
    days, rest = divmod(int(seconds // 60), 1440)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00" if days else f"{rest // 60:02d}:{rest % 60:02d}:00"


# -- topology


def _topology(fleet: Fleet, wanted: Wanted) -> list[str]:
    levels = fleet.topology.levels
    if wanted.topology == FLAT or (not levels and not wanted.topology):
        return []
    if not levels:
        raise InputError(
            "the fleet has no levels", field="--topology", hint="a uniform fleet has some with block=, rack="
        )
    if wanted.topology == BLOCK:
        return list(_blocks(fleet))
    return list(_tree(fleet))


def _blocks(fleet: Fleet) -> Iterator[str]:
    """A block a domain of the level that stands for NVLink: nvlink_domain, else block, else the narrowest."""
    levels = fleet.topology.levels
    level = next((each for each in ("nvlink_domain", "block") if each in levels), levels[-1])
    at = levels.index(level)
    members: dict[tuple[str, ...], list[str]] = {}
    for node in fleet.nodes:
        members.setdefault(node.topology[: at + 1], []).append(node.name)
    names = _unique(list(members))
    for path, nodes in members.items():
        yield f"BlockName={names[path]} Nodes={compress(nodes)}"
    yield f"BlockSizes={min(map(len, members.values()))}"


def _tree(fleet: Fleet) -> Iterator[str]:
    """A switch a domain, the leaves first, and one above all where the widest level has several."""
    depth = len(fleet.topology.levels)
    members: dict[tuple[str, ...], list[str]] = {}
    for node in fleet.nodes:
        members.setdefault(node.topology[:depth], []).append(node.name)
    paths = [path[:length] for path in members for length in range(1, len(path) + 1)]
    names = _unique(list(dict.fromkeys(paths)))
    for path, nodes in members.items():
        yield f"SwitchName={names[path]} Nodes={compress(nodes)}"
    children: dict[tuple[str, ...], dict[tuple[str, ...], None]] = {}
    for path in members:
        for length in range(len(path) - 1, -1, -1):
            children.setdefault(path[:length], {})[path[: length + 1]] = None
    for path in sorted(children, key=len, reverse=True):
        mine = [names[child] for child in children[path]]
        if path or len(mine) > 1:
            yield f"SwitchName={names.get(path, 'core')} Switches={','.join(mine)}"


def _unique(paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A name for each domain: its own, and the names above it where another is called alike; without blanks."""
    last = [path[-1] for path in paths]
    found: dict[tuple[str, ...], str] = {}
    for path in paths:
        name = path[-1] if last.count(path[-1]) == 1 and path[-1] != "core" else "-".join(path)
        found[path] = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return found
