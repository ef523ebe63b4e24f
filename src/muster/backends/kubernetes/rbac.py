"""What the server must allow for Muster to answer: the rules of the ClusterRole in deploy/rbac/read-only.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from muster.kube.world import Kind

READ_VERBS = ("get", "list", "watch")
"""``list`` for answers, all three to watch."""

NAME = "muster-read-only"

_MADE = "jobs jobsets leaderworkersets pytorchjobs tfjobs xgboostjobs paddlejobs jaxjobs mpijobs rayclusters trainjobs"
_DEVICES = "resourceslices deviceclasses resourceclaims resourceclaimtemplates devicetaintrules"
_UNKNOWN = {
    "namespaces": "which namespaces a pod affinity means by their labels",
    "persistentvolumeclaims persistentvolumes": "to which nodes volumes tie pods",
    "storageclasses csidrivers csistoragecapacities": "on which nodes volumes can be made",
    "resourcequotas": "which namespaces are at their quota",
    "priorityclasses workloadpriorityclasses": "how important pods are that name a class",
    "poddisruptionbudgets": "which pods must not be evicted",
    "podgroups workloads": "which pods are to start together",
    _MADE: "how many pods are yet to be made",
    "clusterqueues cohorts localqueues resourceflavors queues": "which quotas hold",
    "topologies": "which labels are levels of the topology",
    _DEVICES: "which devices DRA has and who holds them",
    "computedomains": "which pods must share an NVLink domain",
}
UNKNOWN = {resource: text for resources, text in _UNKNOWN.items() for resource in resources.split()}
"""What is not known where a resource must not be read, as the end of a sentence."""


def read_rules(kinds: Iterable[Kind]) -> list[dict[str, Any]]:
    """A rule for each API group: its resources, and that they may be read. Status is a part of what is read."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.resource)
    return [
        {"apiGroups": [group], "resources": list(dict.fromkeys(resources)), "verbs": list(READ_VERBS)}
        for group, resources in groups.items()
    ]


def read_only_objects(kinds: Iterable[Kind], namespace: str = "default") -> list[dict[str, Any]]:
    """A ServiceAccount, the ClusterRole, and the binding of one to the other."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    return [
        {
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": namespace},
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": NAME},
            "rules": read_rules(kinds),
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
            "roleRef": role, "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        },
    ]  # fmt: skip
