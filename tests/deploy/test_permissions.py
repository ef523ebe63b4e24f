"""What the scheduler may do is exactly what it does: the chart's roles against the requests that the code sends."""

from __future__ import annotations

import ast
import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import muster
from muster.backends.kubernetes.api import ApiError
from muster.backends.kubernetes.commit import PodKey, bind, evict, note_event, tell_group, tell_waits
from muster.backends.kubernetes.lease import Leadership
from muster.kube.kinds import MUSTER_QUEUES, STRUCTS
from muster.kube.objects import Meta
from muster.kube.queue_objects import KubeQueue
from muster.kube.world import Kind, World
from muster.service.scheduler import usage
from muster.service.scheduler.claims import ClaimWrite, reserve
from muster.service.scheduler.volumes import VolumeWrite, provide
from rendered import Helm, of_kind

VALUES = Path(__file__).parent / "values"
PACKAGE = Path(muster.__file__).parent
SOURCES = [*PACKAGE.glob("backends/kubernetes/*.py"), *PACKAGE.glob("service/scheduler/*.py")]
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATH = re.compile(r"^/(?:api/v1|apis/([^/]+)/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+)(?:/([a-z]+))?)?$")
Permission = tuple[str, str, str]
"""Verb, API group, resource with its part."""


class Recorder:
    """Answers like a server, and keeps what it was asked as permissions."""

    def __init__(self, lease: dict[str, Any] | None = None) -> None:
        self.asked: set[Permission] = set()
        self._lease = lease

    async def request(self, method: str, path: str, **_: object) -> bytes:
        found = _PATH.match(path)
        assert found is not None, path
        group, resource, _name, part = found.groups()
        self.asked.add((VERBS[method], group or "", f"{resource}/{part}" if part else resource))
        if (resource, part) == ("resourceclaims", "status"):
            # since Kubernetes 1.36, who writes an allocation needs this as well
            # (DRAResourceClaimGranularStatusAuthorization); nothing is sent there
            self.asked.add((VERBS[method], group, "resourceclaims/binding"))
        if method == "GET" and self._lease is None:
            raise ApiError(404, "NotFound", "not there", "get", path)
        return msgspec.json.encode(self._lease)

    async def discover(self) -> Recorder:
        return self

    def path(self, kind: Kind, namespace: str = "") -> str:
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{kind.group}/{kind.versions[0]}{inside}/{kind.resource}"


POD = PodKey("team-a", "trainer-0", "1")
MINE = {"metadata": {"name": "muster", "namespace": "gpu-system"}, "spec": {"holderIdentity": "me"}}
GROUP = "/apis/scheduling.k8s.io/v1beta1/namespaces/team-a/podgroups/trainer"
CLAIM = ClaimWrite("team-a", "gpus", "2", "7", {"devices": {}})
MADE = VolumeWrite("team-a/trainer", "team-a", "data", "3", "8", node="node-1")
KEPT = VolumeWrite("team-a/trainer", "team-a", "data", "3", "8", volume="pv-1")
REGARDING = {"kind": "Pod", "namespace": POD.namespace, "name": POD.name, "uid": POD.uid}


def lead(server: Any) -> Leadership:
    return Leadership(server, "gpu-system", "muster", "me", random.Random(1))


async def release(server: Any) -> None:
    leader = lead(server)
    leader.leading.set()
    await leader.release()


async def write_statuses(server: Any) -> None:
    world = World()
    world.put(MUSTER_QUEUES, KubeQueue(metadata=Meta(name="research")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usage, "statuses", lambda scheduler, now_s: {"research": {"pending": 1}})
        await usage.write_statuses(server, world, None, 0.0)  # type: ignore[arg-type]


CALLS: dict[str, list[tuple[Callable[[Any], Awaitable[Any]], dict[str, Any] | None]]] = {
    "commit.bind": [(lambda server: bind(server, POD, "node-1"), None)],
    "commit.evict": [(lambda server: evict(server, POD), None)],
    "commit.tell_waits": [(lambda server: tell_waits(server, POD, "QUOTA: used"), None)],
    "commit.tell_group": [(lambda server: tell_group(server, GROUP, scheduled=True, message="3 pods"), None)],
    "commit.note_event": [
        (lambda server: note_event(server, REGARDING, "R", "n", reporter="r", instance="i", action="a"), None)
    ],
    "claims.reserve": [(lambda server: reserve(server, CLAIM, POD), None)],
    "lease._try": [(lambda server: lead(server)._try(), None), (lambda server: lead(server)._try(), MINE)],
    "lease._write": [(release, MINE)],
    "volumes.provide": [(lambda server: provide(server, MADE), None), (lambda server: provide(server, KEPT), None)],
    "usage.write_statuses": [(write_statuses, None)],
}
"""Each function that writes, how it is called, and the Lease that it finds. A new one is entered here, and what it
needs in deploy/helm/muster/templates/clusterrole.yaml (or role.yaml)."""


def writers(path: Path) -> set[str]:
    """The functions of a file that send a request other than a GET."""
    found: set[str] = set()

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "request":
            method = node.args[0] if node.args else None
            if isinstance(method, ast.Constant) and method.value != "GET":
                found.add(f"{path.stem}.{function}")
        for child in ast.iter_child_nodes(node):
            look(child, function)

    look(ast.parse(path.read_text()), "")
    return found


def test_each_function_that_writes_is_known() -> None:
    assert set().union(*map(writers, SOURCES)) == set(CALLS)


def asked() -> set[Permission]:
    """What all that writes needs."""
    found: set[Permission] = set()
    for calls in CALLS.values():
        for call, lease in calls:
            server = Recorder(lease)
            asyncio.run(_await(call(server)))
            found |= server.asked
    return found


async def _await(call: Awaitable[Any]) -> None:
    await call


def granted(documents: list[dict[str, Any]]) -> set[Permission]:
    roles = [*of_kind(documents, "ClusterRole"), *of_kind(documents, "Role")]
    return {
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


READS = {(verb, kind.group, kind.resource) for kind in STRUCTS for verb in ("list", "watch")}


def test_it_may_do_what_it_does_and_nothing_else(helm: Helm) -> None:
    assert granted(helm.render(VALUES / "defaults.yaml")) == READS | asked()


def test_in_shadow_mode_it_may_only_read(helm: Helm) -> None:
    assert granted(helm.render(VALUES / "shadow.yaml")) == READS


def test_what_was_asked_is_read_from_its_path() -> None:
    """The test's own reading of paths: a binding, an object of another group, a list of a namespace."""
    assert ("create", "", "pods/binding") in asked()
    assert ("patch", "muster.dev", "queues/status") in asked()
    assert ("create", "coordination.k8s.io", "leases") in asked()
    assert ("get", "coordination.k8s.io", "leases") in asked()
