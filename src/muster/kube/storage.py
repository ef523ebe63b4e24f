"""The parts of Kubernetes' storage objects that say where a volume can be, and which volume a claim may have."""

from __future__ import annotations

from msgspec import Struct, field

from muster.kube.objects import Meta, Owner, Quantity, Resources, Selector, Term, Terms

NO_PROVISIONER = "kubernetes.io/no-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
STORAGE = "storage"
FILESYSTEM = "Filesystem"


class ClaimSpec(Struct, rename="camel"):
    """A claim's spec."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    resources: Resources | None = None
    selector: Selector | None = None


class ClaimStatus(Struct):
    """A claim's status."""

    phase: str = ""


class KubeClaim(Struct):
    """A PersistentVolumeClaim object."""

    metadata: Meta
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)

    @property
    def storage_class(self) -> str:
        """The class that it names; empty: none."""
        return self.metadata.annotation(OLD_CLASS) or self.spec.storage_class_name or ""

    @property
    def bound(self) -> bool:
        """Whether it has its volume for good."""
        return bool(self.spec.volume_name and self.metadata.annotation(BOUND))

    @property
    def asked(self) -> Quantity:
        """How much it asks for."""
        return ((self.spec.resources and self.spec.resources.requests) or {}).get(STORAGE, 0)

    @property
    def owners(self) -> list[Owner]:
        """What it belongs to."""
        return self.metadata.owner_references or []


class VolumeAffinity(Struct):
    """A volume's node affinity."""

    required: Terms | None = None


class ClaimRef(Struct):
    """A volume's spec.claimRef."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeSpec(Struct, rename="camel"):
    """A volume's spec."""

    node_affinity: VolumeAffinity | None = None
    capacity: dict[str, Quantity] | None = None
    access_modes: list[str] | None = None
    claim_ref: ClaimRef | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class VolumeStatus(Struct):
    """A volume's status."""

    phase: str = ""


class KubeVolume(Struct):
    """A PersistentVolume object."""

    metadata: Meta
    spec: VolumeSpec = field(default_factory=VolumeSpec)
    status: VolumeStatus = field(default_factory=VolumeStatus)

    @property
    def storage_class(self) -> str:
        """The class that it is of; empty: none."""
        return self.metadata.annotation(OLD_CLASS) or self.spec.storage_class_name or ""

    def is_for(self, claim: KubeClaim) -> bool:
        """Whether it is kept for a claim."""
        ref = self.spec.claim_ref
        meta = claim.metadata
        return (
            ref is not None and (ref.namespace, ref.name) == (meta.namespace, meta.name) and ref.uid in ("", meta.uid)
        )


class TopologyExpression(Struct):
    """An entry of matchLabelExpressions in a class's allowedTopologies."""

    key: str
    values: list[str] | None = None


class TopologyTerm(Struct, rename="camel"):
    """An entry of a class's allowedTopologies."""

    match_label_expressions: list[TopologyExpression] | None = None


class KubeStorageClass(Struct, rename="camel"):
    """A StorageClass object."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None

    @property
    def waits(self) -> bool:
        """Whether its volumes are bound only when a pod that uses them has its node."""
        return self.volume_binding_mode == "WaitForFirstConsumer"

    @property
    def makes(self) -> bool:
        """Whether somebody makes volumes of it."""
        return self.provisioner not in ("", NO_PROVISIONER)


class DriverSpec(Struct, rename="camel"):
    """A driver's spec."""

    storage_capacity: bool | None = None


class KubeDriver(Struct):
    """A CSIDriver object."""

    metadata: Meta
    spec: DriverSpec = field(default_factory=DriverSpec)


class KubeCapacity(Struct, rename="camel"):
    """A CSIStorageCapacity object."""

    metadata: Meta
    storage_class_name: str = ""
    node_topology: Selector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


def volume_terms(spec: VolumeSpec) -> list[Term]:
    """The node selector of a volume: none where all nodes reach it."""
    required = spec.node_affinity.required if spec.node_affinity else None
    return (required.node_selector_terms if required else None) or []
