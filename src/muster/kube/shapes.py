"""What a live pod asks for, and where it may stand."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from muster.kube.affinity import expression_fault, shown, term_takes
from muster.kube.dra.reader import DraReader
from muster.kube.kinds import VOLUME_CLAIMS, VOLUMES
from muster.kube.marks import Marks
from muster.kube.notes import Notes
from muster.kube.objects import (
    GPU_RESOURCES,
    KubeClaim,
    KubePod,
    KubeVolume,
    PodSpec,
    Quantity,
    Term,
    parse_quantity,
    pod_shape,
    volume_terms,
)
from muster.kube.world import World
from muster.model.workload import PodShape

_MOST = 2**53


class ShapeReader:
    """Reads the shapes of pods; pods whose specs are alike in what matters are read once."""

    def __init__(self, world: World, marks: Marks, notes: Notes, dra: DraReader) -> None:
        self._world, self._marks, self._notes = world, marks, notes
        self.dra = dra
        self._known: dict[bytes, PodShape] = {}
        self._encoder = msgspec.msgpack.Encoder()

    def shape(self, pod: KubePod) -> PodShape:
        """The shape of a pod."""
        spec = pod.spec
        places = self._volumes(pod) if spec.volumes else []
        key = self._encoder.encode(
            (
                spec.containers, spec.init_containers, spec.overhead, spec.resources, spec.node_selector,
                spec.affinity and spec.affinity.node_affinity, spec.tolerations, places,
            )
        )  # fmt: skip
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._read(pod, places)
        return self.dra.shape(pod, known) if self.dra.concerns(pod) else known

    def _read(self, pod: KubePod, places: list[list[Term]]) -> PodShape:
        spec, name = pod.spec, f"{pod.metadata.namespace}/{pod.metadata.name}"

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
            self._notes.add("Pod", name, f"spec.{where}", what)
            return 0

        shape = pod_shape(spec, amount)
        selector = dict(shape.node_selector)
        asked = spec.affinity and spec.affinity.node_affinity
        required = asked and asked.required_during_scheduling_ignored_during_execution
        if required is not None:
            self._require(selector, required.node_selector_terms or [], name, "spec.affinity.nodeAffinity", "nodes of")
        for terms in places:
            self._require(selector, terms, name, "spec.volumes", "nodes that reach a volume of")
        return replace(shape, node_selector=tuple(sorted(selector.items())))

    def _require(self, selector: dict[str, str], terms: list[Term], name: str, where: str, words: str) -> None:
        """Ask for the nodes of a node selector: by its labels where it has one value for each, else by a mark."""
        for term in terms:
            for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
                if expression_fault(each) is not None:
                    self._notes.add("Pod", name, where, f"{each.key} {each.operator} makes no sense: it is left out")
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

    def _volumes(self, pod: KubePod) -> list[list[Term]]:
        """The node selectors of the volumes that a pod's claims are bound to."""
        claims, volumes = self._world.of(VOLUME_CLAIMS, KubeClaim), self._world.of(VOLUMES, KubeVolume)
        found: list[list[Term]] = []
        for each in pod.spec.volumes or ():
            if each.persistent_volume_claim is None:
                continue
            claim = claims.get(f"{pod.metadata.namespace}/{each.persistent_volume_claim.claim_name}")
            volume = volumes.get(claim.spec.volume_name or "") if claim is not None else None
            if volume is not None and (terms := volume_terms(volume.spec)):
                found.append(terms)
        return found


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
