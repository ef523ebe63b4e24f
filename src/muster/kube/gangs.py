"""Pods as gangs: which pods wait and run together, in which order, and how many of them are not there yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.kube.declared import Declared, declared
from muster.kube.groups import KubePriorityClass
from muster.kube.kinds import PRIORITY_CLASSES
from muster.kube.ledger import Ledger
from muster.kube.nodes import Level
from muster.kube.notes import Notes
from muster.kube.objects import QUEUE_LABEL, KubePod, parse_time
from muster.kube.owners import Gang, Member, member, role_order
from muster.kube.shapes import ShapeReader
from muster.kube.world import World
from muster.model.fleet import HOST
from muster.model.snapshot import PodPlacement, Running
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload

KUEUE = "kueue.x-k8s.io/"
REQUIRED, PREFERRED = f"{KUEUE}podset-required-topology", f"{KUEUE}podset-preferred-topology"
SLICE_LEVEL, SLICE_SIZE = f"{KUEUE}podset-slice-required-topology", f"{KUEUE}podset-slice-size"
KAI_REQUIRED, KAI_PREFERRED = "kai.scheduler/topology-required-placement", "kai.scheduler/topology-preferred-placement"
HOST_LABEL = "kubernetes.io/hostname"

MUSTER_QUEUE = "muster.dev/queue"
QUEUE_LABELS = (MUSTER_QUEUE, QUEUE_LABEL, "kai.scheduler/queue", "runai/queue")
"""Labels that name a queue, the first that is there counts."""
USER_LABEL = "muster.dev/user"
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
FINISHED = ("Succeeded", "Failed")


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


class _Slot(Struct):
    """A rank: its role and shape, the pod if it is there, and where it is if it is bound."""

    role: str
    shape: PodShape
    pod: KubePod | None = None
    place: PodPlacement | None = None


class GangReader:
    """Reads gangs."""

    def __init__(
        self, world: World, shapes: ShapeReader, ledger: Ledger, levels: Sequence[Level], names: Names, notes: Notes
    ) -> None:
        self._world, self._shapes, self._ledger = world, shapes, ledger
        self._names, self._notes = names, notes
        self._level = {label: level.name for level in levels for label in level.labels}
        self._level |= {level.name: level.name for level in levels} | {HOST_LABEL: HOST, HOST: HOST}
        self._sets: dict[tuple[PodSet, ...], tuple[PodSet, ...]] = {}
        self._requests: dict[TopologyRequest, TopologyRequest] = {}

    def gang(self, name: str, gang: Gang, pods: Iterable[KubePod], leaving_for: Mapping[str, str]) -> Seen | None:
        """A gang of some pods, all that there are of it; None where none of them asks for anything any more.

        ``leaving_for``: of each node, for which gang its pods leave.
        """
        pods = list(pods)
        alive = [pod for pod in pods if pod.status.phase not in FINISHED]
        for pod in pods:
            if pod.status.phase in FINISHED:
                self._ledger.release(_key(pod))
        stays = [pod for pod in alive if pod.metadata.deletion_timestamp is None]
        going = [pod for pod in alive if pod.metadata.deletion_timestamp is not None]
        for pod in going:
            if not pod.spec.node_name:
                self._ledger.release(_key(pod))
        going = [pod for pod in going if pod.spec.node_name]
        if not stays and not going:
            return None
        said = declared(gang, self._world, pods)
        ended = sum(pod.status.phase == "Succeeded" for pod in pods)
        slots = self._slots(stays or going, said, ended, kept=bool(stays))
        if not slots:
            return None
        pods = [slot.pod for slot in slots if slot.pod is not None]
        workload = self._workload(name, gang, pods, slots, said)
        gates = self._gates(pods, said)
        running = self._running(workload, slots, leaving_for)
        if running is None and gates:
            workload = replace(workload, not_before_s=math.inf)
        return Seen(
            workload,
            tuple(_ref(gang.namespace, slot.pod) for slot in slots),
            sum(slot.pod is None for slot in slots),
            running,
            gates,
            self._leaving(going, leaving_for) if stays else (),
            frozenset(pod.spec.scheduler_name or "" for pod in pods),
        )

    # -- ranks

    def _slots(self, pods: Sequence[KubePod], said: Declared, ended: int, *, kept: bool) -> list[_Slot]:
        """The ranks of a gang in order, those that are not there among them (unless the gang is going)."""
        roles: dict[str, list[tuple[Member, _Slot]]] = {}
        for pod in pods:
            part = member(pod)
            slot = self._slot(pod, part.role)
            if slot is not None:
                roles.setdefault(part.role, []).append((part, slot))
        if not roles:
            return []
        counts = {role: len(found) for role, found in roles.items()}
        if kept:
            counts |= {role: count for role, count in said.counts.items() if count > counts.get(role, count)}
            more = said.at_least - ended - sum(counts.values())
            if more > 0:
                last = max(roles, key=role_order)
                counts[last] += more
        slots: list[_Slot] = []
        for role in sorted(roles, key=role_order):
            slots += _ranked(roles[role], counts[role])
        return slots

    def _slot(self, pod: KubePod, role: str) -> _Slot | None:
        shape, node = self._shapes.shape(pod), pod.spec.node_name
        if not node:
            self._ledger.release(_key(pod))
            return _Slot(role, shape, pod)
        found = self._ledger.place(_key(pod), node, shape, self._shapes.dra.given(pod))
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
        first = pods[0]
        created = [parse_time(pod.metadata.creation_timestamp) or 0.0 for pod in pods]
        limit_s = said.time_limit_s
        if limit_s is None:
            limits = [pod.spec.active_deadline_seconds for pod in pods]
            limit_s = float(max(each or 0 for each in limits)) if all(limits) else None
        return Workload(
            name,
            self._pod_sets(slots, said.least),
            submitted_s=min(created) if said.created_s is None else said.created_s,
            time_limit_s=limit_s,
            queue=self._queue(first, said),
            user=first.metadata.label(USER_LABEL),
            namespace=gang.namespace,
            priority=self._priority(pods, said),
            quality=first.status.qos_class or "",
            topology=self._topology(pods, said, len(slots)),
        )

    def _pod_sets(self, slots: Sequence[_Slot], least: int | None) -> tuple[PodSet, ...]:
        """Ranks in a row that are alike are a pod set; what need not run is taken from the last ones."""
        runs: list[tuple[str, PodShape, int]] = []
        for slot in slots:
            if runs and runs[-1][0] == slot.role and runs[-1][1] == slot.shape:
                runs[-1] = (slot.role, runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((slot.role, slot.shape, 1))
        spare = 0 if least is None else max(0, len(slots) - least)
        sets: list[PodSet] = []
        taken: dict[str, int] = {}
        for role, shape, count in reversed(runs):
            fewer, at = min(spare, count), taken.get(role, 0)
            spare -= fewer
            taken[role] = at + 1
            sets.append(PodSet(shape, count, count - fewer if fewer else None, role if not at else f"{role}-{at}"))
        found = tuple(reversed(sets))
        return self._sets.setdefault(found, found)

    # -- what holds for all

    def _queue(self, pod: KubePod, said: Declared) -> str:
        return said.queue or (said.meta.label(*QUEUE_LABELS) if said.meta else "") or pod.metadata.label(*QUEUE_LABELS)

    def _priority(self, pods: Sequence[KubePod], said: Declared) -> int:
        """The group's own; else the highest of its pods."""
        if said.priority is not None:
            return said.priority
        if said.priority_class:
            return self._class_value(said.priority_class, pods[0])
        return max(
            pod.spec.priority if pod.spec.priority is not None
            else self._class_value(pod.spec.priority_class_name or "", pod)
            for pod in pods
        )  # fmt: skip

    def _class_value(self, name: str, pod: KubePod) -> int:
        if not name:
            return 0
        found = self._world.of(PRIORITY_CLASSES, KubePriorityClass).get(name)
        value = found.value if found is not None else SYSTEM_PRIORITIES.get(name)
        if value is None:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            what = f"the value of priority class {name} is not known: it counts as 0"
            self._notes.add("Pod", where, "spec.priorityClassName", what)
        return value or 0

    def _gates(self, pods: Sequence[KubePod], said: Declared) -> tuple[str, ...]:
        """What keeps the gang from starting. Gates of Kueue are none: what it waits for is quota and room."""
        gates = {gate.name: None for pod in pods for gate in pod.spec.scheduling_gates or ()}
        return tuple(gate for gate in gates if not gate.startswith(KUEUE)) + (("suspend",) if said.suspended else ())

    def _topology(self, pods: Sequence[KubePod], said: Declared, count: int) -> TopologyRequest | None:
        annotations = next((pod.metadata for pod in pods if pod.metadata.annotations), None)
        required, preferred, slices, size = said.required, "", "", ""
        if annotations is not None:
            required = required or annotations.annotation(REQUIRED, KAI_REQUIRED)
            preferred = annotations.annotation(PREFERRED, KAI_PREFERRED)
            slices, size = annotations.annotation(SLICE_LEVEL), annotations.annotation(SLICE_SIZE)
        clique = self._shapes.dra.clique(pods)
        if clique and self._level.get(required) not in (HOST, self._level.get(clique)):
            if required:
                text = f"asks for one {required}; its compute domain for one {clique}, which counts"
                self._notes.add("Pod", f"{pods[0].metadata.namespace}/{pods[0].metadata.name}", "topology", text)
            required = clique
        if not (required or preferred or slices):
            return None
        name = f"{pods[0].metadata.namespace}/{pods[0].metadata.name}"
        segment = 0
        if slices and size.isdigit() and int(size) and count % int(size) == 0:
            if required:
                self._notes.add("Pod", name, f"annotation {REQUIRED}", "is left out beside slices that stand together")
            required, segment = slices, int(size)
        level = self._to_level(required, name)
        request = TopologyRequest(level, self._to_level(preferred, name), segment if level else 0)
        return self._requests.setdefault(request, request) if request != TopologyRequest() else None

    def _to_level(self, label: str, name: str) -> str:
        if label and label not in self._level:
            self._notes.add("Pod", name, "topology", f"asks for one {label}, a label that no node has: it is left out")
        return self._level.get(label, "")

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
            said = Declared()
            workload = self._workload(name, Gang("Pod", pod.metadata.namespace, pod.metadata.name), [pod], [slot], said)
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


def _key(pod: KubePod) -> str:
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"


def _ref(namespace: str, pod: KubePod | None) -> PodRef:
    if pod is None:
        return PodRef(namespace)
    meta = pod.metadata
    return PodRef(meta.namespace, meta.name, meta.uid, pod.spec.node_name or "", meta.deletion_timestamp is not None)


def _started_s(pod: KubePod) -> float:
    return parse_time(pod.status.start_time) or parse_time(pod.metadata.creation_timestamp) or 0.0
