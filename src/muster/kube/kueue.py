"""Workloads of Kueue: what of a gang is known before its pods are made, and in which queue it waits."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.kube.declared import Declared
from muster.kube.kinds import KUEUE_WORKLOADS, RAY_CLUSTERS
from muster.kube.makers import KubeRayCluster
from muster.kube.objects import KubePod
from muster.kube.owners import KUEUE_GROUP, Gang
from muster.kube.queue_objects import KueueWorkload
from muster.kube.world import World

_MADE = {"TrainJob": "JobSet"}
"""Owners whose pods carry the labels of what they make, which is called the same."""
ORIGIN = "ray.io/originated-from-cr-name"


class KueueWorkloads:
    """The Workloads of Kueue by what they are of; looked at anew when one changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._version = -1
        self._by_gang: dict[Gang, KueueWorkload] = {}

    def of(self, gang: Gang, pods: list[KubePod]) -> KueueWorkload | None:
        """The Workload of a gang, if it has one that is not over."""
        self._refresh()
        if not self._by_gang:
            return None
        group = next((pod.metadata.label(KUEUE_GROUP) for pod in pods), "")
        if group:
            found = self._world.of(KUEUE_WORKLOADS, KueueWorkload).get(f"{gang.namespace}/{group}")
            if found is not None:
                return found
        if gang.kind == "RayCluster" and gang not in self._by_gang:
            cluster = self._world.of(RAY_CLUSTERS, KubeRayCluster).get(f"{gang.namespace}/{gang.name}")
            origin = cluster.metadata.label(ORIGIN) if cluster is not None else ""
            return self._by_gang.get(Gang("RayJob", gang.namespace, origin)) if origin else None
        return self._by_gang.get(gang)

    def waiting(self, there: set[Gang]) -> Iterator[Gang]:
        """The gangs that are not ``there``, as none of their pods is: those that Kueue has not let start."""
        self._refresh()
        clusters = self._world.of(RAY_CLUSTERS, KubeRayCluster)
        origins = {
            (gang.namespace, clusters[f"{gang.namespace}/{gang.name}"].metadata.label(ORIGIN))
            for gang in there
            if gang.kind == "RayCluster" and f"{gang.namespace}/{gang.name}" in clusters
        }
        for gang in self._by_gang:
            if gang not in there and gang.kind != "Pod" and (gang.namespace, gang.name) not in origins:
                yield gang

    def _refresh(self) -> None:
        version = self._world.revision(KUEUE_WORKLOADS)
        if version == self._version:
            return
        self._version = version
        self._by_gang = {}
        for found in self._world.of(KUEUE_WORKLOADS, KueueWorkload).values():
            meta, owner = found.metadata, found.metadata.owner
            if found.finished:
                continue
            kind, name = ("Workload.kueue.x-k8s.io", meta.name) if owner is None else (owner.kind, owner.name)
            self._by_gang[Gang(_MADE.get(kind, kind), meta.namespace, name)] = found


def with_kueue(said: Declared, found: KueueWorkload) -> Declared:
    """What is said of a gang, with what its Workload says: its queue, priority and places, and pods not made yet."""
    spec = found.spec
    sets = spec.pod_sets or []
    counts, templates = dict(said.counts), dict(said.templates)
    least_of = dict(said.least_of)
    for each in sets:
        if not said.counts:
            counts[each.name] = each.count
        if each.min_count is not None:
            least_of.setdefault(each.name, each.min_count)
        templates.setdefault(each.name, each.template)
    asked = next((each.topology_request for each in sets if each.topology_request is not None), None)
    required, preferred, segment = said.required, said.preferred, said.segment
    if asked is not None:
        required = asked.pod_set_slice_required_topology or asked.required or required
        segment = asked.pod_set_slice_size or 0 if asked.pod_set_slice_required_topology else 0
        preferred = asked.preferred or preferred
    limit_s = spec.maximum_execution_time_seconds
    return replace(
        said,
        meta=said.meta or found.metadata,
        counts=counts,
        templates=templates,
        least_of=least_of,
        required=required,
        preferred=preferred,
        segment=segment,
        queue=spec.queue_name or said.queue,
        system="kueue" if spec.queue_name else said.system,
        priority=said.priority if spec.priority is None else spec.priority,
        time_limit_s=said.time_limit_s if limit_s is None else float(limit_s),
        hold="deactivated" if spec.active is False else "",
    )
