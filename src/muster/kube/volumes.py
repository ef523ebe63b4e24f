"""Volumes of pods: where those that are bound can be reached, and where those that wait for their pod can be.

The rules are those of kube-scheduler's VolumeBinding plugin (kubernetes pkg/scheduler/framework/plugins/volumebinding)
and of its choice of a volume for a claim (component-helpers storage/volume): a claim of a class with
``volumeBindingMode: WaitForFirstConsumer`` gets the smallest free volume of its class that its pod's node reaches, else
one is made there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from muster.errors import MusterError
from muster.kube.affinity import selects, term_takes
from muster.kube.kinds import (
    NODES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    STORAGE_DRIVERS,
    VOLUME_CLAIMS,
    VOLUMES,
)
from muster.kube.marks import Marks
from muster.kube.nodes import HOST_LABEL
from muster.kube.objects import KubeNode, KubePod, Quantity, Term, parse_quantity
from muster.kube.storage import (
    FILESYSTEM,
    SELECTED_NODE,
    STORAGE,
    KubeCapacity,
    KubeClaim,
    KubeDriver,
    KubeStorageClass,
    KubeVolume,
    volume_terms,
)
from muster.kube.world import World, key_of


class NoVolume(MusterError):
    """A pod cannot have its volumes on a node; ``claim`` is the one, by NAMESPACE/NAME, that has none left there."""

    def __init__(self, text: str, claim: str = "", node: str = "") -> None:
        super().__init__(text)
        self.claim, self.node = claim, node


class Choice(Struct, frozen=True):
    """How a claim gets its volume.

    Attributes:
        claim: which.
        node: where one is to be made; empty: ``volume`` is there.
        volume: the volume that it gets.
        told: whether the cluster has been told already.
    """

    claim: KubeClaim
    node: str = ""
    volume: KubeVolume | None = None
    told: bool = False


class _Asked(Struct, frozen=True):
    """What pods ask for that are alike: ``claims`` of one class, the smallest first; ``avoid`` are nodes without."""

    key: tuple[object, ...]
    claims: tuple[KubeClaim, ...]
    avoid: frozenset[str] = frozenset()


class _Homes(Struct):
    """The nodes that some volume reaches: by one label, by other conditions, or all."""

    anywhere: bool = False
    exact: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    others: list[list[Term]] = field(default_factory=list[list[Term]])

    def take(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node is one of them."""
        if self.anywhere or any(labels.get(key) in values for key, values in self.exact.items()):
            return True
        return any(term_takes(term, labels, name) for terms in self.others for term in terms)


class Use(NamedTuple):
    """A claim that a pod uses: its key, the object, None where there is none, and whether it is made with the pod."""

    key: str
    claim: KubeClaim | None
    made: bool


class VolumeReader:
    """Reads what volumes mean for the nodes of pods.

    Attributes:
        avoid: of claims by NAMESPACE/NAME, the nodes on which a volume could not be made lately.
        taken: volumes by name that were chosen for a claim, which the cluster does not say yet.
        strict: pods are to be bound: what must not be read keeps them waiting.
    """

    def __init__(self, world: World, marks: Marks) -> None:
        self._world, self._marks = world, marks
        self.avoid: Mapping[str, frozenset[str]] = {}
        self.taken: Mapping[str, str] = {}
        self.strict = False
        self._homes: dict[tuple[object, ...], _Homes] = {}
        self._free: dict[str, list[KubeVolume]] = {}
        self._kept: dict[str, list[KubeVolume]] = {}
        self._revision = -1
        self._changes = 0

    def changed(self) -> None:
        """What is taken is not as it was."""
        self._revision = -1
        self._changes += 1

    def _version(self) -> int:
        """Another number where volumes may be elsewhere than before."""
        revisions = (self._world.revision(kind) for kind in (VOLUMES, STORAGE_CAPACITIES, STORAGE_CLASSES))
        return self._changes + sum(revisions)

    # -- of a pod

    def uses(self, pod: KubePod) -> Iterator[Use]:
        """The claims of a pod."""
        claims = self._world.of(VOLUME_CLAIMS, KubeClaim)
        for key, made in claim_keys(pod):
            yield Use(key, claims.get(key), made)

    def waits(self, pod: KubePod) -> str:
        """Why a pod cannot start on any node yet, as far as its claims go; empty where it can."""
        if not pod.spec.volumes:
            return ""
        if not self._world.holds(VOLUME_CLAIMS):
            missing = self._world.missing.get(VOLUME_CLAIMS.name, "")
            has = self.strict and missing and any(True for _ in claim_keys(pod))
            return f"its volume claims cannot be read ({missing})" if has else ""
        for use in self.uses(pod):
            if why := self._waits(pod, use):
                return f"its claim {use.key.partition('/')[2]} {why}"
        return ""

    def _waits(self, pod: KubePod, use: Use) -> str:
        claim = use.claim
        if claim is None:
            return "has not been made yet" if use.made else "is not there: make it, or take it out of the pod"
        if use.made and pod.metadata.uid and all(each.uid != pod.metadata.uid for each in claim.owners):
            return "is not the pod's own, which one for an ephemeral volume must be: delete it"
        if claim.metadata.deletion_timestamp is not None:
            return "is being deleted"
        if claim.status.phase == "Lost":
            return f"has lost its volume {claim.spec.volume_name}"
        if claim.bound:
            there = not self._world.holds(VOLUMES) or claim.spec.volume_name in self._world.of(VOLUMES, KubeVolume)
            return "" if there else f"is bound to volume {claim.spec.volume_name}, which is not there"
        if claim.spec.volume_name:
            return f"is to be bound to volume {claim.spec.volume_name}, which has not come about yet"
        return self._class_waits(claim)

    def _class_waits(self, claim: KubeClaim) -> str:
        name = claim.storage_class
        if not name:
            return "is not bound, and names no storage class that would make a volume"
        if not self._world.holds(STORAGE_CLASSES):
            missing = self._world.missing.get(STORAGE_CLASSES.name, "")
            return f"is of storage class {name}, which cannot be read ({missing})" if self.strict and missing else ""
        found = self._world.of(STORAGE_CLASSES, KubeStorageClass).get(name)
        if found is None:
            return f"is of storage class {name}, which is not there"
        return "" if found.waits else f"is not bound yet, which storage class {name} does before its pod has a node"

    def open_claims(self, pod: KubePod) -> list[KubeClaim]:
        """The claims of a pod that get their volume only when it has its node, the smallest first."""
        if not pod.spec.volumes:
            return []
        found = [use.claim for use in self.uses(pod) if use.claim is not None and not use.claim.bound]
        return sorted((each for each in found if not each.spec.volume_name), key=lambda each: _bytes(each.asked))

    def pinned(self, claim: KubeClaim) -> str:
        """The node that was chosen for a claim that has no volume yet; empty where none counts."""
        node = claim.metadata.annotation(SELECTED_NODE)
        nodes = self._world.of(NODES, KubeNode)
        return node if node in nodes and node not in self.avoid.get(key_of(claim), ()) else ""

    def places(self, pod: KubePod) -> tuple[list[list[Term]], list[tuple[str, str]], bool]:
        """Node selectors and labels of the nodes that a pod's volumes allow, and whether not all of it is known."""
        volumes = self._world.of(VOLUMES, KubeVolume)
        terms: list[list[Term]] = []
        labels: dict[tuple[str, str], None] = {}
        unknown = False
        waits: dict[str, list[KubeClaim]] = {}
        for use in self.uses(pod):
            claim = use.claim
            volume = volumes.get(claim.spec.volume_name or "") if claim is not None else None
            if claim is not None and volume is None and not claim.spec.volume_name:
                volume = self._kept_for(claim)
                known = self._world.of(STORAGE_CLASSES, KubeStorageClass).get(claim.storage_class)
                unknown |= known is None
                if volume is None and known is not None and known.waits:
                    waits.setdefault(claim.storage_class, []).append(claim)
            if volume is not None and (found := volume_terms(volume.spec)):
                terms.append(found)
        for name, claims in waits.items():
            known = self._world.of(STORAGE_CLASSES, KubeStorageClass)[name]
            labels.update(dict.fromkeys(self._open(pod, claims, known)))
        return terms, list(labels), unknown

    def _open(self, pod: KubePod, claims: list[KubeClaim], known: KubeStorageClass) -> Iterator[tuple[str, str]]:
        """The labels of the nodes where claims of one class can have their volumes."""
        claims = sorted(claims, key=lambda each: _bytes(each.asked))
        for claim in claims:
            if not pod.spec.node_name and known.makes and (node := self.pinned(claim)):
                labels = self._world.of(NODES, KubeNode)[node].metadata.labels or {}
                yield HOST_LABEL, labels.get(HOST_LABEL, node)
        avoid = frozenset(node for claim in claims for node in self.avoid.get(key_of(claim), ()))
        asked = _Asked(tuple(map(_key, claims)), tuple(claims), avoid)
        sizes = " and ".join(f"{_bytes(claim.asked) / 2**30:.3g} GiB" for claim in claims)
        what = "has or makes" if known.makes else "has"
        words = f"nodes where storage class {known.metadata.name} {what} a volume of {sizes}"
        if asked.avoid:
            words += f" but {len(asked.avoid)} where that failed lately"
        more = f"{asked.key}{sorted(asked.avoid)}"
        yield self._marks.label(words, lambda labels, node: self._can_be(asked, labels, node), more, self._version)

    # -- of a node

    def _can_be(self, asked: _Asked, labels: Mapping[str, str], node: str) -> bool:
        """Whether claims of one class can have their volumes on a node, all of them."""
        if node in asked.avoid:
            return False
        left = [claim for claim in asked.claims if not self._makes(claim, labels)]
        if not all(self._homes_of(claim).take(labels, node) for claim in left):
            return False
        return len(left) < 2 or self._has_all(left, labels, node)

    def _has_all(self, claims: list[KubeClaim], labels: Mapping[str, str], node: str) -> bool:
        """Whether as many volumes are there as claims, each its own."""
        chosen: set[str] = set()
        for claim in claims:
            for volume in self._fitting(claim):
                if volume.metadata.name not in chosen and _reached(volume, labels, node):
                    chosen.add(volume.metadata.name)
                    break
            else:
                return False
        return True

    def _homes_of(self, claim: KubeClaim) -> _Homes:
        self._refresh()
        found = self._homes.get(key := _key(claim))
        if found is None:
            found = self._homes[key] = _Homes()
            for volume in self._fitting(claim):
                terms = volume_terms(volume.spec)
                exact = _one_label(terms)
                if not terms:
                    found.anywhere = True
                elif exact is not None:
                    found.exact.setdefault(exact[0], set()).update(exact[1])
                else:
                    found.others.append(terms)
        return found

    def _refresh(self) -> None:
        """Read anew which volumes are free, where some changed."""
        revision = self._world.revision(VOLUMES)
        if revision == self._revision:
            return
        self._revision = revision
        self._homes.clear()
        self._free.clear()
        self._kept.clear()
        for volume in self._world.of(VOLUMES, KubeVolume).values():
            if volume.metadata.deletion_timestamp is not None:
                continue
            ref = volume.spec.claim_ref
            if ref is not None:
                self._kept.setdefault(f"{ref.namespace}/{ref.name}", []).append(volume)
            elif volume.status.phase == "Available" and volume.metadata.name not in self.taken:
                self._free.setdefault(volume.storage_class, []).append(volume)
        for volumes in self._free.values():
            volumes.sort(key=lambda each: (_size(each), each.metadata.name))

    def _kept_for(self, claim: KubeClaim) -> KubeVolume | None:
        """The volume that is kept for a claim, which is not bound to it yet."""
        self._refresh()
        return next((each for each in self._kept.get(key_of(claim), ()) if each.is_for(claim)), None)

    def _fitting(self, claim: KubeClaim) -> Iterator[KubeVolume]:
        """The free volumes that a claim may have, the smallest first."""
        self._refresh()
        asked = _bytes(claim.asked)
        for volume in self._free.get(claim.storage_class, ()):
            if volume.metadata.name in self.taken or _size(volume) < asked or not _alike(claim, volume):
                continue
            if claim.spec.selector is None or selects(claim.spec.selector, volume.metadata.labels or {}):
                yield volume

    def _makes(self, claim: KubeClaim, labels: Mapping[str, str]) -> bool:
        """Whether a volume can be made for a claim on a node of these labels, as far as the cluster says."""
        found = self._world.of(STORAGE_CLASSES, KubeStorageClass).get(claim.storage_class)
        if found is None or not found.makes:
            return False
        topologies = found.allowed_topologies
        if topologies and not any(
            all(labels.get(each.key) in (each.values or ()) for each in term.match_label_expressions or ())
            for term in topologies
        ):
            return False
        driver = self._world.of(STORAGE_DRIVERS, KubeDriver).get(found.provisioner)
        if driver is None or not driver.spec.storage_capacity:
            return True
        asked = _bytes(claim.asked)
        return any(
            each.storage_class_name == claim.storage_class
            and each.node_topology is not None
            and _bytes(each.maximum_volume_size if each.maximum_volume_size is not None else each.capacity) >= asked
            and selects(each.node_topology, labels)
            for each in self._world.of(STORAGE_CAPACITIES, KubeCapacity).values()
        )

    def choose(self, pod: KubePod, node: KubeNode) -> list[Choice]:
        """How the claims of a pod that have no volume get theirs on a node; those that are bound are looked at, too.

        Raises:
            NoVolume: on this node it cannot have them.
        """
        name, labels = node.metadata.name, node.metadata.labels or {}
        volumes = self._world.of(VOLUMES, KubeVolume)
        for use in self.uses(pod):
            volume = volumes.get(use.claim.spec.volume_name or "") if use.claim is not None else None
            if volume is not None and not _reached(volume, labels, name):
                raise NoVolume(f"volume {volume.metadata.name} of its claim {use.key} cannot be reached from {name}")
        found: list[Choice] = []
        for claim in self.open_claims(pod):
            chosen = {each.volume.metadata.name for each in found if each.volume is not None}
            found.append(self._choose(claim, node, chosen))
        return found

    def _choose(self, claim: KubeClaim, node: KubeNode, chosen: set[str]) -> Choice:
        key, name, labels = key_of(claim), node.metadata.name, node.metadata.labels or {}
        kept = self._kept_for(claim)
        if kept is not None:
            if not _reached(kept, labels, name):
                raise NoVolume(f"volume {kept.metadata.name}, kept for its claim {key}, cannot be reached from {name}")
            return Choice(claim, volume=kept, told=True)
        if claim.metadata.annotation(SELECTED_NODE) == name:
            return Choice(claim, node=name, told=True)
        volumes = (each for each in self._fitting(claim) if each.metadata.name not in chosen)
        volume = next((each for each in volumes if _reached(each, labels, name)), None)
        if volume is not None:
            return Choice(claim, volume=volume)
        if not self._makes(claim, labels):
            text = f"storage class {claim.storage_class} has no volume left on {name} for its claim {key}"
            raise NoVolume(text, key, name)
        return Choice(claim, node=name)


def claim_keys(pod: KubePod) -> Iterator[tuple[str, bool]]:
    """The claims of a pod by NAMESPACE/NAME, and whether each is made with the pod."""
    for each in pod.spec.volumes or ():
        if each.persistent_volume_claim is not None:
            yield f"{pod.metadata.namespace}/{each.persistent_volume_claim.claim_name}", False
        elif each.ephemeral is not None:
            yield f"{pod.metadata.namespace}/{pod.metadata.name}-{each.name}", True


def _key(claim: KubeClaim) -> tuple[object, ...]:
    """The same for claims that may have the same volumes."""
    spec = claim.spec
    return (
        claim.storage_class, _bytes(claim.asked), tuple(sorted(spec.access_modes or ())), spec.volume_mode,
        spec.volume_attributes_class_name, repr(spec.selector),
    )  # fmt: skip


def _reached(volume: KubeVolume, labels: Mapping[str, str], node: str) -> bool:
    """Whether a node of these labels reaches a volume."""
    terms = volume_terms(volume.spec)
    return not terms or any(term_takes(term, labels, node) for term in terms)


def _alike(claim: KubeClaim, volume: KubeVolume) -> bool:
    """Whether a volume is of the ways of use that a claim asks for."""
    ask, has = claim.spec, volume.spec
    return (
        (ask.volume_mode or FILESYSTEM) == (has.volume_mode or FILESYSTEM)
        and (ask.volume_attributes_class_name or "") == (has.volume_attributes_class_name or "")
        and set(ask.access_modes or ()) <= set(has.access_modes or ())
    )


def _one_label(terms: list[Term]) -> tuple[str, list[str]] | None:
    """The label and its values by which a node selector takes nodes, where it is that simple."""
    only = terms[0].match_expressions or [] if len(terms) == 1 and not terms[0].match_fields else []
    return (only[0].key, only[0].values or []) if len(only) == 1 and only[0].operator == "In" else None


def _size(volume: KubeVolume) -> int:
    return _bytes((volume.spec.capacity or {}).get(STORAGE))


def _bytes(quantity: Quantity | None) -> int:
    """A quantity in bytes; 0 for one that makes no sense."""
    try:
        return parse_quantity(quantity, 1) if quantity is not None else 0
    except (ValueError, OverflowError):
        return 0
