"""What the engine decides: a plan is a value, a tuple of decisions with their reasons and numbers."""

from __future__ import annotations

from msgspec import Struct

from muster.model.reasons import Reason, Verdict
from muster.model.workload import PodShape


class PodPlacement(Struct, frozen=True):
    """One pod on one node: the node's name, the GPU indexes that it gets and the share of each.

    ``mig`` and ``mig_start`` are the profile and the start, in memory slices, of a MIG instance (-1: none).
    """

    node: str
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0
    mig: str = ""
    mig_start: int = -1


class Place(Struct, frozen=True, tag="place"):
    """Start a workload: one placement a pod, in the order of its pod sets.

    ``borrowed_milli`` is how much of it is above its queue's nominal quota; ``backfilled`` says that others are ahead
    of it and wait for a reserved start; ``counts`` are the pods of each pod set of an elastic gang, which may start
    with fewer than it asked for.
    """

    workload: str
    pods: tuple[PodPlacement, ...]
    flavor: str = ""
    borrowed_milli: int = 0
    backfilled: bool = False
    counts: tuple[int, ...] = ()


class Wait(Struct, frozen=True, tag="wait"):
    """Leave a workload waiting: the dominant reason, its numbers, and the verdict where nodes were looked at.

    ``numbers`` are pairs such as ``("nominal_milli", 512000)``; their names are the reason's parameters.
    """

    workload: str
    reason: Reason
    numbers: tuple[tuple[str, int | float | str], ...] = ()
    shape: PodShape | None = None
    verdict: Verdict | None = None


class Evict(Struct, frozen=True, tag="evict"):
    """Stop a running workload, which goes back to its queue: for whom, why, and the GPU-seconds that it loses.

    ``why`` is ``reclaim`` or ``priority`` for a workload, ``headroom`` for a queue that must have its headroom back, or
    ``failure``.
    """

    workload: str
    for_workload: str = ""
    why: str = ""
    lost_gpu_s: float = 0.0


class Reserve(Struct, frozen=True, tag="reserve"):
    """Keep nodes for a workload, which starts at ``start_s`` if running work ends when it should.

    ``sure`` says that all of that work has a stated limit to end by; else some of it is only predicted to.
    """

    workload: str
    start_s: float
    nodes: tuple[str, ...] = ()
    sure: bool = True


class Migrate(Struct, frozen=True, tag="migrate"):
    """Move a running workload, or some pods of it, to new places; ``pods`` are all, in the order of its pod sets.

    It stops and goes on from its last checkpoint. ``why`` is ``failure`` where it lost pods with a node, ``room`` where
    it makes room for ``for_workload``; ``cost_gpu_s`` is the work lost and the restart. Moves that make room and follow
    each other are one step: all stop before any starts, as one may take the place of another.
    """

    workload: str
    pods: tuple[PodPlacement, ...]
    why: str = ""
    cost_gpu_s: float = 0.0
    for_workload: str = ""


class Resize(Struct, frozen=True, tag="resize"):
    """Give an elastic workload these pods instead of those that it has; it goes on after its restart time.

    ``counts`` are the pods of each pod set; ``why`` is ``room``, ``reclaim``, ``priority``, ``yield`` (to a gang that
    waits) or ``failure``, for ``for_workload`` where it gives way to another; ``cost_gpu_s`` is the work that it loses
    and the restart.
    """

    workload: str
    pods: tuple[PodPlacement, ...]
    counts: tuple[int, ...] = ()
    why: str = ""
    for_workload: str = ""
    cost_gpu_s: float = 0.0


class Quarantine(Struct, frozen=True, tag="quarantine"):
    """Let nothing more start on a node on which these workloads failed, within the window of the config."""

    node: str
    workloads: tuple[str, ...]


Decision = Place | Wait | Evict | Reserve | Migrate | Resize | Quarantine


class Plan(Struct, frozen=True):
    """The decisions of one cycle, in the order in which they are to be carried out."""

    decisions: tuple[Decision, ...] = ()
