"""The nouns: frozen, slotted values without I/O of their own (snapshots excepted, which are files by nature)."""

from muster.model.fleet import TOPOLOGY_LEVELS, WHOLE_GPU_MILLI, Device, Fleet, Node, Taint, Topology
from muster.model.parallelism import Parallelism, RankGroups, check_parallelism, rank_groups
from muster.model.plan import Decision, Evict, Place, Plan, PodPlacement, Reserve, Wait
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason, Refusal, Tier, Verdict, reasons_of
from muster.model.snapshot import Change, Running, Snapshot, diff_snapshots, load_snapshot, save_snapshot
from muster.model.workload import (
    PodSet,
    PodShape,
    ShapeMix,
    Toleration,
    Workload,
    checked_shape,
    single_pod,
)

__all__ = [
    "TOPOLOGY_LEVELS",
    "WHOLE_GPU_MILLI",
    "Change",
    "Decision",
    "Device",
    "Evict",
    "Fleet",
    "Node",
    "Parallelism",
    "Place",
    "Plan",
    "PodPlacement",
    "PodSet",
    "PodShape",
    "Queue",
    "Quota",
    "RankGroups",
    "Reason",
    "Refusal",
    "Reserve",
    "Running",
    "ShapeMix",
    "Snapshot",
    "Taint",
    "Tier",
    "Toleration",
    "Topology",
    "Verdict",
    "Wait",
    "Workload",
    "check_parallelism",
    "checked_shape",
    "diff_snapshots",
    "load_snapshot",
    "rank_groups",
    "reasons_of",
    "save_snapshot",
    "single_pod",
]  # fmt: skip
