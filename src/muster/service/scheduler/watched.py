"""What a scheduler watches of a cluster: which pods are of which gang, and which gangs and nodes are not as they were.

A pod whose binding is under way is taken to stand where it will be, until the server says otherwise.
"""

from __future__ import annotations

import math
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from muster.backends.kubernetes.commit import PodKey
from muster.kube.dra.objects import KubeDraClaim
from muster.kube.kinds import CLAIMS, NAMESPACES, NODES, PODS, STORAGE_CAPACITIES, VOLUME_CLAIMS, VOLUMES
from muster.kube.objects import KubeNode, KubePod
from muster.kube.storage import KubeClaim, KubeVolume
from muster.kube.translate import Translator
from muster.kube.volumes import claim_keys
from muster.kube.world import Kind, KubeObject, World
from muster.service.scheduler.claims import ClaimWrite
from muster.service.scheduler.volumes import Volumes

LEAVING = "~leaving"
"""After the name of a gang: its pods that were told to stop by others than the scheduler, and hold their room still."""


class Assumed(Struct):
    """A pod that is to run on a node: its binding was sent, or waits for others to leave; holds until ``doubt_s``."""

    gang: str
    key: str
    node: str
    sent: bool = False
    doubt_s: float = math.inf


class Watched:
    """Pods, nodes and what they refer to, as they change.

    Args:
        world: what is watched; its changes are told to `changed`.

    Attributes:
        volumes: the gangs that wait for volumes on their nodes.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.volumes = Volumes(world)
        self._users: dict[str, dict[str, None]] = {}
        self._translator = self._new_translator()
        self._members: dict[str, dict[str, KubePod]] = {}
        self._gang_of: dict[str, str] = {}
        self._dirty: dict[str, None] = {}
        self._dirty_nodes: dict[str, None] = {}
        self._stale = True
        self._assumed: dict[str, Assumed] = {}
        self._vacating: dict[str, dict[str, float]] = {}
        self._stopped: dict[str, str] = {}
        self._to_act: dict[str, None] = {}
        self._taken: dict[str, int] = {}
        self._decided: dict[str, ClaimWrite] = {}

    def _new_translator(self) -> Translator:
        found = Translator(self._world)
        self.volumes.attach(found.volumes)
        return found

    @property
    def has_news(self) -> bool:
        """Whether `refresh` would change anything, or something is to be carried out."""
        return self._stale or bool(self._dirty or self._dirty_nodes or self._to_act) or self._translator.unmarked

    def relead(self) -> None:
        """This replica leads from now on: nothing is assumed but what the cluster says."""
        self._assumed.clear()
        self._vacating.clear()
        self._stopped.clear()
        self.volumes.forget_all()
        self._users.clear()
        self._stale = True
        pods = self._world.of(PODS, KubePod)
        self._members.clear()
        self._gang_of.clear()
        for key, pod in pods.items():
            self._pod(key, None, pod)

    def changed(self, kind: Kind, key: str, before: KubeObject | None, after: KubeObject | None) -> None:
        """An object of the world is not as it was."""
        if kind is PODS:
            self._pod(key, cast("KubePod | None", before), cast("KubePod | None", after))
        elif kind is NODES:
            self._node(key, cast("KubeNode | None", before), cast("KubeNode | None", after))
        else:
            if kind is CLAIMS and after is not None:
                self._claim(key, cast("KubeDraClaim", after))
            if kind is VOLUME_CLAIMS:
                if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
                    self.volumes.forget_claim(key)
                if after is not None:
                    self.volumes.saw(key, cast("KubeClaim", after))
            if kind is VOLUMES:
                self._volume(cast("KubeVolume | None", before), cast("KubeVolume | None", after))
            elif kind is STORAGE_CAPACITIES:
                self._translator.remark()
            elif _spec_of(before) != _spec_of(after):
                self._other(kind, key)

    def _claim(self, key: str, after: KubeDraClaim) -> None:
        """A claim as the server has it; devices that were decided and are being written count all the same."""
        decided = self._decided.get(key)
        if decided is None:
            return
        if after.status.allocation is not None or after.metadata.uid != decided.uid:
            del self._decided[key]
        else:
            self._world.put(CLAIMS, replace(after, status=replace(after.status, allocation=decided.allocation)))

    def _volume(self, before: KubeVolume | None, after: KubeVolume | None) -> None:
        """A volume is not as it was: which nodes have one left is another question, too."""
        if _spec_of(before) == _spec_of(after) and (before and before.status) == (after and after.status):
            return
        self._translator.remark()
        for each in (before, after):
            ref = each.spec.claim_ref if each is not None else None
            if ref is not None:
                self._claim_changed(f"{ref.namespace}/{ref.name}")

    def _claim_changed(self, key: str) -> None:
        """The gangs whose pods use a volume claim are looked at anew."""
        users = self._users.get(key, {})
        for name in [name for name in users if name not in self._members]:
            del users[name]
        if not users:
            self._users.pop(key, None)
        self._dirty.update(users)
        self._to_act.update((name, None) for name in users if name in self.volumes.providing)

    def _other(self, kind: Kind, key: str) -> None:
        """A queue, a class, a group, a claim: whom it may concern is looked at anew."""
        if kind is NAMESPACES:
            self._stale = self._stale or self._translator.others.by_namespace()
        elif "/" not in key:
            self._stale = True  # rare, and it may change what any pod asks for
        elif kind is VOLUME_CLAIMS:
            self._claim_changed(key)
        else:  # what makes a gang: that is called as it is
            own = (key, f"{key}.{kind.kind.lower()}")
            self._dirty.update((name, None) for name in own if name in self._members)

    def _node(self, key: str, before: KubeNode | None, after: KubeNode | None) -> None:
        if before is None or after is None or before.metadata.labels != after.metadata.labels:
            self._stale = True
        elif (before.spec, _health(before)) != (after.spec, _health(after)):
            self._dirty_nodes[key] = None

    def _pod(self, key: str, before: KubePod | None, after: KubePod | None) -> None:
        if after is not None:
            if before is not None and _same(before, after):
                return
            uid = after.metadata.uid
            if after.spec.node_name or after.metadata.deletion_timestamp:
                self._assumed.pop(uid, None)
            elif uid in self._assumed:
                after = on_node(after, self._assumed[uid].node)
        old = self._gang_of.get(key)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._gone(before)
        if after is None or (after.metadata.deletion_timestamp and not after.spec.node_name):
            self._translator.others.put(key, None)
            if old is not None:
                self._forget(key, old)
            return
        gang = self._name_of(after)
        if old is not None and old != gang:
            self._forget(key, old)
        self._gang_of[key] = gang
        self._members.setdefault(gang, {})[key] = after
        self._dirty[gang] = None
        self._translator.others.put(key, after)
        if after.spec.volumes:
            for claim, _ in claim_keys(after):
                self._users.setdefault(claim, {})[gang] = None

    def _forget(self, key: str, gang: str) -> None:
        del self._gang_of[key]
        members = self._members[gang]
        del members[key]
        if not members:
            del self._members[gang]
        self._dirty[gang] = None

    def _gone(self, pod: KubePod) -> None:
        """A pod is there no more: what was to be bound in its place may be."""
        uid = pod.metadata.uid
        self._translator.forget(pod)
        self._assumed.pop(uid, None)
        self._taken.pop(uid, None)
        self._left(uid)

    def _left(self, uid: str) -> None:
        """A pod that was told to leave has left: who waits for that may come."""
        node = self._stopped.pop(uid, "")
        leaving = self._vacating.get(node)
        if leaving is not None and leaving.pop(uid, None) is not None and not leaving:
            del self._vacating[node]
            self._to_act.update(dict.fromkeys(self._held_for(node)))

    def _there(self, pod: PodKey) -> bool:
        """Whether a pod is still there: what was read before the cycle may have gone during it."""
        found = self._world.of(PODS, KubePod).get(f"{pod.namespace}/{pod.name}")
        return found is not None and found.metadata.uid == pod.uid

    def _held_for(self, node: str) -> list[str]:
        """The gangs that wait for others to leave a node."""
        return list(dict.fromkeys(each.gang for each in self._assumed.values() if each.node == node and not each.sent))

    def group_of(self, name: str) -> tuple[str, str] | None:
        """Namespace and name of the native PodGroup that makes a gang; None where something else does."""
        maker = self._translator.maker(name)
        return (maker.namespace, maker.name) if maker is not None and maker.kind == "PodGroup" else None

    def _name_of(self, pod: KubePod) -> str:
        return self._translator.gang_of(pod) + (LEAVING if pod.metadata.deletion_timestamp else "")


def _spec_of(found: KubeObject | None) -> tuple[object, ...] | None:
    """All of an object that somebody decided: not its status, nor which version of it this is."""
    if found is None:
        return None
    rest = [getattr(found, name) for name in found.__struct_fields__ if name not in ("metadata", "status")]  # pyright: ignore
    meta = found.metadata
    return meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp, rest


def _same(before: KubePod, after: KubePod) -> bool:
    """Whether nothing of a pod changed that scheduling goes by."""
    old, new = before.metadata, after.metadata
    return (
        old.uid == new.uid
        and old.deletion_timestamp == new.deletion_timestamp
        and _ended(before) == _ended(after)
        and old.labels == new.labels
        and old.annotations == new.annotations
        and before.spec == after.spec
        and before.status.resource_claim_statuses == after.status.resource_claim_statuses
    )


def _ended(pod: KubePod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def on_node(pod: KubePod, node: str) -> KubePod:
    """The pod as if it were bound to a node."""
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _health(node: KubeNode) -> tuple[object, ...]:
    """What of a node's status counts: not the times of its heartbeats."""
    ready = next((each.status for each in node.status.conditions or () if each.type == "Ready"), None)
    return node.status.allocatable, node.status.capacity, ready
