"""Every reason code of Slurm in plain words, with what is to be done about it.

The codes are those that slurm.h names and job_reason_codes.html documents, of Slurm 22.05 to 25.11. Those of limits are
built as Slurm builds their names, of whose limit it is, of what, and in which form (`_limits`). `reason_of` reads
what ``squeue`` and ``scontrol`` print, which may hold more than a code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum

from msgspec import Struct


class Kind(Enum):
    """What a reason comes to; the value is how it is told in a word or two."""

    ROOM = "room"
    AHEAD = "others are ahead"
    TIME = "time"
    DEPENDENCY = "dependency"
    THROTTLE = "throttle"
    RESERVATION = "reservation"
    HELD = "held"
    LIMIT = "limit"
    REQUEST = "request"
    PARTITION = "partition"
    ACCESS = "access"
    LICENSES = "licences"
    STAGING = "staging"
    FAILED = "failed"
    ENDED = "ended"
    INTERNAL = "soon over"


WAITS = frozenset((Kind.ROOM, Kind.AHEAD, Kind.INTERNAL, Kind.TIME, Kind.DEPENDENCY, Kind.THROTTLE, Kind.RESERVATION))
"""Reasons that end by themselves, and when that is follows from nodes, work and times; Muster's answers go on there."""


class SlurmReason(Struct, frozen=True):
    """A reason code.

    Attributes:
        code: its name in Slurm.
        kind: what it comes to.
        text: what it says, a sentence in plain words.
        fix: what is to be done, a sentence.
        command: what shows the cause or does it; ``{job}``, ``{account}``, ``{user}``, ``{partition}`` and ``{qos}``
            stand for the job's.
    """

    code: str
    kind: Kind
    text: str
    fix: str
    command: str = ""


class Told(Struct, frozen=True):
    """A reason as it was read: the code's entry, and what Slurm says besides, such as names of nodes."""

    reason: SlurmReason
    detail: str = ""
    known: bool = True


_JOB = "scontrol show job {job}"
_UPDATE = "scontrol update JobId={job} "
_PARTITION = "scontrol show partition {partition}"
_ASSOC = "sacctmgr -p show assoc account={account} tree"
_QOS = "sacctmgr -p show qos {qos}"

_SINGLE = (
    ("None", Kind.INTERNAL, "Slurm has not looked at it yet since it was submitted or changed.",
     "Wait a scheduling cycle; on long queues the cycle may not come so far down.", "sdiag"),
    ("Priority", Kind.AHEAD, "Jobs of higher priority wait for the same partition or reservation.",
     "Wait, or ask for less: a shorter time limit lets it be backfilled.", "sprio -l -j {job}"),
    ("Resources", Kind.ROOM, "It is at the head of its queue, and the nodes, CPUs, memory or GPUs that it asks for are "
     "not free.", "Wait for running jobs to end, or ask for less or for other nodes.", "squeue --start -j {job}"),
    ("ReqNodeNotAvail", Kind.ROOM, "A node that it needs is down, drained, reserved or not responding.",
     "Leave out --nodelist or name other nodes; an operator can resume nodes.", "sinfo -R"),
    ("NodeDown", Kind.ROOM, "A node that it needs is down.", "An operator must bring the node back.", "sinfo -R"),
    ("FrontEndDown", Kind.ROOM, "No front end node can run it.", "An operator must bring one back.", "sinfo -R"),
    ("BeginTime", Kind.TIME, "It is not to start before a time that --begin asked for, or that a requeue set.",
     "Wait, or set an earlier time.", _UPDATE + "StartTime=now"),
    ("Deadline", Kind.ENDED, "Its deadline can not be met any more.", "Submit it with a later --deadline.", ""),
    ("Dependency", Kind.DEPENDENCY, "A job that it depends on has not ended (or begun) as it asks.",
     "Wait, or take the dependency away.", _UPDATE + "Dependency="),
    ("DependencyNeverSatisfied", Kind.HELD, "A job that it depends on ended otherwise than it asks: it never starts.",
     "Take the dependency away, or cancel it and submit it anew.", _UPDATE + "Dependency="),
    ("JobArrayTaskLimit", Kind.THROTTLE, "As many tasks of its array run as its own limit (--array=...%N) allows.",
     "Wait for tasks to end, or raise the limit.", _UPDATE + "ArrayTaskThrottle=0"),
    ("Reservation", Kind.RESERVATION, "Its reservation has not begun, or has no room left.",
     "Wait, or take the reservation away from the job.", "scontrol show reservation"),
    ("ReservationDeleted", Kind.HELD, "The reservation that it names was deleted.",
     "Name another, or none.", _UPDATE + "ReservationName="),
    ("JobHeldUser", Kind.HELD, "Its owner holds it.", "Its owner or an operator releases it.",
     "scontrol release {job}"),
    ("JobHeldAdmin", Kind.HELD, "An operator holds it, or its priority was set to 0.",
     "Only an operator releases it.", "scontrol release {job}"),
    ("JobHoldMaxRequeue", Kind.HELD, "It failed to start so often that Slurm holds it (MaxBatchRequeue, 5 by default).",
     "Look at the nodes on which it failed, then release it.", "scontrol release {job}"),
    ("PartitionDown", Kind.PARTITION, "Its partition is down: jobs are taken and none is started.",
     "An operator opens the partition, or the job goes to another.", _PARTITION),
    ("PartitionInactive", Kind.PARTITION, "Its partition is inactive: it starts no jobs.",
     "An operator opens the partition, or the job goes to another.", _PARTITION),
    ("PartitionNodeLimit", Kind.REQUEST, "It asks for more or fewer nodes than its partition lets a job have, or than "
     "are up in it.", "Ask for a number within MinNodes and MaxNodes, or another partition.", _PARTITION),
    ("PartitionTimeLimit", Kind.REQUEST, "Its time limit is longer than its partition allows.",
     "Ask for a shorter time, or another partition.", _UPDATE + "TimeLimit=..."),
    ("PartitionConfig", Kind.REQUEST, "It asks for what its partition does not let a job have.",
     "Compare it with the partition's limits.", _PARTITION),
    ("BadConstraints", Kind.REQUEST, "No nodes of its partition could ever meet what it asks for.",
     "Ask for features, GPUs, CPUs and memory that one node of the partition has.", "sinfo -o '%P %f %G %c %m'"),
    ("QOSNotAllowed", Kind.ACCESS, "Its QOS may not be used with its partition or association.",
     "Name another QOS or partition.", _QOS),
    ("AccountNotAllowed", Kind.ACCESS, "Its account may not use its partition.",
     "Name another account or partition.", _PARTITION),
    ("InvalidAccount", Kind.ACCESS, "Its account is not there any more, or its user has no association with it.",
     "Name another account; an operator adds the association.", _ASSOC),
    ("InvalidQOS", Kind.ACCESS, "Its QOS is not there, or its user may not use it.", "Name another QOS.", _QOS),
    ("QOSUsageThreshold", Kind.LIMIT, "Its user's fair share is below what its QOS asks for (UsageThreshold).",
     "Wait until past use has decayed, or name another QOS.", "sshare -l -u {user}"),
    ("AccountingPolicy", Kind.LIMIT, "A limit of accounting is in its way that Slurm does not name.",
     "Look at the limits of its association and QOS.", _ASSOC),
    ("AssociationJobLimit", Kind.LIMIT, "Its association has as many jobs as it may.",
     "Wait for jobs of it to end.", _ASSOC),
    ("AssociationResourceLimit", Kind.LIMIT, "Its association uses as much as it may.",
     "Wait for jobs of it to end, or ask for less.", _ASSOC),
    ("AssociationTimeLimit", Kind.LIMIT, "Its time limit is longer than its association allows, or that has none left.",
     "Ask for a shorter time.", _ASSOC),
    ("QOSJobLimit", Kind.LIMIT, "Its QOS has as many jobs as it may.", "Wait for jobs of it to end.", _QOS),
    ("QOSResourceLimit", Kind.LIMIT, "Its QOS uses as much as it may.", "Wait, or ask for less.", _QOS),
    ("QOSTimeLimit", Kind.LIMIT, "Its time limit is longer than its QOS allows, or the QOS's time is used up.",
     "Ask for a shorter time.", _QOS),
    ("MaxMemPerLimit", Kind.LIMIT, "It asks for more memory a CPU or a node than is allowed.",
     "Ask for less memory (MaxMemPerCPU, MaxMemPerNode).", _PARTITION),
    ("Licenses", Kind.LICENSES, "Licences that it asks for are all in use.",
     "Wait, or ask for fewer.", "scontrol show licenses"),
    ("BurstBufferResources", Kind.STAGING, "The burst buffer has too little room for it.",
     "Wait, or ask for less.", "scontrol show burstbuffer"),
    ("BurstBufferStageIn", Kind.STAGING, "Its data is being copied into the burst buffer.", "Wait.",
     "scontrol show burstbuffer"),
    ("BurstBufferOperation", Kind.STAGING, "An operation on its burst buffer failed or is not over.",
     "Look at the burst buffer.", "scontrol show burstbuffer"),
    ("PowerNotAvail", Kind.ROOM, "Too little power is left for it.", "Wait for jobs to end.", "scontrol show power"),
    ("PowerReserved", Kind.ROOM, "Power is kept for jobs of a reservation.", "Wait.", "scontrol show reservation"),
    ("SchedDefer", Kind.INTERNAL, "It asked to start at once, and the site defers all scheduling (SchedulerParameters="
     "defer).", "Submit it without --immediate.", "scontrol show config"),
    ("Prolog", Kind.INTERNAL, "Its prolog still runs.", "Wait; a prolog that hangs is seen on the node.", _JOB),
    ("Cleaning", Kind.INTERNAL, "It was requeued, and what its last run left is still being cleaned up.",
     "Wait; an epilog that hangs is seen on the node.", _JOB),
    ("FedJobLock", Kind.INTERNAL, "Another cluster of the federation has it.", "Wait.", "sacctmgr show federation"),
    ("SystemFailure", Kind.FAILED, "Slurm itself, a file system or the network failed.",
     "An operator looks at slurmctld's log.", _JOB),
    ("JobLaunchFailure", Kind.FAILED, "It could not be started: a program, a file system or its prolog failed.",
     "Look at the node's slurmd log.", _JOB),
    ("OutOfMemory", Kind.ENDED, "It used more memory than it had asked for.", "Ask for more memory.", _JOB),
    ("NonZeroExitCode", Kind.ENDED, "It ended with an exit code that is not 0.", "Look at its output.", _JOB),
    ("RaisedSignal", Kind.ENDED, "It was ended by a signal.", "Look at its output.", _JOB),
    ("TimeLimit", Kind.ENDED, "It ran to its time limit.", "Ask for a longer time.", _JOB),
    ("InactiveLimit", Kind.ENDED, "It did nothing for as long as InactiveLimit allows.", "Use the allocation.", _JOB),
)  # fmt: skip

_RESOURCES = {
    "Cpu": "CPUs", "CPU": "CPUs", "Mem": "memory", "Memory": "memory", "Node": "nodes", "GRES": "GPUs or other GRES",
    "License": "licences", "BB": "burst buffer", "Energy": "energy", "Billing": "billing units",
    "Unknown": "a resource that Slurm does not name",
}  # fmt: skip


def _limits() -> Iterator[SlurmReason]:
    """The reasons of limits: whose (association or QOS), how it counts, and of what."""
    for code, (whose, form, resource) in _limit_codes().items():
        command = _ASSOC if whose == "Assoc" else _QOS
        owner = "association (user, account, or one above it)" if whose == "Assoc" else "QOS"
        kind, text, fix = _FORMS[form]
        kept = {"owner": owner, "resource": _RESOURCES.get(resource, resource), "its": f"Its {owner}"}
        yield SlurmReason(code, kind, text.format(**kept), fix.format(**kept), command)


_FORMS: Mapping[str, tuple[Kind, str, str]] = {
    "group": (Kind.LIMIT, "The running jobs of its {owner} together use as much as they may: {resource}.",
              "Wait for jobs of it to end, ask for less, or have the limit (Grp...) raised."),
    "group minutes": (Kind.LIMIT, "All jobs of its {owner}, past ones too, have used up the time that they may, in "
                      "minutes times {resource}.", "Wait until past use has decayed, or have the limit raised."),
    "group run minutes": (Kind.LIMIT, "Running jobs of its {owner} hold as much as they may of {resource} times the "
                          "minutes they may still run.", "Ask for a shorter time, or wait for jobs of it to end."),
    "group jobs": (Kind.LIMIT, "Its {owner} has as many running jobs as it may.", "Wait for jobs of it to end."),
    "group submit": (Kind.LIMIT, "Its {owner} has as many jobs, waiting ones too, as it may.",
                     "Wait for jobs of it to end, or submit an array."),
    "group wall": (Kind.LIMIT, "The jobs of its {owner} have used up the wall clock time that they may together.",
                   "Wait until past use has decayed, or have the limit raised."),
    "job": (Kind.REQUEST, "It asks for more {resource} than its {owner} lets one job have.",
            "Ask for less, or have the limit (Max...) raised."),
    "job minutes": (Kind.REQUEST, "It asks for more minutes times {resource} than its {owner} lets one job have.",
                    "Ask for less, or for a shorter time."),
    "job wall": (Kind.REQUEST, "Its time limit is longer than its {owner} lets a job have.", "Ask for a shorter time."),
    "node": (Kind.REQUEST, "It asks for more {resource} on one node than its {owner} allows.", "Ask for more nodes."),
    "user": (Kind.LIMIT, "Its user holds as much in this {owner} as one user may: {resource}.",
             "Wait for the user's jobs to end, ask for less, or have the limit (MaxTRESPerUser) raised."),
    "user jobs": (Kind.LIMIT, "Its user has as many running jobs in this {owner} as one user may.",
                  "Wait for the user's jobs to end."),
    "user submit": (Kind.LIMIT, "Its user has as many jobs in this {owner}, waiting ones too, as one user may.",
                    "Wait for the user's jobs to end."),
    "account": (Kind.LIMIT, "Its account holds as much in this {owner} as one account may: {resource}.",
                "Wait for the account's jobs to end, ask for less, or have the limit (MaxTRESPerAccount) raised."),
    "account jobs": (Kind.LIMIT, "Its account has as many jobs in this {owner} as one account may.",
                     "Wait for the account's jobs to end."),
    "least": (Kind.REQUEST, "It asks for less {resource} than its {owner} asks a job to have.",
              "Ask for more, or for another QOS."),
}  # fmt: skip


def _limit_codes() -> dict[str, tuple[str, str, str]]:
    """Code to whose limit it is, its form, and its resource."""
    found: dict[str, tuple[str, str, str]] = {}

    def add(code: str, whose: str, form: str, resource: str = "") -> None:
        found[code] = whose, form, resource

    for whose in ("Assoc", "QOS"):
        memory = "Mem" if whose == "Assoc" else "Memory"
        add(f"{whose}GrpCpuLimit", whose, "group", "Cpu")
        add(f"{whose}GrpCPUMinutesLimit", whose, "group minutes", "Cpu")
        add(f"{whose}GrpCPURunMinutesLimit", whose, "group run minutes", "Cpu")
        add(f"{whose}GrpMemLimit", whose, "group", "Mem")
        add(f"{whose}GrpNodeLimit", whose, "group", "Node")
        add(f"{whose}GrpJobsLimit", whose, "group jobs")
        add(f"{whose}GrpSubmitJobsLimit", whose, "group submit")
        add(f"{whose}GrpWallLimit", whose, "group wall")
        for resource in ("GRES", "License", "BB", "Energy", "Billing", "Unknown"):
            add(f"{whose}Grp{resource}", whose, "group", resource)
        for resource in (memory, "Node", "GRES", "License", "BB", "Energy", "Billing", "Unknown"):
            add(f"{whose}Grp{resource}Minutes", whose, "group minutes", resource)
            add(f"{whose}Grp{resource}RunMinutes", whose, "group run minutes", resource)
            if resource != "Node":
                add(f"{whose}Max{resource}PerJob", whose, "job", resource)
            if resource not in ("Node", "License"):
                add(f"{whose}Max{resource}PerNode", whose, "node", resource)
            add(f"{whose}Max{resource}MinutesPerJob", whose, "job minutes", resource)
        add(f"{whose}MaxCpuPerJobLimit", whose, "job", "Cpu")
        add(f"{whose}MaxCpuMinutesPerJobLimit", whose, "job minutes", "Cpu")
        add(f"{whose}MaxNodePerJobLimit", whose, "job", "Node")
        add(f"{whose}MaxWallDurationPerJobLimit", whose, "job wall")
        add(f"{whose}MaxCpuPerNode", whose, "node", "Cpu")
    add("AssocMaxJobsLimit", "Assoc", "user jobs")
    add("AssocMaxSubmitJobLimit", "Assoc", "user submit")
    add("QOSMaxCpuPerUserLimit", "QOS", "user", "Cpu")
    add("QOSMaxNodePerUserLimit", "QOS", "user", "Node")
    add("QOSMaxJobsPerUserLimit", "QOS", "user jobs")
    add("QOSMaxSubmitJobPerUserLimit", "QOS", "user submit")
    add("QOSMinCpuNotSatisfied", "QOS", "least", "Cpu")
    for resource in ("Memory", "GRES", "License", "BB", "Energy", "Billing", "Unknown"):
        add(f"QOSMax{resource}PerUser", "QOS", "user", resource)
        add(f"QOSMin{resource}", "QOS", "least", resource)
        add(f"Max{resource}PerAccount", "QOS", "account", resource)
    add("QOSMinNode", "QOS", "least", "Node")
    add("MaxCpuPerAccount", "QOS", "account", "Cpu")
    add("MaxNodePerAccount", "QOS", "account", "Node")
    add("MaxJobsPerAccount", "QOS", "account jobs")
    add("MaxSubmitJobsPerAccount", "QOS", "account jobs")
    return found


REASONS: Mapping[str, SlurmReason] = {each.code: each for each in (*(SlurmReason(*row) for row in _SINGLE), *_limits())}
"""Code to what it says."""

_NODES_DOWN = SlurmReason(
    "Resources", Kind.ROOM, "Nodes that it needs are down, drained, or kept for partitions of a higher tier.",
    "Ask for fewer nodes, or have them resumed by an operator.", "sinfo -R",
)  # fmt: skip
_FAILED_HELD = SlurmReason(
    "JobHeldAdmin", Kind.HELD, "It could not be started on a node: it was requeued and is held.",
    "Look at the node's slurmd log and its prolog, then release it.", "scontrol release {job}",
)  # fmt: skip
_REQUEUED_HELD = SlurmReason(
    "JobHeldUser", Kind.HELD, "It was requeued and is held, by its owner, an operator or its exit code.",
    "Look at what it says, then release it.", "scontrol release {job}",
)  # fmt: skip
_SENTENCES = (
    (re.compile(r"nodes required for job are down, drained or reserved", re.I), _NODES_DOWN),
    (re.compile(r"(launch|user env retrieval) failed requeued held", re.I), _FAILED_HELD),
    (re.compile(r"job requeued in (held|special.exit) state", re.I), _REQUEUED_HELD),
    (re.compile(r"account not permitted", re.I), REASONS["AccountNotAllowed"]),
    (re.compile(r"qos not permitted", re.I), REASONS["QOSNotAllowed"]),
    (re.compile(r"burst ?buffer|\bbb ", re.I), REASONS["BurstBufferOperation"]),
)
"""Sentences that Slurm prints in place of a code, each with the code that it stands for."""
_BY_CASE = {code.casefold(): each for code, each in REASONS.items()}


def reason_of(text: str) -> Told:
    """What ``squeue`` or ``scontrol`` print as a reason: a code, a code with more behind it, or a sentence.

    A code that is not known is told as it is, as a newer Slurm may have it.
    """
    text = text.strip().strip("()").replace("_", " ").strip()
    code, _, more = text.partition(",")
    found = _BY_CASE.get(code.strip().casefold() or "none")
    if found is not None:
        return Told(found, more.strip())
    first = code.partition(" ")[0]
    if (found := _BY_CASE.get(first.casefold())) is not None:
        return Told(found, text[len(first) :].strip())
    for pattern, reason in _SENTENCES:
        if pattern.search(text):
            return Told(reason, text)
    what = f"Slurm says {text!r}, which is not among the codes that are known here."
    return Told(SlurmReason(text, Kind.HELD, what, "See Slurm's page on job reason codes.", _JOB), "", known=False)


def fitted(command: str, **values: str) -> str:
    """A reason's command for a job; what of the job is not known is left as its name in capitals."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1]) or match[1].upper(), command)
