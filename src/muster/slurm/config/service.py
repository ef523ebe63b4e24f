"""Rules about the keys themselves, accounting, and how daemons and nodes come back."""

from __future__ import annotations

from collections.abc import Iterator

from muster.slurm.conf_keys import CGROUP_GONE, GONE
from muster.slurm.config.findings import ERROR, NOTE, WARNING, Hit, Look, Rule


def unknown_keys(look: Look) -> Iterator[Hit]:
    """slurmctld stops at a key that it does not know."""
    for each in look.config.unknown:
        what = f"{each.setting.key} is no key of {each.among}: Slurm stops at it, unless yours is newer than 26.05"
        yield Hit(each.setting, what, each.hint or "take it out")


def missing_keys(look: Look) -> Iterator[Hit]:
    """Without these slurmctld does not start."""
    if "ClusterName" not in look.settings:
        yield Hit(None, "no ClusterName: slurmctld does not start", "ClusterName=NAME")
    if not look.conf.hosts and "ControlMachine" not in look.settings:
        yield Hit(None, "no SlurmctldHost: no command finds slurmctld, which does not start", "SlurmctldHost=NAME")
    if not look.conf.nodes and "MaxNodeCount" not in look.settings:
        yield Hit(None, "no NodeName line: there is nothing to run on", "NodeName=NAME, as slurmd -C prints it")
    if not look.conf.partitions:
        yield Hit(None, "no PartitionName line: slurmctld does not start", "PartitionName=NAME Nodes=ALL Default=YES")


def old_keys(look: Look) -> Iterator[Hit]:
    """Keys that newer Slurms do not read."""
    cgroup = look.config.cgroup
    for settings, gone in ((look.settings, GONE), (cgroup.settings if cgroup is not None else (), CGROUP_GONE)):
        for setting in settings:
            if setting.key in gone:
                what = f"{setting.key} is not read any more by newer Slurms"
                yield Hit(setting, what, gone[setting.key])


def twice(look: Look) -> Iterator[Hit]:
    """The last of a key counts."""
    for setting in look.conf.twice:
        last = look.settings.get(setting.key)
        assert last is not None
        if last.value != setting.value:
            what = f"{setting.key}={setting.value} does not count: {last.where} says {last.value}"
            yield Hit(setting, what, "leave one out")


def accounting(look: Look) -> Iterator[Hit]:
    """GPUs that are not tracked cannot be limited, counted or billed."""
    if not look.gpu_lines:
        return
    kind, tres = look.settings.get("AccountingStorageType"), look.settings.get("AccountingStorageTRES")
    if kind is None or "slurmdbd" not in kind.value.lower():
        if tres is not None and any("/" in word for word in look.settings.words("AccountingStorageTRES")):
            what = f"AccountingStorageTRES={tres.value} without slurmdbd: slurmctld does not start"
            yield Hit(tres, what, "AccountingStorageType=accounting_storage/slurmdbd, or leave it out", ERROR)
        what = "no slurmdbd: no accounts, no QOS and no fair share; GPUs are not counted, past jobs are forgotten"
        yield Hit(kind or look.gpu_lines[0].entry, what, "AccountingStorageType=accounting_storage/slurmdbd", NOTE)
        return
    tracked = {each.lower() for each in look.settings.words("AccountingStorageTRES")}
    if "gres/gpu" not in tracked:
        what = (
            "AccountingStorageTRES has no gres/gpu: AllocTRES has no GPUs, so that they cannot be limited, counted or "
            "billed"
        )
        fix = f"AccountingStorageTRES={','.join([*sorted(tracked), 'gres/gpu'])}"
        yield Hit(tres or look.gpu_lines[0].entry, what, fix)
    enforce = look.settings.get("AccountingStorageEnforce")
    words = {each.lower() for each in look.settings.words("AccountingStorageEnforce")}
    if not words & {"limits", "all", "safe", "1"}:
        what = "AccountingStorageEnforce has no limits: those of accounts and QOS are not kept"
        yield Hit(enforce or kind, what, "AccountingStorageEnforce=associations,limits,qos,safe")


def nodes_that_come_back(look: Look) -> Iterator[Hit]:
    """What happens to a node that was away."""
    setting = look.settings.get("ReturnToService")
    if look.settings.integer("ReturnToService", 0) == 0 and look.nodes > 1:
        place = setting or look.conf.nodes[0].entry
        what = "ReturnToService=0: a node that did not answer for a while stays DOWN until somebody resumes it"
        yield Hit(place, what, "ReturnToService=1, or 2 if a health check runs before jobs")
    if look.gpu_lines and "HealthCheckProgram" not in look.settings:
        what = "no HealthCheckProgram: a GPU that has failed goes on being given out"
        yield Hit(look.gpu_lines[0].entry, what, "HealthCheckProgram= and HealthCheckInterval=300", NOTE)
    unkillable = look.settings.integer("UnkillableStepTimeout", 60)
    if look.gpu_lines and unkillable < 120:
        told = "" if "UnkillableStepTimeout" in look.settings else " (the default)"
        what = (
            f"UnkillableStepTimeout={unkillable}{told}: a job that writes a large core or waits for its file "
            "system drains its node"
        )
        yield Hit(
            look.settings.get("UnkillableStepTimeout") or look.gpu_lines[0].entry,
            what,
            "UnkillableStepTimeout=180",
            NOTE,
        )


def size(look: Look) -> Iterator[Hit]:
    """Time-outs and the message tree for so many nodes."""
    count, settings = look.nodes, look.settings
    message = settings.integer("MessageTimeout", 10)
    if count > 500 and message < 20:
        what = (
            f"MessageTimeout={message} for {count:,} nodes: messages through the tree time out under load, nodes "
            "seem not to respond"
        )
        yield Hit(settings.get("MessageTimeout") or look.conf.nodes[0].entry, what, "MessageTimeout=60")
    width = settings.integer("TreeWidth", 50)
    if width * width < count:
        root = int(count**0.5) + 1 if count <= 2500 else int(count ** (1 / 3)) + 1
        told = "" if "TreeWidth" in settings else " (the default)"
        what = f"TreeWidth={width}{told} for {count:,} nodes: messages need three hops or more"
        yield Hit(settings.get("TreeWidth") or look.conf.nodes[0].entry, what, f"TreeWidth={max(root, width)}",
                  NOTE if count > 2500 else WARNING)  # fmt: skip
    slurmd = settings.integer("SlurmdTimeout", 300)
    if 0 < slurmd < 120:
        what = f"SlurmdTimeout={slurmd}: a short network fault sets nodes DOWN, and their jobs end"
        yield Hit(settings.get("SlurmdTimeout"), what, "SlurmdTimeout=300")
    if 0 < slurmd <= message:
        yield Hit(settings.get("SlurmdTimeout"), f"SlurmdTimeout={slurmd} is not longer than MessageTimeout={message}",
                  "SlurmdTimeout=300")  # fmt: skip


_FAMILY = "service"
RULES = (
    Rule("unknown-key", _FAMILY, ERROR, "a key that there is not", "slurm.conf(5): PARAMETERS", unknown_keys),
    Rule("missing-key", _FAMILY, ERROR, "without it Slurm does not start, or has nothing to run on",
         "slurm.conf(5): ClusterName, SlurmctldHost, NodeName, PartitionName", missing_keys),
    Rule("old-key", _FAMILY, WARNING, "a key that is not read any more", "Slurm, RELEASE_NOTES",
         old_keys),
    Rule("given-twice", _FAMILY, WARNING, "a key with two values", "slurm.conf(5)", twice),
    Rule("accounting", _FAMILY, WARNING, "GPUs are not accounted for",
         "slurm.conf(5): AccountingStorageTRES, AccountingStorageEnforce", accounting),
    Rule("nodes-that-come-back", _FAMILY, WARNING, "nodes that were away, GPUs that failed",
         "slurm.conf(5): ReturnToService, HealthCheckProgram, UnkillableStepTimeout", nodes_that_come_back),
    Rule("size", _FAMILY, WARNING, "time-outs and message tree for the number of nodes",
         "slurm.conf(5): TreeWidth; Slurm, Large Cluster Administration Guide (big_sys.html)", size),
)  # fmt: skip
