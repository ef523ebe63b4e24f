"""What was decided, carried out: the writes by which the cluster becomes what the plan says, and what they came to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from muster.backends.kubernetes.commit import Outcome, PodKey
from muster.kube.kinds import NODES, PODS
from muster.kube.objects import KubeNode, KubePod
from muster.kube.translate import PodRef
from muster.kube.volumes import NoVolume
from muster.model.plan import Evict, Migrate, Place, Plan, Resize
from muster.service.scheduler.claims import ClaimWrite, Refusal, allocate, give_up
from muster.service.scheduler.live_books import LiveBooks
from muster.service.scheduler.ranks import wanted
from muster.service.scheduler.volumes import VolumeWrite
from muster.service.scheduler.watched import Assumed, on_node
from muster.service.scheduler.writer import Bind, Stop, Write

REFUSED_S = 15.0
"""A gang whose claims could not have their devices where it was placed, or a pod of which the server does not let be
bound, is not placed or bound again for so long."""
CONTENDED_S = 1.0
"""A gang that found the last volume of a node taken is placed anew after so long."""
MOST_TRIES, MOST_TRIES_OF_GANGS = 50, 3
"""So often in a row a pod, or a gang, is placed anew at once that cannot stand where it was placed with other pods."""
PROTECTED_S = 60.0
"""After a disruption budget refused to let a gang go, it is not asked to for so long."""


class LiveState(LiveBooks):
    """The books of a cluster, and how a plan is carried out on it."""

    def act(self, plan: Plan, now_s: float) -> list[Write]:
        """The writes by which the cluster becomes what the plan says; what is to be bound is assumed from now on."""
        writes: list[Write] = []
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

    def overdue(self, now_s: float, timeout_s: float, volume_timeout_s: float = 600.0) -> list[Write]:
        """What took too long: gangs that are only partly bound are stopped, rooms that are not left are given up."""
        writes: list[Write] = self._volumes_overdue(now_s, volume_timeout_s)
        for name, since_s in self.partial.items():
            if name in self.volumes.providing or name in self._protected:
                continue
            if now_s - since_s > timeout_s:
                self.partial[name] = now_s  # it may be bound in part again
                writes += self._stop(name, f"only some of its pods could be bound within {timeout_s:g} s")
        for node, leaving in list(self._vacating.items()):
            for uid in [uid for uid, by_s in leaving.items() if now_s > by_s + timeout_s]:
                self._stays(node, uid)
        for uid, known in [(uid, known) for uid, known in self._assumed.items() if known.doubt_s < now_s]:
            namespace, _, name = known.key.partition("/")
            self._doubt(known.gang, PodKey(namespace, name, uid))
        self._dirty.update(dict.fromkeys(self._endings.over(now_s)))
        for kept in (self._protected, self._refused):
            for name in [name for name, until_s in kept.items() if until_s < now_s]:
                del kept[name]
                self._dirty[name] = None
        return writes

    def _volumes_overdue(self, now_s: float, timeout_s: float) -> list[Write]:
        """Gangs whose volumes do not come are placed elsewhere; what was refused for a while is looked at anew."""
        writes: list[Write] = []
        for name, found in list(self.volumes.providing.items()):
            if now_s - found.since_s > timeout_s:
                waits = f"{', '.join(self.volumes.awaited(name)[:3])}: no volume within {timeout_s:g} s"
                writes += self._no_volume(name, waits, now_s)
            elif found.again_s < now_s:
                found.again_s = math.inf
                self._to_act[name] = None
        for name in [name for name, since_s in self.volumes.pinned.items() if now_s - since_s > timeout_s]:
            pods = [*self._members.get(name, {}).values()]
            writes += self.volumes.unpin(name, pods, now_s)
            self._dirty[name] = None
        for key in self.volumes.expired(now_s):
            self._claim_changed(key)
        return writes

    def _no_volume(self, name: str, why: str, now_s: float, claim: str = "") -> list[Write]:
        """A gang cannot have its volumes where it was placed: it gets other nodes."""
        writes, avoids = self.volumes.fail(name, now_s)
        if not avoids:  # what is left of volumes is counted by now where ``claim`` found none
            self._refused[name] = now_s + (CONTENDED_S if claim else REFUSED_S)
        self.notes[name] = why
        self._place_anew(name)
        return list(writes)

    def awaits(self, name: str) -> str:
        """What a gang that has its nodes waits for there."""
        claims = self.volumes.awaited(name)
        more = f" and {len(claims) - 3} more" if len(claims) > 3 else ""
        return f"It has its nodes; volumes of {', '.join(claims[:3])}{more} are being made or bound there."

    def _settle(self, name: str, moved: str | None) -> list[Write]:
        """Bind what has a place and is not bound; of a gang that is moved, stop what stands elsewhere.

        A gang of which some pods' rooms are still being left waits as a whole.
        """
        books, seen = self._books, self.seen.get(name)
        if seen is None or name not in books.running:
            return []
        stands = {rank: self._where(ref) for rank, ref in enumerate(seen.refs)}
        places = wanted(books, books.running[name], seen, stands)
        writes: list[Write] = []
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
        fresh = self._as_if_there(name, to_bind)
        if why := self._translator.refuses(fresh):
            self._contend(name, why, len(seen.refs))
            return writes
        free = not any(node in self._vacating for _, node in to_bind)
        if free:
            try:
                writes += self.volumes.settle(name, self._with_volumes(to_bind), self._now_s)
            except NoVolume as error:
                if error.claim and len(seen.refs) > 1:  # its other pods may have taken what there was
                    self.volumes.shun(error.claim, error.node, self._now_s + REFUSED_S)
                self._stand_off(name, fresh)
                return [*writes, *self._no_volume(name, str(error), self._now_s, error.claim)]
            free = name not in self.volumes.providing
        binds: list[Bind] = []
        try:
            for pod, node in to_bind if free else ():
                binds.append(Bind(name, pod, node, self._claims(pod, node)))
        except Refusal as error:
            self._stand_off(name, fresh)
            self._refuse(name, str(error), binds)
            return writes
        for pod, node in to_bind:
            self._assume(name, pod, node, sent=free)
        return writes + binds

    def _as_if_there(self, name: str, to_bind: Sequence[tuple[PodKey, str]]) -> list[tuple[str, KubePod]]:
        """The pods that are to be bound, as if they were, by NAMESPACE/NAME."""
        found: list[tuple[str, KubePod]] = []
        for pod, node in to_bind:
            key = f"{pod.namespace}/{pod.name}"
            member = self._members.get(name, {}).get(key)
            if member is not None and member.metadata.uid == pod.uid:
                found.append((key, on_node(member, node)))
        return found

    def _stand_off(self, name: str, fresh: Sequence[tuple[str, KubePod]]) -> None:
        """Pods do not get the nodes after all."""
        for key, _ in fresh:
            if (member := self._members.get(name, {}).get(key)) is not None:
                self._translator.others.put(key, member)

    def _contend(self, name: str, why: str, pods: int) -> None:
        """A gang cannot stand with the other pods as it was placed, some of which were placed just before it.

        It is placed anew at once, as these count by now; one that finds no other places is not asked for in a loop.
        """
        tries = self._contended.get(name, 0) + 1
        if tries > (MOST_TRIES if pods == 1 else MOST_TRIES_OF_GANGS):
            tries = 0
            self.notes[name] = why
            self._refused[name] = self._now_s + REFUSED_S
        self._contended[name] = tries
        self._place_anew(name)

    def _with_volumes(self, to_bind: Sequence[tuple[PodKey, str]]) -> list[tuple[KubePod, KubeNode]]:
        """The pods that have volumes, and their nodes."""
        pods, nodes = self._world.of(PODS, KubePod), self._world.of(NODES, KubeNode)
        found = ((pods.get(f"{pod.namespace}/{pod.name}"), nodes.get(node)) for pod, node in to_bind)
        return [(pod, node) for pod, node in found if pod is not None and node is not None and pod.spec.volumes]

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

    def _stop(self, name: str, why: str) -> list[Write]:
        """Stop all pods of a gang that are bound; those that were to be bound are not."""
        seen = self.seen.get(name)
        writes: list[Write] = []
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

    def done(self, write: Write, outcome: Outcome) -> None:
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
        elif isinstance(write, VolumeWrite):
            if outcome is not Outcome.DONE:
                self.volumes.refused(write, self._now_s)
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
