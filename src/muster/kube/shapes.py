"""What a live pod asks for, and where it may stand."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from muster.catalog.mig_placements import mig_milli
from muster.kube.affinity import expression_fault, shown, term_takes
from muster.kube.dra.reader import DraReader
from muster.kube.gpus import GPU, SHARED, WHOLE, GpuMode, profile_name
from muster.kube.kinds import NODES, STORAGE_CLASSES
from muster.kube.marks import Marks
from muster.kube.nodes import HOST_LABEL, NodeReader
from muster.kube.objects import (
    GPU_RESOURCES,
    Amount,
    KubeNode,
    KubePod,
    NodeAffinity,
    PodSpec,
    Quantity,
    Term,
    parse_quantity,
    pod_shape,
)
from muster.kube.others import Rule, Rules
from muster.kube.parts import GPU_FRACTION, GPU_FRACTION_DEVICES, GPU_MEMORY, Parts, parts_of
from muster.kube.volumes import VolumeReader
from muster.kube.world import World
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.notes import Notes
from muster.model.workload import PodShape

KAI_RESERVATIONS = ("kai-resource-reservation", "runai-reservation")
"""Namespaces of pods by which KAI keeps GPUs of which others take shares."""
_MOST = 2**53


_Places = tuple[list[list[Term]], list[tuple[str, str]]]
"""Node selectors and labels that the volumes of a pod ask for."""
NOWHERE = "muster.dev/asked-nowhere"
"""A label that no node has: for pods that ask for two things that exclude each other."""
_Said = tuple[str, str]
"""A field, and what was made of it: all pods that are alike are noted for it."""


class ShapeReader:
    """Reads the shapes of pods; pods whose specs are alike in what matters are read once.

    Attributes:
        mates: all pods of the gang whose pods are read.
    """

    def __init__(
        self, world: World, nodes: NodeReader, marks: Marks, notes: Notes, dra: DraReader, rules: Rules
    ) -> None:  # fmt: skip
        self._world, self._nodes, self._marks, self._notes = world, nodes, marks, notes
        self.dra, self.volumes = dra, VolumeReader(world, marks)
        self._rules, self.mates = rules, tuple[KubePod, ...]()
        self._known: dict[bytes, tuple[PodShape, tuple[_Said, ...]]] = {}
        self._said: list[_Said] = []
        self._version = -1
        self._modes: dict[tuple[int, tuple[tuple[str, str], ...]], tuple[GpuMode, ...]] = {}
        self._encoder = msgspec.msgpack.Encoder()

    def shape(self, pod: KubePod) -> PodShape:
        """The shape of a pod."""
        spec = pod.spec
        places: _Places = self._volumes(pod) if spec.volumes else ([], [])
        annotations, told = pod.metadata.annotations, ()
        if annotations:
            told = tuple(annotations.get(key) for key in (GPU_FRACTION, GPU_FRACTION_DEVICES, GPU_MEMORY))
        mode = self._mode(pod) if self._nodes.modes else WHOLE
        affinity = spec.affinity and spec.affinity.node_affinity
        if affinity is not None and spec.node_name and pinned_to(affinity):
            affinity = None  # pods of a DaemonSet, which are alike but for the node that they are on
        rules = self._rules.of(pod, self.mates) if not spec.node_name and self._rules.concern(pod) else []
        key = self._encoder.encode(
            (
                spec.containers, spec.init_containers, spec.overhead, spec.resources, spec.node_selector,
                affinity, spec.tolerations, places, [rule.key for rule in rules],
                spec.preemption_policy, told, mode, pod.metadata.namespace in KAI_RESERVATIONS,
            )
        )  # fmt: skip
        if self._version != self._nodes.version:
            self._version = self._nodes.version
            self._known.clear()
        known = self._known.get(key)
        if known is None:
            self._said.clear()
            shape = self._read(pod, affinity, places, mode, rules)
            known = self._known[key] = shape, tuple(self._said)
        shape, said = known
        for where, text in said:
            self._notes.add("Pod", f"{pod.metadata.namespace}/{pod.metadata.name}", where, text)
        return self.dra.shape(pod, shape) if self.dra.concerns(pod) else shape

    def _say(self, where: str, text: str) -> None:
        self._said.append((where, text))

    def _read(
        self, pod: KubePod, affinity: NodeAffinity | None, places: _Places, mode: GpuMode, rules: list[Rule]
    ) -> PodShape:
        spec = pod.spec

        def amount(resources: Mapping[str, Quantity], resource: str, scale: int, where: str) -> int:
            if resource not in resources:
                return 0
            try:
                found = parse_quantity(resources[resource], scale)
            except (ValueError, OverflowError):
                found = -1
            if 0 <= found < _MOST:
                return found
            what = f"{resource} is no amount that makes sense: it counts as 0"
            self._say(f"spec.{where}", what)
            return 0

        shape = self._gpu_parts(pod_shape(spec, amount), pod, mode, amount)
        if any(port.host_port for each in spec.containers or () for port in each.ports or ()):
            self._say("spec.containers.ports", "asks for ports of its node: that they may be taken is not counted")
        if spec.preemption_policy == "Never":
            self._say("spec.preemptionPolicy", "is Never: that it stops nobody is not counted")
        selector = dict(shape.node_selector)
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        if affinity is not None and (name := pinned_to(affinity)):
            selector[HOST_LABEL] = name
        elif required is not None:
            self._require(selector, required.node_selector_terms or [], "spec.affinity.nodeAffinity", "nodes of")
        for terms in places[0]:
            self._require(selector, terms, "spec.volumes", "nodes that reach a volume of")
        for key, value in places[1]:
            if selector.setdefault(key, value) != value:
                self._say("spec.volumes", f"{key} is {value} for one of its volumes: no node is both")
                selector[NOWHERE] = "yes"
        for rule in rules:
            key, value = self._marks.label(rule.words, rule.takes, rule.key, lambda rule=rule: rule.version)
            selector[key] = value
        if rules and self._rules.needs_namespaces(rules):
            what = "namespaces cannot be read: those that a namespaceSelector means are not known"
            self._say("spec.affinity", what)
            key, value = self._marks.label(f"no node, as {what}", lambda labels, node: False)
            selector[key] = value
        return replace(shape, node_selector=tuple(sorted(selector.items())))

    def _gpu_parts(self, shape: PodShape, pod: KubePod, mode: GpuMode, amount: Amount) -> PodShape:
        """The shape with its MIG instance or its share of a GPU; what is not understood is noted."""
        where = "spec.containers.resources"
        parts = parts_of(pod.spec, pod.metadata.annotations or {}, amount)
        for resource in (*parts.unknown, *parts.others):
            self._say(where, f"{resource} is not counted: nodes without it would refuse the pod")
        for key in parts.wrong:
            self._say(f"metadata.annotations.{key}", "makes no sense: it is left out")
        if pod.metadata.namespace in KAI_RESERVATIONS:
            return replace(shape, gpus=0)  # it keeps a GPU for pods that take shares of it, which are counted
        if parts.gpus:
            memory = min((each for each in self._nodes.models.values() if each), default=0)
            milli = parts.share_milli(memory)
            if not milli:
                self._say(where, "asks for an amount of GPU memory, and no node tells how much a "
                                "GPU has: it counts as a whole GPU")  # fmt: skip
            elif parts.memory_mib and len(set(self._nodes.models.values())) > 1:
                self._say(where, "asks for an amount of GPU memory: it counts as the share of the "
                                "smallest GPU")  # fmt: skip
            milli = milli or WHOLE_GPU_MILLI
            return replace(shape, gpus=parts.gpus, gpu_milli=milli, sharing="soft" if milli < WHOLE_GPU_MILLI else "")
        if parts.mig:
            return self._instance(shape, where, parts)
        if parts.shared:
            return self._replicas(shape, where, parts.shared)
        if mode is WHOLE or not shape.gpus:
            return shape
        if mode.mig_profile:
            if shape.gpus > 1:
                self._say(where, "asks for several MIG instances: one is counted")
            return replace(shape, gpus=1, gpu_milli=mode.milli, mig_profile=mode.mig_profile)
        return replace(shape, gpu_milli=mode.milli, sharing=mode.sharing)

    def _instance(self, shape: PodShape, where: str, parts: Parts) -> PodShape:
        told, count = next(iter(parts.mig.items()))
        if count > 1 or len(parts.mig) > 1 or shape.gpus:
            self._say(where, "asks for several MIG instances, or whole GPUs too: one is counted")
        profile = profile_name(told)
        milli = mig_milli(profile, self._nodes.models)
        if not milli:
            self._say(where, f"no GPU of the cluster has the MIG profile {profile}")
        return replace(shape, gpus=1, gpu_milli=milli or WHOLE_GPU_MILLI, mig_profile=profile)

    def _replicas(self, shape: PodShape, where: str, count: int) -> PodShape:
        """Replicas of GPUs: shares, of the size that the nodes' labels tell."""
        shares = sorted(self._nodes.shares, reverse=True)
        if not shares:
            self._say(where, f"asks for {SHARED}, which no node has: it counts as whole GPUs")
        elif len(shares) > 1:
            self._say(where, "nodes differ in how large a replica is: it counts as the largest")
        if count > 1:
            self._say(where, "asks for several replicas: they are counted on as many GPUs")
        milli, sharing = shares[0] if shares else (WHOLE_GPU_MILLI, "")
        return replace(shape, gpus=count, gpu_milli=milli, sharing=sharing if milli < WHOLE_GPU_MILLI else "")

    def _mode(self, pod: KubePod) -> GpuMode:
        """What one ``nvidia.com/gpu`` is for a pod: by its node, or by those that its node selector allows."""
        modes, spec = self._nodes.modes, pod.spec
        if spec.node_name:
            return modes.get(spec.node_name, WHOLE)
        asked = spec.node_selector or {}
        key = self._world.revision(NODES), tuple(sorted(asked.items()))
        found = self._modes.get(key)
        if found is None:
            kinds: dict[GpuMode, None] = {}
            for name, node in self._world.of(NODES, KubeNode).items():
                labels = node.metadata.labels or {}
                if GPU in (node.status.capacity or {}) and all(labels.get(label) == asked[label] for label in asked):
                    kinds[modes.get(name, WHOLE)] = None
            found = self._modes[key] = tuple(kinds)
        if len(found) > 1 and asks_for_gpus(spec):
            what = "some nodes that it may use have whole GPUs and others parts: whole ones are counted"
            self._notes.add("Pod", f"{pod.metadata.namespace}/{pod.metadata.name}", "spec.nodeSelector", what)
        return found[0] if len(found) == 1 else WHOLE

    def _require(self, selector: dict[str, str], terms: list[Term], where: str, words: str) -> None:
        """Ask for the nodes of a node selector: by its labels where it has one value for each, else by a mark."""
        for term in terms:
            for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
                if expression_fault(each) is not None:
                    self._say(where, f"{each.key} {each.operator} makes no sense: it is left out")
                    return
        exact = exact_labels(terms)
        if exact is not None and all(selector.get(key, value) == value for key, value in exact.items()):
            selector.update(exact)
            return
        key, value = self._marks.label(
            f"{words} {' or '.join(map(shown, terms))}",
            lambda labels, node: any(term_takes(term, labels, node) for term in terms),
        )
        selector[key] = value

    def _volumes(self, pod: KubePod) -> _Places:
        """What the volumes of a pod ask for."""
        terms, labels, unknown = self.volumes.places(pod)
        if unknown and not self._world.holds(STORAGE_CLASSES):
            what = "storage classes are not known: where volumes can be made is not counted"
            self._notes.add("Pod", f"{pod.metadata.namespace}/{pod.metadata.name}", "spec.volumes", what)
        return terms, labels


def pinned_to(affinity: NodeAffinity) -> str:
    """The only node that an affinity takes, by its name, as that of a DaemonSet's pods does; else empty."""
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else None
    fields = [] if not terms or len(terms) > 1 or terms[0].match_expressions else terms[0].match_fields or []
    if len(fields) != 1 or fields[0].key != "metadata.name" or fields[0].operator != "In":
        return ""
    return (fields[0].values or [""])[0] if len(fields[0].values or ()) == 1 else ""


def exact_labels(terms: list[Term]) -> dict[str, str] | None:
    """The labels that a node must have by a node selector; None where no labels say the same."""
    if len(terms) != 1 or terms[0].match_fields or not terms[0].match_expressions:
        return None
    found: dict[str, str] = {}
    for each in terms[0].match_expressions:
        values = each.values or []
        if each.operator != "In" or len(values) != 1 or found.setdefault(each.key, values[0]) != values[0]:
            return None
    return found


def asks_for_gpus(spec: PodSpec) -> bool:
    """Whether a pod asks for a GPU of the device plugin."""
    parts = [each.resources for each in (*(spec.containers or ()), *(spec.init_containers or ())) if each.resources]
    return any(name in (one or ()) for part in parts for one in (part.limits, part.requests) for name in GPU_RESOURCES)
