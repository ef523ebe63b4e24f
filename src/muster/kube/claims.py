"""What holds for a gang as a whole: its queue and priority, where it must stand, what holds it, who may stop it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.kube.affinity import selects
from muster.kube.declared import Declared, declared
from muster.kube.dra.reader import DraReader
from muster.kube.groups import KubeBudget, KubePriorityClass
from muster.kube.kinds import BUDGETS, KUEUE_PRIORITIES, NODES, PRIORITY_CLASSES
from muster.kube.kueue import KueueWorkloads, with_kueue
from muster.kube.nodes import HOST_LABEL, Level
from muster.kube.objects import QUEUE_LABEL, KubeNode, KubePod, PodTerm, Selector, WeightedPodTerm
from muster.kube.others import Others
from muster.kube.owners import Gang
from muster.kube.queues import QueueReader
from muster.kube.world import World
from muster.model.fleet import HOST
from muster.model.notes import Notes
from muster.model.workload import PodShape, TopologyRequest

KUEUE = "kueue.x-k8s.io/"
REQUIRED, PREFERRED = f"{KUEUE}podset-required-topology", f"{KUEUE}podset-preferred-topology"
SLICE_LEVEL, SLICE_SIZE = f"{KUEUE}podset-slice-required-topology", f"{KUEUE}podset-slice-size"
KAI_REQUIRED, KAI_PREFERRED = "kai.scheduler/topology-required-placement", "kai.scheduler/topology-preferred-placement"
PRIORITY_LABEL = f"{KUEUE}priority-class"
MUSTER_QUEUE = "muster.dev/queue"
QUEUE_LABELS = (
    ("muster", MUSTER_QUEUE), ("kueue", QUEUE_LABEL), ("kai", "kai.scheduler/queue"), ("kai", "runai/queue"),
)  # fmt: skip
"""Labels that name a queue, and whose it is; the first that is there counts."""
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
FINISHED = ("Succeeded", "Failed")
_LATE = "is looked at only when places were found: the gang may wait although others would do"
MIRROR = "kubernetes.io/config.mirror"


class ClaimReader:
    """Reads what holds for gangs as a whole."""

    def __init__(
        self, world: World, levels: Sequence[Level], queues: QueueReader, dra: DraReader, others: Others, notes: Notes
    ) -> None:  # fmt: skip
        self._world, self._queues, self._dra, self._others, self._notes = world, queues, dra, others, notes
        self.kueue = KueueWorkloads(world)
        self._level = {label: level.name for level in levels for label in level.labels}
        self._level |= {level.name: level.name for level in levels} | {HOST_LABEL: HOST, HOST: HOST}
        self._requests: dict[TopologyRequest, TopologyRequest] = {}
        self._budgets: dict[str, list[Selector]] = {}
        self._budgets_version = -1

    def said(self, gang: Gang, pods: list[KubePod]) -> Declared:
        """What is said of a gang beside its pods."""
        said = declared(gang, self._world, pods)
        for where, text in said.notes:
            self._notes.add(gang.kind, f"{gang.namespace}/{gang.name}", where, text)
        workload = self.kueue.of(gang, pods)
        return with_kueue(said, workload) if workload is not None else said

    # -- queue and priority

    def _named(self, gang: Gang, pods: Sequence[KubePod], said: Declared) -> tuple[str, str]:
        """The system whose queue is named, and its name."""
        if said.queue:
            return said.system, said.queue
        first = pods[0].metadata if pods else None
        for meta in (said.meta, first):
            for system, label in QUEUE_LABELS:
                if meta is not None and (name := meta.label(label)):
                    return system, name
        return "volcano" if first is not None and first.annotation(VOLCANO_QUEUE) else "", (
            first.annotation(VOLCANO_QUEUE) if first is not None else ""
        )

    def queue(self, gang: Gang, pods: Sequence[KubePod], said: Declared) -> str:
        """The queue that a gang is in."""
        system, name = self._named(gang, pods, said)
        return self._queues.resolve(system, gang.namespace, name)

    def priority(self, gang: Gang, pods: Sequence[KubePod], said: Declared) -> int:
        """The group's own, or that of Kueue's class; else the highest of its pods."""
        if said.priority is not None:
            return said.priority
        name = said.meta.label(PRIORITY_LABEL) if said.meta is not None else ""
        found = self._world.of(KUEUE_PRIORITIES, KubePriorityClass).get(name) if name else None
        if found is not None:
            return found.value
        if said.priority_class:
            return self._class_value(said.priority_class, gang.kind, f"{gang.namespace}/{gang.name}")
        return max(
            (
                pod.spec.priority
                if pod.spec.priority is not None
                else self._class_value(
                    pod.spec.priority_class_name or "", "Pod", f"{pod.metadata.namespace}/{pod.metadata.name}"
                )
                for pod in pods
            ),
            default=0,
        )

    def _class_value(self, name: str, kind: str, of: str) -> int:
        if not name:
            return 0
        found = self._world.of(PRIORITY_CLASSES, KubePriorityClass).get(name)
        value = found.value if found is not None else SYSTEM_PRIORITIES.get(name)
        if value is None:
            what = f"the value of priority class {name} is not known: it counts as 0"
            self._notes.add(kind, of, "spec.priorityClassName", what)
        return value or 0

    # -- what holds it, and who may stop it

    def gates(self, gang: Gang, pods: Sequence[KubePod], said: Declared) -> tuple[str, ...]:
        """What keeps the gang from starting. Gates of Kueue are none: what it waits for is quota and room."""
        gates = {gate.name: None for pod in pods for gate in pod.spec.scheduling_gates or ()}
        found = [gate for gate in gates if not gate.startswith(KUEUE)]
        if level := self._unknown_level(pods, said):
            found.append(f"no topology level {level}")
        if said.hold:
            found.append(said.hold)
        elif self._queues.stopped(*_in_space(self._named(gang, pods, said), gang)):
            found.append("stopPolicy")
        return tuple(found)

    def preemptible(self, pods: Sequence[KubePod]) -> bool:
        """Whether a gang may be stopped: not where a budget allows no disruption, nor what belongs to its node."""
        if not pods:
            return True
        owner = pods[0].metadata.owner
        if (owner is not None and owner.kind in ("DaemonSet", "Node")) or pods[0].metadata.annotation(MIRROR):
            return False
        if self._budgets_version != (version := self._world.revision(BUDGETS)):
            self._budgets_version, self._budgets = version, {}
            for each in self._world.of(BUDGETS, KubeBudget).values():
                if each.status.disruptions_allowed < 1 and each.spec.selector is not None:
                    self._budgets.setdefault(each.metadata.namespace, []).append(each.spec.selector)
        budgets = self._budgets.get(pods[0].metadata.namespace)
        return not budgets or not any(selects(each, pod.metadata.labels or {}) for each in budgets for pod in pods)

    # -- topology

    def topology(
        self, gang: Gang, pods: Sequence[KubePod], said: Declared, shape: PodShape, count: int
    ) -> TopologyRequest | None:
        """Where the pods must or should stand: by the group, the annotations of its pods, and their affinity."""
        name = f"{gang.namespace}/{gang.name}"
        request = self._asked(name, gang.kind, pods, said, count)
        clique = self._level.get(self._dra.together(pods), "") if pods else ""
        if clique and request.required not in (HOST, clique):
            if request.required:
                text = f"asks for one {request.required}; its claims for one {clique}, which counts"
                self._notes.add(gang.kind, name, "topology", text)
            request = TopologyRequest(clique, request.preferred)
        pod = next((pod for pod in pods if pod.spec.affinity is not None or pod.spec.topology_spread_constraints), None)
        if pod is not None:
            request = self._beside(request, pod, pods, count)
        return self._requests.setdefault(request, request) if request != TopologyRequest() else None

    def _asked(self, name: str, kind: str, pods: Sequence[KubePod], said: Declared, count: int) -> TopologyRequest:
        annotated = next((pod.metadata for pod in pods if pod.metadata.annotations), None)
        required, preferred, segment = said.required, said.preferred, said.segment
        if annotated is not None and not required:
            required = annotated.annotation(REQUIRED, KAI_REQUIRED)
            preferred = preferred or annotated.annotation(PREFERRED, KAI_PREFERRED)
            size = annotated.annotation(SLICE_SIZE)
            if annotated.annotation(SLICE_LEVEL) and size.isdigit():
                if required:
                    what = "is left out beside slices, each of which stands together"
                    self._notes.add(kind, name, f"metadata.annotations.{REQUIRED}", what)
                required, segment = annotated.annotation(SLICE_LEVEL), int(size)
        if not (required or preferred):
            return TopologyRequest()
        if segment and (segment >= count or count % segment):
            if segment < count:
                self._notes.add(kind, name, "slices", "do not divide its pods: all stand together")
            segment = 0
        level = self._to_level(required, kind, name, required=True)
        liked = self._to_level(preferred, kind, name, required=False)
        request = TopologyRequest(level, liked, segment if level else 0)
        return replace(request, spread=level, at_most=segment) if said.spread and level and segment else request

    def _beside(self, request: TopologyRequest, pod: KubePod, pods: Sequence[KubePod], count: int) -> TopologyRequest:
        """With what pods of a gang ask of each other by affinity: in one domain, one a domain, or dealt out.

        What they ask of other pods, their nodes must meet (`muster.kube.others`).
        """
        name, affinity = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.spec.affinity
        together = affinity.pod_affinity if affinity is not None else None
        apart = affinity.pod_anti_affinity if affinity is not None else None
        for term in (together.required_during_scheduling_ignored_during_execution if together else None) or ():
            if count < 2 or not any(self._means(term, pod, mate) for mate in pods):
                continue
            if (level := self._level.get(term.topology_key, "")) and request.required in ("", level):
                request = replace(request, required=level)
            else:
                self._notes.add("Pod", name, "spec.affinity.podAffinity", f"{term.topology_key} {_LATE}")
        for term in (apart.required_during_scheduling_ignored_during_execution if apart else None) or ():
            if count < 2 or not any(self._means(term, pod, mate) for mate in pods):
                continue
            level = self._level.get(term.topology_key, "")
            if level and request.spread in ("", level) and not request.required and self._means(term, pod, pod):
                request = replace(request, spread=level, at_most=1)
            else:
                self._notes.add("Pod", name, "spec.affinity.podAntiAffinity", f"{term.topology_key} {_LATE}")
        return self._preferred(self._spread(request, pod, name, count), pod, name, count)

    def _means(self, term: PodTerm, pod: KubePod, mate: KubePod) -> bool:
        return self._others.selected(self._others.of_term(term, pod), mate)

    def _spread(self, request: TopologyRequest, pod: KubePod, name: str, count: int) -> TopologyRequest:
        for each in pod.spec.topology_spread_constraints or ():
            must, level = each.when_unsatisfiable == "DoNotSchedule", self._level.get(each.topology_key, "")
            mine = count > 1 and selects(each.label_selector, pod.metadata.labels or {})
            free = level and request.spread in ("", level) and not request.required
            if mine and free and must:
                labels = [node.metadata.labels or {} for node in self._world.of(NODES, KubeNode).values()]
                domains = len({found[each.topology_key] for found in labels if each.topology_key in found})
                most = -(-count // max(1, domains)) + each.max_skew - 1
                request = replace(request, spread=level, at_most=min(most, request.at_most or most))
            elif mine and free:
                request = replace(request, spread=level)
            elif mine and must:
                self._notes.add("Pod", name, "spec.topologySpreadConstraints", f"{each.topology_key} {_LATE}")
            elif not must:
                self._notes.add("Pod", name, "spec.topologySpreadConstraints", "what is only preferred is not counted")
        return request

    def _preferred(self, request: TopologyRequest, pod: KubePod, name: str, count: int) -> TopologyRequest:
        """With what has a place in a request: that the pods of a gang prefer one domain. The rest is noted."""
        affinity = pod.spec.affinity
        if affinity is None:
            return request
        kinds = (
            ("nodeAffinity", affinity.node_affinity), ("podAffinity", affinity.pod_affinity),
            ("podAntiAffinity", affinity.pod_anti_affinity),
        )  # fmt: skip
        for field, asked in kinds:
            for each in (asked.preferred_during_scheduling_ignored_during_execution if asked else None) or ():
                term = each.pod_affinity_term if isinstance(each, WeightedPodTerm) else None
                level = self._level.get(term.topology_key, "") if term is not None else ""
                fits = level and field == "podAffinity" and not (request.preferred or request.spread) and count > 1
                if fits and term is not None and self._means(term, pod, pod):
                    request = replace(request, preferred=level)
                elif request.preferred != level or not level:
                    self._notes.add("Pod", name, f"spec.affinity.{field}", "what is only preferred is not counted")
        return request

    def _unknown_level(self, pods: Sequence[KubePod], said: Declared) -> str:
        """A level that is required and is none of the fleet's: nobody can tell where the gang may stand."""
        annotated = next((pod.metadata for pod in pods if pod.metadata.annotations), None)
        asked = [said.required]
        if annotated is not None and not said.required:
            asked = [annotated.annotation(REQUIRED, KAI_REQUIRED), annotated.annotation(SLICE_LEVEL)]
        return next((label for label in asked if label and label not in self._level), "")

    def _to_level(self, label: str, kind: str, name: str, *, required: bool) -> str:
        if label and label not in self._level:
            known = ", ".join(key for key in self._level if "/" in key) or "none"
            then = "it does not start" if required else "it is left out"
            what = f"asks for one {label}, which is no level of the topology here ({known}): {then}"
            self._notes.add(kind, name, "topology", what)
        return self._level.get(label, "")


def _in_space(named: tuple[str, str], gang: Gang) -> tuple[str, str, str]:
    return named[0], gang.namespace, named[1]
