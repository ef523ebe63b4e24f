"""DRA at the moment of binding: which devices each claim of a pod gets on its node, and what is written of it.

The engine counts a node's devices; which of them a claim may have is decided here, exactly, by
`muster.kube.dra.allocate`. What was decided stands in the world at once, so that the next pod gets others.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.backends.kubernetes.api import ApiError, ApiServer
from muster.backends.kubernetes.commit import STRATEGIC, Outcome, PodKey
from muster.kube.dra.objects import DraAllocation, KubeDraClaim
from muster.kube.dra.pools import Place
from muster.kube.dra.reader import EXTENDED, DraReader
from muster.kube.dra.requests import Refusal
from muster.kube.kinds import CLAIMS
from muster.kube.objects import KubeNode, KubePod
from muster.kube.world import World


class ClaimWrite(Struct, frozen=True):
    """Let a pod use a claim; ``allocation`` is written where the claim had none."""

    namespace: str
    name: str
    uid: str
    version: str
    allocation: DraAllocation | None = None


def waits_for_claims(dra: DraReader, pod: KubePod) -> str:
    """Why the claims of a pod cannot be allocated at all now; empty where they can."""
    if not pod.spec.resource_claims and not dra.concerns(pod):
        return ""
    for claim in dra.claims(pod):
        if claim.metadata.name == EXTENDED and not claim.metadata.uid:
            continue  # on nodes of a device plugin it needs none; `allocate` refuses the others
        if not claim.metadata.uid:
            return f"its claim {claim.metadata.name} has not been made yet"
    return ""


def allocate(dra: DraReader, world: World, pod: KubePod, node: KubeNode) -> tuple[ClaimWrite, ...]:
    """What is to be written of the claims of a pod so that it may run on a node; it counts from now on.

    Raises:
        Refusal: the node cannot give them what they ask for.
    """
    if not dra.concerns(pod):
        return ()
    claims = dra.claims(pod)
    if any(claim.metadata.name == EXTENDED and not claim.metadata.uid for claim in claims):
        if not dra.by_plugin(node.metadata.name):
            raise Refusal("asks for devices of DRA as an extended resource, for which only kube-scheduler makes claims")
        claims = [claim for claim in claims if claim.metadata.name != EXTENDED]
    place = Place(node.metadata.name, node.metadata.labels or {})
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    writes: list[ClaimWrite] = []
    for claim, allocation in zip(claims, dra.devices.allocate(place, claims, timestamp=stamp), strict=True):
        meta, new = claim.metadata, claim.status.allocation is None
        writes.append(
            ClaimWrite(meta.namespace, meta.name, meta.uid, meta.resource_version, allocation if new else None)
        )
        if new:
            world.put(CLAIMS, replace(claim, status=replace(claim.status, allocation=allocation)))
    return tuple(writes)


def give_up(world: World, writes: Sequence[ClaimWrite]) -> None:
    """What was decided and not written does not count any more."""
    claims = world.of(CLAIMS, KubeDraClaim)
    for write in writes:
        claim = claims.get(f"{write.namespace}/{write.name}")
        if write.allocation is not None and claim is not None and claim.status.allocation == write.allocation:
            world.put(CLAIMS, replace(claim, status=replace(claim.status, allocation=None)))


async def reserve(server: ApiServer, write: ClaimWrite, pod: PodKey) -> Outcome:
    """Write it. TAKEN: the claim has changed meanwhile."""
    path = (await server.discover()).path(CLAIMS, write.namespace)
    if path is None:
        return Outcome.GONE
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}]}
    meta: dict[str, Any] = {"uid": write.uid}
    if write.allocation is not None:
        status["allocation"] = write.allocation
        meta["resourceVersion"] = write.version
    body = msgspec.json.encode({"metadata": meta, "status": status})
    try:
        await server.request("PATCH", f"{path}/{write.name}/status", body=body, content_type=STRATEGIC)
    except ApiError as error:
        if error.status == 404:
            return Outcome.GONE
        if error.status in (409, 422):
            return Outcome.TAKEN
        raise
    return Outcome.DONE


__all__ = ["ClaimWrite", "Refusal", "allocate", "give_up", "reserve", "waits_for_claims"]
