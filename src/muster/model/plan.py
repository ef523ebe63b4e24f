"""What the engine decides: a plan is a value, a tuple of decisions with their reasons and numbers."""

from __future__ import annotations

from msgspec import Struct

from muster.model.reasons import Verdict
from muster.model.workload import PodShape


class PodPlacement(Struct, frozen=True):
    """One pod on one node: the node's name, the GPU indexes that it gets and the share of each."""

    node: str
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0


class Place(Struct, frozen=True, tag="place"):
    """Start a workload: one placement a pod, in the order of its pod sets."""

    workload: str
    pods: tuple[PodPlacement, ...]


class Wait(Struct, frozen=True, tag="wait"):
    """Leave a workload waiting, with the verdict over all nodes for the first shape that did not fit."""

    workload: str
    shape: PodShape
    verdict: Verdict


class Evict(Struct, frozen=True, tag="evict"):
    """Stop a running workload; it goes back to its queue."""

    workload: str
    lost_gpu_s: float = 0.0
    why: str = ""


class Reserve(Struct, frozen=True, tag="reserve"):
    """Keep nodes for a workload from a time on."""

    workload: str
    start_s: float
    nodes: tuple[str, ...] = ()


Decision = Place | Wait | Evict | Reserve


class Plan(Struct, frozen=True):
    """The decisions of one cycle, in the order in which they are to be carried out."""

    decisions: tuple[Decision, ...] = ()
