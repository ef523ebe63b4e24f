"""What a remedy is asked for: a waiting gang in a view, what it needs, and a quick look whether it would find room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from muster.answers.changes import Change, SetJob, changed
from muster.answers.view import View
from muster.engine.cluster import GangKind
from muster.engine.scheduler import Scheduler, nearest
from muster.model.fleet import Node
from muster.model.plan import Place
from muster.model.reasons import Reason, Tier
from muster.model.workload import PodSet, Workload


class Candidate(Struct, frozen=True):
    """Something that may help.

    Attributes:
        kind: what is changed, such as ``topology`` or ``moves``.
        title: in plain words; a function where it depends on the places that the gang then gets.
        changes: what is changed.
        workload: the gang as it then is.
        room: whether it frees or adds room, which gangs ahead of it might take: then a higher priority helps.
        slower: how many times as long the gang's work takes by having fewer or slower GPUs; its places come on top.
    """

    kind: str
    title: str | Callable[[Place], str]
    changes: tuple[Change, ...]
    workload: Workload
    room: bool = False
    slower: float = 1.0


Remedy = Callable[["Ask"], Iterator[Candidate]]
"""Gives candidates in turn till one helps: the next only matters if the one before does not."""


class Ask:
    """A waiting gang, and a scheduler on which it is looked at.

    Args:
        view: what there is.
        scheduler: the view's, or a twin of it.
        name: of the gang.
        ever: whether room on the empty fleet is enough: the quick look is then whether it could ever fit.
    """

    def __init__(self, view: View, scheduler: Scheduler, name: str, *, ever: bool = False) -> None:
        self.view = view
        self.ever = ever
        self.scheduler = scheduler
        self.cluster = scheduler.cluster
        self.now_s = view.now_s
        self.gang = scheduler.pending.gangs[name]
        self.workload = workload = self.gang.workload
        self.kind: GangKind = self.gang.kind.least
        self.reasons: dict[str, Reason] = {}
        if not self.scheduler.queues or workload.queue in self.scheduler.queues:
            self.reasons = {each: self.scheduler.refused_on(self.gang, each) for each in self.flavors}
        self.gated = self.scheduler.gated(workload, self.now_s)
        self.nearest = nearest(list(self.reasons.values())) if self.reasons else Reason.UNKNOWN_QUEUE

    @property
    def flavors(self) -> Sequence[str]:
        """The flavors that it may use, in order."""
        return tuple(self.scheduler.flavors_of(self.gang.kind))

    @property
    def flavor(self) -> str:
        """The flavor that came nearest."""
        return next((each for each, reason in self.reasons.items() if reason is self.nearest), "")

    @cached_property
    def sick(self) -> list[Node]:
        """The nodes with GPUs that are not healthy."""
        nodes = self.cluster.fleet.nodes
        healthy: list[int] = self.cluster.state.nodes.gpus.tolist()
        return [node for node, gpus in zip(nodes, healthy, strict=True) if gpus < len(node.devices)]

    @property
    def pod_set(self) -> int:
        """The index of the pod set with the largest pods: the hard one to place."""
        sizes = [
            (each.shape.gpu_milli_total, each.shape.cpu_milli, -at) for at, each in enumerate(self.workload.pod_sets)
        ]
        return -max(sizes)[2]

    @property
    def shape_set(self) -> PodSet:
        """The pod set with the largest pods."""
        return self.workload.pod_sets[self.pod_set]

    def lacks_room(self) -> bool:
        """Whether room is what it lacks, on some flavor of which it has the quota."""
        return any(
            reason.tier == Tier.WAITING_FOR_CAPACITY or reason is Reason.NEVER_FITS for reason in self.reasons.values()
        )

    def lacks_quota(self) -> bool:
        """Whether quota is what it lacks on each flavor."""
        quota = (Reason.QUOTA, Reason.OVER_QUOTA, Reason.NO_FLAVOR)
        return bool(self.reasons) and all(reason in quota for reason in self.reasons.values())

    def fits(self, workload: Workload) -> bool:
        """Whether a workload like it finds room now, with quota, limits and what is kept for others; a quick look."""
        scheduler, kind = self.scheduler, self.cluster.kind_of(workload).least
        if self.ever:
            return not all(self.cluster.never_fits(kind, flavor) for flavor in scheduler.flavors_of(kind))
        if not scheduler.may_hold(workload, kind.milli):
            return False
        for flavor in scheduler.flavors_of(kind):
            if scheduler.queues and scheduler.quota.fits(workload.queue, flavor, kind.milli) is not None:
                continue
            if self.place(kind, flavor, workload):
                return True
        return False

    def place(self, kind: GangKind, flavor: str, workload: Workload) -> bool:
        """Whether a kind finds places now beside what is kept for others."""
        rows = self.scheduler.place_beside(kind, flavor, self.scheduler.holds(workload, self.now_s))
        if isinstance(rows, Reason):
            return False
        self.cluster.give_back(rows)
        return True

    def job(self, **fields: object) -> SetJob:
        """A change of the gang."""
        return SetJob(self.workload.name, **fields)  # type: ignore[arg-type]

    def changed(self, change: SetJob) -> Workload:
        """The gang after a change."""
        return changed(self.workload, change)
