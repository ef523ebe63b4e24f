"""Writes of a scheduler to the API server: bindings, evictions, conditions, events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from muster.backends.kubernetes.api import ApiError, ApiServer
from muster.backends.kubernetes.lease import micro_time

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
MOST_MESSAGE = 1024
"""Bytes that the server takes in an event's note."""


class PodKey(Struct, frozen=True, order=True):
    """A pod, this very one: another of the same name has another ``uid``."""

    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        """Its URL path."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class Outcome(Enum):
    """What became of a write: done, never to be done (the object is gone or is another's), or to be tried again."""

    DONE = "done"
    GONE = "gone"
    TAKEN = "taken"
    LATER = "later"


async def bind(server: ApiServer, pod: PodKey, node: str) -> Outcome:
    """Let a pod run on a node. TAKEN: it is bound already, or has gates.

    Raises:
        ApiError: the server refuses it (403, 422), or is not well; then, and where it is not there
            (`ServerUnreachable`), whether the pod is bound is not known.
    """
    body = msgspec.json.encode({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    })  # fmt: skip
    try:
        await server.request("POST", f"{pod.path}/binding", body=body)
    except ApiError as error:
        if error.status == 404:
            return Outcome.GONE
        if error.status == 409:
            return Outcome.TAKEN
        raise
    return Outcome.DONE


async def evict(server: ApiServer, pod: PodKey, *, dry_run: bool = False) -> Outcome:
    """Stop a pod by the Eviction API, which honours disruption budgets: LATER where one allows nothing now."""
    body: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}, **({"dryRun": ["All"]} if dry_run else {})},
    }
    try:
        await server.request("POST", f"{pod.path}/eviction", body=msgspec.json.encode(body))
    except ApiError as error:
        if error.status in (404, 409):
            return Outcome.GONE
        if error.status == 429:
            return Outcome.LATER
        raise
    return Outcome.DONE


async def tell_waits(server: ApiServer, pod: PodKey, message: str) -> Outcome:
    """Set the condition by which Kubernetes says that a pod is not scheduled, which autoscalers go by, too."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message[:MOST_MESSAGE],
        "lastProbeTime": None, "lastTransitionTime": now,
    }  # fmt: skip
    body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
    try:
        await server.request("PATCH", f"{pod.path}/status", body=msgspec.json.encode(body), content_type=STRATEGIC)
    except ApiError as error:
        if error.status in (404, 409, 422):
            return Outcome.GONE
        raise
    return Outcome.DONE


async def tell_group(server: ApiServer, path: str, *, scheduled: bool, message: str) -> Outcome:
    """Set the condition of a native PodGroup, at its path, that says whether it has been scheduled.

    Once it is True it stays so, as Kubernetes has it.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "PodGroupInitiallyScheduled", "status": "True" if scheduled else "False",
        "reason": "Scheduled" if scheduled else "Unschedulable", "message": message[:MOST_MESSAGE],
        "lastTransitionTime": now,
    }  # fmt: skip
    body = msgspec.json.encode({"status": {"conditions": [condition]}})
    try:
        await server.request("PATCH", f"{path}/status", body=body, content_type=MERGE)
    except ApiError as error:
        if error.status in (404, 409, 422):
            return Outcome.GONE
        raise
    return Outcome.DONE


async def note_event(
    server: ApiServer, regarding: Mapping[str, str], reason: str, note: str, *, reporter: str, instance: str,
    action: str, warning: bool = False,
) -> None:  # fmt: skip
    """An event (events.k8s.io/v1) on an object; ``regarding`` is its reference."""
    namespace = regarding.get("namespace") or "default"
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{regarding['name'][:40].rstrip('.-')}-", "namespace": namespace},
        "eventTime": micro_time(datetime.now(UTC)),
        "reportingController": reporter,
        "reportingInstance": instance[:128],
        "action": action,
        "reason": reason,
        "note": note[:MOST_MESSAGE],
        "type": "Warning" if warning else "Normal",
        "regarding": dict(regarding),
    }
    await server.request(
        "POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body=msgspec.json.encode(body)
    )
