"""What was decided, carried out: the writes by which the cluster becomes what the plan says, and what they came to."""

from __future__ import annotations

from collections.abc import Sequence

from muster.backends.kubernetes.commit import Outcome, PodKey
from muster.kube.kinds import NODES, PODS
from muster.kube.objects import KubeNode, KubePod
from muster.kube.translate import PodRef
from muster.model.plan import Evict, Migrate, Place, Plan, Resize
from muster.service.scheduler.claims import ClaimWrite, Refusal, allocate, give_up
from muster.service.scheduler.live_books import Assumed, LiveBooks, on_node
from muster.service.scheduler.ranks import wanted
from muster.service.scheduler.writer import Bind, Stop

REFUSED_S = 15.0
"""A gang whose claims could not have their devices where it was placed, or a pod of which the server does not let be
bound, is not placed or bound again for so long."""
PROTECTED_S = 60.0
"""After a disruption budget refused to let a gang go, it is not asked to for so long."""


class LiveState(LiveBooks):
    """The books of a cluster, and how a plan is carried out on it."""

    def act(self, plan: Plan, now_s: float) -> list[Bind | Stop]:
        """The writes by which the cluster becomes what the plan says; what is to be bound is assumed from now on."""
        writes: list[Bind | Stop] = []
        moved: dict[str, str] = {}
        for decision in plan.decisions:
            match decision:
                case Place():
                    self._to_act[decision.workload] = None
                case Evict():
                    writes += self._stop(decision.workload, _why(decision))
                case Migrate() | Resize():
                    self._to_act[decision.workload] = None
                    moved[decision.workload] = f"moved: {decision.why}"
                case _:
                    pass
        names, self._to_act = self._to_act, {}
        for name in names:
            writes += self._settle(name, moved.get(name))
        return writes

    def overdue(self, now_s: float, timeout_s: float) -> list[Bind | Stop]:
        """What took too long: gangs that are only partly bound are stopped, rooms that are not left are given up."""
        writes: list[Bind | Stop] = []
        for name, partial in self.partial.items():
            if not partial.stopping and now_s - partial.since_s > timeout_s:
                partial.stopping = True
                writes += self._stop(name, f"only some of its pods could be bound within {timeout_s:g} s")
        for node, leaving in list(self._vacating.items()):
            for uid in [uid for uid, by_s in leaving.items() if now_s > by_s + timeout_s]:
                self._stays(node, uid)
        for uid, known in [(uid, known) for uid, known in self._assumed.items() if known.doubt_s < now_s]:
            namespace, _, name = known.key.partition("/")
            self._doubt(known.gang, PodKey(namespace, name, uid))
        for kept in (self._protected, self._refused):
            for name in [name for name, until_s in kept.items() if until_s < now_s]:
                del kept[name]
                self._dirty[name] = None
        return writes

    def _settle(self, name: str, moved: str | None) -> list[Bind | Stop]:
        """Bind what has a place and is not bound; of a gang that is moved, stop what stands elsewhere.

        A gang of which some pods' rooms are still being left waits as a whole.
        """
        books, seen = self._books, self.seen.get(name)
        if seen is None or name not in books.running:
            return []
        stands = {rank: self._where(ref) for rank, ref in enumerate(seen.refs)}
        places = wanted(books, books.running[name], seen, stands)
        writes: list[Bind | Stop] = []
        to_bind: list[tuple[PodKey, str]] = []
        for rank, ref in enumerate(seen.refs):
            node, pod = places.get(rank, ""), PodKey(ref.namespace, ref.name, ref.uid)
            if not ref.name or ref.deleting or ref.uid in self._stopped:
                continue
            known = self._assumed.get(ref.uid)
            if known is not None:
                if node and not known.sent:
                    to_bind.append((pod, node))
            elif not ref.node:
                if node:
                    to_bind.append((pod, node))
            elif ref.node != node and moved is not None and self._there(pod):
                writes.append(self._stop_pod(name, pod, ref.node, moved))
        if any(node in self._closed for _, node in to_bind):  # who was to leave stays, or others came
            self._place_anew(name)
            return writes
        free = not any(node in self._vacating for _, node in to_bind)
        binds: list[Bind] = []
        try:
            for pod, node in to_bind if free else ():
                binds.append(Bind(name, pod, node, self._claims(pod, node)))
        except Refusal as error:
            self._refuse(name, str(error), binds)
            return writes
        for pod, node in to_bind:
            self._assume(name, pod, node, sent=free)
        return writes + binds

    def _claims(self, pod: PodKey, node: str) -> tuple[ClaimWrite, ...]:
        """What is to be written of a pod's claims; raises `Refusal`."""
        dra = self._translator.dra
        found = self._world.of(PODS, KubePod).get(f"{pod.namespace}/{pod.name}")
        where = self._world.of(NODES, KubeNode).get(node)
        if not dra.there or found is None or where is None:
            return ()
        writes = allocate(dra, self._world, found, where)
        self._decided.update((f"{each.namespace}/{each.name}", each) for each in writes if each.allocation is not None)
        return writes

    def _give_up(self, writes: Sequence[ClaimWrite]) -> None:
        """What was decided of claims and could not be written does not count any more."""
        for each in writes:
            self._decided.pop(f"{each.namespace}/{each.name}", None)
        give_up(self._world, writes)

    def _refuse(self, name: str, why: str, binds: Sequence[Bind]) -> None:
        """A gang cannot have its devices where it was placed: it is looked at anew in a while."""
        for each in binds:
            self._give_up(each.claims)
        self.notes[name] = why
        self._refused[name] = self._now_s + REFUSED_S
        self._place_anew(name)

    def _assume(self, gang: str, pod: PodKey, node: str, *, sent: bool) -> None:
        key = f"{pod.namespace}/{pod.name}"
        self._assumed[pod.uid] = Assumed(gang, key, node, sent)
        member = self._members.get(gang, {}).get(key)
        if member is not None and member.metadata.uid == pod.uid:
            self._members[gang][key] = on_node(member, node)

    def _stop(self, name: str, why: str) -> list[Bind | Stop]:
        """Stop all pods of a gang that are bound; those that were to be bound are not."""
        seen = self.seen.get(name)
        writes: list[Bind | Stop] = []
        for ref in seen.refs if seen is not None else ():
            if not ref.name:
                continue
            pod, known = PodKey(ref.namespace, ref.name, ref.uid), self._assumed.get(ref.uid)
            if known is not None and not known.sent:
                self._doubt(name, pod)
                continue
            node = ref.node or (known.node if known is not None else "")
            if node and ref.uid not in self._stopped and not ref.deleting and self._there(pod):
                writes.append(self._stop_pod(name, pod, node, why))
        return writes

    def _stop_pod(self, gang: str, pod: PodKey, node: str, why: str) -> Stop:
        self._stopped[pod.uid] = node
        key = f"{pod.namespace}/{pod.name}"
        member = self._members.get(gang, {}).get(key)
        if member is not None:
            self._translator.forget(member)  # its room is another's in the books from now on
        grace_s = member.spec.termination_grace_period_seconds if member is not None else None
        by_s = self._now_s + (30.0 if grace_s is None else grace_s)
        self._vacating.setdefault(node, {})[pod.uid] = by_s
        self._dirty[gang] = None
        return Stop(gang, pod, why)

    def done(self, write: Bind | Stop, outcome: Outcome) -> None:
        """What a write came to. A binding is known to hold when the pod says so, which is watched."""
        if isinstance(write, Bind):
            if outcome is not Outcome.DONE:
                self._give_up(write.claims)
                if outcome is Outcome.TAKEN:
                    self._taken[write.pod.uid] = self._taken.get(write.pod.uid, 0) + 1
                    # once may be a race; what is refused again is not asked in a loop
                    if self._taken[write.pod.uid] > 1 and self._hold_back(write):
                        return
                self._doubt(write.gang, write.pod)
        elif outcome is Outcome.LATER or outcome is Outcome.TAKEN:
            self._protected[write.gang] = self._now_s + PROTECTED_S
            self._stays(self._stopped.get(write.pod.uid, ""), write.pod.uid)
        elif not self._there(write.pod):
            self._left(write.pod.uid)

    def _hold_back(self, write: Bind) -> bool:
        """The server refused a binding again; whether the pod keeps its place until it is tried once more.

        A gang of which nothing is bound gives up its room meanwhile; of a partial one the others wait for this pod.
        """
        known, pods = self._assumed.get(write.pod.uid), self._world.of(PODS, KubePod)
        if known is None:
            return False
        self.notes[write.gang] = f"the server does not let pod {write.pod.name} be bound"
        members = (pods.get(key) for key in self._members.get(write.gang, ()))
        if not any(pod is not None and pod.spec.node_name for pod in members):
            self._refused[write.gang] = self._now_s + REFUSED_S
            return False
        known.doubt_s = self._now_s + REFUSED_S
        return True

    def _stays(self, node: str, uid: str) -> None:
        """A pod that was to leave does not: it is counted where it is, and who waits for its room waits for another."""
        self._stopped.pop(uid, None)
        leaving = self._vacating.get(node, {})
        leaving.pop(uid, None)
        if not leaving:
            self._vacating.pop(node, None)
        for gang in self._held_for(node):
            self._place_anew(gang)
        for gang, members in self._members.items():
            if any(pod.metadata.uid == uid for pod in members.values()):
                self._dirty[gang] = None

    def _where(self, ref: PodRef) -> str:
        """Where a pod is bound, or is to be."""
        known = self._assumed.get(ref.uid)
        return ref.node or (known.node if known is not None else "")


def _why(decision: Evict) -> str:
    """Why a gang is stopped, for the event on its pods."""
    for_whom = f" for {decision.for_workload}" if decision.for_workload else ""
    return f"stopped by muster: {decision.why}{for_whom}; loses {decision.lost_gpu_s / 3600:.2f} GPU-hours of work"
