"""The kinds of objects that are read, and what they are decoded to."""

from __future__ import annotations

from muster.kube.objects import KubeClaim, KubeNode, KubePod, KubeVolume
from muster.kube.world import Kind, KubeObject

NODES = Kind("nodes", "", "Node", ("v1",), needed=True)
PODS = Kind("pods", "", "Pod", ("v1",), needed=True)
VOLUME_CLAIMS = Kind("persistentvolumeclaims", "", "PersistentVolumeClaim", ("v1",))
VOLUMES = Kind("persistentvolumes", "", "PersistentVolume", ("v1",))

STRUCTS: dict[Kind, type[KubeObject]] = {
    NODES: KubeNode,
    PODS: KubePod,
    VOLUME_CLAIMS: KubeClaim,
    VOLUMES: KubeVolume,
}
"""All kinds that are read, in the order in which they are, and the type of their objects. A kind is entered here."""
