"""Volumes that wait for their pod's node: what is written so that each is made or chosen there, before pods are bound.

As kube-scheduler does it: a volume that is there is kept for the claim (``claimRef``), for one that is to be made the
claim says on which node (``volume.kubernetes.io/selected-node``). The rest is done by the cluster's controllers; when
every claim of a gang is bound, its pods are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from muster.backends.kubernetes.api import ApiError, ApiServer
from muster.backends.kubernetes.commit import MERGE, Outcome
from muster.kube.kinds import VOLUME_CLAIMS
from muster.kube.objects import KubeNode, KubePod
from muster.kube.storage import BY_CONTROLLER, SELECTED_NODE, KubeClaim
from muster.kube.volumes import Choice, NoVolume, VolumeReader
from muster.kube.world import World, key_of

AVOIDED_S = 300.0
"""Where no volume could be made for a claim, none is asked for again for so long."""
AGAIN_S = 2.0
"""What the server refused to write of a volume is tried again after so long."""


class VolumeWrite(Struct, frozen=True):
    """Say of a gang's claim on which ``node`` its volume is to be made, or which ``volume`` it gets; neither: nothing.

    ``version`` is of the object that is written: the claim, or the volume.
    """

    gang: str
    namespace: str
    claim: str
    uid: str
    version: str
    node: str = ""
    volume: str = ""

    @property
    def key(self) -> str:
        """The claim's NAMESPACE/NAME."""
        return f"{self.namespace}/{self.claim}"


class Providing(Struct):
    """A gang that has its nodes and waits there for its volumes.

    Attributes:
        since_s: since when.
        writes: what was written, by claim.
        named: claims whose node the cluster has been seen to know.
        again_s: when to look again, as something was refused.
    """

    since_s: float
    writes: dict[str, VolumeWrite] = field(default_factory=dict[str, VolumeWrite])
    named: set[str] = field(default_factory=set[str])
    again_s: float = math.inf


class Volumes:
    """The gangs that wait for their volumes, and what was decided of those.

    Attributes:
        providing: those gangs by name.
        pinned: gangs that wait for the one node that was named for a claim of theirs before, and since when.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.providing: dict[str, Providing] = {}
        self.pinned: dict[str, float] = {}
        self._until: dict[tuple[str, str], float] = {}
        self._avoid: dict[str, frozenset[str]] = {}
        self._taken: dict[str, str] = {}
        self._by_claim: dict[str, str] = {}
        self._reader: VolumeReader | None = None

    def attach(self, reader: VolumeReader) -> None:
        """Let a reader count what was decided here."""
        self._reader = reader
        reader.avoid, reader.taken, reader.strict = self._avoid, self._taken, True

    @property
    def reader(self) -> VolumeReader:
        """What reads volumes now."""
        assert self._reader is not None
        return self._reader

    def forget_all(self) -> None:
        """This replica leads from now on: nothing was decided."""
        for kept in (self.providing, self.pinned, self._until, self._avoid, self._taken, self._by_claim):
            kept.clear()

    def settle(self, gang: str, pods: Sequence[tuple[KubePod, KubeNode]], now_s: float) -> list[VolumeWrite]:
        """What is to be written so that the pods of a gang have their volumes on these nodes.

        While it is in ``providing`` after that, its pods are not to be bound.

        Raises:
            NoVolume: they cannot have them there.
        """
        found = self.providing.get(gang)
        if found is not None and (key := self._given_up(found)):
            raise NoVolume(f"no volume could be made for claim {key} on {found.writes[key].node}")
        writes: list[VolumeWrite] = []
        waits = False
        for pod, node in pods:
            for choice in self.reader.choose(pod, node):
                waits, key = True, key_of(choice.claim)
                found = self.providing.setdefault(gang, Providing(now_s))
                known = found.writes.get(key)
                if known is None:
                    known = found.writes[key] = _to_write(gang, choice)
                    if choice.volume is not None and not choice.told:
                        self._taken[choice.volume.metadata.name] = key
                        self.reader.changed()
                    writes += [] if choice.told else [known]
                self._by_claim[key] = gang
                self.saw(key, choice.claim)
        if not waits:
            self.end(gang)
        self.pinned.pop(gang, None)
        return writes

    def saw(self, key: str, claim: KubeClaim) -> None:
        """A claim as the server has it: that it names its node is kept, so that it is noticed when it does no more."""
        found = self.providing.get(self._by_claim.get(key, ""))
        write = found.writes.get(key) if found is not None else None
        named = claim.metadata.annotation(SELECTED_NODE)
        if found is not None and write is not None and write.node and named == write.node:
            found.named.add(key)

    def _given_up(self, found: Providing) -> str:
        """The claim of which the provisioner took the node back, as it can make no volume there; empty: none."""
        claims = self._world.of(VOLUME_CLAIMS, KubeClaim)
        for key in sorted(found.named):
            claim = claims.get(key)
            if claim is not None and not claim.spec.volume_name and not claim.metadata.annotation(SELECTED_NODE):
                return key
        return ""

    def end(self, gang: str) -> None:
        """A gang has its volumes, or waits for them no more."""
        found = self.providing.pop(gang, None)
        if found is not None:
            for key, write in found.writes.items():
                self._taken.pop(write.volume, None)
                self._by_claim.pop(key, None)
            self.reader.changed()

    def fail(self, gang: str, now_s: float) -> tuple[list[VolumeWrite], bool]:
        """A gang cannot have its volumes on its nodes: what takes back that they were named.

        And whether nodes are avoided from now on, so that it can be placed anew at once.
        """
        found = self.providing.get(gang)
        self.end(gang)
        writes: list[VolumeWrite] = []
        avoids = False
        claims = self._world.of(VOLUME_CLAIMS, KubeClaim)
        for key, write in found.writes.items() if found is not None else ():
            claim = claims.get(key)
            if claim is None or not write.node or claim.spec.volume_name or claim.metadata.uid != write.uid:
                continue
            writes += self._take_back(claim, write.node, now_s)
            avoids = True
        return writes, avoids

    def unpin(self, gang: str, pods: Sequence[KubePod], now_s: float) -> list[VolumeWrite]:
        """No room came free on the node that was named for a gang's claims: another may be."""
        self.pinned.pop(gang, None)
        pinned = [(claim, self.reader.pinned(claim)) for pod in pods for claim in self.reader.open_claims(pod)]
        return [write for claim, node in pinned if node for write in self._take_back(claim, node, now_s)]

    def shun(self, claim: str, node: str, until_s: float) -> None:
        """No volume is asked for a claim on a node for a while."""
        self._until[claim, node] = until_s
        self._avoid[claim] = self._avoid.get(claim, frozenset()) | {node}

    def _take_back(self, claim: KubeClaim, node: str, now_s: float) -> list[VolumeWrite]:
        self.shun(key_of(claim), node, now_s + AVOIDED_S)
        return [_to_write("", Choice(claim))] if claim.metadata.annotation(SELECTED_NODE) == node else []

    def forget_claim(self, key: str) -> None:
        """A claim is there no more: another of its name is another claim."""
        for node in self._avoid.pop(key, ()):
            self._until.pop((key, node), None)

    def expired(self, now_s: float) -> list[str]:
        """The claims for which nodes are looked at again that were avoided."""
        over = [each for each, until_s in self._until.items() if until_s < now_s]
        for key, node in over:
            del self._until[key, node]
            if left := self._avoid.get(key, frozenset()) - {node}:
                self._avoid[key] = left
            else:
                self._avoid.pop(key, None)
        return [key for key, _ in over]

    def refused(self, write: VolumeWrite, now_s: float) -> None:
        """The server did not take a write: it is made anew in a while, by what is there then."""
        found = self.providing.get(write.gang)
        if found is not None and found.writes.get(write.key) == write:
            del found.writes[write.key]
            found.again_s = now_s + AGAIN_S
            if write.volume:
                self._taken.pop(write.volume, None)
                self.reader.changed()

    def awaited(self, gang: str) -> list[str]:
        """The claims of a gang, by name, whose volumes are still waited for."""
        claims, found = self._world.of(VOLUME_CLAIMS, KubeClaim), self.providing.get(gang)
        writes = found.writes.items() if found is not None else ()
        return [write.claim for key, write in writes if (one := claims.get(key)) is not None and not one.bound]


def _to_write(gang: str, choice: Choice) -> VolumeWrite:
    """How a choice is told to the cluster."""
    meta, volume = choice.claim.metadata, choice.volume
    version = volume.metadata.resource_version if volume is not None else meta.resource_version
    name = volume.metadata.name if volume is not None else ""
    return VolumeWrite(gang, meta.namespace, meta.name, meta.uid, version, choice.node, name)


async def provide(server: ApiServer, write: VolumeWrite) -> Outcome:
    """Write it. TAKEN: the claim or the volume has changed meanwhile."""
    if write.volume:
        path = f"/api/v1/persistentvolumes/{write.volume}"
        reference = {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": write.namespace, "name": write.claim,
            "uid": write.uid,
        }  # fmt: skip
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": write.version, "annotations": {BY_CONTROLLER: "yes"}},
            "spec": {"claimRef": reference},
        }
    else:
        path = f"/api/v1/namespaces/{write.namespace}/persistentvolumeclaims/{write.claim}"
        body = {
            "metadata": {
                "uid": write.uid, "resourceVersion": write.version, "annotations": {SELECTED_NODE: write.node or None},
            }
        }  # fmt: skip
    try:
        await server.request("PATCH", path, body=msgspec.json.encode(body), content_type=MERGE)
    except ApiError as error:
        if error.status == 404:
            return Outcome.GONE
        if error.status in (409, 422):
            return Outcome.TAKEN
        raise
    return Outcome.DONE
