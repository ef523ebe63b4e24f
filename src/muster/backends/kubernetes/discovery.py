"""Which kinds a server has, and in which versions: aggregated discovery, which all of Kubernetes 1.30 and newer has."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct, field

from muster.errors import ClusterError
from muster.kube.world import Kind

ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class _Name(Struct):
    name: str = ""


class _Resource(Struct):
    resource: str
    scope: str = "Namespaced"
    verbs: list[str] = []


class _Version(Struct):
    version: str
    resources: list[_Resource] = []


class _Group(Struct):
    metadata: _Name = field(default_factory=_Name)
    versions: list[_Version] = []


class _Groups(Struct):
    kind: str = ""
    items: list[_Group] = []


class Served(Struct, frozen=True):
    """One resource in one version that a server has."""

    version: str
    namespaced: bool
    verbs: frozenset[str]


class Discovery:
    """What a server has.

    Args:
        served: each resource by group and plural name, in the server's order of versions.
        version: the server's own version, such as ``v1.37.2``; empty where it does not tell.
    """

    def __init__(self, served: dict[tuple[str, str], tuple[Served, ...]], version: str = "") -> None:
        self._served = served
        self.version = version

    def find(self, kind: Kind) -> Served | None:
        """The version of a kind that is understood and served, the preferred one first; None: there is none."""
        there = {each.version: each for each in self._served.get((kind.group, kind.resource), ())}
        return next((there[version] for version in kind.versions if version in there), None)

    def versions(self, kind: Kind) -> tuple[str, ...]:
        """All versions in which the server has a kind, understood or not."""
        return tuple(each.version for each in self._served.get((kind.group, kind.resource), ()))

    def path(self, kind: Kind, namespace: str = "") -> str | None:
        """The path of a kind's objects, of one namespace or of all, without a slash at the end; None: not served.

        ``path(PODS, "research") + "/NAME"`` is one object. A namespace is left out of kinds that stand in none.
        """
        found = self.find(kind)
        if found is None:
            return None
        base = f"/apis/{kind.group}/{found.version}" if kind.group else f"/api/{found.version}"
        inside = f"/namespaces/{namespace}" if namespace and found.namespaced else ""
        return f"{base}{inside}/{kind.resource}"

    def api_version(self, kind: Kind) -> str | None:
        """What stands in ``apiVersion`` of a kind's objects; None: not served."""
        found = self.find(kind)
        return None if found is None else f"{kind.group}/{found.version}" if kind.group else found.version


def discovery_of(answers: Iterable[bytes], version: str = "") -> Discovery:
    """The discovery from the server's answers at /api and /apis; raises `ClusterError` for what is none."""
    served: dict[tuple[str, str], tuple[Served, ...]] = {}
    for raw in answers:
        try:
            found = msgspec.json.decode(raw, type=_Groups)
        except (msgspec.DecodeError, ValueError):
            raise ClusterError(
                "the server does not answer as a Kubernetes API server", hint="is its address right?"
            ) from None
        if found.kind != "APIGroupDiscoveryList":
            raise ClusterError("the server has no aggregated discovery", hint="Kubernetes 1.34 or newer is needed")
        for group in found.items:
            for each in group.versions:
                for resource in each.resources:
                    key = group.metadata.name, resource.resource
                    one = Served(each.version, resource.scope == "Namespaced", frozenset(resource.verbs))
                    served[key] = (*served.get(key, ()), one)
    return Discovery(served, version)
