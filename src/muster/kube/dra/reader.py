"""Devices and claims of a cluster as its nodes and pods have them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from muster.kube.affinity import term_takes
from muster.kube.dra.allocate import Devices
from muster.kube.dra.amounts import Allocated
from muster.kube.dra.demand import Demand, Fleet, together
from muster.kube.dra.gpus import Gpu, gpus_of
from muster.kube.dra.objects import (
    ALL,
    IMPLICIT_RESOURCE,
    DeviceClaim,
    DeviceRequest,
    DraClaimSpec,
    Exactly,
    KubeClaimTemplate,
    KubeClass,
    KubeComputeDomain,
    KubeDraClaim,
    KubeSlice,
    KubeTaintRule,
)
from muster.kube.dra.pools import DeviceKey, Inventory, Place
from muster.kube.groups import KubePodGroup
from muster.kube.kinds import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CLASSES,
    COMPUTE_DOMAINS,
    NODES,
    POD_GROUPS,
    PODS,
    SLICES,
    TAINT_RULES,
)
from muster.kube.marks import Marks
from muster.kube.objects import GPU_RESOURCES, KubeNode, KubePod, Meta, PodClaim, Quantity, parse_quantity, pod_request
from muster.kube.world import World
from muster.model.fleet import WHOLE_GPU_MILLI, Device
from muster.model.notes import Notes
from muster.model.plan import PodPlacement
from muster.model.workload import PodShape

CLIQUE_LABEL, HOST_LABEL = "nvidia.com/gpu.clique", "kubernetes.io/hostname"
EXTENDED = "extended-resources"
_FINISHED = ("Succeeded", "Failed")


class DraReader:
    """Reads what DRA says of nodes and pods; where a cluster has none of it, it says nothing and costs nothing."""

    def __init__(self, world: World, marks: Marks, notes: Notes) -> None:
        self._world, self._marks, self._notes = world, marks, notes
        self._revision: tuple[int, ...] = ()
        self._claims_revision = self._pods_revision = -1
        self._allocated = Allocated()
        self._devices: Devices | None = None
        self._static: Devices | None = None
        self._fleet: Fleet | None = None
        self._gpus: dict[str, list[Gpu]] = {}
        self._shapes: dict[bytes, tuple[PodShape, tuple[str, ...]]] = {}
        self._holders: dict[str, str] = {}
        self._free: tuple[tuple[int, int], frozenset[DeviceKey]] = ((-1, -1), frozenset())
        self._able: dict[tuple[str, str], tuple[Mapping[str, str], bool]] = {}
        self._resources: dict[str, str] = {}

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def there(self) -> bool:
        """Whether any driver publishes devices."""
        return bool(self._world.of(SLICES, KubeSlice))

    @property
    def devices(self) -> Devices:
        """What decides which devices claims get, with all that is given out now."""
        self._refresh()
        assert self._static is not None
        if self._devices is None:
            self._devices = Devices(self._static.inventory, self._static.matcher.classes, self._allocated)
            self._devices.matcher = self._static.matcher
        revision = self._world.revision(CLAIMS)
        if self._claims_revision != revision:
            self._allocated.follow(self._world.of(CLAIMS, KubeDraClaim))
            self._claims_revision = revision
        return self._devices

    def _refresh(self) -> None:
        """Read slices, classes and rules anew where they changed."""
        revision = tuple(self._world.revision(kind) for kind in (SLICES, CLASSES, TAINT_RULES))
        if revision == self._revision and self._static is not None:
            return
        self._revision = revision
        classes = self._world.of(CLASSES, KubeClass)
        rules = self._world.of(TAINT_RULES, KubeTaintRule)
        inventory = Inventory(self._world.of(SLICES, KubeSlice).values(), rules.values())
        self._static = Devices(inventory, dict(classes), Allocated())
        self._fleet = Fleet(inventory.pools, self._static.matcher)
        self._devices = None
        self._gpus.clear()
        self._shapes.clear()
        self._able.clear()
        self._resources = {
            each.spec.extended_resource_name: name for name, each in classes.items() if each.spec.extended_resource_name
        }
        for pool in inventory.pools:
            if pool.incomplete:
                seen, all_ = pool.incomplete
                text = f"is pool {pool.name}, of which {seen} of {all_} slices are there: none of its devices count yet"
                self._notes.add("ResourceSlice", pool.driver, "spec.pool", text)
            elif pool.invalid:
                text = f"is pool {pool.name}, which is not valid ({pool.invalid}): none of its devices count"
                self._notes.add("ResourceSlice", pool.driver, "spec.pool", text)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def gpus(self, node: KubeNode) -> list[Gpu]:
        """The GPUs that drivers publish on a node; devices of claims that no pod on it holds are not healthy."""
        if not self.there:
            return []
        place = Place(node.metadata.name, node.metadata.labels or {})
        found, notes = gpus_of(self.devices.inventory.at(place), self._unheld())
        for device, text in notes:
            self._notes.add("ResourceSlice", f"{node.metadata.name}/{device}", "spec.devices", text)
        self._gpus[node.metadata.name] = found
        return found

    @staticmethod
    def sharing(gpus: Sequence[Gpu]) -> str:
        """How the GPUs of a node may be shared, as they are published: one of `muster.model.fleet.NODE_SHARING`."""
        if any(gpu.device.mig_profiles or len(gpu.devices) > 1 for gpu in gpus):
            return ""
        return "soft" if any(gpu.shared for gpu in gpus) else "none"

    def _unheld(self) -> frozenset[DeviceKey]:
        """Devices that claims have and no pod that is bound."""
        revision = self._world.revision(CLAIMS), self._world.revision(PODS)
        if self._free[0] == revision:
            return self._free[1]
        bound = {key for key, pod in self._world.of(PODS, KubePod).items() if pod.spec.node_name and _alive(pod)}
        free: set[DeviceKey] = set()
        held: set[DeviceKey] = set()
        for claim in self._world.of(CLAIMS, KubeDraClaim).values():
            allocation = claim.status.allocation
            keys = [one.key for one in allocation.devices.results if not one.admin_access] if allocation else []
            (held if self._users(claim) & bound else free).update(keys)
        self._free = revision, frozenset(free - held)
        return self._free[1]

    def _users(self, claim: KubeDraClaim) -> set[str]:
        """The pods for which a claim is reserved, by `muster.kube.world.key_of`."""
        space, consumers = claim.metadata.namespace, claim.status.reserved_for or ()
        groups = {each.name for each in consumers if each.resource == "podgroups"}
        pods = self._world.of(PODS, KubePod).items() if groups else ()
        return {f"{space}/{each.name}" for each in consumers if each.resource == "pods"} | {
            key for key, pod in pods
            if pod.metadata.namespace == space and pod.spec.scheduling_group is not None
            and pod.spec.scheduling_group.pod_group_name in groups
        }  # fmt: skip

    # -- pods ---------------------------------------------------------------------------------------------------------

    def concerns(self, pod: KubePod) -> bool:
        """Whether a pod asks for devices, or may get its GPUs as devices."""
        if pod.spec.resource_claims:
            return True
        return self.there and bool(self._extended(pod))

    def claims(self, pod: KubePod) -> list[KubeDraClaim]:
        """The claims of a pod: those that are there, and what its templates will make.

        What it asks for as extended resources that classes stand for is a claim of its own at the end.
        """
        meta = pod.metadata
        name = f"{meta.namespace}/{meta.name}"
        claims = self._world.of(CLAIMS, KubeDraClaim)
        made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
        found: list[KubeDraClaim] = []
        for each in pod.spec.resource_claims or ():
            group = self._group_with(pod, each)
            if group is not None:
                made |= {one.name: one.resource_claim_name for one in group.status.resource_claim_statuses or ()}
            asked = each.resource_claim_name or made.get(each.name)
            claim = claims.get(f"{meta.namespace}/{asked}") if asked else None
            if claim is None and each.resource_claim_template_name:
                template = self._world.of(CLAIM_TEMPLATES, KubeClaimTemplate).get(
                    f"{meta.namespace}/{each.resource_claim_template_name}"
                )
                if template is not None:
                    of_group = f"{group.metadata.name}/" if group is not None else ""
                    claim = KubeDraClaim(Meta(of_group + each.name, meta.namespace), template.spec.spec)
            if claim is None:
                what = (
                    f"claim {asked or each.resource_claim_template_name or each.name} is not there: it counts as none"
                )
                self._notes.add("Pod", name, "spec.resourceClaims", what)
                continue
            found.append(claim)
        status = pod.status.extended_resource_claim_status
        written = claims.get(f"{meta.namespace}/{status.resource_claim_name}") if status else None
        if written is not None:
            found.append(written)
        elif extended := self._extended(pod):
            requests = [
                DeviceRequest(f"request-{at}", exactly=Exactly(device_class_name=klass, count=count))
                for at, (klass, count) in enumerate(extended)
            ]
            found.append(KubeDraClaim(Meta(EXTENDED, meta.namespace), DraClaimSpec(DeviceClaim(requests))))
        return found

    def _group_with(self, pod: KubePod, asked: PodClaim) -> KubePodGroup | None:
        """The pod group that has the same claim as its pod: one for all its pods; None: it is the pod's own."""
        of = pod.spec.scheduling_group
        if of is None or not of.pod_group_name:
            return None
        group = self._world.of(POD_GROUPS, KubePodGroup).get(f"{pod.metadata.namespace}/{of.pod_group_name}")
        return group if group is not None and asked in (group.spec.resource_claims or ()) else None

    def _shared_claims(self, pod: KubePod) -> set[str]:
        """The claims of a pod that others may have as well and that have no devices yet."""
        claims = self._world.of(CLAIMS, KubeDraClaim)
        found: set[str] = set()
        for each in pod.spec.resource_claims or ():
            group = self._group_with(pod, each)
            name = each.resource_claim_name or (f"{group.metadata.name}/{each.name}" if group is not None else "")
            claim = claims.get(f"{pod.metadata.namespace}/{name}")
            if name and (claim is None or claim.status.allocation is None):
                found.add(name)
        return found

    def _extended(self, pod: KubePod) -> list[tuple[str, int]]:
        """The classes, and how many devices of each, that a pod asks for as extended resources."""
        self._refresh()
        parts = [*(pod.spec.containers or ()), *(pod.spec.init_containers or ())]
        names = dict.fromkeys(
            name for part in parts for name in {**((part.resources and part.resources.requests) or {}),
                                                **((part.resources and part.resources.limits) or {})}
        )  # fmt: skip
        found: list[tuple[str, int]] = []
        for name in names:
            klass = self._resources.get(name) or (
                name.removeprefix(IMPLICIT_RESOURCE) if name.startswith(IMPLICIT_RESOURCE) else ""
            )
            if klass and (count := pod_request(pod.spec, name, 1, _count)):
                found.append((klass, count))
        return found

    def shape(self, pod: KubePod, base: PodShape) -> PodShape:
        """What a pod asks for, with the GPUs of its claims; nodes that could never give them are left out."""
        claims = self.claims(pod)
        mine = [claim for claim in claims if self._is_holder(claim, pod)]
        if base.gpus and not pod.spec.resource_claims:
            mine = []  # the resource is the device plugin's or a class's: its GPUs are counted once, in base
        elif base.gpus:
            mine = [claim for claim in mine if claim.metadata.name != EXTENDED]
        waiting = [claim for claim in claims if claim.status.allocation is None]
        if not pod.spec.node_name:
            mine = [claim for claim in mine if claim.status.allocation is None]
        key = msgspec.json.encode((base, [claim.spec for claim in mine], [claim.spec for claim in waiting]))
        self._refresh()
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = self._shaped(base, mine, waiting)
        shape, notes = known
        for text in notes:
            self._notes.add("Pod", f"{pod.metadata.namespace}/{pod.metadata.name}", "spec.resourceClaims", text)
        return shape if pod.spec.node_name else self._tied(shape, claims)

    def _shaped(
        self, base: PodShape, mine: Sequence[KubeDraClaim], waiting: Sequence[KubeDraClaim]
    ) -> tuple[PodShape, tuple[str, ...]]:
        assert self._fleet is not None
        assert self._static is not None
        plugin = Demand(base.gpus, base.gpu_milli, base.gpu_models, base.mig_profile)
        found = together([plugin, *(self._fleet.demand(claim) for claim in mine)])
        selector = dict(base.node_selector)
        if waiting:
            plain = json.dumps([msgspec.to_builtins(claim.spec) for claim in waiting], sort_keys=True)
            words = f"nodes whose devices could serve {_summary(waiting)}"
            key, value = self._marks.label(words, lambda labels, name: self._could(plain, labels, name, waiting), plain)
            selector[key] = value
            if why := self._why_nowhere(plain, waiting):
                found = replace(found, notes=(*found.notes, f"no node could ever serve it: {why}"))
        for where, why in self._static.notes.items():
            text = f"{where} {why}; such devices count as not matching, and kube-scheduler would not place the pod"
            self._notes.add("ResourceClaim", where.partition(",")[0], "selectors", text)
        return replace(
            base,
            gpus=found.gpus,
            gpu_milli=found.gpu_milli if found.gpus else WHOLE_GPU_MILLI,
            gpu_models=found.models,
            mig_profile=found.mig_profile,
            sharing="soft" if found.gpu_milli < WHOLE_GPU_MILLI and not found.mig_profile else base.sharing,
            node_selector=tuple(sorted(selector.items())),
        ), found.notes

    def _could(self, asked: str, labels: Mapping[str, str], node: str, claims: Sequence[KubeDraClaim]) -> bool:
        """Whether a node could serve claims, known by what is ``asked``, if nothing of it were given out."""
        self._refresh()
        if all(claim.metadata.name == EXTENDED for claim in claims) and self.by_plugin(node):
            return True
        known = self._able.get((asked, node))
        if known is None or known[0] != labels:
            assert self._static is not None
            known = self._able[asked, node] = dict(labels), not self._static.refusal(Place(node, labels), claims)
        return known[1]

    def _why_nowhere(self, asked: str, claims: Sequence[KubeDraClaim]) -> str:
        """Why no node could ever give claims their devices, by the first that has any; empty where one could."""
        assert self._static is not None
        nodes = self._world.of(NODES, KubeNode)
        if any(self._could(asked, node.metadata.labels or {}, name, claims) for name, node in nodes.items()):
            return ""
        places = (Place(name, node.metadata.labels or {}) for name, node in nodes.items())
        first = next((place for place in places if self._static.inventory.at(place)), None)
        return f"{first.name}: {self._static.refusal(first, claims)}" if first is not None else "no node has devices"

    def by_plugin(self, node: str) -> bool:
        """Whether a device plugin tells of GPUs of a node."""
        found = self._world.of(NODES, KubeNode).get(node)
        sizes = (found.status.allocatable or {}) if found else {}
        return any(str(sizes.get(name, "0")) != "0" for name in GPU_RESOURCES)

    def _tied(self, shape: PodShape, claims: Iterable[KubeDraClaim]) -> PodShape:
        """A pod that waits stands where the claims that have devices already can be reached."""
        selector = dict(shape.node_selector)
        for claim in claims:
            terms = claim.status.allocation.node_selector if claim.status.allocation else None
            if terms is None:
                continue
            each = terms.node_selector_terms or []
            words = f"nodes that reach the devices of claim {claim.metadata.namespace}/{claim.metadata.name}"
            key, value = self._marks.label(
                words,
                lambda labels, name, each=each: any(term_takes(term, labels, name) for term in each),
                msgspec.json.encode(terms).decode(),
            )
            selector[key] = value
        return replace(shape, node_selector=tuple(sorted(selector.items())))

    def _is_holder(self, claim: KubeDraClaim, pod: KubePod) -> bool:
        """Whether the devices of a claim count for this pod: of several that share it, they count for one."""
        owner = claim.metadata.owner
        ours = not claim.metadata.uid or (owner is not None and owner.kind == "Pod")
        if ours and "/" not in claim.metadata.name:
            return True  # made for this pod, or to be made
        self._find_holders()
        key = f"{claim.metadata.namespace}/{claim.metadata.name}"
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        return self._holders.get(key, name) == name

    def _find_holders(self) -> None:
        """Of each claim that pods name, the first that is bound, or else the first."""
        revision = self._world.revision(PODS)
        if self._pods_revision == revision:
            return
        self._pods_revision = revision
        self._holders.clear()
        pods = sorted(self._world.of(PODS, KubePod).items(), key=lambda item: (not item[1].spec.node_name, item[0]))
        for key, pod in pods:
            for each in pod.spec.resource_claims or () if _alive(pod) else ():
                group, space = self._group_with(pod, each), pod.metadata.namespace
                if each.resource_claim_name:
                    self._holders.setdefault(f"{space}/{each.resource_claim_name}", key)
                elif group is not None:
                    statuses = group.status.resource_claim_statuses or ()
                    made = [one.resource_claim_name for one in statuses if one.name == each.name]
                    for name in (*made, f"{group.metadata.name}/{each.name}"):
                        self._holders.setdefault(f"{space}/{name}", key)

    def given(self, pod: KubePod) -> PodPlacement | None:
        """The GPUs that a bound pod has by its claims, with a MIG instance's start; None where they do not tell."""
        if not (pod.spec.node_name and self.concerns(pod)):
            return None
        gpus = self._gpus.get(pod.spec.node_name, ())
        places = {key: (gpu.device.index, place) for gpu in gpus for key, place in gpu.devices.items()}
        found: list[tuple[int, tuple[str, int]]] = []
        for claim in self.claims(pod):
            if claim.status.allocation is not None and self._is_holder(claim, pod):
                results = claim.status.allocation.devices.results
                found += [places[one.key] for one in results if one.key in places and not one.admin_access]
        if not found:
            return None
        indexes = tuple(sorted({index for index, _ in found}))
        profile, start = found[0][1]
        return PodPlacement(pod.spec.node_name, indexes, 0, profile, start)

    def together(self, pods: Sequence[KubePod]) -> str:
        """The label of which all pods of a gang must have one value; else empty.

        Pods that share a claim stand on one node, where its devices are; those of a ComputeDomain in one clique.
        """
        shared = [self._shared_claims(pod) for pod in pods] if len(pods) > 1 else []
        if shared and shared[0].intersection(*shared[1:]):
            return HOST_LABEL
        if len({key for each in shared for key in each}) < sum(map(len, shared)):
            name = f"{pods[0].metadata.namespace}/{pods[0].metadata.name}"
            what = "some pods of its gang share a claim, and must stand on one node: that is seen when they are placed"
            self._notes.add("Pod", name, "spec.resourceClaims", what)
        domains = self._world.of(COMPUTE_DOMAINS, KubeComputeDomain)
        if not domains:
            return ""
        templates = {
            (each.metadata.namespace, each.spec.channel.resource_claim_template.name) for each in domains.values()
        }
        wanted = any(
            (pod.metadata.namespace, each.resource_claim_template_name) in templates
            for pod in pods
            for each in pod.spec.resource_claims or ()
        )
        return CLIQUE_LABEL if wanted else ""


def merged(plugin: Sequence[Device], dra: Sequence[Gpu], counted: int) -> tuple[tuple[Device, ...], bool]:
    """The GPUs of a node that a device plugin and drivers tell of, and whether they tell of the same ones.

    They do unless the node has as many as both together, ``counted`` of them (0: not known).
    """
    if not plugin or not dra:
        return tuple(plugin) or tuple(gpu.device for gpu in dra), False
    if counted and len(plugin) + len(dra) <= counted:
        more = [replace(device, index=len(dra) + at) for at, device in enumerate(plugin)]
        return (*(gpu.device for gpu in dra), *more), False
    return tuple(gpu.device for gpu in dra), True


def _alive(pod: KubePod) -> bool:
    return pod.status.phase not in _FINISHED


def _count(resources: Mapping[str, Quantity], name: str, scale: int, where: str) -> int:
    del where
    try:
        return max(parse_quantity(resources.get(name, 0), scale), 0)
    except (ValueError, OverflowError):
        return 0


def _summary(claims: Sequence[KubeDraClaim]) -> str:
    """``claim gpus: 8 x gpu.nvidia.com``, of several claims with ``and`` between them."""
    parts: list[str] = []
    for claim in claims:
        each = [
            " or ".join(
                f"{'all' if one.allocation_mode == ALL else one.count} x {one.device_class_name or 'no class'}"
                for _, one in request.alternatives
            )
            for request in claim.spec.devices.requests or ()
        ]
        parts.append(f"claim {claim.metadata.name}: {' with '.join(each)}")
    return " and ".join(parts)
