"""Pods as gangs: which pods wait and run together, in which order, and how many of them are not there yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.kube.claims import FINISHED, ClaimReader
from muster.kube.declared import Declared
from muster.kube.ledger import Ledger
from muster.kube.makers import Template
from muster.kube.objects import KubePod, Meta, parse_time
from muster.kube.owners import Gang, Member, member, role_order
from muster.kube.shapes import ShapeReader
from muster.model.notes import Notes
from muster.model.snapshot import PodPlacement, Running
from muster.model.workload import PodSet, PodShape, Workload

USER_LABEL = "muster.dev/user"


class PodRef(Struct, frozen=True):
    """A pod as the API server knows it; one that is not there yet has no name. ``node`` is where it is bound."""

    namespace: str
    name: str = ""
    uid: str = ""
    node: str = ""
    deleting: bool = False


class Seen(Struct, frozen=True):
    """A gang as it was seen.

    Attributes:
        workload: what it asks for.
        refs: its pods, one a rank, in the order of pod sets and ranks.
        absent: how many of them are not there yet: it is not to be placed before.
        running: where at least one pod is bound; ranks that are not are ``missing``.
        gates: the names of the scheduling gates and holds that keep it from starting.
        waits: what its pods' volume claims wait for before any node can be chosen; empty: nothing.
        leaving: pods of it that are being deleted, while others stay: each holds its room until it has gone.
        schedulers: the schedulers that its pods name.
    """

    workload: Workload
    refs: tuple[PodRef, ...]
    absent: int = 0
    running: Running | None = None
    gates: tuple[str, ...] = ()
    leaving: tuple[Running, ...] = ()
    schedulers: frozenset[str] = frozenset()
    waits: str = ""


class _Slot(Struct):
    """A rank: its role and shape, the pod if it is there, and where it is if it is bound."""

    role: str
    shape: PodShape
    pod: KubePod | None = None
    place: PodPlacement | None = None


class Names:
    """Names of gangs: NAMESPACE/NAME; of two that would be called the same, the later has its kind behind it."""

    def __init__(self) -> None:
        self._names: dict[Gang, str] = {}
        self._gangs: dict[str, Gang] = {}

    def of(self, gang: Gang) -> str:
        """The name of a gang, always the same."""
        name = self._names.get(gang)
        if name is None:
            name = f"{gang.namespace}/{gang.name}" if gang.namespace else gang.name
            if name in self._gangs:
                name = f"{name}.{gang.kind.lower()}"
            self._names[gang] = name
            self._gangs[name] = gang
        return name

    def gang(self, name: str) -> Gang | None:
        """The gang of a name that was given."""
        return self._gangs.get(name)

    def forget(self, name: str) -> None:
        """A gang is there no more."""
        gang = self._gangs.pop(name, None)
        if gang is not None:
            del self._names[gang]


class GangReader:
    """Reads gangs."""

    def __init__(self, shapes: ShapeReader, ledger: Ledger, claims: ClaimReader, names: Names, notes: Notes) -> None:
        self._shapes, self._ledger, self._claims = shapes, ledger, claims
        self._names, self._notes = names, notes
        self._sets: dict[tuple[PodSet, ...], tuple[PodSet, ...]] = {}

    def gang(self, name: str, gang: Gang, pods: Iterable[KubePod], leaving_for: Mapping[str, str]) -> Seen | None:
        """A gang of some pods, all that there are of it; None where none of them asks for anything any more.

        ``leaving_for``: of each node, for which gang its pods leave.
        """
        pods = list(pods)
        alive = [pod for pod in pods if pod.status.phase not in FINISHED]
        for pod in pods:
            if pod.status.phase in FINISHED:
                self._ledger.release(pod_key(pod))
        stays = [pod for pod in alive if pod.metadata.deletion_timestamp is None]
        going = [pod for pod in alive if pod.metadata.deletion_timestamp is not None]
        for pod in going:
            if not pod.spec.node_name:
                self._ledger.release(pod_key(pod))
        going = [pod for pod in going if pod.spec.node_name]
        said = self._claims.said(gang, pods)
        if not stays and not going and not (said.templates and not pods):
            return None
        ended = sum(pod.status.phase == "Succeeded" for pod in pods)
        self._shapes.mates = tuple(stays) if len(stays) > 1 else ()
        slots, absent = self._slots(gang, stays or going, said, ended, whole=bool(stays) or not going)
        if not slots:
            return None
        pods = [slot.pod for slot in slots if slot.pod is not None]
        templates = [each.spec for each in said.templates.values()]
        workload = self._workload(name, gang, pods, slots, said)
        gates = self._claims.gates(gang, pods, said)
        running = self._running(workload, slots, leaving_for)
        waits = self._waits(pods)
        if running is None and (gates or waits):
            workload = replace(workload, not_before_s=math.inf)
        return Seen(
            workload,
            tuple(_ref(gang.namespace, slot.pod) for slot in slots),
            absent,
            running,
            gates,
            self._leaving(going, leaving_for) if stays else (),
            frozenset(spec.scheduler_name or "" for spec in [pod.spec for pod in pods] or templates),
            waits,
        )

    def _waits(self, pods: Sequence[KubePod]) -> str:
        """What the volume claims of pods that are not bound wait for."""
        for pod in pods:
            if pod.spec.volumes and not pod.spec.node_name and (why := self._shapes.volumes.waits(pod)):
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                self._notes.add("Pod", name, "spec.volumes", f"{why}: it is held until then")
                return f"pod {pod.metadata.name}: {why}"
        return ""

    # -- ranks

    def _slots(
        self, gang: Gang, pods: Sequence[KubePod], said: Declared, ended: int, *, whole: bool
    ) -> tuple[list[_Slot], int]:
        """The ranks of a gang in order, with those that are not there (unless it is going), and how many they are."""
        roles: dict[str, list[tuple[Member, _Slot]]] = {}
        for pod in pods:
            part = member(pod)
            slot = self._slot(pod, part.role)
            if slot is not None:
                roles.setdefault(part.role, []).append((part, slot))
        if pods and not roles:
            return [], 0
        counts = {role: len(found) for role, found in roles.items()}
        if whole:
            counts |= {role: count for role, count in said.counts.items() if count > counts.get(role, 0)}
            more = said.at_least - ended - sum(counts.values())
            if more > 0 and counts:
                counts[max(counts, key=role_order)] += more
        slots: list[_Slot] = []
        unknown = 0
        order = {role: at for at, role in enumerate(said.counts)}
        for role in sorted(counts, key=lambda role: (*role_order(role)[:1], order.get(role, len(order)), role)):
            if role in roles:
                slots += _ranked(roles[role], counts[role])
            elif role in said.templates:
                shape = self._shapes.shape(_pod_of(gang, role, said.templates[role]))
                slots += [_Slot(role, shape) for _ in range(counts[role])]
            else:
                unknown += counts[role]
        return slots, unknown + sum(slot.pod is None for slot in slots)

    def _slot(self, pod: KubePod, role: str) -> _Slot | None:
        shape, node = self._shapes.shape(pod), pod.spec.node_name
        if not node:
            self._ledger.release(pod_key(pod))
            return _Slot(role, shape, pod)
        found = self._ledger.place(pod_key(pod), node, shape, self._shapes.dra.given(pod))
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if isinstance(found, str):
            self._notes.add("Pod", name, "spec.nodeName", f"{found}: it is left out")
            return None
        place, held = found
        if held is not shape:
            why = "has more than its node has now: it holds what there is"
            self._notes.add("Pod", name, "spec.nodeName", why)
        return _Slot(role, held, pod, place)

    def _workload(
        self, name: str, gang: Gang, pods: Sequence[KubePod], slots: Sequence[_Slot], said: Declared
    ) -> Workload:
        created = [parse_time(pod.metadata.creation_timestamp) or 0.0 for pod in pods]
        limit_s = said.time_limit_s
        if limit_s is None and pods:
            limits = [pod.spec.active_deadline_seconds for pod in pods]
            limit_s = float(max(each or 0 for each in limits)) if all(limits) else None
        return Workload(
            name,
            self._pod_sets(slots, said),
            submitted_s=min(created, default=0.0) if said.created_s is None else said.created_s,
            time_limit_s=limit_s,
            queue=self._claims.queue(gang, pods, said),
            user=next((pod.metadata.label(USER_LABEL) for pod in pods), ""),
            namespace=gang.namespace,
            priority=self._claims.priority(gang, pods, said),
            quality=pods[0].status.qos_class or "" if pods else "",
            topology=self._claims.topology(gang, pods, said, slots[0].shape, len(slots)),
            preemptible=self._claims.preemptible(pods),
        )

    def _pod_sets(self, slots: Sequence[_Slot], said: Declared) -> tuple[PodSet, ...]:
        """Ranks in a row that are alike are a pod set; what need not run is taken from the last ones."""
        runs: list[tuple[str, PodShape, int]] = []
        for slot in slots:
            if runs and runs[-1][0] == slot.role and runs[-1][1] == slot.shape:
                runs[-1] = (slot.role, runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((slot.role, slot.shape, 1))
        spare = 0 if said.least is None else max(0, len(slots) - said.least)
        of_role = {role: sum(count for each, _, count in runs if each == role) for role, _, _ in runs}
        fewer_of = {role: max(0, of_role[role] - said.least_of.get(role, of_role[role])) for role in of_role}
        sets: list[PodSet] = []
        taken: dict[str, int] = {}
        for role, shape, count in reversed(runs):
            at = taken.get(role, 0)
            fewer = min(count, fewer_of[role] if role in said.least_of else spare)
            spare, fewer_of[role] = max(0, spare - fewer), max(0, fewer_of[role] - fewer)
            taken[role] = at + 1
            sets.append(PodSet(shape, count, count - fewer if fewer else None, role if not at else f"{role}-{at}"))
        found = tuple(reversed(sets))
        return self._sets.setdefault(found, found)

    # -- running

    def _running(self, workload: Workload, slots: Sequence[_Slot], leaving_for: Mapping[str, str]) -> Running | None:
        bound = [slot for slot in slots if slot.place is not None]
        if not bound:
            return None
        pods = [slot.pod for slot in bound if slot.pod is not None]
        going = all(pod.metadata.deletion_timestamp is not None for pod in pods)
        leaving_s = max(parse_time(pod.metadata.deletion_timestamp) or 0.0 for pod in pods) if going else None
        nodes = [slot.place.node for slot in bound if slot.place is not None]
        return Running(
            workload,
            max(_started_s(pod) for pod in pods),
            tuple(slot.place for slot in bound if slot.place is not None),
            missing=tuple(rank for rank, slot in enumerate(slots) if slot.place is None),
            leaving_s=leaving_s,
            leaving_for=next((leaving_for[node] for node in nodes if node in leaving_for), "") if going else "",
        )

    def _leaving(self, pods: Sequence[KubePod], leaving_for: Mapping[str, str]) -> tuple[Running, ...]:
        """Pods that go while their gang stays, each by itself."""
        found: list[Running] = []
        for pod in pods:
            slot = self._slot(pod, "main")
            if slot is None:
                continue
            name = self._names.of(Gang("Pod", pod.metadata.namespace, pod.metadata.name))
            gang = Gang("Pod", pod.metadata.namespace, pod.metadata.name)
            workload = self._workload(name, gang, [pod], [slot], Declared())
            running = self._running(replace(workload, topology=None), [slot], leaving_for)
            if running is not None:
                found.append(running)
        return tuple(found)


def _ranked(found: list[tuple[Member, _Slot]], count: int) -> list[_Slot]:
    """The pods of a role at their ranks: by their index where each has one of its own, else one after the other."""
    found.sort(key=lambda each: each[0].rank)
    indexes = [part.index for part, _ in found]
    shape, role = found[0][1].shape, found[0][0].role
    if len(found) == count:
        return [slot for _, slot in found]
    by_index = len(set(indexes)) == len(indexes) and min(indexes) >= 0 and max(indexes) < count
    there = dict(zip(indexes if by_index else range(count), (slot for _, slot in found), strict=False))
    pending = next((slot.shape for _, slot in found if slot.place is None), shape)
    return [there.get(rank) or _Slot(role, pending) for rank in range(count)]


def _pod_of(gang: Gang, role: str, template: Template) -> KubePod:
    """A pod of a template that is not there yet."""
    told = template.metadata
    meta = Meta(f"{gang.name}-{role}", gang.namespace)
    if told is not None:
        meta.labels, meta.annotations = told.labels, told.annotations
    return KubePod(meta, template.spec)


def pod_key(pod: KubePod) -> str:
    """By which the ledger knows a pod."""
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"


def _ref(namespace: str, pod: KubePod | None) -> PodRef:
    if pod is None:
        return PodRef(namespace)
    meta = pod.metadata
    return PodRef(meta.namespace, meta.name, meta.uid, pod.spec.node_name or "", meta.deletion_timestamp is not None)


def _started_s(pod: KubePod) -> float:
    return parse_time(pod.status.start_time) or parse_time(pod.metadata.creation_timestamp) or 0.0
