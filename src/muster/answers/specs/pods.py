"""Pod templates of Kubernetes objects as pod sets, by Kubernetes' own rules.

Field names: kubernetes/api core/v1 (PodSpec), Kueue's annotations (kubernetes-sigs/kueue, apis/kueue/v1beta1), KAI's
(kai-scheduler/KAI-Scheduler, pkg/common/constants).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from muster.answers.specs.base import Note
from muster.answers.specs.places import Places
from muster.answers.specs.selection import affinities, node_conditions, spread_over
from muster.catalog.mig_placements import mig_milli
from muster.engine.state import tolerates
from muster.errors import InputError
from muster.kube.claims import (
    KAI_PREFERRED,
    KAI_REQUIRED,
    KUEUE,
    PREFERRED,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    SYSTEM_PRIORITIES,
)
from muster.kube.gpus import MIG_PREFIX, REPLICAS_LABEL, SHARED, STRATEGY_LABEL, profile_name, replicas_of, share_milli
from muster.kube.objects import GPU_RESOURCES, PodSpec, Quantity, parse_quantity, pod_shape
from muster.kube.parts import Parts, parts_of
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.workload import PodSet, PodShape, TopologyRequest
from muster.traces.checks import check_pod_set
from muster.traces.document import Document


def inside(data: Any, path: str) -> Any:
    """What stands at a path such as ``spec.tasks[0].template`` in some data; None where nothing does."""
    found = data
    for name in re.findall(r"[^.\[\]]+", path):
        if isinstance(found, list):
            items = cast("list[Any]", found)
            found = items[int(name)] if name.isdigit() and int(name) < len(items) else None
        else:
            found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    return found


class PodReader:
    """Reads the pod templates of one object; collects what holds for the gang as a whole.

    Attributes:
        topologies: each pod set in turn, with its request.
        whole: a request that the object makes for the gang as one.
    """

    def __init__(self, document: Document, places: Places, priorities: Mapping[str, int]) -> None:
        self.document = document
        self.places = places
        self.notes: list[Note] = []
        self.topologies: list[tuple[PodSet, TopologyRequest | None]] = []
        self.whole: TopologyRequest | None = None
        self.priority: int | None = None
        self.labels: dict[str, str] = {}
        self.time_limit_s: float | None = None
        self._priorities = priorities

    # -- the document

    def at(self, path: str) -> Any:
        """What stands at a path such as ``spec.tasks[0].template``; None where nothing does."""
        return inside(self.document.data, path)

    def mapping(self, path: str) -> dict[str, Any]:
        """The mapping at a path; raises `InputError` where it is missing or none."""
        found = self.at(path) if path else self.document.data
        if not isinstance(found, dict):
            raise self.document.error(path, "is missing" if found is None else "must be a mapping")
        return cast("dict[str, Any]", found)

    def texts(self, path: str) -> dict[str, str]:
        """Labels or annotations at a path; empty where there are none."""
        found = self.at(path)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise self.document.error(path, "must be a mapping")
        return {str(key): str(value) for key, value in cast("dict[Any, Any]", found).items()}

    def count(self, path: str, default: int | None, least: int = 0) -> int:
        """The whole number at a path."""
        found = self.at(path)
        if found is None:
            if default is None:
                raise self.document.error(path, "is missing")
            return default
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.document.error(path, "must be a whole number")
        if not least <= found < 2**31:
            raise self.document.error(path, f"is {found}", f"{least} or more")
        return found

    def seconds(self, path: str) -> float | None:
        """The time limit at a path in seconds; None where there is none."""
        found = self.at(path)
        return None if found is None else float(self.count(path, None, 1))

    def note(self, path: str, text: str, unless: str = "") -> None:
        """Tell of what counts otherwise than it may be meant; see `Note`."""
        at = path
        while at and at not in self.document.lines:
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        note = Note(path, text, self.document.lines.get(at), unless)
        if note not in self.notes:
            self.notes.append(note)

    # -- pods

    def pod_set(self, where: str, count: int, role: str, least: int | None = None) -> PodSet:
        """``count`` pods of the template at ``where`` (empty: the object is a pod itself); at least ``least``.

        Raises:
            InputError: a field that makes no sense, or one that is not read and would change the answer.
        """
        shape, topology = self.shape(where, count)
        pods = PodSet(shape, count, least if least is not None and least < count else None, role)
        check_pod_set(pods, self.document.file, self.document.line)
        self.topologies.append((pods, topology))
        return pods

    def shape(self, where: str, count: int) -> tuple[PodShape, TopologyRequest | None]:
        """What each pod of the template at ``where`` asks for, and where ``count`` of them should stand."""
        below = f"{where}." if where else ""
        self.mapping(f"{below}spec")
        pod = self.document.convert(PodSpec, self.at(f"{below}spec"), f"{below}spec")
        annotations, labels = self.texts(f"{below}metadata.annotations"), self.texts(f"{below}metadata.labels")
        if not pod.containers:
            raise self.document.error(f"{below}spec.containers", "is missing or empty")

        def amount(resources: Mapping[str, Quantity], name: str, scale: int, at: str) -> int:
            return self.amount(resources, name, scale, f"{below}spec.{at}")

        shape = pod_shape(pod, amount)
        shape = self._devices(pod, shape, f"{below}spec.containers", annotations, amount)
        self._gates(pod, f"{below}spec")
        self._taints(shape, names=GPU_RESOURCES, where=f"{below}spec.tolerations")
        self._priority(pod, f"{below}spec")
        for key, value in labels.items():
            self.labels.setdefault(key, value)
        if pod.active_deadline_seconds is not None:
            self.time_limit_s = max(self.time_limit_s or 0.0, float(pod.active_deadline_seconds))
        selector = {**dict(shape.node_selector), **node_conditions(self, pod, f"{below}spec")}
        found, unknown = self.places.selector(selector)
        for key in unknown:
            self.note(f"{below}spec.nodeSelector", f"no node has a label {key}")
        shape = replace(shape, node_selector=tuple(sorted(found.items())))
        topology = self._topology(annotations, f"{below}metadata.annotations", count)
        topology = affinities(self, pod, f"{below}spec", labels, topology)
        return shape, spread_over(self, pod, f"{below}spec", labels, count, topology)

    def amount(self, resources: Mapping[str, Quantity], name: str, scale: int, where: str) -> int:
        """One quantity of a list of resources; 0 where it is not there. Raises `InputError` where it is none."""
        try:
            amount = parse_quantity(resources.get(name, 0), scale)
        except (ValueError, OverflowError):
            amount = -1
        if not 0 <= amount < 2**53:
            raise self.document.error(where, f"{name} {str(resources[name])[:40]!r} is no amount", "such as 8 or 64Gi")
        return amount

    def _devices(
        self, pod: PodSpec, shape: PodShape, where: str, annotations: Mapping[str, str], amount: Any
    ) -> PodShape:
        """The shape with its MIG instance or its share of a GPU; refuses what would be such a thing unread."""
        parts = parts_of(pod, annotations, amount)
        for name in parts.unknown:
            hint = "nvidia.com/gpu, gpumem, gpucores, mig-PROFILE and gpu.shared, amd.com/gpu, hami.io/gpu are"
            raise self.document.error(where, f"asks for {name}, a device that is not read", hint)
        for name in parts.others:
            self.note(where, f"{name} is not counted: nodes without it would refuse the pod")
        for key in parts.wrong:
            raise self.document.error(where, f"annotation {key} is {annotations[key][:20]!r}", "such as 0.5")
        asked = {f"{MIG_PREFIX}{profile}": count for profile, count in parts.mig.items()}
        if parts.shared:
            asked[SHARED] = parts.shared
        if parts.by or (parts.gpus and asked):
            asked[parts.by or "shares of GPUs"] = 1
        if len(asked) + (shape.gpus > 0) > 1:
            raise self.document.error(
                where,
                f"asks for {' and '.join(asked)}{' beside whole GPUs' if shape.gpus else ''}",
                "a pod takes whole GPUs, or one MIG instance, or a share of one GPU",
            )
        if parts.gpus:
            return self._fraction(shape, where, parts)
        for name, count in asked.items():
            if count > 1:
                kind = "MIG instances" if name != SHARED else "shares of GPUs"
                raise self.document.error(
                    where, f"asks for {count} {kind} ({name})", "a pod takes one; ask for more pods"
                )
            return self._shared(shape, where) if name == SHARED else self._instance(shape, where, name)
        return shape

    def _instance(self, shape: PodShape, where: str, name: str) -> PodShape:
        profile = profile_name(name.removeprefix(MIG_PREFIX))
        milli = mig_milli(profile, self.places.models)
        if not milli:
            has = ", ".join(self.places.models) or "none"
            raise self.document.error(where, f"no GPU of the fleet has the MIG profile {profile}", f"its GPUs: {has}")
        return replace(shape, gpus=1, gpu_milli=milli, mig_profile=profile)

    def _shared(self, shape: PodShape, where: str) -> PodShape:
        """One of the shares into which the nodes' labels say that a GPU is divided."""
        each = (dict(node.labels) for node in self.places.nodes)
        told = {(share_milli(labels), labels.get(STRATEGY_LABEL, "time-slicing")) for labels in each
                if replicas_of(labels) > 1}  # fmt: skip
        if len(told) != 1:
            what = "the nodes have no label" if not told else "the nodes differ in the label"
            raise self.document.error(where, f"asks for {SHARED}, and {what} {REPLICAS_LABEL}", "how large a share is")
        milli, strategy = next(iter(told))
        sharing = strategy if strategy in ("mps", "time-slicing") else ""
        return replace(shape, gpus=1, gpu_milli=milli, sharing=sharing)

    def _fraction(self, shape: PodShape, where: str, parts: Parts) -> PodShape:
        sizes = {device.memory_bytes for node in self.places.nodes for device in node.devices}
        milli = parts.share_milli(min(sizes, default=0))
        if not milli:
            what = "asks for an amount of GPU memory, and the fleet does not tell how much each GPU has"
            raise self.document.error(where, what, "ask for a share, such as gpu-fraction")
        if parts.memory_mib and len(sizes) > 1:
            self.note(where, "an amount of GPU memory counts as the share of the smallest GPU")
        return replace(shape, gpus=parts.gpus, gpu_milli=milli, sharing="soft" if milli < WHOLE_GPU_MILLI else "")

    def _gates(self, pod: PodSpec, where: str) -> None:
        if pod.resource_claims:
            what = "claims devices by DRA, which is not read: it may ask for GPUs that are not counted"
            raise self.document.error(f"{where}.resourceClaims", what, "ask for nvidia.com/gpu instead")
        gates = [each.name for each in pod.scheduling_gates or ()]
        if any(not gate.startswith(KUEUE) for gate in gates):
            self.note(f"{where}.schedulingGates", "the answer is as if the gates were open")
        if pod.runtime_class_name and not pod.overhead:
            self.note(
                f"{where}.runtimeClassName", f"what class {pod.runtime_class_name} adds to the pod is not in the file"
            )
        claims = [each.persistent_volume_claim.claim_name for each in pod.volumes or () if each.persistent_volume_claim]
        if claims:
            text = f"claim {' and '.join(claims)} may be tied to a zone or a node: that is not counted"
            self.note(f"{where}.volumes", text)
        if pod.node_name:
            self.note(f"{where}.nodeName", "the pod would go there past every scheduler; it is asked as any other")

    def _taints(self, shape: PodShape, names: Sequence[str], where: str) -> None:
        """Nodes may be tainted by their GPUs' resource; some clusters let pods that ask for it tolerate that."""
        if not shape.gpus:
            return
        for name in names:
            taints = {taint for node in self.places.nodes for taint in node.taints if taint.key == name}
            hard = [taint for taint in taints if taint.effect != "PreferNoSchedule"]
            if hard and not all(any(tolerates(each, taint) for each in shape.tolerations) for taint in hard):
                text = f"nodes have the taint {name}, which the pods do not tolerate"
                self.note(
                    where, f"{text}; where admission adds that by itself (ExtendedResourceToleration), write it here"
                )

    def _priority(self, pod: PodSpec, where: str) -> None:
        if pod.priority is not None:
            self.priority = max(self.priority or pod.priority, pod.priority)
        elif pod.priority_class_name:
            self.named_priority(pod.priority_class_name, f"{where}.priorityClassName")

    def named_priority(self, name: str, where: str) -> None:
        """Count the value of a priority class, if it is known; else tell that it is not."""
        value = self._priorities.get(name, SYSTEM_PRIORITIES.get(name))
        if value is None:
            text = f"the value of priority class {name} is not in the file and counts as 0; say it by --priority"
            self.note(where, text, "priority")
        else:
            self.priority = max(self.priority or value, value)

    # -- topology

    def _topology(self, annotations: Mapping[str, str], where: str, count: int) -> TopologyRequest | None:
        def level(key: str) -> str:
            try:
                return self.places.level(annotations[key])
            except InputError as error:
                raise self.document.error(f"{where}.{key}", error.what, error.hint) from None

        required = next((level(key) for key in (REQUIRED, KAI_REQUIRED) if annotations.get(key)), "")
        preferred = next((level(key) for key in (PREFERRED, KAI_PREFERRED) if annotations.get(key)), "")
        if not annotations.get(SLICE_LEVEL):
            return TopologyRequest(required, preferred) if required or preferred else None
        slices, text = level(SLICE_LEVEL), annotations.get(SLICE_SIZE, "")
        if not text.isdigit() or not 0 < int(text) < 2**31:
            raise self.document.error(
                f"{where}.{SLICE_SIZE}", f"is {text[:20]!r}" if text else "is missing", "pods a slice"
            )
        if required:
            what = f"slices in one {slices} each and all of them in one {required}: one level can be required"
            raise self.document.error(f"{where}.{SLICE_LEVEL}", what, f"prefer the {required} ({PREFERRED})")
        if count % int(text):
            raise self.document.error(f"{where}.{SLICE_SIZE}", f"{text} pods do not divide the {count}")
        return TopologyRequest(slices, preferred, int(text))

    def gang_topology(self) -> TopologyRequest | None:
        """The one request of the gang, from those of its pod sets; what pods without GPUs ask for gives way."""
        if self.whole is not None:
            return self.whole
        asked = [(pods, request) for pods, request in self.topologies if request is not None]
        if not asked:
            return None
        if any(pods.shape.gpus for pods, _ in asked):
            asked = [(pods, request) for pods, request in asked if pods.shape.gpus]
        kinds = list(dict.fromkeys(request for _, request in asked))
        if len(kinds) > 1:
            roles = " and ".join(pods.role for pods, _ in asked[:3])
            what = f"pods of {roles} ask for different places, and a gang has one request"
            raise self.document.error("spec", what, "ask for the same, or for nothing where pods have no GPUs")
        request, counts = kinds[0], {pods.count for pods, _ in asked}
        alone = len(asked) == len(self.topologies)
        if len(asked) > 1 and request.required and not request.segment and len(counts) == 1 and alone:
            return replace(request, segment=counts.pop())  # each pod set has a domain of its own choice
        if not alone or (len(asked) > 1 and request.required):
            level = request.required or request.preferred or request.spread
            self.note("spec", f"what some of its pods ask of the {level} is taken to hold for the gang as a whole")
        return request
